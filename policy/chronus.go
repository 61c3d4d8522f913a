package policy

import (
	"cmp"
	"math"
	"math/bits"
	"slices"
	"time"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/engine/sched"
)

var chronus = Info{
	Name: "chronus",
	About: "deadlines of gangs of fixed size: a job is accepted if it and all accepted ones fit into leases before their deadlines; " +
		"jobs change places only when a lease begins; idle GPUs go to the others, the least work first",
	Source: "Chronus (SoCC'21); leases are packed greedily, by no integer program",
	Needs:  "deadlines, run times, checkpoints; tier best-effort marks soft deadlines",
	Trials: []Trial{{Given: Deadlines | Estimates | Short}},
	Knobs: []Knob{
		{"lease", "4m", "jobs take turns at multiples of this; a deadline counts to the end of its last whole lease"},
		{"overhead", "0s", "time of each lease that is lost to starting, in addition to the checkpoints and restarts that jobs state"},
		{"first", "running",
			"running: accepted jobs wait for their leases while others can use the GPUs, but go on once they run; least: those that run wait, too; most: they come first, as early as they fit"},
	},
	New: newChronus,
}

type chronusPolicy struct {
	name            string
	lease, overhead time.Duration
	eager           bool // accepted jobs take idle GPUs before others do
	lasting         bool // ... but only those that run
}

func newChronus(k *Knobs) sched.Policy {
	first := k.choice("first", "running", "least", "most")
	c := &chronusPolicy{name: k.label(), lease: k.duration("lease", time.Second), overhead: k.duration("overhead", 0),
		eager: first == "most", lasting: first == "running"}
	if c.overhead >= c.lease {
		k.fail("overhead=%s: less than a lease (%s)", k.text("overhead"), k.text("lease"))
	}
	return c
}

func (c *chronusPolicy) Name() string { return c.name }

func (c *chronusPolicy) Traits() sched.Traits {
	return sched.Traits{Preempts: true, Backfill: sched.Skip, Gated: true, Anywhere: true}
}

// The rank of a target is a class and a place in it: jobs preempt those of higher classes only.
// Jobs with a lease come first, the largest tasks before smaller ones, so that a count that fits
// also fits on the nodes (see roundUp).
const (
	chronusTurn  = 64 // runs until the lease ends, without a promise
	chronusLeft  = 65 // uses what is left over
	chronusPlace = 1 << 40
)

func (c *chronusPolicy) Key(_ sched.View, j sched.JobView) sched.Key {
	if t := j.Target(); t != nil {
		return sched.Key{t.Rank / chronusPlace, t.Rank % chronusPlace}
	}
	return sched.Key{chronusLeft + 1}
}

// booking is a job during a plan.
type booking struct {
	j        sched.JobView
	tasks    int // of its first task set
	gpus     int
	left     int64 // work, in ns at the reference speed
	due      int   // number of leases that end by its deadline, from the current one on
	accepted bool
	kind     int   // if accepted
	wall     int64 // ... remaining run time there, ns
	room     int   // ... GPUs booked of the kind (see roundUp)
	class    int
	leases   []int // ... relative to the current one, ascending
	turn     bool  // it runs until the lease is over, without a promise
	late     bool  // must not start before the lease ends: leaving again would take too long
	leaseCosts
}

// leaseBoard is a plan in the making.
type leaseBoard struct {
	*chronusPolicy
	v      sched.View
	kinds  []sched.Kind
	number int64        // of the current lease, which begins at number times the length
	end    cluster.Time // end of the current lease
	begins bool         // the first plan in this lease: jobs may change places
	free   [][]int      // GPUs by kind and lease; below 0 after a loss of nodes
	list   []booking
	wait   int64 // ns that a starting job may have to wait until others have left
}

// Plan runs when jobs come and go, and when a lease begins.
func (c *chronusPolicy) Plan(v sched.View, jobs []sched.JobView) sched.Plan {
	b := &leaseBoard{chronusPolicy: c, v: v, kinds: v.Kinds(), list: make([]booking, len(jobs))}
	start := v.Now() / cluster.Time(c.lease) * cluster.Time(c.lease)
	b.number, b.end = int64(start/cluster.Time(c.lease)), start.Add(c.lease)
	m := v.Memo()
	b.begins = len(m) != 1 || m[0] != b.number // the outcome holds until the next lease
	fresh := b.recall(jobs)
	b.repair()
	slices.SortStableFunc(fresh, byDue)
	for _, t := range fresh {
		b.admit(t)
	}
	b.holdBack()
	if b.begins {
		b.hasten()
		b.turns()
	}
	return b.plan()
}

func byDue(a, b *booking) int {
	return cmp.Or(cmp.Compare(a.j.Spec().Deadline, b.j.Spec().Deadline), cmp.Compare(a.j.Spec().ID, b.j.Spec().ID))
}

// recall brings the bookings up to now and lists the jobs whose deadlines are to be accepted or
// declined.
func (b *leaseBoard) recall(jobs []sched.JobView) (fresh []*booking) {
	horizon := 1
	for i, j := range jobs {
		t := &b.list[i]
		t.j, t.tasks = j, asked(j)
		t.gpus = j.GPUs(t.tasks)
		t.left = int64(equalWork * time.Second)
		if e := j.Spec().Estimate; e > 0 {
			t.left = max(1, int64(e-j.Done())) // 1: it takes longer than estimated
		}
		if d := j.Spec().Deadline; d >= b.end {
			t.due = 1 + int(min(int64(d.Sub(b.end)/b.lease), mostSlots-1))
		}
		horizon = max(horizon, t.due)
		b.reckon(t)
	}
	for k := range b.kinds {
		b.free = append(b.free, make([]int, horizon))
		for l := range b.free[k] {
			b.free[k][l] = b.kinds[k].GPUs
		}
	}
	for i := range b.list {
		t := &b.list[i]
		spec, old := t.j.Spec(), t.j.Target()
		t.turn = !b.begins && old != nil && len(old.Memo) > 0 && old.Memo[0] == b.number
		switch {
		case spec.Tier == cluster.Critical:
			b.reserve(t)
		case old != nil && old.Deadline == sched.DeadlineAccepted && b.sizeFor(t, max(0, kindOf(b.kinds, old.GPU))):
			t.accepted = true
			b.remember(t, old.Memo[min(1, len(old.Memo)):])
		case old == nil && t.due > 0 && spec.Estimate > 0 && spec.Tier == cluster.Standard && t.gpus > 0 &&
			!t.j.Loses():
			fresh = append(fresh, t)
		}
	}
	return fresh
}

// sizeFor sets what the job is and needs on a kind; false: it cannot run there.
func (b *leaseBoard) sizeFor(t *booking, kind int) bool {
	if kind >= len(b.kinds) {
		return false
	}
	k := &b.kinds[kind]
	size, tasks := largestTask(t.j.Spec(), t.tasks, k.PerNode)
	if !t.j.Accepts(k.GPU) || size > k.PerNode {
		return false
	}
	t.kind = kind
	t.room, t.class = roundUp(size, k.PerNode)
	t.room *= tasks
	hi, lo := bits.Mul64(uint64(t.slowed()), 1_000_000)
	if t.wall = math.MaxInt64; hi == 0 || hi < uint64(b.v.Speed(t.j, k.GPU, t.tasks))/2 {
		speed := uint64(b.v.Speed(t.j, k.GPU, t.tasks))
		q, r := bits.Div64(hi, lo, speed)
		t.wall = int64(min(q, math.MaxInt64-1))
		if r > 0 {
			t.wall++
		}
	}
	return true
}

// largestTask is the largest number of GPUs of a task, and the number of tasks with GPUs. A gang
// that must stay on one node counts as one task.
func largestTask(spec *cluster.Job, first, perNode int) (size, tasks int) {
	sum := 0
	for i := range spec.Tasks {
		n, g := spec.Tasks[i].Count, spec.Tasks[i].Request.GPUs
		if i == 0 {
			n = first
		}
		if g > 0 {
			size, tasks, sum = max(size, g), tasks+n, sum+n*g
		}
	}
	if spec.Topology.Required &&
		(spec.Topology.Level == cluster.LevelNode || spec.Topology.Level == cluster.LevelNVLink) {
		return sum, min(tasks, 1)
	}
	if p := spec.PerNode; p > 0 && tasks > 0 {
		size = max(size, (perNode+p-1)/p)
	}
	return size, tasks
}

// roundUp returns the smallest part of a node that holds a task; each part divides the next larger
// one: 8, 4, 2, 1. class numbers them, whole nodes being 0. If tasks are placed by class and those
// of later classes make room for them, each finds a node whenever the rounded sizes fit in number:
// the free part of each node, not counting later classes, is a multiple of its size.
func roundUp(gpus, perNode int) (size, class int) {
	size = perNode
	for next := largestDivisor(size); next >= max(1, gpus) && next < size; next = largestDivisor(size) {
		size, class = next, class+1
	}
	return size, class
}

// largestDivisor is the largest divisor of n below n; 1 for 1.
func largestDivisor(n int) int {
	for p := 2; p*p <= n; p++ {
		if n%p == 0 {
			return n / p
		}
	}
	return 1
}

// reserve books a critical job from now to its expected end, since its GPUs cannot be taken.
func (b *leaseBoard) reserve(t *booking) {
	kind := kindOf(b.kinds, t.j.GPU())
	for k := 0; kind < 0 && k < len(b.kinds); k++ {
		if t.j.Accepts(b.kinds[k].GPU) {
			kind = k
		}
	}
	if kind < 0 || t.gpus == 0 || !b.sizeFor(t, kind) {
		return
	}
	if t.j.Spec().Estimate == 0 {
		t.wall = math.MaxInt64
	}
	for l := range b.free[kind] {
		if l > 0 && b.end.Add(time.Duration(l-1)*b.lease).Sub(b.v.Now()) >= time.Duration(t.wall) {
			break
		}
		b.free[kind][l] -= t.room
	}
}

// remember books the leases of an accepted job, as many as it still needs. It drops the earliest
// ones, except the current one.
func (b *leaseBoard) remember(t *booking, memo []int64) {
	for i := 0; i+1 < len(memo); i += 2 {
		for n := max(memo[i], b.number); n < memo[i+1] && n-b.number < int64(len(b.free[t.kind])); n++ {
			t.leases = append(t.leases, int(n-b.number))
		}
	}
	b.trim(t)
	for _, l := range t.leases {
		b.free[t.kind][l] -= t.room
	}
}

// trim drops leases that are not needed.
func (b *leaseBoard) trim(t *booking) {
	for len(t.leases) > 0 {
		i := 0
		switch {
		case b.eager:
			i = len(t.leases) - 1
		case !b.begins && t.leases[0] == 0 && len(t.leases) > 1:
			i = 1
		case !b.begins && t.leases[0] == 0:
			return
		}
		if rest := slices.Delete(slices.Clone(t.leases), i, i+1); b.covers(t, rest) {
			t.leases = rest
		} else {
			return
		}
	}
}

// covers reports whether the leases suffice for the job's remaining work.
func (b *leaseBoard) covers(t *booking, leases []int) bool {
	left := t.wall
	for _, l := range leases {
		left -= b.useful(t, l)
	}
	return left <= 0
}

// latest gives a job the latest leases before its deadline that have room for it, in addition to
// those it has. false: they do not suffice.
func (b *leaseBoard) latest(t *booking) bool {
	first := 1
	if b.begins {
		first = 0
	}
	for l := min(t.due, len(b.free[t.kind])) - 1; l >= first && !b.covers(t, t.leases); l-- {
		b.take(t, l)
	}
	return b.covers(t, t.leases)
}

// take books a lease if there is room.
func (b *leaseBoard) take(t *booking, l int) {
	at, has := slices.BinarySearch(t.leases, l)
	if free := &b.free[t.kind][l]; !has && *free >= t.room {
		*free -= t.room
		t.leases = slices.Insert(t.leases, at, l)
	}
}

// drop gives back a job's leases, except the current one.
func (b *leaseBoard) drop(t *booking) {
	var keep []int
	for _, l := range t.leases {
		if l == 0 && !b.begins && b.free[t.kind][0] >= 0 {
			keep = append(keep, l)
		} else {
			b.free[t.kind][l] += t.room
		}
	}
	t.leases = keep
}

// kept lists the accepted jobs by deadline, then by remaining run time, the longest first, then by
// size, the largest first.
func (b *leaseBoard) kept() []*booking {
	var list []*booking
	for i := range b.list {
		if b.list[i].accepted {
			list = append(list, &b.list[i])
		}
	}
	slices.SortStableFunc(list, func(x, y *booking) int {
		return cmp.Or(cmp.Compare(x.due, y.due), cmp.Compare(y.wall, x.wall), cmp.Compare(y.room, x.room))
	})
	return list
}

// pack plans all accepted jobs again. false: not all meet their deadlines.
func (b *leaseBoard) pack() bool {
	list, all := b.kept(), true
	for _, t := range list {
		b.drop(t)
	}
	for _, t := range list {
		all = b.latest(t) && all
	}
	return all
}

// repair plans again if the bookings do not suffice: GPUs were lost, a job could not run in its
// lease, or takes longer than estimated. A job that cannot meet its deadline gets the earliest
// leases that are free.
func (b *leaseBoard) repair() {
	over := slices.ContainsFunc(b.free, func(free []int) bool { return slices.Min(free) < 0 })
	short, list := over, b.kept()
	for _, t := range list {
		short = short || !b.latest(t)
	}
	if !short {
		return
	}
	if free, leases := b.books(); !b.pack() && !over {
		b.restore(free, leases) // the promises to the other jobs stand
	}
	for _, t := range list {
		for l := 0; l < len(b.free[t.kind]) && !b.covers(t, t.leases); l++ {
			if l > 0 || b.begins {
				b.take(t, l)
			}
		}
	}
}

// admit accepts a job if there are free leases for it, or if it and all accepted jobs fit when
// planned again. It tries the fastest kind first.
func (b *leaseBoard) admit(t *booking) {
	var order []int
	for k := range b.kinds {
		if b.sizeFor(t, k) {
			order = append(order, k)
		}
	}
	slices.SortStableFunc(order, func(x, y int) int {
		return cmp.Compare(b.v.Speed(t.j, b.kinds[y].GPU, t.tasks), b.v.Speed(t.j, b.kinds[x].GPU, t.tasks))
	})
	wait := b.wait
	b.wait = max(wait, t.leaves)
	t.accepted = true
	for _, replan := range []bool{b.wait > wait && !b.allCovered(t), true} {
		for _, k := range order {
			b.sizeFor(t, k)
			if int64(t.due)*int64(b.lease) < t.wall {
				continue
			}
			free, leases := b.books()
			if !replan && b.latest(t) || replan && b.pack() {
				return
			}
			b.restore(free, leases)
		}
	}
	t.accepted, b.wait = false, wait
}

// books copies the bookings.
func (b *leaseBoard) books() (free, leases [][]int) {
	for k := range b.free {
		free = append(free, slices.Clone(b.free[k]))
	}
	for i := range b.list {
		leases = append(leases, slices.Clone(b.list[i].leases))
	}
	return free, leases
}

func (b *leaseBoard) restore(free, leases [][]int) {
	b.free = free
	for i := range b.list {
		b.list[i].leases = leases[i]
	}
}

// hasten gives accepted jobs, or only those that run, the lease that begins in place of their
// latest one where there is room. Leases as late as possible have gaps: a job that ran only in them
// would stop and start many times.
func (b *leaseBoard) hasten() {
	if !b.eager && !b.lasting {
		return
	}
	list := b.kept()
	slices.SortStableFunc(list, byDue)
	for _, t := range list {
		if b.lasting && !t.j.Running() {
			continue
		}
		n := len(t.leases)
		if b.take(t, 0); len(t.leases) == n {
			continue
		}
		for _, l := range t.leases {
			b.free[t.kind][l] += t.room
		}
		for n := len(t.leases) - 1; n > 0 && b.covers(t, t.leases[:n]); n-- {
			t.leases = t.leases[:n]
		}
		for _, l := range t.leases {
			b.free[t.kind][l] -= t.room
		}
	}
}

// leased reports whether the job has the current lease.
func (t *booking) leased() bool { return len(t.leases) > 0 && t.leases[0] == 0 }

// service is a job's remaining run time times its GPUs, in GPU-milliseconds.
func (t *booking) service() int64 {
	return min(t.left/1e6, chronusPlace/int64(max(1, t.gpus))-1) * int64(max(1, t.gpus))
}

// turns chooses the jobs that run on what the leases leave: those that would lose their work go on,
// then the least work first, accepted jobs last.
func (b *leaseBoard) turns() {
	free := make([]int, len(b.kinds))
	for k := range b.kinds {
		free[k] = b.kinds[k].GPUs
	}
	var order []*booking
	for i := range b.list {
		switch t := &b.list[i]; {
		case t.late:
		case t.leased():
			free[t.kind] -= t.gpus
		case t.j.Spec().Tier == cluster.Critical:
			if k := kindOf(b.kinds, t.j.GPU()); k >= 0 {
				free[k] -= t.gpus
			}
		default:
			order = append(order, t)
		}
	}
	slices.SortStableFunc(order, func(x, y *booking) int {
		return cmp.Or(-compareBool(x.stays(), y.stays()), cmp.Compare(x.j.Spec().Tier, y.j.Spec().Tier),
			compareBool(x.accepted, y.accepted),
			cmp.Compare(x.service(), y.service()), cmp.Compare(x.j.Spec().Submit, y.j.Spec().Submit))
	})
	for _, t := range order {
		best, most := -1, int64(0)
		for k := range b.kinds {
			if t.gpus > free[k] || t.accepted && k != t.kind || t.j.GPU() != "" && b.kinds[k].GPU != t.j.GPU() ||
				!t.j.Accepts(b.kinds[k].GPU) {
				continue
			}
			if s := b.v.Speed(t.j, b.kinds[k].GPU, t.tasks); s > most {
				best, most = k, s
			}
		}
		if best >= 0 {
			t.turn = true
			free[best] -= t.gpus
		}
	}
}

// stays reports whether a job keeps running as long as no lease needs its GPUs: it might never end
// if it lost its work each time.
func (t *booking) stays() bool { return t.j.Running() && t.j.Loses() }

func compareBool(a, b bool) int {
	switch {
	case a == b:
		return 0
	case b:
		return -1
	}
	return 1
}

// plan makes targets of the board.
func (b *leaseBoard) plan() sched.Plan {
	p := sched.Plan{Next: cluster.Never, Memo: []int64{b.number}, Targets: b.v.Targets(len(b.list))}
	for i := range b.list {
		t := &b.list[i]
		class, place := int64(chronusLeft), t.service()
		switch {
		case t.leased():
			class, place = int64(t.class), int64(t.j.Spec().Deadline)/int64(time.Millisecond)%chronusPlace
		case t.turn:
			class = chronusTurn
		}
		goal := sched.Target{Rank: class*chronusPlace + place, Tasks: t.tasks, Least: t.tasks, Idle: t.late,
			Memo: []int64{-1}}
		if t.turn {
			goal.Memo[0] = b.number
		}
		switch {
		case t.accepted:
			goal.Deadline, goal.GPU = sched.DeadlineAccepted, b.kinds[t.kind].GPU
			goal.Memo = append(goal.Memo, b.stretches(t)...)
		case t.j.Spec().Deadline > 0:
			goal.Deadline = sched.DeadlineDeclined
		}
		if t.accepted || !t.j.Running() {
			p.Next = b.end
		}
		p.Targets[i] = goal
	}
	return p
}

// stretches encodes the job's leases as intervals: the first number, and the one after the last.
func (b *leaseBoard) stretches(t *booking) (memo []int64) {
	for _, l := range t.leases {
		n := b.number + int64(l)
		if len(memo) > 0 && memo[len(memo)-1] == n {
			memo[len(memo)-1]++
		} else {
			memo = append(memo, n, n+1)
		}
	}
	return memo
}
