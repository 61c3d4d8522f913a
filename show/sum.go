package show

import "slices"

// NodeSum is what the GPUs of a node come to.
type NodeSum struct {
	Model  string
	Free   int64 // milli-GPUs
	Jobs   []int // that hold a part of them
	Faults map[string]int
}

// SumOf adds up the GPUs of a node.
func SumOf(n *Node) NodeSum {
	s := NodeSum{Faults: map[string]int{}}
	for i := range n.GPUs {
		g := &n.GPUs[i]
		s.Model, s.Free = g.Model, s.Free+g.Free
		if g.Fault != "" {
			s.Faults[g.Fault]++
		}
		for _, id := range g.Jobs {
			if !slices.Contains(s.Jobs, id) {
				s.Jobs = append(s.Jobs, id)
			}
		}
	}
	return s
}
