package engine

import (
	"cmp"
	"fmt"
	"math"
	"reflect"
	"slices"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/engine/inventory"
	"github.com/muster-gpu/muster/engine/job"
	"github.com/muster-gpu/muster/engine/pending"
	"github.com/muster-gpu/muster/engine/sched"
)

// Restore builds an engine that goes on from a snapshot. The configuration may
// be another than the one under which the snapshot was written: what does not
// depend on the policy is kept, keys are computed again under another policy,
// jobs whose devices are no longer there wait again, and the queues are those
// of the configuration. The snapshot can be used again.
func Restore(cfg Config, s *Snapshot) (*Engine, error) {
	if s.Next < 0 || s.Now < 0 {
		return nil, fmt.Errorf("snapshot: number %d or time %d is negative", s.Next, s.Now)
	}
	e, err := build(cfg, s)
	if err != nil {
		return nil, err
	}
	e.hash, e.elastic = s.Hash, s.Elastic
	e.restoreChanged(s)
	e.speeds.Restore(s.Pairs, s.Paces)
	for _, u := range s.Users {
		e.limits.User(u)
	}
	if err = e.past.Restore(s.Past); err != nil {
		return nil, err
	}
	e.shapes.NameAll(s.Sets)
	e.jobs = make([]*job.State, s.Next)
	for i := range s.Jobs {
		if err := e.restoreJob(&s.Jobs[i]); err != nil {
			return nil, err
		}
	}
	same := s.Policy == e.cfg.Policy.Name()
	for i := range s.Jobs {
		if r := &s.Jobs[i]; same && e.plan.Active() && r.Target != nil {
			e.plan.RestoreTarget(e.jobs[r.Spec.ID], r.Target)
		}
	}
	queues, removed := e.cfg.Spec.Queues, s.Closed
	if !reflect.DeepEqual(s.Queues, queues) {
		removed = e.limits.Removed(e.jobs)
	}
	if len(removed) > 0 {
		e.mustInitQueues(queues, removed)
	}
	e.restoreNodes(s)
	e.rekeyed, e.rerunAt = s.Rekeyed, s.Rerun
	if same {
		e.limits.RestoreUsage(s.Usage, s.Budgets)
		e.limits.RestoreRanks(s.Ranks, s.Ranked)
	}
	for i := range s.Arrays {
		e.deps.AwaitArray(s.Arrays[i].ID, s.Arrays[i].Waiting...)
	}
	e.unlistedElements(s)
	for _, guests := range []bool{false, true} { // hosts come before their guests
		for i := range s.Jobs {
			if r := &s.Jobs[i]; (r.GuestOf != 0) == guests && !e.resume(r, same) {
				same = false
			}
		}
	}
	for _, h := range e.jobs {
		if h != nil && h.State != job.Done && len(h.Guests) > 0 { // those are none any more whose devices are gone
			h.Guests = slices.DeleteFunc(h.Guests, func(id cluster.JobID) bool {
				g := e.job(id)
				return g == nil || !g.Hosted()
			})
		}
	}
	e.awaitPromotions()
	e.limits.RestoreUsage(s.Usage, s.Budgets)
	e.resv.Restore(s.Advance)
	e.fresh, e.seenAt = s.Fresh || !same, e.epoch
	if s.Policy == e.cfg.Policy.Name() {
		e.plan.Restore(s.Planned)
	} else {
		e.plan.Restore(nil)
	}
	e.rounds.Last = s.Looked
	e.links.Restore(s.Traffic, e.jobs)
	e.lending.Replace(s.Lenders, e.jobs)
	e.actions = nil
	e.untouch()
	return e, nil
}

// unlistedElements lets elements wait for their arrays that no list names.
func (e *Engine) unlistedElements(s *Snapshot) {
	listed := map[cluster.JobID]bool{} // looked up only
	for i := range s.Arrays {
		for _, id := range s.Arrays[i].Waiting {
			listed[id] = true
		}
	}
	for i := range s.Jobs {
		r := &s.Jobs[i]
		if r.State == job.Pending && r.Parked == job.ParkedArray && r.Spec.Array != nil && !listed[r.Spec.ID] {
			e.deps.AwaitArray(r.Spec.Array.ID, r.Spec.ID)
		}
	}
}

// joined returns the nodes that joined after the configured ones, as they were
// when they were whole.
func (s *Snapshot) joined(configured []cluster.Node) (list []cluster.Node) {
	known := map[string]bool{} // looked up only
	for i := range configured {
		known[configured[i].Name] = true
	}
	for _, n := range s.Nodes {
		if !known[n.Name] {
			n.State, n.Bad = cluster.Up, 0
			list = append(list, n)
		}
	}
	return list
}

// restoreNodes sets the nodes' states. It comes after the queues' guarantees
// were compared with what the cluster has when it is whole.
func (e *Engine) restoreNodes(s *Snapshot) {
	drained, given := nameSet(s.Drained), nameSet(s.Given)
	for i := range s.Nodes {
		n := &s.Nodes[i]
		id := e.nodeID[n.Name]
		ns := &e.st.Nodes()[id]
		state := n.State
		if given[n.Name] && !ns.Lent() && !drained[n.Name] && state == cluster.Draining {
			state = cluster.Up // it was of a loan that is no more
		}
		e.st.SetAsleep(id, n.Asleep)
		e.st.SetDrained(id, drained[n.Name])
		e.st.SetGiven(id, given[n.Name] && ns.Lent())
		e.st.Resume(id, n.Bad)
		e.st.SetState(id, state)
	}
	e.capacityChanged()
}

// nameSet is for looking names up.
func nameSet(names []string) map[string]bool {
	set := make(map[string]bool, len(names))
	for _, name := range names {
		set[name] = true
	}
	return set
}

// restoreJob makes the job known, so that others can refer to it.
func (e *Engine) restoreJob(r *job.Record) error {
	if r.Spec == nil || r.Spec.ID < 0 || int(r.Spec.ID) >= len(e.jobs) || e.jobs[r.Spec.ID] != nil {
		return fmt.Errorf("snapshot: a job without a number of its own below %d", len(e.jobs))
	}
	j := &job.State{
		Spec: r.Spec, Facts: r.Facts, Weight: cmp.Or(r.Weight, cluster.Whole), Promise: cluster.Never, Group: -1,
		User: e.limits.User(r.Spec.User), Milli: r.Spec.GPUMilli(), Devices: int32(r.Spec.GPUs()), Tenure: &e.noTenure,
	}
	if _, untouched := r.Untouched(); !untouched {
		j.Tenure = e.tenureOf(r)
	}
	j.Eligible = false // until it is in line
	e.jobs[r.Spec.ID] = j
	if j.State == job.Done {
		return nil
	}
	e.live++
	if text := cmp.Or(job.CheckTasks(r.Spec), e.admission.CheckNodes(r.Spec)); text != "" {
		return &JobError{r.Spec.ID, text}
	}
	j.Shape = e.admission.ShapeOf(r.Spec)
	j.Base = j.Shape
	e.plan.Suit(j)
	e.plan.Include(j)
	return nil
}

// tenureOf is what a job was given according to its record.
func (e *Engine) tenureOf(r *job.Record) *job.Tenure {
	t := &job.Tenure{Account: r.Account.Copied(), Holdings: r.Holdings.CopiedFor(r.Spec.ID)}
	if !e.plan.Active() {
		t.Served = nil
	}
	return t
}

// resume puts a job where it was, or reports that it cannot. All jobs are
// known by now.
func (e *Engine) resume(r *job.Record, same bool) bool {
	j := e.jobs[r.Spec.ID]
	if j.State == job.Done {
		return true
	}
	q, err := e.limits.Of(j.Spec)
	if err != nil && j.State != job.Pending {
		q = e.limits.Remains(j.Spec.Queue)
	}
	j.Queue = int32(q)
	s := e.shapes.At(j.Shape)
	j.Milli, j.Tasks, j.Devices = e.w.AskedMilli(j), s.Max, int32(j.Spec.GPUs())
	e.deps.Rejoin(j, r.Singles)
	if !inventory.Valid(&e.st, j.Home, false) {
		j.Home = nil
	}
	if frozen, work := j.Frozen, j.Asleep; frozen != nil {
		j.Frozen, j.Asleep = nil, 0
		if inventory.Valid(&e.st, frozen, false) {
			e.freeze(j, frozen, work)
		}
	} else if j.Home != nil {
		e.freeze(j, j.Home, j.Done)
	}
	if j.Frozen != nil && !e.stops.Keeps(j.Frozen) { // GPUs were shared in another way when it was suspended
		e.loseMemory(j)
		same = false
	}
	switch {
	case j.State == job.Pending && err != nil:
		j.Queue = int32(e.limits.Last())
		e.finish(j, job.Impossible)
		return false
	case j.State == job.Pending && !inventory.Valid(&e.st, r.Home, false):
		e.resumeLost(j)
		return false
	case j.State == job.Pending:
		e.resumePending(j, r, same)
		if r.Promise != 0 && e.mode == sched.Conservative && inventory.Valid(&e.st, r.Plan, false) {
			j.Promise, j.Plan = r.Promise, slices.Clone(r.Plan)
		}
	case !inventory.Valid(&e.st, r.Allocs, j.State != job.Stopping):
		e.resumeLost(j)
		return false
	default:
		e.resumeHolding(j, r, same)
	}
	return same
}

func (e *Engine) resumePending(j *job.State, r *job.Record, same bool) {
	if !r.Eligible {
		switch j.Parked {
		case job.ParkedBegin, job.NotParked:
			e.admit(j)
		case job.ParkedDependency, job.ParkedSingleton:
			e.dependencies(j) // sets the timers of delays again
		case job.ParkedPlan:
			e.boundWaitAgain(j)
		}
		return
	}
	e.lineUp(j)
	if same && j.Key.Key != r.Key {
		e.line.SetKey(j, r.Key)
	}
	e.boundWaitAgain(j)
}

// boundWaitAgain sets the time again at which the job will have waited too long.
func (e *Engine) boundWaitAgain(j *job.State) {
	if e.cfg.Starvation > 0 && !j.Promoted && !e.w.Divided(j) && j.StarvingSince != cluster.Never {
		e.timers.Set(j.StarvingSince.Add(e.cfg.Starvation), pending.Starving, j)
	}
}

// resumeLost makes a job whose devices are gone wait again.
func (e *Engine) resumeLost(j *job.State) {
	for _, v := range e.jobs {
		if v != nil && j.State == job.Placed { // no job's departure is for this one any more
			e.leavers.StopWaiting(j, v)
		}
	}
	j.State, j.Since, j.StarvingSince, j.Rate, j.Demoted = job.Pending, e.w.Now, cluster.Never, 0, false
	j.Resizing, j.Packed, j.Waits, j.GuestOf = false, false, 0, 0
	j.Done = j.Saved
	e.freeze(j, nil, 0)
	j.Holdings = job.Holdings{Served: j.Served}
	e.admit(j)
}

// resumeHolding books what a job holds, or what it still has to leave.
func (e *Engine) resumeHolding(j *job.State, r *job.Record, same bool) {
	s := e.shapes.At(j.Shape)
	j.Tasks, j.Devices, j.Milli = r.Tasks, int32(s.Devices(int(r.Tasks))), e.heldMilli(j)
	leaves := j.Leaving
	if j.State == job.Stopping {
		leaves = j.GoingAllocs()
	}
	for i := range leaves {
		e.leavers.Leaves(leaves[i].Node, j.Spec.ID)
	}
	if j.State == job.Stopping {
		if j.How == job.Suspend && !e.stops.Keeps(j.Allocs) {
			j.How, j.ResidentOnGPU = e.stops.How(j), false
		}
		dest := j.Dest
		if j.Dest = nil; dest != nil && inventory.Valid(&e.st, dest, true) {
			e.reserveDest(j, dest)
			e.limits.Charge(j, 1)
			e.st.Commit()
		}
		return
	}
	for i := range j.Allocs {
		e.st.Take(&j.Allocs[i])
	}
	e.reweigh(j)
	e.limits.Charge(j, 1)
	e.st.Commit()
	j.Waited = j.State == job.Placed
	e.running.Add(j)
	if same {
		e.running.Restore(j, r.Key, r.EndKey)
	}
	if j.State == job.Placed {
		e.boundWaitAgain(j) // its placement may be taken back
		return
	}
	if j.LimitAt != cluster.Never && j.LimitAt != 0 {
		e.timers.Set(j.LimitAt, pending.Limit, j)
	}
	if j.Slow != 0 {
		e.timers.Set(j.Slow.Add(slowFor), pending.Slow, j)
	}
	if safe := j.Started.Add(e.cfg.MinRuntime); e.cfg.MinRuntime > 0 && safe > e.w.Now {
		e.timers.Set(safe, pending.Safe, j)
	}
	e.watchMovable(j)
	j.NextKey = math.MinInt64
	e.running.Watch(j)
}
