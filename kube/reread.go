package kube

import (
	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/engine"
	"github.com/muster-gpu/muster/kube/fit"
	"github.com/muster-gpu/muster/kube/gang"
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
		d.reader.Read(p)
		d.rejoin(p)
	default:
		d.endTurn(g)
		d.reader.Read(p)
		p.Around = fit.Around(p.Obj) + p.Claimed.Wants
		p.Read(d.fit)
		d.agenda.touch(g)
		g.Told.Since(d.now, d.opt.TellAfter)
	}
}

// rereadForeign counts what a foreign pod holds now.
func (d *Driver) rereadForeign(p *gang.Pod) {
	counted := d.nodes.DropForeign(p.Node, &p.Pod)
	d.reader.Read(p)
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
