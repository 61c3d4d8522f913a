package preempt

import (
	"cmp"
	"slices"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/engine/job"
	"github.com/muster-gpu/muster/engine/order"
	"github.com/muster-gpu/muster/engine/shape"
)

// Later is a running job that leaves for another before its expected end.
type Later struct {
	victim
	At   cluster.Time
	safe bool // until then
}

// Job is the job that leaves.
func (x *Later) Job() *job.State { return x.j }

// Protects reports whether jobs are protected after each start, so that others may get their devices later.
func (f *Finder) Protects() bool { return f.rules.MinRuntime > 0 }

// MayStop reports whether a running job has had its minimum run time. When its time
// limit strikes in this very step, that is why it stops.
func (f *Finder) MayStop(j *job.State) bool {
	return j.Started.Add(f.rules.MinRuntime) <= f.world.Now && (j.LimitAt <= 0 || j.LimitAt > f.world.Now)
}

// StillLeaves asks again, when others have left.
func (f *Finder) StillLeaves(x *Later, j *job.State) bool {
	return !x.only || f.stillReclaimable(j, &x.victim)
}

// Protected lists the jobs that would have to leave for another if they had run for long enough, and the first time at
// which one has.
func (f *Finder) Protected(j *job.State, s *shape.Shape) (list []Later, from cluster.Time) {
	if f.rules.MinRuntime == 0 {
		return nil, cluster.Never
	}
	list, from = f.Later(j, s)
	return slices.DeleteFunc(list, func(x Later) bool { return !x.safe }), from
}

// Later lists the running jobs whose devices the job may take now or once
// their minimum run time is over, soonest first; none if no minimum run time
// stands between them and it.
func (f *Finder) Later(j *job.State, s *shape.Shape) (list []Later, from cluster.Time) {
	reclaim := f.world.QueuesMatter && j.Milli > 0 && f.entitled(j)
	lacks := f.limits.Lacks(j)
	from = cluster.Never
	f.places.Around.Running().Walk(func(it order.Item) bool {
		v := f.job(it.ID)
		at := f.safeUntil(j, v)
		key0 := j.Key.Key[0]
		if f.world.Traits.Falling {
			key0 = order.AddSat(key0, int64(max(at, f.world.Now))) // the victim is closer to its end by then
		}
		if x, ok := f.after(j, v, key0, reclaim); ok && f.Useful(s, v, lacks) {
			list = append(list, Later{x, at, at > f.world.Now})
			if at > f.world.Now {
				from = min(from, at)
			}
		}
		return true
	})
	if from == cluster.Never {
		return nil, from
	}
	for i := range list {
		list[i].At = max(list[i].At, from) // what could leave already is not enough
	}
	slices.SortFunc(list, func(a, b Later) int {
		return cmp.Or(cmp.Compare(a.At, b.At), cmp.Compare(a.j.Spec.ID, b.j.Spec.ID))
	})
	return list, from
}
