package kube

import (
	"fmt"
	"maps"
	"slices"

	v1 "k8s.io/api/core/v1"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/engine"
	"github.com/muster-gpu/muster/kube/gangs"
	"github.com/muster-gpu/muster/kube/moves"
	"github.com/muster-gpu/muster/kube/nodes"
	"github.com/muster-gpu/muster/kube/succession"
	"github.com/muster-gpu/muster/show"
)

// A gang that the engine moves keeps its job: its pods are evicted as a whole, and the places that were booked before
// that are given to those that its owner makes instead. From when its pods have left, a gang without pods (phase
// moving) stands for it; the gang that gathers as what comes next (the successor) takes its job over, once the engine
// says that it may start. What no gang takes in time is let go. All of that is the scheduler's memory: its successor
// finds pods that wait, and places that are free.

// relocation is the way of a gang that is moved.
type relocation struct {
	moves.Relocation
	successor *gang // gathers what comes instead
}

// setOut books that a gang that is told to leave is moved; "" is returned if it is
// not, else where to.
func (d *Driver) setOut(g *gang, a *engine.Action) string {
	r := d.eng.Record(g.id)
	if a.Reason != engine.Preempted || r == nil || r.State != engine.Stopping || len(r.Dest) == 0 {
		return ""
	}
	pods := g.seated()
	p := &relocation{Relocation: moves.Relocation{Parting: d.partingOf(g, pods), Job: g.id, Name: g.name, Spec: g.spec,
		Pods: onNodes(pods), To: moves.Names(r.Dest, d.nodes.Order())}}
	p.Until = d.now.Add(a.Grace + d.opt.Await)
	g.relocation, d.relocations[g.id] = p, g
	d.agenda.at(g, p.Until)
	return p.To
}

// leavePlaceholder leaves a gang without pods in the place of one that is moved, whose pods have
// gone; nil: it is not moved. The caller withdraws the gang that is left.
func (d *Driver) leavePlaceholder(g *gang) *gang {
	p := g.relocation
	if p == nil {
		return nil
	}
	w := &gang{key: fmt.Sprintf("move/%d", p.Job), name: p.Name + "-move", object: g.object, kind: g.kind, id: p.Job,
		spec: p.Spec, phase: moving, relocation: p,
		need: func() (gangs.Membership, error) { return gangs.Membership{}, nil }}
	g.relocation = nil
	g.retry = 0 // what it was to wait for is over
	delete(d.agenda.later, g.key)
	p.Until = d.now.Add(d.opt.Await)
	d.gangs[w.key], d.relocations[p.Job] = w, w
	d.agenda.touch(w)
	d.writer.Crash("kube-moving")
	return w
}

// settleMoving lets a place go for which none came in time.
func (d *Driver) settleMoving(w *gang, now cluster.Time) []engine.Event {
	p := w.relocation
	if p == nil {
		return nil // it was taken, or let go
	}
	if now >= p.Until {
		return d.letGo(w, moves.Late, "its owner made no others within "+cluster.FormatDuration(d.opt.Await))
	}
	d.agenda.at(w, p.Until)
	return nil
}

// overdue lets the place of a gang go whose pods do not: a disruption budget may have
// changed its mind.
func (d *Driver) overdue(g *gang) []engine.Event {
	p := g.relocation
	switch {
	case p == nil:
		return nil
	case d.now < p.Until:
		d.agenda.at(g, p.Until)
		return nil
	}
	return d.letGo(g, moves.Late,
		"its pods were not gone within "+cluster.FormatDuration(d.opt.Await)+" beyond their grace")
}

// hear hears what the engine says of a gang that moves.
func (d *Driver) hear(w *gang, a *engine.Action) {
	p := w.relocation
	switch {
	case p == nil:
	case a.Type == engine.Start:
		start := *a
		start.Allocs = slices.Clone(a.Allocs)
		p.Start = &start
		if p.successor != nil {
			d.agenda.touch(p.successor)
		}
	default:
		d.queued = append(d.queued, d.letGo(w, moves.Lost, "others need its place, or that is gone")...)
	}
}

// checkRelocations lets those go that the engine did not give what was booked for them.
func (d *Driver) checkRelocations() {
	for _, id := range slices.Sorted(maps.Keys(d.relocations)) {
		w := d.relocations[id]
		if w.phase != moving || w.relocation.Start != nil {
			continue
		}
		if r := d.eng.Record(id); r == nil || r.State == engine.Pending || r.State == engine.Done {
			d.queued = append(d.queued, d.letGo(w, moves.Lost, "its place was lost meanwhile")...)
		}
	}
}

// letGo gives up what is booked for a gang that is moved, and says why.
func (d *Driver) letGo(w *gang, outcome, why string) []engine.Event {
	p := w.relocation
	delete(d.relocations, p.Job)
	w.relocation = nil
	if w.phase == moving {
		d.leaveTo(p.Parting, p.Job, p.Spec, 0)
	}
	d.opt.Observe.Moved(outcome)
	d.opt.Log.Info("a gang is not moved after all", "gang", p.Name, "to", p.To, "reason", why)
	text := fmt.Sprintf("the place of %s on %s is kept no longer: %s", p.Name, p.To, why)
	d.notices.Owner(p.Pods[0].Obj, v1.EventTypeWarning, "PlaceLetGo", text)
	if p.successor != nil {
		d.agenda.touch(p.successor)
	}
	if w.phase == stopping {
		w.retry = 0 // what it was to be looked at again for is over
		delete(d.agenda.later, w.key)
		w.book.Tell(d.now, show.StateStopping, text)
		return []engine.Event{{Type: engine.Cancelled, Job: p.Job}}
	}
	d.dropPlaceholder(w)
	delete(d.byID, p.Job)
	return []engine.Event{{Type: engine.StartFailed, Job: p.Job}, {Type: engine.Cancelled, Job: p.Job}}
}

// dropPlaceholder forgets a gang without pods: what becomes of it stands in another's book.
func (d *Driver) dropPlaceholder(w *gang) {
	w.book.Over, w.relocation = true, nil
	d.drop(w)
}

// succeed gives pods that come in place of others that are moved their job, if it may
// start; true: there is nothing else to do with them now.
func (d *Driver) succeed(g *gang, need, more []*pod) (events []engine.Event, done bool) {
	if len(d.relocations) == 0 || g.of != "" {
		return nil, false
	}
	owner, objs := succession.Owners(g.key, objectsOf(need)), objectsOf(need)
	if len(need) > 0 {
		_, _ = d.tellWant(g, need) // what cannot be read is said when it is submitted
	}
	for _, id := range slices.Sorted(maps.Keys(d.relocations)) {
		w := d.relocations[id]
		p := w.relocation
		if owner == "" || p.Owner != owner || p.successor != g && p.claimed(d) {
			continue
		}
		if len(more) > 0 || !p.Like(onNodes(need)) {
			if !p.Precedes(objs) {
				continue // it was there before, and is another
			}
			d.agenda.touch(g)
			why := fmt.Sprintf("%s, which came instead, asks for something else", g.name)
			return d.letGo(w, moves.Differs, why), true
		}
		p.successor = g
		if p.Start == nil {
			g.refused = fmt.Sprintf(
				"it takes the place of %s, which is moved to %s: that is kept for it until all that leave have left",
				p.Name, p.To)
			return nil, true
		}
		d.takeOver(g, w, need)
		return nil, true
	}
	return nil, false
}

// claimed reports whether a gang is to take the place.
func (p *relocation) claimed(d *Driver) bool {
	h := p.successor
	return h != nil && d.gangs[h.key] == h && h.phase == gathering && len(h.ready()) > 0
}

// takeOver gives a gang the job of one that moves, and starts it.
func (d *Driver) takeOver(g, w *gang, pods []*pod) {
	p := w.relocation
	delete(d.relocations, p.Job)
	d.dropPlaceholder(w)
	spec := *p.Spec
	spec.Name = g.name
	g.id, g.spec, g.members, g.more, g.phase, g.refused = p.Job, &spec, uids(pods), nil, waiting, ""
	d.byID[g.id] = g
	g.told.Since(d.now, d.opt.TellAfter)
	d.opt.Observe.Moved(moves.Done)
	d.notices.Event(pods[0].Obj, v1.EventTypeNormal, "Moved",
		fmt.Sprintf("takes the place on %s that was kept since %s was moved", p.To, p.Name))
	d.start(g, p.Start)
}

// comesBack makes a gang's job in the next engine one that comes back when it is
// stopped, if it is on its way elsewhere; else it ends then. confine has a job run on a set of nodes only.
func (d *Driver) comesBack(g *gang, spec *cluster.Job, confine func(*cluster.Job, *nodes.Set)) {
	spec.NoRequeue, spec.Checkpoint = true, cluster.Checkpoint{Interval: spec.Checkpoint.Interval}
	switch p := g.relocation; {
	case p != nil:
		spec.NoRequeue, spec.Checkpoint = false, p.Spec.Checkpoint
		confine(spec, d.nodes.Sets.Of(p.Pods))
		p.Spec = spec
	default:
		spec.Name = g.name // of the pods that it has now
	}
}
