package kube

import (
	"slices"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/engine"
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

// startingPods lists the pods that a gang needs, fewer while they are not all there (lacks
// says of which role), and those that may start with them: they ask for the same
// as the largest of these, so that the engine may choose how many there are. What
// has places of its own - a volume claim, an even spread, a replica of a shared GPU
// - follows one by one.
func (d *Driver) startingPods(g *gang, m *gangs.Membership) (need, more []*pod, lacks string) {
	ready := g.ready()
	need, lacks = pick(m, ready)
	if !m.Open || g.of != "" || g.narrow || len(need) < max(1, m.Size) || len(need) == len(ready) {
		return need, nil, lacks
	}
	largest, needed := taskSets(need)[0].Request, map[*pod]bool{}
	var like []*pod
	for _, p := range need {
		if needed[p] = true; p.Request == largest &&
			!slices.ContainsFunc(like, func(q *pod) bool { return d.alike(p, q) }) {
			like = append(like, p)
		}
	}
	for _, p := range ready {
		if !needed[p] && len(need)+len(more) < cluster.MaxTasks && p.Request == largest &&
			slices.ContainsFunc(like, func(q *pod) bool { return d.alike(p, q) }) {
			more = append(more, p)
		}
	}
	if len(more) > 0 && d.claims.Shared(neighboursOf(slices.Concat(need, more))) {
		more = nil
	}
	return need, more, lacks
}

// alike reports whether two pods of a gang that ask for the same can go wherever
// the other can.
func (d *Driver) alike(p, q *pod) bool {
	return p.Base == q.Base && !p.Replica.One && d.nodes.World.Alike(&p.Neighbour, &q.Neighbour)
}

// makeElastic makes the job of a gang elastic that can do without so many of its pods. On
// nodes that it only likes better than others it is looked for places as a whole.
func (g *gang) makeElastic(spec *cluster.Job, more int) {
	if n := spec.Tasks[0].Count; more > 0 && !g.search.IsNarrow() {
		spec.Elastic = cluster.Elastic{Min: n - more, Max: n}
	}
}

// asSubmitted reports whether the engine has a waiting gang with these pods. While
// others leave for it, those that came since do not count: they follow it.
func (g *gang) asSubmitted(e *engine.Engine, need, more []*pod) bool {
	if slices.Equal(uids(slices.Concat(need, more)), g.members) {
		return true
	}
	r := e.Record(g.id)
	if r == nil || r.State != engine.Placed || len(need) != len(g.members)-len(g.more) {
		return false
	}
	return !slices.ContainsFunc(need, func(p *pod) bool {
		return !slices.Contains(g.members, p.Obj.UID) || slices.Contains(g.more, p.Obj.UID)
	})
}

// starters are the pods that a gang starts with as the engine placed it - those
// that it needs, and those that are beyond - and its job with no more than these.
func (g *gang) starters(a *engine.Action) (need, beyond []*pod, spec *cluster.Job) {
	for _, p := range g.submitted() {
		if !slices.Contains(g.more, p.Obj.UID) {
			need = append(need, p)
		}
	}
	room := len(g.more) - len(g.members)
	for i := range a.Allocs {
		room += int(a.Allocs[i].Tasks)
	}
	for _, uid := range g.more[:max(0, min(room, len(g.more)))] {
		if p := g.pods[uid]; p != nil {
			beyond = append(beyond, p)
		}
	}
	if spec = g.spec; len(g.more) > 0 {
		small := *g.spec
		small.Elastic, small.Tasks = cluster.Elastic{}, slices.Clone(g.spec.Tasks)
		small.Tasks[0].Count -= len(g.more) - max(0, room)
		spec = &small
	}
	return need, beyond, spec
}

// seatAll gives the places of a gang that starts to its pods; false: one that it
// needs has none.
func (d *Driver) seatAll(g *gang, need, beyond []*pod) bool {
	take := func(s *places.Place, pods []*pod) []*pod {
		k := slices.IndexFunc(pods, func(p *pod) bool {
			return p.Request == g.spec.Tasks[s.Set].Request && d.pinned(p, s.Node)
		})
		if k < 0 {
			return pods
		}
		s.Pod = pods[k].Obj.UID
		return slices.Delete(pods, k, k+1)
	}
	spare := len(g.places) - len(g.members) + len(g.more)
	for i := range g.places {
		s := &g.places[i]
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

// planText is the plan that the pods carry that a gang needs.
func (g *gang) planText(p plans.Plan) string {
	if g.places.HasSurplus() {
		least, _ := places.Layout{Tasks: g.spec.Tasks, Places: g.places}.Divide(nil)
		p.Tasks, p.On = least.Tasks, nil
		least.Places.AddTo(&p)
	}
	return p.Text()
}

// divide makes the gangs that started with more pods than they need gangs of these,
// when those are bound.
func (d *Driver) divide(snap *engine.Snapshot) {
	for i := range snap.Jobs {
		rec := &snap.Jobs[i]
		g := d.byID[rec.Spec.ID]
		if g == nil || g.phase != starting || rec.State != engine.Starting {
			continue
		}
		if rec.Spec.Elastic != (cluster.Elastic{}) {
			rec.Spec = g.spec // as it started
		}
		if g.places.HasSurplus() && !slices.ContainsFunc(g.places, func(s places.Place) bool {
			p := g.pods[s.Pod]
			return !s.Surplus && (p == nil || p.node == "")
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

// elastic reports whether the engine takes a gang that started for one that may grow: it
// got its minimum and no more, and those beyond that follow one by one.
func (g *gang) elastic(e *engine.Engine) bool {
	if len(g.more) == 0 {
		return false
	}
	r := e.Record(g.id)
	return r != nil && r.Spec.Elastic != (cluster.Elastic{})
}

// divideGang makes each pod beyond a gang's minimum a gang of one, with the place that
// it got. The place of one that went meanwhile, or that cannot be there after all, is
// free again.
func (d *Driver) divideGang(g *gang, rec *engine.JobRecord) (ones []engine.JobRecord) {
	needed, surplus := places.Layout{Tasks: g.spec.Tasks, Places: g.places, Allocs: rec.Allocs}.Divide(d.nodes.Order())
	for _, s := range surplus {
		p := g.pods[s.Pod]
		if !s.Held || p == nil || !p.ready() || d.keptOff(p, s.Node) != "" || d.grant(p, s.Node) != "" {
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
func (d *Driver) follow(g *gang, p *pod, s places.Place) *cluster.Job {
	c := gangs.Alone(p.Obj, g.object, g.kind)
	c.Of = g.key
	delete(g.pods, p.Obj.UID)
	w := d.gangFor(c)
	p.gang, w.pods[p.Obj.UID] = w, p
	spec := *g.spec
	spec.ID, spec.Name, spec.Topology, spec.Elastic = d.next, w.name, cluster.Topology{}, cluster.Elastic{}
	spec.PerNode, spec.NodeLimits, spec.NoPreempt = 0, nil, true
	spec.Tasks = []cluster.TaskSet{{Count: 1, Request: g.spec.Tasks[s.Set].Request}}
	d.next++
	w.id, w.spec, w.phase, w.members, w.run = spec.ID, &spec, starting, []types.UID{p.Obj.UID}, w.run+1
	w.places = places.List{{Node: s.Node, Pod: p.Obj.UID}}
	w.plan = (&plans.Plan{Tasks: spec.Tasks, On: []plans.On{{Node: s.Node, Tasks: 1}}, Alone: true}).Text()
	w.told.Since(d.now, d.opt.TellAfter)
	d.byID[w.id] = w
	d.bind(w, p, s.Node)
	return &spec
}

// neverPreempts reports whether no other has to leave for a gang: it has a preference, comes beyond a minimum, or says
// so.
func (g *gang) neverPreempts(first *v1.Pod) bool {
	return g.search.IsNarrow() || g.of != "" && !g.repair.patch ||
		first.Spec.PreemptionPolicy != nil && *first.Spec.PreemptionPolicy == v1.PreemptNever
}
