package kube

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/config"
	"github.com/muster-gpu/muster/driver"
	"github.com/muster-gpu/muster/engine"
	"github.com/muster-gpu/muster/journal"
	"github.com/muster-gpu/muster/kube/confirm"
	"github.com/muster-gpu/muster/kube/gang"
	"github.com/muster-gpu/muster/kube/gangs"
	"github.com/muster-gpu/muster/kube/holds"
	"github.com/muster-gpu/muster/kube/mig"
	"github.com/muster-gpu/muster/kube/places"
)

// What events cannot tell an engine - another GPU model on a node in use, a loan's nodes - it learns by being renewed,
// from a snapshot of what it knows and of what is found bound, in a new segment of the journal. A start of the
// scheduler is the same thing with nothing known.

// found is what a scheduler knows that has just started.
func (d *Driver) found() *engine.Snapshot { return &engine.Snapshot{Now: d.clock()} }

// renew makes another engine of what this one knows.
func (d *Driver) renew() error {
	start := d.opt.Now()
	defer func() { d.life.took = d.opt.Now().Sub(start) }()
	snap := d.eng.Snapshot()
	snap.Now = d.clock()
	snap.Jobs = slices.DeleteFunc(snap.Jobs, func(r engine.JobRecord) bool { return r.State == engine.Done })
	return d.begin(&snap, d.stale)
}

// lifetime is that of an engine.
type lifetime struct {
	count int           // how many engines began
	at    cluster.Time  // when it began
	took  time.Duration // how long that took, or the last look at the sizes of nodes
	ended int           // jobs that ended since
}

// isOver reports whether the engine is to be renewed so that it forgets what is over.
func (l *lifetime) isOver(now cluster.Time) bool {
	return l.ended >= renewJobs || now.Sub(l.at) >= renewEvery
}

// begin builds the engine that goes on from a snapshot, and from what is found
// bound besides.
func (d *Driver) begin(snap *engine.Snapshot, reason string) error {
	d.stale, d.unconfirmed = "", confirm.Step{}
	d.life.count++
	d.refusalEpoch++
	// Places that are kept for gangs that move, and what is asked of the engine, refer to numbers of nodes.
	d.nodes.Begin(snap, d.relocations.Busy())
	d.setAside.Forget(func(uid types.UID) bool { return d.pods[uid] != nil })
	before := d.next
	adopted := d.adoptAll(snap)
	fresh := map[cluster.JobID]bool{}
	for id := before; id < d.next; id++ {
		fresh[id] = true
	}
	d.repairAll(snap)
	d.divide(snap)
	d.reshapeAll(snap)
	var rules config.Rules
	var cfg engine.Config
	build := func() (err error) {
		rules, cfg, err = d.build(snap)
		return err
	}
	err := d.setAside.Try("built its engine", build)
	for ; err != nil; err = d.setAside.Try("built its engine", build) {
		if !d.withoutCulprit(snap, err, fresh) {
			return fmt.Errorf("the engine cannot be made for this cluster: %w", err)
		}
	}
	d.tellHistory(rules.Spec)
	d.queues.Begin(rules.Spec.Queues)
	d.cfg, d.wake = cfg, cluster.Never
	d.life.at, d.life.ended = d.now, 0
	if err := d.closeJournal(); err != nil {
		return fmt.Errorf("journal: %w", err)
	}
	if d.opt.Journal != nil {
		if d.journal, err = d.opt.Journal(journal.Header{Rules: rules, Snapshot: snap}); err != nil {
			return fmt.Errorf("journal: %w", err)
		}
	}
	d.opt.Observe.Renewed(reason)
	d.opt.Log.Debug("the engine is renewed", "reason", reason, "nodes", len(rules.Spec.Nodes), "partitions",
		len(rules.Spec.Partitions), "adopted", adopted)
	// It is compared with the cluster in its first batch, and not here: what is seen
	// by then would be compared with what it has yet to hear.
	d.queued, d.checked = append(d.queued, engine.Event{Type: engine.Tick}), d.now.Add(-checkEvery)
	for _, key := range slices.Sorted(maps.Keys(d.gangs)) {
		if g := d.gangs[key]; g.Phase != gang.Waiting {
			d.agenda.touch(g)
		}
	}
	return nil
}

// build makes the engine of a snapshot, and completes the snapshot for it.
func (d *Driver) build(snap *engine.Snapshot) (rules config.Rules, cfg engine.Config, err error) {
	helds := holds.ByNode(snap, d.nodes.Order())
	spec := cluster.Spec{Name: "kubernetes", Network: d.opt.Rules.Spec.Network}
	for _, name := range d.nodes.Order() {
		spec.Nodes = append(spec.Nodes, d.nodes.Spec(name, helds[name]))
	}
	for _, name := range d.nodes.LimitKinds(spec.Nodes, helds) {
		d.setNodeAside(name, "the cluster has more kinds of node (model and number of GPUs) than Muster tells apart")
	}
	spec.Models = d.nodes.Models(spec.Nodes)
	spec.Weigh(d.opt.Rules.Spec.Models)
	used := map[int32][]uint8{}
	for i := range snap.Jobs {
		r := &snap.Jobs[i]
		r.Allocs = slices.Clone(r.Allocs)
		none := func(_ int32, gpus int) []uint8 { return make([]uint8, gpus) }
		if err := mig.TakeSlices(r, &spec, used, none); err != nil {
			return rules, cfg, err
		}
	}
	d.setNodes(snap)
	snap.Nodes = withStates(snap.Nodes, spec.Nodes)
	if d.nodes.Loans.Lend(&spec, d.nodes.Object); d.eng == nil {
		d.nodes.Loans.Found(snap, d.nodes.Object)
	}
	snap.Next, snap.Fresh, snap.Resized, snap.Changed = d.next, true, nil, nil
	slices.SortFunc(snap.Jobs, func(a, b engine.JobRecord) int { return int(a.Spec.ID) - int(b.Spec.ID) })
	if rules, cfg, err = d.rules(spec); err != nil {
		return rules, cfg, err
	}
	e, err := engine.Restore(cfg, snap)
	if err == nil {
		d.eng = e
	}
	return rules, cfg, err
}

// withStates are the nodes with the states that the engine believed in; what
// they really are, Diff finds.
func withStates(before, now []cluster.Node) []cluster.Node {
	list := slices.Clone(now)
	for i := range list {
		if i < len(before) {
			list[i].State, list[i].Asleep = before[i].State, before[i].Asleep
			list[i].Bad = before[i].Bad & (uint64(1)<<list[i].GPUs - 1)
		}
	}
	return list
}

// adoptAll turns gangs that are found bound into jobs of the engine.
func (d *Driver) adoptAll(snap *engine.Snapshot) (n int) {
	taken := holds.InUseByNode(snap, d.nodes.Order())
	keys := slices.Sorted(maps.Keys(d.gangs))
	slices.SortStableFunc(keys, func(a, b string) int { // places that no pod has may have been given to others since
		return cmp.Compare(d.gangs[a].Unseated(d.opt.Seal), d.gangs[b].Unseated(d.opt.Seal))
	})
	for _, key := range keys {
		if g := d.gangs[key]; g.Phase == gang.Gathering && g.BoundByPlan() {
			var err error
			if why := d.opt.Failures.Blame(g.Members()); why != "" {
				err = errors.New(why)
			} else {
				err = d.adopt(g, snap, taken)
			}
			if err != nil {
				d.expel(g, err.Error())
				continue
			}
			n++
		}
	}
	return n
}

// disown makes a bound pod foreign.
func (d *Driver) disown(p *gang.Pod) {
	d.nodes.Dirty = d.claims.Unpay(&p.Neighbour) || d.nodes.Dirty
	d.leave(p)
	p.Request = d.gpus.RequestOf(p.Obj)
	if p.Node != "" && !p.Over() {
		d.nodes.AddForeign(p.Node, &p.Pod)
	}
}

// foundGang is a gang that is found bound.
type foundGang struct {
	rec    engine.JobRecord
	worked time.Duration // all of its work, as its progress told before
	empty  int           // places that no pod has
	away   bool          // others have these, and it is not to be repaired
}

// adopt makes a job of a gang that is found bound.
func (d *Driver) adopt(g *gang.Gang, snap *engine.Snapshot, taken map[string]holds.InUse) error {
	f, err := d.findGang(g, taken)
	if err != nil {
		return err
	}
	if !d.queues.Tree().Knows(f.rec.Spec.Queue) {
		snap.Queues = nil // so that the engine makes a closed queue for it
	}
	d.takeUp(g, f)
	snap.Jobs = append(snap.Jobs, f.rec)
	return nil
}

// findGang finds out what a gang holds that is found bound, from its pods and the plan that they carry. Whether its
// start was complete cannot be seen. If pods wait for all places that are empty, it goes on being bound; else it counts
// as running, and its owner makes the pods that it lacks.
func (d *Driver) findGang(g *gang.Gang, taken map[string]holds.InUse) (*foundGang, error) {
	p, trusted, pods := g.Latest(d.opt.Seal)
	if p == nil {
		return nil, fmt.Errorf("their annotation %s cannot be read", AnnotationPlan)
	}
	g.Places, g.Repairs = places.Of(p), p.Repair
	empty, without := g.Seat(pods, p)
	if d.refuseForeign(without); len(without) == len(pods) {
		return nil, fmt.Errorf("annotation %s does not say where they are", AnnotationPlan)
	}
	pods = slices.DeleteFunc(pods, func(q *gang.Pod) bool { return q.Gang != g })
	p = g.AsHeld(d.nodes, p, trusted)
	spec, unclear := d.reader.Spec(g, pods, gangs.Membership{})
	away := g.GivenAway(d.nodes, p) || empty > 0 && trusted && g.LostPlace(d.nodes)
	if away || empty > 0 && !g.OpenPlaces(trusted) {
		p, empty = g.Shrunk(p), 0
	}
	allocs, err := d.devices(p, taken)
	if err != nil && g.Repair.Wanted && !away {
		p, empty = g.Shrunk(p), 0
		allocs, err = d.devices(p, taken)
	}
	if err != nil {
		return nil, err
	}
	from := gang.Began(pods)
	if unclear != nil { // it is bound all the same
		spec = &cluster.Job{Name: g.Name, User: pods[0].Obj.Namespace, Tier: cluster.Standard, Submit: from}
	}
	spec.NoRequeue, spec.Tasks, spec.Topology, spec.ID = true, p.Tasks, cluster.Topology{}, d.next
	if text := engine.CheckTasks(spec); text != "" {
		return nil, errors.New(text)
	}
	d.queueFound(spec)
	d.next++
	f := &foundGang{empty: empty, away: away && !g.Repair.Wanted}
	f.rec = engine.JobRecord{
		Spec: spec, Holdings: engine.JobHoldings{Allocs: allocs},
		Facts: engine.JobFacts{
			State: engine.Running, Since: spec.Submit, EligibleSince: spec.Submit, StarvingSince: cluster.Never,
			FirstStart: from, Tasks: int32(p.Tasks[0].Count),
		},
		Account: engine.JobAccount{Rate: 1_000_000, LimitAt: cluster.Never, Started: from, Acc: from},
	}
	if p.Before.Resume(&f.rec, from) {
		f.worked = p.Before.Work
	}
	return f, nil
}

// takeUp makes a gang that is found bound one that runs, or is being bound.
func (d *Driver) takeUp(g *gang.Gang, f *foundGang) {
	if f.away {
		g.Missing = nil
	}
	if f.worked > 0 {
		g.Worked = f.worked
	}
	g.Job, g.Spec, g.Phase, g.InJob, g.Refused = f.rec.Spec.ID, f.rec.Spec, gang.Running, nil, ""
	d.byID[g.Job] = g
	if open := d.fill(g); f.empty > 0 && open == 0 {
		g.Phase, f.rec.State = gang.Starting, engine.Starting
	} else {
		d.returned(g, g.BoundAt(d.opt.Now())) // before a scheduler could tell
	}
	if f.away {
		d.leaveAll(g, "its gang lost a node, and others have its place")
	}
}

// queueFound gives a gang that is found bound a queue that takes it: labels may have changed since it was bound.
func (d *Driver) queueFound(spec *cluster.Job) {
	if !d.queues.Tree().Knows(spec.Queue) || d.queues.Tree().Admits(spec) != nil {
		spec.Queue = d.opt.DefaultQueue
	}
}

// fill binds pods that wait to the empty places of a gang that was found, if
// there is one for each; it returns how many places stay empty.
func (d *Driver) fill(g *gang.Gang) (open int) {
	wait := g.Wanted()
	open = g.Places.Empty()
	if len(wait) < open || open == 0 {
		return open
	}
	for _, s := range g.Places {
		if n := d.nodes.Node(s.Node); s.Pod == "" && (!n.Up() || n.Power.Sleeps()) {
			return open
		}
	}
	for i := range g.Places {
		s := &g.Places[i]
		if s.Pod != "" {
			continue
		}
		k := slices.IndexFunc(wait, func(p *gang.Pod) bool {
			return p.Asks(&g.Spec.Tasks[s.Set].Request) && d.reader.IsPinned(p, s.Node) &&
				d.reader.KeptOff(p, s.Node) == "" &&
				d.grant(p, s.Node) == ""
		})
		if k < 0 {
			continue
		}
		s.Pod = wait[k].Obj.UID
		wait[k].Give(&g.Spec.Tasks[s.Set].Request)
		d.bind(g, wait[k], s.Node)
		wait = slices.Delete(wait, k, k+1)
		open--
	}
	return open
}

// observed is what the cluster really has of these nodes, which the engine has.
func (d *Driver) observed(names []cluster.Node) driver.Observed {
	var o driver.Observed
	helds := map[string]holds.Of{}
	for _, b := range d.eng.Beliefs() {
		g := d.byID[b.Job]
		if g == nil {
			continue // nothing is bound of it: Diff says that it is gone
		}
		f := driver.Found{Job: b.Job, Rate: 1_000_000}
		for _, a := range b.Allocs {
			f.On = append(f.On, driver.Held{Node: names[a.Node].Name, GPUs: a.GPUs})
			h := helds[names[a.Node].Name]
			if a.Slots != 0 {
				continue
			}
			h.GPUs |= a.GPUs
			helds[names[a.Node].Name] = h
		}
		o.Running = append(o.Running, f)
	}
	for _, believed := range names {
		n := d.nodes.Node(believed.Name)
		if n.Object() == nil {
			continue
		}
		believed.State, believed.Asleep = n.Told(d.eng.IsGivenBack(believed.Name)), n.Power.Wakes()
		believed.Bad = d.nodes.Bad(&believed, helds[believed.Name])
		o.Nodes = append(o.Nodes, believed)
	}
	return o
}

// compare finds what the engine missed (driver.Diff). A gang that is still
// being bound is found, but has yet to say so itself.
func (d *Driver) compare(now cluster.Time) []engine.Event {
	d.checked, d.nodes.Dirty = now, false
	d.queues.NodesChanged()
	d.forgetSets()
	joined, nodes := d.joinEvents()
	d.tellHistory(d.specNow())
	view := driver.ViewOf(d.eng)
	view.Nodes = nodes
	events, orphans := driver.Diff(d.observed(nodes), view)
	for _, id := range orphans {
		if g := d.byID[id]; g != nil {
			d.opt.Log.Error("a gang is bound that the engine does not want", "gang", g.Name)
		}
	}
	events = slices.DeleteFunc(events, func(ev engine.Event) bool {
		g := d.byID[ev.Job]
		return ev.Type == engine.Started && g != nil && g.Phase != gang.Running
	})
	return append(joined, events...)
}
