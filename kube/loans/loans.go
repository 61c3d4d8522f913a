// Package loans knows which nodes are lent, and which of them are given back. The engine chooses these, by the hours of
// the week in which some are wanted back (cluster.Loan); a label says it, to the lender and to the scheduler after this
// one. A node that is given back is not cordoned: its lender runs there what it likes.
package loans

import (
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/engine"
	"github.com/muster-gpu/muster/kube/gpus"
	"github.com/muster-gpu/muster/kube/patch"
	"github.com/muster-gpu/muster/kube/terms"
)

// Label says of a node of a loan whether it is lent or given back.
const Label = terms.Prefix + "loan"

// What the label says.
const (
	lent  = "lent"
	given = "given"
)

// Everywhere is the partition of all nodes, where some are lent: else the engine has no partitions.
const Everywhere = "every node"

// Loan is nodes that are lent: those with all of these labels, but for those of an earlier one.
type Loan struct {
	Loan     cluster.Loan // its partition is a name for people
	Selector map[string]string
}

// Room is what is known of nodes that are lent.
type Room struct {
	loans  []Loan
	at     cluster.Time      // when other nodes may be wanted
	marked map[string]string // labels that are being written, or were and have yet to be seen, by node
}

// New takes the loans over.
func New(list []Loan) *Room { return &Room{loans: list, marked: map[string]string{}} }

// Any reports whether there are loans.
func (r *Room) Any() bool { return len(r.loans) > 0 }

// of is the loan that a node is of; -1: it is ours, or gone.
func (r *Room) of(n *v1.Node) int {
	if n == nil {
		return -1
	}
	return slices.IndexFunc(r.loans, func(l Loan) bool { return gpus.Selects(l.Selector, n.Labels) })
}

// Lent reports whether a node is of a loan; nil: it is gone.
func (r *Room) Lent(n *v1.Node) bool { return r.of(n) >= 0 }

// Differs reports whether a node that changed is of another loan than it was.
func (r *Room) Differs(old, n *v1.Node) bool {
	return slices.ContainsFunc(r.loans, func(l Loan) bool {
		return gpus.Selects(l.Selector, old.Labels) != gpus.Selects(l.Selector, n.Labels)
	})
}

// Lend adds the loans to what an engine is made for; object finds a node, nil: it is gone.
func (r *Room) Lend(spec *cluster.Spec, object func(name string) *v1.Node) {
	var all []string
	of := map[int][]string{}
	for i := range spec.Nodes {
		name := spec.Nodes[i].Name
		loan := r.of(object(name))
		all, of[loan] = append(all, name), append(of[loan], name)
	}
	for i, l := range r.loans {
		names := of[i]
		if len(names) == 0 {
			continue // its nodes may come yet
		}
		loan := l.Loan
		loan.Partition, loan.Back = "lent: "+l.Loan.Partition, slices.Clone(l.Loan.Back)
		for k := range loan.Back {
			loan.Back[k].Nodes = min(loan.Back[k].Nodes, len(names))
		}
		spec.Partitions = append(spec.Partitions, cluster.Partition{Name: loan.Partition, Nodes: names})
		spec.Loans = append(spec.Loans, loan)
	}
	if len(r.loans) > 0 {
		spec.Partitions = append(spec.Partitions, cluster.Partition{Name: Everywhere, Nodes: all})
	}
}

// Confine has a job run on a set of nodes only, by its name; "": on all.
func (r *Room) Confine(job *cluster.Job, set string) {
	job.Nodes, job.Partitions = set, nil
	if len(r.loans) > 0 {
		job.Partitions = []string{Everywhere}
	}
}

// Found tells the first engine which nodes are given back, by their labels. One on which a job still is, is chosen
// again.
func (r *Room) Found(snap *engine.Snapshot, object func(name string) *v1.Node) {
	busy := map[int32]bool{}
	for i := range snap.Jobs {
		for k := range snap.Jobs[i].Allocs {
			busy[snap.Jobs[i].Allocs[k].Node] = true
		}
	}
	for i := range snap.Nodes {
		n := &snap.Nodes[i]
		if o := object(n.Name); r.of(o) >= 0 && o.Labels[Label] == given && !busy[int32(i)] {
			snap.Given = append(snap.Given, n.Name)
			if n.State == cluster.Up {
				n.State = cluster.Draining
			}
		}
	}
}

// Next is when other nodes may be wanted.
func (r *Room) Next() cluster.Time {
	if len(r.loans) == 0 {
		return cluster.Never
	}
	return r.at
}

// Due reports whether the engine is to look at the hours, also where nothing runs or waits.
func (r *Room) Due(now cluster.Time) bool {
	if now < r.Next() {
		return false
	}
	r.at = cluster.Never
	for i := range r.loans {
		at := r.loans[i].Loan.Next(int64(now) / int64(time.Second))
		r.at = min(r.at, cluster.Time(at*int64(time.Second)))
	}
	return true
}

// Mark is the change by which a node says whether it is given back; to "": it says so already, is being told, or is of
// no loan.
func (r *Room) Mark(n *v1.Node, isGiven bool) (change []byte, to string) {
	if r.of(n) < 0 {
		return nil, ""
	}
	if to = lent; isGiven {
		to = given
	}
	if n.Labels[Label] == to || r.marked[n.Name] == to {
		return nil, ""
	}
	r.marked[n.Name] = to
	return patch.JSON(map[string]any{
		"metadata": map[string]any{"uid": n.UID, "labels": map[string]string{Label: to}}}), to
}

// Failed notes that a node could not be told, and reports whether it is to be told again.
func (r *Room) Failed(name, to string) bool {
	if r.marked[name] != to {
		return false
	}
	delete(r.marked, name)
	return true
}

// See forgets that a label was written once it is seen.
func (r *Room) See(n *v1.Node) {
	if r.marked[n.Name] == n.Labels[Label] {
		delete(r.marked, n.Name)
	}
}

// Forget forgets a node that is gone.
func (r *Room) Forget(name string) { delete(r.marked, name) }
