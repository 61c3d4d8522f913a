// Package shared is GPUs that several pods are on: how fast these are there beside each other, and replicas of GPUs.
package shared

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/muster-gpu/muster/cluster"
)

// Pods with replicas of one GPU slow each other down. What is known of that are the pairs of the performance table;
// nothing is measured here. On which of its GPUs a node puts a replica, the device plugin decides. So a pod counts as
// if the worst of those on its node were beside it on one GPU, as many as a GPU has replicas besides its own: a pod
// that keeps the speed it asks for then, keeps it wherever it is put. On a node with one GPU that is exact.

// Sharer is what of a pod decides beside which others it may be.
type Sharer struct {
	Model string // in the performance table
	Least int64  // of its speed alone, ppm; 0: it takes any
}

// PPM is a speed as it is alone.
const PPM = 1_000_000

// Pairs says what is left of the speed of one model beside another, in ppm.
type Pairs interface {
	Pair(model, beside string) int64
}

// Turns says what is left of it, in ppm, where they take turns; false: that is not known for all of them.
type Turns interface {
	TakesTurns() bool
	Turns(model string, beside []string) (ppm int64, ok bool)
}

// Company is what is known of what pods do to each other on a GPU.
type Company struct {
	table Pairs
	turns Turns // nil: they do not take turns, or what that costs is not known
}

// Known reports whether speeds say anything of that.
func Known(speeds any) bool { _, ok := speeds.(Pairs); return ok }

// CompanyOf is what speeds say where GPUs are shared in some way, as the engine goes by it where it chooses devices
// itself; nil: nothing.
func CompanyOf(speeds any, by cluster.Sharing) *Company {
	table, ok := speeds.(Pairs)
	if !ok {
		return nil
	}
	c := &Company{table: table}
	if t, ok := speeds.(Turns); ok && by != cluster.MPS && t.TakesTurns() {
		c.turns = t
	}
	return c
}

// left is what is left of the speed of one model beside another, in ppm: how busy both keep a
// GPU counts before what pairs say.
func (c *Company) left(model, other string) int64 {
	if c.turns != nil {
		if v, ok := c.turns.Turns(model, []string{other}); ok {
			return min(v, PPM)
		}
	}
	return min(c.table.Pair(model, other), PPM)
}

// Among is what is left of it among several, in ppm: the product of the pairs, or less where
// all of them take turns.
func (c *Company) Among(model string, others []string) int64 {
	all, rest := int64(PPM), int64(PPM)
	var turning []string
	for _, o := range slices.Sorted(slices.Values(others)) { // products of integers depend on their order
		v := c.left(model, o)
		all = all * v / PPM
		if c.turns == nil {
			continue
		}
		if _, ok := c.turns.Turns(model, []string{o}); ok {
			turning = append(turning, o)
		} else {
			rest = rest * v / PPM
		}
	}
	if len(turning) > 1 {
		if v, ok := c.turns.Turns(model, turning); ok {
			all = min(all, rest*v/PPM)
		}
	}
	return all
}

// mostSets bounds in how many ways the worst company of a pod is looked for; where there
// are more, it counts as if all of them were on its GPU.
const mostSets = 2000

// worst is what is left of the speed of one model beside the worst of others, at most so many, in ppm. With more others
// it is never more.
func (c *Company) worst(model string, others []Sharer, most int) int64 {
	names := make([]string, 0, len(others))
	for i := range others {
		names = append(names, others[i].Model)
	}
	if most = max(0, min(most, len(names))); most == len(names) {
		return c.Among(model, names)
	}
	if c.turns == nil { // a product: the least factors
		slices.SortFunc(names, func(a, b string) int { return cmp.Compare(c.left(model, a), c.left(model, b)) })
		return c.Among(model, names[:most])
	}
	slices.Sort(names)
	sets, worst := 0, int64(PPM)
	var choose func(chosen, from []string)
	choose = func(chosen, from []string) {
		if len(chosen) == most || sets > mostSets {
			sets++
			worst = min(worst, c.Among(model, chosen))
			return
		}
		for i := range from {
			if i > 0 && from[i] == from[i-1] || len(chosen)+len(from)-i < most {
				continue // as before, or too few are left
			}
			choose(append(chosen[:len(chosen):len(chosen)], from[i]), from[i+1:])
		}
	}
	if choose(nil, names); sets > mostSets {
		return c.Among(model, names)
	}
	return worst
}

// Slowed says which of those with replicas on a node could be slower than it accepts if so many more of a kind came, a
// GPU having so many replicas; "": none.
func (c *Company) Slowed(there []Sharer, kind Sharer, more, of int) string {
	all, seen := slices.Concat(there, slices.Repeat([]Sharer{kind}, more)), []Sharer(nil)
	for i := range all {
		b := &all[i]
		if b.Least == 0 || slices.Contains(seen, *b) {
			continue
		}
		seen = append(seen, *b) // others like it have the same company
		others := slices.Concat(all[:i], all[i+1:])
		if v := c.worst(b.Model, others, of-1); v < b.Least {
			which := "it"
			if i < len(there) {
				which = cmp.Or(b.Model, "a pod") + " there"
			}
			return fmt.Sprintf("%s could be at %.2f of its speed beside others on a shared GPU, and asks for %g", which,
				float64(v)/PPM, float64(b.Least)/PPM)
		}
	}
	return ""
}
