package policy

import "github.com/muster-gpu/muster/engine/sched"

var fifo = Info{
	Name:   "fifo",
	About:  "by priority, then in order of submission; stops at the first job that does not fit (see --backfill)",
	Source: "FIFO; with --backfill skip it is the literature's FIFO-fit",
	Needs:  "nothing",
	Trials: []Trial{
		{},
		{Backfill: "skip"},
		{Backfill: "easy", Given: Estimates},
		{Backfill: "conservative", Given: Estimates},
	},
	New: func(k *Knobs) sched.Policy {
		return &basic{name: k.label(), key: byPriority}
	},
}

// byPriority orders by descending priority; the engine breaks ties by submission.
func byPriority(_ sched.View, j sched.JobView) sched.Key {
	return sched.Key{-j.Spec().Priority}
}
