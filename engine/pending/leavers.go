package pending

import (
	"fmt"
	"math/bits"
	"slices"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/engine/inventory"
	"github.com/muster-gpu/muster/engine/job"
)

// Leavers is which placed jobs wait for which that leave. Devices are promised on as soon as their holder is told to
// leave; a placed job waits for those that still have what it needs: its whole devices, its memory slices, and as much
// of shared devices, and of CPU and RAM of its nodes, as is not free yet. Free is what no job holds, none was promised,
// and no job's claim counts on.
type Leavers struct {
	Store *inventory.Store
	Jobs  func() []*job.State // by number; nil where there is none
	Touch func(j *job.State)  // notes that a job's record changes

	nodes    []int32      // of which stopping jobs still hold something, in order
	residues []residue    // by node
	freed    int64        // grows when something may have become free that no stopping job holds
	full     []int64      // by shape: freed when it did not fit in what no stopping job holds; -1: unknown
	waiters  []*job.State // memory of WaitBeside
}

// Short is how much CPU and RAM of a node, of what was promised, a job that leaves still holds and none counts on.
func (l *Leavers) Short(node int32) job.Host {
	n := &l.Store.Nodes()[node]
	h := job.Host{CPU: -n.CPU(), RAM: -n.RAM()}
	for _, id := range n.Stopping() {
		h.Add(l.Jobs()[id].Unclaimed(node), 1)
	}
	return h
}

// ShortPart is Short for a device.
func (l *Leavers) ShortPart(node int32, dev uint64) job.Part {
	n := &l.Store.Nodes()[node]
	c := &l.Store.Classes()[n.Class()]
	d := &n.Devices()[bits.TrailingZeros64(dev)]
	h := job.Part{Milli: -int64(d.Milli()), Mem: -d.Mem(), Compute: int64(d.Compute()) - int64(c.Model().Compute),
		Clients: -int64(c.Seats(d))}
	for _, id := range n.Stopping() {
		h.Add(l.Jobs()[id].UnclaimedPart(node, dev), 1)
	}
	return h
}

// Wait makes a job that was booked wait for those that leave what it needs: all that are in the way on one of its
// devices (InTheWay), and for what it takes of shared devices, of CPU and of RAM those first and then others by number,
// as few as it takes in this order.
func (l *Leavers) Wait(j *job.State) {
	j.Waits = 0
	for i := range j.Allocs {
		a := &j.Allocs[i]
		for _, id := range l.Store.Nodes()[a.Node].Stopping() {
			if v := l.Jobs()[id]; v.InTheWay(a) {
				l.waitFor(j, v)
			}
		}
	}
	for i := range j.Allocs {
		a := &j.Allocs[i]
		if len(l.Store.Nodes()[a.Node].Stopping()) == 0 || a.Share == 0 || inventory.ShareDevice(j.Allocs[:i], a) {
			continue
		}
		if need := job.LeastPart(job.PartOn(j.Allocs, a.Node, a.GPUs),
			l.ShortPart(a.Node, a.GPUs)); need != (job.Part{}) {
			l.each(j, a.Node, func(v *job.State) { l.claimPart(j, v, a.Node, a.GPUs, &need) })
		}
	}
	for i := range j.Allocs {
		node := j.Allocs[i].Node
		if len(l.Store.Nodes()[node].Stopping()) == 0 || inventory.OnNode(j.Allocs[:i], node) {
			continue
		}
		short, takes := l.Short(node), job.HostOn(j.Allocs, node)
		if need := job.Least(takes, short); need != (job.Host{}) {
			short.Add(need, -1)
			l.each(j, node, func(v *job.State) { l.claimFrom(j, v, node, &need) })
			l.waitForMore(j, node, takes, short)
		}
	}
	if j.Waits > 0 {
		l.claimRest(j)
	}
}

// TooSmall reports whether a node has become too small for the jobs that are to start on it, or for them and those that
// have to leave before.
func (l *Leavers) TooSmall(node int32) bool {
	h := l.Short(node)
	return l.Store.Nodes()[node].Overcommitted() || h.CPU > 0 || h.RAM > 0
}

// waitForMore has a booked job wait until jobs have left what others hold beyond the CPU and RAM of a node that has
// become smaller. It does not count on that: it is no room for it.
func (l *Leavers) waitForMore(j *job.State, node int32, takes, more job.Host) {
	if takes.CPU == 0 {
		more.CPU = 0
	}
	if takes.RAM == 0 {
		more.RAM = 0
	}
	l.each(j, node, func(v *job.State) {
		if left := job.Least(more, v.Unclaimed(node)); left != (job.Host{}) {
			more.Add(left, -1)
			l.waitFor(j, v)
		}
	})
}

// claimRest has a job that waits take all that it can of its shared devices from those for which it waits anyhow: what
// is free there is left to others, which can start at once.
func (l *Leavers) claimRest(j *job.State) {
	for i := range j.Allocs {
		a := &j.Allocs[i]
		if len(l.Store.Nodes()[a.Node].Stopping()) == 0 || a.Share == 0 || inventory.ShareDevice(j.Allocs[:i], a) {
			continue
		}
		rest := job.PartOn(j.Allocs, a.Node, a.GPUs)
		for _, id := range l.Store.Nodes()[a.Node].Stopping() {
			for _, c := range l.Jobs()[id].Claims {
				if c.By == j.Spec.ID && c.Node == a.Node && c.GPUs == a.GPUs {
					rest.Add(job.Part{Milli: c.Share, Mem: c.Mem, Compute: c.Compute, Clients: c.Clients}, -1)
				}
			}
		}
		l.each(j, a.Node, func(v *job.State) {
			if waits(v, j.Spec.ID) {
				l.claimPart(j, v, a.Node, a.GPUs, &rest)
			}
		})
	}
}

// each calls f for those that leave a node: first those for which the job waits already, by number, then the others.
func (l *Leavers) each(j *job.State, node int32, f func(v *job.State)) {
	ids := slices.Clone(l.Store.Nodes()[node].Stopping())
	slices.Sort(ids)
	for _, others := range []bool{false, true} {
		for _, id := range ids {
			if v := l.Jobs()[id]; waits(v, j.Spec.ID) != others {
				f(v)
			}
		}
	}
}

// claimPart is claimFrom for a device.
func (l *Leavers) claimPart(j, v *job.State, node int32, dev uint64, need *job.Part) {
	c := job.LeastPart(*need, v.UnclaimedPart(node, dev))
	if c == (job.Part{}) {
		return
	}
	l.forget(node)
	v.Claims = append(v.Claims,
		job.Claim{By: j.Spec.ID, Node: node, GPUs: dev, Share: c.Milli, Mem: c.Mem, Compute: c.Compute,
			Clients: c.Clients})
	need.Add(c, -1)
	l.waitFor(j, v)
}

// claimFrom counts on what v leaves of a node's CPU and RAM, as far as needed.
func (l *Leavers) claimFrom(j, v *job.State, node int32, need *job.Host) {
	c := job.Least(*need, v.Unclaimed(node))
	if c == (job.Host{}) {
		return
	}
	l.forget(node)
	v.Claims = append(v.Claims, job.Claim{By: j.Spec.ID, Node: node, CPU: c.CPU, RAM: c.RAM})
	need.Add(c, -1)
	l.waitFor(j, v)
}

// WaitBeside has those of the placed jobs wait for a job that leaves which were to start on its whole devices beside
// it, or beside the same one as it.
func (l *Leavers) WaitBeside(v *job.State, placed []*job.State) {
	if !v.Packed {
		return
	}
	list := l.waiters[:0]
	for _, j := range placed {
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
		l.waitFor(j, v)
	}
	l.waiters = list
}

func (l *Leavers) waitFor(j, v *job.State) {
	l.Touch(v)
	if !waits(v, j.Spec.ID) {
		v.Waiters = append(v.Waiters, j.Spec.ID)
		j.Waits++
	}
}

// waits reports whether a placed job waits for v to leave.
func waits(v *job.State, id cluster.JobID) bool { return slices.Contains(v.Waiters, id) }

// StopWaiting takes back that a placed job waits for v.
func (l *Leavers) StopWaiting(j, v *job.State) {
	if !waits(v, j.Spec.ID) {
		return
	}
	l.Touch(v)
	v.Waiters = without(v.Waiters, j.Spec.ID)
	for i := range v.Claims {
		l.forget(v.Claims[i].Node)
	}
	v.Claims = slices.DeleteFunc(v.Claims, func(c job.Claim) bool { return c.By == j.Spec.ID })
}

// Contested reports whether a job that leaves still has part of what was taken.
func (l *Leavers) Contested(allocs []inventory.Alloc) bool {
	for i := range allocs {
		a := &allocs[i]
		n := &l.Store.Nodes()[a.Node]
		if len(n.Stopping()) == 0 {
			continue
		}
		for _, id := range n.Stopping() {
			if l.Jobs()[id].InTheWay(a) {
				return true
			}
		}
		if a.Share > 0 && job.LeastPart(job.PartOn(allocs, a.Node, a.GPUs),
			l.ShortPart(a.Node, a.GPUs)) != (job.Part{}) {
			return true
		}
		if job.Least(job.Host{CPU: a.CPU, RAM: a.RAM}, l.Short(a.Node)) != (job.Host{}) {
			return true
		}
	}
	return false
}

// Check checks that placed jobs wait exactly for those that still hold what they were promised; moving: jobs that leave
// for devices that are booked for them. It is slow, and for tests.
func (l *Leavers) Check(moving []cluster.JobID) error {
	for id := range l.Store.Nodes() {
		left := len(l.Store.Nodes()[id].Stopping()) > 0
		if _, listed := slices.BinarySearch(l.nodes, int32(id)); listed != left {
			return fmt.Errorf("node %d: listed as being left: %v, and it is: %v", id, listed, left)
		}
	}
	counted := make([]int32, len(l.Jobs()))
	for _, v := range l.Jobs() {
		if v == nil {
			continue
		}
		for i, id := range v.Waiters {
			w := l.Jobs()[id]
			if w == nil || w.State != job.Placed || len(v.GoingAllocs()) == 0 || slices.Contains(v.Waiters[:i], id) {
				return fmt.Errorf("job %d (%s) has waiter %d in vain", v.Spec.ID, v.State, id)
			}
			counted[id]++
		}
	}
	if err := l.checkClaims(moving); err != nil {
		return err
	}
	for _, j := range l.Jobs() {
		if j == nil || j.State != job.Placed {
			continue
		}
		if counted[j.Spec.ID] != j.Waits {
			return fmt.Errorf("placed job %d waits for %d jobs, recomputed %d", j.Spec.ID, j.Waits, counted[j.Spec.ID])
		}
		for i := range j.Allocs {
			a := &j.Allocs[i]
			if a.Share > 0 { // a job that stopped later on the device was beside it
				continue
			}
			if s := l.Store.Nodes()[a.Node].Spec().State; s != cluster.Up {
				return fmt.Errorf("job %d is to start on node %d, which is %s", j.Spec.ID, a.Node, s)
			}
			for _, id := range l.Store.Nodes()[a.Node].Stopping() {
				if v := l.Jobs()[id]; v.InTheWay(a) && !waits(v, j.Spec.ID) {
					return fmt.Errorf("placed job %d does not wait for job %d on node %d", j.Spec.ID, id, a.Node)
				}
			}
		}
	}
	return nil
}

// checkClaims checks that whatever CPU, RAM and parts of GPUs the books promised is free, or
// claimed by the jobs that wait for it; and that no job counts on more than there is.
func (l *Leavers) checkClaims(moving []cluster.JobID) error {
	for id := range l.Store.Nodes() {
		h := l.Short(int32(id))
		for _, v := range moving { // where they go they wait for others when they have left
			h.Add(job.HostOn(l.Jobs()[v].Dest, int32(id)), -1)
		}
		if (h.CPU > 0 || h.RAM > 0) && !l.Store.Nodes()[id].SizeByEvent() {
			return fmt.Errorf("node %d: %+v is promised to jobs that do not wait for it", id, h)
		}
		for i := range l.Store.Nodes()[id].Devices() {
			p := l.ShortPart(int32(id), 1<<i)
			for _, v := range moving {
				p.Add(job.PartOn(l.Jobs()[v].Dest, int32(id), 1<<i), -1)
			}
			if p.Milli > 0 || p.Mem > 0 || p.Compute > 0 || p.Clients > 0 {
				return fmt.Errorf("node %d, device %d: %+v is promised to jobs that do not wait for it", id, i, p)
			}
		}
	}
	for _, v := range l.Jobs() {
		if v == nil {
			continue
		}
		for _, c := range v.Claims {
			if !waits(v, c.By) {
				return fmt.Errorf("job %d counts on job %d and does not wait for it", c.By, v.Spec.ID)
			}
			if h := v.Unclaimed(c.Node); h.CPU < 0 || h.RAM < 0 {
				return fmt.Errorf("more is claimed of job %d on node %d than it has: %+v", v.Spec.ID, c.Node, h)
			}
			if p := v.UnclaimedPart(c.Node, c.GPUs); c.GPUs != 0 &&
				(p.Milli < 0 || p.Mem < 0 || p.Compute < 0 || p.Clients < 0) {
				return fmt.Errorf("more is claimed of job %d on devices %b of node %d than it has: %+v", v.Spec.ID,
					c.GPUs, c.Node, p)
			}
		}
	}
	return nil
}
