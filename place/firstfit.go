package place

import "github.com/muster-gpu/muster/engine/placement"

var firstFit = Info{
	Name:   "first-fit",
	About:  "the first node with room, in the order in which nodes joined",
	Source: "first fit, the usual baseline",
	New:    func() placement.Placer { return first{} },
}

type first struct{}

func (first) Name() string { return "first-fit" }

// Place takes as many tasks as fit from each node in turn; a set that fits on
// one node goes to the first such node.
func (first) Place(s *placement.Site) bool {
	return constrained(s, func(s *placement.Site) bool {
		return sets(s, func(set, count int) bool {
			if node := s.Find(set, count, placement.First); node >= 0 {
				s.Take(node, set, count)
				return true
			}
			return fill(s, set, count, placement.First)
		})
	})
}
