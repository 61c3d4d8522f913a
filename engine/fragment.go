package engine

import (
	"fmt"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/engine/inventory"
	"github.com/muster-gpu/muster/engine/job"
	"github.com/muster-gpu/muster/engine/shape"
)

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

// fragmentsText says how much is free where the job may run, and how much of that is on
// nodes, or devices, that one of its tasks could use; "": all is, or nothing is free.
func (e *Engine) fragmentsText(j *job.State, s *shape.Shape) string {
	free, usable := cluster.Milli(0), cluster.Milli(0)
	for id := range e.st.Nodes() {
		n := &e.st.Nodes()[id]
		if !n.TakesJobs() || !s.Any.Has(n.Class()) {
			continue
		}
		c, most := &e.st.Classes()[n.Class()], cluster.Milli(0)
		for k := range s.Sets {
			r := &s.Sets[k].Request
			if r.GPUs == 0 || !s.Suits[k].Has(n.Class()) || r.CPU > n.CPU() || r.RAM > n.RAM() {
				continue
			}
			g := inventory.GroupOf(r, e.find.Sharer(j.Spec, r), c.Model())
			sum, _ := n.UsableBy(c, &g)
			most = max(most, sum)
		}
		free, usable = free+n.FreeMilli(), usable+most
	}
	// a GPU that is all slices lacks some thousandths of what they count for
	if j.Milli == 0 || free-usable < cluster.Whole/100 {
		return ""
	}
	gpus := func(milli cluster.Milli) string { return fmt.Sprintf("%.4g", float64(milli)/float64(cluster.Whole)) }
	are := "GPUs are"
	if free == cluster.Whole {
		are = "GPU is"
	}
	return fmt.Sprintf("fragments: %s %s free where it may run, %s of that in pieces that one of its tasks could use",
		gpus(free), are, gpus(usable))
}
