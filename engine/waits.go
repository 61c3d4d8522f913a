package engine

import (
	"math/bits"
	"slices"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/engine/inventory"
	"github.com/muster-gpu/muster/engine/job"
)

// Who waits for whom. The books promise devices on as soon as their holder is
// told to leave; a placed job waits for those who still have what it needs:
// its whole devices, its memory slices, and as much of shared devices, and of CPU
// and RAM of its nodes, as is not free yet. Free is what nobody holds, nobody was
// promised, and nobody's claim counts on.

// short is how much CPU and RAM of a node, of what the books promised, is still
// held by somebody who leaves and is counted on by nobody.
func (e *Engine) short(node int32) job.Host {
	n := &e.st.Nodes()[node]
	h := job.Host{CPU: -n.CPU(), RAM: -n.RAM()}
	for _, id := range n.Stopping() {
		h.Add(e.jobs[id].Unclaimed(node), 1)
	}
	return h
}

// shortPart is short for a device.
func (e *Engine) shortPart(node int32, dev uint64) job.Part {
	n := &e.st.Nodes()[node]
	c := &e.st.Classes()[n.Class()]
	d := &n.Devices()[bits.TrailingZeros64(dev)]
	h := job.Part{Milli: -int64(d.Milli()), Mem: -d.Mem(), Compute: int64(d.Compute()) - int64(c.Model().Compute),
		Clients: -int64(c.Seats(d))}
	for _, id := range n.Stopping() {
		h.Add(e.jobs[id].UnclaimedPart(node, dev), 1)
	}
	return h
}

// waitForLeavers makes a job that was booked wait for those who leave what it
// needs: all that are in the way on one of its devices (InTheWay), and for what it takes of
// shared devices, of CPU and of RAM those first and then others by number, as few as it
// takes in this order.
func (e *Engine) waitForLeavers(j *job.State) {
	j.Waits = 0
	for i := range j.Allocs {
		a := &j.Allocs[i]
		for _, id := range e.st.Nodes()[a.Node].Stopping() {
			if v := e.jobs[id]; v.InTheWay(a) {
				e.waitFor(j, v)
			}
		}
	}
	for i := range j.Allocs {
		a := &j.Allocs[i]
		if len(e.st.Nodes()[a.Node].Stopping()) == 0 || a.Share == 0 || holdsPartOf(j.Allocs[:i], a) {
			continue
		}
		if need := job.LeastPart(job.PartOn(j.Allocs, a.Node, a.GPUs),
			e.shortPart(a.Node, a.GPUs)); need != (job.Part{}) {
			e.eachLeaver(j, a.Node, func(v *job.State) { e.claimPart(j, v, a.Node, a.GPUs, &need) })
		}
	}
	for i := range j.Allocs {
		node := j.Allocs[i].Node
		if len(e.st.Nodes()[node].Stopping()) == 0 || inventory.OnNode(j.Allocs[:i], node) {
			continue
		}
		if need := job.Least(job.HostOn(j.Allocs, node), e.short(node)); need != (job.Host{}) {
			e.eachLeaver(j, node, func(v *job.State) { e.claimFrom(j, v, node, &need) })
		}
	}
	if j.Waits > 0 {
		e.claimRest(j)
	}
}

// claimRest has a job that waits take all that it can of its shared devices from those for whom it
// waits anyhow: what is free there is left to others, who can start at once.
func (e *Engine) claimRest(j *job.State) {
	for i := range j.Allocs {
		a := &j.Allocs[i]
		if len(e.st.Nodes()[a.Node].Stopping()) == 0 || a.Share == 0 || holdsPartOf(j.Allocs[:i], a) {
			continue
		}
		rest := job.PartOn(j.Allocs, a.Node, a.GPUs)
		for _, id := range e.st.Nodes()[a.Node].Stopping() {
			for _, c := range e.jobs[id].Claims {
				if c.By == j.Spec.ID && c.Node == a.Node && c.GPUs == a.GPUs {
					rest.Add(job.Part{Milli: c.Share, Mem: c.Mem, Compute: c.Compute, Clients: c.Clients}, -1)
				}
			}
		}
		e.eachLeaver(j, a.Node, func(v *job.State) {
			if waitsFor(v, j.Spec.ID) {
				e.claimPart(j, v, a.Node, a.GPUs, &rest)
			}
		})
	}
}

// eachLeaver calls f for those who leave a node: first for whom the job waits already, by number,
// then for the others.
func (e *Engine) eachLeaver(j *job.State, node int32, f func(v *job.State)) {
	ids := slices.Clone(e.st.Nodes()[node].Stopping())
	slices.Sort(ids)
	for _, others := range []bool{false, true} {
		for _, id := range ids {
			if v := e.jobs[id]; waitsFor(v, j.Spec.ID) != others {
				f(v)
			}
		}
	}
}

// holdsPartOf reports whether allocations have a part of the same device.
func holdsPartOf(allocs []inventory.Alloc, a *inventory.Alloc) bool {
	return slices.ContainsFunc(allocs, func(o inventory.Alloc) bool {
		return o.Node == a.Node && o.GPUs == a.GPUs && o.Share > 0
	})
}

// claimPart is claimFrom for a device.
func (e *Engine) claimPart(j, v *job.State, node int32, dev uint64, need *job.Part) {
	c := job.LeastPart(*need, v.UnclaimedPart(node, dev))
	if c == (job.Part{}) {
		return
	}
	e.forgetResidue(node)
	v.Claims = append(v.Claims,
		job.Claim{By: j.Spec.ID, Node: node, GPUs: dev, Share: c.Milli, Mem: c.Mem, Compute: c.Compute,
			Clients: c.Clients})
	need.Add(c, -1)
	e.waitFor(j, v)
}

// claimFrom counts on what v leaves of a node's CPU and RAM, as far as needed.
func (e *Engine) claimFrom(j, v *job.State, node int32, need *job.Host) {
	c := job.Least(*need, v.Unclaimed(node))
	if c == (job.Host{}) {
		return
	}
	e.forgetResidue(node)
	v.Claims = append(v.Claims, job.Claim{By: j.Spec.ID, Node: node, CPU: c.CPU, RAM: c.RAM})
	need.Add(c, -1)
	e.waitFor(j, v)
}

// waitBeside has those wait for a job that leaves who were to start on its whole
// devices beside it, or beside the same one as it.
func (e *Engine) waitBeside(v *job.State) {
	if !v.Packed {
		return
	}
	list := e.scratch.waiters[:0]
	for _, j := range e.placed {
		if inventory.Overlap(v.Allocs, j.Allocs) {
			list = append(list, j)
		}
	}
	slices.SortFunc(list, func(a, b *job.State) int {
		if a.Key.Before(&b.Key) {
			return -1
		}
		return 1
	})
	for _, j := range list {
		e.waitFor(j, v)
	}
	e.scratch.waiters = list
}

func (e *Engine) waitFor(j, v *job.State) {
	e.touch(v)
	if !waitsFor(v, j.Spec.ID) {
		v.Waiters = append(v.Waiters, j.Spec.ID)
		j.Waits++
	}
}

func waitsFor(v *job.State, id cluster.JobID) bool { return slices.Contains(v.Waiters, id) }

// stopWaiting takes back that a placed job waits for v.
func (e *Engine) stopWaiting(j, v *job.State) {
	if !waitsFor(v, j.Spec.ID) {
		return
	}
	e.touch(v)
	v.Waiters = without(v.Waiters, j.Spec.ID)
	for i := range v.Claims {
		e.forgetResidue(v.Claims[i].Node)
	}
	v.Claims = slices.DeleteFunc(v.Claims, func(c job.Claim) bool { return c.By == j.Spec.ID })
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
			if e.jobs[id].InTheWay(a) {
				return true
			}
		}
		if a.Share > 0 && job.LeastPart(job.PartOn(allocs, a.Node, a.GPUs),
			e.shortPart(a.Node, a.GPUs)) != (job.Part{}) {
			return true
		}
		if job.Least(job.Host{CPU: a.CPU, RAM: a.RAM}, e.short(a.Node)) != (job.Host{}) {
			return true
		}
	}
	return false
}
