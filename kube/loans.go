package kube

import (
	"github.com/muster-gpu/muster/engine"
	"github.com/muster-gpu/muster/kube/loans"
)

// Loan is nodes that are lent (package kube/loans).
type Loan = loans.Loan

// markLoans writes on nodes what has become of them.
func (d *Driver) markLoans() {
	if !d.nodes.Loans.Any() {
		return
	}
	for _, name := range d.nodes.Order() {
		change, to := d.nodes.Loans.Mark(d.nodes.Object(name), d.eng.IsGivenBack(name))
		if to == "" {
			continue
		}
		d.nodes.Dirty = true
		d.opt.Log.Info("loan", "node", name, "is", to)
		d.writer.PatchNode(name, change, "kube-loan-"+to, nil, func(err error) {
			if err != nil && d.nodes.Loans.Failed(name, to) { // it is tried again after the next step
				d.opt.Log.Warn("a node cannot be labelled", "label", loans.Label, "to", to, "error", err)
			}
		})
	}
}

// closed says which node of a start takes no pods: one that a person cordoned while it was given back, which the engine
// has as drained either way; "": all do.
func (d *Driver) closed(a *engine.Action) string {
	for i := range a.Allocs {
		name := d.nodes.Order()[a.Allocs[i].Node]
		if n := d.nodes.Node(name); d.nodes.Loans.Lent(n.Object()) && !n.Up() {
			d.nodes.Dirty = true
			return "node " + name + " takes no pods"
		}
	}
	return ""
}
