package kube

import (
	"fmt"
	"slices"

	v1 "k8s.io/api/core/v1"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/engine"
	"github.com/muster-gpu/muster/kube/fit"
	"github.com/muster-gpu/muster/kube/gang"
)

// A claim with ReadWriteOncePod is for one pod of the cluster at a time. The pod that has it leaves for a gang of a
// higher tier that would start then: as kube-scheduler does by priority. The engine knows no claims, so this is decided
// beside it: a second engine is asked first whether the gang starts if the other leaves. Both are told to the engine in
// one batch, so that the one gets what the other leaves. If it starts before the other is gone, it has its places, and
// is held until then.

// otherHeldPods lists the pods of gangs that are held, but for that of one pod.
func (d *Driver) otherHeldPods(but *fit.Neighbour) (list []*fit.Neighbour) {
	mine := gang.PodOf(but)
	for g := range d.heldBack {
		if mine.Gang != g {
			list = append(list, gang.Neighbours(g.Submitted())...)
		}
	}
	return list
}

// yields reports whether all of these would leave for a gang: they run, are of a lower tier, and have run for as long
// as the configuration lets any gang.
func (d *Driver) yields(g *gang.Gang, pods []*gang.Pod, tier cluster.Tier, list []fit.Rival) bool {
	if g.Of != "" && !g.Repair.IsPatch || slices.ContainsFunc(pods, func(p *gang.Pod) bool {
		return p.Obj.Spec.PreemptionPolicy != nil && *p.Obj.Spec.PreemptionPolicy == v1.PreemptNever
	}) {
		return false
	}
	return !slices.ContainsFunc(list, func(r fit.Rival) bool {
		user := gang.PodOf(r.User)
		return user.Leaves() || !d.goes(user.Gang, tier)
	})
}

// contend looks which pods have what a gang needs alone; false: it has to wait for them.
func (d *Driver) contend(g *gang.Gang, pods []*gang.Pod, spec *cluster.Job, l *fit.Limits) bool {
	g.Rivals = l.Rivals
	if len(g.Rivals) == 0 {
		return true
	}
	if !d.yields(g, pods, spec.Tier, g.Rivals) {
		g.Refused, d.blocked[g] = g.Rivals[0].Text(), true
		return false
	}
	if g.Search.IsNarrow() { // no gang leaves for a preference
		g.Search.Anywhere()
		spec.NoPreempt = false
		*l = d.reader.Confine(g, d.reader.Limits(pods, g.Fails > 0, true))
	}
	return true
}

// displace lets those go that have what a gang needs alone, if it starts then; false:
// it would not.
func (d *Driver) displace(g *gang.Gang, spec *cluster.Job) (events []engine.Event, ok bool) {
	for i := range g.Rivals {
		q := gang.PodOf(g.Rivals[i].User).Gang
		if ev := (engine.Event{Type: engine.Cancelled, Job: q.Job}); !slices.ContainsFunc(events,
			func(e engine.Event) bool { return e.Job == q.Job }) {
			events = append(events, ev)
		}
	}
	if len(events) > 0 && !d.wouldStart(g, spec, events) {
		g.Refused, d.blocked[g] = g.Rivals[0].Text()+", and without it there is no room either", true
		return nil, false
	}
	for i := range g.Rivals {
		if q := gang.PodOf(g.Rivals[i].User).Gang; q.Leaves == "" {
			q.Leaves, q.Grace = fmt.Sprintf("preempted for %s, which needs volume claim %s alone", g.Name,
				g.Rivals[i].Claim), 30
		}
	}
	return events, true
}

// wouldStart asks a second engine whether a job would have its places in the next
// step, if these came before it.
func (d *Driver) wouldStart(g *gang.Gang, spec *cluster.Job, before []engine.Event) bool {
	spec.ID = d.next
	events := append(slices.Concat(d.nodes.Sets.Naming(g.Nodes), before),
		engine.Event{Type: engine.Submitted, Job: spec.ID, Spec: spec})
	return d.foreseen(spec.ID, events) != nil
}

// foreseen is what a second engine knows of a job that has its places after the next step
// with these events; nil: it has none.
func (d *Driver) foreseen(id cluster.JobID, events []engine.Event) *engine.JobRecord {
	snap, cfg := d.eng.Snapshot(), d.cfg
	cfg.Spec.Queues = d.queues.Fitted()
	e, err := engine.Restore(cfg, &snap)
	if err != nil {
		d.opt.Log.Error("a second engine cannot be made", "error", err)
		return nil
	}
	e.Step(engine.Batch{Seq: d.seq + 1, Now: d.now, Events: events})
	if r := e.Record(id); r != nil && (r.State == engine.Placed || r.State == engine.Starting) {
		return r
	}
	return nil
}

// holdBack keeps the places of a gang that starts until all have left that have what it needs alone, or that are where
// it cannot be beside them; false: there are none.
func (d *Driver) holdBack(g *gang.Gang) bool {
	asleep, _ := g.Asleep(d.nodes)
	if g.Waking = len(asleep) > 0; g.Waking {
		d.nodes.Power.Soon() // they are woken
		g.Told.Since(d.now, d.opt.TellAfter)
	}
	if !g.Waking && !g.Awaits() &&
		!slices.ContainsFunc(g.Submitted(), func(p *gang.Pod) bool { return len(d.reader.Rivals(p)) > 0 }) {
		return false
	}
	d.heldBack[g] = true
	d.nodes.World.Changed()
	for _, s := range g.Places {
		if p := g.Pods[s.Pod]; p != nil {
			p.Nominate(d.notices, s.Node)
			if len(g.Victims) > 0 && !s.Surplus {
				d.expect(p, s.Node)
			}
		}
	}
	return true
}

// settleHeld binds a gang that is held once no other has what it needs alone; it reports whether it is still held.
func (d *Driver) settleHeld(g *gang.Gang) bool {
	if !d.heldBack[g] {
		return false
	}
	asleep, lost := g.Asleep(d.nodes)
	if g.Waking && lost != "" {
		g.Refused = "node " + lost + " did not come back"
		d.unhold(g)
		return false
	}
	all := !g.Awaits() && len(asleep) == 0
	for _, s := range g.Places.Needed() {
		p := g.Pods[s.Pod]
		list := []fit.Rival(nil)
		if p != nil {
			list = d.reader.Rivals(p)
			g.Refused = gang.HeldBy(list)
		}
		if p == nil || !p.Waits() || g.Refused != "" { // it does not start
			d.unhold(g)
			return false
		}
		all = all && len(list) == 0
	}
	if !all {
		return true
	}
	d.unhold(g)
	why := d.overtaken(g)
	d.forgetVictims(g)
	if g.Refused = why; why == "" {
		g.Refused = d.grantAll(g)
	}
	if g.Refused == "" {
		d.bindAll(g)
	}
	return false
}

func (d *Driver) unhold(g *gang.Gang) {
	if g.Waking = false; d.heldBack[g] {
		delete(d.heldBack, g)
		d.nodes.World.Changed()
	}
}

// bindAll binds the pods of a gang that it needs.
func (d *Driver) bindAll(g *gang.Gang) {
	for _, s := range g.Places.Needed() {
		if p := g.Pods[s.Pod]; p != nil && p.Waits() {
			d.bind(g, p, s.Node)
		}
	}
}
