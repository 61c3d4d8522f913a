package sim

import "github.com/muster-gpu/muster/cluster"

// residency is which models' weights the nodes' host memory still has, by node, the last used first.
type residency [][]weights

// weights are those of a variant of a service.
type weights struct {
	service, variant int
	size             cluster.MiB
}

// use has a node load weights, and reports whether its memory still had them. What was used longest ago goes where they
// need more than there is room; 0: the node's memory is not modelled. Weights that exceed the room take it all, and are
// not kept.
func (r residency) use(node int, w weights, room cluster.MiB) (had bool) {
	old := r[node]
	list, left := make([]weights, 0, len(old)+1), room-w.size
	if room == 0 || left >= 0 {
		list = append(list, w)
	}
	for _, o := range old {
		if o.service == w.service && o.variant == w.variant {
			had = true
			continue
		}
		if left -= o.size; room == 0 || left >= 0 {
			list = append(list, o)
		}
	}
	r[node] = list
	return had
}
