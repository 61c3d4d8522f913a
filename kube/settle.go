package kube

import (
	"fmt"
	"maps"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/engine"
	"github.com/muster-gpu/muster/kube/fit"
	"github.com/muster-gpu/muster/kube/gangs"
	"github.com/muster-gpu/muster/kube/moves"
	"github.com/muster-gpu/muster/kube/nodes"
	"github.com/muster-gpu/muster/kube/places"
	"github.com/muster-gpu/muster/kube/plans"
	"github.com/muster-gpu/muster/kube/terms"
)

// podChanged books a pod as it is now.
func (d *Driver) podChanged(obj *v1.Pod) {
	p := d.pods[obj.UID]
	if p == nil {
		if obj.Status.Phase == v1.PodSucceeded || obj.Status.Phase == v1.PodFailed { // it was over before we met it
			if !d.ready.Load() && obj.Spec.SchedulerName == d.opt.Scheduler && finished(obj) {
				d.earlier = append(d.earlier, obj)
			}
			return
		}
		p = d.meet(obj)
		d.move(p, false)
		return
	}
	if p.Where != "" && (!maps.Equal(p.Obj.Labels, obj.Labels) ||
		(p.Obj.DeletionTimestamp == nil) != (obj.DeletionTimestamp == nil)) {
		d.nodes.World.Changed()
	}
	was := p.Obj
	p.Obj = obj
	if !terms.Same(was, obj) {
		d.reread(p)
	}
	defer d.move(p, false)
	if d.claims.Resolve(&p.Neighbour); p.Over() {
		d.nodes.Dirty = d.claims.Unpay(&p.Neighbour) || d.nodes.Dirty
	}
	if p.gang == nil {
		if was := p.node; obj.Spec.NodeName != was || p.Over() {
			p.node = obj.Spec.NodeName
			d.nodes.DropForeign(was, &p.Pod)
			if p.node != "" && !p.Over() {
				d.nodes.AddForeign(p.node, &p.Pod)
			}
		}
		return
	}
	if obj.Spec.NodeName != "" {
		p.node = obj.Spec.NodeName
	}
	d.agenda.touch(p.gang)
}

// meet takes in a pod that was not known.
func (d *Driver) meet(obj *v1.Pod) *pod {
	p := &pod{node: obj.Spec.NodeName, nominated: obj.Status.NominatedNodeName}
	p.Record = p
	p.Obj = obj
	d.read(p)
	d.pods[obj.UID] = p
	d.join(p)
	return p
}

// podGone books that a pod is not there any more.
func (d *Driver) podGone(obj *v1.Pod) {
	p := d.pods[obj.UID]
	if p == nil {
		return
	}
	delete(d.pods, obj.UID)
	d.move(p, true)
	d.nodes.Dirty = d.claims.Unpay(&p.Neighbour) || d.nodes.Dirty
	if p.gang == nil {
		d.nodes.DropForeign(p.node, &p.Pod)
		return
	}
	d.leave(p)
}

// join finds out whose a pod is. One that is bound and not by a plan of ours is
// foreign: it only takes room.
func (d *Driver) join(p *pod) {
	if p.Obj.Spec.SchedulerName != d.opt.Scheduler || p.node != "" && plans.Of(p.Obj) == nil {
		if p.node != "" {
			d.nodes.AddForeign(p.node, &p.Pod)
		}
		if p.node != "" && p.Obj.Spec.SchedulerName == d.opt.Scheduler && p.Obj.Annotations[AnnotationPlan] != "" {
			d.setAside.Pod(p.Obj, "annotation "+AnnotationPlan+" makes no sense")
		}
		return
	}
	p.Around = fit.Around(p.Obj)
	p.Read(d.fit)
	p.gang, p.Managed = d.gangOf(p.Obj), true
	p.gang.pods[p.Obj.UID] = p
	d.claims.Resolve(&p.Neighbour)
	d.agenda.touch(p.gang)
}

// leave takes a pod out of its gang.
func (d *Driver) leave(p *pod) {
	g := p.gang
	delete(g.pods, p.Obj.UID)
	p.gang, p.Managed = nil, false
	d.agenda.touch(g)
}

// settle compares a gang with its pods and returns what the engine has to know.
func (d *Driver) settle(g *gang, now cluster.Time) []engine.Event {
	switch g.phase {
	case gathering:
		return d.gather(g, now)
	case waiting:
		return d.settleWaiting(g)
	case starting:
		return d.settleStarting(g, now)
	case unwinding:
		return d.settleUnwinding(g, now)
	case running:
		return d.settleRunning(g)
	case moving:
		return d.settleMoving(g, now)
	}
	return d.settleStopping(g)
}

// gather submits a gang that is complete.
func (d *Driver) gather(g *gang, now cluster.Time) []engine.Event {
	if len(g.pods) == 0 {
		d.endTurn(g)
		d.drop(g)
		return nil
	}
	if g.boundByPlan() { // by the scheduler before this one
		return d.adoptNow(g)
	}
	if g.retry > now {
		d.agenda.at(g, g.retry)
		return nil
	}
	if !g.asks() {
		g.refused = ""
		d.endTurn(g)
		return nil
	}
	m, err := g.need()
	if err != nil {
		g.refused = err.Error()
		return nil
	}
	if d.leftover(g) {
		return nil
	}
	need, more, lacks := d.startingPods(g, &m)
	if size := max(1, m.Size); len(need) < size {
		g.refused = g.lacksPods(len(need), size, lacks)
		return nil
	}
	if events, done := d.succeed(g, need, more); done {
		return events
	}
	pods := slices.Concat(need, more)
	if g.refusedIn == d.refusalEpoch && slices.Equal(g.refusedFor, uids(pods)) && g.refusedAs == d.factsOf(g, pods) {
		return nil
	}
	spec := d.propose(g, pods, len(more), m)
	if spec == nil && len(more) > 0 {
		pods, more = need, nil
		spec = d.propose(g, pods, 0, m)
		g.narrow = spec != nil // what it does not need is in the way
	}
	if spec == nil {
		return nil
	}
	events, ok := d.displace(g, spec)
	if !ok {
		return nil
	}
	g.more = g.more[:0]
	for _, p := range more {
		g.more = append(g.more, p.Obj.UID)
	}
	d.inherit(g, need)
	return append(events, d.submit(g, spec, pods, now)...)
}

// propose makes the engine's job of a gang with these pods, of which it can do
// without so many; nil: it cannot be submitted yet, and says why.
func (d *Driver) propose(g *gang, pods []*pod, more int, m gangs.Membership) *cluster.Job {
	if why := d.opt.Failures.Blame(objectsOf(pods)); why != "" {
		g.refused = why
		d.setAside.Gang(pods[0].Obj, why)
		return nil
	}
	err := d.checkKeys(g, pods)
	if err == nil {
		err = d.wants(g, pods)
	}
	if err != nil {
		g.refused = err.Error()
		return nil
	}
	d.share(pods)
	d.findLiked(g, pods)
	spec, err := d.specOf(g, pods, m)
	if err != nil {
		g.refused = err.Error()
		return nil
	}
	g.makeElastic(spec, more)
	if !d.lookAround(g, pods, spec) {
		return nil
	}
	g.nodes = d.nodesFor(pods)
	out := d.queues.Tree().Admits(spec)
	switch {
	case out != nil:
		g.refused = out.Error()
		return nil
	case g.nodes.Why != "":
		g.refused = g.nodes.Why
		return nil
	}
	g.refused = ""
	d.nodes.Loans.Confine(spec, g.nodes.Within())
	return spec
}

// submit gives a gang to the engine.
func (d *Driver) submit(g *gang, spec *cluster.Job, pods []*pod, now cluster.Time) []engine.Event {
	spec.ID = d.next
	d.next++
	g.id, g.spec, g.members, g.phase = spec.ID, spec, uids(pods), waiting
	g.facts = d.factsOf(g, g.submitted())
	d.byID[g.id] = g
	g.told.Since(now, d.opt.TellAfter)
	g.search.Asked, g.tried, d.victimSearch.done = d.seq+1, stamp{}, stamp{}
	if g.search.IsNarrow() {
		d.agenda.at(g, now)
	}
	return append(d.nodes.Sets.Name(g.nodes),
		engine.Event{Type: engine.Submitted, Job: g.id, Carryover: d.goOn(g, pods[0].Obj, spec), Spec: spec})
}

// asks reports whether a pod of the gang wants to be bound, now or later.
func (g *gang) asks() bool {
	for _, p := range g.pods {
		if p.node == "" && !p.Over() && p.Obj.DeletionTimestamp == nil {
			return true
		}
	}
	return false
}

// lacksPods says what a gang waits for before it can be scheduled.
func (g *gang) lacksPods(have, want int, lacks string) string {
	gated := 0
	for _, p := range g.pods {
		if len(p.Obj.Spec.SchedulingGates) > 0 {
			gated++
		}
	}
	text := fmt.Sprintf("%d of the gang's %d pods are there", have, want)
	if want == 1 {
		text = "not ready to be scheduled"
	}
	if lacks != "" {
		text += " (" + lacks + ")"
	}
	if why := g.lacking(); why != "" {
		text += "; " + why
	}
	if gated > 0 {
		text += fmt.Sprintf("; %d have scheduling gates", gated)
	}
	return text
}

// boundByPlan reports whether pods are bound though this driver did not do it.
func (g *gang) boundByPlan() bool {
	for _, p := range g.pods {
		if p.node != "" && !p.Over() && !p.binding && !p.leaving {
			return true
		}
	}
	return false
}

// settleWaiting takes a gang back whose pods are not what was submitted.
func (d *Driver) settleWaiting(g *gang) []engine.Event {
	m, err := g.need()
	if err == nil && !g.search.WidenAfter(d.seq) {
		need, more, _ := d.startingPods(g, &m)
		if len(need) == max(1, m.Size) && g.asSubmitted(d.eng, need, more) && !g.boundByPlan() &&
			d.queues.Tree().Admits(g.spec) == nil &&
			g.facts == d.factsOf(g, g.submitted()) {
			return nil
		}
	}
	ev := engine.Event{Type: engine.Cancelled, Job: g.id}
	d.withdraw(g)
	return []engine.Event{ev}
}

// withdraw makes a gang gather again.
func (d *Driver) withdraw(g *gang) {
	d.endTurn(g)
	d.unnominate(g)
	d.forget(g)
	g.phase, g.places, g.plan, g.failed, g.done, g.leaves = gathering, nil, "", false, false, ""
	g.missing, g.nth = nil, 0
	d.agenda.touch(g)
}

// settleStarting waits until all are bound. If one cannot be, those that are
// bound have to go: a part of a gang must not run.
func (d *Driver) settleStarting(g *gang, now cluster.Time) []engine.Event {
	if d.settleHeld(g) {
		return nil
	}
	open := false
	for i := range g.places {
		p := g.pods[g.places[i].Pod]
		switch {
		case g.places[i].Surplus: // it follows
		case p == nil || p.node == "" && !p.binding || p.node == "" && p.Obj.DeletionTimestamp != nil:
			if g.refused == "" {
				g.refused = "a pod of the gang went while it was being bound"
			}
			d.unwind(g)
			return d.settleUnwinding(g, now)
		case p.binding:
			open = true
		case p.node != g.places[i].Node:
			g.refused = fmt.Sprintf("pod %s was bound to %s by something else", p.Obj.Name, p.node)
			d.unwind(g)
			return d.settleUnwinding(g, now)
		}
	}
	switch {
	case open:
		return nil
	}
	var events []engine.Event
	if g.places.HasSurplus() || g.elastic(d.eng) {
		events = d.dividedNow(g)
	}
	g.phase, g.fails, g.refused, g.inheritance = running, 0, "", nil
	d.returned(g, d.opt.Now())
	d.writer.Crash("kube-started")
	if up := d.gangs[g.of]; g.repair.patch && up != nil {
		if events := d.repairGang(up); len(events) > 0 {
			return events
		}
	}
	events = append(events, engine.Event{Type: engine.Started, Job: g.id})
	if !g.spec.NoRequeue { // it was moved
		events = append(events, d.staysPut(g))
	}
	if up := d.gangs[g.of]; up != nil && up.phase == stopping { // it was not running yet when that was told to leave
		d.leaveAll(g, "the gang that it belongs to, "+up.name+", leaves")
	}
	return append(events, d.settleRunning(g)...)
}

// unwind lets those go that were bound.
func (d *Driver) unwind(g *gang) {
	g.phase = unwinding
	g.run++
	d.opt.Observe.Unwound()
	for _, p := range g.seated() {
		d.notices.Event(p.Obj, v1.EventTypeWarning, "GangUnwound",
			"deleted, because its gang could not be bound as a whole: "+g.refused)
		d.remove(p)
	}
}

// settleUnwinding waits until nothing of the gang is bound, and nothing is on
// its way; then the devices are free, and the gang gathers again.
func (d *Driver) settleUnwinding(g *gang, now cluster.Time) []engine.Event {
	if !d.vacated(g, d.remove) {
		return nil
	}
	g.fails++
	d.agenda.at(g, now.Add(backOff(g.fails)))
	events := []engine.Event{{Type: engine.StartFailed, Job: g.id}, {Type: engine.Cancelled, Job: g.id}}
	d.withdraw(g)
	return events
}

// vacated reports whether nothing of a gang is bound any more, and nothing is on its way. What still is, is asked to
// leave. One whose node is gone is ended by force, because nothing else does; it counts until that is done: the node
// may be back by then, and its devices would be given away twice.
func (d *Driver) vacated(g *gang, leave func(*pod)) bool {
	all := true
	for _, p := range g.pods {
		switch {
		case p.binding:
			all = false
		case p.node != "" && !p.Over():
			all = false
			switch {
			case !p.occupies(d.nodes) && !p.ended:
				d.remove(p)
			case !p.leaving: // it was bound by a request that was on its way
				leave(p)
			}
		}
	}
	return all
}

// backOff is how long a gang waits after a start that failed: from a second to
// a minute.
func backOff(fails int) time.Duration {
	return min(time.Second<<min(fails-1, 10), time.Minute)
}

// occupies reports whether a pod holds something of a node that is there.
func (p *pod) occupies(all *nodes.Room) bool {
	return p.node != "" && !p.Over() && !all.Lost(p.node)
}

// settleRunning frees the places of pods that are over, gives them to pods that
// replace these, and ends the gang with its last pod.
func (d *Driver) settleRunning(g *gang) []engine.Event {
	held := 0
	for i := range g.places {
		s := &g.places[i]
		p := g.pods[s.Pod]
		if p != nil {
			g.done = g.done || p.Obj.Status.Phase == v1.PodSucceeded
			g.failed = g.failed || p.Obj.Status.Phase == v1.PodFailed
		}
		if p == nil || p.Over() {
			s.Pod, s.Done = "", s.Done || p != nil && p.Obj.Status.Phase == v1.PodSucceeded
			continue
		}
		held++
	}
	if held == 0 {
		ev := engine.Event{Type: engine.Stopped, Job: g.id, Reason: engine.WasCancelled}
		switch {
		case g.failed:
			ev.Reason = engine.Failed
		case g.done:
			ev.Reason = engine.Completed
		}
		if g.failed || !g.done {
			d.recall(g, false)
		}
		g.book.Outcome = ev.Reason
		d.chronicleEnd(g, ev.Reason)
		d.noteRun(g, false)
		d.withdraw(g)
		return []engine.Event{ev}
	}
	m, err := g.need()
	switch {
	case gangs.Suspended(err) && g.partly():
		d.leaveAll(g, err.Error())
		return nil
	case gangs.Suspended(err):
		return nil
	}
	events := d.replace(g)
	d.patch(g)
	d.leftover(g)
	if err == nil {
		d.release(g, &m)
	}
	if g.of == "" && len(g.missing) == 0 && !m.Open {
		d.tellSurplus(g, d.now)
	}
	return events
}

// partly reports whether a running gang is not whole any more, or will not be.
func (g *gang) partly() bool {
	return len(g.missing) > 0 || slices.ContainsFunc(g.places, func(s places.Place) bool {
		p := g.pods[s.Pod]
		return p == nil || p.Obj.DeletionTimestamp != nil
	})
}

// leaveAll makes the engine stop a running gang as a whole, and it does not
// come back by itself.
func (d *Driver) leaveAll(g *gang, why string) {
	if g.leaves == "" {
		g.leaves, g.grace = why, 30
		d.queued = append(d.queued, engine.Event{Type: engine.Cancelled, Job: g.id})
	}
}

// settleStopping reports a gang gone when nothing of it is left.
func (d *Driver) settleStopping(g *gang) []engine.Event {
	if !d.vacated(g, func(p *pod) { d.evict(g, p) }) {
		return d.overdue(g)
	}
	events := []engine.Event{{Type: engine.Stopped, Job: g.id, Reason: engine.Preempted}}
	g.book.Outcome = engine.Preempted
	if p := g.relocation; p != nil && p.Ended() {
		events = append(d.letGo(g, moves.Over, "it came to its end"), events...)
	}
	d.noteRun(g, true) // whether its pods saved when they were told to leave, is not known
	w := d.leavePlaceholder(g)
	if w == nil {
		if g.parting.Owner == "" { // no others are made: this was its end
			d.chronicleEnd(g, engine.Preempted)
		}
		d.leaveTo(g.parting, g.id, g.spec, 1)
	}
	if w == nil && !g.spec.NoRequeue { // it comes back in the engine only, where it is moved
		events = append(events, engine.Event{Type: engine.Cancelled, Job: g.id})
	}
	d.withdraw(g)
	if w != nil {
		d.byID[w.id] = w
	}
	return events
}

// replace binds pods that are new to the places of those that are over: a Job makes another pod for one that failed,
// and a gang goes on with it. A place whose node takes no pods any more cannot be filled: then the gang waits as a
// whole for another.
func (d *Driver) replace(g *gang) []engine.Event {
	if g.places.Empty() == 0 {
		return nil
	}
	pods := g.wanted()
	if len(pods) > 0 {
		_, _ = d.tellWant(g, pods) // what cannot be read says nothing: its gang runs
	}
	for i := range g.places {
		if len(pods) == 0 {
			break
		}
		s := &g.places[i]
		if s.Pod != "" {
			continue
		}
		r := &g.spec.Tasks[s.Set].Request
		fits := func(p *pod) bool { return p.takesPlace(d.nodes, r, s.Node) && !p.binding }
		if g.repair.wanted && !d.nodes.Node(s.Node).Up() &&
			slices.ContainsFunc(pods, fits) {
			s.Lost = true // it may be elsewhere, if others of its gang are left
			if g.needsRepair(d.nodes) {
				continue
			}
		}
		k := slices.IndexFunc(pods, func(p *pod) bool {
			return fits(p) && d.keptOff(p, s.Node) == "" && d.grant(p, s.Node) == ""
		})
		if k < 0 {
			d.blocked[g] = true // for the devices or volumes of the pod before it, perhaps
			continue
		}
		if !d.nodes.Node(s.Node).Up() {
			d.leaveAll(g, "node "+s.Node+", where a pod of its gang was, takes no new ones")
			return nil
		}
		s.Pod, s.Done = pods[k].Obj.UID, false
		if pods[k].Give(r); pods[k].Request != *r {
			g.resized, d.nodes.SizesDirty = true, true
		}
		d.bind(g, pods[k], s.Node)
		pods = slices.Delete(pods, k, k+1)
	}
	if g.needsRepair(d.nodes) {
		return d.repairGang(g)
	}
	return nil
}
