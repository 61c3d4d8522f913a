package kube

import (
	"slices"

	"k8s.io/apimachinery/pkg/types"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/engine"
	"github.com/muster-gpu/muster/kube/gang"
	"github.com/muster-gpu/muster/kube/gangs"
	"github.com/muster-gpu/muster/kube/places"
	"github.com/muster-gpu/muster/kube/plans"
)

// A gang that may start with fewer pods than it has is moldable: the engine has it
// as an elastic job and chooses its size when it starts, as large as there is room
// for, in one decision. Others have to leave for its minimum only. First the pods
// of the minimum are bound, all or none. Then the engine is told that the gang is in
// parts: the minimum is the gang from now on, and each of the other pods is a
// gang of one that belongs to it, as are those that follow later.

// seatAll gives the places of a gang that starts to its pods; false: one that it
// needs has none.
func (d *Driver) seatAll(g *gang.Gang, need, beyond []*gang.Pod) bool {
	take := func(s *places.Place, pods []*gang.Pod) []*gang.Pod {
		k := slices.IndexFunc(pods, func(p *gang.Pod) bool {
			return p.Request == g.Spec.Tasks[s.Set].Request && d.reader.IsPinned(p, s.Node)
		})
		if k < 0 {
			return pods
		}
		s.Pod = pods[k].Obj.UID
		return slices.Delete(pods, k, k+1)
	}
	spare := len(g.Places) - len(g.InJob) + len(g.Optional)
	for i := range g.Places {
		s := &g.Places[i]
		if need = take(s, need); s.Pod != "" {
			continue
		}
		if spare--; spare < 0 || s.Set != 0 {
			return false
		}
		s.Surplus = true
		beyond = take(s, beyond)
	}
	return len(need) == 0
}

// divide makes the gangs that started with more pods than they need gangs of these,
// when those are bound.
func (d *Driver) divide(snap *engine.Snapshot) {
	for i := range snap.Jobs {
		rec := &snap.Jobs[i]
		g := d.byID[rec.Spec.ID]
		if g == nil || g.Phase != gang.Starting || rec.State != engine.Starting {
			continue
		}
		if rec.Spec.Elastic != (cluster.Elastic{}) {
			rec.Spec = g.Spec // as it started
		}
		if g.Places.HasSurplus() && !slices.ContainsFunc(g.Places, func(s places.Place) bool {
			p := g.Pods[s.Pod]
			return !s.Surplus && (p == nil || p.Node == "")
		}) {
			snap.Jobs = append(snap.Jobs, d.divideGang(g, rec)...)
		}
	}
	snap.Elastic = 0
	for i := range snap.Jobs {
		if snap.Jobs[i].Spec.Elastic != (cluster.Elastic{}) {
			snap.Elastic++
		}
	}
}

// divideGang makes each pod beyond a gang's minimum a gang of one, with the place that
// it got. The place of one that went meanwhile, or that cannot be there after all, is
// free again.
func (d *Driver) divideGang(g *gang.Gang, rec *engine.JobRecord) (ones []engine.JobRecord) {
	needed, surplus := places.Layout{Tasks: g.Spec.Tasks, Places: g.Places, Allocs: rec.Allocs}.Divide(d.nodes.Order())
	for _, s := range surplus {
		p := g.Pods[s.Pod]
		if !s.Held || p == nil || !p.Ready() || d.reader.KeptOff(p, s.Node) != "" || d.grant(p, s.Node) != "" {
			continue
		}
		one := *rec
		one.Allocs, one.Tasks = []engine.Alloc{s.Alloc}, 1
		one.Spec = d.follow(g, p, s.Place)
		ones = append(ones, one)
	}
	d.reform(g, rec, needed)
	return ones
}

// follow makes a gang of one of a pod that started with its gang, and binds it.
func (d *Driver) follow(g *gang.Gang, p *gang.Pod, s places.Place) *cluster.Job {
	c := gangs.Alone(p.Obj, g.Object, g.Kind)
	c.Of = g.Key
	delete(g.Pods, p.Obj.UID)
	w := d.gangFor(c)
	p.Gang, w.Pods[p.Obj.UID] = w, p
	spec := *g.Spec
	spec.ID, spec.Name, spec.Topology, spec.Elastic = d.next, w.Name, cluster.Topology{}, cluster.Elastic{}
	spec.PerNode, spec.NodeLimits, spec.NoPreempt = 0, nil, true
	spec.Tasks = []cluster.TaskSet{{Count: 1, Request: g.Spec.Tasks[s.Set].Request}}
	d.next++
	w.Job, w.Spec, w.Phase, w.InJob, w.Run = spec.ID, &spec, gang.Starting, []types.UID{p.Obj.UID}, w.Run+1
	w.Places = places.List{{Node: s.Node, Pod: p.Obj.UID}}
	w.Plan = (&plans.Plan{Tasks: spec.Tasks, On: []plans.On{{Node: s.Node, Tasks: 1}}, Alone: true}).Text()
	w.Told.Since(d.now, d.opt.TellAfter)
	d.byID[w.Job] = w
	d.bind(w, p, s.Node)
	return &spec
}
