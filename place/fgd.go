package place

import "github.com/muster-gpu/muster/engine/placement"

var fragGradient = Info{
	Name:   "fgd",
	About:  "where least of what is free becomes useless to the tasks that people submit (fragmentation gradient descent)",
	Source: "FGD (ATC'23): steepest descent of the exact measure; ties: least free, then the node that joined first",
	New:    func() placement.Placer { return fgd{} },
}

type fgd struct{}

func (fgd) Name() string { return "fgd" }

// Place puts each task in turn where the fragments grow least.
func (fgd) Place(s *placement.Site) bool {
	return constrained(s, func(s *placement.Site) bool { return descend(s, steepest) })
}

// descend binds each task in turn where pick says.
func descend(s *placement.Site, pick func(s *placement.Site, set int) (node, dev int)) bool {
	return sets(s, func(set, count int) bool {
		for range count {
			node, dev := pick(s, set)
			if node < 0 {
				return false
			}
			s.TakeDevice(node, set, dev)
		}
		return true
	})
}

// steepest is the node, and for a share the device, where one more task makes the fragments grow
// least; -1: there is no room.
func steepest(s *placement.Site, set int) (node, dev int) {
	node = -1
	var growth, free int64
	s.Candidates(set, func(id int) bool {
		g, on, ok := s.Growth(id, set, placement.Fragments)
		if !ok || node >= 0 && g > growth {
			return true
		}
		if node >= 0 && g == growth && s.FreeMilli(id) >= free || s.Room(id, set, 1) < 1 {
			return true
		}
		node, dev, growth, free = id, on, g, s.FreeMilli(id)
		return true
	})
	return node, dev
}
