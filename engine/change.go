package engine

import (
	"slices"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/engine/inventory"
	"github.com/muster-gpu/muster/engine/job"
)

// A node can become another (NodeChanged): its GPUs are partitioned otherwise or exchanged, or it is somewhere else in
// the network. Its number, its state and what jobs hold of its CPU and RAM stay; where its devices are others, no job
// may have any of them.

// CheckChange says why a node cannot become another; "": it can. A driver asks before it reports NodeChanged, which is
// ignored where it does not fit.
func (e *Engine) CheckChange(n *cluster.Node) string { return e.found.Changed(n) }

// nodeChanged books that a node is another than it was.
func (e *Engine) nodeChanged(id int32, to *cluster.Node) {
	if to == nil || to.Name != e.st.Nodes()[id].Spec().Name || e.CheckChange(to) != "" {
		return
	}
	was := *e.st.Nodes()[id].Spec()
	next := *to
	next.State, next.Asleep, next.Bad = was.State, was.Asleep, next.Bad&(uint64(1)<<next.GPUs-1)
	if inventory.SameHardware(&was, &next) {
		next.Bad = was.Bad
	} else {
		e.displace(id)
		e.forgetPlans(id)
	}
	model, _ := e.found.Model(&next)
	if e.st.Change(id, next, model, e.found.Clients(&model)) != nil {
		return // there are too many kinds of node
	}
	e.w.CPU += next.CPU - was.CPU
	e.w.RAM += next.RAM - was.RAM
	if e.leavers.TooSmall(id) {
		e.displace(id)
	}
	e.shapes.Reclassify()
	e.find.Recount()
	e.admission.NodesChanged()
	e.plan.NodesChanged()
	e.epoch++
	e.fresh = true
	e.plan.Reconsider()
}

// forgetPlans has jobs that wait be promised other places than on a node.
func (e *Engine) forgetPlans(id int32) {
	for _, j := range e.jobs {
		there := func(a inventory.Alloc) bool { return a.Node == id }
		if j != nil && j.State == job.Pending && slices.ContainsFunc(j.Plan, there) {
			e.touch(j)
			j.Promise, j.Plan = cluster.Never, nil
		}
	}
}

// restoreChanged makes the nodes what events made of them. It comes before anything asks what can ever run.
func (e *Engine) restoreChanged(s *Snapshot) {
	changed, resized := nameSet(s.Changed), nameSet(s.Resized)
	for i := range s.Nodes {
		if n := &s.Nodes[i]; changed[n.Name] {
			e.nodeChanged(e.nodeID[n.Name], n)
		}
	}
	for i := range s.Nodes {
		if n := &s.Nodes[i]; resized[n.Name] && !e.resize(e.nodeID[n.Name], n.CPU, n.RAM) {
			e.st.SetSize(e.nodeID[n.Name], n.CPU, n.RAM) // as configured now; it stays so under another configuration
		}
	}
}
