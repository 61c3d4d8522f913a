package place

import (
	"errors"
	"math"
	"slices"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/engine/placement"
)

var compatible = Info{
	Name: "compatible",
	About: "as topology, but of several such places the one whose links the gang shares best with the jobs that " +
		"transmit there; it needs a network in the cluster file",
	Source: "CASSINI (NSDI'24), section 4",
	New:    func() placement.Placer { return sharing{} },
}

type sharing struct{}

func (sharing) Name() string { return "compatible" }

// Fits implements fitter.
func (sharing) Fits(spec *cluster.Spec) error {
	if spec.Network == nil {
		return errors.New("it rates places by the links of a network, and none is described (docs/reference/network.md)")
	}
	return nil
}

// mostPlaces is how many places of a gang are rated (CASSINI, section 5.1: up to ten).
const mostPlaces = 10

// Place rates places, and takes the first that is fully compatible, else the best. A gang that a rack holds stays in
// the tightest such rack: what it would gain elsewhere, those that no rack holds any more would lose. Others begin in
// one rack or another.
func (sharing) Place(s *placement.Site) bool {
	rate := s.Rater()
	if rate == nil || alone(s) {
		return tight{}.Place(s)
	}
	start, bound := s.Mark()
	best := slices.Clone(s.Bound())
	var worth rank
	rated, near := 0, false
	look := func(try func(*placement.Site) bool) (enough bool) {
		mark, n := s.Mark()
		if !try(s) || !together(s) {
			s.Undo(mark, n)
			return false
		}
		rated++
		near = near || s.Together(cluster.LevelRack)
		c := rate()
		if w := rankOf(&c); rated == 1 || w.above(&worth) {
			best, worth = slices.Clone(s.Bound()), w
		}
		s.Undo(mark, n)
		return rated >= mostPlaces || worth == (rank{})
	}
	if !tightest(s, func(s *placement.Site) bool { return look(balanced) || look(quietly) || near }) {
		for _, d := range domains(s, cluster.LevelRack, 1) {
			if look(func(s *placement.Site) bool { return beginning(s, d) }) {
				break
			}
		}
	}
	s.Undo(start, bound)
	if rated == 0 {
		return false
	}
	s.TakeAll(best)
	return true
}

// quietly keeps to nodes whose own links no other job uses.
func quietly(s *placement.Site) bool {
	s.Quietly(true)
	defer s.Quietly(false)
	return balanced(s)
}

// beginning takes as much as it can of a domain, and the rest elsewhere, from the emptiest nodes.
func beginning(s *placement.Site, d placement.Domain) bool {
	return sets(s, func(set, count int) bool {
		s.Within(d)
		for count > 0 {
			node := s.Find(set, 1, placement.Emptiest)
			if node < 0 {
				break
			}
			n := s.Room(node, set, count)
			s.Take(node, set, n)
			count -= n
		}
		s.Within(placement.Domain{})
		return fill(s, set, count, placement.Emptiest)
	})
}

// rank is what counts of how well links are shared, rounded, so that rounding errors decide nothing.
type rank struct {
	loop  bool  // in the affinity graph
	lacks int64 // of all links together, by their scores, in millionths
}

// rankOf ranks a place. CASSINI takes the mean of the scores of links (section 4.2), which hides how many of them lack
// something.
func rankOf(c *placement.Compatibility) rank {
	lacks := 0.0
	for _, score := range c.Links {
		lacks += 1 - score
	}
	return rank{c.Loop, int64(math.Round(lacks * 1e6))}
}

// above reports whether a place is better than another. One with a loop is the last resort.
func (r *rank) above(o *rank) bool {
	if r.loop != o.loop {
		return o.loop
	}
	return r.lacks < o.lacks
}
