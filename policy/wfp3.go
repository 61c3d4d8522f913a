package policy

import (
	"time"

	"github.com/muster-gpu/muster/engine/sched"
)

var wfp3 = Info{
	Name:   "wfp3",
	About:  "longest wait relative to the estimated run time first, wide jobs before narrow ones; no preemption; EASY backfill",
	Source: "WFP3: Tang et al. (CLUSTER'09), the utility function of Argonne's Cobalt; size=false: highest response ratio next",
	Needs:  "estimates",
	Trials: []Trial{{Given: Estimates}, {Knobs: "size=false", Given: Estimates}},
	Knobs:  []Knob{{"size", "true", "whether a wide job comes before a narrow one with the same ratio"}},
	New: func(k *Knobs) sched.Policy {
		sized := k.bool("size")
		return &basic{name: k.label(),
			traits: sched.Traits{Backfill: sched.EASY, Rekey: time.Minute}, // ratios change places while jobs wait
			key: func(_ sched.View, j sched.JobView) sched.Key {
				milli := int64(1000)
				if sized {
					milli = j.Milli()
				}
				left := j.Remaining()
				return sched.Key{-waitScore(j.Age(), left, milli), int64(left)}
			}}
	},
}

// waitScore is ∛n·wait/left for n GPUs, in ten-millionths. It orders jobs as the paper's
// n·(wait/left)³ does, whose values do not fit into an integer.
func waitScore(wait, left time.Duration, milli int64) int64 {
	return mulDiv(int64(wait), 1000*cubeRoot(milli*1_000_000_000), max(1, int64(left)))
}

// cubeRoot is rounded down; n is less than 2⁶³.
func cubeRoot(n int64) (root int64) {
	for bit := int64(1 << 20); bit > 0; bit >>= 1 {
		if r := root | bit; r*r*r <= n {
			root = r
		}
	}
	return root
}
