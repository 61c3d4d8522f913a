package policy

import (
	"cmp"
	"math"
	"slices"
	"time"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/engine/sched"
)

var elasticflow = Info{
	Name: "elasticflow",
	About: "deadlines: a job is accepted if it and all accepted ones can be done in time, with as few GPUs as late as possible; " +
		"idle GPUs go where they save most GPU time, then to jobs without an accepted deadline",
	Source: "ElasticFlow (ASPLOS'23); jobs that are declined run without a promise instead of being dropped",
	Needs:  "deadlines, run times, elastic jobs, speeds by size (else linear)",
	Trials: []Trial{{Given: Deadlines | Estimates | Short}},
	Knobs: []Knob{
		{"slot", "60s", "plans are made in slots of this length; what is left of a deadline's slot is not counted on"},
		{"overhead", "0s", "assumed cost of a start or a change of size, in addition to the checkpoints and restarts that jobs state"},
	},
	New: func(k *Knobs) sched.Policy {
		r := &flowRules{slot: k.duration("slot", time.Second), overhead: k.duration("overhead", 0)}
		return &drawer{
			planner: planner{name: k.label(), plan: r.plan,
				traits: sched.Traits{Preempts: true, Backfill: sched.Skip, Gated: true, Anywhere: true}},
			pool: r.pool, nothing: always(sched.Target{Rank: flowRest, Idle: true}),
		}
	},
}

type flowRules struct{ slot, overhead time.Duration }

// flowRest is the rank of jobs without an accepted deadline. Jobs with one come first, by the class
// of their tasks, the largest tasks first: larger tasks move smaller ones, so a count that fits
// also fits on the nodes (roundUp).
const flowRest = 64

// mostSlots bounds how far plans look ahead; a later deadline is treated as if it were there.
const mostSlots = 4096

// flow is a job during a plan.
type flow struct {
	claim
	sizes    []int     // permitted task counts of the first set: doubling from the least, then the most
	gpus     []int     // ... GPUs at each size
	rooms    []int     // ... GPUs booked for tasks of several GPUs (roundUp)
	classes  []int     // ... class of the tasks
	paces    []float64 // ... speed, in seconds of work per second
	deadline int       // number of slots that end by the deadline; 0: no deadline that counts, or it has passed
	accepted bool
	plan     []int // index into sizes plus one, by slot; 0: nothing
	flowPast
}

// horizon is the slots ahead and the free GPUs in each.
type horizon struct {
	v     sched.View
	ends  []cluster.Time
	begin cluster.Time
	gpus  int // of the cluster
	free  []int
	// ... for multi-GPU tasks, counted at their rounded-up sizes; single-GPU tasks fit wherever a GPU is free
	rooms []int
	multi []int // ... the GPUs of rooms taken by multi-GPU tasks
	kinds []sched.Kind

	number int64 // of the first slot, counted from time 0
	flowCosts
}

// empty frees all GPUs except those of jobs that cannot be stopped.
func (h *horizon) empty() {
	for t := range h.free {
		h.free[t], h.rooms[t], h.multi[t] = h.gpus, h.gpus, 0
	}
	for _, f := range h.stuck {
		h.take(f, f.plan, 1)
	}
}

func (h *horizon) length(t int) float64 {
	if t == 0 {
		return h.ends[0].Sub(h.begin).Seconds()
	}
	return h.ends[t].Sub(h.ends[t-1]).Seconds()
}

func (r *flowRules) plan(v sched.View, jobs []sched.JobView) sched.Plan {
	list := sched.Scratch[flow](v, len(jobs))
	claimAll(v, jobs, func(i int) *claim { return &list[i].claim })
	h := r.horizon(v, list)
	for i := range list {
		r.recall(h, &list[i])
	}
	var kept, late, fresh []*flow
	for i := range list {
		switch f := &list[i]; {
		case f.solid && f.now > 0 && !(f.accepted && f.deadline > 0):
			h.stick(f)
		case f.accepted && f.deadline == 0:
			late = append(late, f)
		case f.accepted:
			kept = append(kept, f)
		case f.deadline > 0 && f.j.Target() == nil:
			fresh = append(fresh, f)
		}
	}
	h.reckonWait(list, kept)
	h.empty()
	if !h.satisfy(kept) { // the cluster may have shrunk
		h.goOn(kept)
	}
	slices.SortStableFunc(fresh, byDeadline)
	for _, f := range fresh {
		r.admit(h, &kept, f)
	}
	slices.SortStableFunc(kept, byDeadline)
	h.catchUp(late)
	h.speedUp(kept)
	drawn := r.rest(h, list, kept)
	p := sched.Plan{Next: cluster.Never, Targets: v.Targets(len(list) + len(drawn))}
	for i := range list {
		f := &list[i]
		t := sched.Target{Rank: flowRest, Idle: f.tasks == 0, Tasks: f.tasks, Least: f.tasks}
		switch {
		case f.accepted:
			t.Rank, t.Deadline, t.Memo = int64(f.class()), sched.DeadlineAccepted, h.write(f)
			p.Next = h.ends[0]
		case f.j.Spec().Deadline > 0:
			t.Deadline = sched.DeadlineDeclined
		}
		if f.solid && f.now > 0 {
			t.Rank = -1 // it must not be moved
		}
		p.Targets[i] = t
	}
	for i, c := range drawn {
		p.Targets[len(list)+i] = sched.Target{Rank: flowRest, Idle: c.tasks == 0, Tasks: c.tasks, Least: c.tasks}
	}
	return p
}

func byDeadline(a, b *flow) int {
	return cmp.Or(cmp.Compare(a.j.Spec().Deadline, b.j.Spec().Deadline), cmp.Compare(a.j.Spec().ID, b.j.Spec().ID))
}

// horizon makes the slots up to the last deadline.
func (r *flowRules) horizon(v sched.View, list []flow) *horizon {
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
	h.free, h.rooms, h.multi, h.number = make([]int, len(h.ends)), make([]int, len(h.ends)), make([]int, len(h.ends)),
		int64(now/slot)
	return h
}

// recall sets the sizes that the job may have, its deadline in slots, and whether that has been
// accepted.
func (r *flowRules) recall(h *horizon, f *flow) {
	if d := f.j.Spec().Deadline; d > 0 && f.j.Spec().Estimate > 0 {
		for n := f.least; n < f.most; n *= 2 {
			f.sizes = append(f.sizes, n)
		}
		f.sizes = append(f.sizes, f.most)
		f.reckon(h)
		f.deadline, _ = slices.BinarySearch(h.ends, d+1) // number of slots that end by the deadline
	}
	f.left = r.work(f.j)
	t := f.j.Target()
	f.accepted = t != nil && t.Deadline == sched.DeadlineAccepted && len(f.sizes) > 0
	r.remember(h, f)
}

// reckon sets what the job takes of the cluster at each size: every task counts like the largest,
// rounded up. A growing job moves no other, so a job may grow only if its tasks fit wherever a GPU
// is free; others keep the size that they ask for.
func (f *flow) reckon(h *horizon) {
	perNode := 0
	for i := range h.kinds {
		if k := &h.kinds[i]; perNode == 0 || f.j.Accepts(k.GPU) && k.PerNode > perNode {
			perNode = k.PerNode
		}
	}
	_, last := roundUp(1, perNode)
	if size, _ := largestTask(f.j.Spec(), f.most, perNode); size > 0 {
		if _, class := roundUp(size, perNode); class < last {
			f.sizes = []int{asked(f.j)}
		}
	}
	if f.solid = f.j.Loses(); f.solid && f.now > 0 {
		f.sizes = []int{f.now}
	}
	slow := slowedBy(f.j.Spec())
	for _, n := range f.sizes {
		size, tasks := largestTask(f.j.Spec(), n, perNode)
		room, class := roundUp(size, perNode)
		if class == last {
			room = 0
		}
		if f.solid && !h.oneNode() {
			room = perNode // it cannot be moved to where it fits best
		}
		f.gpus, f.rooms, f.classes = append(f.gpus, f.j.GPUs(n)), append(f.rooms, room*tasks), append(f.classes, class)
		f.paces = append(f.paces, f.speed(h.v, n)*slow)
	}
	f.several = len(f.classes) > 0 && f.classes[0] < last
}

// oneNode reports whether all GPUs are on one node, where whatever fits by count fits.
func (h *horizon) oneNode() bool {
	return len(h.kinds) == 1 && h.kinds[0].GPUs <= h.kinds[0].PerNode
}

// fits reports whether the job fits into slot t at one of its sizes.
func (h *horizon) fits(f *flow, size, t int) bool {
	return f.gpus[size] <= h.free[t] &&
		(f.rooms[size] <= h.rooms[t] || f.rooms[size] == 0 || !f.several && h.multi[t] == 0)
}

// class is the class of the job's tasks at its present size.
func (f *flow) class() int {
	for i, n := range f.sizes {
		if n == f.tasks {
			return f.classes[i]
		}
	}
	return f.classes[0]
}

// admit accepts a job if there is a plan for it and all accepted jobs.
func (r *flowRules) admit(h *horizon, kept *[]*flow, f *flow) {
	plans, wait := h.books(*kept), h.wait
	with := append(slices.Clone(*kept), f)
	h.wait = max(h.wait, f.leaves)
	h.empty()
	if h.satisfy(with) {
		f.accepted, *kept = true, with
		return
	}
	f.plan, h.wait = nil, wait
	h.restore(*kept, plans)
}

// books copies the plans of jobs.
func (h *horizon) books(list []*flow) (plans [][]int) {
	plans = make([][]int, len(list))
	for i, f := range list {
		plans[i] = f.plan
	}
	return plans
}

// restore books the saved plans, and nothing else but the jobs that cannot be stopped.
func (h *horizon) restore(list []*flow, plans [][]int) {
	h.empty()
	for i, f := range list {
		f.plan = plans[i]
		h.take(f, f.plan, 1)
	}
	h.noteStarts(list)
}

// goOn keeps the plans of last time if all jobs meet their deadlines with them: planning one job
// after the other may fail to find a feasible plan where one exists.
func (h *horizon) goOn(kept []*flow) {
	plans := h.books(kept)
	h.empty()
	for i, f := range kept {
		// The old plan is from when it could still save its work.
		if f.plan = h.read(f); f.solid && (f.now > 0 || pieces(f.plan) > 1) {
			f.plan = plans[i]
		}
		h.take(f, f.plan, 1)
	}
	h.noteStarts(kept)
	if h.overbooked() || !h.inTime(kept, 1e-6) {
		h.restore(kept, plans)
	}
}

// overbooked reports whether more is planned than there is.
func (h *horizon) overbooked() bool {
	for t := range h.free {
		if h.free[t] < 0 || h.rooms[t] < 0 && h.multi[t] > 0 {
			return true
		}
	}
	return false
}

// write returns a job's memo: flowPast first, then its plan as triples: first slot and the slot
// after the last, both counted from time 0, and the size as in the plan.
func (h *horizon) write(f *flow) (memo []int64) {
	memo = h.past(f)
	for t, s := range f.plan {
		n := h.number + int64(t)
		switch last := len(memo) - 1; {
		case s == 0:
		case last > pastLength && memo[last-1] == n && memo[last] == int64(s):
			memo[last-1]++
		default:
			memo = append(memo, n, n+1, int64(s))
		}
	}
	return memo
}

// read is the plan that the job had last time, from now on.
func (h *horizon) read(f *flow) []int {
	plan, memo := make([]int, f.deadline), f.j.Target().Memo
	if len(memo)%3 == pastLength%3 {
		memo = memo[pastLength:]
	}
	for i := 0; i+2 < len(memo); i += 3 {
		for n := max(memo[i], h.number); n < min(memo[i+1], h.number+int64(f.deadline)); n++ {
			plan[n-h.number] = min(int(memo[i+2]), len(f.sizes))
		}
	}
	return plan
}

// satisfy plans jobs with accepted deadlines, the earliest first, each with its minimum
// satisfactory share, and reports whether all meet their deadlines; one that cannot gets all that
// is left for it. Jobs that are moved to make room for others are planned again with more work, as
// often as needed.
func (h *horizon) satisfy(list []*flow) bool {
	order := slices.Clone(list)
	slices.SortStableFunc(order, func(a, b *flow) int { // jobs that cannot be stopped come first
		return cmp.Or(-compareBool(a.solid && a.now > 0, b.solid && b.now > 0), byDeadline(a, b))
	})
	for _, f := range order {
		f.margin = 0
	}
	for again := 0; ; again++ {
		all := true
		for _, f := range order {
			plan, ok := h.share(f, 0, f.left+f.margin, f.prev, f.debt)
			f.plan, all = plan, all && ok
			h.take(f, plan, 1)
		}
		h.noteStarts(order)
		if !all || !h.pushes || again == mostPushes || h.inTime(order, 1e-9) {
			return all && (!h.pushes || h.inTime(order, 1e-9))
		}
		for _, f := range order {
			f.margin += max(0, f.left-h.worked(f, f.plan))
		}
		h.empty()
	}
}

// share is the minimum satisfactory share of a job for so much work, from a slot on: the smallest
// size with which it is done by its deadline, the latest slots first. If no size suffices, it is
// the plan with the largest. Each start and each change of size takes time: before the first slot
// the job had size prev (0: none), with which it computes after debt seconds.
func (h *horizon) share(f *flow, from int, work float64, prev int, debt float64) (plan []int, ok bool) {
	if f.solid {
		return h.solidShare(f, from, work, prev, debt)
	}
	cost := h.cost(f)
	if len(f.sizes) > 0 {
		plan = make([]int, f.deadline)
	}
	for size := range f.sizes {
		clear(plan)
		// open is the work left at the end of the current run of slots of one size.
		left, open, length, now := work, work, 0.0, 0
		for t := f.deadline - 1; t >= from && left > 0; t-- {
			s := size
			for s >= 0 && !h.fits(f, s, t) {
				s--
			}
			for s > 0 && cost == 0 && left <= f.paces[s-1]*h.length(t)+1e-9 {
				s-- // less is needed in the earliest slot
			}
			plan[t] = s + 1
			switch {
			case s+1 != now:
				open, length, now = left, h.length(t), s+1
			default:
				length += h.length(t)
			}
			switch {
			case s < 0:
			case cost == 0:
				left -= f.paces[s] * h.length(t)
			case t == from && s+1 == prev:
				left = open - f.paces[s]*max(0, length-debt)
			default:
				left = open - f.paces[s]*max(0, length-cost)
			}
		}
		if left <= 1e-9 {
			return plan, true
		}
	}
	return plan, work <= 1e-9
}

// take books a plan (sign 1) or releases it (sign -1).
func (h *horizon) take(f *flow, plan []int, sign int) {
	for t, s := range plan {
		if s > 0 {
			h.free[t] -= sign * f.gpus[s-1]
			h.rooms[t] -= sign * f.rooms[s-1]
			if f.several {
				h.multi[t] += sign * f.rooms[s-1]
			}
		}
	}
}

// gpuTime is the cost of a plan, in GPU-seconds.
func (h *horizon) gpuTime(f *flow, plan []int) (sum float64) {
	for t, s := range plan {
		if s > 0 {
			sum += float64(f.gpus[s-1]) * h.length(t)
		}
	}
	return sum
}

// catchUp gives what accepted deadlines do not need in the first slot to jobs that have missed
// theirs, the earliest first, as much as each can use.
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

// speedUp gives free GPUs of the first slot to accepted jobs, one size step at a time, where they
// save most GPU time later; a job that would otherwise wait comes first. It sets what each job gets
// now.
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
		f, before := kept[best], kept[best].plan
		least := h.change(f, next[best].plan)
		if h.pushes {
			if h.noteStarts(kept); !h.inTime(kept, 1e-9) { // making room for it would delay others too much
				h.change(f, before)
				h.noteStarts(kept)
				next[best].ok = false
				continue
			}
		}
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

// larger is a job's plan with a larger size in the first slot.
type larger struct {
	plan      []int
	gain      float64
	ok, known bool
}

// change gives the job another plan. It returns the least number of free GPUs, before or after, in
// the slots that changed: nothing has changed for jobs that need no more than that.
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

// larger is the job's plan with the next size in the first slot, and what each additional GPU
// saves; ok: it fits, is faster, and the deadline is kept. A job that is running and would have to
// restart keeps its size; a change of size must let it end sooner.
func (h *horizon) larger(f *flow) (plan []int, gain float64, ok bool) {
	if len(f.plan) == 0 || f.plan[0] == len(f.sizes) || f.left <= 0 || f.solid && f.plan[0] > 0 {
		return nil, 0, false
	}
	now, next := f.plan[0], f.plan[0]
	held, room, pace, cost := 0, 0, 0.0, h.cost(f)
	if now > 0 {
		held, room, pace = f.gpus[now-1], f.rooms[now-1], f.paces[now-1]
	} else if cost > 0 && f.prev > 0 {
		next = f.prev - 1
	}
	if f.solid && now == 0 {
		next = slices.Max(f.plan) - 1
	}
	if next < 0 || f.gpus[next]-held > h.free[0] || f.rooms[next]-room > h.rooms[0] && (f.several || h.multi[0] > 0) ||
		f.paces[next] <= pace {
		return nil, 0, false
	}
	wait := cost
	if next+1 == f.prev {
		wait = f.debt
	} else if now > 0 && cost > 0 && cost+f.left/f.paces[next] >= f.left/pace {
		return nil, 0, false
	}
	h.take(f, f.plan, -1)
	if f.solid {
		plan, ok = h.fromNow(f, next, f.left+f.margin, wait)
	} else {
		first := h.length(0)
		plan, ok = h.share(f, 1, f.left+f.margin-f.paces[next]*max(0, first-wait), next+1, max(0, wait-first))
	}
	h.take(f, f.plan, 1)
	if !ok {
		return nil, 0, false
	}
	plan[0] = next + 1
	switch {
	case now == 0 && cost > 0 && next+1 != f.prev:
		return plan, math.MaxFloat64 / 2, true // continuing a job comes before starting one
	case now == 0:
		return plan, math.MaxFloat64, true
	}
	return plan, (h.gpuTime(f, f.plan) - h.gpuTime(f, plan)) / float64(f.gpus[next]-held), true
}

// rest gives what is left of the first slot to jobs without an accepted deadline: each its least,
// by submission, then more; with equal submission the shorter first. Jobs drawn from pools are
// returned.
func (r *flowRules) rest(h *horizon, list []flow, kept []*flow) (drawn []*claim) {
	var others []*claim
	for i := range list {
		if f := &list[i]; !f.accepted && !(f.solid && f.now > 0) {
			others = append(others, &f.claim)
		}
	}
	may := func(c *claim, free int) bool { return len(kept) == 0 || r.mayRun(h, c, free, kept) }
	return handOut(h.v, others, h.free[0], may, func(a, b *claim) int {
		return cmp.Or(cmp.Compare(a.j.Spec().Submit, b.j.Spec().Submit), cmp.Compare(r.work(a.j), r.work(b.j)))
	})
}

// work is a job's remaining work in seconds; at least a slot, since a job past its estimate takes
// longer than thought.
func (r *flowRules) work(j sched.JobView) float64 {
	return cmp.Or(workLeft(j), r.slot.Seconds())
}

// pool keeps waiting jobs without a deadline in pools, by submission.
func (r *flowRules) pool(_ sched.View, j sched.JobView) (class int64, at sched.Key, ok bool) {
	return 0, sched.Key{int64(j.Spec().Submit), int64(math.Float64bits(r.work(j)))}, j.Spec().Deadline == 0
}
