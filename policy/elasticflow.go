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
			pool:    r.pool, nothing: always(engine.Target{Rank: flowRest, Idle: true}),
		}, nil
	},
}

type flowRules struct{ slot time.Duration }

// flowRest is the rank of jobs without an accepted deadline. Those with one come before them by the class of their
// tasks, the largest first: larger ones move smaller ones out of their way, so what fits by number fits on the nodes (roundUp).
const flowRest = 64

// mostSlots bounds how far plans look ahead: a deadline beyond counts as there.
const mostSlots = 4096

// flow is a job while a plan is made.
type flow struct {
	claim
	sizes    []int // the first set's tasks that it may run with: doubling from the least, and the most
	gpus     []int // ... what it takes with each
	rooms    []int // ... and of what tasks of several GPUs may have (roundUp)
	classes  []int // ... the class of its tasks
	deadline int   // slots up to which it may run; 0: no deadline that counts, or it is over
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
	rooms []int // ... for tasks of several GPUs, as if each took the part of a node that it needs; others fit wherever a GPU is free
	kinds []engine.Kind

	number int64 // of the first slot, since the beginning of time
}

// empty has all GPUs be free.
func (h *horizon) empty() {
	for t := range h.free {
		h.free[t], h.rooms[t] = h.gpus, h.gpus
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
	var kept, late, fresh []*flow
	for i := range list {
		switch f := &list[i]; {
		case f.accepted && f.deadline == 0:
			late = append(late, f)
		case f.accepted:
			kept = append(kept, f)
		case f.deadline > 0 && f.j.Target() == nil:
			fresh = append(fresh, f)
		}
	}
	if !h.satisfy(kept) { // if the cluster has shrunk: whoever can be
		h.goOn(kept)
	}
	slices.SortStableFunc(fresh, byDeadline)
	for _, f := range fresh {
		r.admit(h, &kept, f)
	}
	slices.SortStableFunc(kept, byDeadline)
	h.catchUp(late)
	h.speedUp(kept)
	drawn := r.rest(h, list)
	p := engine.Plan{Next: cluster.Never, Targets: v.Targets(len(list) + len(drawn))}
	for i := range list {
		f := &list[i]
		t := engine.Target{Rank: flowRest, Idle: f.tasks == 0, Tasks: f.tasks, Least: f.tasks}
		switch {
		case f.accepted:
			t.Rank, t.Deadline, t.Memo = int64(f.class()), engine.DeadlineAccepted, h.write(f)
			p.Next = h.ends[0]
		case f.j.Spec().Deadline > 0:
			t.Deadline = engine.DeadlineDeclined
		}
		p.Targets[i] = t
	}
	for i, c := range drawn {
		p.Targets[len(list)+i] = engine.Target{Rank: flowRest, Tasks: c.tasks, Least: c.tasks}
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
	h := &horizon{v: v, begin: now, kinds: v.Kinds()}
	h.gpus = allGPUs(h.kinds)
	for end := (now/slot + 1) * slot; len(h.ends) == 0 || end <= last && len(h.ends) < mostSlots; end += slot {
		h.ends = append(h.ends, end)
	}
	h.free, h.rooms, h.number = make([]int, len(h.ends)), make([]int, len(h.ends)), int64(now/slot)
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
		f.reckon(h.kinds)
		f.deadline, _ = slices.BinarySearch(h.ends, d+1) // slots that end by then
	}
	f.left = r.work(f.j)
	t := f.j.Target()
	f.accepted = t != nil && t.Deadline == engine.DeadlineAccepted && len(f.sizes) > 0
}

// reckon finds out what the job takes of the cluster with each size: every task as much as the largest, rounded up. Who grows moves
// nobody, so a job grows only if each of its tasks fits wherever anything is free: others have one size, that which they ask for.
func (f *flow) reckon(kinds []engine.Kind) {
	perNode := 0
	for i := range kinds {
		if perNode == 0 || f.j.Accepts(kinds[i].GPU) && kinds[i].PerNode > perNode {
			perNode = kinds[i].PerNode
		}
	}
	_, last := roundUp(1, perNode)
	if size, _ := largestTask(f.j.Spec(), f.most, perNode); size > 0 {
		if _, class := roundUp(size, perNode); class < last {
			f.sizes = []int{asked(f.j)}
		}
	}
	for _, n := range f.sizes {
		size, tasks := largestTask(f.j.Spec(), n, perNode)
		room, class := roundUp(size, perNode)
		if class == last {
			room = 0
		}
		f.gpus, f.rooms, f.classes = append(f.gpus, f.j.GPUs(n)), append(f.rooms, room*tasks), append(f.classes, class)
	}
}

// fits reports whether the job fits into a slot with one of its sizes.
func (h *horizon) fits(f *flow, size, t int) bool {
	return f.gpus[size] <= h.free[t] && f.rooms[size] <= h.rooms[t]
}

// class is that of the job's tasks at the size that it has now.
func (f *flow) class() int {
	for i, n := range f.sizes {
		if n == f.tasks {
			return f.classes[i]
		}
	}
	return f.classes[0]
}

// admit accepts a job if there is a plan for it and for all that were accepted.
func (r *flowRules) admit(h *horizon, kept *[]*flow, f *flow) {
	free, rooms, plans := h.books(*kept)
	with := append(slices.Clone(*kept), f)
	h.empty()
	if h.satisfy(with) {
		f.accepted, *kept = true, with
		return
	}
	f.plan = nil
	h.restore(*kept, free, rooms, plans)
}

// books copies what is free, and the plans of jobs.
func (h *horizon) books(list []*flow) (free, rooms []int, plans [][]int) {
	plans = make([][]int, len(list))
	for i, f := range list {
		plans[i] = f.plan
	}
	return slices.Clone(h.free), slices.Clone(h.rooms), plans
}

func (h *horizon) restore(list []*flow, free, rooms []int, plans [][]int) {
	h.free, h.rooms = free, rooms
	for i, f := range list {
		f.plan = plans[i]
	}
}

// goOn has jobs keep the plans that they had last time, if with these all are done in time: who plans one job after the
// other may find no plan for all of them, though there is one.
func (h *horizon) goOn(kept []*flow) {
	free, rooms, plans := h.books(kept)
	h.empty()
	all := true
	for _, f := range kept {
		left := f.left
		f.plan = h.read(f)
		for t, s := range f.plan {
			if s > 0 {
				left -= f.speed(h.v, f.sizes[s-1]) * h.length(t)
			}
		}
		h.take(f, f.plan, 1)
		all = all && left <= 1e-6
	}
	if !all || min(slices.Min(h.free), slices.Min(h.rooms)) < 0 {
		h.restore(kept, free, rooms, plans)
	}
}

// write is a job's plan as stretches of three: the number of the first slot since the beginning of time, that of the one after the
// last, and the size as in the plan.
func (h *horizon) write(f *flow) (memo []int64) {
	for t, s := range f.plan {
		n := h.number + int64(t)
		switch last := len(memo) - 1; {
		case s == 0:
		case last > 0 && memo[last-1] == n && memo[last] == int64(s):
			memo[last-1]++
		default:
			memo = append(memo, n, n+1, int64(s))
		}
	}
	return memo
}

// read is the plan that a job had last time, from now on.
func (h *horizon) read(f *flow) []int {
	plan, memo := make([]int, f.deadline), f.j.Target().Memo
	for i := 0; i+2 < len(memo); i += 3 {
		for n := max(memo[i], h.number); n < min(memo[i+1], h.number+int64(f.deadline)); n++ {
			plan[n-h.number] = min(int(memo[i+2]), len(f.sizes))
		}
	}
	return plan
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
			for s >= 0 && !h.fits(f, s, t) {
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
			h.free[t] -= sign * f.gpus[s-1]
			h.rooms[t] -= sign * f.rooms[s-1]
		}
	}
}

// gpuTime is what a plan costs, in GPU-seconds.
func (h *horizon) gpuTime(f *flow, plan []int) (sum float64) {
	for t, s := range plan {
		if s > 0 {
			sum += float64(f.gpus[s-1]) * h.length(t)
		}
	}
	return sum
}

// catchUp gives what no accepted deadline needs in the first slot to jobs that have missed theirs, the earliest first: as much
// of it as they can use.
func (h *horizon) catchUp(late []*flow) {
	slices.SortStableFunc(late, byDeadline)
	for _, f := range late {
		for s := len(f.sizes) - 1; s >= 0 && f.tasks == 0; s-- {
			if h.fits(f, s, 0) {
				h.free[0] -= f.gpus[s]
				h.rooms[0] -= f.rooms[s]
				f.tasks = f.sizes[s]
			}
		}
	}
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
			next[i].known = next[i].known && i != best && max(slices.Max(f.gpus), slices.Max(f.rooms)) <= least
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
			least = min(least, h.free[t], h.rooms[t])
		}
	}
	old := f.plan
	h.take(f, old, -1)
	f.plan = plan
	h.take(f, plan, 1)
	for t := range plan {
		if plan[t] != old[t] {
			least = min(least, h.free[t], h.rooms[t])
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
	next, held, room, speed := f.sizes[now], 0, 0, 0.0
	if now > 0 {
		held, room, speed = f.gpus[now-1], f.rooms[now-1], f.speed(h.v, f.sizes[now-1])
	}
	if f.gpus[now]-held > h.free[0] || f.rooms[now]-room > h.rooms[0] || f.speed(h.v, next) <= speed {
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
	return plan, (h.gpuTime(f, f.plan) - h.gpuTime(f, plan)) / float64(f.gpus[now]-held), true
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
