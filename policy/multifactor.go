package policy

import (
	"math"
	"time"

	"github.com/muster-gpu/muster/engine/sched"
)

var multifactor = Info{
	Name:   "multifactor",
	About:  "Slurm's priority: age, fair share (Fair Tree over queues and users, usage decayed), size, partition; EASY backfill",
	Source: "Slurm: multifactor priority and Fair Tree",
	Needs:  "users and queues; time limits or estimates for backfill",
	Trials: []Trial{
		{Given: Tenants},
		{Knobs: "size=5000,small=true", Given: Tenants},
	},
	Knobs: []Knob{
		{"age", "1000", "weight of the time that a job has been eligible"},
		{"max_age", "7d", "age at which its factor is 1"},
		{"fairshare", "10000", "weight of the Fair Tree factor"},
		{"size", "0", "weight of GPUs asked for / GPUs of the cluster"},
		{"small", "false", "whether size favours small jobs instead"},
		{"partition", "1000", "weight of the partition's priority tier / the highest"},
	},
	New: newMultifactor,
}

type multifactorPolicy struct {
	name                       string
	age, fair, size, partition int64
	maxAge                     time.Duration
	small                      bool
}

func newMultifactor(k *Knobs) sched.Policy {
	weight := func(name string) int64 { return k.int(name, 0, math.MaxUint32) }
	return &multifactorPolicy{name: k.label(), age: weight("age"), fair: weight("fairshare"), size: weight("size"),
		partition: weight("partition"), maxAge: k.duration("max_age", time.Second), small: k.bool("small")}
}

func (p *multifactorPolicy) Name() string { return p.name }

// Traits: usage decays and age grows, so heads are compared again every five minutes (Slurm's
// PriorityCalcPeriod).
func (p *multifactorPolicy) Traits() sched.Traits {
	return sched.Traits{Backfill: sched.EASY, Rekey: 5 * time.Minute, ByUser: true}
}

// Key orders one user's jobs of one shape as HeadKey does: they differ in their own priority and in
// age, and the difference of ages is constant while they wait (until the older one reaches
// max_age).
func (p *multifactorPolicy) Key(_ sched.View, j sched.JobView) sched.Key {
	const one = 1_000_000
	since := int64(j.EligibleSince())
	return sched.Key{p.age*(since/max(1, int64(p.maxAge)/one)) - j.Spec().Priority*one, since}
}

// HeadKey is minus the priority, in millionths of a point:
// age + fairshare + size + partition factors in [0,1] times their weights,
// plus the job's own priority (site factor, minus nice).
func (p *multifactorPolicy) HeadKey(v sched.View, j sched.JobView) sched.Key {
	f := p.Factors(v, j, j.FairShare())
	points := p.age*f.Age + p.fair*f.FairShare + p.size*f.Size + p.partition*f.Partition
	return sched.Key{-points - f.Own}
}

// Factors returns the terms of HeadKey.
func (p *multifactorPolicy) Factors(v sched.View, j sched.JobView, fair int64) sched.Factors {
	const one = 1_000_000
	f := sched.Factors{FairShare: fair, Own: j.Spec().Priority * one}
	f.Age = min(one, int64(j.Age())/max(1, int64(p.maxAge)/one))
	f.Size = min(one, j.Milli()*one/max(1, v.Capacity()))
	if p.small {
		f.Size = one - f.Size
	}
	if own, most := j.PriorityTier(); most > 0 {
		f.Partition = own * one / most
	}
	return f
}

// Weights returns the points that a factor of 1 is worth.
func (p *multifactorPolicy) Weights() sched.Factors {
	return sched.Factors{Age: p.age, FairShare: p.fair, Size: p.size, Partition: p.partition}
}
