package gang

import (
	"slices"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/engine"
	"github.com/muster-gpu/muster/kube/holds"
	"github.com/muster-gpu/muster/kube/nodes"
	"github.com/muster-gpu/muster/kube/places"
	"github.com/muster-gpu/muster/kube/plans"
	"github.com/muster-gpu/muster/kube/terms"
)

// Overdrawn says on which node a start would give away more GPUs than the pods
// that are there leave of it, and "" if it would not. The engine counts them; that
// they are counted once more, from the pods alone, is so that a mistake in its
// books costs a wait and not a GPU that is given twice. GPUs of claims and parts
// of GPUs are not looked at: which those are, is known, or is the plugin's.
func (g *Gang) Overdrawn(all *nodes.Room, a *engine.Action) string {
	if slices.ContainsFunc(g.Submitted(), func(p *Pod) bool { return len(p.Obj.Spec.ResourceClaims) > 0 }) {
		return ""
	}
	more := map[string]int{}
	for i := range a.Allocs {
		al := &a.Allocs[i]
		if r := &g.Spec.Tasks[al.Set].Request; !r.Fractional() {
			more[all.Order()[al.Node]] += int(al.Tasks) * holds.WholeGPUs(r)
		}
	}
	return all.Rest(settledBut(g)).Overdrawn(more)
}

// settledBut reports of pods on nodes whether they are there, or on their way, but for those of a gang.
func settledBut(g *Gang) func(*nodes.Pod) bool {
	return func(q *nodes.Pod) bool {
		p := q.Record.(*Pod)
		return (g == nil || p.Gang != g) && (p.Node != "" || p.Assumed != "") // else it is only nominated
	}
}

// PlanText is the plan that the pods carry that a gang needs.
func (g *Gang) PlanText(p plans.Plan) string {
	if g.Places.HasSurplus() {
		least, _ := places.Layout{Tasks: g.Spec.Tasks, Places: g.Places}.Divide(nil)
		p.Tasks, p.On = least.Tasks, nil
		least.Places.AddTo(&p)
	}
	return p.Text()
}

// Latest is the plan that counts of a gang that is found bound, with its pods that are; trusted: a scheduler wrote it.
// A sealed plan comes before one that is not, and of a gang that was repaired the last.
func (g *Gang) Latest(seal plans.Key) (p *plans.Plan, trusted bool, pods []*Pod) {
	for _, q := range g.Sorted() {
		if q.Node == "" || q.Over() {
			continue
		}
		pods = append(pods, q)
		o := plans.Of(q.Obj)
		if o == nil {
			continue
		}
		sealed := seal.Holds(q.Obj, terms.AnnotationPlan)
		if p == nil || sealed && !trusted || sealed == trusted && o.Repair > p.Repair {
			p, trusted, g.Plan = o, sealed, q.Obj.Annotations[terms.AnnotationPlan]
		}
	}
	return p, trusted, pods
}

// Unseated counts the places of a gang's plan that no pod has.
func (g *Gang) Unseated(seal plans.Key) int {
	p, _, pods := g.Latest(seal)
	if p == nil {
		return 0
	}
	n := 0
	for i := range p.Tasks {
		n += p.Tasks[i].Count
	}
	return max(0, n-len(pods))
}

// Seat finds the place of each bound pod and returns how many places are left, and the pods that have none.
func (g *Gang) Seat(pods []*Pod, p *plans.Plan) (empty int, without []*Pod) {
	bound := make([]places.Bound, len(pods))
	for i, q := range pods {
		bound[i] = places.Bound{Pod: &q.Pod, Node: q.Node}
	}
	for _, q := range g.Places.Seat(p.Tasks, bound) {
		without = append(without, q.Record.(*Pod))
	}
	empty = g.Places.Empty()
	for _, q := range g.Sorted() { // those that are over have had a place
		if q.Over() && q.Node != "" && empty > 0 {
			empty--
		}
	}
	return empty, without
}

// AsHeld is a gang's plan with each place as the pod that has it holds it.
func (g *Gang) AsHeld(all *nodes.Room, p *plans.Plan, trusted bool) *plans.Plan {
	now := plans.Plan{Repair: p.Repair, Alone: p.Alone}
	if trusted {
		now.Before = p.Before
	}
	held, changed := places.Layout{Tasks: p.Tasks, Places: g.Places}.As(
		func(s *places.Place, r cluster.Request) cluster.Request {
			if q := g.Pods[s.Pod]; q != nil {
				r = q.Holds(r, all.Replicas(q.Node).Of, trusted)
				q.Give(&r)
			}
			return r
		})
	if !changed {
		now.Tasks, now.On = p.Tasks, p.On
		return &now
	}
	g.Places, now.Tasks = held.Places, held.Tasks
	g.Places.AddTo(&now)
	return &now
}

// LostPlace reports whether a place that no pod has is on a node that is not there.
func (g *Gang) LostPlace(all *nodes.Room) bool {
	return slices.ContainsFunc(g.Places, func(s places.Place) bool {
		return s.Pod == "" && all.Lost(s.Node)
	})
}

// OpenPlaces reports whether the places of a plan that no pod has are to be kept: a scheduler wrote it, and the gang is
// that large.
func (g *Gang) OpenPlaces(trusted bool) bool {
	if !trusted {
		return false
	}
	m, err := g.Need()
	return err != nil || g.Of != "" || len(g.Places) <= max(1, m.Size) || len(g.Places) <= len(g.Pods)
}

// GivenAway reports whether others have the places of a gang's plan that no pod of it has:
// then they were lost once.
func (g *Gang) GivenAway(all *nodes.Room, p *plans.Plan) bool {
	planned := g.Places.WholeGPUs(p.Tasks)
	for _, s := range g.Places {
		if s.Pod != "" || all.Lost(s.Node) ||
			slices.ContainsFunc(g.Sorted(), func(p *Pod) bool { return len(p.Obj.Spec.ResourceClaims) > 0 }) {
			continue
		}
		have, used := all.Rest(settledBut(g)).WholeGPUs(s.Node)
		if n := planned[s.Node]; n > 0 && used+n > have {
			return true
		}
	}
	return false
}

// Shrunk takes the places that no pod has out of a gang, whose plan this was:
// others have them now, because they were lost once.
func (g *Gang) Shrunk(p *plans.Plan) *plans.Plan {
	left, empty := places.Layout{Tasks: p.Tasks, Places: g.Places}.Occupied()
	g.Missing = g.Missing.AddAll(empty, p.Tasks)
	g.Places = left.Places
	small := plans.Plan{Repair: p.Repair, Tasks: left.Tasks}
	g.Places.AddTo(&small)
	return &small
}

// Outgrown says on which node a start would find less CPU or memory than the engine believes, because pods there were
// resized and it has yet to hear of that; "": on none.
func (g *Gang) Outgrown(all *nodes.Room, a *engine.Action) string {
	if !all.SizesDirty {
		return ""
	}
	return all.Rest(settledBut(g)).Outgrown(a.Allocs)
}

// IsKnown reports whether the engine has all nodes on which the gang is, or is to be.
func (g *Gang) IsKnown(all *nodes.Room, seal plans.Key) bool {
	if p, _, _ := g.Latest(seal); p != nil {
		for _, on := range p.On {
			if !all.Has(on.Node) {
				return false
			}
		}
	}
	return !slices.ContainsFunc(g.Seated(), func(p *Pod) bool { return !all.Has(p.Node) })
}

// Joins reports whether the engine hears of a node of a gang in this very step.
func (g *Gang) Joins(all *nodes.Room) bool {
	return slices.ContainsFunc(g.Seated(), func(p *Pod) bool {
		return all.Joins(p.Node)
	})
}
