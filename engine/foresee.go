package engine

import (
	"cmp"
	"slices"
	"time"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/engine/job"
	"github.com/muster-gpu/muster/engine/order"
	"github.com/muster-gpu/muster/engine/reserve"
	"github.com/muster-gpu/muster/engine/shape"
)

// What a minimum run time only delays is foreseen: a job that comes before
// running ones in the order gets their devices as soon as they have run for that
// long. For looking, such jobs are listed as if they ended then.

// sooner is a running job that leaves before its expected end.
type sooner struct {
	victim
	at   cluster.Time
	safe bool // until then
}

// protected lists those who would have to leave for the job if they had run for
// long enough, and the first time at which one has.
func (e *Engine) protected(j *job.State, s *shape.Shape) (list []sooner, from cluster.Time) {
	if e.cfg.MinRuntime == 0 {
		return nil, cluster.Never
	}
	list, from = e.comeAfter(j, s)
	return slices.DeleteFunc(list, func(x sooner) bool { return !x.safe }), from
}

// comeAfter lists the running jobs whose devices the job may take now or once
// their minimum run time is over, soonest first; none if no minimum run time
// stands between them and it.
func (e *Engine) comeAfter(j *job.State, s *shape.Shape) (list []sooner, from cluster.Time) {
	reclaim := e.limits.byQueue && j.Milli > 0 && e.line.Entitled(j)
	lacks := e.lacksQuota(j)
	from = cluster.Never
	e.byKey().Walk(func(it order.Item) bool {
		v := e.jobs[it.ID]
		at := e.safeUntil(j, v)
		key0 := j.Key.Key[0]
		if e.w.Traits.Falling {
			key0 = order.AddSat(key0, int64(max(at, e.w.Now))) // the victim is closer to its end by then
		}
		if x, ok := e.after(j, v, key0, reclaim); ok && e.useful(s, v, lacks) {
			list = append(list, sooner{x, at, at > e.w.Now})
			if at > e.w.Now {
				from = min(from, at)
			}
		}
		return true
	})
	if from == cluster.Never {
		return nil, from
	}
	for i := range list {
		list[i].at = max(list[i].at, from) // with whom it could leave already, the job does not fit
	}
	slices.SortFunc(list, func(a, b sooner) int {
		return cmp.Or(cmp.Compare(a.at, b.at), cmp.Compare(a.j.Spec.ID, b.j.Spec.ID))
	})
	return list, from
}

// foreseen is earliest, the minimum run times of those who come after the job
// considered.
func (e *Engine) foreseen(j *job.State) (reserve.Window, bool) {
	defer e.unforesee(e.foresee(j))
	return e.resv.Earliest(j, true)
}

// moved is a job in the list of expected ends, and where it was.
type moved struct {
	j   *job.State
	end int64
}

// foresee lists those who will leave for the job as if they ended then, until
// unforesee.
func (e *Engine) foresee(j *job.State) (out []moved) {
	if e.cfg.MinRuntime == 0 {
		return nil
	}
	list, _ := e.comeAfter(j, e.shapes.At(j.Shape))
	var gone []sooner
	for i := range list {
		x := &list[i]
		if x.only && !e.stillReclaimable(j, &x.victim) {
			continue
		}
		e.forget(x.j, 1) // the next is reclaimable only beside this one
		gone = append(gone, *x)
	}
	for i := range gone {
		v := gone[i].j
		e.forget(v, -1)
		if at := int64(gone[i].at.Add(e.leaving(v))); at < v.EndKey.Key[0] {
			out = append(out, moved{v, v.EndKey.Key[0]})
			e.listEnd(v, at)
		}
	}
	return out
}

func (e *Engine) unforesee(list []moved) {
	for i := range list {
		e.listEnd(list[i].j, list[i].end)
	}
}

// leaving is how long a job that is preempted is expected to stay: as long as
// it takes to write a checkpoint.
func (e *Engine) leaving(j *job.State) time.Duration {
	if e.howToStop(j) != job.Checkpoint || j.IgnoresCheckpoint || j.State == job.Placed {
		return 0
	}
	return min(j.Spec.Checkpoint.Cost, e.cfg.Stop[j.Spec.Tier].Grace)
}

// listEnd books when a listed job is expected to end.
func (e *Engine) listEnd(j *job.State, at int64) {
	if at == j.EndKey.Key[0] {
		return
	}
	e.ends.remove(j.EndKey)
	j.EndKey.Key[0] = at
	e.ends.insert(j.EndKey)
}
