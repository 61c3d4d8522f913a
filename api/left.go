package api

import (
	"math"
	"strconv"
)

// Left returns what of a node's GPUs is free for jobs, and what of it the tasks
// submitted last could use on average, in milli-GPU; where that is not known, all.
func (n *Node) Left() (free, usable int64) {
	if n.State != "up" {
		return 0, 0
	}
	for i := range n.GPUs {
		if n.GPUs[i].Healthy {
			free += n.GPUs[i].Free
		}
	}
	if n.Usable == nil {
		return free, free
	}
	return free, min(free, *n.Usable)
}

// LeftText says how much is free on nodes and how much of it is of use, in words;
// "" where that is not known.
func LeftText(nodes []Node) string {
	free, usable, known := int64(0), int64(0), false
	for i := range nodes {
		f, u := nodes[i].Left()
		free, usable, known = free+f, usable+u, known || nodes[i].Usable != nil
	}
	if !known {
		return ""
	}
	word := "GPUs"
	if free == 1000 {
		word = "GPU"
	}
	gpus := func(milli int64) string { return strconv.FormatFloat(math.Round(float64(milli)/10)/100, 'f', -1, 64) }
	return gpus(free) + " " + word + " free, " + gpus(usable) + " usable by the tasks submitted last"
}
