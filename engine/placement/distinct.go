package placement

import (
	"math"

	"github.com/muster-gpu/muster/cluster"
)

// unbound counts the tasks of a set that are not bound yet.
func (s *Site) unbound(set int) int {
	n := s.req[set].Count
	for i := range s.allocs {
		if a := &s.allocs[i]; int(a.Set) == set {
			n -= int(a.Tasks)
		}
	}
	return n
}

// scarce limits the devices of the next task of a set with shares of several GPUs. If a node has
// room for t more such tasks, mask is the devices on which fewer than t shares fit, and few the
// number of them that the task may use so that the others still fit: the remaining devices need
// room for t-1 times the shares of a task, counting at most t-1 per device.
func (s *Site) scarce(node, set, unbound int) (mask uint64, few int) {
	r := &s.req[set].Request
	if r.GPUs < 2 || unbound < 2 {
		return 0, math.MaxInt
	}
	t := s.Room(node, set, unbound)
	if t < 2 {
		return 0, math.MaxInt
	}
	n := &s.r.In.Nodes()[node]
	var fits [cluster.MaxGPUsPerNode]int16
	s.r.In.SharesOn(n, r, s.devices(n), &fits)
	few = -r.GPUs * (t - 1)
	for i, k := range fits[:len(n.Devices())] {
		if few += min(int(k), t-1); k > 0 && int(k) < t {
			mask |= 1 << i
		}
	}
	return mask, few
}
