package place

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/engine/placement"
)

var compatible = Info{
	Name: "compatible",
	About: "as topology, but of several such places the one whose links the gang shares best with the jobs that " +
		"transmit there; it needs a network in the cluster file",
	Source: "CASSINI (NSDI'24), section 4",
	New:    func() placement.Placer { return sharing{"compatible", byLacks} },
	With:   newSharing,
}

type sharing struct {
	name string
	by   func(lacks []float64) float64 // what counts of what each link lacks
}

// newSharing makes the placer for by=total, mean or worst.
func newSharing(knobs string) (placement.Placer, error) {
	key, value, _ := strings.Cut(knobs, "=")
	if key != "by" {
		return nil, fmt.Errorf("placer compatible: %w", cluster.Unknown("knob", key, []string{"by"}))
	}
	by, known := map[string]func([]float64) float64{"total": byLacks, "mean": byMean, "worst": byWorst}[value]
	if !known {
		err := cluster.Unknown("by", value, []string{"total", "mean", "worst"})
		return nil, fmt.Errorf("placer compatible: %w", err)
	}
	return sharing{"compatible:" + knobs, by}, nil
}

func (p sharing) Name() string { return p.name }

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
func (p sharing) Place(s *placement.Site) bool {
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
		if w := p.rank(&c); rated == 1 || w.above(&worth) {
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
	lacks int64 // by the scores of its links, in millionths
}

// rank ranks a place.
func (p *sharing) rank(c *placement.Compatibility) rank {
	lacks := make([]float64, len(c.Links))
	for i, score := range c.Links {
		lacks[i] = 1 - score
	}
	return rank{c.Loop, int64(math.Round(p.by(lacks) * 1e6))}
}

// byLacks is what all links together lack.
func byLacks(lacks []float64) (sum float64) {
	for _, v := range lacks {
		sum += v
	}
	return sum
}

// byMean is 1 less the mean of the scores (CASSINI, section 4.2), which hides how many links lack something.
func byMean(lacks []float64) float64 { return byLacks(lacks) / float64(max(1, len(lacks))) }

// byWorst is 1 less the worst score (CASSINI, section 4.2: the tail).
func byWorst(lacks []float64) (most float64) {
	for _, v := range lacks {
		most = max(most, v)
	}
	return most
}

// above reports whether a place is better than another. One with a loop is the last resort.
func (r *rank) above(o *rank) bool {
	if r.loop != o.loop {
		return o.loop
	}
	return r.lacks < o.lacks
}
