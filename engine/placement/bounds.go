package placement

import (
	"math"

	"github.com/muster-gpu/muster/engine/inventory"
)

// bounded is how many more tasks of the job a node takes under the job's own bounds.
func (s *Site) bounded(node int32) int {
	if s.most.Within != nil && !s.most.Within.In.Has(node) {
		return 0
	}
	left := s.most.Each()
	if left < math.MaxInt {
		left -= s.tasksOn(func(id int32) bool { return id == node })
	}
	if s.r.IgnoreUsage || int(node) >= len(s.most.Of) {
		return max(0, left)
	}
	for _, g := range s.most.Of[node] {
		b := &s.most.Groups[g]
		if left = min(left, int(b.Most)); left <= 0 {
			return 0
		}
		left = min(left, int(b.Most)-s.tasksOn(func(id int32) bool {
			return int(id) < len(s.most.Of) && has(s.most.Of[id], g)
		}))
	}
	return max(0, left)
}

// tasksOn counts the job's tasks so far on some nodes.
func (s *Site) tasksOn(among func(node int32) bool) (n int) {
	for _, list := range [][]inventory.Alloc{s.allocs, s.has} {
		for i := range list {
			if among(list[i].Node) {
				n += int(list[i].Tasks)
			}
		}
	}
	return n
}

func has(list []int32, v int32) bool {
	for _, x := range list {
		if x == v {
			return true
		}
	}
	return false
}
