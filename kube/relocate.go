package kube

import (
	"fmt"

	v1 "k8s.io/api/core/v1"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/engine"
	"github.com/muster-gpu/muster/kube/gang"
	"github.com/muster-gpu/muster/kube/moves"
	"github.com/muster-gpu/muster/kube/relocations"
	"github.com/muster-gpu/muster/show"
)

// What becomes of gangs that are moved is decided in room relocations and carried out here. All of that is the
// scheduler's memory: its successor finds pods that wait, and places that are free.

// setOut books that a gang that is told to leave is moved; "" is returned if it is not, else where to.
func (d *Driver) setOut(g *gang.Gang, a *engine.Action) string {
	p := d.relocations.SetOut(g, a, d.eng.Record(g.Job), d.nodes.Order(), d.now)
	if p == nil {
		return ""
	}
	d.agenda.at(g, p.Until)
	return p.To
}

// leavePlaceholder leaves a gang without pods in the place of one that is moved, whose pods have gone; nil: it is not
// moved. The caller withdraws the gang that is left.
func (d *Driver) leavePlaceholder(g *gang.Gang) *gang.Gang {
	w := d.relocations.Placeholder(g, d.now)
	if w == nil {
		return nil
	}
	d.agenda.cancel(g)
	d.gangs[w.Key] = w
	d.agenda.touch(w)
	d.writer.Crash("kube-moving")
	return w
}

// keepPlace keeps the place of a gang that is moved until its time is over; then it is let go.
func (d *Driver) keepPlace(w *gang.Gang, now cluster.Time) []engine.Event {
	if late := d.relocations.Late(w, now); late != nil {
		return d.letGo(late)
	}
	if w.Relocation != nil {
		d.agenda.at(w, w.Relocation.Until)
	}
	return nil
}

// applyToMoving carries out what was decided about the place of a gang that is moved.
func (d *Driver) applyToMoving(w *gang.Gang, a *engine.Action) {
	lost := d.relocations.Apply(w, a)
	d.queued = append(d.queued, d.letGo(lost)...)
	if p := w.Relocation; p != nil && p.Successor != nil {
		d.agenda.touch(p.Successor)
	}
}

// checkRelocations lets those go that the engine did not give what was booked for them.
func (d *Driver) checkRelocations() {
	for _, lost := range d.relocations.Lost(d.eng) {
		d.queued = append(d.queued, d.letGo(lost)...)
	}
}

// letGo gives up what is booked for a gang that is moved, and says why; nil: it is kept.
func (d *Driver) letGo(e *relocations.End) []engine.Event {
	if e == nil {
		return nil
	}
	w := e.Gang
	events := d.relocations.LetGo(e)
	if w.Phase == gang.Moving {
		d.leaveTo(e.Parting, e.Job, e.Spec, 0)
	}
	d.opt.Observe.Moved(e.Outcome)
	d.opt.Log.Info("a gang is not moved after all", "gang", e.Name, "to", e.To, "reason", e.Why)
	d.notices.Owner(e.Pods[0].Obj, v1.EventTypeWarning, "PlaceLetGo", e.Text())
	if e.Successor != nil {
		d.agenda.touch(e.Successor)
	}
	if w.Phase == gang.Stopping {
		d.agenda.cancel(w)
		w.Book.Tell(d.now, show.StateStopping, e.Text())
		return events
	}
	d.drop(w)
	delete(d.byID, e.Job)
	return events
}

// succeed gives pods that come in place of others that are moved their job, if it may start; true: there is nothing
// else to do with them now.
func (d *Driver) succeed(g *gang.Gang, need, more []*gang.Pod) (events []engine.Event, done bool) {
	if !d.relocations.Any() || g.Of != "" {
		return nil, false
	}
	if len(need) > 0 {
		_, _ = d.reader.TellWant(g, need) // what cannot be read is said when it is submitted
	}
	w, differs := d.relocations.Match(g, need, more, d.gangs)
	switch {
	case differs != nil:
		d.agenda.touch(g)
		return d.letGo(differs), true
	case w == nil:
		return nil, false
	case w.Relocation.Start != nil:
		d.takeOver(g, w, need)
	}
	return nil, true
}

// takeOver gives a gang the job of one that moves, and starts it.
func (d *Driver) takeOver(g, w *gang.Gang, pods []*gang.Pod) {
	p := d.relocations.TakeOver(g, w, pods)
	d.drop(w)
	d.byID[g.Job] = g
	g.Told.Since(d.now, d.opt.TellAfter)
	d.opt.Observe.Moved(moves.Done)
	d.notices.Event(pods[0].Obj, v1.EventTypeNormal, "Moved",
		fmt.Sprintf("takes the place on %s that was kept since %s was moved", p.To, p.Name))
	d.start(g, p.Start)
}
