package explain

import (
	"time"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/engine/job"
	"github.com/muster-gpu/muster/engine/order"
	"github.com/muster-gpu/muster/engine/preempt"
	"github.com/muster-gpu/muster/engine/reserve"
)

// MostAhead bounds how many jobs ahead of one are promised a start before it.
const MostAhead = 64

// Waiting is a job in line. Expected is Never beyond the first ones, and where
// no start is in sight.
type Waiting struct {
	Job      cluster.JobID
	Expected cluster.Time
}

// Line lists the jobs that could start if there were room, in the order in
// which a pass considers them, and says when the first most of them (at most as
// many as Why looks ahead) are expected to start.
func (x *Explainer) Line(most int) []Waiting {
	list := x.line.Order()
	out := make([]Waiting, len(list))
	for i, j := range list {
		out[i] = Waiting{j.Spec.ID, cluster.Never}
	}
	for i := range min(most, MostAhead, len(list)) {
		out[i].Expected = x.expectedStart(list[i], list[:i])
	}
	return out
}

// expectedStart promises starts to the jobs ahead, then to the job itself.
func (x *Explainer) expectedStart(j *job.State, before []*job.State) cluster.Time {
	defer x.reserved.Aside()()
	s := x.world.Shapes.At(j.Shape)
	ends := x.foresee(j)
	first := x.limits.FreeAt(j, x.jobs(), x.running.ByEnd(), x.world.EndOf)
	x.unforesee(ends)
	for i, o := range before {
		if i == MostAhead {
			break
		}
		if r, ok := x.Earliest(o); ok {
			x.reserved.Add(r)
			if x.strict && x.reserved.MeetsOne(s, &r) {
				first = max(first, r.At) // nothing passes it
			}
		}
	}
	r, ok := x.Earliest(j)
	if at := max(first, r.At); ok && !reserve.OutOfSight(x.world.Now, at) {
		return at
	}
	return cluster.Never
}

// workAhead is when the work of those ahead would be done if it were a fluid
// that fills every GPU as running jobs leave it: behind a long queue, a start
// before it is not to be expected (jobs of unknown length count as nothing).
func (x *Explainer) workAhead(before []*job.State) cluster.Time {
	var work int64 // milli-GPU-seconds
	for _, o := range before {
		if d := o.ExpectedRun(x.world.LimitOf(o)); d < cluster.MaxDuration {
			work += o.Milli * int64(d/time.Second)
		}
	}
	free, at := x.world.Capacity, x.world.Now
	x.running.ByKey().Walk(func(it order.Item) bool { free -= x.jobs()[it.ID].Milli; return true })
	done := false
	x.running.ByEnd().Walk(func(it order.Item) bool {
		v := x.jobs()[it.ID]
		end := x.world.EndOf(v)
		if could := max(0, free) * int64(end.Sub(at)/time.Second); could >= work {
			done = true
			return false
		} else if end > at {
			work, at = work-could, end
		}
		free += v.Milli
		return true
	})
	if free <= 0 && !done {
		return at
	}
	return at.Add(time.Duration(work/max(1, free)) * time.Second)
}

// What a minimum run time only delays is foreseen: a job that comes before
// running ones in the order gets their devices as soon as they have run for that
// long. For looking, such jobs are listed as if they ended then.

// moved is a job in the list of expected ends, and where it was.
type moved struct {
	j   *job.State
	end int64
}

// Earliest is the earliest start with the minimum run times of the jobs that come after it considered.
func (x *Explainer) Earliest(j *job.State) (reserve.Window, bool) {
	defer x.unforesee(x.foresee(j))
	return x.reserved.Earliest(j, true)
}

// foresee lists the jobs that will leave for another as if they ended then, until unforesee.
func (x *Explainer) foresee(j *job.State) (out []moved) {
	if !x.victims.Protects() {
		return nil
	}
	list, _ := x.victims.Later(j, x.world.Shapes.At(j.Shape))
	var gone []preempt.Later
	for i := range list {
		if v := &list[i]; x.victims.StillLeaves(v, j) {
			x.limits.Forget(v.Job()) // the next is reclaimable only beside this one
			gone = append(gone, *v)
		}
	}
	for i := range gone {
		v := gone[i].Job()
		x.limits.Remember(v)
		if at := int64(gone[i].At.Add(x.leaving(v))); at < v.EndKey.Key[0] {
			out = append(out, moved{v, v.EndKey.Key[0]})
			x.running.SetEnd(v, at)
		}
	}
	return out
}

func (x *Explainer) unforesee(list []moved) {
	for i := range list {
		x.running.SetEnd(list[i].j, list[i].end)
	}
}

// leaving is how long a job that is preempted is expected to stay: as long as
// it takes to write a checkpoint.
func (x *Explainer) leaving(j *job.State) time.Duration {
	if x.world.Oracle.HowToStop(j) != job.Checkpoint || j.IgnoresCheckpoint || j.State == job.Placed {
		return 0
	}
	return min(j.Spec.Checkpoint.Cost, x.world.Oracle.Grace(j.Spec.Tier))
}
