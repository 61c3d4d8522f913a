package kube

import (
	"fmt"
	"time"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/engine"
	"github.com/muster-gpu/muster/kube/gang"
	"github.com/muster-gpu/muster/show"
)

// note books what became of a gang; it is called wherever its phase may have changed.
func (d *Driver) note(g *gang.Gang, now cluster.Time) {
	b := &g.Book
	if b.Number == 0 || b.Over && g.Asks() {
		d.open(g, now)
	}
	if g.Spec != nil {
		b.Spec = g.Spec
	}
	if d.gangs[g.Key] != g {
		d.shut(g, now, "its pods are gone")
		return
	}
	if g.Was == g.Phase {
		return
	}
	was := g.Was
	g.Was = g.Phase
	switch g.Phase {
	case gang.Gathering:
		d.left(g, was, now)
	case gang.Waiting:
		b.Outcome = engine.WasCancelled
		text := "all of it is there: it waits for GPUs"
		if l := g.Inheritance; l != nil {
			b.Evicted = max(b.Evicted, int(l.Preemptions))
			text += fmt.Sprintf("; it goes on from earlier pods, which had %.2f GPU-hours and had to leave %d times",
				float64(l.Attained)/float64(cluster.Whole)/3.6e6, l.Preemptions)
		}
		b.Tell(now, show.StatePending, text)
	case gang.Starting:
		d.begun(g, now)
		b.Tell(now, show.StateStarting, "")
	case gang.Running:
		if was <= gang.Waiting { // another scheduler started it
			d.begun(g, g.StartedAt(now))
		}
		b.Tell(now, show.StateRunning, "")
	case gang.Stopping:
		b.Evicted++
		text := "told to leave for others"
		if g.Relocation != nil {
			text = "moved to " + g.Relocation.To
		}
		b.Tell(now, show.StateStopping, text)
	case gang.Moving:
		b.Tell(now, show.StateStarting, g.Relocation.Text())
	}
}

// open begins a gang's book.
func (d *Driver) open(g *gang.Gang, now cluster.Time) {
	created := now
	for _, p := range g.Pods {
		if at := cluster.Time(p.Obj.CreationTimestamp.UnixNano()); at > 0 {
			created = min(created, at)
		}
	}
	g.Book, g.Was = d.records.Open(g.Key, created, now), gang.Gathering
}

// begun books the start of a run.
func (d *Driver) begun(g *gang.Gang, at cluster.Time) {
	g.Book.Begin(at, g.Spec.GPUs(), g.Places.Nodes())
	d.records.Count(d.now)
	d.records.Held += g.Book.GPUs
}

// resize books that a running gang holds other places than before.
func (d *Driver) resize(g *gang.Gang, now cluster.Time) {
	if g.Was != gang.Running && g.Was != gang.Starting || g.Book.Over {
		return // it is found running, and booked as such later
	}
	d.records.Count(now)
	d.records.Held += g.Spec.GPUs() - g.Book.GPUs
	g.Book.Resize(now, g.Spec.GPUs(), g.Places.Nodes())
}

// left books that a gang is not in the engine any more: it ended, or waits again.
func (d *Driver) left(g *gang.Gang, was gang.Phase, now cluster.Time) {
	b := &g.Book
	if was >= gang.Starting {
		d.records.Count(now)
		d.records.Held -= b.GPUs
		b.End(now)
	}
	switch {
	case was == gang.Running:
		d.shut(g, now, "")
	case was == gang.Stopping:
		b.Tell(now, show.StatePending, "preempted: it waits again when its pods are there again")
	case was == gang.Unwinding:
		b.Tell(now, show.StatePending, g.Refused)
	}
}

// shut closes a gang's book.
func (d *Driver) shut(g *gang.Gang, now cluster.Time, text string) {
	if g.Book.Over || g.Book.Number == 0 {
		return
	}
	state, why := g.Book.Close(now, text)
	r := d.rowOf(g)
	r.State, r.Reason, r.Ended = state, why, now
	d.records.Keep(r)
}

// sample keeps the cluster's state for the last hour.
func (d *Driver) sample(now cluster.Time) {
	r := &d.records
	if !r.Due(now) {
		return
	}
	r.Count(now)
	r.Total = d.nodes.GPUsUp()
	r.Sample(d.present(now))
	f := d.eng.Fragmentation()
	d.opt.Observe.Free(f.Free, min(f.Free, f.Usable))
}

func (d *Driver) present(now cluster.Time) show.Sample {
	s := show.Sample{At: time.Unix(0, int64(now)).UTC(), Allocated: int64(d.records.Held) * cluster.Whole}
	for _, g := range d.gangs {
		switch {
		case g.Phase > gang.Waiting:
			s.Running++
		case g.Phase == gang.Waiting || !g.Book.Over && g.Asks():
			s.Waiting++
		}
	}
	return s
}
