package pending

import (
	"slices"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/engine/job"
)

// several are the jobs that one dependency names, such as the elements of an array.
type several struct {
	first, last cluster.JobID
}

// group counts how several jobs stand, so that a thousand jobs that wait for an array of a thousand cost a thousand
// steps and not a million.
type group struct {
	several
	live    int // not done
	failed  int // done, and not completed
	idle    int // not done, and never started
	unknown int // forgotten
	waiters []cluster.JobID
}

// waitFor registers a job with those that a dependency names.
func (d *Deps) waitFor(dep *cluster.Dependency, id cluster.JobID) {
	if dep.Elements <= 1 {
		d.waiting[dep.Job] = with(d.waiting[dep.Job], id)
		return
	}
	g := d.group(dep)
	if _, is := slices.BinarySearch(g.waiters, id); !is {
		g.waiters = with(g.waiters, id)
	}
}

// Live counts the jobs of a dependency that are not done.
func (d *Deps) Live(dep *cluster.Dependency) int { return d.group(dep).live }

// group returns how the jobs of a dependency stand.
func (d *Deps) group(dep *cluster.Dependency) *group {
	key := several{dep.Job, dep.Last()}
	if g := d.groups[key]; g != nil {
		return g
	}
	g := &group{several: key}
	for id := key.first; id <= key.last; id++ {
		o := d.job(id)
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
	if g.live > 0 { // else nothing would tell when it can be forgotten
		d.groups[key] = g
	}
	return g
}

// left books that one of the jobs of a group is done.
func (d *Deps) left(g *group, j *job.State) {
	g.live--
	failed := j.Reason != job.Completed
	g.failed += count(failed)
	if !j.Began() {
		g.idle--
	}
	if g.live == 0 {
		delete(d.groups, g.several)
	}
	if g.live == 0 || g.idle == 0 && !j.Began() || failed && g.failed == 1 {
		d.wake(g.waiters)
	}
}
