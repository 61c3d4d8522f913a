package policy

import (
	"math"

	"github.com/muster-gpu/muster/engine"
)

var edf = Info{
	Name:   "edf",
	About:  "earliest deadline first, preemptive; jobs without a deadline come last, in order of submission",
	Source: "EDF without admission control",
	Needs:  "deadlines",
	Knobs:  []Knob{{"preempt", "true", "whether an earlier deadline may preempt a later one"}},
	New: func(k *Knobs) (engine.Policy, error) {
		preempts, err := k.bool("preempt")
		if err != nil {
			return nil, err
		}
		return &basic{name: k.label(), traits: engine.Traits{Preempts: preempts, Backfill: engine.Skip},
			key: func(_ engine.View, j engine.JobView) engine.Key {
				if d := j.Spec().Deadline; d > 0 {
					return engine.Key{int64(d)}
				}
				return engine.Key{math.MaxInt64}
			}}, nil
	},
}
