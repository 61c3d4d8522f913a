package engine

import (
	"slices"

	"github.com/muster-gpu/muster/cluster"
)

// Who waits for whom. The books promise devices on as soon as their holder is
// told to leave; a placed job waits for those who still have what it needs:
// its devices, and as much CPU and RAM of its nodes as is not free yet. Free is
// what nobody holds, nobody was promised, and nobody's claim counts on.

// host is CPU and RAM of a node.
type host struct {
	cpu cluster.Milli
	ram cluster.MiB
}

func (h *host) add(o host, sign int64) { h.cpu, h.ram = h.cpu+sign*o.cpu, h.ram+sign*o.ram }

// least is the smaller amount of each, never negative.
func least(a, b host) host { return host{max(0, min(a.cpu, b.cpu)), max(0, min(a.ram, b.ram))} }

// Claim is the CPU and RAM of a node on which a placed job counts from one
// that leaves it.
type Claim struct {
	By   cluster.JobID `json:"by"`
	Node int32         `json:"node"`
	CPU  cluster.Milli `json:"cpu,omitempty"`
	RAM  cluster.MiB   `json:"ram,omitempty"`
}

// hostOn sums what allocations have of a node's CPU and RAM.
func hostOn(allocs []Alloc, node int32) (h host) {
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
	n := &e.st.nodes[node]
	h := host{-n.cpu, -n.ram}
	for _, id := range n.stopping {
		h.add(e.jobs[id].unclaimed(node), 1)
	}
	return h
}

// waitForLeavers makes a job that was booked wait for those who leave what it
// needs: all that have one of its devices, and for CPU and RAM those first and
// then others by number, as few as it takes in this order.
func (e *Engine) waitForLeavers(j *jobState) {
	j.waits = 0
	for i := range j.allocs {
		a := &j.allocs[i]
		for _, id := range e.st.nodes[a.Node].stopping {
			if v := e.jobs[id]; v.leavesDevice(a) {
				e.waitFor(j, v)
			}
		}
	}
	for i := range j.allocs {
		node := j.allocs[i].Node
		if len(e.st.nodes[node].stopping) == 0 || holdsNodeOf(j.allocs[:i], node) {
			continue
		}
		need := least(hostOn(j.allocs, node), e.short(node))
		if need == (host{}) {
			continue
		}
		ids := slices.Clone(e.st.nodes[node].stopping)
		slices.Sort(ids)
		for _, others := range []bool{false, true} {
			for _, id := range ids {
				if v := e.jobs[id]; waitsFor(v, j.spec.ID) != others {
					e.claimFrom(j, v, node, &need)
				}
			}
		}
	}
}

func holdsNodeOf(allocs []Alloc, node int32) bool {
	return slices.ContainsFunc(allocs, func(a Alloc) bool { return a.Node == node })
}

// claimFrom counts on what v leaves of a node's CPU and RAM, as far as needed.
func (e *Engine) claimFrom(j, v *jobState, node int32, need *host) {
	c := least(*need, v.unclaimed(node))
	if c == (host{}) {
		return
	}
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
	e.running.walk(func(it item) bool {
		if j := e.jobs[it.id]; j.state == Placed && overlap(v.allocs, j.allocs) {
			e.waitFor(j, v)
		}
		return true
	})
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
	v.claims = slices.DeleteFunc(v.claims, func(c Claim) bool { return c.By == j.spec.ID })
}

// leavesDevice reports whether a job that leaves still has a device of the
// allocation.
func (j *jobState) leavesDevice(a *Alloc) bool {
	for i := range j.leaving {
		if h := &j.leaving[i]; h.Node == a.Node && h.GPUs&a.GPUs != 0 {
			return true
		}
	}
	for i := range j.allocs {
		if h := &j.allocs[i]; j.state == Stopping && h.Node == a.Node && h.GPUs&a.GPUs != 0 {
			return true
		}
	}
	return false
}

// contested reports whether a job that leaves still has part of what was taken.
func (e *Engine) contested(allocs []Alloc) bool {
	for i := range allocs {
		a := &allocs[i]
		n := &e.st.nodes[a.Node]
		if len(n.stopping) == 0 {
			continue
		}
		for _, id := range n.stopping {
			if e.jobs[id].leavesDevice(a) {
				return true
			}
		}
		if least(host{a.CPU, a.RAM}, e.short(a.Node)) != (host{}) {
			return true
		}
	}
	return false
}
