package placement

import (
	"math/bits"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/engine/inventory"
)

// Slack is the tightest limits that reservations set on nodes for a candidate that would still run
// when they begin.
type Slack struct {
	stamp []int32 // by node: the reset since which its limits are valid
	now   int32
	gpus  []int32
	cpu   []cluster.Milli
	ram   []cluster.MiB
}

// Reset forgets all limits of n nodes.
func (h *Slack) Reset(n int) {
	for len(h.stamp) < n {
		h.stamp = append(h.stamp, 0)
		h.gpus = append(h.gpus, 0)
		h.cpu = append(h.cpu, 0)
		h.ram = append(h.ram, 0)
	}
	h.now++
}

// Limit lowers the limits of a node.
func (h *Slack) Limit(node, gpus int32, cpu cluster.Milli, ram cluster.MiB) {
	if h.stamp[node] != h.now {
		h.stamp[node] = h.now
		h.gpus[node], h.cpu[node], h.ram[node] = gpus, cpu, ram
		return
	}
	h.gpus[node], h.cpu[node], h.ram[node] = min(h.gpus[node], gpus), min(h.cpu[node], cpu), min(h.ram[node], ram)
}

// room returns how many tasks fit on the node under the limits, given what the candidate has
// already bound there.
func (h *Slack) room(id int32, bound inventory.Alloc, r *cluster.Request, most int) int {
	if h.stamp[id] != h.now {
		return most
	}
	if r.CPU > 0 {
		most = min(most, int((h.cpu[id]-bound.CPU)/r.CPU))
	}
	if r.RAM > 0 {
		most = min(most, int((h.ram[id]-bound.RAM)/r.RAM))
	}
	if r.GPUs > 0 { // a share may open a whole device: it counts as one
		most = min(most, (int(h.gpus[id])-bits.OnesCount64(bound.GPUs))/r.GPUs)
	}
	return max(0, most)
}

// Depth says within which others a search is made: several have limits of their own at a time.
type Depth uint8

// The depths, from the outside in.
const (
	Candidate Depth = iota // of a job that is to start
	Mover                  // of one that makes way for it, or that starts otherwise than it was to
	Future                 // of a start later on
	depths
)

// KeepOff marks nodes on which something becomes free in the projected future, and nodes that a
// promise must avoid.
type KeepOff struct {
	freed []int32 // by node: the last reset when something became free
	keep  []int32 // by node: the last reset when it was to be avoided
	now   int32
}

// Reset forgets all marks of n nodes.
func (y *KeepOff) Reset(n int) {
	for len(y.freed) < n {
		y.freed, y.keep = append(y.freed, 0), append(y.keep, 0)
	}
	y.now++
}

// Free marks a node on which something becomes free.
func (y *KeepOff) Free(node int32) { y.freed[node] = y.now }

// Freed reports whether something becomes free on a node.
func (y *KeepOff) Freed(node int32) bool { return y.freed[node] == y.now }

// Avoid sets or clears the mark that a node must be avoided.
func (y *KeepOff) Avoid(node int32, off bool) {
	if y.keep[node] = 0; off {
		y.keep[node] = y.now
	}
}

func (y *KeepOff) off(node int32) bool { return y.keep[node] == y.now }
