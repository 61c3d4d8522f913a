package kube

import (
	"fmt"
	"hash/fnv"

	v1 "k8s.io/api/core/v1"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/engine"
	"github.com/muster-gpu/muster/kube/fit"
	"github.com/muster-gpu/muster/kube/gang"
	"github.com/muster-gpu/muster/kube/gpus"
	"github.com/muster-gpu/muster/kube/places"
)

// What decides about a pod can change after it was created: labels, annotations and owners at any time, tolerations
// while it waits, its node selector and affinity while it has scheduling gates, CPU and memory in place while it runs.
// Each change of a pod is compared with what was read of it, and what differs is read again.

// reread reads again what changed of a pod.
func (d *Driver) reread(p *gang.Pod) {
	d.nodes.World.Changed()
	g := p.Gang
	switch {
	case g == nil:
		d.rereadForeign(p)
	case p.Node != "" || p.Binding || g.Phase != gang.Gathering && g.Phase != gang.Waiting:
		d.rereadBound(p)
	case claimOf(d.objects, p.Obj).Key != g.Key && g.Of == "":
		d.read(p)
		d.rejoin(p)
	default:
		d.endTurn(g)
		d.read(p)
		p.Around = fit.Around(p.Obj) + p.Claimed.Wants
		p.Read(d.fit)
		d.agenda.touch(g)
		g.Told.Since(d.now, d.opt.TellAfter)
	}
}

// read reads what a pod asks for.
func (d *Driver) read(p *gang.Pod) {
	requests := gpus.Requests(p.Obj)
	p.Request = d.gpus.RequestIn(requests)
	p.Replica = d.gpus.ReplicaIn(p.Obj, requests, &p.Request)
	d.readNeeds(p, requests)
	if p.Claimed.Known {
		p.Request = p.Claimed.Counts.Add(p.Request)
	}
}

// rereadForeign counts what a foreign pod holds now.
func (d *Driver) rereadForeign(p *gang.Pod) {
	counted := d.nodes.DropForeign(p.Node, &p.Pod)
	d.read(p)
	if counted {
		d.nodes.AddForeign(p.Node, &p.Pod)
	}
	d.nodes.Dirty, d.nodes.SizesDirty = true, true
}

// rereadBound notes what CPU and memory a pod of ours holds now; its GPUs cannot change.
func (d *Driver) rereadBound(p *gang.Pod) {
	now := d.gpus.RequestOf(p.Obj)
	if p.Request.CPU == now.CPU && p.Request.RAM == now.RAM {
		return
	}
	p.Request.CPU, p.Request.RAM = now.CPU, now.RAM
	p.Gang.Resized, d.nodes.SizesDirty = true, true
}

// factsOf is the terms of a gang and what these pods ask for, as a number: the same as long as the engine's job of it
// would be the same.
func (d *Driver) factsOf(g *gang.Gang, pods []*gang.Pod) uint64 {
	if len(pods) == 0 {
		return 0
	}
	h := fnv.New64a()
	t, err := d.terms(g, pods[0].Obj)
	_, _ = fmt.Fprintf(h, "%+v %v", t, err) // a hash's Write never fails
	for _, p := range pods {
		_, _ = fmt.Fprintf(h, "%s %s %s %+v %v", p.Obj.UID, p.Base, p.Around, p.Request,
			p.Obj.Spec.PreemptionPolicy != nil && *p.Obj.Spec.PreemptionPolicy == v1.PreemptNever)
	}
	return h.Sum64()
}

// reshapeAll books what the pods of gangs that were resized hold now.
func (d *Driver) reshapeAll(snap *engine.Snapshot) {
	for i := range snap.Jobs {
		rec := &snap.Jobs[i]
		g := d.byID[rec.Spec.ID]
		if g == nil || !g.Resized {
			continue
		}
		if (g.Phase == gang.Running || g.Phase == gang.Starting) &&
			(rec.State == engine.Running || rec.State == engine.Starting) && rec.Spec.Elastic == (cluster.Elastic{}) {
			d.reshape(g, rec)
		}
		g.Resized = false
	}
}

// reshape makes the task sets of a gang what its pods hold, if that can run and its places are the engine's, which they
// are not while it is repaired.
func (d *Driver) reshape(g *gang.Gang, rec *engine.JobRecord) {
	was := places.Layout{Tasks: rec.Spec.Tasks, Places: g.Places, Allocs: rec.Allocs}
	now, ok := was.Resized(func(s *places.Place, r cluster.Request) cluster.Request {
		if p := g.Pods[s.Pod]; p != nil && !p.Over() {
			r.CPU, r.RAM = p.Request.CPU, p.Request.RAM
		}
		return r
	}, d.nodes.Order())
	if ok {
		d.reform(g, rec, now)
	}
}

// sendBack takes a gang back until the engine knows what pods hold now.
func (d *Driver) sendBack(g *gang.Gang, why string) {
	d.opt.Log.Debug("a gang cannot be where it was placed", "gang", g.Name, "reason", why)
	d.queued = append(d.queued, engine.Event{Type: engine.StartFailed, Job: g.Job},
		engine.Event{Type: engine.Cancelled, Job: g.Job})
	d.agenda.at(g, d.now.Add(resizeEvery))
	d.withdraw(g)
	g.Refused = why
}
