package engine

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/engine/inventory"
)

// Step takes what happened at one instant and returns what to do about it.
// Time never runs backwards; an event about a job that the engine does not
// know, or that contradicts its state, is ignored where a late or repeated
// report can explain it and panics where only a broken driver can.
func (e *Engine) Step(b Batch) Decision {
	if b.Now < e.now {
		panic(fmt.Sprintf("engine: time runs backwards: %v after %v", b.Now, e.now))
	}
	e.now = b.Now
	e.untouch()
	e.stats.Steps++
	e.actions, e.defrag.seen = e.actions[:0], nil
	if slices.ContainsFunc(b.Events, func(ev Event) bool { return ev.Type != Submitted }) {
		e.freed++
	}
	for phase := range 3 { // completions, then losses, then arrivals and the rest
		for i := range b.Events {
			if phaseOf(b.Events[i].Type) == phase {
				e.handle(&b.Events[i])
			}
		}
	}
	e.runTimers()
	e.loansDue()
	e.defragDue()
	e.startReady()
	planned := e.planDue()
	if planned {
		e.makePlan()
	} else {
		e.joinMoved()
	}
	if e.fresh || e.epoch != e.seenAt {
		dirty := e.plans.dirty
		e.pass()
		if planned {
			e.joinPlanned() // those beside whom others are to be may have been given devices only now
		} else {
			e.joinMoved()
		}
		e.plans.dirty = dirty // who comes back from a placement could run before
	}
	e.defrag.due, e.defrag.compacting = false, NoCompact
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
	case NodeDown, GPUBad, NodeDrained, NodeUp, NodeAsleep, NodeResized:
		return 1
	}
	return 2
}

func (e *Engine) handle(ev *Event) {
	switch ev.Type {
	case Submitted:
		e.submit(ev.Spec, ev.Given)
		return
	case NodeUp, NodeDown, NodeDrained, GPUBad, NodeResized:
		e.nodeEvent(ev)
		return
	case NodeAsleep:
		e.nodeAsleep(ev)
		return
	case QueueChanged:
		e.replaceQueues(ev.Queues)
		return
	case NodesNamed:
		e.nameNodes(ev.Set)
		return
	case Defragment:
		e.askMoves(ev)
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
	case Updated:
		e.update(j, ev.Spec)
	case Cancelled:
		e.cancel(j)
	case Held:
		e.hold(j, !ev.Undo)
	case Demoted:
		e.demote(j, !ev.Undo)
	}
	e.settled() // it may leave for another's memory from now on
}

func (e *Engine) job(id cluster.JobID) *jobState {
	if id < 0 || int(id) >= len(e.jobs) {
		return nil
	}
	return e.jobs[id]
}

func (e *Engine) submit(spec *cluster.Job, before *Given) {
	if e.job(spec.ID) != nil {
		return // a repeated report
	}
	for int(spec.ID) >= len(e.jobs) {
		e.jobs = append(e.jobs, nil)
	}
	j := &jobState{tenure: &e.none, spec: spec, firstStart: cluster.Never, promise: cluster.Never, since: e.now, hungry: cluster.Never, group: -1,
		user: e.users.id(spec.User), milli: spec.GPUMilli(), devices: int32(spec.GPUs()), weight: cluster.Whole}
	e.jobs[spec.ID] = j
	e.live++
	e.goOn(j, before)
	q, text := e.check(spec)
	if text != "" {
		e.reject(j, Impossible, text)
		return
	}
	j.queue = int32(q)
	j.shape = e.shapeOf(spec)
	j.base = j.shape
	if j.whole = e.indivisible(j); e.chooses(j) {
		e.include(j)
	}
	j.milli = e.askedMilli(j)
	j.tasks = e.shapes[j.shape].max
	if e.shapes[j.shape].min < e.shapes[j.shape].max {
		e.elastic++
	}
	if text = e.never(j); text != "" {
		e.reject(j, Impossible, text)
		return
	}
	j.predicted = e.predict(spec)
	e.deps.join(e, j)
	e.admit(j)
}

func (e *Engine) reject(j *jobState, reason StopReason, text string) {
	e.finish(j, reason)
	e.actions = append(e.actions, Action{Type: Reject, Job: j.spec.ID, Reason: reason, For: cluster.NoJob, Text: text})
}

// finish ends a job's life and wakes those that waited for its end.
func (e *Engine) finish(j *jobState, reason StopReason) {
	if j.state == Done {
		return
	}
	e.touch(j)
	e.dropDest(j)
	e.freeze(j, nil, 0)
	e.withdraw(j)
	e.replan()
	j.state, j.reason, j.ended, j.parked = Done, reason, e.now, NotParked
	j.gen++
	e.live--
	if reason == Completed {
		e.completed(j)
	}
	e.deps.leave(e, j)
}

// withdraw takes a job out of the line by somebody else's will: those whom it
// blocked are looked at again.
func (e *Engine) withdraw(j *jobState) {
	j.hungry = cluster.Never // its waiting begins anew when it is in line again
	e.leavePool(j)
	j.gen++
	e.fresh = e.fresh || j.eligible
	e.dequeue(j)
}

// stopped books that a job's devices are free again.
func (e *Engine) stopped(j *jobState, ev *Event) {
	if j.state != Starting && j.state != Running && j.state != Stopping {
		return
	}
	e.touch(j)
	wanted := j.reason
	was := j.state
	e.accrue(j)
	j.done = min(ev.Done, j.done)
	if ev.Done > j.done {
		j.done = ev.Done
	}
	j.rate = 0
	if was != Stopping || j.how != Suspend {
		j.saved = j.done
	}
	e.costs(j, ev.Switch)
	e.hears(j, ev.Saves)
	held, dest := j.allocs, e.dropDest(j)
	e.free(j, was)
	reason := ev.Reason
	if was == Stopping && (reason == Preempted || reason == NodeLost && wanted != Preempted) {
		reason = wanted // its node may be lost while it stops: a cancelled job does not come back
	}
	if was != Stopping || reason != Preempted || j.how != Suspend {
		held = nil
	}
	e.comeBack(j, reason, apart(held), dest)
}

// comeBack ends a stopped job, or puts it back into the queue; home is where
// its memory stays if it is suspended, dest where it goes if it is moved.
func (e *Engine) comeBack(j *jobState, reason StopReason, home, dest []inventory.Alloc) {
	switch {
	case reason == Preempted || reason == NodeLost:
		j.preemptions++
		if j.spec.NoRequeue {
			e.finish(j, reason)
			return
		}
		if j.home = home; home != nil {
			e.freeze(j, home, j.done)
			if e.givenAny(home) {
				e.loseMemory(j) // a node was given back while it was being suspended there
			}
		}
		e.requeue(j)
		e.land(j, dest)
	default:
		e.finish(j, reason)
	}
}

// free gives back what a job held, physically.
func (e *Engine) free(j *jobState, was State) {
	if was == Stopping { // the devices were promised on when it was told to stop
		for i := range j.allocs {
			e.noteLeft(j.allocs[i].Node, j.spec.ID)
		}
	} else {
		e.unbook(j)
	}
	j.allocs, j.demoted, j.packed = nil, false, false
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
func (e *Engine) requeue(j *jobState) {
	j.state, j.since, j.hungry = Pending, e.now, cluster.Never
	j.gen++
	j.milli, j.tasks = e.askedMilli(j), e.shapes[j.shape].max
	j.devices = int32(j.spec.GPUs())
	e.admit(j)
}

// startFailed books that a start did not happen; excused: by no fault of the job.
func (e *Engine) startFailed(j *jobState, excused bool) {
	if j.state != Starting && j.state != Stopping {
		return
	}
	e.touch(j)
	was, wanted, dest := j.state, j.reason, e.dropDest(j)
	e.accrue(j)
	e.free(j, was)
	if was == Stopping { // it was called off: no fault of its own
		e.comeBack(j, wanted, nil, dest)
		return
	}
	if excused {
		e.requeue(j)
		return
	}
	if j.fails++; int(j.fails) >= e.cfg.Launches {
		e.finish(j, LaunchFailed)
		return
	}
	e.requeue(j)
}

// report books what a running job tells of itself.
func (e *Engine) report(j *jobState, ev *Event) {
	if !j.holding() {
		return
	}
	e.touch(j)
	e.accrue(j)
	began, before := j.began(), int64(0)
	if e.traits.Preempts && j.state != Stopping {
		before = e.freshKey(j) // as a job that wants to preempt sees it, however long ago it was listed
	}
	if ev.Type == Started {
		if j.state == Starting {
			j.state = Running
		}
		j.fails = 0
		if j.rate == 0 { // else a repeated report
			j.rate = million
		}
	}
	if ev.Type == Progress {
		j.done = max(j.done, ev.Done)
		j.saved = max(j.saved, min(ev.Saved, j.done)) // nobody saves what is not done
		j.memory = max(j.memory, ev.Memory)
		e.reckon(j, ev.Estimate)
		e.costs(j, ev.Switch)
		e.hears(j, ev.Saves)
	}
	if ev.Rate > 0 {
		j.rate = ev.Rate
	}
	if j.rate > 0 && !j.hosted() && len(j.guests) == 0 {
		j.speed = j.rate // what it is alone
	}
	if j.spec.Shares() {
		e.listen(j, ev)
	}
	if !began && j.began() {
		e.deps.began(e, j)
	}
	if ev.Type == Resized && j.state != Stopping {
		e.leftDevices(j)
	}
	if ev.Pace != 0 {
		e.pace(j, ev.Pace, ev.Unit)
	}
	if e.elastic > 0 && ev.Type != Progress {
		e.fresh = true // it can be resized now
	}
	if ev.Type != Progress && e.follow(j) {
		return
	}
	if j.state != Stopping {
		if e.rerun(j); e.traits.Preempts && j.key.Key[0] > before {
			e.epoch++ // it may be a victim now
		}
	}
}

// reckon takes over how much work a job is, as its own progress tells.
func (e *Engine) reckon(j *jobState, work time.Duration) {
	if work <= 0 || work > cluster.MaxDuration || work == j.spec.Estimate {
		return
	}
	spec := *j.spec
	spec.Estimate = work
	j.spec = &spec
	e.fresh = e.fresh || e.pending > 0 // what others were promised rests on it
}

// costs takes over what stopping a job and starting it again was measured to take:
// whom to stop, and whether to move anybody, are judged by that from then on.
func (e *Engine) costs(j *jobState, s SwitchCost) {
	c := j.spec.Checkpoint
	c.Cost, c.Restart, c.Suspend = cmp.Or(max(0, s.Save), c.Cost), cmp.Or(max(0, s.Restart), c.Restart), cmp.Or(max(0, s.Suspend), c.Suspend)
	if c == j.spec.Checkpoint {
		return
	}
	spec := *j.spec
	spec.Checkpoint = c
	j.spec = &spec
	e.fresh = e.fresh || e.pending > 0
	if j.state == Starting || j.state == Running {
		e.watchSettled(j)
	}
}

// hears takes over whether the job saves its work when it is asked to: who saves
// nothing is left alone by policies that let jobs take turns (JobView.Loses), and
// whom to stop is judged by what is lost.
func (e *Engine) hears(j *jobState, s Saves) {
	if s == SavesUnknown || j.deaf == (s == SavesNothing) {
		return
	}
	j.deaf = s == SavesNothing
	e.fresh = e.fresh || e.pending > 0
}

// demote lets a running job count as best-effort, or no more: whoever is of a
// higher tier may then take its devices. How it is stopped stays that of its own
// tier. Critical jobs hold what their queue is owed, and stay what they are.
func (e *Engine) demote(j *jobState, demoted bool) {
	if j.state != Starting && j.state != Running || j.spec.Tier == cluster.Critical || j.demoted == demoted {
		return // it stops or waits already, or a repeated report
	}
	e.unlist(j)
	j.demoted = demoted
	e.list(j)
	e.watchKey(j)
	e.epoch++ // it may be a victim now
}

func (e *Engine) update(j *jobState, spec *cluster.Job) {
	if j.state != Pending && j.state != Placed || spec == nil || spec.ID != j.spec.ID {
		return
	}
	q, text := e.check(spec)
	if text != "" {
		return // the driver validates with Check before it accepts an update
	}
	if j.state == Placed { // it has not started: nothing is lost
		e.unplace(j)
	}
	waits, lined := j.eligible, j.lined
	e.withdraw(j)
	e.deps.leaveArray(e, j)
	e.deps.quit(j)
	if shape := e.shapeOf(spec); shape != j.base {
		j.plan, j.base, j.target = nil, shape, nil // its sets are others
		if j.shape = shape; j.home != nil {        // where its memory is, it does not fit any more
			j.thaw()
		}
		if e.shapes[shape].min < e.shapes[shape].max {
			e.elastic++
		}
	}
	if spec.User != j.spec.User || spec.Name != j.spec.Name || spec.GPUMilli() != j.spec.GPUMilli() {
		j.predicted = e.predict(spec)
	}
	j.spec, j.queue, j.user, j.anchor = spec, int32(q), e.users.id(spec.User), anchor{}
	if j.whole = e.indivisible(j); e.chooses(j) { // plans may not have been about it
		e.include(j)
	}
	e.demand.Stale = true
	j.milli, j.devices, j.tasks = e.askedMilli(j), int32(spec.GPUs()), e.shapes[j.shape].max
	e.deps.join(e, j)                                        // its dependencies may be new
	if e.admit(j); waits && j.eligible && j.lined != lined { // it keeps its age
		e.dequeue(j)
		j.lined = lined
		e.lineUp(j)
	}
}

func (e *Engine) cancel(j *jobState) {
	switch j.state {
	case Pending:
		e.finish(j, WasCancelled)
	case Placed:
		e.unplace(j)
		e.finish(j, WasCancelled)
	case Starting, Running:
		e.stop(j, Kill, WasCancelled, cluster.NoJob)
	case Stopping:
		e.touch(j)
		e.dropDest(j)
		j.reason = WasCancelled // what it stops for now: it does not come back
	}
}

func (e *Engine) hold(j *jobState, hold bool) {
	if j.spec.Hold == hold {
		return // a repeated report: it keeps its place in the line
	}
	e.touch(j)
	spec := *j.spec
	spec.Hold = hold
	j.spec = &spec
	if j.state == Placed && hold {
		e.unplace(j)
	}
	if j.state == Pending {
		e.withdraw(j)
		e.deps.leaveArray(e, j)
		e.admit(j)
	}
}

// nextWake is when the engine wants to be called even if nothing happens.
func (e *Engine) nextWake() cluster.Time {
	wake := cluster.Never
	if t, ok := e.timers.peek(e); ok {
		if wake = t; t == e.now && e.timers[0].kind == timerPromote {
			wake++ // a pass put it off to the next step
		}
	}
	if e.pending > 0 {
		if t, ok := e.keyTimes.peek(e); ok {
			wake = min(wake, t)
		}
		if p := cluster.Time(e.traits.Rekey); p > 0 {
			wake = min(wake, (e.now/p+1)*p)
		}
		if p := cluster.Time(e.traits.Rerun); p > 0 {
			wake = min(wake, (e.now/p+1)*p)
		}
		wake = min(wake, e.limits.nextChange(e), e.advanceChange())
	} else if e.live > 0 {
		wake = min(wake, e.limits.nextChange(e), e.advanceChange())
	}
	return min(wake, e.planWake(), e.defragWake(), e.loansWake())
}
