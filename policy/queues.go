package policy

import "github.com/muster-gpu/muster/engine/sched"

var proportional = Info{
	Name:   "proportional",
	About:  "weighted max-min over queues: the queue with the least GPUs per weight first, in order of submission",
	Source: "Volcano's proportion, KAI's over-quota weights; guarantees are served first by the engine",
	Needs:  "queues",
	Trials: []Trial{{Given: Queues}},
	New: func(k *Knobs) sched.Policy {
		return &weighted{basic{name: k.label(), traits: sched.Traits{Backfill: sched.Skip}, key: byPriority}}
	},
}

type weighted struct{ basic }

// QueueKey returns milli-GPU held per weight: serving the smallest first fills
// the queues like water, which is the weighted max-min allocation.
func (*weighted) QueueKey(v sched.View, q int) int64 { return v.WeightedUse(q) }

var drf = Info{
	Name:   "drf",
	About:  "dominant resource fairness over queues: GPU, CPU and RAM; the smallest dominant share first",
	Source: "DRF (NSDI'11) as in Volcano, progressive filling by weighted dominant share",
	Needs:  "queues; CPU and RAM of nodes and jobs where they matter",
	Trials: []Trial{{Given: Queues}},
	New: func(k *Knobs) sched.Policy {
		return &dominant{basic{name: k.label(), traits: sched.Traits{Backfill: sched.Skip}, key: byPriority}}
	},
}

type dominant struct{ basic }

// QueueKey returns the queue's weighted dominant share.
func (*dominant) QueueKey(v sched.View, q int) int64 { return v.DominantShare(q) }
