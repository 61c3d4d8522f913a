package place

import "github.com/muster-gpu/muster/engine/placement"

// The scores of this file and of dotproduct.go are FGD's baselines without their rounding to whole
// numbers from 0 to 100, which causes many ties. CPU counts in parts of 128 cores and GPUs in parts
// of 8 (FGD's simulator, section 6).

var weightedFit = Info{
	Name:   "weighted-fit",
	About:  "the node that is left with the least of CPU and GPUs together, 16 cores counting as one GPU",
	Source: "BestFit of the FGD paper",
	New: func() placement.Placer {
		return byScore{"weighted-fit", func(s *placement.Site, node, _ int) int64 {
			return -leftover(s.FreeCPU(node), s.FreeMilli(node))
		}}
	},
}

// leftover weighs free CPU (milli-cores) and free GPUs (milli-GPU): 128 cores count as 8 GPUs. What
// the task takes is equal on all nodes and left out.
func leftover(cpu, gpu int64) int64 { return cpu + 16*gpu }
