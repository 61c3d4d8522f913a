package engine

import (
	"time"

	"github.com/muster-gpu/muster/engine/job"
	"github.com/muster-gpu/muster/engine/preempt"
	"github.com/muster-gpu/muster/engine/reserve"
)

// What a minimum run time only delays is foreseen: a job that comes before
// running ones in the order gets their devices as soon as they have run for that
// long. For looking, such jobs are listed as if they ended then.

// foreseen is the earliest start with the minimum run times of the jobs that come after it considered.
func (e *Engine) foreseen(j *job.State) (reserve.Window, bool) {
	defer e.unforesee(e.foresee(j))
	return e.resv.Earliest(j, true)
}

// moved is a job in the list of expected ends, and where it was.
type moved struct {
	j   *job.State
	end int64
}

// foresee lists the jobs that will leave for another as if they ended then, until unforesee.
func (e *Engine) foresee(j *job.State) (out []moved) {
	if e.cfg.MinRuntime == 0 {
		return nil
	}
	list, _ := e.victims.Later(j, e.shapes.At(j.Shape))
	var gone []preempt.Later
	for i := range list {
		if x := &list[i]; e.victims.StillLeaves(x, j) {
			e.limits.Forget(x.Job()) // the next is reclaimable only beside this one
			gone = append(gone, *x)
		}
	}
	for i := range gone {
		v := gone[i].Job()
		e.limits.Remember(v)
		if at := int64(gone[i].At.Add(e.leaving(v))); at < v.EndKey.Key[0] {
			out = append(out, moved{v, v.EndKey.Key[0]})
			e.running.SetEnd(v, at)
		}
	}
	return out
}

func (e *Engine) unforesee(list []moved) {
	for i := range list {
		e.running.SetEnd(list[i].j, list[i].end)
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
