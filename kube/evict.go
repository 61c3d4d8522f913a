package kube

import (
	"context"
	"fmt"
	"time"

	v1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/engine"
	"github.com/muster-gpu/muster/kube/patch"
)

// notice is the event that tells a pod why it leaves.
type notice struct{ kind, reason, text string }

// departure is a request for a pod to go. It holds for the pod as it was seen when that was decided: the API server
// refuses it if the pod has changed since, and then it is decided again.
type departure struct {
	p       *pod
	obj     *v1.Pod
	seconds int64 // that it has to end
	force   bool  // its node is gone: nothing else will say that it ended
	evict   bool  // a disruption budget may refuse it
	notice        // evict: told when it is granted
	try     int
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
	d.touch(g)
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
	d.depart(departure{p: p, seconds: grace(p.Obj, g.grace), evict: true, notice: g.notice})
}

// remove deletes a pod of a gang that is unwound, or of a node that is gone.
func (d *Driver) remove(p *pod) {
	l := departure{p: p, seconds: grace(p.Obj, 30)}
	if !p.occupies(d.nodes) {
		p.ended, l.force, l.seconds = true, true, 0
	}
	d.depart(l)
}

// depart lets a worker ask for a pod to go as it is now.
func (d *Driver) depart(l departure) {
	l.p.leaving, l.obj = true, l.p.Obj
	d.do(func(ctx context.Context) {
		err := d.departNow(ctx, &l)
		if err == nil {
			if l.evict {
				d.notices.Event(l.obj, l.kind, l.reason, l.text)
			}
			return
		}
		if !apierrors.IsNotFound(err) && ctx.Err() == nil {
			d.departLater(&l, err)
		}
	})
}

func (d *Driver) departNow(ctx context.Context, l *departure) error {
	pods := d.opt.Client.CoreV1().Pods(l.obj.Namespace)
	if l.evict {
		d.crash("kube-evicting")
		return pods.EvictV1(ctx,
			&policyv1.Eviction{ObjectMeta: metav1.ObjectMeta{Namespace: l.obj.Namespace, Name: l.obj.Name},
				DeleteOptions: patch.DeleteAsSeen(l.obj, l.seconds)})
	}
	now, err := pods.Patch(ctx, l.obj.Name, types.StrategicMergePatchType, patch.Disrupted(l.obj, l.force, d.opt.Now()),
		metav1.PatchOptions{}, "status")
	if err != nil {
		return err
	}
	return pods.Delete(ctx, l.obj.Name, *patch.DeleteAsSeen(now, l.seconds))
}

// departLater asks again after a while what was refused or not answered.
func (d *Driver) departLater(l *departure, err error) {
	after := min(time.Second<<min(l.try, 5), 30*time.Second)
	switch {
	case apierrors.IsConflict(err):
		after = min(100*time.Millisecond<<min(l.try, 8), 10*time.Second)
	case l.evict && apierrors.IsTooManyRequests(err) && l.try == 0:
		d.notices.Event(l.obj, v1.EventTypeNormal, "EvictionRefused",
			"it is to leave, when its disruption budget allows that: "+l.text)
		fallthrough
	default:
		if l.try%10 == 0 {
			d.opt.Log.Warn("a pod does not go yet", "pod", l.obj.Namespace+"/"+l.obj.Name, "error", err)
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
	seen := p.Obj.ResourceVersion != l.obj.ResourceVersion
	switch {
	case d.pods[p.Obj.UID] != p, p.Over() && !l.force:
		return // it is gone, or holds nothing any more
	case changed && !seen:
		l.try++
		time.AfterFunc(min(100*time.Millisecond<<min(l.try, 8), 10*time.Second), func() {
			d.inbox.Put(func() { d.departAgain(l, true) })
		})
	case changed && p.gang != nil && !p.Over():
		p.leaving, p.ended = false, false
		d.touch(p.gang)
	default:
		if l.force && p.occupies(d.nodes) { // its node is back
			l.force, l.seconds = false, grace(p.Obj, 30)
		}
		d.depart(*l)
	}
}
