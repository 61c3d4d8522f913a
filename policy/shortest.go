package policy

import (
	"time"

	"github.com/muster-gpu/muster/engine/sched"
)

var sjf = Info{
	Name:   "sjf",
	About:  "shortest estimated run time first; no preemption; stops at the first that does not fit",
	Source: "SJF",
	Needs:  "estimates",
	Trials: []Trial{
		{Given: Estimates},
		{Backfill: "easy", Given: Estimates},
	},
	New: func(k *Knobs) sched.Policy {
		return &basic{name: k.label(), key: func(_ sched.View, j sched.JobView) sched.Key {
			return sched.Key{int64(j.Remaining())}
		}}
	},
}

var ssf = Info{
	Name:   "ssf",
	About:  "least estimated service (GPUs x run time) first; no preemption; stops at the first that does not fit",
	Source: "SSF",
	Needs:  "estimates",
	Trials: []Trial{{Given: Estimates}},
	New: func(k *Knobs) sched.Policy {
		return &basic{name: k.label(), key: func(_ sched.View, j sched.JobView) sched.Key {
			return sched.Key{service(j)}
		}}
	},
}

var srtf = Info{
	Name:   "srtf",
	About:  "shortest remaining time first, preemptive; smaller jobs may pass one that does not fit",
	Source: "SRTF",
	Needs:  "estimates",
	Trials: []Trial{{Given: Estimates}},
	New: func(k *Knobs) sched.Policy {
		return &basic{name: k.label(),
			traits: sched.Traits{Preempts: true, Backfill: sched.Skip, Falling: true},
			key: func(_ sched.View, j sched.JobView) sched.Key {
				return sched.Key{int64(j.Remaining())}
			}}
	},
}

var srsf = Info{
	Name:   "srsf",
	About:  "shortest remaining service (GPUs x time) first, preemptive; smaller jobs may pass one that does not fit",
	Source: "SRSF, the ideal that 2D-LAS approximates",
	Needs:  "estimates",
	Trials: []Trial{{Given: Estimates}},
	New: func(k *Knobs) sched.Policy {
		return &basic{name: k.label(),
			// The key of a running job falls faster the larger the job is, so the order of running
			// jobs is refreshed once a minute while jobs wait.
			traits: sched.Traits{Preempts: true, Backfill: sched.Skip, Rerun: time.Minute},
			key: func(_ sched.View, j sched.JobView) sched.Key {
				return sched.Key{service(j)}
			}}
	},
}

// service is the remaining service in milli-GPU-milliseconds.
func service(j sched.JobView) int64 {
	return int64(j.Remaining()/time.Millisecond) * max(1, j.Milli()/1000)
}

var sjfGPU = Info{
	Name:   "sjf-gpu",
	About:  "smallest gang first; by default no preemption; stops at the first that does not fit",
	Source: "SJF-gpu; with preempt=true it is the \"sjf\" of Tiresias' simulator",
	Needs:  "nothing",
	Trials: []Trial{
		{},
		{Knobs: "preempt=true"},
	},
	Knobs: []Knob{{"preempt", "false",
		"whether a smaller gang may preempt a larger one (smaller ones may then pass a blocked one, too)"}},
	New: func(k *Knobs) sched.Policy {
		preempts := k.bool("preempt")
		t := sched.Traits{Preempts: preempts}
		if preempts {
			t.Backfill = sched.Skip
		}
		return &basic{name: k.label(), traits: t, key: func(_ sched.View, j sched.JobView) sched.Key {
			return sched.Key{j.Spec().GPUMilli()}
		}}
	},
}
