package job

import (
	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/engine/inventory"
)

// Host is CPU and RAM of a node.
type Host struct {
	CPU cluster.Milli
	RAM cluster.MiB
}

// Add adds another amount (sign 1), or subtracts it (-1).
func (h *Host) Add(o Host, sign int64) { h.CPU, h.RAM = h.CPU+sign*o.CPU, h.RAM+sign*o.RAM }

// Least is the smaller amount of each, never negative.
func Least(a, b Host) Host { return Host{max(0, min(a.CPU, b.CPU)), max(0, min(a.RAM, b.RAM))} }

// Claim is what a placed job expects to get on a node from a leaving one: CPU and RAM, or (GPUs is
// one device) part of a GPU.
type Claim struct {
	By      cluster.JobID `json:"by"`
	Node    int32         `json:"node"`
	CPU     cluster.Milli `json:"cpu,omitempty"`
	RAM     cluster.MiB   `json:"ram,omitempty"`
	GPUs    uint64        `json:"gpus,omitempty"`
	Share   int64         `json:"share,omitempty"`
	Mem     cluster.MiB   `json:"mem,omitempty"`
	Compute int64         `json:"compute,omitempty"` // compute slices
	Clients int64         `json:"clients,omitempty"` // of MPS
}

// Part is what jobs hold of a GPU that is shared, or in MIG mode.
type Part struct {
	Milli   int64
	Mem     cluster.MiB
	Compute int64 // slices
	Clients int64 // of MPS: one per share
}

// Add adds another amount (sign 1), or subtracts it (-1).
func (p *Part) Add(o Part, sign int64) {
	p.Milli, p.Mem, p.Compute, p.Clients = p.Milli+sign*o.Milli, p.Mem+sign*o.Mem, p.Compute+sign*o.Compute,
		p.Clients+sign*o.Clients
}

// LeastPart is the smaller amount of each, never negative.
func LeastPart(a, b Part) Part {
	return Part{max(0, min(a.Milli, b.Milli)), max(0, min(a.Mem, b.Mem)), max(0, min(a.Compute, b.Compute)),
		max(0, min(a.Clients, b.Clients))}
}

// PartOn sums the shares and slices of allocations on a device (one bit).
func PartOn(allocs []inventory.Alloc, node int32, dev uint64) (p Part) {
	for i := range allocs {
		if a := &allocs[i]; a.Node == node && a.GPUs == dev && a.Share > 0 {
			o := Part{Milli: int64(a.Share), Mem: a.Mem, Compute: int64(a.Compute)}
			if a.Slots == 0 {
				o.Clients = 1
			}
			p.Add(o, 1)
		}
	}
	return p
}

// HostOn sums the CPU and RAM of allocations on a node.
func HostOn(allocs []inventory.Alloc, node int32) (h Host) {
	for i := range allocs {
		if a := &allocs[i]; a.Node == node {
			h.Add(Host{a.CPU, a.RAM}, 1)
		}
	}
	return h
}

// Unclaimed is a leaving job's CPU and RAM on a node that no placed job expects to get.
func (j *State) Unclaimed(node int32) Host {
	h := HostOn(j.Leaving, node)
	if j.State == Stopping {
		h.Add(HostOn(j.Allocs, node), 1)
	}
	for i := range j.Claims {
		if c := &j.Claims[i]; c.Node == node {
			h.Add(Host{c.CPU, c.RAM}, -1)
		}
	}
	return h
}

// UnclaimedPart is Unclaimed for a device.
func (j *State) UnclaimedPart(node int32, dev uint64) Part {
	p := PartOn(j.Leaving, node, dev)
	if j.State == Stopping {
		p.Add(PartOn(j.Allocs, node, dev), 1)
	}
	for i := range j.Claims {
		if c := &j.Claims[i]; c.Node == node && c.GPUs == dev {
			p.Add(Part{c.Share, c.Mem, c.Compute, c.Clients}, -1)
		}
	}
	return p
}

// InTheWay reports whether a leaving job blocks the devices of an allocation, however much is free
// there.
func (j *State) InTheWay(a *inventory.Alloc) bool {
	for i := range j.Leaving {
		if j.Leaving[i].Excludes(a) {
			return true
		}
	}
	for i := range j.Allocs {
		if j.State == Stopping && j.Allocs[i].Excludes(a) {
			return true
		}
	}
	return false
}
