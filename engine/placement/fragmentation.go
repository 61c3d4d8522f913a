package placement

import "github.com/muster-gpu/muster/engine/inventory"

// Fragmentation says how much of the free GPUs the tasks that were submitted
// last could use on average (FGD, ATC'23: free less the fragments).
func (f *Finder) Fragmentation() (sum inventory.Fragmentation) {
	rest := int64(0) // what is less than a milli-GPU
	f.eachUsable(func(_ int, n *inventory.FragNode, weight int64) {
		sum.Free += n.Free()
		if weight > 0 {
			sum.Usable += n.Usable() / weight
			rest += n.Usable() % weight
			sum.Usable, rest = sum.Usable+rest/weight, rest%weight
		} else {
			sum.Usable += n.Free()
		}
	})
	return sum
}

// FragmentationByNode is Fragmentation node by node, in the order of Nodes.
func (f *Finder) FragmentationByNode() []inventory.Fragmentation {
	list := make([]inventory.Fragmentation, len(f.World.Store.Nodes()))
	f.eachUsable(func(id int, n *inventory.FragNode, weight int64) {
		if list[id] = (inventory.Fragmentation{Free: n.Free(), Usable: n.Free()}); weight > 0 {
			list[id].Usable = n.Usable() / weight
		}
	})
	return list
}

// eachUsable calls found for each node that takes jobs, with the tasks that count.
func (f *Finder) eachUsable(found func(id int, n *inventory.FragNode, weight int64)) {
	d, st := f.Demand(), f.World.Store
	st.Memory().Fresh(d, len(st.Nodes()))
	for id := range st.Nodes() {
		if st.Nodes()[id].TakesJobs() {
			found(id, st.Usable(id, d), d.Weight)
		}
	}
}
