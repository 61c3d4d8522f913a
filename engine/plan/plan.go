// Package plan keeps the plan in force of a policy that plans: when it plans next, which jobs it is shown and which
// wait in pools, and what the targets that it gave say of jobs as they are. Which job starts, stops or shrinks for its
// target is the engine's decision. Under another policy there is no plan.
package plan

import (
	"fmt"
	"slices"
	"time"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/engine/admission"
	"github.com/muster-gpu/muster/engine/job"
	"github.com/muster-gpu/muster/engine/order"
	"github.com/muster-gpu/muster/engine/sched"
)

// Book is the plan in force.
type Book struct {
	sched.PlanMemory
	sched.Pools
	// Dirty: which jobs could run, or where, has changed since it was made.
	Dirty bool
	// Aimed is the jobs with devices that got another target by it.
	Aimed []*job.State

	world   *sched.World
	admit   *admission.Checker
	jobs    func() []*job.State
	touch   func(j *job.State)
	planner sched.Planner // nil: the policy does not plan
	chooser sched.Chooser // nil: plans are about all jobs
	drawer  sched.Drawer  // nil: the policy is shown all of them

	next    cluster.Time
	moves   []cluster.JobID // whose targets say Move
	moving  bool            // there was a target that says Move
	changed bool            // a node is another: some jobs may not be able to follow their targets any more
	joining bool            // it puts a job beside another, or on an instance
	live    []cluster.JobID // jobs that may be planned, by number; those that are done are dropped now and then
	planned []*job.State    // jobs that have targets in it
	shown   []sched.JobView // memory for the next plan
	pools   map[poolKey]int32
	pooled  int // jobs in pools
}

// New makes a book without a plan. Admit finds the shapes that targets ask for, jobs lists the jobs by number, and
// touch notes that a job's record changes.
func New(w *sched.World, policy sched.Policy, admit *admission.Checker, jobs func() []*job.State,
	touch func(j *job.State)) Book {
	b := Book{world: w, admit: admit, jobs: jobs, touch: touch, next: cluster.Never, pools: map[poolKey]int32{}}
	b.planner, _ = policy.(sched.Planner)
	b.chooser, _ = policy.(sched.Chooser)
	b.drawer, _ = policy.(sched.Drawer)
	return b
}

// Active reports whether the policy plans.
func (b *Book) Active() bool { return b.planner != nil }

// Policy is the name of the policy that plans.
func (b *Book) Policy() string { return b.planner.Name() }

// Due reports whether it is time to plan.
func (b *Book) Due() bool {
	if b.planner == nil {
		return false
	}
	if r := cluster.Time(b.world.Traits.Round); r > 0 && b.world.Now/r == b.Last/r {
		return false
	}
	return b.Dirty || b.world.Now >= b.next
}

// Wake is when it is time to plan next.
func (b *Book) Wake() cluster.Time {
	if b.planner == nil {
		return cluster.Never
	}
	at, r := b.next, cluster.Time(b.world.Traits.Round)
	if b.Dirty {
		at = b.world.Now
	}
	if at == cluster.Never || r == 0 {
		return at
	}
	at = max(at, (b.Last/r+1)*r)
	return (at + r - 1) / r * r
}

// JobsChanged notes that the jobs that could run have changed.
func (b *Book) JobsChanged() { b.Dirty = b.planner != nil }

// NodesChanged notes that a node is another than it was, so that some jobs may not be able to follow their targets.
func (b *Book) NodesChanged() { b.changed = b.planner != nil }

// Renew takes out of targets what jobs can never follow, if a node has become another since it was asked last, and
// calls changed for each job that has another target by that.
func (b *Book) Renew(changed func(j *job.State)) {
	if !b.changed {
		return
	}
	b.changed = false
	for _, j := range b.jobs() {
		if j == nil || j.State == job.Done || j.Target == nil {
			continue
		}
		was := j.Target.Copied()
		if b.RenewTarget(j); !j.Target.Same(was) {
			b.touch(j)
			changed(j)
		}
	}
}

// Make asks the policy for targets; ok: there are jobs to plan. Both lists are valid until the next plan.
func (b *Book) Make() (jobs []*job.State, targets []job.Target, ok bool) {
	shown, planned, live := b.shown[:0], b.planned[:0], b.live[:0]
	for _, id := range b.live {
		j := b.jobs()[id]
		if j.InPlan = j.State != job.Done && !b.leaves(j) && (j.State != job.Pending || b.Chooses(j)); !j.InPlan {
			continue
		}
		if b.pool(j) {
			j.InPlan = false
			continue
		}
		live = append(live, id)
		if j.Plans() {
			shown, planned = append(shown, b.world.Job(j)), append(planned, j)
		}
	}
	b.live, b.shown, b.planned, b.Drawn, b.Dirty = live, shown, planned, b.Drawn[:0], false
	if len(shown) == 0 && b.pooled == 0 {
		b.Last, b.next = b.world.Now, cluster.Never
		return nil, nil, false
	}
	p := b.planner.Plan(b.world.View(), shown)
	jobs = append(planned, b.Drawn...)
	b.planned = jobs
	if len(p.Targets) != len(jobs) {
		panic(fmt.Sprintf("plan: policy %s has %d targets for %d jobs", b.planner.Name(), len(p.Targets), len(jobs)))
	}
	b.Last, b.next, b.Memo = b.world.Now, p.Next, append(b.Memo[:0], p.Memo...)
	for i, j := range b.Drawn { // those that were drawn and get nothing keep their places in their pools
		if !p.Targets[len(shown)+i].Idle {
			b.Unpool(j)
		}
	}
	b.joining, b.Aimed = false, b.Aimed[:0]
	for i := range jobs {
		t := &p.Targets[i]
		b.joining, b.moving = b.joining || t.Beside > 0 || t.Slice != nil, b.moving || t.Move
	}
	return jobs, p.Targets, true
}

// Joining lists the jobs with targets if the plan puts one of them beside another, or on an instance.
func (b *Book) Joining() []*job.State {
	if !b.joining {
		return nil
	}
	return b.planned
}

// Moves lists the jobs that are to move to others' devices, as of ListMoves.
func (b *Book) Moves() []cluster.JobID { return b.moves }

// ListMoves lists the jobs that are to move to others' devices.
func (b *Book) ListMoves() {
	b.moves = b.moves[:0]
	if !b.moving {
		return
	}
	for _, id := range b.live {
		if j := b.jobs()[id]; j.State != job.Done && j.Target != nil && j.Target.Move {
			b.moves = append(b.moves, id)
		}
	}
}

// Chooses reports whether plans are about a job while it waits.
func (b *Book) Chooses(j *job.State) bool {
	return !b.leaves(j) && (b.chooser == nil || b.chooser.Chooses(j.Spec))
}

// leaves reports whether plans that only divide GPUs (Traits.OnlyDivides) say nothing of the
// job, because none that could be divided suits it. If an older plan, on another cluster,
// left it idle or gave it an instance, a new plan has to replace that.
func (b *Book) leaves(j *job.State) bool {
	return j.Whole && (j.Target == nil || !j.Target.Idle && j.Target.Slice == nil)
}

// Suit finds out whether plans that only divide GPUs are about a job, by the nodes that there are.
func (b *Book) Suit(j *job.State) { j.Whole = b.indivisible(j) }

// indivisible reports whether plans only divide GPUs, and none that can be divided suits the job.
func (b *Book) indivisible(j *job.State) bool {
	if !b.world.Traits.OnlyDivides {
		return false
	}
	suits := &b.world.Shapes.At(j.Base).Suits[0]
	for c := range b.world.Store.Classes() {
		if suits.Has(int32(c)) && b.world.Store.Classes()[c].Model().MIG() {
			return false
		}
	}
	return true
}

// Reconsider has plans be about jobs that they left, where a node has come that may suit them.
func (b *Book) Reconsider() {
	if !b.world.Traits.OnlyDivides {
		return
	}
	for _, j := range b.jobs() {
		if j == nil || j.State == job.Done || j.Pooled {
			continue
		}
		if b.Suit(j); b.Chooses(j) {
			b.Include(j)
		}
	}
}

// Include has plans be about a job from now on.
func (b *Book) Include(j *job.State) {
	if b.planner == nil || j.InPlan {
		return
	}
	j.InPlan = true
	i, _ := slices.BinarySearch(b.live, j.Spec.ID)
	b.live = slices.Insert(b.live, i, j.Spec.ID)
}

// The cost of a plan must not grow with the backlog. Of the waiting jobs that are alike
// to the policy, most get nothing as long as those before them get nothing. They wait
// in pools, ordered once, and a plan looks at the first of each.

// poolKey is what the jobs of one pool have in common.
type poolKey struct {
	shape int32
	class int64
}

// pool puts a job in a pool, if it is one that waits for a plan to give it something.
func (b *Book) pool(j *job.State) bool {
	now := b.world.Now
	if b.drawer == nil || j.State != job.Pending || now < j.Poolless || j.Parked != job.ParkedPlan ||
		j.Home != nil || j.Frozen != nil || j.Target != nil && !j.Target.Idle {
		return false
	}
	class, at, ok := b.drawer.Pool(b.world.View(), b.world.Job(j))
	if !ok {
		j.Poolless = now.Add(time.Minute) // to be shown meanwhile changes no plan
		return false
	}
	k := poolKey{j.Base, class}
	id, ok := b.pools[k]
	if !ok {
		id = int32(len(b.Lists))
		b.Lists = append(b.Lists, order.List{})
		b.pools[k] = id
	}
	j.Pool, j.Pooled = id, true
	j.Key = order.Item{Key: at, Submit: j.Spec.Submit, ID: int32(j.Spec.ID)}
	b.Lists[id].Insert(j.Key)
	b.pooled++
	if t := b.drawer.Nothing(b.world.Job(j)); !t.Same(j.Target) {
		b.touch(j)
		b.SetTarget(j, &t)
	}
	return true
}

// Unpool takes a job out of its pool, if it is in one: plans are shown it from now on.
func (b *Book) Unpool(j *job.State) {
	if !j.Pooled {
		return
	}
	if !b.Lists[j.Pool].Remove(j.Key) {
		panic("plan: a job is missing from its pool")
	}
	b.pooled--
	j.Pooled = false
	b.Include(j)
}

// ShowAll has plans be shown all jobs from now on (tests).
func (b *Book) ShowAll() {
	b.drawer = nil
	for _, j := range b.jobs() {
		if j != nil {
			b.Unpool(j)
		}
	}
}

// Record is where a policy that plans is.
type Record struct {
	Last  cluster.Time `json:"last"`
	Next  cluster.Time `json:"next"`
	Dirty bool         `json:"dirty,omitempty"` // which jobs could run has changed since
	Memo  []int64      `json:"memo,omitempty"`
}

// Record writes down where the policy is; nil: it does not plan.
func (b *Book) Record() *Record {
	if b.planner == nil {
		return nil
	}
	return &Record{Last: b.Last, Next: b.next, Dirty: b.Dirty, Memo: slices.Clone(b.Memo)}
}

// Restore sets when the policy plans next: as it was, or (nil: another policy planned) at once, or at its next round.
func (b *Book) Restore(r *Record) {
	b.Last, b.next, b.Dirty, b.Memo, b.changed = 0, cluster.Never, b.planner != nil, nil, false
	b.ListMoves()
	if b.planner != nil && r != nil {
		b.Last, b.next, b.Dirty, b.Memo = r.Last, r.Next, r.Dirty, slices.Clone(r.Memo)
	}
}

// RestoreTarget gives a job the target that it had.
func (b *Book) RestoreTarget(j *job.State, t *job.Target) {
	if j.Target = t; j.State != job.Done {
		b.RenewTarget(j)
		b.moving = b.moving || t.Move
	}
}

// Check checks that a job in a pool waits for a plan, at its place, and that plans are
// about all other jobs that could run.
func (b *Book) Check() error {
	n := 0
	for _, j := range b.jobs() {
		if j == nil {
			continue
		}
		switch {
		case !j.Pooled:
			if b.drawer != nil && j.Plans() && !j.InPlan {
				return fmt.Errorf("job %d is neither in a pool nor shown to plans", j.Spec.ID)
			}
			continue
		case j.State != job.Pending || j.Parked != job.ParkedPlan || !j.Idle() || j.InPlan:
			return fmt.Errorf("job %d is in a pool and does not wait there: state %d, parked %d, idle %v, shown %v",
				j.Spec.ID, j.State, j.Parked, j.Idle(), j.InPlan)
		}
		class, at, ok := b.drawer.Pool(b.world.View(), b.world.Job(j))
		if id, known := b.pools[poolKey{j.Base, class}]; !ok || !known || id != j.Pool || at != j.Key.Key {
			return fmt.Errorf("job %d is in pool %d at %v instead of %d at %v", j.Spec.ID, j.Pool, j.Key.Key, id, at)
		}
		n++
	}
	for i := range b.Lists {
		n -= b.Lists[i].Len()
	}
	if n != 0 {
		return fmt.Errorf("%d jobs more are in pools than pools have", n)
	}
	return nil
}
