package place

import "github.com/muster-gpu/muster/engine/placement"

var rooms = Info{
	Name:   "rooms",
	About:  "where least of the room for the tasks that people submit is lost: how many of them still fit, by GPUs, CPU and RAM",
	Source: "ours, from FGD's measure; docs/results.md compares the two on openb",
	New:    func() placement.Placer { return roomy{} },
}

type roomy struct{}

func (roomy) Name() string { return "rooms" }

// Place puts each task in turn where it costs least room; ties: the node that joined first.
func (roomy) Place(s *placement.Site) bool {
	return constrained(s, func(s *placement.Site) bool {
		return descend(s, func(s *placement.Site, set int) (node, dev int) {
			node = -1
			cost := int64(0)
			s.Candidates(set, func(id int) bool {
				c, on, ok := s.Growth(id, set, placement.Rooms)
				if ok && (node < 0 || c < cost) && s.Room(id, set, 1) > 0 {
					node, dev, cost = id, on, c
				}
				return true
			})
			return node, dev
		})
	})
}
