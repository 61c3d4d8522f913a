package engine

import (
	"slices"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/engine/job"
)

// several are the jobs that one dependency names, such as the elements of an array.
type several struct {
	first, last cluster.JobID
}

// depGroup counts how several jobs stand, so that a thousand jobs that wait for
// an array of a thousand cost a thousand steps and not a million.
type depGroup struct {
	several
	live    int // not done
	failed  int // done, and not completed
	idle    int // not done, and never started
	unknown int // forgotten
	waiters []cluster.JobID
}

// waitFor registers a job with those that a dependency names.
func (d *depState) waitFor(e *Engine, dep *cluster.Dependency, id cluster.JobID) {
	if dep.Elements <= 1 {
		d.waiting[dep.Job] = with(d.waiting[dep.Job], id)
		return
	}
	g := d.group(e, dep)
	if _, is := slices.BinarySearch(g.waiters, id); !is {
		g.waiters = with(g.waiters, id)
	}
}

// with adds a job in the order of numbers: whoever has other dependencies now is
// told no later than if it had had them from the start.
func with(ids []cluster.JobID, id cluster.JobID) []cluster.JobID {
	at := len(ids)
	for at > 0 && ids[at-1] > id {
		at--
	}
	return slices.Insert(ids, at, id)
}

// quit is the inverse of join.
func (d *depState) quit(j *job.State) {
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

// group returns how the jobs of a dependency stand.
func (d *depState) group(e *Engine, dep *cluster.Dependency) *depGroup {
	key := several{dep.Job, dep.Last()}
	if g := d.groups[key]; g != nil {
		return g
	}
	g := &depGroup{several: key}
	for id := key.first; id <= key.last; id++ {
		o := e.job(id)
		switch {
		case o == nil:
			g.unknown++
		case o.State == job.Done:
			g.failed += count(o.Reason != job.Completed)
		default:
			g.live++
			g.idle += count(!o.Began())
			d.members[id] = append(d.members[id], g)
		}
	}
	if g.live > 0 { // else nobody would tell when it can be forgotten
		d.groups[key] = g
	}
	return g
}

func count(is bool) int {
	if is {
		return 1
	}
	return 0
}

// began tells those that wait for a job's start.
func (d *depState) began(e *Engine, j *job.State) {
	id := j.Spec.ID
	for _, w := range d.waiting[id] {
		e.readmit(e.jobs[w])
	}
	for _, g := range d.members[id] {
		if g.idle--; g.idle == 0 {
			g.wake(e)
		}
	}
}

// left books that one of the jobs is done.
func (g *depGroup) left(e *Engine, j *job.State) {
	g.live--
	failed := j.Reason != job.Completed
	g.failed += count(failed)
	if !j.Began() {
		g.idle--
	}
	if g.live == 0 {
		delete(e.deps.groups, g.several)
	}
	if g.live == 0 || g.idle == 0 && !j.Began() || failed && g.failed == 1 {
		g.wake(e)
	}
}

func (g *depGroup) wake(e *Engine) {
	for _, id := range g.waiters {
		e.readmit(e.jobs[id])
	}
}

// condition says how a dependency stands.
type condition uint8

const (
	unmet condition = iota // it may hold later
	met
	lost // it can no longer hold
)

// dependencies reports whether a job's dependencies hold, or never will. Those
// that a delay is waited for have a timer afterwards.
func (e *Engine) dependencies(j *job.State) (job.Parked, bool) {
	park, gone, one := job.NotParked, 0, false
	for i := range j.Spec.After {
		d := &j.Spec.After[i]
		v, at := e.dependency(j, d)
		e.timers.push(timer{at, timerBegin, int32(j.Spec.ID), j.Gen})
		switch v {
		case met:
			one = true
		case lost:
			gone++
		case unmet:
			if park = job.ParkedDependency; d.Type == cluster.Singleton {
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

// dependency says how a condition stands, and when it will hold if only a delay
// is waited for; Never: something else is.
func (e *Engine) dependency(j *job.State, d *cluster.Dependency) (condition, cluster.Time) {
	if d.Type == cluster.Singleton {
		for _, id := range e.deps.singles[j.Spec.ID] {
			if e.jobs[id].State != job.Done {
				return unmet, cluster.Never
			}
		}
		return met, cluster.Never
	}
	var g depGroup
	if d.Elements > 1 {
		g = *e.deps.group(e, d)
	} else if o := e.job(d.Job); o == nil {
		g.unknown = 1
	} else if g.failed = count(o.State == job.Done && o.Reason != job.Completed); o.State != job.Done {
		g.live, g.idle = 1, count(!o.Began())
	}
	switch {
	case g.unknown > 0, d.Type == cluster.AfterOK && g.failed > 0:
		return lost, cluster.Never
	case d.Type == cluster.AfterStart && g.idle > 0, d.Type != cluster.AfterStart && g.live > 0:
		return unmet, cluster.Never
	case d.Type == cluster.AfterNotOK && g.failed == 0:
		return lost, cluster.Never
	}
	at := e.delayed(d)
	if at > e.w.Now {
		return unmet, at
	}
	return met, cluster.Never
}

// delayed is when the last of a dependency's jobs, which all began or are done,
// will have begun a delay ago.
func (e *Engine) delayed(d *cluster.Dependency) (at cluster.Time) {
	if d.Delay == 0 {
		return 0
	}
	for id := d.Job; id <= d.Last(); id++ {
		if o := e.jobs[id]; o.FirstStart != cluster.Never {
			at = max(at, o.FirstStart.Add(d.Delay))
		}
	}
	return at
}
