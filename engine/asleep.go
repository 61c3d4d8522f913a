package engine

import (
	"time"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/engine/inventory"
)

// Nodes that are asleep (cluster.Power) are there for jobs that need them: one that is placed there starts at
// once, and its driver wakes the node first. No job is placed there that fits on nodes that are awake,
// and none gets more than it needs there. Which nodes sleep, the driver decides (package power).

// nodeAsleep books that a node is switched off, or there again.
func (e *Engine) nodeAsleep(ev *Event) {
	id, ok := e.nodeID[ev.Node]
	if !ok || !ev.Undo && e.st.Nodes()[id].Spec().State == cluster.Down {
		return
	}
	wake := ev.Wake
	if ev.Undo {
		wake = 0
		e.fresh = true // elastic jobs may grow there
	}
	e.st.SetAsleep(id, wake)
}

// WakeTime is how long it takes until all nodes of some allocations are awake; 0: they are.
func (e *Engine) WakeTime(allocs []inventory.Alloc) time.Duration {
	return inventory.WakeTime(&e.st, allocs)
}
