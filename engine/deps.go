package engine

import (
	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/engine/job"
)

type arrayState struct {
	active  int // elements that are eligible or hold devices
	waiting []cluster.JobID
}

// depState tracks who waits for whom. Its maps are looked up, never ranged over.
type depState struct {
	waiting map[cluster.JobID][]cluster.JobID // jobs that wait for the end of the key
	arrays  map[cluster.JobID]*arrayState
	singles map[cluster.JobID][]cluster.JobID // for a singleton: the earlier jobs of its name and user
	groups  map[several]*depGroup             // of several jobs at once, while one of them is not done
	members map[cluster.JobID][]*depGroup     // in which groups a job is that is not done
}

func (d *depState) init() {
	d.waiting = map[cluster.JobID][]cluster.JobID{}
	d.arrays = map[cluster.JobID]*arrayState{}
	d.singles = map[cluster.JobID][]cluster.JobID{}
	d.groups, d.members = map[several]*depGroup{}, map[cluster.JobID][]*depGroup{}
}

// join registers a new job with those whose end it waits for.
func (d *depState) join(e *Engine, j *job.State) {
	id := j.Spec.ID
	for i := range j.Spec.After {
		if dep := &j.Spec.After[i]; dep.Type != cluster.Singleton {
			d.waitFor(e, dep, id)
			continue
		}
		for _, o := range e.jobs[:id] { // rare enough for a scan
			if o != nil && o.State != job.Done && o.User == j.User && o.Spec.Name == j.Spec.Name {
				d.singles[id] = append(d.singles[id], o.Spec.ID)
				d.waiting[o.Spec.ID] = with(d.waiting[o.Spec.ID], id)
			}
		}
	}
}

// rejoin registers a restored job. Whom a singleton waits for was settled when it
// came: jobs may have got other names since.
func (d *depState) rejoin(e *Engine, j *job.State, singles []cluster.JobID) {
	id := j.Spec.ID
	for i := range j.Spec.After {
		if dep := &j.Spec.After[i]; dep.Type != cluster.Singleton {
			d.waitFor(e, dep, id)
		}
	}
	for _, o := range singles {
		if e.job(o) == nil {
			continue // over, and forgotten
		}
		d.singles[id] = append(d.singles[id], o)
		if e.jobs[o].State != job.Done {
			d.waiting[o] = with(d.waiting[o], id)
		}
	}
}

// admit makes a pending job eligible, or parks it and says why.
func (e *Engine) admit(j *job.State) {
	e.touch(j)
	if e.limits.closed > 0 && e.isClosed(int(j.Queue)) {
		e.refuseClosed(j)
		return
	}
	s := j.Spec
	var park job.Parked
	switch {
	case s.Hold:
		park = job.ParkedHold
		e.deps.leaveArray(e, j) // it may have run when it was held: others go on
	case s.Begin > e.w.Now:
		park = job.ParkedBegin
		e.timers.push(timer{s.Begin, timerBegin, int32(s.ID), j.Gen})
	default:
		var never bool
		if park, never = e.dependencies(j); never {
			e.reject(j, job.NeverReady, "a dependency can no longer be satisfied")
			return
		}
	}
	if park == job.NotParked && s.Array != nil && s.Array.Cap > 0 && !e.deps.enterArray(j) {
		park = job.ParkedArray
	}
	if park == job.NotParked {
		if e.hunger(j); e.gated(j) {
			park = job.ParkedPlan
		}
	}
	if !j.Idle() { // else it is as the plan has it
		e.replan()
	}
	if j.Parked = park; park == job.NotParked {
		e.enqueue(j)
	}
}

// hunger sets the time at which the job will have waited too long. Time for
// which it was held, or waited for others' ends, does not count; a placement
// that was taken back does not interrupt the waiting.
func (e *Engine) hunger(j *job.State) {
	if e.cfg.HoldAfter > 0 {
		j.StarvingSince = min(j.StarvingSince, e.w.Now)
	}
	if e.cfg.Starvation == 0 || j.Promoted || e.w.Divided(j) {
		return
	}
	j.StarvingSince = min(j.StarvingSince, e.w.Now)
	at := j.StarvingSince.Add(e.cfg.Starvation)
	if at <= e.w.Now {
		j.Promoted = true
		return
	}
	e.timers.push(timer{at, timerStarving, int32(j.Spec.ID), j.Gen})
}

// array returns what is known of an array.
func (d *depState) array(id cluster.JobID) *arrayState {
	a := d.arrays[id]
	if a == nil {
		a = &arrayState{}
		d.arrays[id] = a
	}
	return a
}

// enterArray takes one of the array's places, or waits for one.
func (d *depState) enterArray(j *job.State) bool {
	if j.InArray {
		return true // it was stopped and kept its place
	}
	a := d.array(j.Spec.Array.ID)
	if a.active >= j.Spec.Array.Cap {
		a.waiting = append(a.waiting, j.Spec.ID)
		return false
	}
	a.active++
	j.InArray = true
	return true
}

// leaveArray gives the job's place in its array to the next element; one that
// waits for a place will ask anew.
func (d *depState) leaveArray(e *Engine, j *job.State) {
	if !j.InArray {
		if j.Parked == job.ParkedArray {
			a := d.arrays[j.Spec.Array.ID]
			a.waiting = without(a.waiting, j.Spec.ID)
		}
		return
	}
	e.touch(j)
	j.InArray = false
	a := d.arrays[j.Spec.Array.ID]
	a.active--
	for n := len(a.waiting); n > 0 && a.active < j.Spec.Array.Cap; n-- { // each at most once: its own cap may be lower
		next := e.jobs[a.waiting[0]]
		a.waiting = a.waiting[1:]
		if next.State == job.Pending && next.Parked == job.ParkedArray {
			e.admit(next)
		}
	}
}

// leave tells those that waited for a job's end.
func (d *depState) leave(e *Engine, j *job.State) {
	d.leaveArray(e, j)
	id := j.Spec.ID
	waiting, groups := d.waiting[id], d.members[id]
	delete(d.waiting, id)
	delete(d.members, id)
	for _, w := range waiting {
		e.readmit(e.jobs[w])
	}
	for _, g := range groups {
		g.left(e, j)
	}
}

func (e *Engine) readmit(j *job.State) {
	if j.State == job.Pending && !j.Eligible && j.Parked != job.ParkedHold && j.Parked != job.ParkedBegin &&
		j.Parked != job.ParkedArray && j.Parked != job.ParkedPlan {
		e.admit(j)
	}
}
