package kube

import (
	"maps"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/engine"
	"github.com/muster-gpu/muster/internal/oldkeys"
	"github.com/muster-gpu/muster/kube/areas"
	"github.com/muster-gpu/muster/kube/fit"
	"github.com/muster-gpu/muster/kube/gangs"
	"github.com/muster-gpu/muster/kube/holds"
	"github.com/muster-gpu/muster/kube/nodes"
	"github.com/muster-gpu/muster/kube/places"
	"github.com/muster-gpu/muster/kube/plans"
	"github.com/muster-gpu/muster/show"
)

// What becomes of a gang that loses a node (muster.sh/on-node-loss). requeue: it
// leaves as a whole and waits as a whole. repair: those of its pods that are on
// other nodes run on, and the places that are lost are taken out of it. The pods
// that its owner makes for these are a gang for themselves, its patch, until all
// of them are bound; then both are one again. The bindings of a patch carry the
// plan of the whole, so the next scheduler finds one gang, by the latest plan.

// repair keeps what a gang needs to be repaired.
type repair struct {
	wanted  bool // rather than leaving as a whole
	missing places.Missing
	nth     int  // repairs that its plan has seen
	patch   bool // it is a patch, of the gang that it belongs to
}

func patchKey(g *gang) string { return g.key + "/patch" }

// isLost reports whether a place is on a node that is not there, or takes no pods.
func isLost(s *places.Place, all *nodes.Room) bool { return s.Lost || all.Lost(s.Node) }

// needsRepair reports whether a running gang lost places and is to be repaired: some
// of it is still there.
func (g *gang) needsRepair(all *nodes.Room) bool {
	if g.phase != running || !g.repair.wanted || g.leaves != "" {
		return false
	}
	some, left := false, false
	for i := range g.places {
		s := &g.places[i]
		p := g.pods[s.Pod]
		if isLost(s, all) {
			some = true
		} else if p != nil && !p.Over() && p.Obj.DeletionTimestamp == nil {
			left = true
		}
	}
	return some && left
}

// repairAll cuts what was lost out of the gangs that are to be repaired, and puts
// the patches in that are bound.
func (d *Driver) repairAll(snap *engine.Snapshot) {
	recs := map[cluster.JobID]*engine.JobRecord{}
	for i := range snap.Jobs {
		recs[snap.Jobs[i].Spec.ID] = &snap.Jobs[i]
	}
	gone := map[cluster.JobID]bool{}
	for _, key := range slices.Sorted(maps.Keys(d.gangs)) {
		g := d.gangs[key]
		if g == nil {
			continue // it was a patch
		}
		rec := recs[g.id]
		if rec == nil || rec.State != engine.Running || g.phase != running {
			g.repair.wanted = g.repair.wanted && !g.needsRepair(d.nodes) // it leaves as a whole
			continue
		}
		if g.needsRepair(d.nodes) {
			d.takeOutLost(g, rec)
		}
		w := d.gangs[patchKey(g)]
		if w == nil || w.phase != running || w.leaves != "" {
			continue
		}
		if r := recs[w.id]; r != nil && r.State == engine.Running {
			gone[w.id] = true
			d.mergePatch(g, w, rec, r)
		}
	}
	snap.Jobs = slices.DeleteFunc(snap.Jobs, func(r engine.JobRecord) bool { return gone[r.Spec.ID] })
}

// takeOutLost takes the lost places out of a gang. Pods that are on a node that is gone hold what they have of it,
// should it come back, until they are gone themselves.
func (d *Driver) takeOutLost(g *gang, rec *engine.JobRecord) {
	was := places.Layout{Tasks: rec.Spec.Tasks, Places: g.places, Allocs: rec.Allocs}
	left, gone := was.Without(func(s *places.Place) bool { return isLost(s, d.nodes) }, d.nodes.Order())
	for _, s := range gone {
		if !s.Done {
			g.missing = g.missing.Add(&was.Tasks[s.Set].Request)
		}
		if p := g.pods[s.Pod]; p != nil {
			d.dropLost(p)
		}
	}
	d.reform(g, rec, left)
	g.book.Tell(d.now, show.StateRunning, "lost a node: what is left runs on, and waits for its owner to make other pods")
	if w := d.gangs[patchKey(g)]; w != nil { // it has to be larger
		d.agenda.touch(w)
	}
}

// dropLost makes a pod foreign whose node is lost, and ends it.
func (d *Driver) dropLost(p *pod) {
	d.notices.Event(p.Obj, v1.EventTypeWarning, "NodeLost",
		"its node "+p.node+" is gone; its gang runs on and waits for another pod")
	d.disown(p)
	d.remove(p)
}

// reform books what a running gang is now, in the record that the engine is told, too.
func (d *Driver) reform(g *gang, rec *engine.JobRecord, now places.Layout) {
	spec := *rec.Spec
	spec.Tasks, spec.Elastic = now.Tasks, cluster.Elastic{}
	rec.Spec, rec.Allocs, rec.Tasks = &spec, now.Allocs, int32(now.Tasks[0].Count)
	g.spec, g.places = &spec, now.Places
	d.resize(g, d.now)
}

// mergePatch makes one gang of a gang and its patch.
func (d *Driver) mergePatch(g, w *gang, rec, patch *engine.JobRecord) {
	own := places.Layout{Tasks: g.spec.Tasks, Places: g.places, Allocs: rec.Allocs}
	whole := own.With(places.Layout{Tasks: w.spec.Tasks, Places: w.places, Allocs: patch.Allocs})
	g.missing = g.missing.Filled(w.spec.Tasks)
	for uid, p := range w.pods {
		g.pods[uid], p.gang = p, g
	}
	w.pods = nil
	if w.was >= starting {
		d.records.Count(d.now)
		d.records.Held -= w.book.GPUs
	}
	w.book.Over = true // what becomes of it stands in the gang's own book
	delete(d.byID, w.id)
	d.drop(w)
	g.plan, g.nth = w.plan, g.nth+1
	d.reform(g, rec, whole)
	g.book.Tell(d.now, show.StateRunning, "repaired: as many pods run as before")
	d.agenda.touch(g)
}

// patchPlan is the plan that the pods of a patch carry: that of the whole gang.
func (d *Driver) patchPlan(w *gang) string {
	g := d.gangs[w.of]
	if g == nil || g.phase != running {
		return ""
	}
	p := plans.Plan{Repair: g.nth + 1}
	var was plans.Plan
	if oldkeys.Unmarshal(oldkeys.Plan, []byte(g.plan), &was) == nil {
		p.Before = was.Before
	}
	own := places.Layout{Tasks: g.spec.Tasks, Places: g.places}
	whole := own.With(places.Layout{Tasks: w.spec.Tasks, Places: w.places})
	p.Tasks = whole.Tasks
	whole.Places.AddTo(&p)
	return p.Text()
}

// patch gives pods that take the places of lost ones to the patch of their gang.
func (d *Driver) patch(g *gang) {
	if len(g.missing) == 0 || g.phase != running {
		return
	}
	w := d.gangs[patchKey(g)]
	if w != nil && w.phase > waiting {
		return
	}
	var have []cluster.TaskSet
	if w != nil {
		have = taskSets(w.ready())
	}
	for _, p := range g.wanted() {
		i := slices.IndexFunc(g.missing, func(t cluster.TaskSet) bool { return p.Asks(&t.Request) })
		if p.binding || i < 0 {
			continue
		}
		if k := holds.SetOf(have, &g.missing[i].Request); k >= 0 && have[k].Count >= g.missing[i].Count {
			continue
		}
		p.Give(&g.missing[i].Request)
		have = holds.AddTasks(have, cluster.TaskSet{Count: 1, Request: p.Request})
		if w == nil {
			w = d.gangFor(&gangs.Claim{Key: patchKey(g), Name: g.name + "-repair", Object: g.object, Kind: g.kind,
				Of:   g.key,
				Need: func(gangs.Gang) (gangs.Membership, error) { return g.patchNeed(), nil }})
			w.repair.patch, w.search = true, areas.In(d.domainsOf(g))
		}
		delete(g.pods, p.Obj.UID)
		p.gang = w
		w.pods[p.Obj.UID] = p
		d.agenda.touch(w)
	}
}

// patchNeed is how many pods a patch has, which is as old as its gang.
func (g *gang) patchNeed() gangs.Membership {
	m := gangs.Membership{Size: g.missing.Size()}
	if g.spec != nil {
		m.Submit = time.Unix(0, int64(g.spec.Submit))
	}
	return m
}

// domainsOf lists the topology domains in which all of what is left of a gang is, the closest first; only the one that
// it has to be in, if there is such.
func (d *Driver) domainsOf(g *gang) []areas.Area {
	t := cluster.Topology{}
	for _, p := range g.sorted() {
		if origins, err := d.annotationSources(g, p.Obj); err == nil && p.node != "" {
			t, _ = d.opt.termRules().Topology(origins) // it was understood when the gang began
			break
		}
	}
	return areas.Shared(g.places.Nodes(), d.opt.Labels.Domains(), t, d.nodes.World)
}

// confine adds to what nodes take of a gang that those outside the area in which it is looked for places take nothing.
func (d *Driver) confine(g *gang, l fit.Limits) fit.Limits {
	return g.search.Confine(l, d.nodes.Order(), d.nodes.World)
}

// givenAway reports whether others have the places of a gang's plan that no pod of it has:
// then they were lost once.
func (g *gang) givenAway(all *nodes.Room, p *plans.Plan) bool {
	planned := g.places.WholeGPUs(p.Tasks)
	for _, s := range g.places {
		if s.Pod != "" || all.Lost(s.Node) ||
			slices.ContainsFunc(g.sorted(), func(p *pod) bool { return len(p.Obj.Spec.ResourceClaims) > 0 }) {
			continue
		}
		have, used := all.Rest(settledBut(g)).WholeGPUs(s.Node)
		if n := planned[s.Node]; n > 0 && used+n > have {
			return true
		}
	}
	return false
}

// shrunk takes the places that no pod has out of a gang, whose plan this was:
// others have them now, because they were lost once.
func (g *gang) shrunk(p *plans.Plan) *plans.Plan {
	left, empty := places.Layout{Tasks: p.Tasks, Places: g.places}.Occupied()
	g.missing = g.missing.AddAll(empty, p.Tasks)
	g.places = left.Places
	small := plans.Plan{Repair: p.Repair, Tasks: left.Tasks}
	g.places.AddTo(&small)
	return &small
}
