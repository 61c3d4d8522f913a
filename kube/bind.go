package kube

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/muster-gpu/muster/engine"
	"github.com/muster-gpu/muster/kube/gang"
	"github.com/muster-gpu/muster/kube/places"
	"github.com/muster-gpu/muster/kube/plans"
	"github.com/muster-gpu/muster/kube/reports"
	"github.com/muster-gpu/muster/kube/write"
)

// start binds a gang as the engine wants it.
func (d *Driver) start(g *gang.Gang, a *engine.Action) {
	if g.Phase != gang.Waiting {
		return // a repeated decision
	}
	if why := cmp.Or(d.closed(a), d.reader.Fits(g, a)); why != "" {
		d.notThere(g, why)
		return
	}
	if why := g.Overdrawn(d.nodes, a); why != "" {
		d.distrust(g, why)
		return
	}
	if why := g.Outgrown(d.nodes, a); why != "" {
		d.sendBack(g, why)
		return
	}
	was := g.Spec
	need, beyond, spec := g.Starters(a)
	p := plans.Plan{Tasks: spec.Tasks, Alone: g.Of != "" && !g.Repair.IsPatch, Before: g.BeforeStart(d.eng)}
	p.On = places.On(a.Allocs, d.nodes.Order())
	g.Phase, g.Spec, g.Run, g.Refused = gang.Starting, spec, g.Run+1, ""
	g.Telling = reports.Telling{Worked: g.Inheritance.KnownWork()}
	g.Places = places.Of(&p)
	d.agenda.touch(g)
	if !d.seatAll(g, need, beyond) {
		return // a pod went in this very moment: settling it finds the place empty
	}
	g.Plan = g.PlanText(p)
	if g.Repair.IsPatch {
		g.Plan = cmp.Or(d.patchPlan(g), g.Plan)
	}
	if d.holdBack(g) {
		return
	}
	d.forgetVictims(g)
	if why := d.grantAll(g); why != "" {
		g.Phase, g.Spec, g.Plan, g.Places = gang.Waiting, was, "", nil
		d.notThere(g, why)
		return
	}
	d.bindAll(g)
	d.endTurn(g)
}

// distrust takes a gang back whose start cannot be right, and has the engine renewed; then it is submitted again.
func (d *Driver) distrust(g *gang.Gang, why string) {
	d.opt.Log.Error("the engine counts GPUs as free that are not", "gang", g.Name, "reason", why)
	g.Fails++
	d.queued = append(d.queued, engine.Event{Type: engine.StartFailed, Job: g.Job},
		engine.Event{Type: engine.Cancelled, Job: g.Job})
	d.agenda.at(g, d.now.Add(backOff(g.Fails)))
	d.withdraw(g)
	d.stale = "the books were wrong"
}

// notThere refuses a start before anything of it is bound: another came before it since the engine was told what is
// where.
func (d *Driver) notThere(g *gang.Gang, why string) {
	d.opt.Log.Debug("a gang cannot be where it was placed", "gang", g.Name, "reason", why)
	g.Fails++
	d.forgetVictims(g)
	d.queued = append(d.queued, engine.Event{Type: engine.StartFailed, Job: g.Job})
	if ev, ok := d.limit(g); ok {
		d.queued = append(d.queued, ev)
	}
}

// bind lets a worker bind a pod.
func (d *Driver) bind(g *gang.Gang, p *gang.Pod, node string) {
	p.Binding, p.Assumed = true, node
	d.move(p, false)
	run, notes := g.Run, d.notesFor(g, p.Obj)
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
func (d *Driver) notesFor(g *gang.Gang, obj *v1.Pod) map[string]string {
	notes := map[string]string{}
	d.opt.Seal.Write(notes, obj.UID, AnnotationPlan, g.Plan)
	if every := d.opt.Saving.Interval(g.Spec, &d.losses); every > 0 {
		notes[AnnotationEvery] = strconv.FormatInt(int64(max(time.Second, every)/time.Second), 10)
	}
	d.tellTraffic(g, obj, notes)
	return notes
}

// noteRun counts a run of a gang that is over for how often work is lost.
func (d *Driver) noteRun(g *gang.Gang, lost bool) {
	if r := d.eng.Record(g.Job); r != nil && g.Spec != nil && r.Started > 0 {
		d.losses.Note(g.Spec.Tier, d.now.Sub(r.Started), lost)
	}
}

// bound books what became of a binding.
func (d *Driver) bound(g *gang.Gang, p *gang.Pod, run int, node string, err error) {
	p.Binding = false
	d.agenda.touch(g)
	if err == nil && p.Node == "" {
		p.Node = node
	}
	p.Assumed = ""
	if d.pods[p.Obj.UID] == p {
		d.move(p, false)
		if p.Gang == nil && p.Node != "" && !p.Over() { // it was set aside while its binding was on its way
			d.nodes.AddForeign(p.Node, &p.Pod)
		}
	}
	switch {
	case err == nil:
		d.ungrant(p)
		d.opt.Observe.Bound(d.opt.Now().Sub(p.Obj.CreationTimestamp.Time))
		d.notices.Event(p.Obj, v1.EventTypeNormal, "Scheduled", fmt.Sprintf("Muster bound %s to %s", p.Name(), node))
		return
	case errors.Is(err, context.Canceled):
		return // the scheduler ends
	}
	if p.Claimed.Busy {
		d.takeBack(p)
	}
	d.opt.Observe.BindFailed(string(apierrors.ReasonForError(err)))
	d.opt.Log.Warn("a pod could not be bound", "pod", p.Name(), "node", node, "error", err)
	if g.Run == run && g.Phase == gang.Starting {
		g.Refused = fmt.Sprintf("pod %s could not be bound to %s: %v", p.Obj.Name, node, err)
	}
	for i := range g.Places {
		if g.Places[i].Pod == p.Obj.UID && g.Phase == gang.Running { // a replacement: it is tried again
			g.Places[i].Pod = ""
		}
	}
}
