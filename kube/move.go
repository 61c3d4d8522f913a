package kube

import (
	"fmt"
	"maps"
	"slices"

	v1 "k8s.io/api/core/v1"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/engine"
	"github.com/muster-gpu/muster/kube/gang"
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

// setOut books that a gang that is told to leave is moved; "" is returned if it is
// not, else where to.
func (d *Driver) setOut(g *gang.Gang, a *engine.Action) string {
	r := d.eng.Record(g.Job)
	if a.Reason != engine.Preempted || r == nil || r.State != engine.Stopping || len(r.Dest) == 0 {
		return ""
	}
	pods := g.Seated()
	p := &gang.Relocation{Relocation: moves.Relocation{Parting: d.partingOf(g, pods),
		Job: g.Job, Name: g.Name, Spec: g.Spec, Pods: gang.OnNodes(pods), To: moves.Names(r.Dest, d.nodes.Order())}}
	p.Until = d.now.Add(a.Grace + d.opt.Await)
	g.Relocation, d.relocations[g.Job] = p, g
	d.agenda.at(g, p.Until)
	return p.To
}

// leavePlaceholder leaves a gang without pods in the place of one that is moved, whose pods have
// gone; nil: it is not moved. The caller withdraws the gang that is left.
func (d *Driver) leavePlaceholder(g *gang.Gang) *gang.Gang {
	p := g.Relocation
	if p == nil {
		return nil
	}
	w := &gang.Gang{Key: fmt.Sprintf("move/%d", p.Job), Name: p.Name + "-move", Object: g.Object, Kind: g.Kind,
		Job: p.Job, Spec: p.Spec, Phase: gang.Moving, Relocation: p,
		Need: func() (gangs.Membership, error) { return gangs.Membership{}, nil }}
	g.Relocation = nil
	g.Retry = 0 // what it was to wait for is over
	delete(d.agenda.later, g.Key)
	p.Until = d.now.Add(d.opt.Await)
	d.gangs[w.Key], d.relocations[p.Job] = w, w
	d.agenda.touch(w)
	d.writer.Crash("kube-moving")
	return w
}

// settleMoving lets a place go for which none came in time.
func (d *Driver) settleMoving(w *gang.Gang, now cluster.Time) []engine.Event {
	p := w.Relocation
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
func (d *Driver) overdue(g *gang.Gang) []engine.Event {
	p := g.Relocation
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
func (d *Driver) hear(w *gang.Gang, a *engine.Action) {
	p := w.Relocation
	switch {
	case p == nil:
	case a.Type == engine.Start:
		start := *a
		start.Allocs = slices.Clone(a.Allocs)
		p.Start = &start
		if p.Successor != nil {
			d.agenda.touch(p.Successor)
		}
	default:
		d.queued = append(d.queued, d.letGo(w, moves.Lost, "others need its place, or that is gone")...)
	}
}

// checkRelocations lets those go that the engine did not give what was booked for them.
func (d *Driver) checkRelocations() {
	for _, id := range slices.Sorted(maps.Keys(d.relocations)) {
		w := d.relocations[id]
		if w.Phase != gang.Moving || w.Relocation.Start != nil {
			continue
		}
		if r := d.eng.Record(id); r == nil || r.State == engine.Pending || r.State == engine.Done {
			d.queued = append(d.queued, d.letGo(w, moves.Lost, "its place was lost meanwhile")...)
		}
	}
}

// letGo gives up what is booked for a gang that is moved, and says why.
func (d *Driver) letGo(w *gang.Gang, outcome, why string) []engine.Event {
	p := w.Relocation
	delete(d.relocations, p.Job)
	w.Relocation = nil
	if w.Phase == gang.Moving {
		d.leaveTo(p.Parting, p.Job, p.Spec, 0)
	}
	d.opt.Observe.Moved(outcome)
	d.opt.Log.Info("a gang is not moved after all", "gang", p.Name, "to", p.To, "reason", why)
	text := fmt.Sprintf("the place of %s on %s is kept no longer: %s", p.Name, p.To, why)
	d.notices.Owner(p.Pods[0].Obj, v1.EventTypeWarning, "PlaceLetGo", text)
	if p.Successor != nil {
		d.agenda.touch(p.Successor)
	}
	if w.Phase == gang.Stopping {
		w.Retry = 0 // what it was to be looked at again for is over
		delete(d.agenda.later, w.Key)
		w.Book.Tell(d.now, show.StateStopping, text)
		return []engine.Event{{Type: engine.Cancelled, Job: p.Job}}
	}
	d.dropPlaceholder(w)
	delete(d.byID, p.Job)
	return []engine.Event{{Type: engine.StartFailed, Job: p.Job}, {Type: engine.Cancelled, Job: p.Job}}
}

// dropPlaceholder forgets a gang without pods: what becomes of it stands in another's book.
func (d *Driver) dropPlaceholder(w *gang.Gang) {
	w.Book.Over, w.Relocation = true, nil
	d.drop(w)
}

// succeed gives pods that come in place of others that are moved their job, if it may
// start; true: there is nothing else to do with them now.
func (d *Driver) succeed(g *gang.Gang, need, more []*gang.Pod) (events []engine.Event, done bool) {
	if len(d.relocations) == 0 || g.Of != "" {
		return nil, false
	}
	owner, objs := succession.Owners(g.Key, gang.Objects(need)), gang.Objects(need)
	if len(need) > 0 {
		_, _ = d.reader.TellWant(g, need) // what cannot be read is said when it is submitted
	}
	for _, id := range slices.Sorted(maps.Keys(d.relocations)) {
		w := d.relocations[id]
		p := w.Relocation
		if owner == "" || p.Owner != owner || p.Successor != g && p.Claimed(d.gangs) {
			continue
		}
		if len(more) > 0 || !p.Like(gang.OnNodes(need)) {
			if !p.Precedes(objs) {
				continue // it was there before, and is another
			}
			d.agenda.touch(g)
			why := fmt.Sprintf("%s, which came instead, asks for something else", g.Name)
			return d.letGo(w, moves.Differs, why), true
		}
		p.Successor = g
		if p.Start == nil {
			g.Refused = fmt.Sprintf(
				"it takes the place of %s, which is moved to %s: that is kept for it until all that leave have left",
				p.Name, p.To)
			return nil, true
		}
		d.takeOver(g, w, need)
		return nil, true
	}
	return nil, false
}

// takeOver gives a gang the job of one that moves, and starts it.
func (d *Driver) takeOver(g, w *gang.Gang, pods []*gang.Pod) {
	p := w.Relocation
	delete(d.relocations, p.Job)
	d.dropPlaceholder(w)
	spec := *p.Spec
	spec.Name = g.Name
	g.Job, g.Spec, g.InJob, g.Optional, g.Phase, g.Refused = p.Job, &spec, gang.UIDs(pods), nil, gang.Waiting, ""
	d.byID[g.Job] = g
	g.Told.Since(d.now, d.opt.TellAfter)
	d.opt.Observe.Moved(moves.Done)
	d.notices.Event(pods[0].Obj, v1.EventTypeNormal, "Moved",
		fmt.Sprintf("takes the place on %s that was kept since %s was moved", p.To, p.Name))
	d.start(g, p.Start)
}

// comesBack makes a gang's job in the next engine one that comes back when it is
// stopped, if it is on its way elsewhere; else it ends then. confine has a job run on a set of nodes only.
func (d *Driver) comesBack(g *gang.Gang, spec *cluster.Job, confine func(*cluster.Job, *nodes.Set)) {
	spec.NoRequeue, spec.Checkpoint = true, cluster.Checkpoint{Interval: spec.Checkpoint.Interval}
	switch p := g.Relocation; {
	case p != nil:
		spec.NoRequeue, spec.Checkpoint = false, p.Spec.Checkpoint
		confine(spec, d.nodes.Sets.Of(p.Pods))
		p.Spec = spec
	default:
		spec.Name = g.Name // of the pods that it has now
	}
}
