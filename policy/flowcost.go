package policy

import (
	"math"
	"slices"
	"time"

	"github.com/muster-gpu/muster/cluster"
)

// What starting, stopping and changing a size cost, under elasticflow. A plan counts from when it sets out for something: whoever
// has to leave writes its checkpoint, then the job starts and goes on from its own.

// flowPast is what a plan has to know of a job's past, and what its changes cost.
type flowPast struct {
	solid   bool    // stopping it would lose its work: once it runs it stays as it is
	several bool    // its tasks have several GPUs each, so that they do not fit wherever some are free
	restart float64 // seconds that a start or a change of size takes, from when there is room
	leaves  float64 // seconds that others may have to wait until it has made room
	prev    int     // index into sizes plus one, of what it has or has been told to have; 0: nothing
	debt    float64 // seconds until it computes with that
	margin  float64 // work more than there is, so that it may be moved
}

// pastLength is how many numbers of a job's memo are about flowPast: the size, and when it computes with that.
const pastLength = 2

// flowCosts is what of costs is the same for all jobs.
type flowCosts struct {
	wait   float64 // seconds until whoever has to make room has done so
	pushes bool    // being moved out of others' way costs time
	starts []int   // the largest tasks that begin in a slot, by class
	stuck  []*flow // they stay where they are, whatever is promised
}

// cost is how long a job computes nothing for when it starts, or changes its size.
func (h *horizon) cost(f *flow) float64 {
	if f.restart == 0 && h.wait == 0 {
		return 0
	}
	return h.wait + f.restart
}

// remember finds out what of a job's costs depends on nobody else.
func (r *flowRules) remember(h *horizon, f *flow) {
	c := &f.j.Spec().Checkpoint
	f.restart = (r.overhead + max(c.Restart, c.Suspend)).Seconds()
	f.leaves = max(0, f.j.SwitchTakes()-c.Restart).Seconds()
	if f.least < f.most { // it gives back a part when it has changed its size, and it may be changing it
		f.leaves = max(f.leaves, f.restart+c.Restart.Seconds())
	}
	if f.solid = f.j.Loses(); f.solid && f.now > 0 && len(f.sizes) == 0 {
		f.reckon(h)
	}
}

// slowedBy is the part of its speed that a job has beside its periodic checkpoints.
func slowedBy(spec *cluster.Job) float64 {
	c := &spec.Checkpoint
	if c.Interval <= 0 || c.Cost <= 0 || c.None {
		return 1
	}
	return c.Interval.Seconds() / (c.Interval + c.Cost).Seconds()
}

// reckonWait finds out how long who starts may have to wait, and where the accepted jobs are.
func (h *horizon) reckonWait(list []flow, kept []*flow) {
	first, costs := -1, false
	for i := range list {
		f := &list[i]
		costs = costs || f.restart > 0 || f.leaves > 0
		if t := f.j.Target(); f.now > 0 || f.accepted || t != nil && !t.Idle { // it may run before the next plan
			h.wait = max(h.wait, f.leaves)
		}
		if f.deadline > 0 && first < 0 {
			first = f.classes[0]
		}
		h.pushes = h.pushes || f.deadline > 0 && f.classes[0] != first
	}
	h.pushes = h.pushes && costs
	for _, f := range kept {
		h.resume(f)
	}
}

// resume finds out what a job has been told to have, and when it computes with that.
func (h *horizon) resume(f *flow) {
	memo := f.j.Target().Memo
	f.prev = 1 + slices.Index(f.sizes, f.now)
	if f.now == 0 || f.j.Stops() {
		f.prev = 0
	}
	ready := cluster.Time(0)
	if len(memo)%3 == pastLength%3 {
		size, then := int(memo[0]), cluster.Time(memo[1])
		if size == f.prev || then > h.begin && size <= len(f.sizes) {
			f.prev, ready = size, then
		}
	}
	if f.now > 0 && f.j.Started() >= h.v.Planned() && f.prev > 0 && f.sizes[f.prev-1] == f.now { // it has come to where it is since
		ready = f.j.Started().Add(time.Duration(f.restart * 1e9))
	}
	f.debt = max(0, ready.Sub(h.begin).Seconds())
}

// past writes what the next plan has to know.
func (h *horizon) past(f *flow) []int64 {
	size, ready := 0, int64(0)
	if len(f.plan) > 0 {
		size = f.plan[0]
	}
	wait := f.debt
	if size != f.prev || h.moved(f, 0) {
		wait = max(wait, h.cost(f))
	}
	if size > 0 && wait > 0 {
		ready = int64(h.begin) + int64(wait*1e9)
	}
	return []int64{int64(size), ready}
}

// pieces is how many stretches of one size a plan has.
func pieces(plan []int) (n int) {
	for t, s := range plan {
		if s > 0 && (t == 0 || plan[t-1] != s) {
			n++
		}
	}
	return n
}

// stick books a job that stays where it is until it ends.
func (h *horizon) stick(f *flow) {
	f.tasks = f.now
	wait := h.cost(f)
	if f.j.Running() {
		wait = max(0, wait-h.begin.Sub(f.j.Started()).Seconds())
	}
	left := f.left/f.paces[0] + wait + h.length(0)
	if f.j.Spec().Estimate == 0 {
		left = math.MaxFloat64
	}
	for t := 0; t < len(h.ends) && left > 0; t++ {
		f.plan = append(f.plan, 1)
		left -= h.length(t)
	}
	h.stuck = append(h.stuck, f)
}

// noteStarts notes which is the largest class of tasks that begins in each slot: smaller ones may be moved out of its way.
func (h *horizon) noteStarts(list []*flow) {
	if !h.pushes {
		return
	}
	h.starts = make([]int, len(h.ends))
	for t := range h.starts {
		h.starts[t] = math.MaxInt
	}
	for _, f := range list {
		before := f.prev
		for t, s := range f.plan {
			if s > 0 && s != before {
				h.starts[t] = min(h.starts[t], f.classes[s-1])
			}
			before = s
		}
	}
}

// moved reports whether a job may be moved in a slot.
func (h *horizon) moved(f *flow, t int) bool {
	return h.pushes && !f.solid && h.starts[t] < f.classes[0]
}

// worked is how much of a job its plan gets done, in seconds of work.
func (h *horizon) worked(f *flow, plan []int) (sum float64) {
	before, debt, cost := f.prev, f.debt, h.cost(f)
	for t, s := range plan {
		if s > 0 {
			if s != before || h.moved(f, t) {
				debt = max(debt, cost)
			}
			length := h.length(t)
			sum += f.paces[s-1] * max(0, length-debt)
			debt = max(0, debt-length)
		} else {
			debt = 0
		}
		before = s
	}
	return sum
}

// inTime reports whether the plans of all jobs get them done.
func (h *horizon) inTime(list []*flow, slack float64) bool {
	for _, f := range list {
		if h.worked(f, f.plan) < f.left-slack {
			return false
		}
	}
	return true
}

// mostPushes bounds how often plans are made anew for those that are moved.
const mostPushes = 8

// solidShare is share for a job that is not stopped any more once it runs: slots without a gap, with one size, the latest that suffice.
func (h *horizon) solidShare(f *flow, from int, work float64, prev int, debt float64) (plan []int, ok bool) {
	if prev > 0 && from == 0 {
		if plan, ok = h.fromNow(f, prev-1, work, debt); ok || f.now > 0 {
			return plan, ok
		}
	}
	for size := range f.sizes {
		plan = make([]int, f.deadline)
		length, last := 0.0, f.deadline
		for t := f.deadline - 1; t >= from; t-- {
			if !h.fits(f, size, t) {
				length, last = 0, t
				continue
			}
			if length += h.length(t); f.paces[size]*max(0, length-h.cost(f)) >= work-1e-9 {
				for ; t < last; t++ {
					plan[t] = size + 1
				}
				return plan, true
			}
		}
	}
	return plan, work <= 1e-9
}

// fromNow has a job that is not stopped any more run from the first slot on until it is done. It reports whether there is room
// for it, and it is in time; one that runs is there, in any case.
func (h *horizon) fromNow(f *flow, size int, work, debt float64) (plan []int, ok bool) {
	plan, ok = make([]int, f.deadline), true
	for t := 0; t < f.deadline && work > 1e-9; t++ {
		ok = ok && (f.now > 0 || h.fits(f, size, t))
		plan[t] = size + 1
		length := h.length(t)
		work -= f.paces[size] * max(0, length-debt)
		debt = max(0, debt-length)
	}
	return plan, ok && work <= 1e-9
}

// mayRun reports whether a job without a promise may start now, though accepted ones need what they need later: it leaves soon
// enough, or it ends in time. One that stays until it ends is booked.
func (r *flowRules) mayRun(h *horizon, c *claim, free int, kept []*flow) bool {
	if c.now > 0 {
		return true
	}
	f := &flow{claim: *c}
	f.left = r.work(c.j)
	r.remember(h, f)
	if f.leaves > h.wait {
		wait := h.wait
		if h.wait = f.leaves; !h.inTime(kept, 1e-9) {
			h.wait = wait
			return false
		}
	}
	if !f.solid {
		return true
	}
	f.now = asked(c.j)
	if c.j.GPUs(f.now) > free {
		f.now = c.least
	}
	f.reckon(h)
	stuck := h.stuck
	h.stick(f)
	h.stuck = stuck
	for t := range f.plan {
		if !h.fits(f, 0, t) {
			return false
		}
	}
	c.least, c.most = f.now, f.now // once it runs it is not resized
	gpus := f.gpus[0]
	h.take(f, f.plan, 1)
	h.free[0] += gpus // of the first slot somebody else keeps count
	return true
}
