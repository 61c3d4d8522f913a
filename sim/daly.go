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
	tau := young(delta, m)*(1+math.Sqrt(part)/3+part/9) - delta
	return time.Duration(math.Round(tau*1000)) * time.Millisecond
}

// young is that interval to the first order, in seconds.
func young(cost, mtbf float64) float64 { return math.Sqrt(2 * cost * mtbf) }

// Waste is the part of a job's time that goes to checkpoints at such an interval, and to
// failures: what is done again, and restarts (C-checkpoint, first order); at most all.
func Waste(every, cost, restart, mtbf time.Duration) float64 {
	if every <= 0 || mtbf <= 0 {
		return 0
	}
	return min(1, cost.Seconds()/every.Seconds()+(every.Seconds()/2+restart.Seconds())/mtbf.Seconds())
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
