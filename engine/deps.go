package engine

import (
	"github.com/muster-gpu/muster/cluster"
)

// Parked says why a pending job is not considered at all.
type Parked uint8

// The reasons for which a job is parked.
const (
	NotParked Parked = iota
	ParkedHold
	ParkedBegin
	ParkedDependency
	ParkedArray
	ParkedSingleton
	ParkedPlan // the policy's plan gives it nothing now
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
func (d *depState) join(e *Engine, j *jobState) {
	id := j.spec.ID
	for i := range j.spec.After {
		if dep := &j.spec.After[i]; dep.Type != cluster.Singleton {
			d.waitFor(e, dep, id)
			continue
		}
		for _, o := range e.jobs[:id] { // rare enough for a scan
			if o != nil && o.state != Done && o.user == j.user && o.spec.Name == j.spec.Name {
				d.singles[id] = append(d.singles[id], o.spec.ID)
				d.waiting[o.spec.ID] = with(d.waiting[o.spec.ID], id)
			}
		}
	}
}

// rejoin registers a restored job. Whom a singleton waits for was settled when it
// came: jobs may have got other names since.
func (d *depState) rejoin(e *Engine, j *jobState, singles []cluster.JobID) {
	id := j.spec.ID
	for i := range j.spec.After {
		if dep := &j.spec.After[i]; dep.Type != cluster.Singleton {
			d.waitFor(e, dep, id)
		}
	}
	for _, o := range singles {
		if e.job(o) == nil {
			continue // over, and forgotten
		}
		d.singles[id] = append(d.singles[id], o)
		if e.jobs[o].state != Done {
			d.waiting[o] = with(d.waiting[o], id)
		}
	}
}

// admit makes a pending job eligible, or parks it and says why.
func (e *Engine) admit(j *jobState) {
	e.touch(j)
	if e.limits.closed > 0 && e.isClosed(int(j.queue)) {
		e.refuseClosed(j)
		return
	}
	s := j.spec
	var park Parked
	switch {
	case s.Hold:
		park = ParkedHold
		e.deps.leaveArray(e, j) // it may have run when it was held: others go on
	case s.Begin > e.now:
		park = ParkedBegin
		e.timers.push(timer{s.Begin, timerBegin, int32(s.ID), j.gen})
	default:
		var never bool
		if park, never = e.dependencies(j); never {
			e.reject(j, NeverReady, "a dependency can no longer be satisfied")
			return
		}
	}
	if park == NotParked && s.Array != nil && s.Array.Cap > 0 && !e.deps.enterArray(j) {
		park = ParkedArray
	}
	if park == NotParked {
		if e.hunger(j); e.gated(j) {
			park = ParkedPlan
		}
	}
	if !j.idle() { // else it is as the plan has it
		e.replan()
	}
	if j.parked = park; park == NotParked {
		e.enqueue(j)
	}
}

// hunger sets the time at which the job will have waited too long. Time for
// which it was held, or waited for others' ends, does not count; a placement
// that was taken back does not interrupt the waiting.
func (e *Engine) hunger(j *jobState) {
	if e.cfg.HoldAfter > 0 {
		j.hungry = min(j.hungry, e.now)
	}
	if e.cfg.Starvation == 0 || j.promoted || e.divided(j) {
		return
	}
	j.hungry = min(j.hungry, e.now)
	at := j.hungry.Add(e.cfg.Starvation)
	if at <= e.now {
		j.promoted = true
		return
	}
	e.timers.push(timer{at, timerStarving, int32(j.spec.ID), j.gen})
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
func (d *depState) enterArray(j *jobState) bool {
	if j.inArray {
		return true // it was stopped and kept its place
	}
	a := d.array(j.spec.Array.ID)
	if a.active >= j.spec.Array.Cap {
		a.waiting = append(a.waiting, j.spec.ID)
		return false
	}
	a.active++
	j.inArray = true
	return true
}

// leaveArray gives the job's place in its array to the next element; one that
// waits for a place will ask anew.
func (d *depState) leaveArray(e *Engine, j *jobState) {
	if !j.inArray {
		if j.parked == ParkedArray {
			a := d.arrays[j.spec.Array.ID]
			a.waiting = without(a.waiting, j.spec.ID)
		}
		return
	}
	e.touch(j)
	j.inArray = false
	a := d.arrays[j.spec.Array.ID]
	a.active--
	for n := len(a.waiting); n > 0 && a.active < j.spec.Array.Cap; n-- { // each at most once: its own cap may be lower
		next := e.jobs[a.waiting[0]]
		a.waiting = a.waiting[1:]
		if next.state == Pending && next.parked == ParkedArray {
			e.admit(next)
		}
	}
}

// leave tells those that waited for a job's end.
func (d *depState) leave(e *Engine, j *jobState) {
	d.leaveArray(e, j)
	id := j.spec.ID
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

func (e *Engine) readmit(j *jobState) {
	if j.state == Pending && !j.eligible && j.parked != ParkedHold && j.parked != ParkedBegin && j.parked != ParkedArray && j.parked != ParkedPlan {
		e.admit(j)
	}
}
