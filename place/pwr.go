package place

import (
	"cmp"
	"strings"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/engine/placement"
)

var pwr = Info{
	Name:   "pwr",
	About:  "the node that draws least more: GPUs and processors in use before idle ones, models with a low power limit first",
	Source: "PWR: Lettich et al. (CCGrid'25); ties: the node that is left with the least, as weighted-fit",
	New: func() placement.Placer {
		return byScore{"pwr", func(s *placement.Site, node, set int) int64 {
			var buf [cluster.MaxGPUsPerNode]int64
			cpu, milli := s.FreeCPU(node), s.FreeMilli(node)
			more := addedWatts(s.Node(node), s.Free(node, buf[:0]), cpu, &s.Sets()[set].Request)
			return -(more<<32 + leftover(cpu, milli))
		}}
	},
}

// addedWatts is how much more a node with these free parts of GPUs and this free CPU draws with one more
// task. A GPU draws its power limit once anything runs on it, and little before; so does a processor
// once one of its cores is taken.
func addedWatts(n *cluster.Node, free []int64, freeCPU int64, r *cluster.Request) int64 {
	idle := int64(r.GPUs)
	if each := r.Milli() / max(1, idle); each < cluster.Whole {
		for _, f := range free {
			if f < cluster.Whole && f >= each {
				idle--
			}
		}
	}
	watts := max(0, idle) * gpuWatts(n.Model)
	if n.CPU > 0 {
		used := n.CPU - freeCPU
		watts += (processors(used+r.CPU) - processors(used)) * processorWatts
	}
	return watts
}

// A processor is taken to have as many logical cores, in thousandths, and the power limit, of the
// paper's (Xeon E5-2682 v4).
const (
	processorCores = 32_000
	processorWatts = 120
)

func processors(cpu int64) int64 { return (cpu + processorCores - 1) / processorCores }

// gpuWatts is the power limit of a GPU of a model.
func gpuWatts(model string) int64 {
	family, _, _ := strings.Cut(model, "-")
	return cmp.Or(powerLimits[family], 300)
}

// powerLimits are those of the vendor's data sheets, in watts; looked up, never iterated.
var powerLimits = map[string]int64{"P4": 75, "T4": 70, "L4": 72, "A10": 150, "K80": 150, "A30": 165, "M40": 250,
	"P40": 250, "P100": 250, "V100": 300, "A40": 300, "L40S": 350, "A100": 400, "A800": 400, "H100": 700, "H200": 700,
	"GH200": 900, "B200": 1000, "GB200": 1200}
