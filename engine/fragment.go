package engine

import "github.com/muster-gpu/muster/engine/inventory"

// Fragmentation says how much of the free GPUs the tasks that were submitted
// last could use on average (FGD, ATC'23: free less the fragments).
func (e *Engine) Fragmentation() (f inventory.Fragmentation) {
	rest := int64(0) // what is less than a milli-GPU
	e.fragmentation(func(_ int, n *inventory.FragNode, weight int64) {
		f.Free += n.Free()
		if weight > 0 {
			f.Usable += n.Usable() / weight
			rest += n.Usable() % weight
			f.Usable, rest = f.Usable+rest/weight, rest%weight
		} else {
			f.Usable += n.Free()
		}
	})
	return f
}

// FragmentationByNode is Fragmentation node by node, in the order of Nodes.
func (e *Engine) FragmentationByNode() []inventory.Fragmentation {
	list := make([]inventory.Fragmentation, len(e.st.Nodes()))
	e.fragmentation(func(id int, n *inventory.FragNode, weight int64) {
		if list[id] = (inventory.Fragmentation{Free: n.Free(), Usable: n.Free()}); weight > 0 {
			list[id].Usable = n.Usable() / weight
		}
	})
	return list
}

// fragmentation calls f for each node that takes jobs, with the tasks that count.
func (e *Engine) fragmentation(f func(id int, n *inventory.FragNode, weight int64)) {
	d := e.find.Demand()
	e.st.Memory().Fresh(d, len(e.st.Nodes()))
	for id := range e.st.Nodes() {
		if e.st.Nodes()[id].TakesJobs() {
			f(id, e.st.Usable(id, d), d.Weight)
		}
	}
}
