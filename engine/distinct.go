package engine

import (
	"math"

	"github.com/muster-gpu/muster/cluster"
)

// Tasks with shares of several GPUs of a node: the shares of one task are on distinct GPUs, those of
// two can be on the same.

// sharesOn counts by device how many shares fit on some of a node's devices, and together.
func (st *nodeStore) sharesOn(n *nodeState, r *cluster.Request, on uint64, fits *[cluster.MaxGPUsPerNode]int16) (sum int) {
	for i := range n.devs {
		d := &n.devs[i]
		if n.whole()&on>>i&1 == 0 || d.slots != 0 || d.milli == 0 || n.free>>i&1 == 0 && d.tenants == 0 {
			continue
		}
		k := min(int(int64(d.milli)/r.Share), st.classes[n.class].seats(d))
		if r.Memory > 0 {
			k = min(k, int(d.mem/r.Memory))
		}
		fits[i] = int16(k)
		sum += k
	}
	return sum
}

// distinct is how many tasks, at most most, can have so many shares each (per) on distinct devices
// where fits shares fit on each, sum together: t can, if there are t times per shares of which no device counts for more
// than t, one for each task.
func distinct(fits []int16, sum, per, most int) int {
	if per == 1 {
		return min(most, sum)
	}
	for t := min(most, sum/per); ; {
		use := 0
		for _, k := range fits {
			use += min(int(k), t)
		}
		if use >= per*t {
			return t
		}
		t = use / per
	}
}

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
	n := &s.in.nodes[node]
	var fits [cluster.MaxGPUsPerNode]int16
	s.in.sharesOn(n, r, s.devices(n), &fits)
	few = -r.GPUs * (t - 1)
	for i, k := range fits[:len(n.devs)] {
		if few += min(int(k), t-1); k > 0 && int(k) < t {
			mask |= 1 << i
		}
	}
	return mask, few
}
