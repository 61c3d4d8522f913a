package volumes

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"

	"github.com/muster-gpu/muster/kube/fit"
)

// A node attaches only so many volumes of a driver (CSINode), and a claim with
// ReadWriteOncePod is for one pod at a time. Both are counted as kube-scheduler
// does (NodeVolumeLimits, VolumeRestrictions).

// attachable is a volume that is attached to nodes: what its driver calls it. A
// claim that has no volume yet counts for one of its class.
type attachable struct{ driver, handle string }

// attach books a volume that is attached to a node, or is about to be.
func (all *Volumes) attach(a *storagev1.VolumeAttachment) {
	on := all.attached[a.Spec.NodeName]
	if on == nil {
		on = map[string]*storagev1.VolumeAttachment{}
		all.attached[a.Spec.NodeName] = on
	}
	on[a.Name] = a
}

func (all *Volumes) detach(a *storagev1.VolumeAttachment) {
	if delete(all.attached[a.Spec.NodeName], a.Name); len(all.attached[a.Spec.NodeName]) == 0 {
		delete(all.attached, a.Spec.NodeName)
	}
}

// attachableOf is the volume of a claim, and whether its driver was in-tree; false: it
// is none that is attached.
func (all *Volumes) attachableOf(c *v1.PersistentVolumeClaim) (a attachable, inTree, ok bool) {
	if v := all.volumes[c.Spec.VolumeName]; v != nil {
		source := v.Spec.CSI
		if t := all.translated(v); t.csi != nil {
			source, inTree = t.csi.Spec.CSI, true
		}
		if source == nil {
			return a, false, false
		}
		return attachable{source.Driver, source.VolumeHandle}, inTree, true
	}
	class := all.classes[classOfClaim(c)]
	if class == nil {
		return a, false, false
	}
	driver, inTree, ok := provisioner(class.Provisioner)
	return attachable{driver, "claim " + c.Namespace + "/" + c.Name}, inTree, ok // no handle has a space
}

// attachables lists the volumes of a pod that are attached, each once, and the drivers
// of those that are CSI volumes themselves.
func (all *Volumes) attachables(p *fit.Neighbour) (list []attachable, own []string) {
	need := of(p)
	add := func(a attachable, inTree, ok bool) {
		if ok && !slices.Contains(list, a) {
			list = append(list, a)
		}
		if ok && !inTree {
			own = append(own, a.driver)
		}
	}
	for _, name := range need.claims {
		if c := all.claims[p.Obj.Namespace+"/"+name]; c != nil {
			add(all.attachableOf(c))
		}
	}
	for _, v := range need.inline {
		a, ok := inlineAttachable(v, p.Obj.Namespace)
		add(a, true, ok)
	}
	return list, own
}

// attachLimits are how many volumes a node attaches, by driver; a driver that
// says nothing attaches any number.
func (all *Volumes) attachLimits(node string) (limits map[string]int) {
	c := all.csiNodes[node]
	if c == nil {
		return nil
	}
	for i := range c.Spec.Drivers {
		if a := c.Spec.Drivers[i].Allocatable; a != nil && a.Count != nil {
			if limits == nil {
				limits = map[string]int{}
			}
			limits[c.Spec.Drivers[i].Name] = int(*a.Count)
		}
	}
	return limits
}

// serves reports whether a driver attaches volumes to a node: one that asks for
// it (preventPodSchedulingIfMissing) does so only where it says that it is.
func (all *Volumes) serves(driver, node string) bool {
	c := all.csiDrivers[driver]
	if c == nil || c.Spec.PreventPodSchedulingIfMissing == nil || !*c.Spec.PreventPodSchedulingIfMissing {
		return true
	}
	on := all.csiNodes[node]
	return on != nil && slices.ContainsFunc(on.Spec.Drivers, func(x storagev1.CSINodeDriver) bool {
		return x.Name == driver
	})
}

// attachedTo is what the pods of a node, and those that go there, have attached,
// and how many volumes of each driver count; ever: only those that would stay if
// all pods of ours had left. A volume that is attached for a pod that went counts
// until it is detached, also for the pod that asks for it next.
func (all *Volumes) attachedTo(w *fit.World, name string, ever bool) (by map[attachable]bool, count map[string]int) {
	by, count = map[attachable]bool{}, map[string]int{}
	leaving := map[attachable]bool{}
	for q := range w.On(name) {
		list, _ := all.attachables(q)
		for _, a := range list {
			if ever && all.books.Ours(q) {
				leaving[a] = true
			} else {
				by[a] = true
			}
		}
	}
	for q := range w.Hidden() {
		if q.Where == name {
			list, _ := all.attachables(q)
			for _, a := range list {
				leaving[a] = true
			}
		}
	}
	on := maps.Clone(by)
	for _, va := range all.attached[name] {
		if va.Spec.Source.PersistentVolumeName == nil {
			continue
		}
		v := all.volumes[*va.Spec.Source.PersistentVolumeName]
		if v == nil || v.Spec.CSI == nil {
			continue
		}
		if a := (attachable{va.Spec.Attacher, v.Spec.CSI.VolumeHandle}); !leaving[a] {
			on[a] = true
		}
	}
	for a := range on {
		count[a.driver]++
	}
	return by, count
}

// toAttach is what some pods want attached.
type toAttach struct {
	each    [][]attachable     // by pod
	users   map[attachable]int // how many of them use it
	drivers []string
	inTree  []string // ... of which all are in-tree volumes
}

func (all *Volumes) toAttach(pods ...*fit.Neighbour) *toAttach {
	w := &toAttach{each: make([][]attachable, len(pods)), users: map[attachable]int{}}
	own := map[string]bool{}
	for i, p := range pods {
		list, drivers := all.attachables(p)
		for _, driver := range drivers {
			own[driver] = true
		}
		w.each[i] = list
		for _, a := range w.each[i] {
			if w.users[a]++; !slices.Contains(w.drivers, a.driver) {
				w.drivers = append(w.drivers, a.driver)
			}
		}
	}
	w.inTree = slices.DeleteFunc(slices.Clone(w.drivers), func(driver string) bool { return own[driver] })
	return w
}

// attaching is how many of the pods, whichever they are, a node can attach the
// volumes of; why is what stops the next.
func (all *Volumes) attaching(world *fit.World, name string, w *toAttach, ever bool) (most int, why string) {
	limits, some := all.attachLimits(name), false
	for _, driver := range w.drivers {
		if !all.serves(driver, name) && (all.csiNodes[name] != nil || !slices.Contains(w.inTree, driver)) {
			return 0, "driver " + driver + " of its volumes is not there"
		}
		_, has := limits[driver]
		some = some || has
	}
	if most = len(w.each); !some {
		return most, ""
	}
	by, count := all.attachedTo(world, name, ever)
	// What several of them have counts for each, or once and beforehand: both
	// bounds hold for any of them.
	apart, shared := most, most
	for _, driver := range w.drivers {
		limit, has := limits[driver]
		if !has {
			continue
		}
		room := max(0, limit-count[driver])
		each, own, common := w.of(driver, by)
		apart, shared = min(apart, largest(each, room)), min(shared, largest(own, room-common))
		if max(apart, shared) < most && why == "" {
			why = fmt.Sprintf("no more volumes of %s can be attached", driver)
		}
	}
	return max(apart, shared), why
}

// of counts the volumes of a driver that are not attached yet: all of each pod, its
// own of each pod, and those that several have.
func (w *toAttach) of(driver string, by map[attachable]bool) (each, own []int, common int) {
	each, own = make([]int, len(w.each)), make([]int, len(w.each))
	several := map[attachable]bool{}
	for i, list := range w.each {
		for _, a := range list {
			switch {
			case a.driver != driver || by[a]:
				continue
			case w.users[a] > 1:
				several[a] = true
			default:
				own[i]++
			}
			each[i]++
		}
	}
	return each, own, len(several)
}

// largest is how many of these never exceed the room together, whichever they are.
func largest(list []int, room int) (n int) {
	slices.Sort(list)
	for i := len(list) - 1; i >= 0 && room >= list[i]; i-- {
		room -= list[i]
		n++
	}
	return n
}

// limitAttached bounds nodes by how many volumes they attach. Which pods would have to leave for more,
// the engine decides, so as for devices a node is closed only where it counts
// more room than there is; and when the gang is about to be bound, or was in vain.
func (all *Volumes) limitAttached(l *fit.Look) {
	w := all.toAttach(l.Pods...)
	if len(w.drivers) == 0 {
		return
	}
	l.Open(func(name string, _ *v1.Node) {
		most, why := all.attaching(l.World, name, w, true)
		if now, text := all.attaching(l.World, name, w, false); now < most &&
			(l.Binding || l.Careful || now < all.books.Room(l.Pods, name)) {
			most, why = now, text
		}
		l.Most(name, int64(most), why)
	})
}

// forOne reports whether a claim is for one pod at a time.
func forOne(c *v1.PersistentVolumeClaim) bool {
	return c != nil && slices.Contains(c.Spec.AccessModes, v1.ReadWriteOncePod)
}

// uses reports whether a pod uses a claim.
func uses(p *fit.Neighbour, namespace, claim string) bool {
	return p.Obj.Namespace == namespace && slices.Contains(of(p).claims, claim)
}

// Rivals lists the pods that have the claims of a pod that are for one pod at a time: it is so wherever that pod is,
// and until it is gone. A pod that is held has its claims.
func (all *Volumes) Rivals(w *fit.World, p *fit.Neighbour) (list []fit.Rival) {
	for _, name := range of(p).claims {
		if !forOne(all.claims[p.Obj.Namespace+"/"+name]) {
			continue
		}
		add := func(q *fit.Neighbour) {
			if q != p && uses(q, p.Obj.Namespace, name) {
				list = append(list, fit.Rival{Claim: name, User: q})
			}
		}
		w.Each(add)
		for _, q := range all.books.Held(p) {
			if q.Where == "" {
				add(q)
			}
		}
	}
	slices.SortFunc(list, func(a, b fit.Rival) int {
		return strings.Compare(a.Claim+" "+a.User.Obj.Name, b.Claim+" "+b.User.Obj.Name)
	})
	return list
}

// limitAlone says which pods have the claims that only one pod may use: two of a gang cannot either.
func (all *Volumes) limitAlone(l *fit.Look, p *fit.Neighbour) {
	l.Contest(all.Rivals(l.World, p)...)
	for _, q := range l.Pods {
		if q == p {
			return // those after it look at it
		}
		for _, name := range of(p).claims {
			if uses(q, p.Obj.Namespace, name) && forOne(all.claims[p.Obj.Namespace+"/"+name]) {
				l.Never(fmt.Sprintf(
					"volume claim %s (ReadWriteOncePod) is for one pod, and both %s and %s of the gang use it",
					name, q.Obj.Name, p.Obj.Name))
				return
			}
		}
	}
}

// KeptOff says why the volumes of a pod that takes the place of another cannot be
// used on its node now; "": they can.
func (all *Volumes) KeptOff(w *fit.World, p *fit.Neighbour, node string) string {
	if list := all.Rivals(w, p); len(list) > 0 {
		return list[0].Text()
	}
	if n, why := all.attaching(w, node, all.toAttach(p), false); n == 0 {
		return why
	}
	return ""
}
