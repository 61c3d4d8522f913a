package kube

import (
	"fmt"
	"maps"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/engine"
	"github.com/muster-gpu/muster/internal/oldkeys"
	"github.com/muster-gpu/muster/kube/fit"
	"github.com/muster-gpu/muster/kube/gangs"
	"github.com/muster-gpu/muster/kube/holds"
	"github.com/muster-gpu/muster/kube/nodes"
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
	wanted  bool              // rather than leaving as a whole
	missing []cluster.TaskSet // places that were lost, and that no pod has taken yet
	nth     int               // repairs that its plan has seen
	patch   bool              // it is a patch, of the gang that it belongs to
	// of a patch, or one that prefers nodes: where it is looked for places, one after the other, then anywhere
	homes []home
	home  int
	asked int64 // ... the batch in which the engine was asked last
}

// home is a topology domain that all of what is left of a gang is in, or nodes that
// a gang likes.
type home struct {
	label, value string
	level        cluster.Level
	must         bool
	liked        map[string]bool // by node's name
}

func patchKey(g *gang) string { return g.key + "/patch" }

// isLost reports whether the place of a task is on a node that is not there.
func (s *slot) isLost(all *nodes.Room) bool { return s.lost || all.Lost(s.node) }

// hurt reports whether a running gang lost places and is to be repaired: some
// of it is still there.
func (g *gang) hurt(all *nodes.Room) bool {
	if g.phase != running || !g.repair.wanted || g.leaves != "" {
		return false
	}
	some, left := false, false
	for i := range g.slots {
		s := &g.slots[i]
		p := g.pods[s.pod]
		if s.isLost(all) {
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
			g.repair.wanted = g.repair.wanted && !g.hurt(d.nodes) // it leaves as a whole
			continue
		}
		if g.hurt(d.nodes) {
			d.cut(g, rec)
		}
		w := d.gangs[patchKey(g)]
		if w == nil || w.phase != running || w.leaves != "" {
			continue
		}
		if r := recs[w.id]; r != nil && r.State == engine.Running {
			gone[w.id] = true
			d.mendWith(g, w, rec, r)
		}
	}
	snap.Jobs = slices.DeleteFunc(snap.Jobs, func(r engine.JobRecord) bool { return gone[r.Spec.ID] })
}

// cut takes the lost places out of a gang. Pods that are on a node that is gone
// hold what they have of it, should it come back, until they are gone themselves.
func (d *Driver) cut(g *gang, rec *engine.JobRecord) {
	type place struct {
		node string
		set  int
	}
	lost, count := map[place]int{}, make([]int, len(rec.Spec.Tasks))
	was := rec.Spec.Tasks
	var slots []slot
	for _, s := range g.slots {
		if !s.isLost(d.nodes) {
			slots = append(slots, s)
			count[s.set]++
			continue
		}
		lost[place{s.node, s.set}]++
		if !s.done {
			g.missing = holds.AddTasks(g.missing, cluster.TaskSet{Count: 1, Request: was[s.set].Request})
		}
		if p := g.pods[s.pod]; p != nil {
			d.lose(p)
		}
	}
	var sets []cluster.TaskSet
	at := make([]int, len(was)) // a set's place among those that are left
	for i := range was {
		if at[i] = len(sets); count[i] > 0 {
			sets = append(sets, cluster.TaskSet{Count: count[i], Request: was[i].Request})
		}
	}
	var allocs []engine.Alloc
	for _, a := range rec.Allocs {
		key := place{d.nodes.Order()[a.Node], int(a.Set)}
		k := min(lost[key], int(a.Tasks))
		lost[key] -= k
		if k < int(a.Tasks) {
			a = holds.Fewer(a, k)
			a.Set = int32(at[a.Set])
			allocs = append(allocs, a)
		}
	}
	for i := range slots {
		slots[i].set = at[slots[i].set]
	}
	d.reform(g, rec, sets, allocs, slots)
	g.book.Tell(d.now, show.StateRunning, "lost a node: what is left runs on, and waits for its owner to make other pods")
	if w := d.gangs[patchKey(g)]; w != nil { // it has to be larger
		d.agenda.touch(w)
	}
}

// lose lets a pod go whose node is lost.
func (d *Driver) lose(p *pod) {
	d.notices.Event(p.Obj, v1.EventTypeWarning, "NodeLost",
		"its node "+p.node+" is gone; its gang runs on and waits for another pod")
	d.disown(p)
	d.remove(p)
}

// reform books what a running gang is now, in the record that the engine is told, too.
func (d *Driver) reform(g *gang, rec *engine.JobRecord, sets []cluster.TaskSet, allocs []engine.Alloc, slots []slot) {
	spec := *rec.Spec
	spec.Tasks, spec.Elastic = sets, cluster.Elastic{}
	rec.Spec, rec.Allocs, rec.Tasks = &spec, allocs, int32(sets[0].Count)
	g.spec, g.slots = &spec, slots
	d.resize(g, d.now)
}

// mendWith makes one gang of a gang and its patch.
func (d *Driver) mendWith(g, w *gang, rec, patch *engine.JobRecord) {
	sets, slots, at := joined(g, w)
	allocs := slices.Clone(rec.Allocs)
	for _, a := range patch.Allocs {
		a.Set = int32(at[a.Set])
		allocs = append(allocs, a)
	}
	for _, t := range w.spec.Tasks {
		if i := holds.SetOf(g.missing, &t.Request); i >= 0 {
			g.missing[i].Count -= t.Count
		}
	}
	g.missing = slices.DeleteFunc(g.missing, func(t cluster.TaskSet) bool { return t.Count <= 0 })
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
	d.reform(g, rec, sets, allocs, slots)
	g.book.Tell(d.now, show.StateRunning, "repaired: as many pods run as before")
	d.agenda.touch(g)
}

// joined is a gang and its patch together; at is where the patch's task sets are.
func joined(g, w *gang) (sets []cluster.TaskSet, slots []slot, at []int) {
	sets, slots = g.spec.Tasks, slices.Clone(g.slots)
	for _, t := range w.spec.Tasks {
		sets = holds.AddTasks(sets, t)
		at = append(at, holds.SetOf(sets, &t.Request))
	}
	for _, s := range w.slots {
		s.set = at[s.set]
		slots = append(slots, s)
	}
	return sets, slots, at
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
	var slots []slot
	p.Tasks, slots, _ = joined(g, w)
	place(&p, slots)
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
		i := slices.IndexFunc(g.missing, func(t cluster.TaskSet) bool { return p.asks(&t.Request) })
		if p.binding || i < 0 {
			continue
		}
		if k := holds.SetOf(have, &g.missing[i].Request); k >= 0 && have[k].Count >= g.missing[i].Count {
			continue
		}
		p.give(&g.missing[i].Request)
		have = holds.AddTasks(have, cluster.TaskSet{Count: 1, Request: p.Request})
		if w == nil {
			w = d.gangFor(&gangs.Claim{Key: patchKey(g), Name: g.name + "-repair", Object: g.object, Kind: g.kind,
				Of:   g.key,
				Need: func(gangs.Gang) (gangs.Membership, error) { return g.patchNeed(), nil }})
			w.repair.patch, w.repair.homes = true, d.homesOf(g)
		}
		delete(g.pods, p.Obj.UID)
		p.gang = w
		w.pods[p.Obj.UID] = p
		d.agenda.touch(w)
	}
}

// patchNeed is how many pods a patch has, which is as old as its gang.
func (g *gang) patchNeed() gangs.Membership {
	m := gangs.Membership{}
	for _, t := range g.missing {
		m.Size += t.Count
	}
	if g.spec != nil {
		m.Submit = time.Unix(0, int64(g.spec.Submit))
	}
	return m
}

// homesOf lists the topology domains in which all of what is left of a gang is,
// the closest first; only the one that it has to be in, if there is such.
func (d *Driver) homesOf(g *gang) (list []home) {
	t := cluster.Topology{}
	for _, p := range g.sorted() {
		if origins, err := d.annotationSources(g, p.Obj); err == nil && p.node != "" {
			t, _ = d.opt.termRules().Topology(origins) // it was understood when the gang began
			break
		}
	}
	for _, domain := range d.opt.Labels.Domains() {
		h := home{label: domain.Label, level: domain.Level}
		if t.Required && h.level != t.Level {
			continue
		}
		h.must = t.Required
		same := len(g.slots) > 0
		for i := range g.slots {
			v, ok := d.nodes.World.Domain(g.slots[i].node, h.label)
			same = same && ok && (i == 0 || v == h.value)
			h.value = v
		}
		if same {
			list = append(list, h)
		}
	}
	return list
}

// atHome reports whether a gang is looked for places only where it need not be: no gang leaves for that.
func (g *gang) atHome() bool {
	r := &g.repair
	return r.home < len(r.homes) && !r.homes[r.home].must
}

// confine adds to what nodes take of a gang that those outside its home take
// nothing.
func (d *Driver) confine(g *gang, l fit.Limits) fit.Limits {
	r := &g.repair
	if r.home >= len(r.homes) || l.Why != "" {
		return l
	}
	h := &r.homes[r.home]
	var outside []string
	for _, name := range d.nodes.Order() {
		if !h.has(name, d.nodes.World) {
			outside = append(outside, name)
		}
	}
	if len(outside) == 0 {
		return l
	}
	slices.Sort(outside)
	l.Nodes = append([]cluster.NodeLimit{{Nodes: outside}}, l.Nodes...)
	text := fmt.Sprintf("%d: outside the %s domain of its gang", len(outside), h.level)
	if h.liked != nil {
		text = fmt.Sprintf("%d: liked less than others", len(outside))
	}
	if l.Text != "" {
		text = l.Text + "; " + text
	}
	l.Text = text
	return l
}

// has reports whether a node is in the home.
func (h *home) has(name string, world *fit.World) bool {
	if h.liked != nil {
		return h.liked[name]
	}
	v, ok := world.Domain(name, h.label)
	return ok && v == h.value
}

// widen looks further away for places, where the engine found none.
func (g *gang) widen(seq int64) bool {
	if !g.atHome() || seq < g.asked {
		return false
	}
	g.home++
	return true
}

// givenAway reports whether others have the places of a gang's plan that no pod of it has:
// then they were lost once.
func (g *gang) givenAway(all *nodes.Room, p *plans.Plan) bool {
	open := map[string]int{}
	for _, s := range g.slots {
		if r := &p.Tasks[s.set].Request; !r.Fractional() {
			open[s.node] += holds.WholeGPUs(r)
		}
	}
	for _, s := range g.slots {
		if s.pod != "" || all.Lost(s.node) ||
			slices.ContainsFunc(g.sorted(), func(p *pod) bool { return len(p.Obj.Spec.ResourceClaims) > 0 }) {
			continue
		}
		if have, used := all.WholeGPUs(s.node, settledBut(g)); open[s.node] > 0 && used+open[s.node] > have {
			return true
		}
	}
	return false
}

// shrunk takes the places that no pod has out of a gang, whose plan this was:
// others have them now, because they were lost once.
func (g *gang) shrunk(p *plans.Plan) *plans.Plan {
	small := plans.Plan{Repair: p.Repair}
	var slots []slot
	for _, s := range g.slots {
		t := cluster.TaskSet{Count: 1, Request: p.Tasks[s.set].Request}
		if s.pod == "" {
			g.missing = holds.AddTasks(g.missing, t)
			continue
		}
		small.Tasks = holds.AddTasks(small.Tasks, t)
		s.set = holds.SetOf(small.Tasks, &t.Request)
		slots = append(slots, s)
	}
	g.slots = slots
	place(&small, slots)
	return &small
}
