package place

import (
	"slices"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/engine/placement"
)

var gpuPacking = Info{
	Name:   "gpu-packing",
	About:  "partly used GPUs first, the fullest; then idle GPUs of nodes in use; then idle nodes, those with fewer GPUs first",
	Source: "GpuPacking of the FGD paper",
	New: func() placement.Placer {
		return byScore{"gpu-packing", func(s *placement.Site, node, set int) int64 {
			r := &s.Sets()[set].Request
			if r.GPUs == 0 {
				return 0
			}
			var buf [cluster.MaxGPUsPerNode]int64
			return PackingScore(s.Free(node, buf[:0]), max(1, r.Milli()/int64(r.GPUs)), r.GPUs)
		}}
	},
}

// PackingScore rates a node by the free milli-GPU of each of its GPUs, for a task with gpus GPUs
// and each milli-GPU of them (FGD's simulator, section 6): 50 to 100 if GPUs in use suffice (the
// less is free on them, the more), 33 to 49 if idle ones must be added, and for a node without any
// in use 33 minus its number of GPUs, or that number if it is larger. It reorders free.
func PackingScore(free []int64, each int64, gpus int) int64 {
	idle := int64(0)
	for _, f := range free {
		if f == cluster.Whole {
			idle++
		}
	}
	if idle == int64(len(free)) {
		return max(33-idle, idle)
	}
	slices.Sort(free)
	opened, percent := int64(0), int64(0)
	for _, f := range free {
		if gpus == 0 {
			break
		}
		if f < each {
			continue
		}
		gpus--
		percent += f * 100 / cluster.Whole
		if f == cluster.Whole {
			opened++
		}
	}
	if opened > 0 {
		return max(50-opened, 33)
	}
	return max(100-percent/10, 50)
}
