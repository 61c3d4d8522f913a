package pending

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/engine/job"
)

// Deps tracks which jobs wait for which others. Its maps are looked up, never ranged over.
type Deps struct {
	Jobs  func() []*job.State // by number; nil where there is none
	Admit func(j *job.State)  // has a job that waits be looked at again
	Touch func(j *job.State)  // notes that a job's record changes

	waiting map[cluster.JobID][]cluster.JobID // jobs that wait for the end of the key
	arrays  map[cluster.JobID]*array
	singles map[cluster.JobID][]cluster.JobID // for a singleton: the earlier jobs of its name and user
	groups  map[several]*group                // of several jobs at once, while one of them is not done
	members map[cluster.JobID][]*group        // in which groups a job is that is not done
}

// array is the elements of an array of which only so many run at once.
type array struct {
	active  int // elements that are eligible or hold devices
	waiting []cluster.JobID
}

// NewDeps returns the dependencies of no jobs.
func NewDeps(jobs func() []*job.State, admit, touch func(j *job.State)) Deps {
	return Deps{Jobs: jobs, Admit: admit, Touch: touch,
		waiting: map[cluster.JobID][]cluster.JobID{}, arrays: map[cluster.JobID]*array{},
		singles: map[cluster.JobID][]cluster.JobID{}, groups: map[several]*group{},
		members: map[cluster.JobID][]*group{}}
}

func (d *Deps) job(id cluster.JobID) *job.State {
	if jobs := d.Jobs(); id >= 0 && int(id) < len(jobs) {
		return jobs[id]
	}
	return nil
}

// Join registers a new job with the jobs for whose end it waits.
func (d *Deps) Join(j *job.State) {
	id := j.Spec.ID
	for i := range j.Spec.After {
		if dep := &j.Spec.After[i]; dep.Type != cluster.Singleton {
			d.waitFor(dep, id)
			continue
		}
		for _, o := range d.Jobs()[:id] { // rare enough for a scan
			if o != nil && o.State != job.Done && o.User == j.User && o.Spec.Name == j.Spec.Name {
				d.singles[id] = append(d.singles[id], o.Spec.ID)
				d.waiting[o.Spec.ID] = with(d.waiting[o.Spec.ID], id)
			}
		}
	}
}

// Rejoin registers a restored job. The jobs for which a singleton waits are fixed when it comes: jobs may have got
// other names since.
func (d *Deps) Rejoin(j *job.State, singles []cluster.JobID) {
	id := j.Spec.ID
	for i := range j.Spec.After {
		if dep := &j.Spec.After[i]; dep.Type != cluster.Singleton {
			d.waitFor(dep, id)
		}
	}
	for _, o := range singles {
		earlier := d.job(o)
		if earlier == nil {
			continue // over, and forgotten
		}
		d.singles[id] = append(d.singles[id], o)
		if earlier.State != job.Done {
			d.waiting[o] = with(d.waiting[o], id)
		}
	}
	if j.InArray && j.Spec.Array != nil {
		d.array(j.Spec.Array.ID).active++
	}
}

// Quit is the inverse of Join.
func (d *Deps) Quit(j *job.State) {
	id := j.Spec.ID
	for i := range j.Spec.After {
		switch dep := &j.Spec.After[i]; {
		case dep.Type == cluster.Singleton:
		case dep.Elements <= 1:
			d.waiting[dep.Job] = without(d.waiting[dep.Job], id)
		default:
			if g := d.groups[several{dep.Job, dep.Last()}]; g != nil {
				g.waiters = without(g.waiters, id)
			}
		}
	}
	for _, o := range d.singles[id] {
		d.waiting[o] = without(d.waiting[o], id)
	}
	delete(d.singles, id)
}

// Singles lists the earlier jobs for which a singleton waits.
func (d *Deps) Singles(id cluster.JobID) []cluster.JobID { return d.singles[id] }

// Waiting lists the elements of an array that wait for a place in it.
func (d *Deps) Waiting(arrayID cluster.JobID) []cluster.JobID {
	if a := d.arrays[arrayID]; a != nil {
		return a.waiting
	}
	return nil
}

// AwaitArray has elements of an array wait for a place in it.
func (d *Deps) AwaitArray(arrayID cluster.JobID, elements ...cluster.JobID) {
	a := d.array(arrayID)
	a.waiting = append(a.waiting, elements...)
}

// array returns what is known of an array.
func (d *Deps) array(id cluster.JobID) *array {
	a := d.arrays[id]
	if a == nil {
		a = &array{}
		d.arrays[id] = a
	}
	return a
}

// EnterArray takes one of the places of the job's array, or waits for one.
func (d *Deps) EnterArray(j *job.State) bool {
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

// LeaveArray gives the job's place in its array to the next element; a job that waits for a place will ask again.
func (d *Deps) LeaveArray(j *job.State) {
	if !j.InArray {
		if j.Parked == job.ParkedArray {
			a := d.arrays[j.Spec.Array.ID]
			a.waiting = without(a.waiting, j.Spec.ID)
		}
		return
	}
	d.Touch(j)
	j.InArray = false
	a := d.arrays[j.Spec.Array.ID]
	a.active--
	for n := len(a.waiting); n > 0 && a.active < j.Spec.Array.Cap; n-- { // each at most once: its own cap may be lower
		next := d.Jobs()[a.waiting[0]]
		a.waiting = a.waiting[1:]
		if next.State == job.Pending && next.Parked == job.ParkedArray {
			d.Admit(next)
		}
	}
}

// Ended tells those that waited for a job's end.
func (d *Deps) Ended(j *job.State) {
	d.LeaveArray(j)
	id := j.Spec.ID
	waiting, groups := d.waiting[id], d.members[id]
	delete(d.waiting, id)
	delete(d.members, id)
	d.wake(waiting)
	for _, g := range groups {
		d.left(g, j)
	}
}

// Began tells those that wait for a job's start.
func (d *Deps) Began(j *job.State) {
	id := j.Spec.ID
	d.wake(d.waiting[id])
	for _, g := range d.members[id] {
		if g.idle--; g.idle == 0 {
			d.wake(g.waiters)
		}
	}
}

// wake has jobs looked at again that may wait for others.
func (d *Deps) wake(ids []cluster.JobID) {
	for _, id := range ids {
		j := d.Jobs()[id]
		if j.State == job.Pending && !j.Eligible && j.Parked != job.ParkedHold && j.Parked != job.ParkedBegin &&
			j.Parked != job.ParkedArray && j.Parked != job.ParkedPlan {
			d.Admit(j)
		}
	}
}

// Condition says how a dependency stands.
type Condition uint8

// The conditions.
const (
	Unmet Condition = iota // it may hold later
	Met
	Lost // it can no longer hold
)

// Holds reports whether a job's dependencies hold (NotParked), or never will. For each of which only a delay is waited
// for, later is called with when that is over.
func (d *Deps) Holds(j *job.State, now cluster.Time, later func(at cluster.Time)) (park job.Parked, never bool) {
	gone, one := 0, false
	for i := range j.Spec.After {
		dep := &j.Spec.After[i]
		v, at := d.Stands(j, dep, now)
		if at != cluster.Never {
			later(at)
		}
		switch v {
		case Met:
			one = true
		case Lost:
			gone++
		case Unmet:
			if park = job.ParkedDependency; dep.Type == cluster.Singleton {
				park = job.ParkedSingleton
			}
		}
	}
	if j.Spec.AnyOf {
		if one {
			return job.NotParked, false
		}
		return park, gone > 0 && gone == len(j.Spec.After)
	}
	return park, gone > 0
}

// Stands says how a condition stands, and when it will hold if only a delay is waited for; Never: something else is.
func (d *Deps) Stands(j *job.State, dep *cluster.Dependency, now cluster.Time) (Condition, cluster.Time) {
	if dep.Type == cluster.Singleton {
		for _, id := range d.singles[j.Spec.ID] {
			if d.Jobs()[id].State != job.Done {
				return Unmet, cluster.Never
			}
		}
		return Met, cluster.Never
	}
	var g group
	if dep.Elements > 1 {
		g = *d.group(dep)
	} else if o := d.job(dep.Job); o == nil {
		g.unknown = 1
	} else if g.failed = count(o.State == job.Done && o.Reason != job.Completed); o.State != job.Done {
		g.live, g.idle = 1, count(!o.Began())
	}
	switch {
	case g.unknown > 0, dep.Type == cluster.AfterOK && g.failed > 0:
		return Lost, cluster.Never
	case dep.Type == cluster.AfterStart && g.idle > 0, dep.Type != cluster.AfterStart && g.live > 0:
		return Unmet, cluster.Never
	case dep.Type == cluster.AfterNotOK && g.failed == 0:
		return Lost, cluster.Never
	}
	at := d.delayed(dep)
	if at > now {
		return Unmet, at
	}
	return Met, cluster.Never
}

// delayed is when the last of a dependency's jobs, which all began or are done, will have begun a delay ago.
func (d *Deps) delayed(dep *cluster.Dependency) (at cluster.Time) {
	if dep.Delay == 0 {
		return 0
	}
	for id := dep.Job; id <= dep.Last(); id++ {
		if o := d.Jobs()[id]; o.FirstStart != cluster.Never {
			at = max(at, o.FirstStart.Add(dep.Delay))
		}
	}
	return at
}

// Wakes reports whether a job that is not done will have a job looked at again.
func (d *Deps) Wakes(id cluster.JobID) bool {
	for _, o := range d.Jobs() {
		if o == nil || o.State == job.Done {
			continue
		}
		if slices.Contains(d.waiting[o.Spec.ID], id) ||
			slices.ContainsFunc(d.members[o.Spec.ID], func(g *group) bool { return slices.Contains(g.waiters, id) }) {
			return true
		}
	}
	return false
}

// Check compares what is kept with the jobs: it is slow, and for tests.
func (d *Deps) Check() error {
	active := map[cluster.JobID]int{} // looked up only
	for _, j := range d.Jobs() {
		if j != nil && j.InArray {
			active[j.Spec.Array.ID]++
		}
	}
	fresh := Deps{Jobs: d.Jobs, groups: map[several]*group{}, members: map[cluster.JobID][]*group{}}
	for _, j := range d.Jobs() {
		if j == nil {
			continue
		}
		if s := j.Spec.Array; s != nil {
			a := cmp.Or(d.arrays[s.ID], &array{active: active[s.ID]})
			switch {
			case a.active != active[s.ID]:
				return fmt.Errorf("array %d has %d active elements, recomputed %d", s.ID, a.active, active[s.ID])
			case j.State == job.Pending && j.Parked == job.ParkedArray &&
				(a.active == 0 || !slices.Contains(a.waiting, j.Spec.ID)):
				return fmt.Errorf("job %d: its array will not wake it", j.Spec.ID)
			}
		}
		for i := range j.Spec.After {
			dep := &j.Spec.After[i]
			g := d.groups[several{dep.Job, dep.Last()}]
			if dep.Elements <= 1 || g == nil || j.State == job.Done {
				continue
			}
			if n := fresh.group(dep); n.live != g.live || n.failed != g.failed || n.idle != g.idle ||
				n.unknown != g.unknown {
				return fmt.Errorf("jobs %d to %d: %d live, %d failed, %d idle, %d unknown; recomputed %d, %d, %d, %d",
					dep.Job, dep.Last(), g.live, g.failed, g.idle, g.unknown, n.live, n.failed, n.idle, n.unknown)
			}
		}
	}
	return nil
}

// with adds a job in the order of numbers: a job that has other dependencies now is told no later than if it had had
// them from the start.
func with(ids []cluster.JobID, id cluster.JobID) []cluster.JobID {
	at := len(ids)
	for at > 0 && ids[at-1] > id {
		at--
	}
	return slices.Insert(ids, at, id)
}

func without(ids []cluster.JobID, id cluster.JobID) []cluster.JobID {
	if i := slices.Index(ids, id); i >= 0 {
		return append(ids[:i], ids[i+1:]...)
	}
	return ids
}

func count(is bool) int {
	if is {
		return 1
	}
	return 0
}
