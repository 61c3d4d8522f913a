package kube

import (
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/kube/gangs"
	"github.com/muster-gpu/muster/kube/plans"
)

// ID is the key of the gang (gangs.Gang).
func (g *gang) ID() string { return g.key }

// Members lists the pods of the gang that still exist, in their order.
func (g *gang) Members() []*v1.Pod { return objectsOf(g.sorted()) }

func objectsOf(pods []*pod) []*v1.Pod {
	list := make([]*v1.Pod, len(pods))
	for i, p := range pods {
		list[i] = p.Obj
	}
	return list
}

// Ahead counts the pods of a gang that a scheduler had bound when it died, and
// that came to their end before the next one was there. The others, which were
// there when these began, are what is left of that start: the gang does not wait
// for more. Pods that were made later are another run of the gang.
func (g *gang) Ahead(size int) int {
	done, open := 0, g.ready()
	for _, p := range g.pods {
		if !p.Over() {
			continue
		}
		began := p.Obj.Status.StartTime
		later := func(o *pod) bool { return o.Obj.CreationTimestamp.After(began.Time) }
		if !finished(p.Obj) || began == nil || slices.ContainsFunc(open, later) {
			return 0
		}
		done++
	}
	if done == 0 || len(open) == 0 || done+len(open) != size {
		return 0
	}
	return done
}

// pick chooses the pods that a gang starts with.
func pick(m *gangs.Membership, ready []*pod) (list []*pod, lacks string) {
	chosen, lacks := m.Pick(objectsOf(ready))
	for _, i := range chosen {
		list = append(list, ready[i])
	}
	return list, lacks
}

// wanted lists the pods of a gang that want to be bound, those first whose role
// lacks most to what runs: a head takes the place of a head.
func (g *gang) wanted() []*pod {
	list := g.ready()
	m, err := g.need()
	if err != nil || m.Role == nil {
		return list
	}
	lack := map[string]int{}
	for _, r := range m.Roles {
		lack[r.Name] = r.Count
	}
	for i := range g.places {
		if p := g.pods[g.places[i].Pod]; p != nil && !p.Over() {
			lack[m.Role(p.Obj)]--
		}
	}
	var first, rest []*pod
	for _, p := range list {
		if name := m.Role(p.Obj); lack[name] > 0 {
			lack[name]--
			first = append(first, p)
			continue
		}
		rest = append(rest, p)
	}
	return append(first, rest...)
}

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
func (d *Driver) gangOf(obj *v1.Pod) *gang { return d.gangFor(claimOf(d.objects, obj)) }

func (d *Driver) gangFor(c *gangs.Claim) *gang {
	g := d.gangs[c.Key]
	if g == nil {
		g = &gang{key: c.Key, name: c.Name, of: c.Of, object: c.Object, kind: c.Kind, pods: map[types.UID]*pod{},
			id: cluster.NoJob}
		g.need = func() (gangs.Membership, error) { return c.Need(g) }
		d.gangs[c.Key] = g
		if c.Object != (gangs.Key{}) {
			d.objects.Use(g.key, c.Object)
		}
		if c.Of != "" {
			d.singletons[c.Of]++
		}
	}
	return g
}

// drop forgets a gang that has no pods any more. It may be forgotten already, and
// another have its key: a binding may be answered after its pod is gone.
func (d *Driver) drop(g *gang) {
	if d.gangs[g.key] != g {
		return
	}
	delete(d.gangs, g.key)
	delete(d.agenda.later, g.key)
	if l := g.inheritance; l != nil { // its pods went before they started: for those that come now
		l.Began, l.At, g.inheritance = time.Unix(0, int64(d.now)).Truncate(time.Second), d.now, nil
		d.inheritances.Keep(l, d.now)
	}
	if g.of != "" {
		if d.singletons[g.of]--; d.singletons[g.of] == 0 {
			delete(d.singletons, g.of)
		}
	}
	d.objects.Forget(g.key)
}

// regroup looks whose the pods of a gang are, now that what made it changed.
// What is bound stays what it is.
func (d *Driver) regroup(g *gang) {
	if g.phase == gathering || g.phase == waiting {
		for _, p := range g.sorted() {
			if g.of == "" && claimOf(d.objects, p.Obj).Key != g.key {
				d.rejoin(p)
			}
		}
	}
	d.agenda.touch(g)
}

// rejoin puts a pod that holds nothing into the gang that is now its own.
func (d *Driver) rejoin(p *pod) {
	if g := p.gang; g != nil && p.node == "" && (g.phase == gathering || g.phase == waiting) {
		d.leave(p)
		d.join(p)
	}
}

// release lets pods that a running gang does not need start by themselves, with
// its queue and priority.
func (d *Driver) release(g *gang, m *gangs.Membership) {
	if !m.Open || g.of != "" {
		return
	}
	for _, p := range g.ready() {
		if p.binding || g.places.Has(p.Obj.UID) {
			continue
		}
		c := gangs.Alone(p.Obj, g.object, g.kind)
		c.Of = g.key
		delete(g.pods, p.Obj.UID)
		p.gang = d.gangFor(c)
		p.gang.pods[p.Obj.UID] = p
		d.agenda.touch(p.gang)
	}
}

// recall takes the pods back that were released, when the gang that they belong
// to does not run any more: those that wait, wait with it; those that run, go
// with it, if it is told to leave.
func (d *Driver) recall(g *gang, leave bool) {
	if d.singletons[g.key] == 0 {
		return
	}
	for _, one := range d.gangs {
		if one.of != g.key {
			continue
		}
		switch one.phase {
		case gathering, waiting:
			for _, p := range one.sorted() {
				d.rejoin(p)
			}
		case running:
			if !leave {
				continue
			}
			d.leaveAll(one, "the gang that it belongs to, "+g.name+", leaves")
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

// finished reports whether a pod of a gang came to its end by itself, where no other is made for it.
func finished(obj *v1.Pod) bool {
	if obj.Status.Phase != v1.PodSucceeded || metav1.GetControllerOf(obj) != nil {
		return false
	}
	p := plans.Of(obj)
	return p != nil && (len(p.Tasks) > 1 || p.Tasks[0].Count > 1)
}
