package policy

import (
	"math"
	"time"

	"github.com/muster-gpu/muster/engine/sched"
)

var qssf = Info{
	Name:   "qssf",
	About:  "least service first, by how long earlier jobs of the user and name ran; no preemption; stops at the first that does not fit",
	Source: "Helios (SC'21): quasi shortest service first, its rolling estimate",
	Needs:  "users and job names that come back",
	Trials: []Trial{
		{Given: Recurring},
		{Knobs: "strict=false", Given: Recurring},
	},
	Knobs: []Knob{
		{"alpha", "1", "weight of earlier jobs against the job's own estimate, where it has one (0 to 1)"},
		{"strict", "true", "whether the queue stops at the first job that does not fit"},
	},
	New: func(k *Knobs) sched.Policy {
		alpha := k.float("alpha", 0, 1)
		strict := k.bool("strict")
		t := sched.Traits{Predicts: true}
		if !strict {
			t.Backfill = sched.Skip
		}
		weight := int64(math.Round(alpha * 1000))
		return &basic{name: k.label(), traits: t, key: func(_ sched.View, j sched.JobView) sched.Key {
			asked := j.Spec().GPUMilli()
			return sched.Key{quasiService(asked, j.Predicted(), j.Spec().Estimate, weight), asked}
		}}
	},
}

// quasiService is P = g * (alpha*rolling + (1-alpha)*model) of Helios, SC'21, in
// milli-GPU-milliseconds; the job's own estimate takes the place of the model's. If one of the two
// is missing, the other counts alone. alpha is in thousandths.
func quasiService(milli int64, rolling, own time.Duration, alpha int64) int64 {
	switch {
	case own <= 0:
		own = rolling
	case rolling <= 0:
		rolling = own
	}
	r, o := int64(rolling/time.Millisecond), int64(own/time.Millisecond)
	return mulDiv(r*alpha+o*(1000-alpha), milli, 1000)
}
