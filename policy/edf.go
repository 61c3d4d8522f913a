package policy

import (
	"math"

	"github.com/muster-gpu/muster/engine/sched"
)

var edf = Info{
	Name:   "edf",
	About:  "earliest deadline first, preemptive; jobs without a deadline come last, in order of submission",
	Source: "EDF without admission control",
	Needs:  "deadlines",
	Trials: []Trial{{Given: Deadlines}},
	Knobs:  []Knob{{"preempt", "true", "whether an earlier deadline may preempt a later one"}},
	New: func(k *Knobs) sched.Policy {
		preempts := k.bool("preempt")
		return &basic{name: k.label(), traits: sched.Traits{Preempts: preempts, Backfill: sched.Skip},
			key: func(_ sched.View, j sched.JobView) sched.Key {
				if d := j.Spec().Deadline; d > 0 {
					return sched.Key{int64(d)}
				}
				return sched.Key{math.MaxInt64}
			}}
	},
}
