package kube

import (
	"fmt"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/engine"
	"github.com/muster-gpu/muster/kube/look"
	"github.com/muster-gpu/muster/show"
)

// What is remembered for those who look: the scheduler itself decides nothing
// by it, and a successor begins it anew.
const (
	mostPast    = 10_000 // gangs that are over
	mostMoments = 50     // of a gang
	mostHours   = 24 * 35
	sampleEvery = 5 * time.Second
	mostSamples = int(time.Hour / sampleEvery)
)

// book is what is remembered of a gang.
type book struct {
	number         int // for people; 0: none yet
	over           bool
	was            phase
	outcome        engine.StopReason // how its last run ended
	spec           *cluster.Job      // as it was last submitted; nil: it never was
	submit         cluster.Time
	lined          cluster.Time // since when it waits; 0: it does not
	first, started cluster.Time // of its first run, and the present or last; 0: never
	waited, ran    time.Duration
	runs, evicted  int
	gpus           int           // that it holds, or held last
	gpuTime        time.Duration // of all its runs that are over: GPUs times time
	nodes          []string      // ... where
	moments        []look.Moment // never changed in place: those who look have it, too
}

// row is that for those who look.
func (b *book) row() *look.Row {
	return &look.Row{Number: b.number, Spec: b.spec, Submit: b.submit, Lined: b.lined, First: b.first,
		Started: b.started,
		Waited:  b.waited, Ran: b.ran, Runs: b.runs, Evicted: b.evicted, GPUs: b.gpus, GPUTime: b.gpuTime,
		Nodes:   b.nodes,
		Moments: b.moments}
}

// reopened is the book of a gang whose pods had to leave, as it was closed.
func reopened(r *look.Row) book {
	return book{number: r.Number, outcome: engine.Preempted, spec: r.Spec, submit: r.Submit, first: r.First,
		started: r.Started,
		waited:  r.Waited, ran: r.Ran, runs: r.Runs, evicted: r.Evicted, gpus: r.GPUs, gpuTime: r.GPUTime,
		nodes:   r.Nodes,
		moments: r.Moments}
}

// records are the books of all gangs together.
type records struct {
	numbers int
	past    []*look.Row // gangs that are over, in the order of their ends; never changed in place
	since   cluster.Time
	upTo    cluster.Time // hours are counted up to there
	held    int          // GPUs that gangs hold now
	total   int          // GPUs that are healthy
	hours   []look.Hour
	series  []show.Sample
}

// note books what became of a gang; it is called wherever its phase may have changed.
func (d *Driver) note(g *gang, now cluster.Time) {
	b := &g.book
	if b.number == 0 || b.over && g.asks() {
		d.open(g, now)
	}
	if g.spec != nil {
		b.spec = g.spec
	}
	if d.gangs[g.key] != g {
		d.shut(g, now, "its pods are gone")
		return
	}
	if b.was == g.phase {
		return
	}
	was := b.was
	b.was = g.phase
	switch g.phase {
	case gathering:
		d.left(g, was, now)
	case waiting:
		b.outcome = engine.WasCancelled
		text := "all of it is there: it waits for GPUs"
		if l := g.legacy; l != nil {
			b.evicted = max(b.evicted, int(l.Preemptions))
			text += fmt.Sprintf("; it goes on from earlier pods, which had %.2f GPU-hours and had to leave %d times",
				float64(l.Attained)/float64(cluster.Whole)/3.6e6, l.Preemptions)
		}
		b.tell(now, show.StatePending, text)
	case starting:
		d.begun(g, now)
		b.tell(now, show.StateStarting, "")
	case running:
		if was <= waiting { // another scheduler started it
			d.begun(g, g.startedAt(now))
		}
		b.tell(now, show.StateRunning, "")
	case stopping:
		b.evicted++
		text := "told to leave for others"
		if g.passage != nil {
			text = "moved to " + g.passage.to
		}
		b.tell(now, show.StateStopping, text)
	case moving:
		b.tell(now, show.StateStarting, g.passage.text())
	}
}

// open begins a gang's book, or goes on with that of pods which had to leave and
// whose owner made others.
func (d *Driver) open(g *gang, now cluster.Time) {
	r := &d.records
	i := slices.IndexFunc(r.past, func(p *look.Row) bool { return p.Key == g.key && p.State == show.StatePreempted })
	if i >= 0 {
		g.book = reopened(r.past[i])
		g.over, g.was, g.lined = false, gathering, now
		r.past = slices.Concat(r.past[:i], r.past[i+1:])
		g.book.tell(now, show.StatePending, "its pods are there again")
		return
	}
	r.numbers++
	g.book = book{number: r.numbers, submit: now}
	for _, p := range g.pods {
		if at := cluster.Time(p.obj.CreationTimestamp.UnixNano()); at > 0 {
			g.submit = min(g.submit, at)
		}
	}
	g.lined = g.submit
	g.book.tell(g.submit, show.StatePending, "")
}

// begun books the start of a run.
func (d *Driver) begun(g *gang, at cluster.Time) {
	b := &g.book
	if b.lined > 0 {
		b.waited += max(0, at.Sub(b.lined))
	}
	b.lined, b.started, b.gpus, b.outcome, b.nodes = 0, at, g.spec.GPUs(), engine.WasCancelled, nil
	for _, s := range g.slots {
		if !slices.Contains(b.nodes, s.node) {
			b.nodes = append(b.nodes, s.node)
		}
	}
	if b.runs++; b.first == 0 {
		b.first = at
	}
	d.countHours(d.now)
	d.records.held += b.gpus
}

// resize books that a running gang holds other places than before.
func (d *Driver) resize(g *gang, now cluster.Time) {
	b := &g.book
	if b.was != running && b.was != starting || b.over {
		return // it is found running, and booked as such later
	}
	d.countHours(now)
	more := g.spec.GPUs() - b.gpus
	d.records.held += more
	b.gpuTime -= max(0, now.Sub(b.started)) * time.Duration(more) // what is held at the end counts from the start on
	b.gpus, b.nodes = b.gpus+more, nil
	for _, s := range g.slots {
		if !slices.Contains(b.nodes, s.node) {
			b.nodes = append(b.nodes, s.node)
		}
	}
}

// left books that a gang is not in the engine any more: it ended, or waits again.
func (d *Driver) left(g *gang, was phase, now cluster.Time) {
	b := &g.book
	if was >= starting {
		d.countHours(now)
		d.records.held -= b.gpus
		ran := max(0, now.Sub(b.started))
		b.ran, b.gpuTime = b.ran+ran, b.gpuTime+ran*time.Duration(b.gpus)
		b.lined = now
	}
	switch {
	case was == running:
		d.shut(g, now, "")
	case was == stopping:
		b.tell(now, show.StatePending, "preempted: it waits again when its pods are there again")
	case was == unwinding:
		b.tell(now, show.StatePending, g.refused)
	}
}

// shut closes a gang's book.
func (d *Driver) shut(g *gang, now cluster.Time, text string) {
	b := &g.book
	if b.over || b.number == 0 {
		return
	}
	b.over = true
	state := show.StateCancelled
	if b.runs > 0 {
		switch b.outcome {
		case engine.Completed:
			state = show.StateCompleted
		case engine.Failed:
			state = show.StateFailed
		case engine.Preempted:
			state, text = show.StatePreempted, "its pods had to leave; their owner has not made others yet"
		}
	}
	if b.lined > 0 {
		b.waited, b.lined = b.waited+max(0, now.Sub(b.lined)), 0
	}
	b.tell(now, state, text)
	r := d.rowOf(g)
	r.State, r.Reason, r.Ended = state, text, now
	list := d.records.past
	list = list[max(0, len(list)+1-mostPast):]
	d.records.past = append(list[:len(list):len(list)], r)
}

func (b *book) tell(at cluster.Time, state, text string) {
	if n := len(b.moments); n > 0 && b.moments[n-1].State == state && b.moments[n-1].Text == text {
		return
	}
	from := max(0, len(b.moments)+1-mostMoments)
	b.moments = append(b.moments[from:len(b.moments):len(b.moments)], look.Moment{At: at, State: state, Text: text})
}

// startedAt is when the pods of a gang that is found running started.
func (g *gang) startedAt(now cluster.Time) cluster.Time {
	at := now
	for _, p := range g.pods {
		if s := p.obj.Status.StartTime; s != nil {
			at = min(at, cluster.Time(s.UnixNano()))
		}
	}
	return at
}

// countHours counts the GPUs' time up to now, hour by hour.
func (d *Driver) countHours(now cluster.Time) {
	r := &d.records
	if r.upTo == 0 {
		r.upTo, r.since = now, now
	}
	for r.upTo < now {
		at := r.upTo - r.upTo%cluster.Time(time.Hour)
		if n := len(r.hours); n == 0 || r.hours[n-1].At != at {
			r.hours = append(r.hours[max(0, n+1-mostHours):n:n], look.Hour{At: at})
		}
		end := min(now, at.Add(time.Hour))
		h := r.hours[len(r.hours)-1]
		h.Total += end.Sub(r.upTo) * time.Duration(r.total)
		h.Held += end.Sub(r.upTo) * time.Duration(r.held)
		r.hours[len(r.hours)-1] = h
		r.upTo = end
	}
}

// sample keeps the cluster's state for the last hour.
func (d *Driver) sample(now cluster.Time) {
	r := &d.records
	if n := len(r.series); n > 0 && time.Unix(0, int64(now)).Sub(r.series[n-1].At) < sampleEvery {
		return
	}
	d.countHours(now)
	r.total = 0
	for _, n := range d.nodes {
		if n.obj != nil && n.state() == cluster.Up {
			r.total += d.gpus.Count(n.obj.Status.Allocatable)
		}
	}
	r.series = append(r.series[max(0, len(r.series)+1-mostSamples):len(r.series):len(r.series)], d.present(now))
	f := d.eng.Fragmentation()
	d.opt.Observe.Free(f.Free, min(f.Free, f.Usable))
}

func (d *Driver) present(now cluster.Time) show.Sample {
	s := show.Sample{At: time.Unix(0, int64(now)).UTC(), Allocated: int64(d.records.held) * cluster.Whole}
	for _, g := range d.gangs {
		switch {
		case g.phase > waiting:
			s.Running++
		case g.phase == waiting || !g.over && g.asks():
			s.Waiting++
		}
	}
	return s
}

// taskState is what a pod is doing, for people.
func taskState(p *pod) string {
	switch {
	case p.obj.Status.Phase == v1.PodSucceeded:
		return "succeeded"
	case p.obj.Status.Phase == v1.PodFailed:
		return "failed"
	case p.leaving || p.obj.DeletionTimestamp != nil:
		return "leaving"
	case p.binding:
		return "binding"
	case p.obj.Status.Phase == v1.PodRunning:
		return "running"
	case p.node != "":
		return "bound"
	case len(p.obj.Spec.SchedulingGates) > 0:
		return "gated"
	}
	return "waiting"
}
