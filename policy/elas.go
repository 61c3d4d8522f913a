package policy

import (
	"math"
	"math/bits"
	"time"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/engine/sched"
)

var eLAS = Info{
	Name:   "e-las",
	About:  "least attained GPU service times the run time that a job's progress lets expect, in levels; preemptive",
	Source: "E-LAS (ICPP'20), reconstructed from its abstract",
	Needs:  "progress reports (or estimates, of which the share that is done counts)",
	Trials: []Trial{{Given: Estimates}},
	Knobs: []Knob{
		{"thresholds", "3600/36000/360000", "at which weighted GPU-seconds levels end"},
		{"index", "total", "what weighs: the total run time that progress lets expect, or what remains of it"},
		{"beta", "1", "weight of a job that has not reported progress"},
		{"T0", "median", "run time with the weight 1: a duration, or the median of the last 1000 jobs that completed (1h until there is one)"},
		{"learn", "1h", "interval at which the median is updated"},
		promoteKnob,
	},
	New: newELAS,
}

type eLASPolicy struct {
	name string
	levels
	promotion
	remaining bool
	beta      int64         // in thousandths
	unit      time.Duration // T0; 0: the median of completed jobs
	learn     time.Duration
}

func newELAS(k *Knobs) sched.Policy {
	p := &eLASPolicy{
		name: k.label(), levels: k.levels("thresholds"), promotion: k.promotion(),
		remaining: k.choice("index", "total", "remaining") == "remaining",
		beta:      int64(math.Round(k.float("beta", 0.001, 1e6) * 1000)),
	}
	if k.text("T0") == "median" {
		p.learn = k.learn()
	} else {
		p.unit = k.duration("T0", time.Millisecond)
	}
	return p
}

func (p *eLASPolicy) Name() string { return p.name }

func (p *eLASPolicy) Traits() sched.Traits {
	return sched.Traits{Preempts: true, Backfill: sched.Skip, Learns: p.learn}
}

// NextChange is the next whole minute: progress moves running jobs between levels, in both
// directions. A progress report counts at once.
func (p *eLASPolicy) NextChange(v sched.View, _ sched.JobView) cluster.Time {
	const minute = cluster.Time(time.Minute)
	return (v.Now()/minute + 1) * minute
}

// Key is the level of the index, then the first start, as in Tiresias.
func (p *eLASPolicy) Key(v sched.View, j sched.JobView) sched.Key {
	unit := p.unit
	if unit == 0 {
		if unit = v.Past().Median; unit <= 0 {
			unit = time.Hour
		}
	}
	service, _ := j.Executed()
	done := j.Done()
	if done <= 0 && (!j.Running() || j.Started() != j.FirstStart()) && j.Spec().Estimate > 0 {
		done = 1 // Its work was lost; without this it would come first, lose its work again, and so on.
	}
	return sched.Key{inLevel(p.of(p.index(service, j.Ran(), done, j.Spec().Estimate, unit)), j.FirstStart()),
		int64(j.FirstStart())}
}

// index is a job's attained service a, weighted (E-LAS, ICPP'20): by t/p over the unit, where t is
// how long it ran and p the share of its work that is done (t/p is the total run time to expect);
// or by t(1-p)/p, the remaining run time. Without progress it is a times beta. p is capped at 0.99,
// since the last part may take longer than it seems. In milli-GPU-milliseconds.
func (p *eLASPolicy) index(a int64, t, done, work, unit time.Duration) int64 {
	if done <= 0 || work <= 0 {
		return mulDiv(a, p.beta, 1000)
	}
	done = min(done, work-work/100)
	if done <= 0 {
		done = 1
	}
	if p.remaining {
		work -= done
	}
	return mulDiv(a, mulDiv(int64(t), int64(work), int64(done)), int64(unit))
}

// mulDiv is a*b/c, rounded down, or MaxInt64. None may be negative, and c is not 0.
func mulDiv(a, b, c int64) int64 {
	hi, lo := bits.Mul64(uint64(a), uint64(b))
	if hi >= uint64(c) {
		return math.MaxInt64
	}
	q, _ := bits.Div64(hi, lo, uint64(c))
	return int64(min(q, math.MaxInt64))
}
