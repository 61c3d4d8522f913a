package policy

import "github.com/muster-gpu/muster/engine/sched"

var yarn = Info{
	Name:   "yarn-cs",
	About:  "capacity scheduler: the queue least above its share first, in order of submission; no preemption",
	Source: "YARN-CS, the baseline of Tiresias and Philly",
	Needs:  "queues; placement inside one node or on whole nodes (the default gang form)",
	Trials: []Trial{{Given: Queues}},
	New: func(k *Knobs) sched.Policy {
		return &capacityOrder{basic{name: k.label(), traits: sched.Traits{}, key: byPriority}}
	},
}

// capacityOrder chooses the queue with the smallest use relative to its capacity: its guarantee, or
// its weight if no queue has a guarantee.
type capacityOrder struct{ basic }

// QueueKey returns used/capacity in parts per million.
func (*capacityOrder) QueueKey(v sched.View, q int) int64 { return v.UsedShare(q) }
