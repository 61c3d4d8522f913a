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
	"github.com/muster-gpu/muster/kube/gang"
	"github.com/muster-gpu/muster/kube/gangs"
	"github.com/muster-gpu/muster/kube/plans"
	"github.com/muster-gpu/muster/kube/terms"
)

// podChanged books a pod as it is now.
func (d *Driver) podChanged(obj *v1.Pod) {
	p := d.pods[obj.UID]
	if p == nil {
		if obj.Status.Phase == v1.PodSucceeded || obj.Status.Phase == v1.PodFailed { // it was over before we met it
			if !d.ready.Load() && obj.Spec.SchedulerName == d.opt.Scheduler && gang.Finished(obj) {
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
	if p.Gang == nil {
		if was := p.Node; obj.Spec.NodeName != was || p.Over() {
			p.Node = obj.Spec.NodeName
			d.nodes.DropForeign(was, &p.Pod)
			if p.Node != "" && !p.Over() {
				d.nodes.AddForeign(p.Node, &p.Pod)
			}
		}
		return
	}
	if obj.Spec.NodeName != "" {
		p.Node = obj.Spec.NodeName
	}
	d.agenda.touch(p.Gang)
}

// meet takes in a pod that was not known.
func (d *Driver) meet(obj *v1.Pod) *gang.Pod {
	p := &gang.Pod{Node: obj.Spec.NodeName, Nominated: obj.Status.NominatedNodeName}
	p.Record = p
	p.Obj = obj
	d.reader.Read(p)
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
	if p.Gang == nil {
		d.nodes.DropForeign(p.Node, &p.Pod)
		return
	}
	d.leave(p)
}

// join finds out whose a pod is. One that is bound and not by a plan of ours is
// foreign: it only takes room.
func (d *Driver) join(p *gang.Pod) {
	if p.Obj.Spec.SchedulerName != d.opt.Scheduler || p.Node != "" && plans.Of(p.Obj) == nil {
		if p.Node != "" {
			d.nodes.AddForeign(p.Node, &p.Pod)
		}
		if p.Node != "" && p.Obj.Spec.SchedulerName == d.opt.Scheduler && p.Obj.Annotations[AnnotationPlan] != "" {
			d.setAside.Pod(p.Obj, "annotation "+AnnotationPlan+" makes no sense")
		}
		return
	}
	p.Around = fit.Around(p.Obj)
	p.Read(d.fit)
	p.Gang, p.Managed = d.gangOf(p.Obj), true
	p.Gang.Pods[p.Obj.UID] = p
	d.claims.Resolve(&p.Neighbour)
	d.agenda.touch(p.Gang)
}

// leave takes a pod out of its gang.
func (d *Driver) leave(p *gang.Pod) {
	g := p.Gang
	delete(g.Pods, p.Obj.UID)
	p.Gang, p.Managed = nil, false
	d.agenda.touch(g)
}

// settle compares a gang with its pods and returns what the engine has to know.
func (d *Driver) settle(g *gang.Gang, now cluster.Time) []engine.Event {
	switch g.Phase {
	case gang.Gathering:
		return d.gather(g, now)
	case gang.Waiting:
		return d.settleWaiting(g)
	case gang.Starting:
		return d.settleStarting(g, now)
	case gang.Unwinding:
		return d.settleUnwinding(g, now)
	case gang.Running:
		return d.settleRunning(g)
	case gang.Moving:
		return d.keepPlace(g, now)
	}
	return d.settleStopping(g)
}

// gather submits a gang that is complete.
func (d *Driver) gather(g *gang.Gang, now cluster.Time) []engine.Event {
	if len(g.Pods) == 0 {
		d.endTurn(g)
		d.drop(g)
		return nil
	}
	if g.BoundByPlan() { // by the scheduler before this one
		return d.adoptNow(g)
	}
	if g.Retry > now {
		d.agenda.at(g, g.Retry)
		return nil
	}
	if !g.Asks() {
		g.Refused = ""
		d.endTurn(g)
		return nil
	}
	m, err := g.Need()
	if err != nil {
		g.Refused = err.Error()
		return nil
	}
	if d.leftover(g) {
		return nil
	}
	need, more, lacks := d.reader.StartingPods(g, &m)
	if size := max(1, m.Size); len(need) < size {
		g.Refused = g.LacksPods(len(need), size, lacks)
		return nil
	}
	if events, done := d.succeed(g, need, more); done {
		return events
	}
	pods := slices.Concat(need, more)
	if g.RefusedIn == d.refusalEpoch && slices.Equal(g.RefusedFor, gang.UIDs(pods)) &&
		g.RefusedAs == d.reader.Facts(g, pods) {
		return nil
	}
	spec := d.propose(g, pods, len(more), m)
	if spec == nil && len(more) > 0 {
		pods, more = need, nil
		spec = d.propose(g, pods, 0, m)
		g.Narrow = spec != nil // what it does not need is in the way
	}
	if spec == nil {
		return nil
	}
	events, ok := d.displace(g, spec)
	if !ok {
		return nil
	}
	g.Optional = g.Optional[:0]
	for _, p := range more {
		g.Optional = append(g.Optional, p.Obj.UID)
	}
	d.inherit(g, need)
	return append(events, d.submit(g, spec, pods, now)...)
}

// propose makes the engine's job of a gang with these pods, of which it can do
// without so many; nil: it cannot be submitted yet, and says why.
func (d *Driver) propose(g *gang.Gang, pods []*gang.Pod, more int, m gangs.Membership) *cluster.Job {
	if why := d.opt.Failures.Blame(gang.Objects(pods)); why != "" {
		g.Refused = why
		d.setAside.Gang(pods[0].Obj, why)
		return nil
	}
	err := d.reader.CheckKeys(g, pods)
	if err == nil {
		err = d.reader.Wants(g, pods)
	}
	if err != nil {
		g.Refused = err.Error()
		return nil
	}
	d.reader.Share(pods)
	d.reader.FindLiked(g, pods)
	spec, err := d.reader.Spec(g, pods, m)
	if err != nil {
		g.Refused = err.Error()
		return nil
	}
	g.MakeElastic(spec, more)
	if !d.lookAround(g, pods, spec) {
		return nil
	}
	g.Nodes = d.reader.NodesFor(pods)
	out := d.queues.Tree().Admits(spec)
	switch {
	case out != nil:
		g.Refused = out.Error()
		return nil
	case g.Nodes.Why != "":
		g.Refused = g.Nodes.Why
		return nil
	}
	g.Refused = ""
	d.nodes.Loans.Confine(spec, g.Nodes.Within())
	return spec
}

// submit gives a gang to the engine.
func (d *Driver) submit(g *gang.Gang, spec *cluster.Job, pods []*gang.Pod, now cluster.Time) []engine.Event {
	spec.ID = d.next
	d.next++
	g.Job, g.Spec, g.InJob, g.Phase = spec.ID, spec, gang.UIDs(pods), gang.Waiting
	g.Facts = d.reader.Facts(g, g.Submitted())
	d.byID[g.Job] = g
	g.Told.Since(now, d.opt.TellAfter)
	g.Search.Asked, g.Tried, d.victimSearch.done = d.seq+1, gang.Stamp{}, gang.Stamp{}
	if g.Search.IsNarrow() {
		d.agenda.at(g, now)
	}
	return append(d.nodes.Sets.Name(g.Nodes),
		engine.Event{Type: engine.Submitted, Job: g.Job, Carryover: d.goOn(g, pods[0].Obj, spec), Spec: spec})
}

// settleWaiting takes a gang back whose pods are not what was submitted.
func (d *Driver) settleWaiting(g *gang.Gang) []engine.Event {
	m, err := g.Need()
	if err == nil && !g.Search.WidenAfter(d.seq) {
		need, more, _ := d.reader.StartingPods(g, &m)
		if len(need) == max(1, m.Size) && g.AsSubmitted(d.eng, need, more) && !g.BoundByPlan() &&
			d.queues.Tree().Admits(g.Spec) == nil &&
			g.Facts == d.reader.Facts(g, g.Submitted()) {
			return nil
		}
	}
	ev := engine.Event{Type: engine.Cancelled, Job: g.Job}
	d.withdraw(g)
	return []engine.Event{ev}
}

// withdraw makes a gang gather again.
func (d *Driver) withdraw(g *gang.Gang) {
	d.endTurn(g)
	d.unnominate(g)
	d.forget(g)
	g.Phase, g.Places, g.Plan, g.Failed, g.Done, g.Leaves = gang.Gathering, nil, "", false, false, ""
	g.Missing, g.Repairs = nil, 0
	d.agenda.touch(g)
}

// settleStarting waits until all are bound. If one cannot be, those that are
// bound have to go: a part of a gang must not run.
func (d *Driver) settleStarting(g *gang.Gang, now cluster.Time) []engine.Event {
	if d.settleHeld(g) {
		return nil
	}
	open := false
	for i := range g.Places {
		p := g.Pods[g.Places[i].Pod]
		switch {
		case g.Places[i].Surplus: // it follows
		case p == nil || p.Node == "" && !p.Binding || p.Node == "" && p.Obj.DeletionTimestamp != nil:
			if g.Refused == "" {
				g.Refused = "a pod of the gang went while it was being bound"
			}
			d.unwind(g)
			return d.settleUnwinding(g, now)
		case p.Binding:
			open = true
		case p.Node != g.Places[i].Node:
			g.Refused = fmt.Sprintf("pod %s was bound to %s by something else", p.Obj.Name, p.Node)
			d.unwind(g)
			return d.settleUnwinding(g, now)
		}
	}
	switch {
	case open:
		return nil
	}
	var events []engine.Event
	if g.Places.HasSurplus() || g.Elastic(d.eng) {
		events = d.dividedNow(g)
	}
	g.Phase, g.Fails, g.Refused, g.Inheritance = gang.Running, 0, "", nil
	d.returned(g, d.opt.Now())
	d.writer.Crash("kube-started")
	if up := d.gangs[g.Of]; g.Repair.IsPatch && up != nil {
		if events := d.repairGang(up); len(events) > 0 {
			return events
		}
	}
	events = append(events, engine.Event{Type: engine.Started, Job: g.Job})
	if !g.Spec.NoRequeue { // it was moved
		events = append(events, d.staysPut(g))
	}
	// it was not running yet when that was told to leave
	if up := d.gangs[g.Of]; up != nil && up.Phase == gang.Stopping {
		d.leaveAll(g, "the gang that it belongs to, "+up.Name+", leaves")
	}
	return append(events, d.settleRunning(g)...)
}

// unwind lets those go that were bound.
func (d *Driver) unwind(g *gang.Gang) {
	g.Phase = gang.Unwinding
	g.Run++
	d.opt.Observe.Unwound()
	for _, p := range g.Seated() {
		d.notices.Event(p.Obj, v1.EventTypeWarning, "GangUnwound",
			"deleted, because its gang could not be bound as a whole: "+g.Refused)
		d.remove(p)
	}
}

// settleUnwinding waits until nothing of the gang is bound, and nothing is on
// its way; then the devices are free, and the gang gathers again.
func (d *Driver) settleUnwinding(g *gang.Gang, now cluster.Time) []engine.Event {
	if !d.vacated(g, d.remove) {
		return nil
	}
	g.Fails++
	d.agenda.at(g, now.Add(backOff(g.Fails)))
	events := []engine.Event{{Type: engine.StartFailed, Job: g.Job}, {Type: engine.Cancelled, Job: g.Job}}
	d.withdraw(g)
	return events
}

// vacated reports whether nothing of a gang is bound any more, and nothing is on its way. What still is, is asked to
// leave. One whose node is gone is ended by force, because nothing else does; it counts until that is done: the node
// may be back by then, and its devices would be given away twice.
func (d *Driver) vacated(g *gang.Gang, leave func(*gang.Pod)) bool {
	all := true
	for _, p := range g.Pods {
		switch {
		case p.Binding:
			all = false
		case p.Node != "" && !p.Over():
			all = false
			switch {
			case !p.Occupies(d.nodes) && !p.Ended:
				d.remove(p)
			case !p.Leaving: // it was bound by a request that was on its way
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

// settleRunning frees the places of pods that are over, gives them to pods that
// replace these, and ends the gang with its last pod.
func (d *Driver) settleRunning(g *gang.Gang) []engine.Event {
	held := 0
	for i := range g.Places {
		s := &g.Places[i]
		p := g.Pods[s.Pod]
		if p != nil {
			g.Done = g.Done || p.Obj.Status.Phase == v1.PodSucceeded
			g.Failed = g.Failed || p.Obj.Status.Phase == v1.PodFailed
		}
		if p == nil || p.Over() {
			s.Pod, s.Done = "", s.Done || p != nil && p.Obj.Status.Phase == v1.PodSucceeded
			continue
		}
		held++
	}
	if held == 0 {
		ev := engine.Event{Type: engine.Stopped, Job: g.Job, Reason: engine.WasCancelled}
		switch {
		case g.Failed:
			ev.Reason = engine.Failed
		case g.Done:
			ev.Reason = engine.Completed
		}
		if g.Failed || !g.Done {
			d.recall(g, false)
		}
		g.Book.Outcome = ev.Reason
		d.chronicleEnd(g, ev.Reason)
		d.noteRun(g, false)
		d.withdraw(g)
		return []engine.Event{ev}
	}
	m, err := g.Need()
	switch {
	case gangs.Suspended(err) && g.Partly():
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
	if g.Of == "" && len(g.Missing) == 0 && !m.Open {
		d.tellSurplus(g, d.now)
	}
	return events
}

// leaveAll makes the engine stop a running gang as a whole, and it does not
// come back by itself.
func (d *Driver) leaveAll(g *gang.Gang, why string) {
	if g.Leaves == "" {
		g.Leaves, g.Grace = why, 30
		d.queued = append(d.queued, engine.Event{Type: engine.Cancelled, Job: g.Job})
	}
}

// settleStopping reports a gang gone when nothing of it is left.
func (d *Driver) settleStopping(g *gang.Gang) []engine.Event {
	if !d.vacated(g, func(p *gang.Pod) { d.evict(g, p) }) {
		return d.keepPlace(g, d.now)
	}
	events := []engine.Event{{Type: engine.Stopped, Job: g.Job, Reason: engine.Preempted}}
	g.Book.Outcome = engine.Preempted
	events = append(d.letGo(d.relocations.Over(g)), events...)
	d.noteRun(g, true) // whether its pods saved when they were told to leave, is not known
	w := d.leavePlaceholder(g)
	if w == nil {
		if g.Parting.Owner == "" { // no others are made: this was its end
			d.chronicleEnd(g, engine.Preempted)
		}
		d.leaveTo(g.Parting, g.Job, g.Spec, 1)
	}
	if w == nil && !g.Spec.NoRequeue { // it comes back in the engine only, where it is moved
		events = append(events, engine.Event{Type: engine.Cancelled, Job: g.Job})
	}
	d.withdraw(g)
	if w != nil {
		d.byID[w.Job] = w
	}
	return events
}

// replace binds pods that are new to the places of those that are over: a Job makes another pod for one that failed,
// and a gang goes on with it. A place whose node takes no pods any more cannot be filled: then the gang waits as a
// whole for another.
func (d *Driver) replace(g *gang.Gang) []engine.Event {
	if g.Places.Empty() == 0 {
		return nil
	}
	pods := g.Wanted()
	if len(pods) > 0 {
		_, _ = d.reader.TellWant(g, pods) // what cannot be read says nothing: its gang runs
	}
	for i := range g.Places {
		if len(pods) == 0 {
			break
		}
		s := &g.Places[i]
		if s.Pod != "" {
			continue
		}
		r := &g.Spec.Tasks[s.Set].Request
		fits := func(p *gang.Pod) bool { return p.TakesPlace(d.nodes, r, s.Node) && !p.Binding }
		if g.Repair.Wanted && !d.nodes.Node(s.Node).Up() &&
			slices.ContainsFunc(pods, fits) {
			s.Lost = true // it may be elsewhere, if others of its gang are left
			if g.NeedsRepair(d.nodes) {
				continue
			}
		}
		k := slices.IndexFunc(pods, func(p *gang.Pod) bool {
			return fits(p) && d.reader.KeptOff(p, s.Node) == "" && d.grant(p, s.Node) == ""
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
			g.Resized, d.nodes.SizesDirty = true, true
		}
		d.bind(g, pods[k], s.Node)
		pods = slices.Delete(pods, k, k+1)
	}
	if g.NeedsRepair(d.nodes) {
		return d.repairGang(g)
	}
	return nil
}
