package engine

import (
	"math/bits"
	"slices"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/engine/inventory"
)

// Who waits for whom. The books promise devices on as soon as their holder is
// told to leave; a placed job waits for those who still have what it needs:
// its whole devices, its memory slices, and as much of shared devices, and of CPU
// and RAM of its nodes, as is not free yet. Free is what nobody holds, nobody was
// promised, and nobody's claim counts on.

// host is CPU and RAM of a node.
type host struct {
	cpu cluster.Milli
	ram cluster.MiB
}

func (h *host) add(o host, sign int64) { h.cpu, h.ram = h.cpu+sign*o.cpu, h.ram+sign*o.ram }

// least is the smaller amount of each, never negative.
func least(a, b host) host { return host{max(0, min(a.cpu, b.cpu)), max(0, min(a.ram, b.ram))} }

// Claim is what of a node a placed job counts on from one that leaves it: CPU and RAM, or
// (GPUs is one device) part of a GPU.
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

// part is what jobs have of a GPU that is shared, or in MIG mode.
type part struct {
	milli   int64
	mem     cluster.MiB
	compute int64 // slices
	clients int64 // of MPS: one for each share
}

func (p *part) add(o part, sign int64) {
	p.milli, p.mem, p.compute, p.clients = p.milli+sign*o.milli, p.mem+sign*o.mem, p.compute+sign*o.compute, p.clients+sign*o.clients
}

// leastPart is the smaller amount of each, never negative.
func leastPart(a, b part) part {
	return part{max(0, min(a.milli, b.milli)), max(0, min(a.mem, b.mem)), max(0, min(a.compute, b.compute)), max(0, min(a.clients, b.clients))}
}

// partOn sums what allocations have of a device (one bit) in shares and slices.
func partOn(allocs []inventory.Alloc, node int32, dev uint64) (p part) {
	for i := range allocs {
		if a := &allocs[i]; a.Node == node && a.GPUs == dev && a.Share > 0 {
			o := part{milli: int64(a.Share), mem: a.Mem, compute: int64(a.Compute)}
			if a.Slots == 0 {
				o.clients = 1
			}
			p.add(o, 1)
		}
	}
	return p
}

// hostOn sums what allocations have of a node's CPU and RAM.
func hostOn(allocs []inventory.Alloc, node int32) (h host) {
	for i := range allocs {
		if a := &allocs[i]; a.Node == node {
			h.add(host{a.CPU, a.RAM}, 1)
		}
	}
	return h
}

// unclaimed is what a leaving job has of a node's CPU and RAM and nobody counts on.
func (j *jobState) unclaimed(node int32) host {
	h := hostOn(j.leaving, node)
	if j.state == Stopping {
		h.add(hostOn(j.allocs, node), 1)
	}
	for i := range j.claims {
		if c := &j.claims[i]; c.Node == node {
			h.add(host{c.CPU, c.RAM}, -1)
		}
	}
	return h
}

// short is how much CPU and RAM of a node, of what the books promised, is still
// held by somebody who leaves and is counted on by nobody.
func (e *Engine) short(node int32) host {
	n := &e.st.Nodes()[node]
	h := host{-n.CPU(), -n.RAM()}
	for _, id := range n.Stopping() {
		h.add(e.jobs[id].unclaimed(node), 1)
	}
	return h
}

// unclaimedPart is unclaimed for a device.
func (j *jobState) unclaimedPart(node int32, dev uint64) part {
	p := partOn(j.leaving, node, dev)
	if j.state == Stopping {
		p.add(partOn(j.allocs, node, dev), 1)
	}
	for i := range j.claims {
		if c := &j.claims[i]; c.Node == node && c.GPUs == dev {
			p.add(part{c.Share, c.Mem, c.Compute, c.Clients}, -1)
		}
	}
	return p
}

// shortPart is short for a device.
func (e *Engine) shortPart(node int32, dev uint64) part {
	n := &e.st.Nodes()[node]
	c := &e.st.Classes()[n.Class()]
	d := &n.Devices()[bits.TrailingZeros64(dev)]
	h := part{-int64(d.Milli()), -d.Mem(), int64(d.Compute()) - int64(c.Model().Compute), -int64(c.Seats(d))}
	for _, id := range n.Stopping() {
		h.add(e.jobs[id].unclaimedPart(node, dev), 1)
	}
	return h
}

// waitForLeavers makes a job that was booked wait for those who leave what it
// needs: all that are in the way on one of its devices (inTheWay), and for what it takes of
// shared devices, of CPU and of RAM those first and then others by number, as few as it
// takes in this order.
func (e *Engine) waitForLeavers(j *jobState) {
	j.waits = 0
	for i := range j.allocs {
		a := &j.allocs[i]
		for _, id := range e.st.Nodes()[a.Node].Stopping() {
			if v := e.jobs[id]; v.inTheWay(a) {
				e.waitFor(j, v)
			}
		}
	}
	for i := range j.allocs {
		a := &j.allocs[i]
		if len(e.st.Nodes()[a.Node].Stopping()) == 0 || a.Share == 0 || holdsPartOf(j.allocs[:i], a) {
			continue
		}
		if need := leastPart(partOn(j.allocs, a.Node, a.GPUs), e.shortPart(a.Node, a.GPUs)); need != (part{}) {
			e.eachLeaver(j, a.Node, func(v *jobState) { e.claimPart(j, v, a.Node, a.GPUs, &need) })
		}
	}
	for i := range j.allocs {
		node := j.allocs[i].Node
		if len(e.st.Nodes()[node].Stopping()) == 0 || holdsNodeOf(j.allocs[:i], node) {
			continue
		}
		if need := least(hostOn(j.allocs, node), e.short(node)); need != (host{}) {
			e.eachLeaver(j, node, func(v *jobState) { e.claimFrom(j, v, node, &need) })
		}
	}
	if j.waits > 0 {
		e.claimRest(j)
	}
}

// claimRest has a job that waits take all that it can of its shared devices from those for whom it
// waits anyhow: what is free there is left to others, who can start at once.
func (e *Engine) claimRest(j *jobState) {
	for i := range j.allocs {
		a := &j.allocs[i]
		if len(e.st.Nodes()[a.Node].Stopping()) == 0 || a.Share == 0 || holdsPartOf(j.allocs[:i], a) {
			continue
		}
		rest := partOn(j.allocs, a.Node, a.GPUs)
		for _, id := range e.st.Nodes()[a.Node].Stopping() {
			for _, c := range e.jobs[id].claims {
				if c.By == j.spec.ID && c.Node == a.Node && c.GPUs == a.GPUs {
					rest.add(part{c.Share, c.Mem, c.Compute, c.Clients}, -1)
				}
			}
		}
		e.eachLeaver(j, a.Node, func(v *jobState) {
			if waitsFor(v, j.spec.ID) {
				e.claimPart(j, v, a.Node, a.GPUs, &rest)
			}
		})
	}
}

// eachLeaver calls f for those who leave a node: first for whom the job waits already, by number,
// then for the others.
func (e *Engine) eachLeaver(j *jobState, node int32, f func(v *jobState)) {
	ids := slices.Clone(e.st.Nodes()[node].Stopping())
	slices.Sort(ids)
	for _, others := range []bool{false, true} {
		for _, id := range ids {
			if v := e.jobs[id]; waitsFor(v, j.spec.ID) != others {
				f(v)
			}
		}
	}
}

// holdsPartOf reports whether allocations have a part of the same device.
func holdsPartOf(allocs []inventory.Alloc, a *inventory.Alloc) bool {
	return slices.ContainsFunc(allocs, func(o inventory.Alloc) bool { return o.Node == a.Node && o.GPUs == a.GPUs && o.Share > 0 })
}

// claimPart is claimFrom for a device.
func (e *Engine) claimPart(j, v *jobState, node int32, dev uint64, need *part) {
	c := leastPart(*need, v.unclaimedPart(node, dev))
	if c == (part{}) {
		return
	}
	e.forgetResidue(node)
	v.claims = append(v.claims, Claim{By: j.spec.ID, Node: node, GPUs: dev, Share: c.milli, Mem: c.mem, Compute: c.compute, Clients: c.clients})
	need.add(c, -1)
	e.waitFor(j, v)
}

func holdsNodeOf(allocs []inventory.Alloc, node int32) bool {
	return slices.ContainsFunc(allocs, func(a inventory.Alloc) bool { return a.Node == node })
}

// claimFrom counts on what v leaves of a node's CPU and RAM, as far as needed.
func (e *Engine) claimFrom(j, v *jobState, node int32, need *host) {
	c := least(*need, v.unclaimed(node))
	if c == (host{}) {
		return
	}
	e.forgetResidue(node)
	v.claims = append(v.claims, Claim{By: j.spec.ID, Node: node, CPU: c.cpu, RAM: c.ram})
	need.add(c, -1)
	e.waitFor(j, v)
}

// waitBeside has those wait for a job that leaves who were to start on its whole
// devices beside it, or beside the same one as it.
func (e *Engine) waitBeside(v *jobState) {
	if !v.packed {
		return
	}
	list := e.scratch.waiters[:0]
	for _, j := range e.placed {
		if overlap(v.allocs, j.allocs) {
			list = append(list, j)
		}
	}
	slices.SortFunc(list, func(a, b *jobState) int {
		if a.key.Before(&b.key) {
			return -1
		}
		return 1
	})
	for _, j := range list {
		e.waitFor(j, v)
	}
	e.scratch.waiters = list
}

func (e *Engine) waitFor(j, v *jobState) {
	e.touch(v)
	if !waitsFor(v, j.spec.ID) {
		v.waiters = append(v.waiters, j.spec.ID)
		j.waits++
	}
}

func waitsFor(v *jobState, id cluster.JobID) bool { return slices.Contains(v.waiters, id) }

// stopWaiting takes back that a placed job waits for v.
func (e *Engine) stopWaiting(j, v *jobState) {
	if !waitsFor(v, j.spec.ID) {
		return
	}
	e.touch(v)
	v.waiters = without(v.waiters, j.spec.ID)
	for i := range v.claims {
		e.forgetResidue(v.claims[i].Node)
	}
	v.claims = slices.DeleteFunc(v.claims, func(c Claim) bool { return c.By == j.spec.ID })
}

// inTheWay reports whether a job that leaves keeps an allocation from its devices,
// however much is free there.
func (j *jobState) inTheWay(a *inventory.Alloc) bool {
	for i := range j.leaving {
		if j.leaving[i].Excludes(a) {
			return true
		}
	}
	for i := range j.allocs {
		if j.state == Stopping && j.allocs[i].Excludes(a) {
			return true
		}
	}
	return false
}

// contested reports whether a job that leaves still has part of what was taken.
func (e *Engine) contested(allocs []inventory.Alloc) bool {
	for i := range allocs {
		a := &allocs[i]
		n := &e.st.Nodes()[a.Node]
		if len(n.Stopping()) == 0 {
			continue
		}
		for _, id := range n.Stopping() {
			if e.jobs[id].inTheWay(a) {
				return true
			}
		}
		if a.Share > 0 && leastPart(partOn(allocs, a.Node, a.GPUs), e.shortPart(a.Node, a.GPUs)) != (part{}) {
			return true
		}
		if least(host{a.CPU, a.RAM}, e.short(a.Node)) != (host{}) {
			return true
		}
	}
	return false
}
