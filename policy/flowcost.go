package policy

import (
	"math"
	"slices"
	"time"

	"github.com/muster-gpu/muster/cluster"
)

// The cost of starting, stopping and resizing under elasticflow. A plan counts from the decision:
// jobs that make room write their checkpoints, then the job starts from its own.

// flowPast is what a plan needs to know of a job's past, and the cost of changing it.
type flowPast struct {
	solid   bool    // stopping would lose its work: once it runs it is neither stopped nor resized
	several bool    // its tasks have several GPUs each, so they do not fit wherever a GPU is free
	restart float64 // seconds for a start or resize once there is room
	leaves  float64 // seconds that others may have to wait for it to make room
	prev    int     // index into sizes plus one of its present or decided size; 0: nothing
	debt    float64 // seconds until it computes at that size
	margin  float64 // additional planned work, so that the job may be moved
}

// pastLength is the length of flowPast in a job's memo: the size, and when the job computes at it.
const pastLength = 2

// flowCosts are the costs that all jobs share.
type flowCosts struct {
	wait   float64 // seconds that a starting job may have to wait for others to make room
	pushes bool    // moving a job to make room costs time
	starts []int   // class of the largest tasks that start in a slot
	stuck  []*flow // jobs that cannot be stopped, whatever is promised
}

// cost is how many seconds a job does not compute when it starts or is resized.
func (h *horizon) cost(f *flow) float64 {
	if f.restart == 0 && h.wait == 0 {
		return 0
	}
	return h.wait + f.restart
}

// remember sets the job's own costs.
func (r *flowRules) remember(h *horizon, f *flow) {
	c := &f.j.Spec().Checkpoint
	f.restart = (r.overhead + max(c.Restart, c.Suspend)).Seconds()
	f.leaves = max(0, f.j.SwitchTakes()-c.Restart).Seconds()
	if f.least < f.most { // it gives back GPUs after a resize, and may be resizing now
		f.leaves = max(f.leaves, f.restart+c.Restart.Seconds())
	}
	if f.solid = f.j.Loses(); f.solid && f.now > 0 && len(f.sizes) == 0 {
		f.reckon(h)
	}
}

// slowedBy is the factor by which periodic checkpoints reduce a job's speed.
func slowedBy(spec *cluster.Job) float64 {
	c := &spec.Checkpoint
	if c.Interval <= 0 || c.Cost <= 0 || c.None {
		return 1
	}
	return c.Interval.Seconds() / (c.Interval + c.Cost).Seconds()
}

// reckonWait sets how long a starting job may have to wait, and the present state of the accepted
// jobs.
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

// resume sets the size that a job has or is to have, and when it computes at it.
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
	// It has got its present size since the last plan.
	if f.now > 0 && f.j.Started() >= h.v.Planned() && f.prev > 0 && f.sizes[f.prev-1] == f.now {
		ready = f.j.Started().Add(time.Duration(f.restart * 1e9))
	}
	f.debt = max(0, ready.Sub(h.begin).Seconds())
}

// past returns the job's flowPast for the next plan.
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

// pieces is the number of runs of slots of one size in a plan.
func pieces(plan []int) (n int) {
	for t, s := range plan {
		if s > 0 && (t == 0 || plan[t-1] != s) {
			n++
		}
	}
	return n
}

// stick books a job that cannot be stopped until it ends.
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

// noteStarts records the class of the largest tasks that start in each slot: smaller ones may be
// moved to make room.
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

// moved reports whether a job may be moved in a slot to make room for larger tasks.
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

// inTime reports whether each job is done with its plan.
func (h *horizon) inTime(list []*flow, slack float64) bool {
	for _, f := range list {
		if h.worked(f, f.plan) < f.left-slack {
			return false
		}
	}
	return true
}

// mostPushes bounds how often satisfy plans again because of moved jobs.
const mostPushes = 8

// solidShare is share for a job that cannot be stopped: consecutive slots with one size, the latest
// that suffice.
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

// fromNow is the plan of a job that cannot be stopped, from the first slot until it is done; ok:
// there is room and it is done in time. A job that already runs has its room in any case.
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

// mayRun reports whether a job without a promise may start although accepted jobs need GPUs later:
// it can leave soon enough, or it ends in time. A job that cannot be stopped is booked.
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
	h.free[0] += gpus // the caller accounts for the first slot
	return true
}
