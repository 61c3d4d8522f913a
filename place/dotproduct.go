package place

import "github.com/muster-gpu/muster/engine/placement"

var dotProduct = Info{
	Name:   "dot-product",
	About:  "the node whose free CPU and GPUs are least like what the task asks for",
	Source: "DotProd of the FGD paper (the smallest product; Tetris takes the largest)",
	New: func() placement.Placer {
		return byScore{"dot-product", func(s *placement.Site, node, set int) int64 {
			r := &s.Sets()[set].Request
			return -alignment(s.FreeCPU(node), r.CPU, s.FreeMilli(node), r.Milli())
		}}
	},
}

// alignment is the dot product of free and requested resources, in units of 128 cores and 8 GPUs,
// times 128,000 squared.
func alignment(cpu, askedCPU, gpu, askedGPU int64) int64 { return cpu*askedCPU + 256*gpu*askedGPU }
