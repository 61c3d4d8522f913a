package show

import (
	"math"
	"strconv"
)

// Left returns how much of a node's GPUs is free for jobs, and how much of that the tasks submitted last could
// use on average, in milli-GPU; if unknown, all of it.
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

// Left is how much is free on nodes that take jobs, and how much of that is usable.
type Left struct {
	Free   int64 `json:"free" doc:"Milli-GPU"`
	Usable int64 `json:"usable" doc:"Milli-GPU that the tasks submitted last could use on average; the rest are fragments"`
}

// LeftOf sums up what is left on nodes; nil if unknown.
func LeftOf(nodes []Node) *Left {
	l, known := Left{}, false
	for i := range nodes {
		free, usable := nodes[i].Left()
		l.Free, l.Usable, known = l.Free+free, l.Usable+usable, known || nodes[i].Usable != nil
	}
	if !known {
		return nil
	}
	return &l
}

// LeftText says in words how much is free on nodes and how much of that is usable; "" if unknown.
func LeftText(nodes []Node) string {
	l := LeftOf(nodes)
	if l == nil {
		return ""
	}
	word := "GPUs"
	if l.Free == 1000 {
		word = "GPU"
	}
	gpus := func(milli int64) string { return strconv.FormatFloat(math.Round(float64(milli)/10)/100, 'f', -1, 64) }
	return gpus(l.Free) + " " + word + " free, " + gpus(l.Usable) + " usable by the tasks submitted last"
}
