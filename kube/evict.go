package kube

import (
	"context"
	"fmt"
	"time"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/engine"
	"github.com/muster-gpu/muster/kube/write"
)

// notice is the event that tells a pod why it leaves.
type notice struct{ kind, reason, text string }

// departure is a request for a pod to go. It holds for the pod as it was seen when that was decided: the API server
// refuses it if the pod has changed since, and then it is decided again.
type departure struct {
	write.Departure
	p      *pod
	notice // of an eviction: told when it is granted
	try    int
}

// stop lets a gang leave.
func (d *Driver) stop(g *gang, a *engine.Action) {
	if g.phase != starting && g.phase != running && g.phase != unwinding {
		return
	}
	g.run++
	g.phase, g.grace = stopping, max(1, int64(d.askBack(a)/time.Second))
	to := d.setOut(g, a)
	d.departs(g, a)
	g.notice = d.dismissal(g, a, to)
	for _, p := range g.sorted() {
		if p.occupies(d.nodes) && !p.leaving {
			d.evict(g, p)
		}
	}
	if to != "" {
		d.opt.Observe.Evicted("moved")
	} else {
		d.opt.Observe.Evicted(a.Reason.String())
	}
	d.recall(g, true)
	d.agenda.touch(g)
}

// dismissal is what a gang is told that has to leave: to is where it is moved.
func (d *Driver) dismissal(g *gang, a *engine.Action, to string) notice {
	other := ""
	if o := d.byID[a.For]; o != nil && a.For != cluster.NoJob {
		other = o.name
	}
	why := ""
	switch {
	case to != "" && other != "":
		return notice{v1.EventTypeNormal, "Moved",
			fmt.Sprintf("moved to %s, so that %s fits: its place there is kept for the pod that its owner makes", to,
				other)}
	case to != "":
		return notice{v1.EventTypeNormal, "Moved",
			fmt.Sprintf("moved to %s: its place there is kept for the pod that its owner makes", to)}
	case a.Reason == engine.NodeLost:
		why = "its gang lost a node"
	case a.Reason == engine.WasCancelled && g.leaves != "":
		why = g.leaves
	case other != "":
		why = "preempted for " + other
	case g.goesBack(d.eng):
		why = "its node is given back to its lender"
	default:
		why = "preempted: Muster needs its place"
	}
	return notice{v1.EventTypeWarning, "Preempted", why}
}

// evict asks for a pod's eviction until it is granted: a disruption budget may
// refuse it for a while.
func (d *Driver) evict(g *gang, p *pod) {
	d.depart(departure{Departure: write.Departure{Seconds: grace(p.Obj, g.grace), Evict: true}, p: p, notice: g.notice})
}

// remove deletes a pod of a gang that is unwound, or of a node that is gone.
func (d *Driver) remove(p *pod) {
	l := departure{Departure: write.Departure{Seconds: grace(p.Obj, 30)}, p: p}
	if !p.occupies(d.nodes) {
		p.ended, l.Force, l.Seconds = true, true, 0
	}
	d.depart(l)
}

// depart lets a worker ask for a pod to go as it is now.
func (d *Driver) depart(l departure) {
	l.p.leaving, l.Pod = true, l.p.Obj
	d.writer.Do(func(ctx context.Context) {
		err := d.writer.Remove(ctx, &l.Departure)
		if err == nil {
			if l.Evict {
				d.notices.Event(l.Pod, l.kind, l.reason, l.text)
			}
			return
		}
		if !apierrors.IsNotFound(err) && ctx.Err() == nil {
			d.departLater(&l, err)
		}
	})
}

// departLater asks again after a while what was refused or not answered.
func (d *Driver) departLater(l *departure, err error) {
	after := l.After(err, l.try)
	switch {
	case apierrors.IsConflict(err):
	case l.Evict && apierrors.IsTooManyRequests(err) && l.try == 0:
		d.notices.Event(l.Pod, v1.EventTypeNormal, "EvictionRefused",
			"it is to leave, when its disruption budget allows that: "+l.text)
		fallthrough
	default:
		if l.try%10 == 0 {
			d.opt.Log.Warn("a pod does not go yet", "pod", l.Pod.Namespace+"/"+l.Pod.Name, "error", err)
		}
	}
	l.try++
	changed := apierrors.IsConflict(err)
	time.AfterFunc(after, func() { d.inbox.Put(func() { d.departAgain(l, changed) }) })
}

// departAgain asks again for a pod to go as it is by now. Where the API server knew another version of it, the gang is
// settled again instead, as soon as that one has been seen here.
func (d *Driver) departAgain(l *departure, changed bool) {
	p := l.p
	seen := p.Obj.ResourceVersion != l.Pod.ResourceVersion
	switch {
	case d.pods[p.Obj.UID] != p, p.Over() && !l.Force:
		return // it is gone, or holds nothing any more
	case changed && !seen:
		l.try++
		time.AfterFunc(min(100*time.Millisecond<<min(l.try, 8), 10*time.Second), func() {
			d.inbox.Put(func() { d.departAgain(l, true) })
		})
	case changed && p.gang != nil && !p.Over():
		p.leaving, p.ended = false, false
		d.agenda.touch(p.gang)
	default:
		if l.Force && p.occupies(d.nodes) { // its node is back
			l.Force, l.Seconds = false, grace(p.Obj, 30)
		}
		d.depart(*l)
	}
}
