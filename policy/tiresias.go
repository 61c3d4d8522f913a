package policy

import (
	"time"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/engine/sched"
)

var tiresiasL = Info{
	Name:   "tiresias-l",
	About:  "2D-LAS: levels of attained GPU service, inside a level in the order of first starts; preemptive",
	Source: "Tiresias (NSDI'19): discretised 2D-LAS",
	Needs:  "nothing",
	Trials: []Trial{
		{},
		{Knobs: "thresholds=3250/7200/18000"},
		{Knobs: "thresholds=3600/36000/360000"},
		{Knobs: "promote=4"},
	},
	Knobs: []Knob{
		{"thresholds", "36000", "GPU-seconds at which levels end, e.g. 3250/7200/18000"},
		promoteKnob,
	},
	New: func(k *Knobs) sched.Policy {
		return &tiresiasLPolicy{name: k.label(), levels: k.levels("thresholds"), promotion: k.promotion()}
	},
}

type tiresiasLPolicy struct {
	name string
	levels
	promotion
}

func (p *tiresiasLPolicy) Name() string { return p.name }

func (p *tiresiasLPolicy) Traits() sched.Traits {
	return sched.Traits{Preempts: true, Backfill: sched.Skip}
}

// Key is the level and the first start: the paper places all jobs again in this order, so a job may
// also preempt one of its own level that started later. Jobs that never ran come last in the first
// level, by submission.
func (p *tiresiasLPolicy) Key(_ sched.View, j sched.JobView) sched.Key {
	return sched.Key{inLevel(p.Level(j), j.FirstStart()), int64(j.FirstStart())}
}

// Level is the level of a job, from 0.
func (p *tiresiasLPolicy) Level(j sched.JobView) int {
	service, _ := j.Executed()
	return p.of(service)
}

// LevelOf is the level at that service, in milli-GPU-milliseconds.
func (p *tiresiasLPolicy) LevelOf(service int64) int { return p.of(service) }

// NextChange is when the job's service reaches the end of its level.
func (p *tiresiasLPolicy) NextChange(v sched.View, j sched.JobView) cluster.Time {
	service, _ := j.Executed()
	return until(j, service, p.end(service))
}

// startBits is the width of a first start in microseconds: 2^53 of them are 285 years.
const startBits = 53

// inLevel combines a level and a first start into one number, to the microsecond, the resolution at
// which one job may preempt another.
func inLevel(level int, first cluster.Time) int64 {
	us := int64(first) / int64(time.Microsecond)
	return int64(level)<<startBits | min(us, 1<<startBits-1)
}
