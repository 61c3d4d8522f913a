// Package relocations keeps the places of gangs that are moved: from when a gang is told to leave until those that come
// instead take its place, or it is let go. It also says when moves are looked for, what the engine is asked about them,
// and which gangs may be moved.
package relocations

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/engine"
	"github.com/muster-gpu/muster/kube/gang"
	"github.com/muster-gpu/muster/kube/gangs"
	"github.com/muster-gpu/muster/kube/moves"
	"github.com/muster-gpu/muster/kube/succession"
)

// A gang that the engine moves keeps its job: its pods are evicted as a whole, and the places that were booked before
// that are given to those that its owner makes instead. From when its pods have left, a gang without pods (phase
// moving) stands for it; the gang that gathers as what comes next (the successor) takes its job over, once the engine
// says that it may start. What no gang takes in time is let go.

// Room is the gangs that are moved, and the search for others to move.
type Room struct {
	await time.Duration                // how long a place is kept
	onWay map[cluster.JobID]*gang.Gang // stopping, or moving

	asking *Request     // what the engine is asked
	chosen []*gang.Gang // they come back when they are stopped, while it is asked

	searching bool         // moves are looked for in the present round
	roundAt   cluster.Time // the next one; 0: not known yet
}

// New is a room in which places are kept for so long.
func New(await time.Duration) *Room {
	return &Room{await: await, onWay: map[cluster.JobID]*gang.Gang{}}
}

// Any reports whether a gang is being moved.
func (r *Room) Any() bool { return len(r.onWay) > 0 }

// Busy reports whether a gang is being moved, or may soon be.
func (r *Room) Busy() bool { return r.asking != nil || r.searching || r.Any() }

// SetOut books that a gang that is told to leave is moved. rec is its job, and order has the nodes' names by their
// numbers. nil: it is not moved.
func (r *Room) SetOut(g *gang.Gang, a *engine.Action, rec *engine.JobRecord, order []string,
	now cluster.Time) *gang.Relocation {
	if a.Reason != engine.Preempted || rec == nil || rec.State != engine.Stopping || len(rec.Dest) == 0 {
		return nil
	}
	pods := g.Seated()
	p := &gang.Relocation{Relocation: moves.Relocation{Parting: succession.Of(g.Key, gang.Objects(pods), now),
		Job: g.Job, Name: g.Name, Spec: g.Spec, Pods: gang.OnNodes(pods), To: moves.Names(rec.Dest, order)}}
	p.Until = now.Add(a.Grace + r.await)
	g.Relocation, r.onWay[g.Job] = p, g
	return p
}

// Placeholder is a gang without pods that stands for one that is moved, from when its pods have gone; nil: it is not
// moved.
func (r *Room) Placeholder(g *gang.Gang, now cluster.Time) *gang.Gang {
	p := g.Relocation
	if p == nil {
		return nil
	}
	w := &gang.Gang{Key: fmt.Sprintf("move/%d", p.Job), Name: p.Name + "-move", Object: g.Object, Kind: g.Kind,
		Job: p.Job, Spec: p.Spec, Phase: gang.Moving, Relocation: p,
		Need: func() (gangs.Membership, error) { return gangs.Membership{}, nil }}
	g.Relocation = nil
	p.Until = now.Add(r.await)
	r.onWay[p.Job] = w
	return w
}

// Apply books what the engine decided about the place of a gang that is moved: it can be taken now, or it is let go.
func (r *Room) Apply(w *gang.Gang, a *engine.Action) *End {
	p := w.Relocation
	switch {
	case p == nil:
		return nil
	case a.Type == engine.Start:
		start := *a
		start.Allocs = slices.Clone(a.Allocs)
		p.Start = &start
		return nil
	}
	return end(w, moves.Lost, "others need its place, or that is gone")
}

// Match finds the place that is kept for a gang which gathers with these pods, and more that it can do without; all are
// the gangs that there are. The gang is the successor then, and says what it waits for until the place is free. Where
// its pods ask for something else than those that left, the place is let go.
func (r *Room) Match(g *gang.Gang, need, more []*gang.Pod, all map[string]*gang.Gang) (w *gang.Gang, differs *End) {
	objs := gang.Objects(need)
	owner := succession.Owners(g.Key, objs)
	if owner == "" {
		return nil, nil
	}
	for _, id := range slices.Sorted(maps.Keys(r.onWay)) {
		w := r.onWay[id]
		p := w.Relocation
		switch {
		case p.Owner != owner, p.Successor != g && claimed(p, all):
			continue
		case len(more) == 0 && p.Like(gang.OnNodes(need)):
			if p.Successor = g; p.Start == nil {
				g.Refused = fmt.Sprintf(
					"it takes the place of %s, which is moved to %s: that is kept for it until all that leave have left",
					p.Name, p.To)
			}
			return w, nil
		case p.Precedes(objs): // else it was there before, and is another
			return nil, end(w, moves.Differs, fmt.Sprintf("%s, which came instead, asks for something else", g.Name))
		}
	}
	return nil, nil
}

// claimed reports whether a gang is to take a place.
func claimed(p *gang.Relocation, all map[string]*gang.Gang) bool {
	h := p.Successor
	return h != nil && all[h.Key] == h && h.Phase == gang.Gathering && len(h.Ready()) > 0
}

// TakeOver gives a gang of these pods the job of one that is moved, whose place it takes.
func (r *Room) TakeOver(g, w *gang.Gang, pods []*gang.Pod) *gang.Relocation {
	p := w.Relocation
	r.remove(w, p)
	spec := *p.Spec
	spec.Name = g.Name
	g.Job, g.Spec, g.InJob, g.Optional, g.Phase, g.Refused = p.Job, &spec, gang.UIDs(pods), nil, gang.Waiting, ""
	return p
}

// remove forgets a gang that is not moved any more. What becomes of one without pods stands in another's book.
func (r *Room) remove(w *gang.Gang, p *gang.Relocation) {
	delete(r.onWay, p.Job)
	w.Relocation = nil
	if w.Phase != gang.Stopping {
		w.Book.Over = true
	}
}

// ComesBack makes a gang's job in the next engine one that comes back when it is stopped, where the gang is on its way
// elsewhere, which is returned; else the job ends then.
func ComesBack(g *gang.Gang, spec *cluster.Job) *gang.Relocation {
	spec.NoRequeue, spec.Checkpoint = true, cluster.Checkpoint{Interval: spec.Checkpoint.Interval}
	p := g.Relocation
	if p == nil {
		spec.Name = g.Name // of the pods that it has now
		return nil
	}
	spec.NoRequeue, spec.Checkpoint = false, p.Spec.Checkpoint
	p.Spec = spec
	return p
}
