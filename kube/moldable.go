package kube

import (
	"slices"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/engine"
	"github.com/muster-gpu/muster/kube/gangs"
	"github.com/muster-gpu/muster/kube/holds"
	"github.com/muster-gpu/muster/kube/plans"
)

// A gang that may start with fewer pods than it has is moldable: the engine has it
// as an elastic job and chooses its size when it starts, as large as there is room
// for, in one decision. Others have to leave for its minimum only. First the pods
// of the minimum are bound, all or none. Then the engine is told that the gang is in
// parts: the minimum is the gang from now on, and each of the other pods is a
// gang of one that belongs to it, as are those that follow later.

// crew lists the pods that a gang needs, fewer while they are not all there (lacks
// says of which role), and those that may start with them: they ask for the same
// as the largest of these, so that the engine may choose how many there are. What
// has places of its own - a volume claim, an even spread, a replica of a shared GPU
// - follows one by one.
func (d *Driver) crew(g *gang, m *gangs.Membership) (need, more []*pod, lacks string) {
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
	return p.base == q.base && !p.Replica.One && d.nodes.World.Alike(&p.Neighbour, &q.Neighbour)
}

// mold makes the job of a gang elastic that can do without so many of its pods. On
// nodes that it only likes better than others it is looked for places as a whole.
func (g *gang) mold(spec *cluster.Job, more int) {
	if n := spec.Tasks[0].Count; more > 0 && !g.atHome() {
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
	take := func(s *slot, pods []*pod) []*pod {
		k := slices.IndexFunc(pods, func(p *pod) bool {
			return p.Request == g.spec.Tasks[s.set].Request && d.pinned(p, s.node)
		})
		if k < 0 {
			return pods
		}
		s.pod = pods[k].Obj.UID
		return slices.Delete(pods, k, k+1)
	}
	spare := len(g.slots) - len(g.members) + len(g.more)
	for i := range g.slots {
		s := &g.slots[i]
		if need = take(s, need); s.pod != "" {
			continue
		}
		if spare--; spare < 0 || s.set != 0 {
			return false
		}
		s.surplus = true
		beyond = take(s, beyond)
	}
	return len(need) == 0
}

// planText is the plan that the pods carry that a gang needs.
func (g *gang) planText(p plans.Plan) string {
	if slices.ContainsFunc(g.slots, func(s slot) bool { return s.surplus }) {
		least, slots := leastOfSlots(g)
		p.Tasks, p.On = least, nil
		place(&p, slots)
	}
	return p.Text()
}

// leastOfSlots is the tasks and places of a gang without those beyond its minimum.
func leastOfSlots(g *gang) (sets []cluster.TaskSet, slots []slot) {
	sets = slices.Clone(g.spec.Tasks)
	for _, s := range g.slots {
		if s.surplus {
			sets[s.set].Count--
			continue
		}
		slots = append(slots, s)
	}
	return sets, slots
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
		if g.oversized() && !slices.ContainsFunc(g.slots, func(s slot) bool {
			p := g.pods[s.pod]
			return !s.surplus && (p == nil || p.node == "")
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

// oversized reports whether a gang has places beyond its minimum.
func (g *gang) oversized() bool {
	return slices.ContainsFunc(g.slots, func(s slot) bool { return s.surplus })
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
	sets, slots := leastOfSlots(g)
	allocs, was := slices.Clone(rec.Allocs), g.slots
	for _, s := range was {
		if !s.surplus {
			continue
		}
		al, held := holds.Cut(&allocs, d.nodes.Order(), s.node, s.set)
		p := g.pods[s.pod]
		if !held || p == nil || !p.ready() || d.keptOff(p, s.node) != "" || d.grant(p, s.node) != "" {
			continue
		}
		one := *rec
		one.Allocs, one.Tasks = []engine.Alloc{al}, 1
		one.Spec = d.follow(g, p, s)
		ones = append(ones, one)
	}
	d.reform(g, rec, sets, allocs, slots)
	return ones
}

// follow makes a gang of one of a pod that started with its gang, and binds it.
func (d *Driver) follow(g *gang, p *pod, s slot) *cluster.Job {
	c := gangs.Alone(p.Obj, g.object, g.kind)
	c.Of = g.key
	delete(g.pods, p.Obj.UID)
	w := d.gangFor(c)
	p.gang, w.pods[p.Obj.UID] = w, p
	spec := *g.spec
	spec.ID, spec.Name, spec.Topology, spec.Elastic = d.next, w.name, cluster.Topology{}, cluster.Elastic{}
	spec.PerNode, spec.NodeLimits, spec.NoPreempt = 0, nil, true
	spec.Tasks = []cluster.TaskSet{{Count: 1, Request: g.spec.Tasks[s.set].Request}}
	d.next++
	w.id, w.spec, w.phase, w.members, w.run = spec.ID, &spec, starting, []types.UID{p.Obj.UID}, w.run+1
	w.slots = []slot{{node: s.node, pod: p.Obj.UID}}
	w.plan = (&plans.Plan{Tasks: spec.Tasks, On: []plans.On{{Node: s.node, Tasks: 1}}, Alone: true}).Text()
	w.since(d.now, d.opt.TellAfter)
	d.byID[w.id] = w
	d.bind(w, p, s.node)
	return &spec
}

// neverPreempts reports whether no other has to leave for a gang: it has a preference, comes beyond a minimum, or says
// so.
func (g *gang) neverPreempts(first *v1.Pod) bool {
	return g.atHome() || g.of != "" && !g.repair.patch ||
		first.Spec.PreemptionPolicy != nil && *first.Spec.PreemptionPolicy == v1.PreemptNever
}
