package kube

import (
	"maps"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/engine"
	"github.com/muster-gpu/muster/kube/gang"
	"github.com/muster-gpu/muster/kube/loans"
	"github.com/muster-gpu/muster/kube/terms"
)

// Lenders knows the services that lend what they do not use, and within which time they have it back.
type Lenders interface {
	// Within is that time for the service whose replica a pod is; 0: it promises none.
	Within(p *v1.Pod) time.Duration
	// Lending are the services that lend, and Service is that whose replica a pod is; "": none lends.
	Lending() []cluster.Lender
	Service(p *v1.Pod) string
	// Watch has a function called whenever one of these may be another.
	Watch(changed func())
	// Returned tells that a replica's pod has what other gangs made room for, so long after these were asked.
	Returned(p *v1.Pod, took time.Duration)
}

// returnMargin is the part of the time within which a service has something back that is not the leaving pods': for
// all that happens before and after.
const returnMargin = 2 * time.Second

// lender is the service that lends whose replica a pod is; "": none.
func (o *Options) lender(p *v1.Pod) string {
	if o.Lenders == nil {
		return ""
	}
	return o.Lenders.Service(p)
}

// lenderEvents tell the engine which services lend, and which gangs are their replicas.
func (d *Driver) lenderEvents() []engine.Event {
	d.lenders = false
	var list []loans.Gang
	for _, id := range slices.Sorted(maps.Keys(d.byID)) {
		g := d.byID[id]
		if spec := d.eng.Spec(id); spec != nil && len(g.Pods) > 0 {
			list = append(list, loans.Gang{Spec: spec, Service: d.opt.lender(g.Sorted()[0].Obj)})
		}
	}
	return loans.ServiceEvents(d.opt.Lenders.Lending(), list, func(spec *cluster.Job) { d.byID[spec.ID].Spec = spec })
}

// askBack notes that a gang leaves for a replica of a service, and returns how long the gang has, of the grace of its
// tier.
func (d *Driver) askBack(a *engine.Action) time.Duration {
	replica := d.byID[a.For]
	if d.opt.Lenders == nil || replica == nil || len(replica.Pods) == 0 {
		return a.Grace
	}
	pod := replica.Sorted()[0].Obj
	within := d.opt.Lenders.Within(pod)
	if within == 0 {
		return a.Grace
	}
	if replica.AskedSince(pod, d.opt.Seal, d.opt.Now()).IsZero() {
		replica.AskedBack = d.opt.Now()
		d.noteFor(pod, terms.AnnotationAsked, replica.AskedBack.Format(time.RFC3339Nano))
	}
	return min(a.Grace, max(within-returnMargin, time.Second))
}

// returned notes that a gang has its place since a time.
func (d *Driver) returned(g *gang.Gang, at time.Time) {
	if d.opt.Lenders == nil || len(g.Pods) == 0 {
		return
	}
	first := g.Sorted()[0].Obj
	if since := g.AskedSince(first, d.opt.Seal, d.opt.Now()); !since.IsZero() {
		d.opt.Lenders.Returned(first, max(0, at.Sub(since)))
		d.noteFor(first, terms.AnnotationReturned, since.Format(time.RFC3339Nano))
	}
	g.AskedBack, g.HasBack = time.Time{}, true
}
