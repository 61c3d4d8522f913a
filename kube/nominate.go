package kube

import (
	"slices"

	"github.com/muster-gpu/muster/engine"
	"github.com/muster-gpu/muster/kube/gang"
	"github.com/muster-gpu/muster/kube/places"
	"github.com/muster-gpu/muster/kube/plans"
)

// A gang for which others have to leave is nominated: each of its pods says in
// its status to which node it will go (nominatedNodeName). Other schedulers then
// leave the room alone, and an autoscaler makes no node for it. It is said when
// the engine has placed the gang, and taken back when it has not any more.

// nominate says where the gangs will be that the last step has placed, and takes
// back what is not so any more.
func (d *Driver) nominate() {
	for _, id := range d.eng.Changed() {
		g := d.byID[id]
		if g == nil || g.Phase != gang.Waiting {
			continue
		}
		r := d.eng.Record(id)
		if r == nil || r.State != engine.Placed {
			d.unnominate(g)
			d.forgetVictims(g)
			continue
		}
		p := plans.Plan{Tasks: g.Spec.Tasks, On: places.On(r.Allocs, d.nodes.Order())}
		pods := g.Submitted()
		for _, s := range places.Of(&p) {
			k := slices.IndexFunc(pods, func(q *gang.Pod) bool {
				return q.Request == p.Tasks[s.Set].Request && d.reader.IsPinned(q, s.Node)
			})
			if k < 0 {
				break // one is gone: it is settled in a moment
			}
			pods[k].Nominate(d.notices, s.Node)
			if len(g.Victims) > 0 {
				d.expect(pods[k], s.Node)
			}
			pods = slices.Delete(pods, k, k+1)
		}
	}
}

// unnominate takes back where the pods of a gang were to go. What is being bound
// keeps it: the API server drops it with the binding.
func (d *Driver) unnominate(g *gang.Gang) {
	for _, p := range g.Sorted() {
		if p.Node == "" && !p.Binding && !p.Over() {
			p.Nominate(d.notices, "")
		}
	}
}
