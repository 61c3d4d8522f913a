package perf

import (
	"cmp"
	"fmt"
	"math"
	"time"

	"github.com/muster-gpu/muster/cluster"
)

// Daly is the work between two checkpoints that loses least in all, to writing them
// and to failures, for what one costs and the mean time between failures of the job:
// Daly's expansion (Daly 2006), to the millisecond.
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
// failures: what is done again, and restarts (Daly 2006, first order); at most all.
func Waste(every, cost, restart, mtbf time.Duration) float64 {
	if every <= 0 || mtbf <= 0 {
		return 0
	}
	return min(1, cost.Seconds()/every.Seconds()+(every.Seconds()/2+restart.Seconds())/mtbf.Seconds())
}

// Interruptions are what ends a job's run before its time: mean times between failures of a
// node and of a GPU, and between preemptions of a running job that lose work; 0: never.
type Interruptions struct{ Node, GPU, Preempted time.Duration }

// Of is the mean time between the interruptions of a job: any of its GPUs, and of its nodes,
// fails for it (Daly 2006: 1/M = n/M_node + preemption rate). A task counts as a node; 0:
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

// Saving is how often jobs are to write checkpoints.
type Saving struct {
	Interruptions
	Min time.Duration // apart at least, whatever loses least; 0: no bound
	Max time.Duration // at most so old: standard and critical jobs are promised that no more is lost; 0: no bound
}

// Every is the work between two checkpoints of a job that takes so long to write one: Daly's
// interval between the bounds, of which Max does not bind best-effort jobs (Daly 2006, tier
// rule), up to the next end of a step where that is known, if Max allows for it. 0: it
// need not write any, because nothing interrupts it and nothing was promised.
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

// Most is how old a job's last checkpoint may become; 0: there is no bound.
func (s *Saving) Most(j *cluster.Job) time.Duration {
	if j.Tier == cluster.BestEffort {
		return 0
	}
	return s.Max
}

// Check refuses bounds that contradict each other.
func (s *Saving) Check() error {
	if s.Max > 0 && s.Min > s.Max {
		return fmt.Errorf("at least %s apart and at most %s old: the first must not be longer", cluster.FormatDuration(s.Min), cluster.FormatDuration(s.Max))
	}
	return nil
}

// Unlost is for how long jobs of a tier count as having run without a loss before anybody counted:
// one that is killed after seconds says little of how often that happens.
const Unlost = 24 * time.Hour

// UnknownCost is what writing a checkpoint is taken to cost as long as it was neither stated nor
// measured, as in replays.
const UnknownCost = 30 * time.Second

// Losses counts, by tier, for how long jobs ran, and how often that ended so that work was lost which they
// were not asked, or had no time, to save.
type Losses struct {
	ran  [3]time.Duration
	lost [3]int
}

// Note counts a run that is over.
func (x *Losses) Note(tier cluster.Tier, ran time.Duration, lost bool) {
	x.ran[tier] += max(0, ran)
	if lost {
		x.lost[tier]++
	}
}

// Every is the mean time between such losses of a job of the tier; 0: there was none.
func (x *Losses) Every(tier cluster.Tier) time.Duration {
	if x.lost[tier] == 0 {
		return 0
	}
	return (Unlost + x.ran[tier]) / time.Duration(x.lost[tier])
}

// Told is how often a job is told to write a checkpoint: what it states, else what loses least, but at least
// as often as it was promised; 0: nothing is said. A job that writes none is told nothing.
func (s *Saving) Told(j *cluster.Job, losses *Losses) time.Duration {
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
