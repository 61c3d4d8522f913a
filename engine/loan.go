package engine

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/engine/inventory"
	"github.com/muster-gpu/muster/engine/job"
	"github.com/muster-gpu/muster/engine/order"
	"github.com/muster-gpu/muster/engine/preempt"
)

// Loans (cluster.Loan): nodes that are lent, and of which the lender wants some back at hours of the week. A
// node that is given back is drained, and the jobs on it leave at once: one whose surplus it is shrinks,
// the others are preempted, critical ones and those within their minimum run time, too, since the
// nodes are another's. How many are given back depends on the time alone, so a replay sees
// the same; which ones is state.

// initLoans checks the loans.
func (e *Engine) initLoans() error {
	lent := map[int32]string{} // looked up only
	for i := range e.cfg.Spec.Loans {
		l := &e.cfg.Spec.Loans[i]
		nodes := e.loanNodes(l)
		if nodes == nil {
			var names []string
			for k := range e.parts {
				names = append(names, e.parts[k].spec.Name)
			}
			return fmt.Errorf("loans: %w", cluster.Unknown("partition", l.Partition, names))
		}
		if err := l.Check(len(nodes)); err != nil {
			return fmt.Errorf("loans: %w", err)
		}
		for _, id := range nodes {
			if other := lent[id]; other != "" {
				return fmt.Errorf("loans: %s: node %s is in %s, too, of which another loan is", l.Partition,
					e.st.Nodes()[id].Spec().Name, other)
			}
			lent[id] = l.Partition
			e.st.SetLent(id)
		}
	}
	return nil
}

// loanNodes lists the nodes of a loan by number.
func (e *Engine) loanNodes(l *cluster.Loan) (list []int32) {
	for i := range e.parts {
		if p := &e.parts[i].spec; p.Name == l.Partition {
			for _, name := range p.Nodes {
				list = append(list, e.nodeID[name])
			}
		}
	}
	slices.Sort(list)
	return slices.Compact(list)
}

// givenBack lists those of a loan's nodes that are given back, by number.
func (e *Engine) givenBack(l *cluster.Loan) []int32 {
	return slices.DeleteFunc(e.loanNodes(l), func(id int32) bool { return !e.st.Nodes()[id].GivenBack() })
}

// givenAny reports whether some allocations are on a node that is given back.
func (e *Engine) givenAny(allocs []inventory.Alloc) bool {
	return slices.ContainsFunc(allocs, func(a inventory.Alloc) bool { return e.st.Nodes()[a.Node].GivenBack() })
}

// GivenBack lists the nodes that are given back to their lenders, by number.
func (e *Engine) GivenBack() (names []string) {
	if len(e.cfg.Spec.Loans) == 0 {
		return nil
	}
	for i := range e.st.Nodes() {
		if n := &e.st.Nodes()[i]; n.GivenBack() {
			names = append(names, n.Spec().Name)
		}
	}
	return names
}

// IsGivenBack reports whether a node is given back to its lender; an unknown node is not.
func (e *Engine) IsGivenBack(node string) bool {
	id, ok := e.nodeID[node]
	return ok && e.st.Nodes()[id].GivenBack()
}

// loansDue gives as many nodes back as are wanted now, and takes those that no longer are.
func (e *Engine) loansDue() {
	if len(e.cfg.Spec.Loans) == 0 || e.w.Now < e.loansAt {
		return
	}
	now, next := e.unix(e.w.Now), int64(0)
	for i := range e.cfg.Spec.Loans {
		l := &e.cfg.Spec.Loans[i]
		if at := l.Next(now); i == 0 || at < next {
			next = at
		}
		given := e.givenBack(l)
		switch n := l.Wanted(now) - len(given); {
		case n > 0:
			e.giveBack(l, n)
		case n < 0:
			for _, id := range given[len(given)+n:] {
				e.takeLent(id)
			}
			e.capacityChanged()
		}
	}
	e.loansAt = e.instant(next)
}

// loansWake is when the engine wants to be called to give nodes back or take them.
func (e *Engine) loansWake() cluster.Time {
	if len(e.cfg.Spec.Loans) == 0 || e.live == 0 {
		return cluster.Never
	}
	return e.loansAt
}

// instant is an instant on the calendar as the engine counts it.
func (e *Engine) instant(unix int64) cluster.Time {
	return cluster.Time((unix - e.cfg.Spec.Epoch) * int64(time.Second))
}

// takeLent has a node take jobs again.
func (e *Engine) takeLent(id int32) {
	e.st.SetGiven(id, false)
	if n := &e.st.Nodes()[id]; n.Spec().State == cluster.Draining && !n.Drained() {
		e.setNode(id, cluster.Up)
	}
}

// giveBack gives n more of a loan's nodes back: first of those that take jobs.
func (e *Engine) giveBack(l *cluster.Loan, n int) {
	for _, up := range []bool{true, false} {
		nodes := slices.DeleteFunc(e.loanNodes(l), func(id int32) bool {
			n := &e.st.Nodes()[id]
			return n.GivenBack() || (n.Spec().State == cluster.Up) != up
		})
		n -= e.reclaim(nodes, min(n, len(nodes)))
	}
	e.capacityChanged()
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
	how := e.howToStop(j)
	if how == job.Suspend {
		if how = job.Checkpoint; j.Spec.Checkpoint.None {
			how = job.Kill
		}
	}
	e.stopWhole(j, how, job.Preempted)
}

// givenText says until when nodes are given back on which a job could run; "": none are.
func (e *Engine) givenText(j *job.State) string {
	mask, list := e.shapes.PartMask(j.Partitions()), []string(nil)
	for i := range e.cfg.Spec.Loans {
		l := &e.cfg.Spec.Loans[i]
		given := e.givenBack(l)
		given = slices.DeleteFunc(given, func(id int32) bool {
			return e.st.Classes()[e.st.Nodes()[id].Class()].Partitions()&mask == 0
		})
		if len(given) == 0 {
			continue
		}
		var names []string
		for _, id := range given {
			names = append(names, e.st.Nodes()[id].Spec().Name)
		}
		list = append(list, strings.TrimSpace(
			"given back: "+strings.Join(names, ",")+" "+l.Says(e.unix(e.w.Now), len(e.givenBack(l)))))
	}
	return strings.Join(list, "; ")
}

// checkLoans checks that as many nodes are given back as are wanted, without jobs.
func (e *Engine) checkLoans() error {
	given := 0
	for i := range e.cfg.Spec.Loans {
		l := &e.cfg.Spec.Loans[i]
		n := len(e.givenBack(l))
		if given += n; n != l.Wanted(e.unix(e.w.Now)) {
			return fmt.Errorf("loan of %s: %d nodes are given back, want %d", l.Partition, n, l.Wanted(e.unix(e.w.Now)))
		}
	}
	for i := range e.st.Nodes() {
		n := &e.st.Nodes()[i]
		if !n.GivenBack() {
			continue
		}
		if given--; n.Spec().State == cluster.Up || n.TakesJobs() || n.Frozen() > 0 {
			return fmt.Errorf("node %s is given back, and is %s, in the index %v, with %d suspended", n.Spec().Name,
				n.Spec().State, n.TakesJobs(), n.Frozen())
		}
		for _, j := range e.jobs {
			if j != nil && j.Booked() && inventory.OnNode(j.Allocs, int32(i)) {
				return fmt.Errorf("job %d is on node %s, which is given back", j.Spec.ID, n.Spec().Name)
			}
		}
	}
	if given != 0 {
		return fmt.Errorf("%d nodes are given back of no loan", given)
	}
	return nil
}
