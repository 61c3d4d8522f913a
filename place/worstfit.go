package place

import "github.com/muster-gpu/muster/engine/placement"

var worstFit = Info{
	Name:   "worst-fit",
	About:  "the node that is left with the most (spread): each task on the emptiest node",
	Source: "worst-fit / least requested",
	New:    func() placement.Placer { return worst{} },
}

type worst struct{}

func (worst) Name() string { return "worst-fit" }

// Place puts every task on the node with the most free GPUs.
func (worst) Place(s *placement.Site) bool {
	return constrained(s, func(s *placement.Site) bool {
		return sets(s, func(set, count int) bool {
			for range count {
				node := s.Find(set, 1, placement.Emptiest)
				if node < 0 {
					return false
				}
				s.TakeOn(node, set, 1, placement.Emptiest)
			}
			return true
		})
	})
}
