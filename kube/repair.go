package kube

import (
	"maps"
	"slices"

	v1 "k8s.io/api/core/v1"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/engine"
	"github.com/muster-gpu/muster/internal/oldkeys"
	"github.com/muster-gpu/muster/kube/areas"
	"github.com/muster-gpu/muster/kube/gang"
	"github.com/muster-gpu/muster/kube/gangs"
	"github.com/muster-gpu/muster/kube/holds"
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
		rec := recs[g.Job]
		if rec == nil || rec.State != engine.Running || g.Phase != gang.Running {
			g.Repair.Wanted = g.Repair.Wanted && !g.NeedsRepair(d.nodes) // it leaves as a whole
			continue
		}
		if g.NeedsRepair(d.nodes) {
			d.takeOutLost(g, rec)
		}
		w := d.gangs[g.PatchKey()]
		if w == nil || w.Phase != gang.Running || w.Leaves != "" {
			continue
		}
		if r := recs[w.Job]; r != nil && r.State == engine.Running {
			gone[w.Job] = true
			d.mergePatch(g, w, rec, r)
		}
	}
	snap.Jobs = slices.DeleteFunc(snap.Jobs, func(r engine.JobRecord) bool { return gone[r.Spec.ID] })
}

// takeOutLost takes the lost places out of a gang. Pods that are on a node that is gone hold what they have of it,
// should it come back, until they are gone themselves.
func (d *Driver) takeOutLost(g *gang.Gang, rec *engine.JobRecord) {
	was := places.Layout{Tasks: rec.Spec.Tasks, Places: g.Places, Allocs: rec.Allocs}
	left, gone := was.Without(func(s *places.Place) bool { return gang.IsLost(s, d.nodes) }, d.nodes.Order())
	for _, s := range gone {
		if !s.Done {
			g.Missing = g.Missing.Add(&was.Tasks[s.Set].Request)
		}
		if p := g.Pods[s.Pod]; p != nil {
			d.dropLost(p)
		}
	}
	d.reform(g, rec, left)
	g.Book.Tell(d.now, show.StateRunning, "lost a node: what is left runs on, and waits for its owner to make other pods")
	if w := d.gangs[g.PatchKey()]; w != nil { // it has to be larger
		d.agenda.touch(w)
	}
}

// dropLost makes a pod foreign whose node is lost, and ends it.
func (d *Driver) dropLost(p *gang.Pod) {
	d.notices.Event(p.Obj, v1.EventTypeWarning, "NodeLost",
		"its node "+p.Node+" is gone; its gang runs on and waits for another pod")
	d.disown(p)
	d.remove(p)
}

// reform books what a running gang is now, in the record that the engine is told, too.
func (d *Driver) reform(g *gang.Gang, rec *engine.JobRecord, now places.Layout) {
	spec := *rec.Spec
	spec.Tasks, spec.Elastic = now.Tasks, cluster.Elastic{}
	rec.Spec, rec.Allocs, rec.Tasks = &spec, now.Allocs, int32(now.Tasks[0].Count)
	g.Spec, g.Places = &spec, now.Places
	d.books.Resize(g, d.now)
}

// mergePatch makes one gang of a gang and its patch.
func (d *Driver) mergePatch(g, w *gang.Gang, rec, patch *engine.JobRecord) {
	own := places.Layout{Tasks: g.Spec.Tasks, Places: g.Places, Allocs: rec.Allocs}
	whole := own.With(places.Layout{Tasks: w.Spec.Tasks, Places: w.Places, Allocs: patch.Allocs})
	g.Missing = g.Missing.Filled(w.Spec.Tasks)
	for uid, p := range w.Pods {
		g.Pods[uid], p.Gang = p, g
	}
	w.Pods = nil
	d.books.Merged(w, d.now)
	delete(d.byID, w.Job)
	d.drop(w)
	g.Plan, g.Repairs = w.Plan, g.Repairs+1
	d.reform(g, rec, whole)
	g.Book.Tell(d.now, show.StateRunning, "repaired: as many pods run as before")
	d.agenda.touch(g)
}

// patchPlan is the plan that the pods of a patch carry: that of the whole gang.
func (d *Driver) patchPlan(w *gang.Gang) string {
	g := d.gangs[w.Of]
	if g == nil || g.Phase != gang.Running {
		return ""
	}
	p := plans.Plan{Repair: g.Repairs + 1}
	var was plans.Plan
	if oldkeys.Unmarshal(oldkeys.Plan, []byte(g.Plan), &was) == nil {
		p.Before = was.Before
	}
	own := places.Layout{Tasks: g.Spec.Tasks, Places: g.Places}
	whole := own.With(places.Layout{Tasks: w.Spec.Tasks, Places: w.Places})
	p.Tasks = whole.Tasks
	whole.Places.AddTo(&p)
	return p.Text()
}

// patch gives pods that take the places of lost ones to the patch of their gang.
func (d *Driver) patch(g *gang.Gang) {
	if len(g.Missing) == 0 || g.Phase != gang.Running {
		return
	}
	w := d.gangs[g.PatchKey()]
	if w != nil && w.Phase > gang.Waiting {
		return
	}
	var have []cluster.TaskSet
	if w != nil {
		have = gang.TaskSets(w.Ready())
	}
	for _, p := range g.Wanted() {
		i := slices.IndexFunc(g.Missing, func(t cluster.TaskSet) bool { return p.Asks(&t.Request) })
		if p.Binding || i < 0 {
			continue
		}
		if k := holds.SetOf(have, &g.Missing[i].Request); k >= 0 && have[k].Count >= g.Missing[i].Count {
			continue
		}
		p.Give(&g.Missing[i].Request)
		have = holds.AddTasks(have, cluster.TaskSet{Count: 1, Request: p.Request})
		if w == nil {
			w = d.gangFor(&gangs.Claim{Key: g.PatchKey(), Name: g.Name + "-repair", Object: g.Object, Kind: g.Kind,
				Of:   g.Key,
				Need: func(gangs.Gang) (gangs.Membership, error) { return g.PatchNeed(), nil }})
			w.Repair.IsPatch, w.Search = true, areas.In(d.reader.Domains(g))
		}
		delete(g.Pods, p.Obj.UID)
		p.Gang = w
		w.Pods[p.Obj.UID] = p
		d.agenda.touch(w)
	}
}
