package kube

import (
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/muster-gpu/muster/engine"
)

// Lenders knows the services that lend what they do not use, and within which time they have it back.
type Lenders interface {
	// Within is that time for the service whose replica a pod is; 0: it promises none.
	Within(p *v1.Pod) time.Duration
	// Returned tells that a replica's pod has what other gangs made room for, so long after these were asked.
	Returned(p *v1.Pod, took time.Duration)
}

// returnMargin is the part of the time within which a service has something back that is not the leaving pods': for
// all that happens before and after.
const returnMargin = 2 * time.Second

// askBack notes that a gang leaves for a replica of a service, and returns how long the gang has, of the grace of its
// tier.
func (d *Driver) askBack(a *engine.Action) time.Duration {
	replica := d.byID[a.For]
	if d.opt.Lenders == nil || replica == nil || len(replica.pods) == 0 {
		return a.Grace
	}
	within := d.opt.Lenders.Within(replica.sorted()[0].obj)
	if within == 0 {
		return a.Grace
	}
	if replica.askedBack.IsZero() {
		replica.askedBack = d.opt.Now()
	}
	return min(a.Grace, max(within-returnMargin, time.Second))
}

// hasBack notes that a gang has its place.
func (d *Driver) hasBack(g *gang) {
	if !g.askedBack.IsZero() && len(g.pods) > 0 {
		d.opt.Lenders.Returned(g.sorted()[0].obj, d.opt.Now().Sub(g.askedBack))
	}
	g.askedBack = time.Time{}
}
