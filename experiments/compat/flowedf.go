package compat

import (
	"cmp"
	"math"
	"math/bits"
	"slices"
)

// flowEDF is EDF in ElasticFlow's simulator (section 5): at each event all jobs are planned to
// their ends, the earliest deadline first, each with as many GPUs as fit, however much that slows
// it down; a change of size costs nothing.
type flowEDF struct {
	w    *FlowWorld
	come bool // a job arrived in this event
	free timeline
}

func newFlowEDF(w *FlowWorld) *flowEDF {
	w.elastic(flowMost)
	return &flowEDF{w: w}
}

// flowMost is the maximum number of GPUs of a job: one per sample of its batch, at most 64.
func flowMost(j *flowJob) int { return min(1<<(flowLevels-1), j.batch) }

// next brings jobs up to the next event.
func (f *flowEDF) next() bool {
	w := f.w
	if !w.begin() {
		return false
	}
	for _, i := range slices.Clone(w.known) {
		w.advance(i, w.jobs[i].end)
	}
	for _, i := range w.events[0].ends {
		w.finish(i, w.jobs[i].end)
	}
	f.come = len(w.events[0].come) > 0
	for _, i := range w.events[0].come {
		w.known = append(w.known, i)
		w.arrive(i)
	}
	return true
}

// advance adds a job's progress in the interval up to now, of which only the time up to limit
// counts, after the first lost seconds. If the job completes earlier than expected, it ends now.
func (w *FlowWorld) advance(i, limit int) {
	j := &w.jobs[i]
	if j.given == 0 {
		return
	}
	s := j.rate(j.given)
	run := max(0, w.span-max(0, w.now-limit)-j.lost)
	it := float64(float64(run) * s)
	if j.left <= it && j.end > w.now {
		w.events.move(j.moved, w.now, i)
		j.end, j.moved = w.now-w.span+int(math.Ceil(j.left/s)), w.now
		it = j.left
	}
	j.left -= it
}

// decide plans all jobs; new arrivals are listed after the known jobs.
func (f *flowEDF) decide() {
	w := f.w
	order := w.known
	if f.come {
		order = slices.Clone(order)
	}
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(w.jobs[a].deadline, w.jobs[b].deadline) })
	f.free = append(f.free[:0], timeline{{w.now, w.total}}...)
	for _, i := range order {
		f.free = f.plan(&w.jobs[i], f.free)
	}
	for _, i := range w.known {
		j := &w.jobs[i]
		switch {
		case j.started:
			w.events.move(j.moved, j.end, i)
			j.moved = j.end
		case j.want > 0:
			j.started, j.moved = true, j.end
			w.events.end(j.end, i)
		}
	}
}

// plan gives a job GPUs until its end from the free ones, and returns the rest, in the same memory.
// If its end is on a slot boundary it overwrites what is free from there on, as in that simulator
// (E3).
func (f *flowEDF) plan(j *flowJob, free timeline) timeline {
	w := f.w
	base, left := min(j.most, w.total), j.left
	done := func(e, after int) timeline { // the job ends at e
		j.end = e
		if _, ok := free.find(e); !ok {
			free.set(slotUp(w.now, e), after)
		}
		return free.squeeze()
	}
	for k := range free {
		g, last := base, k == len(free)-1
		if free[k].n < base && !last {
			g = 1 << bits.Len(uint(free[k].n)) >> 1 // 0 of 0
		}
		if k == 0 {
			j.want = g
		}
		if g == 0 {
			continue
		}
		at := free[k].at
		e := int(math.Ceil(float64(at) + left/j.rate(g)))
		switch {
		case last:
			free[k].n = w.total - base
			return done(e, w.total)
		case free[k+1].at >= e:
			after := w.total
			if at < e {
				after = free[k].n
			}
			free[k].n -= g
			return done(e, after)
		}
		left -= float64(float64(free[k+1].at-at) * j.rate(g))
		free[k].n -= g
	}
	return free // not reached: the last interval covers it
}

// settle computes the next events.
func (f *flowEDF) settle() error {
	w := f.w
	w.events = w.events[1:]
	w.events.gather(w.now)
	return w.carried()
}
