package kube

import (
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/muster-gpu/muster/kube/gang"
	"github.com/muster-gpu/muster/kube/gangs"
	"github.com/muster-gpu/muster/kube/plans"
)

// claimOf finds out whose gang a pod of ours is.
func claimOf(objects *gangs.Objects, obj *v1.Pod) *gangs.Claim {
	c := objects.Of(obj)
	if p := plans.Of(obj); p != nil && p.Alone && obj.Spec.NodeName != "" { // it started after its gang
		one := gangs.Alone(obj, c.Object, c.Kind)
		one.Of = c.Key
		return one
	}
	return c
}

// gangOf finds the gang of a pod of ours, or makes it.
func (d *Driver) gangOf(obj *v1.Pod) *gang.Gang { return d.gangFor(claimOf(d.objects, obj)) }

func (d *Driver) gangFor(c *gangs.Claim) *gang.Gang {
	g := d.gangs[c.Key]
	if g == nil {
		g = gang.New(c)
		d.gangs[c.Key] = g
		if c.Object != (gangs.Key{}) {
			d.objects.Use(g.Key, c.Object)
		}
		if c.Of != "" {
			d.singletons[c.Of]++
		}
	}
	return g
}

// drop forgets a gang that has no pods any more. It may be forgotten already, and
// another have its key: a binding may be answered after its pod is gone.
func (d *Driver) drop(g *gang.Gang) {
	if d.gangs[g.Key] != g {
		return
	}
	delete(d.gangs, g.Key)
	delete(d.agenda.later, g.Key)
	if l := g.Inheritance; l != nil { // its pods went before they started: for those that come now
		l.Began, l.At, g.Inheritance = time.Unix(0, int64(d.now)).Truncate(time.Second), d.now, nil
		d.inheritances.Keep(l, d.now)
	}
	if g.Of != "" {
		if d.singletons[g.Of]--; d.singletons[g.Of] == 0 {
			delete(d.singletons, g.Of)
		}
	}
	d.objects.Forget(g.Key)
}

// regroup looks whose the pods of a gang are, now that what made it changed.
// What is bound stays what it is.
func (d *Driver) regroup(g *gang.Gang) {
	if g.Phase == gang.Gathering || g.Phase == gang.Waiting {
		for _, p := range g.Sorted() {
			if g.Of == "" && claimOf(d.objects, p.Obj).Key != g.Key {
				d.rejoin(p)
			}
		}
	}
	d.agenda.touch(g)
}

// rejoin puts a pod that holds nothing into the gang that is now its own.
func (d *Driver) rejoin(p *gang.Pod) {
	if g := p.Gang; g != nil && p.Node == "" && (g.Phase == gang.Gathering || g.Phase == gang.Waiting) {
		d.leave(p)
		d.join(p)
	}
}

// release lets pods that a running gang does not need start by themselves, with
// its queue and priority.
func (d *Driver) release(g *gang.Gang, m *gangs.Membership) {
	if !m.Open || g.Of != "" {
		return
	}
	for _, p := range g.Ready() {
		if p.Binding || g.Places.Has(p.Obj.UID) {
			continue
		}
		c := gangs.Alone(p.Obj, g.Object, g.Kind)
		c.Of = g.Key
		delete(g.Pods, p.Obj.UID)
		p.Gang = d.gangFor(c)
		p.Gang.Pods[p.Obj.UID] = p
		d.agenda.touch(p.Gang)
	}
}

// recall takes the pods back that were released, when the gang that they belong
// to does not run any more: those that wait, wait with it; those that run, go
// with it, if it is told to leave.
func (d *Driver) recall(g *gang.Gang, leave bool) {
	if d.singletons[g.Key] == 0 {
		return
	}
	for _, one := range d.gangs {
		if one.Of != g.Key {
			continue
		}
		switch one.Phase {
		case gang.Gathering, gang.Waiting:
			for _, p := range one.Sorted() {
				d.rejoin(p)
			}
		case gang.Running:
			if !leave {
				continue
			}
			d.leaveAll(one, "the gang that it belongs to, "+g.Name+", leaves")
		}
	}
}

// meetEarlier takes in pods that were over when the scheduler began, where others
// of their gang are not.
func (d *Driver) meetEarlier() {
	for _, obj := range d.earlier {
		if g := d.gangs[claimOf(d.objects, obj).Key]; g != nil && d.pods[obj.UID] == nil {
			d.meet(obj)
		}
	}
	d.earlier = nil
}
