package place

import (
	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/engine/placement"
)

var topology = Info{
	Name:   "topology",
	About:  "the tightest topology level that holds the gang (node, NVLink domain, rack, fabric, core), then best fit",
	Source: "gang placement; 4+4 is preferred to 7+1",
	New:    func() placement.Placer { return tight{} },
}

type tight struct{}

func (tight) Name() string { return "topology" }

// Place tries levels from near to far, and within a level the domain with the fewest free GPUs that
// suffice. A required level bounds the search.
func (tight) Place(s *placement.Site) bool {
	return tightest(s, func(s *placement.Site) bool { return balanced(s) && together(s) })
}

// together reports whether what is bound meets the level that is required.
func together(s *placement.Site) bool {
	t := s.Topology()
	return !t.Required || t.Level == cluster.LevelAny || s.Together(t.Level)
}

// tightest tries to place the gang at levels from near to far, until try says that it is placed.
func tightest(s *placement.Site, try func(*placement.Site) bool) bool {
	t := s.Topology()
	if t.Level == cluster.LevelNVLink && s.Islands() { // closer than the node
		if within(s, t.Level, try) {
			return true
		}
		if t.Required {
			return false
		}
	}
	if alone(s) {
		return pack(s)
	}
	levels := []cluster.Level{cluster.LevelNode, cluster.LevelNVLink}
	for l := cluster.LevelRack; l <= placement.Farthest(s); l++ {
		levels = append(levels, l)
	}
	for _, l := range levels {
		if within(s, l, try) {
			return true
		}
		if t.Required && l == t.Level {
			return false
		}
	}
	if t.Required && t.Level != cluster.LevelAny {
		return within(s, t.Level, try)
	}
	return try(s)
}

// balanced packs on as few nodes as possible, splitting evenly between them where they have room
// (4+4 rather than 7+1: a ring is as fast as its slowest link, and the leftover holes are larger).
func balanced(s *placement.Site) bool {
	all := s.Sets()
	if len(all) > 1 || all[0].Count < 2 {
		return pack(s)
	}
	count := all[0].Count
	if node := s.Find(0, count, placement.Fullest); node >= 0 {
		s.Take(node, 0, count)
		return true
	}
	mark, n := s.Mark()
	if !pack(s) {
		return false
	}
	used := s.Spread()
	if used < 2 || count%used != 0 {
		return true
	}
	s.Undo(mark, n)
	for range used { // the same number of nodes, evenly split
		node := s.FindOther(0, count/used, placement.Fullest)
		if node < 0 {
			s.Undo(mark, n)
			return pack(s)
		}
		s.Take(node, 0, count/used)
	}
	return true
}
