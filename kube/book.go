package kube

import (
	"fmt"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/engine"
	"github.com/muster-gpu/muster/show"
)

// note books what became of a gang; it is called wherever its phase may have changed.
func (d *Driver) note(g *gang, now cluster.Time) {
	b := &g.book
	if b.Number == 0 || b.Over && g.asks() {
		d.open(g, now)
	}
	if g.spec != nil {
		b.Spec = g.spec
	}
	if d.gangs[g.key] != g {
		d.shut(g, now, "its pods are gone")
		return
	}
	if g.was == g.phase {
		return
	}
	was := g.was
	g.was = g.phase
	switch g.phase {
	case gathering:
		d.left(g, was, now)
	case waiting:
		b.Outcome = engine.WasCancelled
		text := "all of it is there: it waits for GPUs"
		if l := g.inheritance; l != nil {
			b.Evicted = max(b.Evicted, int(l.Preemptions))
			text += fmt.Sprintf("; it goes on from earlier pods, which had %.2f GPU-hours and had to leave %d times",
				float64(l.Attained)/float64(cluster.Whole)/3.6e6, l.Preemptions)
		}
		b.Tell(now, show.StatePending, text)
	case starting:
		d.begun(g, now)
		b.Tell(now, show.StateStarting, "")
	case running:
		if was <= waiting { // another scheduler started it
			d.begun(g, g.startedAt(now))
		}
		b.Tell(now, show.StateRunning, "")
	case stopping:
		b.Evicted++
		text := "told to leave for others"
		if g.relocation != nil {
			text = "moved to " + g.relocation.To
		}
		b.Tell(now, show.StateStopping, text)
	case moving:
		b.Tell(now, show.StateStarting, g.relocation.Text())
	}
}

// open begins a gang's book.
func (d *Driver) open(g *gang, now cluster.Time) {
	created := now
	for _, p := range g.pods {
		if at := cluster.Time(p.Obj.CreationTimestamp.UnixNano()); at > 0 {
			created = min(created, at)
		}
	}
	g.book, g.was = d.records.Open(g.key, created, now), gathering
}

// begun books the start of a run.
func (d *Driver) begun(g *gang, at cluster.Time) {
	g.book.Begin(at, g.spec.GPUs(), g.places.Nodes())
	d.records.Count(d.now)
	d.records.Held += g.book.GPUs
}

// resize books that a running gang holds other places than before.
func (d *Driver) resize(g *gang, now cluster.Time) {
	if g.was != running && g.was != starting || g.book.Over {
		return // it is found running, and booked as such later
	}
	d.records.Count(now)
	d.records.Held += g.spec.GPUs() - g.book.GPUs
	g.book.Resize(now, g.spec.GPUs(), g.places.Nodes())
}

// left books that a gang is not in the engine any more: it ended, or waits again.
func (d *Driver) left(g *gang, was phase, now cluster.Time) {
	b := &g.book
	if was >= starting {
		d.records.Count(now)
		d.records.Held -= b.GPUs
		b.End(now)
	}
	switch {
	case was == running:
		d.shut(g, now, "")
	case was == stopping:
		b.Tell(now, show.StatePending, "preempted: it waits again when its pods are there again")
	case was == unwinding:
		b.Tell(now, show.StatePending, g.refused)
	}
}

// shut closes a gang's book.
func (d *Driver) shut(g *gang, now cluster.Time, text string) {
	if g.book.Over || g.book.Number == 0 {
		return
	}
	state, why := g.book.Close(now, text)
	r := d.rowOf(g)
	r.State, r.Reason, r.Ended = state, why, now
	d.records.Keep(r)
}

// startedAt is when the pods of a gang that is found running started.
func (g *gang) startedAt(now cluster.Time) cluster.Time {
	at := now
	for _, p := range g.pods {
		if s := p.Obj.Status.StartTime; s != nil {
			at = min(at, cluster.Time(s.UnixNano()))
		}
	}
	return at
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
		case g.phase > waiting:
			s.Running++
		case g.phase == waiting || !g.book.Over && g.asks():
			s.Waiting++
		}
	}
	return s
}

// taskState is what a pod is doing, for people.
func taskState(p *pod) string {
	switch {
	case p.Obj.Status.Phase == v1.PodSucceeded:
		return "succeeded"
	case p.Obj.Status.Phase == v1.PodFailed:
		return "failed"
	case p.leaving || p.Obj.DeletionTimestamp != nil:
		return "leaving"
	case p.binding:
		return "binding"
	case p.Obj.Status.Phase == v1.PodRunning:
		return "running"
	case p.node != "":
		return "bound"
	case len(p.Obj.Spec.SchedulingGates) > 0:
		return "gated"
	}
	return "waiting"
}
