package place

import (
	"math/bits"

	"github.com/muster-gpu/muster/engine/placement"
	"github.com/muster-gpu/muster/internal/splitmix"
)

var random = Info{
	Name:   "random",
	About:  "any node with room, and for a share any device, by a hash of the job's number: a baseline",
	Source: "Random of the FGD paper, without its dependence on threads",
	New:    func() placement.Placer { return anywhere{} },
}

type anywhere struct{}

func (anywhere) Name() string { return "random" }

// Place puts each task on a random node with room, all equally likely.
func (anywhere) Place(s *placement.Site) bool {
	return constrained(s, func(s *placement.Site) bool {
		return sets(s, func(set, count int) bool {
			for i := range count {
				draw := splitmix.Mix((uint64(s.Job().Spec().ID)<<32 | uint64(set)<<24 ^ uint64(i)) + splitmix.Step)
				node := nth(draw, func(f func(int) bool) {
					s.Candidates(set, func(id int) bool { return s.Room(id, set, 1) < 1 || f(id) })
				})
				if node < 0 {
					return false
				}
				devices := s.Devices(node, set)
				s.TakeDevice(node, set, nth(splitmix.Mix(draw+splitmix.Step), func(f func(int) bool) {
					for m := devices; m != 0 && f(bits.TrailingZeros64(m)); m &= m - 1 {
					}
				}))
			}
			return true
		})
	})
}

// nth picks one of the elements that each visits, by a random number; -1: there are none.
func nth(draw uint64, each func(f func(int) bool)) int {
	n := uint64(0)
	each(func(int) bool { n++; return true })
	if n == 0 {
		return -1
	}
	left, found := draw%n, -1
	each(func(v int) bool {
		if left == 0 {
			found = v
		}
		left--
		return found < 0
	})
	return found
}
