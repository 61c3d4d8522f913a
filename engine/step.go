package engine

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/engine/inventory"
	"github.com/muster-gpu/muster/engine/job"
	"github.com/muster-gpu/muster/engine/pending"
)

// Step takes what happened at one instant and returns what to do about it.
// Time never runs backwards; an event about a job that the engine does not
// know, or that contradicts its state, is ignored where a late or repeated
// report can explain it and panics where only a broken driver can.
func (e *Engine) Step(b Batch) Decision {
	if b.Now < e.w.Now {
		panic(fmt.Sprintf("engine: time runs backwards: %v after %v", b.Now, e.w.Now))
	}
	e.w.Now = b.Now
	e.untouch()
	e.stats.Steps++
	e.actions = e.actions[:0]
	e.rounds.Forget()
	if slices.ContainsFunc(b.Events, func(ev Event) bool { return ev.Type != Submitted }) {
		e.leavers.Freed()
	}
	for phase := range 3 { // completions, then losses, then arrivals and the rest
		for i := range b.Events {
			if phaseOf(b.Events[i].Type) == phase {
				e.handle(&b.Events[i])
			}
		}
	}
	e.plan.Renew(func(j *job.State) {
		if j.State == job.Pending {
			e.aimPending(j)
		}
	})
	e.runTimers()
	e.changeLoans()
	if e.rounds.Begin(e.line.Len(), e.live) {
		e.fresh = true
	}
	e.startReady()
	planned := e.plan.Due()
	if planned {
		e.makePlan()
	} else {
		e.joinMoved()
	}
	if e.fresh || e.epoch != e.seenAt {
		dirty := e.plan.Dirty
		e.pass()
		if planned {
			e.joinPlanned() // the planned hosts may have been given devices only now
		} else {
			e.joinMoved()
		}
		e.plan.Dirty = dirty // a job that comes back from a placement could run before
	}
	e.rounds.End()
	e.treatTraffic()
	e.mix(uint64(b.Now))
	for i := range e.actions {
		e.mixAction(&e.actions[i])
	}
	return Decision{Actions: e.actions, WakeAt: e.nextWake(), Hash: e.hash}
}

func phaseOf(t EventType) int {
	switch t {
	case Stopped, StartFailed:
		return 0
	case NodeDown, GPUBad, NodeDrained, NodeUp, NodeAsleep, NodeResized, NodeChanged, JobReshaped:
		return 1
	}
	return 2
}

func (e *Engine) handle(ev *Event) {
	switch ev.Type {
	case Submitted:
		e.submit(ev.Spec, ev.Carryover)
		return
	case NodeUp, NodeDown, NodeDrained, GPUBad, NodeResized, NodeChanged:
		e.nodeEvent(ev)
		return
	case NodeAsleep:
		e.nodeAsleep(ev)
		return
	case QueueChanged:
		e.replaceQueues(ev.Queues)
		return
	case NodesNamed:
		e.shapes.Name(ev.Set)
		return
	case LendersChanged:
		e.lending.Replace(ev.Lenders, e.jobs)
		e.epoch++ // what kept a job from starting may do so no more
		e.fresh = true
		return
	case Adopted:
		e.adopt(ev.Record)
		return
	case Defragment:
		e.rounds.Ask(ev.Job, ev.Compact)
		return
	case Tick:
		return
	}
	j := e.job(ev.Job)
	if j == nil {
		return // about a job of another life: the driver's Diff will notice
	}
	switch ev.Type {
	case Stopped:
		e.stopped(j, ev)
	case StartFailed:
		e.startFailed(j, ev.Undo)
	case Started, Resized, Progress:
		e.report(j, ev)
	case JobReshaped:
		e.jobReshaped(j, ev.Reshape)
	case Updated:
		e.update(j, ev.Spec)
	case Cancelled:
		e.cancel(j)
	case Held:
		e.hold(j, !ev.Undo)
	case Demoted:
		e.demote(j, !ev.Undo)
	}
	e.retryHomed() // from now on it may be moved for another's memory
}

func (e *Engine) job(id cluster.JobID) *job.State {
	if id < 0 || int(id) >= len(e.jobs) {
		return nil
	}
	return e.jobs[id]
}

// Check says why a job as specified is refused at once; "" if it is accepted.
// Drivers call it before they accept a submission; Submitted events that fail
// it are answered with Reject.
func (e *Engine) Check(s *cluster.Job) string { return e.admission.Check(s) }

func (e *Engine) submit(spec *cluster.Job, before *Carryover) {
	if e.job(spec.ID) != nil {
		return // a repeated report
	}
	if int(spec.ID) < len(e.jobs) {
		e.find.Recount() // its number was left out when one with a higher number was found running
	}
	for int(spec.ID) >= len(e.jobs) {
		e.jobs = append(e.jobs, nil)
	}
	j := &job.State{
		Tenure: &e.noTenure, Spec: spec, Promise: cluster.Never, Group: -1,
		Facts: job.Facts{FirstStart: cluster.Never, Since: e.w.Now, StarvingSince: cluster.Never},
		User:  e.limits.User(spec.User), Milli: spec.GPUMilli(), Devices: int32(spec.GPUs()), Weight: cluster.Whole,
	}
	e.jobs[spec.ID] = j
	e.live++
	if before != nil && before.Possible(e.w.Now) {
		e.giveTenure(j)
		j.GoOn(before)
	}
	q, text := e.admission.CheckSpec(spec)
	if text != "" {
		e.reject(j, job.Impossible, text)
		return
	}
	j.Queue = int32(q)
	j.Shape = e.admission.ShapeOf(spec)
	j.Base = j.Shape
	if e.plan.Suit(j); e.plan.Chooses(j) {
		e.plan.Include(j)
	}
	j.Milli = e.w.AskedMilli(j)
	j.Tasks = e.shapes.Get(j.Shape).Max
	if e.shapes.Get(j.Shape).Min < e.shapes.Get(j.Shape).Max {
		e.elastic++
	}
	if text = e.admission.Never(j); text != "" {
		e.reject(j, job.Impossible, text)
		return
	}
	j.Predicted = e.past.Predict(spec)
	e.deps.Join(j)
	e.admit(j)
	if v := e.job(spec.Replaces); inPlaceOf(v, j) {
		e.startMoved(j, e.dropDest(v))
	}
}

func (e *Engine) reject(j *job.State, reason job.StopReason, text string) {
	e.finish(j, reason)
	e.actions = append(e.actions, Action{Type: Reject, Job: j.Spec.ID, Reason: reason, For: cluster.NoJob, Text: text})
}

// finish ends a job's life and wakes those that waited for its end.
func (e *Engine) finish(j *job.State, reason job.StopReason) {
	if j.State == job.Done {
		return
	}
	e.touch(j)
	e.dropDest(j)
	e.freeze(j, nil, 0)
	e.withdraw(j)
	if j.ResidentOnGPU = false; j.Home != nil {
		j.Home = nil
	}
	e.plan.JobsChanged()
	j.State, j.Reason, j.Ended, j.Parked = job.Done, reason, e.w.Now, job.NotParked
	j.Gen++
	e.live--
	if reason == job.Completed {
		e.past.Completed(j)
	}
	e.deps.Ended(j)
}

// withdraw takes a job out of the line because of an event, not of a start: the jobs that
// it blocked are considered again.
func (e *Engine) withdraw(j *job.State) {
	j.StarvingSince = cluster.Never // its wait starts from zero when it is in line again
	e.plan.Unpool(j)
	j.Gen++
	e.fresh = e.fresh || j.Eligible
	e.dequeue(j)
}

// stopped books that a job's devices are free again.
func (e *Engine) stopped(j *job.State, ev *Event) {
	if j.State != job.Starting && j.State != job.Running && j.State != job.Stopping {
		return
	}
	e.touch(j)
	wanted := j.Reason
	was := j.State
	e.accrue(j)
	j.Done = min(ev.Done, j.Done)
	if ev.Done > j.Done {
		j.Done = ev.Done
	}
	j.Rate = 0
	if was != job.Stopping || j.How != job.Suspend {
		j.Saved = j.Done
	}
	e.noteCosts(j, ev.Switch)
	e.noteSaves(j, ev.Saves)
	held, dest := j.Allocs, e.dropDest(j)
	e.free(j, was)
	reason := ev.Reason
	if was == job.Stopping && (reason == job.Preempted || reason == job.NodeLost && wanted != job.Preempted) {
		reason = wanted // its node may be lost while it stops: a cancelled job does not come back
	}
	if was != job.Stopping || reason != job.Preempted || j.How != job.Suspend {
		held = nil
	}
	e.comeBack(j, reason, apart(held), dest)
}

// comeBack ends a stopped job, or puts it back into the queue; home is where
// its memory stays if it is suspended, dest where it goes if it is moved.
func (e *Engine) comeBack(j *job.State, reason job.StopReason, home, dest []inventory.Alloc) {
	switch {
	case reason == job.Preempted || reason == job.NodeLost:
		j.Preemptions++
		if j.Spec.NoRequeue {
			e.finish(j, reason)
			return
		}
		if j.Home = home; home != nil {
			e.freeze(j, home, j.Done)
			if onGivenBack(&e.st, home) {
				e.loseMemory(j) // a node was given back while it was being suspended there
			}
		}
		e.requeue(j)
		e.startMoved(j, dest)
	default:
		e.finish(j, reason)
	}
}

// free gives back what a job held, physically.
func (e *Engine) free(j *job.State, was job.Phase) {
	if was == job.Stopping { // the devices were promised on when it was told to stop
		for i := range j.Allocs {
			e.leavers.Left(j.Allocs[i].Node, j.Spec.ID)
		}
	} else {
		e.unbook(j)
	}
	e.links.Changed(j)
	j.Allocs, j.Treatment, j.Demoted, j.Packed = nil, nil, false, false
	e.leftDevices(j)
}

func without(ids []cluster.JobID, id cluster.JobID) []cluster.JobID {
	for i, v := range ids {
		if v == id {
			return append(ids[:i], ids[i+1:]...)
		}
	}
	return ids
}

// requeue puts a job that was stopped back into the queue, at its old place.
func (e *Engine) requeue(j *job.State) {
	j.State, j.Since, j.StarvingSince = job.Pending, e.w.Now, cluster.Never
	j.Gen++
	j.Milli, j.Tasks = e.w.AskedMilli(j), e.shapes.Get(j.Shape).Max
	j.Devices = int32(j.Spec.GPUs())
	e.admit(j)
}

// startFailed books that a start did not happen; excused: by no fault of the job.
func (e *Engine) startFailed(j *job.State, excused bool) {
	if j.State != job.Starting && j.State != job.Stopping {
		return
	}
	e.touch(j)
	was, wanted, dest := j.State, j.Reason, e.dropDest(j)
	e.accrue(j)
	e.free(j, was)
	if was == job.Stopping { // it was called off: no fault of its own
		e.comeBack(j, wanted, nil, dest)
		return
	}
	if excused {
		e.requeue(j)
		return
	}
	if j.Fails++; int(j.Fails) >= e.cfg.Launches {
		e.finish(j, job.LaunchFailed)
		return
	}
	e.requeue(j)
}

// report books what a running job tells of itself.
func (e *Engine) report(j *job.State, ev *Event) {
	if !j.Holding() {
		return
	}
	e.touch(j)
	e.accrue(j)
	began, before := j.Began(), int64(0)
	if e.w.Traits.Preempts && j.State != job.Stopping {
		before = e.victims.FreshKey(j) // as a job that wants to preempt sees it, however long ago it was listed
	}
	if ev.Type == Started {
		if j.State == job.Starting {
			j.State = job.Running
			e.links.Computes(j, e.w.Now)
		}
		j.Fails = 0
		if j.Rate == 0 { // else a repeated report
			j.Rate = job.Million
		}
	}
	if ev.Type == Progress {
		j.Done = max(j.Done, ev.Done)
		j.Saved = max(j.Saved, min(ev.Saved, j.Done)) // saved work is at most what is done
		j.Memory = max(j.Memory, ev.Memory)
		e.noteWork(j, ev.Estimate)
		e.noteCosts(j, ev.Switch)
		e.noteSaves(j, ev.Saves)
		e.noteTraffic(j, ev)
	}
	if ev.Rate > 0 {
		j.Rate = ev.Rate
	}
	if j.Rate > 0 && !j.Hosted() && len(j.Guests) == 0 {
		j.Speed = j.Rate // what it is alone
	}
	if j.Spec.Shares() {
		e.noteSpeed(j, ev)
	}
	if !began && j.Began() {
		e.deps.Began(j)
	}
	if ev.Type == Resized && j.State != job.Stopping {
		e.leftDevices(j)
		e.links.Computes(j, e.w.Now)
	}
	if ev.Pace != 0 {
		if e.speeds.Pace(j, ev.Pace, ev.Unit) {
			e.plan.Dirty = true
		}
	}
	if e.elastic > 0 && ev.Type != Progress {
		e.fresh = true // it can be resized now
	}
	if ev.Type != Progress && e.follow(j) {
		return
	}
	if j.State != job.Stopping {
		if e.running.Update(j); e.w.Traits.Preempts && j.Key.Key[0] > before {
			e.epoch++ // it may be a victim now
		}
	}
}

// noteWork takes over how much work a job is, as its own progress tells.
func (e *Engine) noteWork(j *job.State, work time.Duration) {
	if work <= 0 || work > cluster.MaxDuration || work == j.Spec.Estimate {
		return
	}
	spec := *j.Spec
	spec.Estimate = work
	j.Spec = &spec
	e.fresh = e.fresh || e.line.Len() > 0 // what others were promised rests on it
}

// noteCosts takes over what stopping a job and starting it again was measured to take:
// which jobs to stop or to move is judged by that from then on.
func (e *Engine) noteCosts(j *job.State, s SwitchCost) {
	c := j.Spec.Checkpoint
	c.Cost, c.Restart, c.Suspend = cmp.Or(max(0, s.Save), c.Cost), cmp.Or(max(0, s.Restart), c.Restart),
		cmp.Or(max(0, s.Suspend), c.Suspend)
	if c == j.Spec.Checkpoint {
		return
	}
	spec := *j.Spec
	spec.Checkpoint = c
	j.Spec = &spec
	e.fresh = e.fresh || e.line.Len() > 0
	if j.State == job.Starting || j.State == job.Running {
		e.watchMovable(j)
	}
}

// noteSaves records whether the job saves its work when it is asked to. Policies that let jobs
// take turns leave one that saves nothing alone (JobView.Loses), and victims are chosen by
// what is lost.
func (e *Engine) noteSaves(j *job.State, s Saves) {
	if s == SavesUnknown || j.IgnoresCheckpoint == (s == SavesNothing) {
		return
	}
	j.IgnoresCheckpoint = s == SavesNothing
	e.fresh = e.fresh || e.line.Len() > 0
}

// demote lets a running job count as best-effort, or ends that: jobs of a higher
// tier may then take its devices. It is still stopped in the way of its own tier.
// Critical jobs hold what their queue is owed, and stay what they are.
func (e *Engine) demote(j *job.State, demoted bool) {
	if j.State != job.Starting && j.State != job.Running || j.Spec.Tier == cluster.Critical || j.Demoted == demoted {
		return // it stops or waits already, or a repeated report
	}
	e.running.Remove(j)
	j.Demoted = demoted
	e.running.Add(j)
	e.running.Watch(j)
	e.epoch++ // it may be a victim now
}

func (e *Engine) update(j *job.State, spec *cluster.Job) {
	if j.State == job.Starting || j.State == job.Running {
		e.amend(j, spec)
		return
	}
	if j.State != job.Pending && j.State != job.Placed || spec == nil || spec.ID != j.Spec.ID {
		return
	}
	q, text := e.admission.CheckSpec(spec)
	if text != "" {
		return // the driver validates with Check before it accepts an update
	}
	if j.State == job.Placed { // it has not started: nothing is lost
		e.unplace(j)
	}
	waits, since := j.Eligible, j.EligibleSince
	e.withdraw(j)
	e.deps.LeaveArray(j)
	e.deps.Quit(j)
	if shape := e.admission.ShapeOf(spec); shape != j.Base {
		j.Plan, j.Base, j.Target = nil, shape, nil // its sets are others
		if j.Shape = shape; j.Home != nil {        // where its memory is, it does not fit any more
			j.Thaw()
		}
		if e.shapes.Get(shape).Min < e.shapes.Get(shape).Max {
			e.elastic++
		}
	}
	if spec.User != j.Spec.User || spec.Name != j.Spec.Name || spec.GPUMilli() != j.Spec.GPUMilli() {
		j.Predicted = e.past.Predict(spec)
	}
	j.Spec, j.Queue, j.User, j.Anchor = spec, int32(q), e.limits.User(spec.User), job.Anchor{}
	if e.plan.Suit(j); e.plan.Chooses(j) { // plans may not have been about it
		e.plan.Include(j)
	}
	e.find.Recount()
	j.Milli, j.Devices, j.Tasks = e.w.AskedMilli(j), int32(spec.GPUs()), e.shapes.Get(j.Shape).Max
	e.deps.Join(j)                                                   // its dependencies may be new
	if e.admit(j); waits && j.Eligible && j.EligibleSince != since { // it keeps its age
		e.dequeue(j)
		j.EligibleSince = since
		e.lineUp(j)
	}
}

func (e *Engine) cancel(j *job.State) {
	switch j.State {
	case job.Pending:
		e.finish(j, job.WasCancelled)
	case job.Placed:
		e.unplace(j)
		e.finish(j, job.WasCancelled)
	case job.Starting, job.Running:
		e.stop(j, job.Kill, job.WasCancelled, cluster.NoJob)
	case job.Stopping:
		e.touch(j)
		e.dropDest(j)
		j.Reason = job.WasCancelled // what it stops for now: it does not come back
		if j.How == job.Replace {   // it went on
			j.How = job.Kill
			e.actions = append(e.actions, Action{Type: Preempt, Job: j.Spec.ID, How: j.How,
				Grace: e.stops.Rules[j.Spec.Tier].Grace, Reason: j.Reason, For: cluster.NoJob})
		}
	}
}

func (e *Engine) hold(j *job.State, hold bool) {
	if j.Spec.Hold == hold {
		return // a repeated report: it keeps its place in the line
	}
	e.touch(j)
	spec := *j.Spec
	spec.Hold = hold
	j.Spec = &spec
	if j.State == job.Placed && hold {
		e.unplace(j)
	}
	if j.State == job.Pending {
		e.withdraw(j)
		e.deps.LeaveArray(j)
		e.admit(j)
	}
}

// nextWake is when the engine wants to be called even if nothing happens.
func (e *Engine) nextWake() cluster.Time {
	wake := cluster.Never
	if t := e.timers.Next(); t != nil {
		if wake = t.At; t.At == e.w.Now && t.Kind == pending.Promote {
			wake++ // a pass put it off to the next step
		}
	}
	if e.line.Len() > 0 {
		wake = min(wake, e.running.NextKeyChange())
		if p := cluster.Time(e.w.Traits.Rekey); p > 0 {
			wake = min(wake, (e.w.Now/p+1)*p)
		}
		if p := cluster.Time(e.w.Traits.Rerun); p > 0 {
			wake = min(wake, (e.w.Now/p+1)*p)
		}
		wake = min(wake, e.limits.NextChange(), e.resv.NextChange())
	} else if e.live > 0 {
		wake = min(wake, e.limits.NextChange(), e.resv.NextChange())
	}
	if e.live > 0 {
		wake = min(wake, e.plan.Wake(), e.loans.Wake())
	}
	return min(wake, e.rounds.Wake(e.line.Len(), e.live))
}
