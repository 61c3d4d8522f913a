package kube

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/engine"
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

// speedFor reads what model a gang is of, and how fast it wants to be.
func (d *Driver) speedFor(who []speaker) (b beside, err error) {
	b.model = ask(who, AnnotationModel).value
	b.least = d.opt.Rules.Spec.MinSpeed
	s := ask(who, AnnotationSpeed)
	if s.value == "" {
		return b, nil
	}
	v, err := strconv.ParseFloat(s.value, 64)
	if err != nil || !(v >= 0 && v <= 1) {
		return b, fmt.Errorf("%s: %q is not a part of its speed alone, between 0 and 1", s.where, s.value)
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

// worstBeside is what is left of the speed of one model beside the worst of others, at most so
// many, in ppm.
func worstBeside(table engine.Pairs, model string, others []beside, most int) int64 {
	list := make([]int64, 0, len(others))
	for i := range others {
		list = append(list, min(table.Pair(model, others[i].model), ppm))
	}
	slices.Sort(list)
	v := int64(ppm)
	for _, f := range list[:max(0, min(len(list), most))] {
		v = v * f / ppm
	}
	return v
}

// slowed says who among those with replicas on a node could be slower than it accepts if so
// many more of a kind came; "": nobody.
func slowed(table engine.Pairs, there []beside, kind beside, more, of int) string {
	all := slices.Concat(there, slices.Repeat([]beside{kind}, more))
	for i := range all {
		b := &all[i]
		if b.least == 0 || i > len(there) { // the new ones are alike
			continue
		}
		others := slices.Concat(all[:i], all[i+1:])
		if v := worstBeside(table, b.model, others, of-1); v < b.least {
			who := "it"
			if i < len(there) {
				who = cmp.Or(b.model, "a pod") + " there"
			}
			return fmt.Sprintf("%s could be at %.2f of its speed beside others on a shared GPU, and asks for %g", who, float64(v)/ppm, float64(b.least)/ppm)
		}
	}
	return ""
}

// company bounds nodes where a pod with a replica, or one that is there, could be slower
// than it asks for.
func (l *looker) company(p *pod) {
	table := l.d.pairs()
	if !p.replica.one || table == nil {
		return
	}
	kind, more := l.d.besideOf(p), 0
	for _, q := range l.pods {
		if q.replica.one {
			more++
		}
	}
	for _, name := range l.d.order {
		n := l.d.nodes[name]
		s := l.d.sharedOn(n)
		if s.of < 2 || s.name != p.replica.name {
			continue
		}
		there := l.d.sharers(n, p)
		fit, why := 0, ""
		for ; fit < more && why == ""; fit++ {
			why = slowed(table, there, kind, fit+1, s.of)
		}
		if why != "" {
			l.most(name, int64(fit-1), why)
		}
	}
}

// sharers lists what decides of those with replicas on a node, but for a pod's gang.
func (d *Driver) sharers(n *node, but *pod) (list []beside) {
	for q := range n.pods {
		if q.replica.name == but.replica.name && q.gang != but.gang {
			for range q.replica.n {
				list = append(list, d.besideOf(q))
			}
		}
	}
	return list
}

// say puts that into a gang's job.
func (b *beside) say(j *cluster.Job) { j.Model, j.MinSpeed = b.model, b.least }
