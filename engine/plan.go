package engine

import (
	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/engine/inventory"
	"github.com/muster-gpu/muster/engine/job"
)

// A policy that plans says from time to time how much of what each job gets.
// The engine keeps the targets, and every mechanism that there is carries them
// out: a target's rank is (part of) the job's key, so that jobs with a place in the plan
// preempt those without one; its GPU model and size narrow what a
// waiting job asks for; a running job is stopped, shrunk or grown towards it.

// DeadlineAnswer returns what the policy says of a job's deadline.
func (e *Engine) DeadlineAnswer(id cluster.JobID) job.DeadlineAnswer {
	if j := e.job(id); j != nil && j.Target != nil {
		return j.Target.Deadline
	}
	return job.DeadlineUnanswered
}

// makePlan asks the policy for targets and sets out for them.
func (e *Engine) makePlan() {
	jobs, targets, ok := e.plan.Make()
	if !ok {
		return
	}
	e.stats.Plans++
	for i := range jobs {
		if t := &targets[i]; t.Move && jobs[i].Hosted() { // before its host leaves it the devices
			e.aim(jobs[i], t)
		}
	}
	for i := range jobs {
		e.aim(jobs[i], &targets[i])
	}
	e.running.UpdateAimed(e.plan.Aimed)
	e.plan.ListMoves()
	e.joinPlanned()
	e.plan.Dirty = false // what follows from a plan is no reason for another
	e.epoch++            // others may be victims now
	e.fresh = true
}

// aim gives a job its target.
func (e *Engine) aim(j *job.State, t *job.Target) {
	e.plan.Tidy(j, t)
	if !t.Same(j.Target) {
		e.touch(j)
		e.plan.SetTarget(j, t)
		if j.Booked() {
			e.plan.Aimed = append(e.plan.Aimed, j)
		}
	} else if j.State == job.Pending &&
		(j.Parked == job.ParkedPlan || j.Eligible && j.Asks() == j.Shape && !j.Idle() && !j.Sliced()) {
		return
	}
	switch j.State {
	case job.Pending:
		e.aimPending(j)
	case job.Placed:
		if j.Idle() || e.plan.Astray(j) {
			since := j.EligibleSince
			e.unplace(j)
			e.admit(j)
			e.keepAge(j, since)
		}
	case job.Starting, job.Running:
		if e.leavesForHost(j) {
			e.stop(j, e.stops.How(j), job.Preempted, cluster.NoJob)
		} else {
			e.follow(j)
		}
	case job.Stopping, job.Done: // what it holds it leaves anyhow
	}
}

// aimPending has a waiting job ask for what its target says.
func (e *Engine) aimPending(j *job.State) {
	switch {
	case j.Eligible && (j.Idle() || j.Sliced()):
		e.dequeue(j)
		j.Parked = job.ParkedPlan
	case j.Eligible:
		if j.Asks() == j.Shape && e.line.Item(j) == j.Key {
			return
		}
		since := j.EligibleSince
		e.dequeue(j)
		e.lineUp(j)
		e.keepAge(j, since)
	case j.Parked == job.ParkedPlan && !j.Idle() && !j.Sliced():
		e.admit(j)
	}
}

// keepAge gives a job that is in line again the age that it had.
func (e *Engine) keepAge(j *job.State, since cluster.Time) {
	if j.Eligible && j.EligibleSince != since {
		e.dequeue(j)
		j.EligibleSince = since
		e.lineUp(j)
	}
}

// ask sets what a job that comes into line asks for.
func (e *Engine) ask(j *job.State) {
	if !e.plan.Active() {
		return
	}
	if j.Home != nil && e.plan.Estranged(j) { // its memory is not where it is to run
		j.Thaw()
	}
	e.reshape(j, j.Asks())
}

// reshape has a waiting job ask for something else.
func (e *Engine) reshape(j *job.State, shape int32) {
	if shape == j.Shape {
		return
	}
	j.Shape, j.Promise, j.Plan = shape, cluster.Never, nil // its tasks are others
	s := e.shapes.At(shape)
	j.Milli, j.Tasks, j.Devices = e.w.AskedMilli(j), s.Max, int32(s.Devices(int(s.Max)))
}

// follow has a running job go where its target is: it stops if it is to have
// nothing, or another model; it gives back what it has too much. It reports
// whether the job was told anything. Growing waits for the end of the pass.
func (e *Engine) follow(j *job.State) bool {
	t := j.Target
	if t == nil || j.Planless() || j.State != job.Starting && j.State != job.Running {
		return false
	}
	switch {
	case j.Idle() || e.plan.Astray(j):
		if !e.victims.MayStop(j) {
			return false // when its minimum run time is over, it follows
		}
		e.stop(j, e.stops.How(j), job.Preempted, cluster.NoJob)
	case t.Tasks > 0 && int(j.Tasks) > t.Tasks && j.State == job.Running && !j.Resizing:
		return e.cutTo(j, t.Tasks)
	default:
		return false
	}
	return true
}

// cutTo shrinks a running job to so many tasks of its first set.
func (e *Engine) cutTo(j *job.State, tasks int) bool {
	keep := append([]inventory.Alloc(nil), j.Allocs...)
	var gone []inventory.Alloc
	for n := int(j.Tasks); n > tasks; n-- {
		g := inventory.SplitTask(&keep, &e.shapes.Get(j.Shape).Sets[0].Request)
		if g == nil {
			break
		}
		e.st.ReleaseAll(g)
		gone = append(gone, g...)
	}
	e.st.Commit()
	e.shrink(j, keep, gone)
	if len(gone) > 0 {
		e.running.Update(j)
	}
	return len(gone) > 0
}
