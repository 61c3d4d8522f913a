package inventory

import (
	"cmp"
	"math/bits"

	"github.com/muster-gpu/muster/cluster"
)

// Kind is a GPU model and its capacity in the cluster.
type Kind struct {
	GPU     string
	GPUs    int   // healthy ones of nodes that take jobs
	PerNode int   // of the largest node
	Weight  int64 // weight of a GPU-hour, in thousandths
}

// kindsMemo caches the result of ListKinds: a plan may ask for each job.
type kindsMemo struct {
	list    []Kind
	changes uint64 // value of Store.changes
	classes int
}

// ListKinds lists the GPU models, in the order in which their first nodes joined. The list must not be changed.
func (st *Store) ListKinds() []Kind {
	if m := &st.kinds; m.list == nil || m.changes != st.changes || m.classes != len(st.classes) {
		*m = kindsMemo{st.countKinds(), st.changes, len(st.classes)}
	}
	return st.kinds.list
}

// countKinds is ListKinds without the cache.
func (st *Store) countKinds() []Kind {
	var list []Kind
	for ci := range st.classes {
		c := &st.classes[ci]
		if c.gpus == 0 {
			continue
		}
		k := 0
		for k < len(list) && list[k].GPU != c.model.Name {
			k++
		}
		if k == len(list) {
			list = append(list, Kind{GPU: c.model.Name, Weight: cmp.Or(c.model.Weight, cluster.Whole)})
		}
		list[k].PerNode = max(list[k].PerNode, c.gpus)
		for _, id := range c.nodes {
			if n := &st.nodes[id]; n.indexed {
				list[k].GPUs += bits.OnesCount64(n.healthy)
			}
		}
	}
	return list
}
