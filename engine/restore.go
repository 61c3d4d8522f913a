package engine

import (
	"cmp"
	"fmt"
	"math"
	"reflect"
	"slices"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/engine/inventory"
)

// Restore builds an engine that goes on from a snapshot. The configuration may
// be another than the one under which the snapshot was written: what does not
// depend on the policy is kept, keys are computed anew under another policy,
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
	e.between.restore(s.Pairs)
	e.paces.restore(s.Paces)
	for _, u := range s.Users {
		e.users.id(u)
	}
	if err = e.restorePast(s.Past); err != nil {
		return nil, err
	}
	e.nameAll(s.Sets)
	e.jobs = make([]*jobState, s.Next)
	for i := range s.Jobs {
		if err := e.restoreJob(&s.Jobs[i]); err != nil {
			return nil, err
		}
	}
	e.restoreTargets(s)
	queues, closed := e.cfg.Spec.Queues, s.Closed
	if !reflect.DeepEqual(s.Queues, queues) {
		closed = e.closedQueues(queues)
	}
	queues = e.keepClosed(queues, closed)
	e.restoreNodes(s)
	e.limits.rekeyed, e.limits.rerun = s.Rekeyed, s.Rerun
	same := s.Policy == e.cfg.Policy.Name()
	if same {
		e.restoreUsage(s)
		e.limits.ranks, e.limits.ranked = append([]int(nil), s.Ranks...), s.Ranked
	}
	for i := range s.Arrays {
		a := e.deps.array(s.Arrays[i].ID)
		a.waiting = append(a.waiting, s.Arrays[i].Waiting...)
	}
	e.unlistedElements(s)
	e.settling, e.resuming = true, true
	for _, guests := range []bool{false, true} { // those whom they are beside come first
		for i := range s.Jobs {
			if r := &s.Jobs[i]; (r.Beside != 0) == guests && !e.resume(r, same, queues) {
				same = false
			}
		}
	}
	for i := range s.Jobs {
		r := &s.Jobs[i]
		slices.SortFunc(e.jobs[r.Spec.ID].guests, func(a, b cluster.JobID) int { return slices.Index(r.Guests, a) - slices.Index(r.Guests, b) })
	}
	e.settling, e.resuming = false, false
	e.restoreUsage(s)
	for i := range s.Advance {
		for k := range e.advance {
			if a := &e.advance[k]; a.spec.Name == s.Advance[i].Name && a.spec.Start <= s.Advance[i].Start {
				a.start, a.end, a.begun = s.Advance[i].Start, s.Advance[i].End, s.Advance[i].Begun
			}
		}
	}
	e.fresh, e.seenAt = s.Fresh || !same, e.epoch
	e.restorePlan(s)
	e.defrag.round = s.Looked
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
		if r.State == Pending && r.Parked == ParkedArray && r.Spec.Array != nil && !listed[r.Spec.ID] {
			a := e.deps.array(r.Spec.Array.ID)
			a.waiting = append(a.waiting, r.Spec.ID)
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
	drained, given, resized := nameSet(s.Drained), nameSet(s.Given), nameSet(s.Resized)
	for i := range s.Nodes {
		n := &s.Nodes[i]
		id := e.nodeID[n.Name]
		ns := &e.st.Nodes()[id]
		if resized[n.Name] {
			e.resize(id, n.CPU, n.RAM)
		}
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

// restoreUsage sets what users and queues used so far.
func (e *Engine) restoreUsage(s *Snapshot) {
	for _, u := range s.Usage {
		q, ok := e.treeIndex(u.Queue)
		if !ok || !e.tree.Leaf(q) {
			continue
		}
		a := e.association(int32(q), e.users.id(u.User))
		a.since, a.usage = u.Since, u.Usage
	}
	for _, b := range s.Budgets {
		if q, ok := e.treeIndex(b.Queue); ok {
			e.limits.queues[q].since = b.Since
			e.limits.budgets[q].Spent, e.limits.budgets[q].Index = b.Spent, b.Index
		}
	}
}

// restoreJob makes the job known, so that others can refer to it.
func (e *Engine) restoreJob(r *JobRecord) error {
	if r.Spec == nil || r.Spec.ID < 0 || int(r.Spec.ID) >= len(e.jobs) || e.jobs[r.Spec.ID] != nil {
		return fmt.Errorf("snapshot: a job without a number of its own below %d", len(e.jobs))
	}
	j := &jobState{spec: r.Spec, state: r.State, reason: r.Reason, parked: r.Parked, inArray: r.InArray, promoted: r.Promoted, demoted: r.Demoted,
		how: r.How, fails: r.Fails, preemptions: r.Preemptions, since: r.Since, lined: r.Lined, hungry: r.Hungry, firstStart: r.FirstStart, ended: r.Ended,
		weight: cmp.Or(r.Weight, cluster.Whole), deaf: r.Deaf, predicted: r.Predicted, promise: cluster.Never, group: -1,
		user: e.users.id(r.Spec.User), milli: r.Spec.GPUMilli(), devices: int32(r.Spec.GPUs()), tenure: &e.none}
	if _, untouched := r.Untouched(); !untouched {
		j.tenure = e.tenureOf(r)
	}
	e.jobs[r.Spec.ID] = j
	if j.state == Done {
		j.tasks = r.Tasks
		return nil
	}
	e.live++
	if text := cmp.Or(CheckTasks(r.Spec), e.checkNodes(r.Spec)); text != "" {
		return &JobError{r.Spec.ID, text}
	}
	j.shape = e.shapeOf(r.Spec)
	j.base = j.shape
	j.whole = e.indivisible(j)
	e.include(j)
	return nil
}

// tenureOf is what a job was given according to its record, besides devices.
func (e *Engine) tenureOf(r *JobRecord) *tenure {
	t := &tenure{waiters: slices.Clone(r.Waiters), claims: slices.Clone(r.Claims), moved: slices.Clone(r.Moved), started: r.Started, limitAt: r.LimitAt,
		acc: r.Acc, attained: r.Attained, weighted: r.Weighted, unweighted: r.Unweighted, ran: r.Ran, done: r.Done, saved: r.Saved,
		servedBefore: r.Before, ranBefore: r.RanBefore, doneBefore: r.DoneBefore, promotion: r.Promotion,
		rate: r.Rate, speed: r.Speed, memory: r.Memory, solo: r.Solo, among: slices.Clone(r.Among), slow: r.Slow}
	if e.plans.planner != nil {
		t.served = slices.Clone(r.Served)
	}
	return t
}

// resume puts a job where it was, or reports that it cannot. All jobs are
// known by now.
func (e *Engine) resume(r *JobRecord, same bool, queues []cluster.Queue) bool {
	j := e.jobs[r.Spec.ID]
	if j.state == Done {
		return true
	}
	q, err := e.queueOf(j.spec)
	if err != nil && j.state != Pending {
		q, _ = e.tree.Index(closedName(j.spec.Queue, queues))
	}
	j.queue = int32(q)
	s := e.shapeAt(j.shape)
	j.milli, j.tasks, j.devices = e.askedMilli(j), s.max, int32(j.spec.GPUs())
	e.deps.rejoin(e, j, r.Singles)
	if j.inArray && j.spec.Array != nil {
		e.deps.array(j.spec.Array.ID).active++
	}
	if r.Home != nil && e.validAllocs(r.Home, false) {
		j.home = inName(j, r.Home)
	}
	j.warm = r.Warm
	switch {
	case r.Frozen == nil && j.home != nil:
		e.freeze(j, j.home, j.done)
	case e.validAllocs(r.Frozen, false):
		e.freeze(j, inName(j, r.Frozen), r.Asleep)
	}
	if j.frozen != nil && !e.mayFreeze(j.frozen) { // GPUs were shared in another way when it was suspended
		e.loseMemory(j)
		same = false
	}
	switch {
	case j.state == Pending && err != nil:
		j.queue = int32(e.tree.Len() - 1)
		e.finish(j, Impossible)
		return false
	case j.state == Pending && !e.validAllocs(r.Home, false):
		e.resumeLost(j)
		return false
	case j.state == Pending:
		e.resumePending(j, r, same)
		if r.Promise != 0 && e.mode == Conservative && e.validAllocs(r.Plan, false) {
			j.promise, j.plan = r.Promise, slices.Clone(r.Plan)
		}
	case !e.validAllocs(r.Allocs, j.state != Stopping):
		e.resumeLost(j)
		return false
	default:
		e.resumeHolding(j, r, same)
	}
	return same
}

// validAllocs reports whether all that is there, and free if it must be.
func (e *Engine) validAllocs(allocs []inventory.Alloc, free bool) bool {
	for i := range allocs {
		a := &allocs[i]
		if a.Node < 0 || int(a.Node) >= len(e.st.Nodes()) || a.GPUs>>e.st.Nodes()[a.Node].Spec().GPUs != 0 {
			return false
		}
	}
	if !free {
		return true
	}
	mark := e.st.Mark()
	ok := e.takeBack(allocs, false)
	e.st.Rollback(mark)
	return ok
}

func (e *Engine) resumePending(j *jobState, r *JobRecord, same bool) {
	if !r.Eligible {
		switch j.parked {
		case ParkedBegin, NotParked:
			e.admit(j)
		case ParkedDependency, ParkedSingleton:
			e.dependencies(j) // sets the timers of delays again
		case ParkedPlan:
			e.starveAgain(j)
		}
		return
	}
	e.lineUp(j)
	if g := &e.groups[j.group]; same && j.key.Key != r.Key {
		g.jobs.Remove(j.key)
		j.key.Key = r.Key
		g.jobs.Insert(j.key)
		e.relist(g)
	}
	e.starveAgain(j)
}

// starveAgain sets the time again at which the job will have waited too long.
func (e *Engine) starveAgain(j *jobState) {
	if e.cfg.Starvation > 0 && !j.promoted && !e.divided(j) && j.hungry != cluster.Never {
		e.timers.push(timer{j.hungry.Add(e.cfg.Starvation), timerStarving, int32(j.spec.ID), j.gen})
	}
}

// resumeLost makes a job wait again whose devices are not there any more.
func (e *Engine) resumeLost(j *jobState) {
	for _, v := range e.jobs {
		if v != nil && j.state == Placed { // nobody's leaving is for this one any more
			e.stopWaiting(j, v)
		}
	}
	j.state, j.since, j.hungry, j.rate, j.demoted = Pending, e.now, cluster.Never, 0, false
	j.done = j.saved
	e.freeze(j, nil, 0)
	e.admit(j)
}

// resumeHolding books what a job holds, or what it still has to leave.
func (e *Engine) resumeHolding(j *jobState, r *JobRecord, same bool) {
	s := e.shapeAt(j.shape)
	j.allocs, j.leaving, j.resizing, j.waits = inName(j, r.Allocs), inName(j, r.Leaving), r.Resizing, r.Waits
	j.tasks, j.devices = r.Tasks, int32(s.devices(int(r.Tasks)))
	j.milli, j.packed = e.heldMilli(j), r.Packed
	leaves := j.leaving
	if j.state == Stopping {
		leaves = j.goingAllocs()
	}
	for i := range leaves {
		e.noteLeaver(leaves[i].Node, j.spec.ID)
	}
	if j.state == Stopping {
		if j.how == Suspend && !e.mayFreeze(j.allocs) {
			j.how, j.warm = e.howToStop(j), false
		}
		if r.Dest != nil && e.validAllocs(r.Dest, true) {
			e.reserveDest(j, inName(j, r.Dest))
			e.charge(j, 1)
			e.st.Commit()
		}
		return
	}
	for i := range j.allocs {
		e.st.Take(&j.allocs[i])
	}
	if j.beside = r.Beside; j.hosted() {
		h := e.host(j)
		h.guests = append(h.guests, j.spec.ID)
	}
	e.reweigh(j)
	e.charge(j, 1)
	e.st.Commit()
	j.waited = j.state == Placed
	e.list(j)
	if same {
		e.unlist(j)
		j.key.Key, j.endKey.Key[0] = r.Key, r.EndKey
		e.running.insert(j.key)
		e.ends.insert(j.endKey)
		e.holding[j.tier()]++
		e.notePlaced(j)
	}
	if j.state == Placed {
		e.starveAgain(j) // its placement may be taken back
		return
	}
	if j.limitAt != cluster.Never && j.limitAt != 0 {
		e.timers.push(timer{j.limitAt, timerLimit, int32(j.spec.ID), j.gen})
	}
	if j.slow != 0 {
		e.timers.push(timer{j.slow.Add(slowFor), timerSlow, int32(j.spec.ID), j.gen})
	}
	if safe := j.started.Add(e.cfg.MinRuntime); e.cfg.MinRuntime > 0 && safe > e.now {
		e.timers.push(timer{safe, timerSafe, int32(j.spec.ID), j.gen})
	}
	e.watchSettled(j)
	j.nextKey = math.MinInt64
	e.watchKey(j)
}
