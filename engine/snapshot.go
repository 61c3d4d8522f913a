package engine

import (
	"slices"
	"time"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/engine/inventory"
	"github.com/muster-gpu/muster/engine/order"
	"github.com/muster-gpu/muster/quota"
)

// Snapshot is everything that an engine knows and that its configuration does
// not say: plain facts, so that another version of this program, or another
// policy, can go on from them. An engine restored from it decides as the one
// that wrote it would have.
type Snapshot struct {
	Now     cluster.Time    `json:"now"`
	Hash    uint64          `json:"hash,string"`
	Policy  string          `json:"policy"` // under which the keys hold
	Next    cluster.JobID   `json:"next"`   // the number of the next new job
	Nodes   []cluster.Node  `json:"nodes"`
	Drained []string        `json:"drained,omitempty"` // nodes that a person drained, whether they are down or not
	Given   []string        `json:"given,omitempty"`   // nodes that are given back to who lends them
	Queues  []cluster.Queue `json:"queues,omitempty"`  // as they were last set
	Closed  []cluster.Queue `json:"closed,omitempty"`  // removed, but jobs of theirs still run
	Users   []string        `json:"users,omitempty"`   // in the order in which they were first seen
	Jobs    []JobRecord     `json:"jobs,omitempty"`    // by number
	Arrays  []ArrayRecord   `json:"arrays,omitempty"`
	Usage   []UsageRecord   `json:"usage,omitempty"`
	Budgets []BudgetRecord  `json:"budgets,omitempty"`
	Advance []AdvanceRecord `json:"advance,omitempty"`
	Ranks   []int           `json:"ranks,omitempty"` // fair-share ranks in force, by entry of Usage
	Ranked  int             `json:"ranked,omitempty"`
	Rekeyed cluster.Time    `json:"rekeyed,omitempty"`
	Rerun   cluster.Time    `json:"rerun,omitempty"`
	Elastic int             `json:"elastic,omitempty"`
	Past    *PastRecord     `json:"past,omitempty"`
	Fresh   bool            `json:"fresh,omitempty"` // something is to be looked at in the next step
	Planned *PlanRecord     `json:"planned,omitempty"`
	Pairs   []PairRecord    `json:"pairs,omitempty"`  // what jobs in shares of one GPU were measured to do to each other
	Paces   []PaceRecord    `json:"paces,omitempty"`  // how fast jobs were measured to go
	Looked  cluster.Time    `json:"looked,omitempty"` // the last round in which moves were looked for

	Resized []string          `json:"resized,omitempty"` // nodes of which Nodes says the size, whatever the configuration says
	Sets    []cluster.NodeSet `json:"sets,omitempty"`    // of nodes, that jobs name
}

// PlanRecord is where a policy that plans is.
type PlanRecord struct {
	Last  cluster.Time `json:"last"`
	Next  cluster.Time `json:"next"`
	Dirty bool         `json:"dirty,omitempty"` // who could run has changed since
	Memo  []int64      `json:"memo,omitempty"`
}

// JobRecord is what the engine knows of one job. Attained, Ran and Done hold
// up to Acc; what the job holds since then counts on.
type JobRecord struct {
	Spec        *cluster.Job      `json:"spec"`
	State       State             `json:"state"`
	Reason      StopReason        `json:"reason,omitempty"`
	Parked      Parked            `json:"parked,omitempty"`
	Eligible    bool              `json:"eligible,omitempty"`
	InArray     bool              `json:"in_array,omitempty"`
	Promoted    bool              `json:"promoted,omitempty"`
	Demoted     bool              `json:"demoted,omitempty"` // while it runs: it counts as best-effort
	Resizing    bool              `json:"resizing,omitempty"`
	How         How               `json:"how,omitempty"`
	Allocs      []inventory.Alloc `json:"allocs,omitempty"`
	Home        []inventory.Alloc `json:"home,omitempty"`
	Frozen      []inventory.Alloc `json:"frozen,omitempty"` // with Asleep, where it is not Home
	Asleep      time.Duration     `json:"asleep,omitempty"`
	Warm        bool              `json:"warm,omitempty"` // it was suspended while it computed; while it has devices: and went on in place
	Leaving     []inventory.Alloc `json:"leaving,omitempty"`
	Dest        []inventory.Alloc `json:"dest,omitempty"`  // while it stops to be moved: where it goes
	Moved       []cluster.Time    `json:"moved,omitempty"` // when it was, not long ago
	Waiters     []cluster.JobID   `json:"waiters,omitempty"`
	Claims      []Claim           `json:"claims,omitempty"` // what the waiters count on of its CPU and RAM
	Beside      int32             `json:"beside,omitempty"` // 1 + the job whose guest it is
	Guests      []cluster.JobID   `json:"guests,omitempty"` // its own, the first to come first
	Packed      bool              `json:"packed,omitempty"` // in this run others were on its devices, or it on theirs
	Waits       int32             `json:"waits,omitempty"`
	Tasks       int32             `json:"tasks,omitempty"`
	Fails       int32             `json:"fails,omitempty"`
	Preemptions int32             `json:"preemptions,omitempty"`
	Since       cluster.Time      `json:"since,omitempty"`
	Lined       cluster.Time      `json:"lined,omitempty"`
	Hungry      cluster.Time      `json:"hungry,omitempty"`
	Started     cluster.Time      `json:"started,omitempty"`
	FirstStart  cluster.Time      `json:"first_start,omitempty"`
	Ended       cluster.Time      `json:"ended,omitempty"`
	Acc         cluster.Time      `json:"acc,omitempty"`
	Attained    int64             `json:"attained,omitempty"`   // milli-GPU-milliseconds
	Weighted    int64             `json:"weighted,omitempty"`   // ... by the weights of the GPU models, up to the last change
	Unweighted  int64             `json:"unweighted,omitempty"` // ... what of Attained was received up to then
	Weight      int64             `json:"weight,omitempty"`     // ... since then, in thousandths; 0: 1000
	Ran         time.Duration     `json:"ran,omitempty"`
	Done        time.Duration     `json:"done,omitempty"`
	Saved       time.Duration     `json:"saved,omitempty"`
	Deaf        bool              `json:"deaf,omitempty"` // asked for a checkpoint it saves nothing, as its driver found
	Rate        int64             `json:"rate,omitempty"`
	Speed       int64             `json:"speed,omitempty"`
	Memory      cluster.MiB       `json:"memory,omitempty"` // the most that it was measured to use of any of its GPUs
	Solo        int64             `json:"solo,omitempty"`   // ... with nobody else in shares of its GPUs
	Among       []cluster.JobID   `json:"among,omitempty"`  // who computed in shares of its GPUs when its speed was measured last
	Slow        cluster.Time      `json:"slow,omitempty"`   // ... among whom it is slower than it accepts, since then
	LimitAt     cluster.Time      `json:"limit_at,omitempty"`
	Promotion   cluster.Time      `json:"promotion,omitempty"`   // the last one by the policy (Promoter)
	Before      int64             `json:"before,omitempty"`      // ... what of its weighted service was received before
	RanBefore   time.Duration     `json:"ran_before,omitempty"`  // ... and of Ran
	DoneBefore  time.Duration     `json:"done_before,omitempty"` // ... and the useful work that it had then
	Predicted   time.Duration     `json:"predicted,omitempty"`
	Singles     []cluster.JobID   `json:"singles,omitempty"` // a singleton's: the jobs that it waits for
	Promise     cluster.Time      `json:"promise,omitempty"` // conservative backfill: the start that it was promised
	Plan        []inventory.Alloc `json:"plan,omitempty"`    // ... and where
	Target      *Target           `json:"target,omitempty"`  // what the policy's plan gives it
	Served      []Served          `json:"served,omitempty"`  // wall time on devices by GPU model, where a policy plans
	Key         order.Key         `json:"key,omitzero"`
	EndKey      int64             `json:"end_key,omitempty"`
}

// ArrayRecord is the elements of an array that wait for a place, in order.
type ArrayRecord struct {
	ID      cluster.JobID   `json:"id"`
	Waiting []cluster.JobID `json:"waiting"`
}

// UsageRecord is the decayed usage of a user in a queue.
type UsageRecord struct {
	Queue string       `json:"queue"`
	User  string       `json:"user"`
	Since cluster.Time `json:"since"`
	Usage quota.Usage  `json:"usage"`
}

// BudgetRecord is what a queue spent of its GPU-hours.
type BudgetRecord struct {
	Queue string       `json:"queue"`
	Since cluster.Time `json:"since"`
	Spent int64        `json:"spent"` // milli-GPU-milliseconds in period Index
	Index int64        `json:"index"`
}

// AdvanceRecord is where an advance reservation is in its repetitions.
type AdvanceRecord struct {
	Name  string       `json:"name"`
	Start cluster.Time `json:"start"`
	End   cluster.Time `json:"end"`
	Begun bool         `json:"begun,omitempty"`
}

// Snapshot writes down what the engine knows. It changes nothing.
func (e *Engine) Snapshot() Snapshot {
	s := e.Common()
	s.Past, s.Sets = e.Past(), e.nodeSets()
	var arrays []cluster.JobID
	for i := range e.jobs {
		if e.jobs[i] == nil {
			continue
		}
		s.Jobs = append(s.Jobs, *e.Record(cluster.JobID(i)))
		if a := e.jobs[i].spec.Array; a != nil && !slices.Contains(arrays, a.ID) {
			arrays = append(arrays, a.ID)
		}
	}
	for _, id := range arrays {
		if a := e.deps.arrays[id]; a != nil && len(a.waiting) > 0 {
			s.Arrays = append(s.Arrays, ArrayRecord{id, slices.Clone(a.waiting)})
		}
	}
	return s
}

// Common is a snapshot without jobs, arrays and what completed jobs tell (Past),
// for a keeper of records who writes down the jobs that Changed names: elements that wait for a place in
// their array are then restored in the order of their numbers.
func (e *Engine) Common() Snapshot {
	s := Snapshot{Now: e.now, Hash: e.hash, Policy: e.cfg.Policy.Name(), Next: cluster.JobID(len(e.jobs)), Nodes: e.Nodes(),
		Users: slices.Clone(e.users.names), Elastic: e.elastic, Fresh: e.fresh || e.epoch != e.seenAt,
		Ranks: slices.Clone(e.limits.ranks), Ranked: e.limits.ranked, Rekeyed: e.limits.rekeyed, Rerun: e.limits.rerun, Looked: e.defrag.round, Pairs: e.between.records(), Paces: e.paces.records()}
	if p := &e.plans; p.planner != nil {
		s.Planned = &PlanRecord{Last: p.last, Next: p.next, Dirty: p.dirty, Memo: slices.Clone(p.memo)}
	}
	for i := range e.st.Nodes() {
		if n := &e.st.Nodes()[i]; n.Drained() {
			s.Drained = append(s.Drained, n.Spec().Name)
		}
		if n := &e.st.Nodes()[i]; n.GivenBack() {
			s.Given = append(s.Given, n.Spec().Name)
		}
		if n := &e.st.Nodes()[i]; n.Resized() {
			s.Resized = append(s.Resized, n.Spec().Name)
		}
	}
	s.Queues, s.Closed = e.queueSpecs()
	s.Usage, s.Budgets = e.Usage()
	for i := range e.advance {
		a := &e.advance[i]
		s.Advance = append(s.Advance, AdvanceRecord{a.spec.Name, a.start, a.end, a.begun})
	}
	return s
}

// queueSpecs lists the queues as they were last set, parents first, and those
// that are closed.
func (e *Engine) queueSpecs() (open, closed []cluster.Queue) {
	if len(e.cfg.Spec.Queues) == 0 && e.tree.Len() == 2 && !e.limits.byQueue {
		return nil, nil // the one that the tree makes up
	}
	for q := 1; q < e.tree.Len(); q++ {
		open = append(open, *e.tree.Spec(q))
	}
	n := len(open) - e.limits.closed
	return open[:n:n], open[n:]
}

// Usage lists the decayed usage of users and the budgets of queues.
func (e *Engine) Usage() (usage []UsageRecord, budgets []BudgetRecord) {
	for i := range e.limits.users {
		u := &e.limits.users[i]
		usage = append(usage, UsageRecord{e.tree.Name(int(u.queue)), e.users.names[u.user], u.since, u.usage})
	}
	for q := range e.limits.budgets {
		if b := &e.limits.budgets[q]; b.Limit > 0 {
			budgets = append(budgets, BudgetRecord{e.tree.Name(q), e.limits.queues[q].since, b.Spent, b.Index})
		}
	}
	return usage, budgets
}

// Knows reports whether the engine knows a job, which may be done.
func (e *Engine) Knows(id cluster.JobID) bool { return e.job(id) != nil }

// Record writes down what the engine knows of a job; nil: nothing.
func (e *Engine) Record(id cluster.JobID) *JobRecord {
	j := e.job(id)
	if j == nil {
		return nil
	}
	r := &JobRecord{Spec: j.spec, State: j.state, Reason: j.reason, Parked: j.parked, Eligible: j.eligible, InArray: j.inArray,
		Promoted: j.promoted, Demoted: j.demoted, Resizing: j.resizing, How: j.how, Allocs: slices.Clone(j.allocs), Home: slices.Clone(j.home),
		Leaving: slices.Clone(j.leaving), Dest: slices.Clone(j.dest), Moved: slices.Clone(j.moved), Waiters: slices.Clone(j.waiters), Claims: slices.Clone(j.claims), Waits: j.waits, Tasks: j.tasks, Fails: j.fails,
		Preemptions: j.preemptions, Since: j.since, Lined: j.lined, Hungry: j.hungry, Started: j.started, FirstStart: j.firstStart,
		Ended: j.ended, Acc: j.acc, Attained: j.attained, Weighted: j.weighted, Unweighted: j.unweighted, Ran: j.ran, Done: j.done, Saved: j.saved, Deaf: j.deaf, Rate: j.rate, Speed: j.speed, Memory: j.memory, Solo: j.solo, Among: slices.Clone(j.among), Slow: j.slow,
		LimitAt: j.limitAt, Promotion: j.promotion, Before: j.servedBefore, RanBefore: j.ranBefore, DoneBefore: j.doneBefore, Predicted: j.predicted,
		Beside: j.beside, Guests: slices.Clone(j.guests), Packed: j.packed, Warm: j.warm, Target: j.target.copied(), Served: slices.Clone(j.served)}
	if j.weight != cluster.Whole {
		r.Weight = j.weight
	}
	if j.state == Done {
		r.Home, r.Warm = nil, false
	} else if j.frozen != nil && !(slices.Equal(j.frozen, j.home) && j.asleep == j.done) {
		r.Frozen, r.Asleep = slices.Clone(j.frozen), j.asleep
	}
	if j.state == Pending {
		r.Singles = slices.Clone(e.deps.singles[id])
	}
	if e.mode == Conservative && j.state == Pending && j.promise != cluster.Never {
		r.Promise, r.Plan = j.promise, slices.Clone(j.plan)
	}
	switch {
	case j.eligible:
		r.Key = j.key.Key
	case j.state >= Placed && j.state <= Running:
		r.Key, r.EndKey = j.key.Key, j.endKey.Key[0]
	}
	return r
}

// Changed lists the jobs whose records the last step changed, in no order. It
// is valid until the next step.
func (e *Engine) Changed() []cluster.JobID { return e.touched }

// touch notes that a job's record changes.
func (e *Engine) touch(j *jobState) {
	e.noteRank(j)
	if !j.touched {
		j.touched = true
		e.touched = append(double(e.touched), j.spec.ID)
	}
}

// untouch begins a new step.
func (e *Engine) untouch() {
	for _, id := range e.touched {
		e.jobs[id].touched = false
	}
	e.touched = e.touched[:0]
}

// QueueUse is a queue and what its jobs hold, in milli-GPU.
type QueueUse struct {
	Spec cluster.Queue
	Used cluster.Milli
}

// QueueUse lists the queues, parents first.
func (e *Engine) QueueUse() (list []QueueUse) {
	for q := 1; q < e.tree.Len(); q++ {
		list = append(list, QueueUse{*e.tree.Spec(q), e.tree.Used(q)})
	}
	return list
}

// Now is the time of the last step, or the last instant that was looked at.
func (e *Engine) Now() cluster.Time { return e.now }
