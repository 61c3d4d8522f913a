package kube

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/muster-gpu/muster/engine"
	"github.com/muster-gpu/muster/kube/holds"
	"github.com/muster-gpu/muster/kube/nodes"
	"github.com/muster-gpu/muster/kube/places"
	"github.com/muster-gpu/muster/kube/plans"
	"github.com/muster-gpu/muster/kube/reports"
	"github.com/muster-gpu/muster/kube/write"
)

// start binds a gang as the engine wants it.
func (d *Driver) start(g *gang, a *engine.Action) {
	if g.phase != waiting {
		return // a repeated decision
	}
	if why := cmp.Or(d.closed(a), d.fits(g, a)); why != "" {
		d.notThere(g, why)
		return
	}
	if why := g.overdrawn(d.nodes, a); why != "" {
		d.distrust(g, why)
		return
	}
	if why := g.outgrown(d.nodes, a); why != "" {
		d.sendBack(g, why)
		return
	}
	was := g.spec
	need, beyond, spec := g.starters(a)
	p := plans.Plan{Tasks: spec.Tasks, Alone: g.of != "" && !g.repair.patch, Before: g.beforeStart(d.eng)}
	p.On = places.On(a.Allocs, d.nodes.Order())
	g.phase, g.spec, g.run, g.refused = starting, spec, g.run+1, ""
	g.Telling = reports.Telling{Worked: g.inheritance.KnownWork()}
	g.places = places.Of(&p)
	d.agenda.touch(g)
	if !d.seatAll(g, need, beyond) {
		return // a pod went in this very moment: settling it finds the place empty
	}
	g.plan = g.planText(p)
	if g.repair.patch {
		g.plan = cmp.Or(d.patchPlan(g), g.plan)
	}
	if d.holdBack(g) {
		return
	}
	d.unlift(g)
	if why := d.grantAll(g); why != "" {
		g.phase, g.spec, g.plan, g.places = waiting, was, "", nil
		d.notThere(g, why)
		return
	}
	d.bindAll(g)
	d.endTurn(g)
}

// overdrawn says on which node a start would give away more GPUs than the pods
// that are there leave of it, and "" if it would not. The engine counts them; that
// they are counted once more, from the pods alone, is so that a mistake in its
// books costs a wait and not a GPU that is given twice. GPUs of claims and parts
// of GPUs are not looked at: which those are, is known, or is the plugin's.
func (g *gang) overdrawn(all *nodes.Room, a *engine.Action) string {
	if slices.ContainsFunc(g.submitted(), func(p *pod) bool { return len(p.Obj.Spec.ResourceClaims) > 0 }) {
		return ""
	}
	more := map[string]int{}
	for i := range a.Allocs {
		al := &a.Allocs[i]
		if r := &g.spec.Tasks[al.Set].Request; !r.Fractional() {
			more[all.Order()[al.Node]] += int(al.Tasks) * holds.WholeGPUs(r)
		}
	}
	return all.Rest(settledBut(g)).Overdrawn(more)
}

// settledBut reports of pods on nodes whether they are there, or on their way, but for those of a gang.
func settledBut(g *gang) func(*nodes.Pod) bool {
	return func(q *nodes.Pod) bool {
		p := q.Record.(*pod)
		return (g == nil || p.gang != g) && (p.node != "" || p.assumed != "") // else it is only nominated
	}
}

// distrust takes a gang back whose start cannot be right, and has the engine renewed; then it is submitted again.
func (d *Driver) distrust(g *gang, why string) {
	d.opt.Log.Error("the engine counts GPUs as free that are not", "gang", g.name, "reason", why)
	g.fails++
	d.queued = append(d.queued, engine.Event{Type: engine.StartFailed, Job: g.id},
		engine.Event{Type: engine.Cancelled, Job: g.id})
	d.agenda.at(g, d.now.Add(backOff(g.fails)))
	d.withdraw(g)
	d.stale = "the books were wrong"
}

// notThere refuses a start before anything of it is bound: another came before it since the engine was told what is
// where.
func (d *Driver) notThere(g *gang, why string) {
	d.opt.Log.Debug("a gang cannot be where it was placed", "gang", g.name, "reason", why)
	g.fails++
	d.unlift(g)
	d.queued = append(d.queued, engine.Event{Type: engine.StartFailed, Job: g.id})
	if ev, ok := d.limit(g); ok {
		d.queued = append(d.queued, ev)
	}
}

// bind lets a worker bind a pod.
func (d *Driver) bind(g *gang, p *pod, node string) {
	p.binding, p.assumed = true, node
	d.move(p, false)
	run, notes := g.run, d.notesFor(g, p.Obj)
	if d.opt.Authority != "" && reports.HasToken(p.Obj) {
		notes[AnnotationSum] = d.opt.Authority
	}
	mounts, err := d.volumes.Choose(&p.Neighbour, d.nodes.World.Node(node))
	if err != nil {
		d.inbox.Put(func() { d.bound(g, p, run, node, err) })
		return
	}
	d.writer.Bind(&write.Binding{Pod: p.Obj, Node: node, Notes: notes, Claims: d.claims.Given(&p.Neighbour),
		Mounts: mounts, Reserved: d.claims.Written,
		Done: func(err error) { d.bound(g, p, run, node, err) }})
}

// notesFor is what is written to a pod of a gang with its binding.
func (d *Driver) notesFor(g *gang, obj *v1.Pod) map[string]string {
	notes := map[string]string{}
	d.opt.Seal.Write(notes, obj.UID, AnnotationPlan, g.plan)
	if every := d.opt.Saving.Interval(g.spec, &d.losses); every > 0 {
		notes[AnnotationEvery] = strconv.FormatInt(int64(max(time.Second, every)/time.Second), 10)
	}
	d.tellTraffic(g, obj, notes)
	return notes
}

// noteRun counts a run of a gang that is over for how often work is lost.
func (d *Driver) noteRun(g *gang, lost bool) {
	if r := d.eng.Record(g.id); r != nil && g.spec != nil && r.Started > 0 {
		d.losses.Note(g.spec.Tier, d.now.Sub(r.Started), lost)
	}
}

// bound books what became of a binding.
func (d *Driver) bound(g *gang, p *pod, run int, node string, err error) {
	p.binding = false
	d.agenda.touch(g)
	if err == nil && p.node == "" {
		p.node = node
	}
	p.assumed = ""
	if d.pods[p.Obj.UID] == p {
		d.move(p, false)
		if p.gang == nil && p.node != "" && !p.Over() { // it was set aside while its binding was on its way
			d.nodes.AddForeign(p.node, &p.Pod)
		}
	}
	switch {
	case err == nil:
		d.ungrant(p)
		d.opt.Observe.Bound(d.opt.Now().Sub(p.Obj.CreationTimestamp.Time))
		d.notices.Event(p.Obj, v1.EventTypeNormal, "Scheduled", fmt.Sprintf("Muster bound %s to %s", p.name(), node))
		return
	case errors.Is(err, context.Canceled):
		return // the scheduler ends
	}
	if p.claimed.Busy {
		d.takeBack(p)
	}
	d.opt.Observe.BindFailed(string(apierrors.ReasonForError(err)))
	d.opt.Log.Warn("a pod could not be bound", "pod", p.name(), "node", node, "error", err)
	if g.run == run && g.phase == starting {
		g.refused = fmt.Sprintf("pod %s could not be bound to %s: %v", p.Obj.Name, node, err)
	}
	for i := range g.places {
		if g.places[i].Pod == p.Obj.UID && g.phase == running { // a replacement: it is tried again
			g.places[i].Pod = ""
		}
	}
}
