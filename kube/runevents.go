package kube

import (
	"cmp"
	"errors"
	"slices"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/engine"
	"github.com/muster-gpu/muster/kube/confirm"
	"github.com/muster-gpu/muster/kube/gang"
	"github.com/muster-gpu/muster/kube/holds"
	"github.com/muster-gpu/muster/kube/mig"
	"github.com/muster-gpu/muster/kube/places"
)

// What events tell the engine of gangs that run: that they are of other pods than before (JobReshaped), that they are
// there at all (Adopted), that they come back when they are stopped, or do no more (Updated). The engine ignores what
// does not fit; what it did not take over is found after the step, and then it is renewed.

// checkTaken finds what the engine did not take over of what it was told in the step before.
func (d *Driver) checkTaken() {
	refused := d.unconfirmed.Refused(d.eng, d.nodes)
	d.unconfirmed = confirm.Step{}
	for i := range refused {
		ev := &refused[i]
		d.opt.Log.Warn("the engine did not take over what it was told", "what", ev.Type, "job", ev.Job, "node", ev.Node)
		d.stale = cmp.Or(d.stale, "it did not take over "+ev.Type.String())
		known := ev.Type == engine.NodeChanged || ev.Type == engine.Updated
		if g := d.byID[ev.Job]; g != nil && !known { // as if it were found bound
			d.queued = append(d.queued, engine.Event{Type: engine.Stopped, Job: g.Job, Reason: engine.WasCancelled})
			d.withdraw(g)
		}
	}
}

// adoptNow has the engine take over a gang that is found bound while it works. Where its devices are not free in the
// books, the engine is renewed.
func (d *Driver) adoptNow(g *gang.Gang) []engine.Event {
	switch {
	case d.stale != "":
		return nil // it is found then
	case d.opt.Failures.Blame(g.Members()) != "":
		d.expel(g, d.opt.Failures.Blame(g.Members()))
		return nil
	case !g.IsKnown(d.nodes, d.opt.Seal):
		d.stale = "found bound"
		return nil
	case g.Joins(d.nodes):
		d.agenda.at(g, d.now)
		return nil
	}
	snap := d.heldNow()
	taken := holds.InUseByNode(snap, d.nodes.Order())
	for _, n := range d.eng.Nodes() {
		if n.Bad != 0 {
			u := taken[n.Name]
			u.Devices |= n.Bad
			taken[n.Name] = u
		}
	}
	f, err := d.findGang(g, taken)
	if err != nil && !errors.Is(err, places.ErrNoRoom) {
		d.expel(g, err.Error())
		return nil
	}
	if err == nil {
		spec := d.cfg.Spec
		spec.Nodes = d.eng.Nodes()
		// where it fails, the engine refuses the job
		_ = mig.TakeSlices(&f.rec, &spec, map[int32][]uint8{}, func(node int32, gpus int) []uint8 {
			return holds.SlotsInUse(snap, node, gpus)
		})
	}
	if err != nil || d.eng.CheckAdopted(&f.rec) != "" {
		g.Places, g.Plan, g.Missing, g.Repairs = nil, "", nil, 0
		d.stale = "found bound"
		return nil
	}
	d.takeUp(g, f)
	d.agenda.touch(g)
	return []engine.Event{d.unconfirmed.Adopted(&f.rec)}
}

// repairGang books that a gang is whole again, or lost a node: its patch is one with it, and what is lost is taken out.
func (d *Driver) repairGang(g *gang.Gang) (events []engine.Event) {
	rec := d.unconfirmed.Record(d.eng, g.Job)
	if rec == nil || rec.State != engine.Starting && rec.State != engine.Running || g.Phase != gang.Running {
		g.Repair.Wanted = g.Repair.Wanted && !g.NeedsRepair(d.nodes) // it leaves as a whole
		return nil
	}
	w := d.gangs[g.PatchKey()]
	whole := false
	if w != nil && w.Phase == gang.Running && w.Leaves == "" {
		r := d.unconfirmed.Record(d.eng, w.Job)
		if r != nil && (r.State == engine.Starting || r.State == engine.Running) {
			events = append(events, engine.Event{Type: engine.Stopped, Job: w.Job, Reason: engine.WasCancelled})
			d.mergePatch(g, w, rec, r)
			whole = true
		}
	}
	lost := g.NeedsRepair(d.nodes)
	if lost {
		d.takeOutLost(g, rec)
		d.agenda.touch(g)
	}
	if whole || lost {
		events = append(events, d.unconfirmed.Reshaped(rec))
	}
	return events
}

// repairEvents tell the engine what is left of gangs that lost a node, before it hears of the node: it would stop them.
func (d *Driver) repairEvents() (events []engine.Event) {
	var list []*gang.Gang
	for _, g := range d.gangs {
		if g.NeedsRepair(d.nodes) {
			list = append(list, g)
		}
	}
	slices.SortFunc(list, func(a, b *gang.Gang) int { return cmp.Compare(a.Key, b.Key) })
	for _, g := range list {
		if d.gangs[g.Key] == g { // else it was a patch
			events = append(events, d.repairGang(g)...)
		}
	}
	return events
}

// dividedNow tells the engine that a gang which started with more pods than it needs is a gang of those that it needs,
// and each of the others one for itself.
func (d *Driver) dividedNow(g *gang.Gang) (events []engine.Event) {
	rec := d.unconfirmed.Record(d.eng, g.Job)
	if rec == nil || rec.State != engine.Starting {
		return nil
	}
	if rec.Spec.Elastic != (cluster.Elastic{}) {
		rec.Spec = g.Spec // as it started
	}
	var ones []engine.JobRecord
	if g.Places.HasSurplus() {
		ones = d.divideGang(g, rec)
	}
	events = append(events, d.unconfirmed.Reshaped(rec))
	for i := range ones {
		events = append(events, d.unconfirmed.Adopted(&ones[i]))
		d.agenda.touch(d.byID[ones[i].Spec.ID])
	}
	return events
}

// resizedNow tells the engine what the pods of gangs hold that were resized, and books it in a snapshot.
func (d *Driver) resizedNow(snap *engine.Snapshot) (events []engine.Event) {
	for i := range snap.Jobs {
		rec := &snap.Jobs[i]
		g := d.byID[rec.Spec.ID]
		if g == nil || !g.Resized || g.Phase != gang.Running && g.Phase != gang.Starting {
			continue
		}
		if rec.State != engine.Running && rec.State != engine.Starting {
			continue
		}
		was := rec.Spec
		if rec.Spec.Elastic == (cluster.Elastic{}) {
			d.reshape(g, rec)
		}
		if rec.Spec != was {
			now := *rec
			events = append(events, d.unconfirmed.Reshaped(&now))
		}
	}
	for _, g := range d.byID {
		g.Resized = false
	}
	return events
}

// staysPut tells the engine that a gang that runs does not come back when it is stopped.
func (d *Driver) staysPut(g *gang.Gang) engine.Event {
	spec := *g.Spec
	spec.Name, spec.NoRequeue, spec.Checkpoint = g.Name, true, cluster.Checkpoint{Interval: spec.Checkpoint.Interval}
	spec.Nodes, spec.PerNode, spec.NodeLimits, spec.Topology = "", 0, nil, cluster.Topology{}
	g.Spec = &spec
	return d.unconfirmed.Must(engine.Event{Type: engine.Updated, Job: g.Job, Spec: &spec})
}

// mayGo tells the engine that gangs that run come back when they are stopped, on nodes that suit them: they are to be
// moved. Those of which that is true are returned, in the order of their jobs.
func (d *Driver) mayGo(ids []cluster.JobID) (chosen []*gang.Gang, events []engine.Event) {
	for _, id := range slices.Sorted(slices.Values(ids)) {
		g, rec := d.byID[id], d.eng.Record(id)
		if g == nil || rec == nil || rec.State != engine.Running || g.Phase != gang.Running {
			continue
		}
		spec := *rec.Spec
		s, err := d.freed(g, &spec)
		if err != nil {
			continue
		}
		g.Spec, chosen = &spec, append(chosen, g)
		events = append(append(events, d.nodes.Sets.Name(s)...),
			engine.Event{Type: engine.Updated, Job: g.Job, Spec: &spec})
	}
	return chosen, events
}
