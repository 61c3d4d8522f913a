// Package place holds the placers, one file each: they decide where a gang goes. A placer binds
// tasks tentatively through placement.Site; the engine ensures all or nothing. A new placer is one
// file and one line in list.
package place

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/engine/placement"
)

// Info describes a placer that can be selected by name.
type Info struct {
	Name, About, Source string
	New                 func() placement.Placer
	With                func(knobs string) (placement.Placer, error) // nil: it has no knobs
}

var list = []Info{firstFit, bestFit, worstFit, topology, compatible, consolidate, fragGradient, rooms, weightedFit,
	dotProduct, gpuPacking, gpuClustering, pwr, random, metaRL}

// List returns every placer.
func List() []Info { return append([]Info(nil), list...) }

// New makes a placer by name, with knobs after a colon. "pack" and "spread" are aliases of best-fit and worst-fit.
func New(text string) (placement.Placer, error) {
	name, knobs, with := strings.Cut(text, ":")
	alias := map[string]string{"pack": "best-fit", "spread": "worst-fit", "skew": "consolidate"}
	if a, ok := alias[name]; ok {
		name = a
	}
	var names []string
	for _, info := range list {
		switch {
		case info.Name != name:
		case !with:
			return info.New(), nil
		case info.With == nil:
			return nil, fmt.Errorf("placer %s has no knobs; got %q", name, knobs)
		default:
			return info.With(knobs)
		}
		names = append(names, info.Name)
	}
	return nil, cluster.Unknown("placer", name, names)
}

// fitter is a placer that needs more of a cluster than nodes.
type fitter interface {
	Fits(spec *cluster.Spec) error
}

// Fits returns an error if a cluster does not have what a placer needs. Programs check that before they make an engine.
func Fits(text string, spec *cluster.Spec) error {
	p, err := New(text)
	if err != nil {
		return err
	}
	if f, ok := p.(fitter); ok {
		if err := f.Fits(spec); err != nil {
			return fmt.Errorf("placer %s: %w", p.Name(), err)
		}
	}
	return nil
}

// sets calls f for each task set, those with the most GPUs per task first, so
// that whole nodes are taken before remainders.
func sets(s *placement.Site, f func(set, count int) bool) bool {
	all := s.Sets()
	if len(all) == 1 {
		return f(0, all[0].Count)
	}
	order := make([]int, len(all))
	for i := range order {
		order[i] = i
		for k := i; k > 0 && larger(&all[order[k]].Request, &all[order[k-1]].Request); k-- {
			order[k], order[k-1] = order[k-1], order[k]
		}
	}
	for _, i := range order {
		if !f(i, all[i].Count) {
			return false
		}
	}
	return true
}

// larger reports whether a request is harder to place than another.
func larger(a, b *cluster.Request) bool {
	return cmp.Or(cmp.Compare(a.GPUs, b.GPUs), cmp.Compare(a.CPU, b.CPU), cmp.Compare(a.RAM, b.RAM)) > 0
}

// pack binds the tasks to as few nodes as possible: all of a set on the fullest node that holds
// them, otherwise on the node that holds the most, and so on (whole nodes first, the remainder by
// best fit).
func pack(s *placement.Site) bool {
	return sets(s, func(set, count int) bool {
		for count > 0 {
			node, n := s.Find(set, count, placement.Fullest), count
			if node < 0 {
				if count == 1 {
					return false
				}
				if node, n = s.Most(set, count); node < 0 {
					return false
				}
			}
			s.Take(node, set, n)
			count -= n
		}
		return true
	})
}

// fill takes as many tasks as fit from each node in turn, in the order of pick.
func fill(s *placement.Site, set, count int, pick placement.Pick) bool {
	for count > 0 {
		node := s.Find(set, 1, pick)
		if node < 0 {
			return false
		}
		n := s.Room(node, set, count)
		s.Take(node, set, n)
		count -= n
	}
	return true
}

// constrained places within the job's topology constraint: in the domain of the requested level
// that fits most tightly. Without a constraint, or if a preferred one cannot be met, it places
// anywhere.
func constrained(s *placement.Site, try func(*placement.Site) bool) bool {
	t := s.Topology()
	if t.Level == cluster.LevelAny || alone(s) && !divisible(s) {
		return try(s)
	}
	if within(s, t.Level, try) {
		return true
	}
	return !t.Required && try(s)
}

// alone reports whether the gang is a single task, which is on one node anyway.
func alone(s *placement.Site) bool {
	all := s.Sets()
	return len(all) == 1 && all[0].Count == 1
}

// divisible reports whether the GPUs of one task might span several NVLink domains although the job
// has a constraint: on nodes with islands.
func divisible(s *placement.Site) bool {
	return s.Topology().Level == cluster.LevelNVLink && s.Sets()[0].Request.GPUs > 1 && s.Islands()
}

// within tries the domains of a level that have enough free GPUs, those with the fewest first
// (ties: the one that joined first), until the gang fits.
func within(s *placement.Site, level cluster.Level, try func(*placement.Site) bool) bool {
	for _, d := range domains(s, level, needed(s)) {
		s.Within(d)
		mark, n := s.Mark()
		if try(s) {
			s.Within(placement.Domain{})
			return true
		}
		s.Undo(mark, n)
	}
	s.Within(placement.Domain{})
	return false
}

type domainFree struct {
	d    placement.Domain
	free int
}

// needed is how many GPUs the gang takes as a whole.
func needed(s *placement.Site) (gpus int) {
	for _, t := range s.Sets() {
		if t.Request.Profile == "" && !t.Request.Fractional() {
			gpus += t.Count * t.Request.GPUs
		}
	}
	return gpus
}

// domains lists the domains of a level with so many free GPUs, those with the fewest first.
func domains(s *placement.Site, level cluster.Level, need int) []placement.Domain {
	var list []domainFree
	at := map[placement.Domain]int{} // looked up, never iterated
	add := func(d placement.Domain, free int) {
		i, ok := at[d]
		if !ok {
			i = len(list)
			at[d] = i
			list = append(list, domainFree{d: d})
		}
		list[i].free += free
	}
	s.Nodes(func(node int) bool {
		s.Domains(node, level, add)
		return true
	})
	list = slices.DeleteFunc(list, func(d domainFree) bool { return d.free < need })
	slices.SortStableFunc(list, func(a, b domainFree) int { return cmp.Compare(a.free, b.free) })
	out := make([]placement.Domain, len(list))
	for i := range list {
		out[i] = list[i].d
	}
	return out
}
