package kube

import (
	"fmt"
	"slices"

	v1 "k8s.io/api/core/v1"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/engine"
	"github.com/muster-gpu/muster/kube/fit"
)

// A claim with ReadWriteOncePod is for one pod of the cluster at a time. The pod that has it leaves for a gang of a
// higher tier that would start then: as kube-scheduler does by priority. The engine knows no claims, so this is decided
// beside it: a second engine is asked first whether the gang starts if the other leaves. Both are told to the engine in
// one batch, so that the one gets what the other leaves. If it starts before the other is gone, it has its places, and
// is held until then.

// rivals lists the pods that have the claims of a pod that are for one pod at a time.
func (d *Driver) rivals(p *pod) []fit.Rival { return d.volumes.Rivals(d.nodes.World, &p.Neighbour) }

// otherHeldPods lists the pods of gangs that are held, but for that of one pod.
func (d *Driver) otherHeldPods(but *fit.Neighbour) (list []*fit.Neighbour) {
	mine := podOf(but)
	for g := range d.heldBack {
		if mine.gang != g {
			list = append(list, neighboursOf(g.submitted())...)
		}
	}
	return list
}

// leaves reports whether a pod is told to leave, or ends.
func (p *pod) leaves() bool {
	return p.leaving || p.Obj.DeletionTimestamp != nil ||
		p.gang != nil && (p.gang.phase == stopping || p.gang.leaves != "")
}

// heldBy says which of the claims is held by a pod that does not leave; "": none.
func heldBy(list []fit.Rival) string {
	for i := range list {
		if !podOf(list[i].User).leaves() {
			return list[i].Text()
		}
	}
	return ""
}

// yields reports whether all of these would leave for a gang: they run, are of a lower tier, and have run for as long
// as the configuration lets any gang.
func (d *Driver) yields(g *gang, pods []*pod, tier cluster.Tier, list []fit.Rival) bool {
	if g.of != "" && !g.repair.patch || slices.ContainsFunc(pods, func(p *pod) bool {
		return p.Obj.Spec.PreemptionPolicy != nil && *p.Obj.Spec.PreemptionPolicy == v1.PreemptNever
	}) {
		return false
	}
	return !slices.ContainsFunc(list, func(r fit.Rival) bool {
		user := podOf(r.User)
		return user.leaves() || !d.goes(user.gang, tier)
	})
}

// contend looks which pods have what a gang needs alone; false: it has to wait for them.
func (d *Driver) contend(g *gang, pods []*pod, spec *cluster.Job, l *fit.Limits) bool {
	g.rivals = l.Rivals
	if len(g.rivals) == 0 {
		return true
	}
	if !d.yields(g, pods, spec.Tier, g.rivals) {
		g.refused, d.blocked[g] = g.rivals[0].Text(), true
		return false
	}
	if g.search.IsNarrow() { // no gang leaves for a preference
		g.search.Anywhere()
		spec.NoPreempt = false
		*l = d.confine(g, d.limitsOf(pods, g.fails > 0, true))
	}
	return true
}

// displace lets those go that have what a gang needs alone, if it starts then; false:
// it would not.
func (d *Driver) displace(g *gang, spec *cluster.Job) (events []engine.Event, ok bool) {
	for i := range g.rivals {
		q := podOf(g.rivals[i].User).gang
		if ev := (engine.Event{Type: engine.Cancelled, Job: q.id}); !slices.ContainsFunc(events,
			func(e engine.Event) bool { return e.Job == q.id }) {
			events = append(events, ev)
		}
	}
	if len(events) > 0 && !d.wouldStart(g, spec, events) {
		g.refused, d.blocked[g] = g.rivals[0].Text()+", and without it there is no room either", true
		return nil, false
	}
	for i := range g.rivals {
		if q := podOf(g.rivals[i].User).gang; q.leaves == "" {
			q.leaves, q.grace = fmt.Sprintf("preempted for %s, which needs volume claim %s alone", g.name,
				g.rivals[i].Claim), 30
		}
	}
	return events, true
}

// wouldStart asks a second engine whether a job would have its places in the next
// step, if these came before it.
func (d *Driver) wouldStart(g *gang, spec *cluster.Job, before []engine.Event) bool {
	spec.ID = d.next
	events := append(slices.Concat(d.nodes.Sets.Naming(g.nodes), before),
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
func (d *Driver) holdBack(g *gang) bool {
	asleep, _ := g.asleep(d.nodes)
	if g.waking = len(asleep) > 0; g.waking {
		d.nodes.Power.Soon() // they are woken
		g.told.Since(d.now, d.opt.TellAfter)
	}
	if !g.waking && !g.awaits() &&
		!slices.ContainsFunc(g.submitted(), func(p *pod) bool { return len(d.rivals(p)) > 0 }) {
		return false
	}
	d.heldBack[g] = true
	d.nodes.World.Changed()
	for _, s := range g.places {
		if p := g.pods[s.Pod]; p != nil {
			p.nominate(d.notices, s.Node)
			if len(g.lifted) > 0 && !s.Surplus {
				d.expect(p, s.Node)
			}
		}
	}
	return true
}

// settleHeld binds a gang that is held once no other has what it needs alone; it reports whether it is still held.
func (d *Driver) settleHeld(g *gang) bool {
	if !d.heldBack[g] {
		return false
	}
	asleep, lost := g.asleep(d.nodes)
	if g.waking && lost != "" {
		g.refused = "node " + lost + " did not come back"
		d.unhold(g)
		return false
	}
	all := !g.awaits() && len(asleep) == 0
	for _, s := range g.places.Needed() {
		p := g.pods[s.Pod]
		list := []fit.Rival(nil)
		if p != nil {
			list = d.rivals(p)
			g.refused = heldBy(list)
		}
		if p == nil || !p.waits() || g.refused != "" { // it does not start
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
	d.unlift(g)
	if g.refused = why; why == "" {
		g.refused = d.grantAll(g)
	}
	if g.refused == "" {
		d.bindAll(g)
	}
	return false
}

func (d *Driver) unhold(g *gang) {
	if g.waking = false; d.heldBack[g] {
		delete(d.heldBack, g)
		d.nodes.World.Changed()
	}
}

// bindAll binds the pods of a gang that it needs.
func (d *Driver) bindAll(g *gang) {
	for _, s := range g.places.Needed() {
		if p := g.pods[s.Pod]; p != nil && p.waits() {
			d.bind(g, p, s.Node)
		}
	}
}
