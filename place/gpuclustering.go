package place

import (
	"math/bits"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/engine/placement"
)

var gpuClustering = Info{
	Name:   "gpu-clustering",
	About:  "nodes that already run tasks of the same size (a share, one GPU, two ...), the fuller first",
	Source: "GpuClustering of the FGD paper",
	New: func() placement.Placer {
		return byScore{"gpu-clustering", func(s *placement.Site, node, set int) int64 {
			r := &s.Sets()[set].Request
			if r.GPUs == 0 {
				return 0
			}
			size := r.GPUs
			if r.Fractional() || r.Profile != "" {
				size = 0
			}
			return ClusteringScore(s.Sizes(node), size, s.FreeMilli(node))
		}}
	},
}

// ClusteringScore rates a node by the sizes of the tasks on it (bit 0: shares and slices; bit k: k
// GPUs), the size of the task to place and its free milli-GPU (FGD's simulator, section 6): up to
// 25 for how full it is, plus 75 if all tasks are of this size, 50 if some are, 25 if there are
// none.
func ClusteringScore(sizes uint64, size int, free cluster.Milli) int64 {
	base := 25 * max(0, 8*cluster.Whole-free) / (8 * cluster.Whole)
	switch {
	case sizes == 0:
		return base + 25
	case sizes>>size&1 == 0:
		return base
	case bits.OnesCount64(sizes) == 1:
		return base + 75
	}
	return base + 50
}
