package perf

import (
	"cmp"
	"fmt"
	"math"
	"time"

	"github.com/muster-gpu/muster/cluster"
)

// Daly is the work between two checkpoints that minimizes the total loss to checkpoints and
// failures, given the cost of a checkpoint and the job's mean time between failures: Daly's
// expansion (Daly 2006), to the millisecond.
func Daly(cost, mtbf time.Duration) time.Duration {
	if cost >= mtbf/2 {
		return mtbf
	}
	delta, m := cost.Seconds(), mtbf.Seconds()
	part := delta / (2 * m)
	tau := young(delta, m)*(1+math.Sqrt(part)/3+part/9) - delta
	return time.Duration(math.Round(tau*1000)) * time.Millisecond
}

// young is the first-order approximation of that interval, in seconds.
func young(cost, mtbf float64) float64 { return math.Sqrt(2 * cost * mtbf) }

// Waste is the part of a job's time that goes to checkpoints at the given interval, and to repeated
// work and restarts after failures (Daly 2006, first order); at most all of it.
func Waste(every, cost, restart, mtbf time.Duration) float64 {
	if every <= 0 || mtbf <= 0 {
		return 0
	}
	return min(1, cost.Seconds()/every.Seconds()+(every.Seconds()/2+restart.Seconds())/mtbf.Seconds())
}

// Interruptions are mean times between failures of a node and of a GPU, and between preemptions of
// a running job that lose work; 0: never.
type Interruptions struct{ Node, GPU, Preempted time.Duration }

// Of is the mean time between the interruptions of a job: it is interrupted by a failure of any of
// its GPUs or nodes (Daly 2006: 1/M = n/M_node + preemption rate). A task counts as a node; 0:
// nothing interrupts it.
func (x Interruptions) Of(j *cluster.Job) time.Duration {
	rate := 0.0
	if x.Node > 0 {
		tasks := 0
		for i := range j.Tasks {
			tasks += j.Tasks[i].Count
		}
		rate += float64(tasks) / x.Node.Seconds()
	}
	if x.GPU > 0 {
		rate += float64(j.GPUs()) / x.GPU.Seconds()
	}
	if x.Preempted > 0 {
		rate += 1 / x.Preempted.Seconds()
	}
	if rate == 0 {
		return 0
	}
	return min(time.Duration(math.Round(1000/rate))*time.Millisecond, cluster.MaxDuration)
}

// Saving says how often jobs should write checkpoints.
type Saving struct {
	Interruptions
	Min time.Duration // minimum interval, even if a shorter one loses less; 0: no bound
	Max time.Duration // maximum age: standard and critical jobs are promised that no more work is lost; 0: no bound
}

// Every is the work between two checkpoints of a job, given the time to write one: Daly's interval
// within the bounds, of which Max does not bind best-effort jobs (Daly 2006, tier rule), rounded up
// to the end of a step where that is known and Max allows it. 0: the job need not write any,
// because nothing interrupts it and nothing was promised.
func (s *Saving) Every(j *cluster.Job, cost, step time.Duration) time.Duration {
	every := time.Duration(0)
	if mtbf := s.Of(j); mtbf > 0 {
		every = max(Daly(cost, mtbf), s.Min)
	}
	most := s.Most(j)
	if every == 0 || most > 0 && every > most {
		every = most
	}
	if rest := every % max(1, step); step > 0 && rest > 0 {
		if every += step - rest; most > 0 && every > most && every > step {
			every -= step
		}
	}
	return every
}

// Most is the maximum age of a job's last checkpoint; 0: no bound.
func (s *Saving) Most(j *cluster.Job) time.Duration {
	if j.Tier == cluster.BestEffort {
		return 0
	}
	return s.Max
}

// Check refuses bounds that contradict each other.
func (s *Saving) Check() error {
	if s.Max > 0 && s.Min > s.Max {
		return fmt.Errorf("at least %s apart and at most %s old: the first must not be longer",
			cluster.FormatDuration(s.Min), cluster.FormatDuration(s.Max))
	}
	return nil
}

// Unlost is the loss-free run time credited to each tier in advance: a job that is killed after
// seconds says little about how often that happens.
const Unlost = 24 * time.Hour

// UnknownCost is the assumed cost of a checkpoint until it is stated or measured, as in replays.
const UnknownCost = 30 * time.Second

// Losses sums up the jobs' run time by tier, and counts the ends that lost work because the job was
// not asked to save it or had no time to.
type Losses struct {
	ran  [3]time.Duration
	lost [3]int
}

// Note counts a run that has ended.
func (x *Losses) Note(tier cluster.Tier, ran time.Duration, lost bool) {
	x.ran[tier] += max(0, ran)
	if lost {
		x.lost[tier]++
	}
}

// Every is the mean time between losses for a job of the tier; 0: there was none.
func (x *Losses) Every(tier cluster.Tier) time.Duration {
	if x.lost[tier] == 0 {
		return 0
	}
	return (Unlost + x.ran[tier]) / time.Duration(x.lost[tier])
}

// Interval is how often a job is to write a checkpoint: what it states, otherwise the one that loses
// least but keeps the promise; 0: none is given, as to a job that writes no checkpoints.
func (s *Saving) Interval(j *cluster.Job, losses *Losses) time.Duration {
	if s == nil || j.Checkpoint.None {
		return 0
	}
	saving := *s
	saving.Preempted = losses.Every(j.Tier)
	every := j.Checkpoint.Interval
	if every == 0 {
		every = saving.Every(j, cmp.Or(j.Checkpoint.Cost, UnknownCost), 0)
	}
	if most := saving.Most(j); most > 0 {
		every = min(every, most)
	}
	return every
}
