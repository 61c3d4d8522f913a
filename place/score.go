package place

import "github.com/muster-gpu/muster/engine/placement"

// byScore is a placer that puts each task on the node with the highest score among those with room;
// ties: the node that joined first.
type byScore struct {
	name  string
	score func(s *placement.Site, node, set int) int64
}

func (p byScore) Name() string { return p.name }

// Place places each task in turn. A share goes to the fullest device with room.
func (p byScore) Place(s *placement.Site) bool {
	return constrained(s, func(s *placement.Site) bool {
		return sets(s, func(set, count int) bool {
			for range count {
				best, most := -1, int64(0)
				s.Candidates(set, func(node int) bool {
					if v := p.score(s, node, set); (best < 0 || v > most) && s.Room(node, set, 1) > 0 {
						best, most = node, v
					}
					return true
				})
				if best < 0 {
					return false
				}
				s.Take(best, set, 1)
			}
			return true
		})
	})
}
