package kube

import (
	"context"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/engine"
	"github.com/muster-gpu/muster/kube/gpus"
	"github.com/muster-gpu/muster/kube/patch"
)

// Nodes that are lent, some of which are wanted back in hours of the week (cluster.Loan). The engine chooses which; a
// label says it, to the lender and to the scheduler after this one. A node that is given back is not cordoned: its
// lender runs there what it likes.

// LabelLoan says of a node of a loan whether it is lent or given back.
const LabelLoan = Prefix + "loan"

// What the label says.
const (
	loanLent  = "lent"
	loanGiven = "given"
)

// Loan is nodes that are lent: those with all of these labels, but for those of an earlier one.
type Loan struct {
	Loan     cluster.Loan // its partition is a name for people
	Selector map[string]string
}

// lending is what is known of nodes that are lent.
type lending struct {
	at     cluster.Time      // when other nodes may be wanted
	marked map[string]string // labels that are being written, or were and have yet to be seen, by node
}

// loanOf is the loan that a node is of; -1: it is ours.
func (d *Driver) loanOf(n *node) int {
	if n == nil || n.obj == nil {
		return -1
	}
	return slices.IndexFunc(d.opt.Loans, func(l Loan) bool { return gpus.Selects(l.Selector, n.obj.Labels) })
}

// lend adds the loans to what an engine is made for. What is given back is as the last engine had it; the first goes by
// the labels.
func (d *Driver) lend(snap *engine.Snapshot, spec *cluster.Spec) {
	for i, l := range d.opt.Loans {
		var names []string
		for _, name := range d.order {
			if d.loanOf(d.nodes[name]) == i {
				names = append(names, name)
			}
		}
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
	if len(d.opt.Loans) > 0 {
		spec.Partitions = append(spec.Partitions, cluster.Partition{Name: everyNode, Nodes: slices.Clone(d.order)})
	}
	if d.eng != nil {
		return
	}
	busy := map[string]bool{} // one on which a job still is, is chosen again
	for i := range snap.Jobs {
		for k := range snap.Jobs[i].Allocs {
			busy[d.order[snap.Jobs[i].Allocs[k].Node]] = true
		}
	}
	for i := range snap.Nodes {
		n := &snap.Nodes[i]
		if x := d.nodes[n.Name]; d.loanOf(x) >= 0 && x.obj.Labels[LabelLoan] == loanGiven && !busy[n.Name] {
			snap.Given = append(snap.Given, n.Name)
			if n.State == cluster.Up {
				n.State = cluster.Draining
			}
		}
	}
}

// nextLoan is when other nodes may be wanted.
func (d *Driver) nextLoan() cluster.Time {
	if len(d.opt.Loans) == 0 {
		return cluster.Never
	}
	return d.loans.at
}

// loanTick has the engine look at the hours, also where nothing runs or waits.
func (d *Driver) loanTick(now cluster.Time) {
	if now < d.nextLoan() {
		return
	}
	unix, next := int64(now)/int64(time.Second), cluster.Never
	for i := range d.opt.Loans {
		next = min(next, cluster.Time(d.opt.Loans[i].Loan.Next(unix)*int64(time.Second)))
	}
	d.loans.at = next
	d.queued = append(d.queued, engine.Event{Type: engine.Tick})
}

// markLoans writes on nodes what has become of them.
func (d *Driver) markLoans() {
	if len(d.opt.Loans) == 0 {
		return
	}
	for _, name := range d.order {
		n := d.nodes[name]
		if d.loanOf(n) < 0 {
			continue
		}
		want := loanLent
		if d.eng.IsGivenBack(name) {
			want = loanGiven
		}
		if n.obj.Labels[LabelLoan] != want && d.loans.marked[name] != want {
			d.markLoan(n, name, want)
		}
	}
}

func (d *Driver) markLoan(n *node, name, want string) {
	text := patch.JSON(map[string]any{
		"metadata": map[string]any{"uid": n.obj.UID, "labels": map[string]string{LabelLoan: want}}})
	d.loans.marked[name], d.nodesDirty = want, true
	d.opt.Log.Info("loan", "node", name, "is", want)
	d.do(func(ctx context.Context) {
		_, err := d.opt.Client.CoreV1().Nodes().Patch(ctx, name, types.MergePatchType, text, metav1.PatchOptions{})
		d.inbox.Put(func() {
			if err != nil && d.loans.marked[name] == want {
				delete(d.loans.marked, name) // it is tried again after the next step
				d.opt.Log.Warn("a node cannot be labelled", "label", LabelLoan, "to", want, "error", err)
			}
		})
	})
}

// seeLoan forgets that a label was written once it is seen.
func (d *Driver) seeLoan(n *node) {
	if d.loans.marked[n.obj.Name] == n.obj.Labels[LabelLoan] {
		delete(d.loans.marked, n.obj.Name)
	}
}

// believed is a node's state as it is to be told: one that is given back is drained, as the engine has it.
func (d *Driver) believed(n *node, given bool) cluster.NodeState {
	if s := n.state(); !given || s != cluster.Up {
		return s
	}
	return cluster.Draining
}

// closed says which node of a start takes no pods: one that a person cordoned while it was given back, which the engine
// has as drained either way; "": all do.
func (d *Driver) closed(a *engine.Action) string {
	for i := range a.Allocs {
		name := d.order[a.Allocs[i].Node]
		if n := d.nodes[name]; d.loanOf(n) >= 0 && n.state() != cluster.Up {
			d.nodesDirty = true
			return "node " + name + " takes no pods"
		}
	}
	return ""
}

// goesBack reports whether a gang has to leave because its node is given back.
func (d *Driver) goesBack(g *gang) bool {
	return slices.ContainsFunc(g.slots, func(s slot) bool { return d.eng.IsGivenBack(s.node) })
}
