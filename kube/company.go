package kube

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/engine"
	"github.com/muster-gpu/muster/kube/fit"
	"github.com/muster-gpu/muster/kube/gangs"
)

// Pods with replicas of one GPU slow each other down. What is known of that are the pairs of
// the performance table; nothing is measured here. On which of its GPUs a node puts a
// replica, the device plugin decides. So a pod counts as if the worst of those on its node
// were beside it on one GPU, as many as a GPU has replicas besides its own: who keeps what it
// asks for then, keeps it wherever it is put. On a node with one GPU that is exact.

// beside is what of a gang decides beside whom it may be.
type beside struct {
	model string
	least int64 // of its speed alone, ppm; 0: it takes any
}

// ppm is a speed as it is alone.
const ppm = 1_000_000

// pairs is what is known of what pods do to each other on a GPU; nil: nothing is.
func (d *Driver) pairs() engine.Pairs {
	p, _ := d.cfg.Speeds.(engine.Pairs)
	return p
}

// company is what is known of that, as the engine goes by it where it chooses devices itself.
type company struct {
	table engine.Pairs
	turns engine.Turns // nil: they do not take turns, or nobody knows what that costs
}

// company is that where GPUs are shared in some way; nil: nothing is known.
func (d *Driver) company(by cluster.Sharing) *company {
	c := &company{table: d.pairs()}
	if c.table == nil {
		return nil
	}
	if t, ok := d.cfg.Speeds.(engine.Turns); ok && by != cluster.MPS && t.TakesTurns() {
		c.turns = t
	}
	return c
}

// left is what is left of the speed of one model beside another, in ppm: how busy both keep a
// GPU counts before what pairs say.
func (c *company) left(model, other string) int64 {
	if c.turns != nil {
		if v, ok := c.turns.Turns(model, []string{other}); ok {
			return min(v, ppm)
		}
	}
	return min(c.table.Pair(model, other), ppm)
}

// among is what is left of it among several, in ppm: the product of the pairs, or less where
// all of them take turns.
func (c *company) among(model string, others []string) int64 {
	all, rest := int64(ppm), int64(ppm)
	var turning []string
	for _, o := range slices.Sorted(slices.Values(others)) { // products of integers depend on their order
		v := c.left(model, o)
		all = all * v / ppm
		if c.turns == nil {
			continue
		}
		if _, ok := c.turns.Turns(model, []string{o}); ok {
			turning = append(turning, o)
		} else {
			rest = rest * v / ppm
		}
	}
	if len(turning) > 1 {
		if v, ok := c.turns.Turns(model, turning); ok {
			all = min(all, rest*v/ppm)
		}
	}
	return all
}

// speedFor reads what model a gang is of, and how fast it wants to be.
func (d *Driver) speedFor(who []gangs.Speaker) (b beside, err error) {
	b.model = gangs.Stated(who, AnnotationModel).Value
	b.least = d.opt.Rules.Spec.MinSpeed
	s := gangs.Stated(who, AnnotationSpeed)
	if s.Value == "" {
		return b, nil
	}
	v, err := strconv.ParseFloat(s.Value, 64)
	if err != nil || !(v >= 0 && v <= 1) {
		return b, fmt.Errorf("%s: %q is not a part of its speed alone, between 0 and 1", s.Where, s.Value)
	}
	b.least = int64(v*ppm + 0.5)
	return b, nil
}

// besideOf is that of a pod.
func (d *Driver) besideOf(p *pod) beside {
	if p.gang == nil {
		return beside{} // nobody knows
	}
	if s := p.gang.spec; s != nil {
		return beside{s.Model, s.MinSpeed}
	}
	t, err := d.terms(p.gang, p.obj)
	if err != nil {
		return beside{}
	}
	return t.beside
}

// mostSets bounds in how many ways the worst company of a pod is looked for; where there
// are more, it counts as if all of them were on its GPU.
const mostSets = 2000

// worst is what is left of the speed of one model beside the worst of others, at most so
// many, in ppm. With more others it is never more.
func (c *company) worst(model string, others []beside, most int) int64 {
	names := make([]string, 0, len(others))
	for i := range others {
		names = append(names, others[i].model)
	}
	if most = max(0, min(most, len(names))); most == len(names) {
		return c.among(model, names)
	}
	if c.turns == nil { // a product: the least factors
		slices.SortFunc(names, func(a, b string) int { return cmp.Compare(c.left(model, a), c.left(model, b)) })
		return c.among(model, names[:most])
	}
	slices.Sort(names)
	sets, worst := 0, int64(ppm)
	var choose func(chosen, from []string)
	choose = func(chosen, from []string) {
		if len(chosen) == most || sets > mostSets {
			sets++
			worst = min(worst, c.among(model, chosen))
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
		return c.among(model, names)
	}
	return worst
}

// slowed says who among those with replicas on a node could be slower than it accepts if so
// many more of a kind came; "": nobody.
func (c *company) slowed(there []beside, kind beside, more, of int) string {
	all, seen := slices.Concat(there, slices.Repeat([]beside{kind}, more)), []beside(nil)
	for i := range all {
		b := &all[i]
		if b.least == 0 || slices.Contains(seen, *b) {
			continue
		}
		seen = append(seen, *b) // others like it have the same company
		others := slices.Concat(all[:i], all[i+1:])
		if v := c.worst(b.model, others, of-1); v < b.least {
			who := "it"
			if i < len(there) {
				who = cmp.Or(b.model, "a pod") + " there"
			}
			return fmt.Sprintf("%s could be at %.2f of its speed beside others on a shared GPU, and asks for %g", who,
				float64(v)/ppm, float64(b.least)/ppm)
		}
	}
	return ""
}

// limitCompany bounds nodes where a pod with a replica, or one that is there, could be slower
// than it asks for.
func (d *Driver) limitCompany(l *fit.Look, p *pod) {
	if d.pairs() == nil {
		return
	}
	kind, more := d.besideOf(p), 0
	for _, q := range l.Pods {
		if d.podOf(q).Replica.One {
			more++
		}
	}
	for _, name := range d.order {
		n := d.nodes[name]
		s := d.replicasOn(n)
		if s.Of < 2 || s.Name != p.Replica.Name {
			continue
		}
		company, there := d.company(d.gpus.Ways(n.obj).Sharing), d.sharers(n, p)
		most, why := 0, ""
		for ; most < more && why == ""; most++ {
			why = company.slowed(there, kind, most+1, s.Of)
		}
		if why != "" {
			l.Most(name, int64(most-1), why)
		}
	}
}

// sharers lists what decides of those with replicas on a node, but for a pod's gang.
func (d *Driver) sharers(n *node, but *pod) (list []beside) {
	for q := range n.pods {
		if q.Replica.Name == but.Replica.Name && q.gang != but.gang {
			for range q.Replica.N {
				list = append(list, d.besideOf(q))
			}
		}
	}
	return list
}

// say puts that into a gang's job.
func (b *beside) say(j *cluster.Job) { j.Model, j.MinSpeed = b.model, b.least }
