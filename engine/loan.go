package engine

import (
	"slices"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/engine/inventory"
	"github.com/muster-gpu/muster/engine/job"
	"github.com/muster-gpu/muster/engine/order"
	"github.com/muster-gpu/muster/engine/preempt"
)

// Loans (cluster.Loan): nodes that are lent, and of which the lender wants some back at hours of the week. A
// node that is given back is drained, and the jobs on it leave at once: one whose surplus it is shrinks,
// the others are preempted, critical ones and those within their minimum run time, too, since the
// nodes are another's.

// onGivenBack reports whether some allocations are on a node that is given back.
func onGivenBack(st *inventory.Store, allocs []inventory.Alloc) bool {
	return slices.ContainsFunc(allocs, func(a inventory.Alloc) bool { return st.Nodes()[a.Node].GivenBack() })
}

// GivenBack lists the nodes that are given back to their lenders, by number.
func (e *Engine) GivenBack() (names []string) { return e.loans.GivenBack() }

// IsGivenBack reports whether a node is given back to its lender; an unknown node is not.
func (e *Engine) IsGivenBack(node string) bool {
	id, ok := e.nodeID[node]
	return ok && e.st.Nodes()[id].GivenBack()
}

// changeLoans gives as many nodes back as are wanted now, first of those that take jobs, and takes those that no
// longer are.
func (e *Engine) changeLoans() {
	due := e.loans.Due()
	for i := range due {
		n := due[i].Back
		for _, up := range []bool{true, false} {
			nodes := e.loans.Candidates(&due[i], up)
			n -= e.reclaim(nodes, min(n, len(nodes)))
		}
		for _, id := range due[i].Take {
			e.takeLent(id)
		}
		e.capacityChanged()
	}
}

// takeLent has a node take jobs again.
func (e *Engine) takeLent(id int32) {
	e.st.SetGiven(id, false)
	if n := &e.st.Nodes()[id]; n.Spec().State == cluster.Draining && !n.Drained() {
		e.setNode(id, cluster.Up)
	}
}

// reclaim gives n of some nodes, by number, back.
func (e *Engine) reclaim(nodes []int32, n int) int {
	if n == 0 {
		return 0
	}
	lent := preempt.NewLent(nodes)
	var jobs []*job.State
	e.running.ByKey().Walk(func(it order.Item) bool {
		j := e.jobs[it.ID]
		if (j.State == job.Starting || j.State == job.Running) && lent.Add(j, e.shapes.Get(j.Shape)) {
			jobs = append(jobs, j)
		}
		return true
	})
	back := lent.Reclaim(n)
	for _, id := range back {
		e.st.SetGiven(id, true)
		if e.st.Nodes()[id].Spec().State == cluster.Up {
			e.setNode(id, cluster.Draining)
		}
		e.displace(id)
		e.loseHomes(id)
	}
	for i, j := range jobs {
		e.leaveLent(j, lent.Preempted(i))
	}
	return len(back)
}

// leaveLent has a job leave the nodes that are given back: all that it has, or what it has there.
func (e *Engine) leaveLent(j *job.State, all bool) {
	if !j.Booked() {
		return // it left with another whose guest it was
	}
	keep, gone := j.Allocs, []inventory.Alloc(nil)
	for i := range j.Allocs {
		if id := j.Allocs[i].Node; e.st.Nodes()[id].GivenBack() {
			k, g, ok := inventory.SplitLost(keep, id, inventory.AnyDevice, e.shapes.Get(j.Shape).Sets[0].Request.GPUs)
			keep, gone = k, append(gone, g...)
			if !ok {
				all = true
				break
			}
		}
	}
	switch {
	case all:
		e.evictLent(j)
	case len(gone) > 0:
		e.st.ReleaseAll(gone)
		e.st.Commit()
		e.shrink(j, keep, gone)
		e.running.Update(j)
	}
}

// evictLent stops a job. It keeps no memory on a node that is another's.
func (e *Engine) evictLent(j *job.State) {
	e.stopWhole(j, e.stops.HowToLeave(j), job.Preempted)
}
