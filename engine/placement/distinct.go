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

// scarce is for the next task of a set with shares of several GPUs: on a node on which t more of them have room, those
// devices on which fewer than t shares fit, and how many of these it may have (few) so that there is room for the
// others after it: without it there have to be t-1 times as many shares as a task has, of which none of the other devices counts
// for more than t-1.
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
