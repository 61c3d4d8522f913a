package policy

import (
	"math"
	"time"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/engine/sched"
)

var las = Info{
	Name:   "las",
	About:  "least attained GPU service first, in levels that double; preemptive",
	Source: "LAS as discretised by Tiresias (NSDI'19) (many levels, no promotion); dimension=time is the literature's one-dimensional LAS",
	Needs:  "nothing",
	Trials: []Trial{
		{},
		{Knobs: "base=5m"},
		{Knobs: "base=8h,levels=8"},
		{Knobs: "dimension=time"},
	},
	Knobs: []Knob{
		{"base", "1h", "service at which a job leaves the first level, in GPU time (1h: a GPU-hour)"},
		{"levels", "16", "number of levels; each is twice as long as the one before"},
		{"thresholds", "", "instead of base and levels: GPU-seconds at which levels end, e.g. 3250/7200/18000"},
		{"dimension", "gpu", "gpu: GPU time; time: wall time on devices"},
	},
	New: newLAS,
}

type lasPolicy struct {
	name  string
	ends  levels
	clock bool // one-dimensional: by wall time
}

func newLAS(k *Knobs) sched.Policy {
	p := &lasPolicy{name: k.label(), clock: k.choice("dimension", "gpu", "time") == "time"}
	if k.text("thresholds") != "" {
		p.ends = k.levels("thresholds")
		return p
	}
	base, levels := k.duration("base", time.Second), k.int("levels", 1, 30)
	end := int64(base/time.Millisecond) * cluster.Whole
	for range levels - 1 {
		p.ends = append(p.ends, end)
		if end > math.MaxInt64/4 {
			break
		}
		end *= 2
	}
	return p
}

func (p *lasPolicy) Name() string { return p.name }

func (p *lasPolicy) Traits() sched.Traits {
	return sched.Traits{Preempts: true, Backfill: sched.Skip}
}

func (p *lasPolicy) served(j sched.JobView) int64 {
	if p.clock {
		return int64(j.Ran()/time.Millisecond) * cluster.Whole
	}
	return j.Service()
}

// Key is the level, then the first start: within a level jobs are served in the order of their
// first starts, and those that never ran come last (Tiresias, NSDI'19).
func (p *lasPolicy) Key(_ sched.View, j sched.JobView) sched.Key {
	return sched.Key{int64(p.ends.of(p.served(j))), int64(j.FirstStart())}
}

// NextChange is when the job's service reaches the end of its level.
func (p *lasPolicy) NextChange(v sched.View, j sched.JobView) cluster.Time {
	s := p.served(j)
	if !p.clock {
		return until(j, s, p.ends.end(s))
	}
	to := p.ends.end(s)
	if to == math.MaxInt64 {
		return cluster.Never
	}
	// Wall time counts from the start of each run, not by milliseconds of the clock.
	ms := (to - s + cluster.Whole - 1) / cluster.Whole
	return v.Now().Add(time.Duration(ms) * time.Millisecond)
}
