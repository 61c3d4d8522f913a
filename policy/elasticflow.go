package policy

import (
	"cmp"
	"math"
	"slices"
	"time"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/engine"
)

var elasticflow = Info{
	Name: "elasticflow",
	About: "deadlines: a job is accepted if it and all accepted ones can be done in time, with as few GPUs as late as possible; " +
		"idle GPUs go where they save most GPU time, then to jobs without an accepted deadline",
	Source: "C-deadlines: ElasticFlow (ASPLOS'23); jobs that are declined run without a promise instead of being dropped",
	Needs:  "deadlines, run times, elastic jobs, speeds by size (else linear)",
	Knobs:  []Knob{{"slot", "60s", "plans are made in slots of this length; what is left of a deadline's slot is not counted on"}},
	New: func(k *Knobs) (engine.Policy, error) {
		r := &flowRules{}
		var err error
		if r.slot, err = k.period("slot"); err != nil {
			return nil, err
		}
		return &drawer{
			planner: planner{name: k.label(), plan: r.plan, traits: engine.Traits{Preempts: true, Backfill: engine.Skip, Gated: true, Anywhere: true}},
			pool:    r.pool, nothing: always(engine.Target{Rank: 1, Idle: true}),
		}, nil
	},
}

type flowRules struct{ slot time.Duration }

// mostSlots bounds how far plans look ahead: a deadline beyond counts as there.
const mostSlots = 4096

// flow is a job while a plan is made.
type flow struct {
	claim
	sizes    []int // the first set's tasks that it may run with: doubling from the least, and the most
	deadline int   // slots up to which it may run; 0: no deadline that counts
	accepted bool
	plan     []int // index into sizes plus one, by slot; 0: nothing
}

// horizon is the slots ahead, and the GPUs that are free in each.
type horizon struct {
	v     engine.View
	ends  []cluster.Time
	begin cluster.Time
	gpus  int // of the cluster
	free  []int
}

// empty has all GPUs be free.
func (h *horizon) empty() {
	for t := range h.free {
		h.free[t] = h.gpus
	}
}

func (h *horizon) length(t int) float64 {
	if t == 0 {
		return h.ends[0].Sub(h.begin).Seconds()
	}
	return h.ends[t].Sub(h.ends[t-1]).Seconds()
}

func (r *flowRules) plan(v engine.View, jobs []engine.JobView) engine.Plan {
	list := engine.Scratch[flow](v, len(jobs))
	claimAll(v, jobs, func(i int) *claim { return &list[i].claim })
	h := r.horizon(v, list)
	for i := range list {
		r.recall(h, &list[i])
	}
	var kept, fresh []*flow
	for i := range list {
		switch f := &list[i]; {
		case f.accepted:
			kept = append(kept, f)
		case f.deadline > 0 && f.j.Target() == nil:
			fresh = append(fresh, f)
		}
	}
	h.satisfy(kept) // if the cluster has shrunk: whoever can be
	slices.SortStableFunc(fresh, byDeadline)
	for _, f := range fresh {
		r.admit(h, &kept, f)
	}
	slices.SortStableFunc(kept, byDeadline)
	h.speedUp(kept)
	drawn := r.rest(h, list)
	p := engine.Plan{Next: cluster.Never, Targets: v.Targets(len(list) + len(drawn))}
	for i := range list {
		f := &list[i]
		t := engine.Target{Rank: 1, Idle: f.tasks == 0, Tasks: f.tasks, Least: f.tasks}
		switch {
		case f.accepted:
			t.Rank, t.Deadline = 0, engine.DeadlineAccepted
			p.Next = h.ends[0]
		case f.j.Spec().Deadline > 0:
			t.Deadline = engine.DeadlineDeclined
		}
		p.Targets[i] = t
	}
	for i, c := range drawn {
		p.Targets[len(list)+i] = engine.Target{Rank: 1, Tasks: c.tasks, Least: c.tasks}
	}
	return p
}

func byDeadline(a, b *flow) int {
	return cmp.Or(cmp.Compare(a.j.Spec().Deadline, b.j.Spec().Deadline), cmp.Compare(a.j.Spec().ID, b.j.Spec().ID))
}

// horizon makes the slots up to the last deadline.
func (r *flowRules) horizon(v engine.View, list []flow) *horizon {
	last := cluster.Time(0)
	for i := range list {
		last = max(last, list[i].j.Spec().Deadline)
	}
	now, slot := v.Now(), cluster.Time(r.slot)
	h := &horizon{v: v, begin: now, gpus: totalGPUs(v)}
	for end := (now/slot + 1) * slot; len(h.ends) == 0 || end <= last && len(h.ends) < mostSlots; end += slot {
		h.ends = append(h.ends, end)
	}
	h.free = make([]int, len(h.ends))
	h.empty()
	return h
}

// recall finds out what the job may run with, until when, and whether its
// deadline has been accepted.
func (r *flowRules) recall(h *horizon, f *flow) {
	if d := f.j.Spec().Deadline; d > 0 && f.j.Spec().Estimate > 0 {
		for n := f.least; n < f.most; n *= 2 {
			f.sizes = append(f.sizes, n)
		}
		f.sizes = append(f.sizes, f.most)
		f.deadline, _ = slices.BinarySearch(h.ends, d+1) // slots that end by then
	}
	f.left = r.work(f.j)
	t := f.j.Target()
	f.accepted = t != nil && t.Deadline == engine.DeadlineAccepted && f.deadline > 0
}

// admit accepts a job if there is a plan for it and for all that were accepted.
func (r *flowRules) admit(h *horizon, kept *[]*flow, f *flow) {
	free := slices.Clone(h.free)
	plans := make([][]int, len(*kept))
	for i, k := range *kept {
		plans[i] = k.plan
	}
	with := append(slices.Clone(*kept), f)
	h.empty()
	if h.satisfy(with) {
		f.accepted, *kept = true, with
		return
	}
	h.free, f.plan = free, nil
	for i, k := range *kept {
		k.plan = plans[i]
	}
}

// satisfy plans jobs with accepted deadlines, the earliest first: each with its
// minimum satisfactory share. It reports whether all can be done in time; who
// cannot gets all that is left for it.
func (h *horizon) satisfy(list []*flow) bool {
	order := slices.Clone(list)
	slices.SortStableFunc(order, byDeadline)
	all := true
	for _, f := range order {
		plan, ok := h.share(f, 0, f.left)
		f.plan, all = plan, all && ok
		h.take(f, plan, 1)
	}
	return all
}

// share is the minimum satisfactory share of a job for so much work, from a slot
// on: the smallest size with which it is done by its deadline, the latest slots
// first. Without one it is the plan with the largest size.
func (h *horizon) share(f *flow, from int, work float64) (plan []int, ok bool) {
	for size := range f.sizes {
		plan = make([]int, f.deadline)
		left := work
		for t := f.deadline - 1; t >= from && left > 0; t-- {
			s := size
			for s >= 0 && f.j.GPUs(f.sizes[s]) > h.free[t] {
				s--
			}
			for s > 0 && left <= f.speed(h.v, f.sizes[s-1])*h.length(t)+1e-9 {
				s-- // the earliest slot's surplus
			}
			if s >= 0 {
				plan[t] = s + 1
				left -= f.speed(h.v, f.sizes[s]) * h.length(t)
			}
		}
		if left <= 1e-9 {
			return plan, true
		}
	}
	return plan, work <= 1e-9
}

// take books a plan, or with sign -1 gives it back.
func (h *horizon) take(f *flow, plan []int, sign int) {
	for t, s := range plan {
		if s > 0 {
			h.free[t] -= sign * f.j.GPUs(f.sizes[s-1])
		}
	}
}

// gpuTime is what a plan costs, in GPU-seconds.
func (h *horizon) gpuTime(f *flow, plan []int) (sum float64) {
	for t, s := range plan {
		if s > 0 {
			sum += float64(f.j.GPUs(f.sizes[s-1])) * h.length(t)
		}
	}
	return sum
}

// speedUp gives GPUs that are free in the first slot to accepted jobs, one step
// of a size at a time, where they save most GPU time later; a job that is to
// wait comes first. It sets what each gets now.
func (h *horizon) speedUp(kept []*flow) {
	next := make([]larger, len(kept))
	for {
		best := -1
		for i, f := range kept {
			if l := &next[i]; !l.known {
				l.plan, l.gain, l.ok = h.larger(f)
				l.known = true
			}
			if next[i].ok && (best < 0 || next[i].gain > next[best].gain) {
				best = i
			}
		}
		if best < 0 {
			break
		}
		least := h.change(kept[best], next[best].plan)
		for i, f := range kept {
			next[i].known = next[i].known && i != best && f.j.GPUs(f.most) <= least
		}
	}
	for _, f := range kept {
		if len(f.plan) > 0 && f.plan[0] > 0 {
			f.tasks = f.sizes[f.plan[0]-1]
		}
	}
}

// larger is what a job would have with the next size in the first slot.
type larger struct {
	plan      []int
	gain      float64
	ok, known bool
}

// change gives the job another plan. It returns how many GPUs were free, before and
// after, in each of the slots that changed: to whom so many are enough, nothing changed.
func (h *horizon) change(f *flow, plan []int) (least int) {
	least = math.MaxInt
	for t := range plan {
		if plan[t] != f.plan[t] {
			least = min(least, h.free[t])
		}
	}
	old := f.plan
	h.take(f, old, -1)
	f.plan = plan
	h.take(f, plan, 1)
	for t := range plan {
		if plan[t] != old[t] {
			least = min(least, h.free[t])
		}
	}
	return least
}

// larger is the job's plan with the next size in the first slot, and what each
// more GPU saves; ok: it fits, is faster, and the deadline is kept.
func (h *horizon) larger(f *flow) (plan []int, gain float64, ok bool) {
	if len(f.plan) == 0 || f.plan[0] == len(f.sizes) || f.left <= 0 {
		return nil, 0, false
	}
	now := f.plan[0]
	next, held, speed := f.sizes[now], 0, 0.0
	if now > 0 {
		held, speed = f.j.GPUs(f.sizes[now-1]), f.speed(h.v, f.sizes[now-1])
	}
	if more := f.j.GPUs(next) - held; more > h.free[0] || f.speed(h.v, next) <= speed {
		return nil, 0, false
	}
	h.take(f, f.plan, -1)
	plan, ok = h.share(f, 1, f.left-f.speed(h.v, next)*h.length(0))
	h.take(f, f.plan, 1)
	if !ok {
		return nil, 0, false
	}
	plan[0] = now + 1
	if now == 0 {
		return plan, math.MaxFloat64, true
	}
	return plan, (h.gpuTime(f, f.plan) - h.gpuTime(f, plan)) / float64(f.j.GPUs(next)-held), true
}

// rest gives what is left of the first slot to jobs without an accepted
// deadline: each its least, by submission, then more; of those that came together the
// shorter first. Who is drawn from a pool is returned, too.
func (r *flowRules) rest(h *horizon, list []flow) (drawn []*claim) {
	var others []*claim
	for i := range list {
		if !list[i].accepted {
			others = append(others, &list[i].claim)
		}
	}
	return handOut(h.v, others, h.free[0], func(a, b *claim) int {
		return cmp.Or(cmp.Compare(a.j.Spec().Submit, b.j.Spec().Submit), cmp.Compare(r.work(a.j), r.work(b.j)))
	})
}

// work is what is left of a job, in seconds: a slot at least, since one that is not done
// takes longer than it was thought to.
func (r *flowRules) work(j engine.JobView) float64 {
	return cmp.Or(workLeft(j), r.slot.Seconds())
}

// pool has who waits without a deadline stand in pools by submission.
func (r *flowRules) pool(_ engine.View, j engine.JobView) (class int64, at engine.Key, ok bool) {
	return 0, engine.Key{int64(j.Spec().Submit), int64(math.Float64bits(r.work(j)))}, j.Spec().Deadline == 0
}
