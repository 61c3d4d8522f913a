package kube

import (
	"context"
	"time"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/engine"
	"github.com/muster-gpu/muster/kube/gang"
	"github.com/muster-gpu/muster/kube/write"
)

// departure is a request for a pod to go. It holds for the pod as it was seen when that was decided: the API server
// refuses it if the pod has changed since, and then it is decided again.
type departure struct {
	write.Departure
	p           *gang.Pod
	gang.Notice // of an eviction: told when it is granted
	try         int
}

// stop lets a gang leave.
func (d *Driver) stop(g *gang.Gang, a *engine.Action) {
	if g.Phase != gang.Starting && g.Phase != gang.Running && g.Phase != gang.Unwinding {
		return
	}
	g.Run++
	g.Phase, g.Grace = gang.Stopping, max(1, int64(d.askBack(a)/time.Second))
	to := d.setOut(g, a)
	d.departs(g, a)
	other := ""
	if o := d.byID[a.For]; o != nil && a.For != cluster.NoJob {
		other = o.Name
	}
	g.Notice = g.Dismissal(d.eng, a.Reason, other, to)
	for _, p := range g.Sorted() {
		if p.Occupies(d.nodes) && !p.Leaving {
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

// evict asks for a pod's eviction until it is granted: a disruption budget may
// refuse it for a while.
func (d *Driver) evict(g *gang.Gang, p *gang.Pod) {
	how := write.Departure{Seconds: gang.Grace(p.Obj, g.Grace), Evict: true}
	d.depart(departure{Departure: how, p: p, Notice: g.Notice})
}

// remove deletes a pod of a gang that is unwound, or of a node that is gone.
func (d *Driver) remove(p *gang.Pod) {
	l := departure{Departure: write.Departure{Seconds: gang.Grace(p.Obj, 30)}, p: p}
	if !p.Occupies(d.nodes) {
		p.Ended, l.Force, l.Seconds = true, true, 0
	}
	d.depart(l)
}

// depart lets a worker ask for a pod to go as it is now.
func (d *Driver) depart(l departure) {
	l.p.Leaving, l.Pod = true, l.p.Obj
	d.writer.Do(func(ctx context.Context) {
		err := d.writer.Remove(ctx, &l.Departure)
		if err == nil {
			if l.Evict {
				d.notices.Event(l.Pod, l.Kind, l.Reason, l.Text)
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
			"it is to leave, when its disruption budget allows that: "+l.Text)
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
	case changed && p.Gang != nil && !p.Over():
		p.Leaving, p.Ended = false, false
		d.agenda.touch(p.Gang)
	default:
		if l.Force && p.Occupies(d.nodes) { // its node is back
			l.Force, l.Seconds = false, gang.Grace(p.Obj, 30)
		}
		d.depart(*l)
	}
}
