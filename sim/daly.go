package sim

import (
	"math"
	"time"

	"github.com/muster-gpu/muster/cluster"
)

// Daly is the work between two checkpoints that loses least in all, to writing them
// and to failures, for what one costs and the mean time between failures of the job:
// Daly's expansion (C-checkpoint), to the millisecond.
func Daly(cost, mtbf time.Duration) time.Duration {
	if cost >= mtbf/2 {
		return mtbf
	}
	delta, m := cost.Seconds(), mtbf.Seconds()
	part := delta / (2 * m)
	tau := math.Sqrt(2*delta*m)*(1+math.Sqrt(part)/3+part/9) - delta
	return time.Duration(math.Round(tau*1000)) * time.Millisecond
}

// JobMTBF is the mean time between failures of a job: any of its GPUs, and of its nodes,
// fails for it. A task counts as a node; 0: nothing fails.
func (o *Options) JobMTBF(j *cluster.Job) time.Duration {
	rate := 0.0
	if o.NodeMTBF > 0 {
		tasks := 0
		for i := range j.Tasks {
			tasks += j.Tasks[i].Count
		}
		rate += float64(tasks) / o.NodeMTBF.Seconds()
	}
	if o.GPUMTBF > 0 {
		rate += float64(j.GPUs()) / o.GPUMTBF.Seconds()
	}
	if rate == 0 {
		return 0
	}
	return min(time.Duration(math.Round(1000/rate))*time.Millisecond, cluster.MaxDuration)
}
