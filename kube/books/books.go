// Package books is what people are shown and told of gangs: what became of each of them, as its phases tell; gangs and
// nodes as rows; why a gang waits, and which gangs are told so first; what the policy says of deadlines; and what pods
// report. The loop says what there is, and writes what comes of it.
package books

import (
	"fmt"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/engine"
	"github.com/muster-gpu/muster/kube/gang"
	"github.com/muster-gpu/muster/kube/gpus"
	"github.com/muster-gpu/muster/kube/look"
	"github.com/muster-gpu/muster/kube/nodes"
	"github.com/muster-gpu/muster/show"
)

// Options are what the books are kept with.
type Options struct {
	Nodes *nodes.Room
	GPUs  *gpus.Names
	// QueueOf is the queue of a gang that was never submitted; first is the first of its pods.
	QueueOf func(g *gang.Gang, first *v1.Pod) string
}

// Room keeps the books of gangs.
type Room struct {
	Options
	records look.Records
}

// New opens the books.
func New(opt Options) *Room { return &Room{Options: opt} }

// Scene is the scheduler's state at an instant.
type Scene struct {
	Engine *engine.Engine
	Gangs  map[string]*gang.Gang // by key
	Jobs   map[cluster.JobID]*gang.Gang
	Now    cluster.Time
}

// Find finds a gang that is not over, by the number that people know; nil: none has it.
func (s Scene) Find(number int) *gang.Gang {
	for _, g := range s.Gangs {
		if g.Book.Number == number && (g.Phase >= gang.Waiting || !g.Book.Over) {
			return g
		}
	}
	return nil
}

// Work is all of a gang's work, as its progress told; 0: that did not tell, or it goes by what was stated.
func (s Scene) Work(id cluster.JobID) time.Duration {
	g, rec := s.Jobs[id], s.Engine.Record(id)
	if g == nil || rec == nil {
		return 0
	}
	return g.Work(rec)
}

// Note books what became of a gang; it is called wherever its phase may have changed.
func (r *Room) Note(g *gang.Gang, s Scene) {
	b := &g.Book
	if b.Number == 0 || b.Over && g.Asks() {
		r.open(g, s.Now)
	}
	if g.Spec != nil {
		b.Spec = g.Spec
	}
	if s.Gangs[g.Key] != g {
		r.shut(g, s, "its pods are gone")
		return
	}
	if g.Was == g.Phase {
		return
	}
	was := g.Was
	g.Was = g.Phase
	switch g.Phase {
	case gang.Gathering:
		r.left(g, was, s)
	case gang.Waiting:
		b.Outcome = engine.WasCancelled
		text := "all of it is there: it waits for GPUs"
		if l := g.Inheritance; l != nil {
			b.Evicted = max(b.Evicted, int(l.Preemptions))
			text += fmt.Sprintf("; it goes on from earlier pods, which had %.2f GPU-hours and had to leave %d times",
				float64(l.Attained)/float64(cluster.Whole)/3.6e6, l.Preemptions)
		}
		b.Tell(s.Now, show.StatePending, text)
	case gang.Starting:
		r.begun(g, s.Now, s.Now)
		b.Tell(s.Now, show.StateStarting, "")
	case gang.Running:
		if was <= gang.Waiting { // another scheduler started it
			r.begun(g, g.StartedAt(s.Now), s.Now)
		}
		b.Tell(s.Now, show.StateRunning, "")
	case gang.Stopping:
		b.Evicted++
		text := "told to leave for others"
		if g.Relocation != nil {
			text = "moved to " + g.Relocation.To
		}
		b.Tell(s.Now, show.StateStopping, text)
	case gang.Moving:
		b.Tell(s.Now, show.StateStarting, g.Relocation.Text())
	}
}

// open begins a gang's book.
func (r *Room) open(g *gang.Gang, now cluster.Time) {
	created := now
	for _, p := range g.Pods {
		if at := cluster.Time(p.Obj.CreationTimestamp.UnixNano()); at > 0 {
			created = min(created, at)
		}
	}
	g.Book, g.Was = r.records.Open(g.Key, created, now), gang.Gathering
}

// begun books the start of a run.
func (r *Room) begun(g *gang.Gang, at, now cluster.Time) {
	g.Book.Begin(at, g.Spec.GPUs(), g.Places.Nodes())
	r.records.Hold(now, g.Book.GPUs)
}

// Resize books that a running gang holds other places than before.
func (r *Room) Resize(g *gang.Gang, now cluster.Time) {
	if g.Was != gang.Running && g.Was != gang.Starting || g.Book.Over {
		return // it is found running, and booked as such later
	}
	r.records.Hold(now, g.Spec.GPUs()-g.Book.GPUs)
	g.Book.Resize(now, g.Spec.GPUs(), g.Places.Nodes())
}

// Merged books that a patch is a part of its gang: what becomes of it stands in the gang's own book.
func (r *Room) Merged(patch *gang.Gang, now cluster.Time) {
	if patch.Was >= gang.Starting {
		r.records.Hold(now, -patch.Book.GPUs)
	}
	patch.Book.Over = true
}

// left books that a gang is not in the engine any more: it ended, or waits again.
func (r *Room) left(g *gang.Gang, was gang.Phase, s Scene) {
	b := &g.Book
	if was >= gang.Starting {
		r.records.Hold(s.Now, -b.GPUs)
		b.End(s.Now)
	}
	switch {
	case was == gang.Running:
		r.shut(g, s, "")
	case was == gang.Stopping:
		b.Tell(s.Now, show.StatePending, "preempted: it waits again when its pods are there again")
	case was == gang.Unwinding:
		b.Tell(s.Now, show.StatePending, g.Refused)
	}
}

// shut closes a gang's book.
func (r *Room) shut(g *gang.Gang, s Scene, text string) {
	if g.Book.Over || g.Book.Number == 0 {
		return
	}
	state, why := g.Book.Close(s.Now, text)
	row := r.Row(g, s)
	row.State, row.Reason, row.Ended = state, why, s.Now
	r.records.Keep(row)
}

// Sample keeps the cluster's state for the last hour; false: it is too early for that.
func (r *Room) Sample(s Scene) bool {
	if !r.records.Due(s.Now) {
		return false
	}
	r.records.Sample(s.Now, r.Nodes.GPUsUp(), r.present(s))
	return true
}

// present counts what gangs do now.
func (r *Room) present(s Scene) show.Sample {
	n := show.Sample{At: time.Unix(0, int64(s.Now)).UTC(), Allocated: int64(r.records.Held()) * cluster.Whole}
	for _, g := range s.Gangs {
		switch {
		case g.Phase > gang.Waiting:
			n.Running++
		case g.Phase == gang.Waiting || !g.Book.Over && g.Asks():
			n.Waiting++
		}
	}
	return n
}
