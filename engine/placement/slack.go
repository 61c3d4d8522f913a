package placement

import (
	"math/bits"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/engine/inventory"
)

// Slack is what reservations leave of nodes to a candidate whose run would meet them: the least of each.
type Slack struct {
	stamp []int32 // by node: what is known of it was said since the reset that now counts
	now   int32
	gpus  []int32
	cpu   []cluster.Milli
	ram   []cluster.MiB
}

// Reset forgets all limits, of n nodes.
func (h *Slack) Reset(n int) {
	for len(h.stamp) < n {
		h.stamp = append(h.stamp, 0)
		h.gpus = append(h.gpus, 0)
		h.cpu = append(h.cpu, 0)
		h.ram = append(h.ram, 0)
	}
	h.now++
}

// Limit notes that no more than so much of a node may be used.
func (h *Slack) Limit(node, gpus int32, cpu cluster.Milli, ram cluster.MiB) {
	if h.stamp[node] != h.now {
		h.stamp[node] = h.now
		h.gpus[node], h.cpu[node], h.ram[node] = gpus, cpu, ram
		return
	}
	h.gpus[node], h.cpu[node], h.ram[node] = min(h.gpus[node], gpus), min(h.cpu[node], cpu), min(h.ram[node], ram)
}

// room returns how many tasks the reservations leave room for on the node,
// beside what the candidate has bound there already.
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

// KeepOff marks the nodes of which something comes free while the future is walked through, and those that a promise
// shall keep off.
type KeepOff struct {
	freed []int32 // by node: the reset since which something of it was freed
	keep  []int32 // by node: the reset since which it is kept off
	now   int32
}

// Reset forgets all marks, of n nodes.
func (y *KeepOff) Reset(n int) {
	for len(y.freed) < n {
		y.freed, y.keep = append(y.freed, 0), append(y.keep, 0)
	}
	y.now++
}

// Free notes that something of a node comes free.
func (y *KeepOff) Free(node int32) { y.freed[node] = y.now }

// Freed reports whether something of a node comes free.
func (y *KeepOff) Freed(node int32) bool { return y.freed[node] == y.now }

// Avoid has a node kept off, or not any more.
func (y *KeepOff) Avoid(node int32, off bool) {
	if y.keep[node] = 0; off {
		y.keep[node] = y.now
	}
}

func (y *KeepOff) off(node int32) bool { return y.keep[node] == y.now }
