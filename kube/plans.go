package kube

import (
	"fmt"
	"maps"
	"slices"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/engine"
	"github.com/muster-gpu/muster/kube/gpus"
	"github.com/muster-gpu/muster/kube/holds"
	"github.com/muster-gpu/muster/kube/nodes"
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

// seat finds the place of each bound pod and returns how many places are left, and the pods that have none. A pod that
// asks for exactly what a place is for comes first; one whose CPU or memory was resized since has it all the same.
func (g *gang) seat(pods []*pod, p *plans.Plan) (empty int, without []*pod) {
	empty = len(g.slots)
	take := func(q *pod, fits func(r *cluster.Request) bool) bool {
		at := slices.IndexFunc(g.slots, func(s slot) bool {
			return s.pod == "" && s.node == q.node && fits(&p.Tasks[s.set].Request)
		})
		if at >= 0 {
			g.slots[at].pod = q.Obj.UID
			empty--
		}
		return at >= 0
	}
	var rest []*pod
	for _, q := range pods {
		if !take(q, q.asks) {
			rest = append(rest, q)
		}
	}
	for _, q := range rest {
		if !take(q, q.sameDevices) {
			without = append(without, q)
		}
	}
	for _, q := range g.sorted() { // those that are over have had a place
		if q.Over() && q.node != "" && empty > 0 {
			empty--
		}
	}
	return empty, without
}

// sameDevices reports whether a task is for the GPUs that a pod has, whatever else it asks for. GPUs cannot be resized;
// what a pod has by its claims is not in its specification.
func (p *pod) sameDevices(r *cluster.Request) bool {
	switch {
	case p.Replica.One:
		return r.GPUs <= 1 && r.Profile == ""
	case len(p.Obj.Spec.ResourceClaims) > 0:
		return true
	}
	return p.Request.GPUs == r.GPUs && p.Request.Share == r.Share && p.Request.Profile == r.Profile &&
		p.Request.Memory == r.Memory
}

// holds is what a pod has of its place: its own CPU and memory, and of devices what it asks for. Only a plan that is
// trusted says what a shared claim or a replica counts for.
func (p *pod) holds(all *nodes.Room, place cluster.Request, trusted bool) cluster.Request {
	own := p.Request
	if byPlan := p.Replica.One || len(p.Obj.Spec.ResourceClaims) > 0; byPlan && trusted {
		own = place
		own.CPU, own.RAM = p.Request.CPU, p.Request.RAM
	} else if of := all.Replicas(p.node).Of; p.Replica.One && of > 0 {
		own.GPUs, own.Share = 1, gpus.Kind{Of: of}.Share()
	}
	return own
}

// asHeld is a gang's plan with each place as the pod that has it holds it.
func (g *gang) asHeld(all *nodes.Room, p *plans.Plan, trusted bool) *plans.Plan {
	now := plans.Plan{Repair: p.Repair, Alone: p.Alone}
	if trusted {
		now.Before = p.Before
	}
	slots, same := slices.Clone(g.slots), true
	for i := range slots {
		s := &slots[i]
		r := p.Tasks[s.set].Request
		if q := g.pods[s.pod]; q != nil {
			r = q.holds(all, r, trusted)
			q.give(&r)
			same = same && r == p.Tasks[s.set].Request
		}
		now.Tasks = holds.AddTasks(now.Tasks, cluster.TaskSet{Count: 1, Request: r})
		s.set = holds.SetOf(now.Tasks, &r)
	}
	if same {
		now.Tasks, now.On = p.Tasks, p.On
		return &now
	}
	g.slots = slots
	place(&now, slots)
	return &now
}

// lostPlace reports whether a place that no pod has is on a node that is not there.
func (g *gang) lostPlace(all *nodes.Room) bool {
	return slices.ContainsFunc(g.slots, func(s slot) bool {
		return s.pod == "" && all.Lost(s.node)
	})
}

// openPlaces reports whether the places of a plan that no pod has are to be kept: a scheduler wrote it, and the gang is
// that large.
func (g *gang) openPlaces(trusted bool) bool {
	if !trusted {
		return false
	}
	m, err := g.need()
	return err != nil || g.of != "" || len(g.slots) <= max(1, m.Size) || len(g.slots) <= len(g.pods)
}

// refuseForeign makes pods foreign that have no place in their gang's plan.
func (d *Driver) refuseForeign(pods []*pod) {
	for _, q := range pods {
		d.setAside.Pod(q.Obj, fmt.Sprintf("annotation %s of its gang has no place for it on node %s", AnnotationPlan,
			q.node))
		d.disown(q)
	}
}

// place adds the places of a gang to a plan.
func place(p *plans.Plan, slots []slot) {
	for _, s := range slots {
		p.Put(s.node, s.set)
	}
}

// allocs gives a plan devices: which ones, only the node or the claims know, so
// the first that are not given away will do.
func (d *Driver) allocs(p *plans.Plan, taken map[string]holds.InUse) (list []engine.Alloc, err error) {
	mine := maps.Clone(taken)
	for _, on := range p.On {
		at := d.nodes.NumberFor(on.Node, d.now) // if it is gone, the engine learns that in a moment
		r, use := p.Tasks[on.Set].Request, mine[on.Node]
		a := engine.Alloc{Node: int32(at), Set: int32(on.Set), Tasks: int32(on.Tasks),
			CPU: r.CPU * cluster.Milli(on.Tasks), RAM: r.RAM * cluster.MiB(on.Tasks)}
		if r.Fractional() { // each share is an allocation of its own
			a.Tasks, a.CPU, a.RAM, a.Share = 1, r.CPU, r.RAM, int32(r.Share)
		}
		if r.Profile != "" {
			a.Tasks, a.CPU, a.RAM = 1, r.CPU, r.RAM
			list = append(list, slices.Repeat([]engine.Alloc{a}, on.Tasks)...) // mig.TakeSlices says which they are
			continue
		}
		for range on.Tasks * r.GPUs {
			dev, ok := use.Take(a.Share)
			if !ok {
				return nil, fmt.Errorf("node %s: %w", on.Node, errNoRoom)
			}
			if a.GPUs |= dev; a.Share > 0 {
				list, a.GPUs = append(list, a), 0
			}
		}
		if a.Share == 0 {
			list = append(list, a)
		}
		mine[on.Node] = use
	}
	maps.Copy(taken, mine)
	return list, nil
}
