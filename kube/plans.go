package kube

import (
	"fmt"
	"slices"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/engine"
	"github.com/muster-gpu/muster/kube/holds"
	"github.com/muster-gpu/muster/kube/nodes"
	"github.com/muster-gpu/muster/kube/places"
	"github.com/muster-gpu/muster/kube/plans"
)

// latest is the plan that counts of a gang that is found bound, with its pods that are; trusted: a scheduler wrote it.
// A sealed plan comes before one that is not, and of a gang that was repaired the last.
func (g *gang) latest(seal plans.Key) (p *plans.Plan, trusted bool, pods []*pod) {
	for _, q := range g.sorted() {
		if q.node == "" || q.Over() {
			continue
		}
		pods = append(pods, q)
		o := plans.Of(q.Obj)
		if o == nil {
			continue
		}
		sealed := seal.Holds(q.Obj, AnnotationPlan)
		if p == nil || sealed && !trusted || sealed == trusted && o.Repair > p.Repair {
			p, trusted, g.plan = o, sealed, q.Obj.Annotations[AnnotationPlan]
		}
	}
	return p, trusted, pods
}

// unseated counts the places of a gang's plan that no pod has.
func (g *gang) unseated(seal plans.Key) int {
	p, _, pods := g.latest(seal)
	if p == nil {
		return 0
	}
	n := 0
	for i := range p.Tasks {
		n += p.Tasks[i].Count
	}
	return max(0, n-len(pods))
}

// seat finds the place of each bound pod and returns how many places are left, and the pods that have none.
func (g *gang) seat(pods []*pod, p *plans.Plan) (empty int, without []*pod) {
	bound := make([]places.Bound, len(pods))
	for i, q := range pods {
		bound[i] = places.Bound{Pod: &q.Pod, Node: q.node}
	}
	for _, q := range g.places.Seat(p.Tasks, bound) {
		without = append(without, q.Record.(*pod))
	}
	empty = g.places.Empty()
	for _, q := range g.sorted() { // those that are over have had a place
		if q.Over() && q.node != "" && empty > 0 {
			empty--
		}
	}
	return empty, without
}

// asHeld is a gang's plan with each place as the pod that has it holds it.
func (g *gang) asHeld(all *nodes.Room, p *plans.Plan, trusted bool) *plans.Plan {
	now := plans.Plan{Repair: p.Repair, Alone: p.Alone}
	if trusted {
		now.Before = p.Before
	}
	held, changed := places.Layout{Tasks: p.Tasks, Places: g.places}.As(
		func(s *places.Place, r cluster.Request) cluster.Request {
			if q := g.pods[s.Pod]; q != nil {
				r = q.Holds(r, all.Replicas(q.node).Of, trusted)
				q.Give(&r)
			}
			return r
		})
	if !changed {
		now.Tasks, now.On = p.Tasks, p.On
		return &now
	}
	g.places, now.Tasks = held.Places, held.Tasks
	g.places.AddTo(&now)
	return &now
}

// lostPlace reports whether a place that no pod has is on a node that is not there.
func (g *gang) lostPlace(all *nodes.Room) bool {
	return slices.ContainsFunc(g.places, func(s places.Place) bool {
		return s.Pod == "" && all.Lost(s.Node)
	})
}

// openPlaces reports whether the places of a plan that no pod has are to be kept: a scheduler wrote it, and the gang is
// that large.
func (g *gang) openPlaces(trusted bool) bool {
	if !trusted {
		return false
	}
	m, err := g.need()
	return err != nil || g.of != "" || len(g.places) <= max(1, m.Size) || len(g.places) <= len(g.pods)
}

// refuseForeign makes pods foreign that have no place in their gang's plan.
func (d *Driver) refuseForeign(pods []*pod) {
	for _, q := range pods {
		d.setAside.Pod(q.Obj, fmt.Sprintf("annotation %s of its gang has no place for it on node %s", AnnotationPlan,
			q.node))
		d.disown(q)
	}
}

// devices gives a plan devices that no other has, where the engine has yet to hear of its nodes, too: if one is gone,
// it learns that in a moment.
func (d *Driver) devices(p *plans.Plan, taken map[string]holds.InUse) ([]engine.Alloc, error) {
	return places.Devices(p, taken, func(node string) int { return d.nodes.NumberFor(node, d.now) })
}
