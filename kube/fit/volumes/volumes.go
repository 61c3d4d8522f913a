// Package volumes says where pods may be for the sake of their volumes: where these are, or can be made, how many a
// node attaches, and which pod has them alone. It chooses; what it chose, others write.
package volumes

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/muster-gpu/muster/kube/fit"
)

// Volumes bind pods to where their data is. A claim that is bound says where; one
// that waits for its first consumer is bound to a volume, or has one made, where
// the pod goes, and only then the pod is.

// Volumes is what is known of them, and the predicate.
type Volumes struct {
	books   Books
	claims  map[string]*v1.PersistentVolumeClaim // by namespace/name
	volumes map[string]*v1.PersistentVolume
	classes map[string]*storagev1.StorageClass
	taken   map[string]string // volumes that were chosen: for which claim

	csiNodes   map[string]*storagev1.CSINode
	csiDrivers map[string]*storagev1.CSIDriver
	attached   map[string]map[string]*storagev1.VolumeAttachment // by node and name

	translations map[string]translation // of volumes, by name

	reported   map[string]*storagev1.CSIStorageCapacity // by namespace/name
	capacities map[string]*capacities                   // ... by storage class; nil: to be made again
}

// Books are what it asks of its user, which decides about pods.
type Books struct {
	// Ours: a pod that may be told to leave.
	Ours func(p *fit.Neighbour) bool
	// Room is for how many of these pods GPUs are believed to be on a node.
	Room func(pods []*fit.Neighbour, node string) int
	// Equal: two pods ask for the same of what the engine counts.
	Equal func(p, q *fit.Neighbour) bool
	// Held lists pods that have their places, but wait to be bound: those of other gangs than one pod's.
	Held func(but *fit.Neighbour) []*fit.Neighbour
}

// New knows of none.
func New(b Books) *Volumes {
	return &Volumes{books: b, claims: map[string]*v1.PersistentVolumeClaim{},
		volumes: map[string]*v1.PersistentVolume{},
		classes: map[string]*storagev1.StorageClass{}, taken: map[string]string{},
		csiNodes: map[string]*storagev1.CSINode{}, csiDrivers: map[string]*storagev1.CSIDriver{},
		attached: map[string]map[string]*storagev1.VolumeAttachment{}, translations: map[string]translation{},
		reported: map[string]*storagev1.CSIStorageCapacity{}}
}

// Changed books an object as it is now: of a claim, a volume, a class, a node's or a cluster's drivers, what these can
// make, or what is attached.
func (all *Volumes) Changed(obj any) {
	switch o := obj.(type) {
	case *v1.PersistentVolumeClaim:
		all.claims[nameOf(o)] = o
	case *v1.PersistentVolume:
		all.volumes[o.Name] = o
	case *storagev1.StorageClass:
		all.classes[o.Name] = o
	case *storagev1.CSINode:
		all.csiNodes[o.Name] = o
	case *storagev1.CSIDriver:
		all.csiDrivers[o.Name] = o
	case *storagev1.CSIStorageCapacity:
		all.reported[nameOf(o)], all.capacities = o, nil
	case *storagev1.VolumeAttachment:
		all.attach(o)
	}
}

// Gone books that it was deleted.
func (all *Volumes) Gone(obj any) {
	switch o := obj.(type) {
	case *v1.PersistentVolumeClaim:
		delete(all.claims, nameOf(o))
		all.untake(nameOf(o))
	case *v1.PersistentVolume:
		delete(all.volumes, o.Name)
		all.untake(o.Name)
	case *storagev1.StorageClass:
		delete(all.classes, o.Name)
	case *storagev1.CSINode:
		delete(all.csiNodes, o.Name)
	case *storagev1.CSIDriver:
		delete(all.csiDrivers, o.Name)
	case *storagev1.CSIStorageCapacity:
		delete(all.reported, nameOf(o))
		all.capacities = nil
	case *storagev1.VolumeAttachment:
		all.detach(o)
	}
}

// nameOf is namespace/name.
func nameOf(o metav1.Object) string { return o.GetNamespace() + "/" + o.GetName() }

// untake forgets what was chosen for a claim, or of a volume, that is gone.
func (all *Volumes) untake(key string) {
	delete(all.translations, key)
	maps.DeleteFunc(all.taken, func(v, claim string) bool { return v == key || claim == key })
}

// claimsOf lists the claims that a pod uses, by name.
func claimsOf(obj *v1.Pod) (list []string) {
	for i := range obj.Spec.Volumes {
		switch v := &obj.Spec.Volumes[i]; {
		case v.PersistentVolumeClaim != nil:
			list = append(list, v.PersistentVolumeClaim.ClaimName)
		case v.Ephemeral != nil:
			list = append(list, obj.Name+"-"+v.Name) // made for it, with this name
		}
	}
	return list
}

// late is a claim that waits for its first consumer.
type late struct {
	claim *v1.PersistentVolumeClaim
	class *storagev1.StorageClass
}

// begun is the node for which a volume is being made already; "": none is.
func (w *late) begun() string { return w.claim.Annotations[SelectedNode] }

// claimsFor lists a pod's claims: those that have a volume, and those that wait for
// it, the smallest first, so that the larger volumes are left for the larger claims.
func (all *Volumes) claimsFor(p *fit.Neighbour) (bound []*v1.PersistentVolumeClaim, open []late, err error) {
	for _, name := range of(p).claims {
		c := all.claims[p.Obj.Namespace+"/"+name]
		if c == nil || c.DeletionTimestamp != nil {
			return nil, nil, fmt.Errorf("volume claim %s does not exist", name)
		}
		if c.Spec.VolumeName != "" {
			bound = append(bound, c)
			continue
		}
		class, err := all.classOf(c)
		if err != nil {
			return nil, nil, err
		}
		open = append(open, late{c, class})
	}
	slices.SortStableFunc(open, func(a, b late) int {
		x, y := a.claim.Spec.Resources.Requests[v1.ResourceStorage], b.claim.Spec.Resources.Requests[v1.ResourceStorage]
		return x.Cmp(y)
	})
	return bound, open, nil
}

// limitVolumes bounds nodes by where the pod's volumes are, or can be.
func (all *Volumes) limitVolumes(l *fit.Look, p *fit.Neighbour) {
	bound, open, err := all.claimsFor(p)
	if err != nil {
		l.Never(err.Error())
		return
	}
	for _, c := range bound {
		if all.volumes[c.Spec.VolumeName] == nil {
			l.Never(fmt.Sprintf("volume %s of claim %s does not exist", c.Spec.VolumeName, c.Name))
			return
		}
	}
	if len(open) == 0 {
		return
	}
	l.Open(func(name string, n *v1.Node) {
		if why := all.unserved(open, n, len(l.Pods) == 1); why != "" {
			l.Shut(name, why)
		}
	})
}

// homesOf lists for each of the pods that has volumes the nodes that reach them.
func (all *Volumes) homesOf(l *fit.Look) (homes [][]string) {
	for _, p := range l.Pods {
		bound, _, err := all.claimsFor(p)
		if err != nil || len(bound) == 0 {
			continue
		}
		homes = append(homes, slices.DeleteFunc(slices.Clone(l.Ask.Nodes), func(name string) bool {
			n := l.Node(name)
			return n == nil || !all.reaches(bound, n)
		}))
	}
	return homes
}

// reaches reports whether a node reaches the volumes of some claims.
func (all *Volumes) reaches(bound []*v1.PersistentVolumeClaim, n *v1.Node) bool {
	return !slices.ContainsFunc(bound, func(c *v1.PersistentVolumeClaim) bool {
		v := all.volumes[c.Spec.VolumeName]
		return v == nil || !all.reachableFrom(v, n)
	})
}

// limitHomes keeps pods where their volumes are. If all pods of a gang have some, and in places
// that have no node in common (local volumes; zones), each place takes as many of them
// as have theirs there; which those are, is settled when they are seated. Else
// all go where all the volumes can be reached.
func (all *Volumes) limitHomes(l *fit.Look) {
	homes := all.homesOf(l)
	if len(homes) == 0 {
		return
	}
	places, count, in := map[string][]string{}, map[string]int{}, map[string]int{}
	for _, nodes := range homes {
		key := strings.Join(nodes, " ")
		places[key] = nodes
		count[key]++
	}
	apart := len(homes) == len(l.Pods) && places[""] == nil &&
		!slices.ContainsFunc(l.Pods, func(p *fit.Neighbour) bool { return !all.books.Equal(p, l.Pods[0]) })
	for _, nodes := range places {
		for _, name := range nodes { // counting: the order does not matter
			in[name]++
			apart = apart && in[name] == 1
		}
	}
	l.ShutIf(itsVolumes, func(n *v1.Node) bool { return in[n.Name] == 0 || !apart && in[n.Name] < len(places) })
	if !apart || len(places) == 1 {
		return
	}
	for _, key := range slices.Sorted(maps.Keys(places)) {
		l.Group(places[key], count[key])
	}
}

// Reach reports whether a pod's volumes can be reached from a node.
func (all *Volumes) Reach(p *fit.Neighbour, n *v1.Node) bool {
	if len(of(p).claims) == 0 {
		return true
	}
	bound, _, err := all.claimsFor(p)
	return err != nil || all.reaches(bound, n)
}

// itsVolumes is what keeps a pod off nodes that do not reach them.
const itsVolumes = "where its volumes are"

// unserved says why claims that wait for their first consumer cannot be bound where a node reaches them; "": they can.
// A volume that is being made for another node already is waited for, if the pod is alone: those of a gang may be made
// again together.
func (all *Volumes) unserved(open []late, n *v1.Node, alone bool) string {
	var not []string
	for i := range open {
		w := &open[i]
		switch at := w.begun(); {
		case at != "" && at != n.Name && alone:
			return itsVolumes
		case at != n.Name:
			if v := all.freeVolume(w.claim, n, not); v != "" {
				not = append(not, v)
				continue
			}
		}
		if w.class.Provisioner == NoProvisioner || !reachable(w.class, n) {
			return itsVolumes
		}
		if !all.canMake(w, n) {
			return noCapacity
		}
	}
	return ""
}

// classOf is the storage class of a claim that waits for its first consumer.
func (all *Volumes) classOf(c *v1.PersistentVolumeClaim) (*storagev1.StorageClass, error) {
	name := classOfClaim(c)
	class := all.classes[name]
	if class == nil || class.VolumeBindingMode == nil ||
		*class.VolumeBindingMode != storagev1.VolumeBindingWaitForFirstConsumer {
		return nil, fmt.Errorf("volume claim %s is not bound yet", c.Name)
	}
	return class, nil
}

// reachable reports whether a class can make volumes for a node.
func reachable(class *storagev1.StorageClass, n *v1.Node) bool {
	return len(class.AllowedTopologies) == 0 ||
		slices.ContainsFunc(class.AllowedTopologies, func(t v1.TopologySelectorTerm) bool {
			return !slices.ContainsFunc(t.MatchLabelExpressions, func(r v1.TopologySelectorLabelRequirement) bool {
				v, ok := n.Labels[r.Key]
				return !ok || !slices.Contains(r.Values, v)
			})
		})
}

// freeVolume finds the smallest volume that a node can use for a claim, but none
// of some; "": there is none.
func (all *Volumes) freeVolume(c *v1.PersistentVolumeClaim, n *v1.Node, not []string) string {
	var best *v1.PersistentVolume
	want := c.Spec.Resources.Requests[v1.ResourceStorage]
	sel, err := metav1.LabelSelectorAsSelector(c.Spec.Selector)
	if err != nil {
		return ""
	}
	if c.Spec.Selector == nil {
		sel = labels.Everything()
	}
	key := c.Namespace + "/" + c.Name
	for name, v := range all.volumes {
		ref, has := v.Spec.ClaimRef, v.Spec.Capacity[v1.ResourceStorage]
		for1, taken := all.taken[name]
		switch {
		case slices.Contains(not, name) || taken && for1 != key || v.DeletionTimestamp != nil:
		case ref != nil && (ref.Namespace != c.Namespace || ref.Name != c.Name || ref.UID != "" && ref.UID != c.UID):
		case ref == nil && v.Status.Phase != v1.VolumeAvailable:
		case classOfVolume(v) != classOfClaim(c) || has.Cmp(want) < 0 ||
			!sel.Matches(labels.Set(v.Labels)):
		case modeOf(v.Spec.VolumeMode) != modeOf(c.Spec.VolumeMode) || !offers(v.Spec.AccessModes, c.Spec.AccessModes):
		case !admits(v, n.Labels):
		case best == nil || smaller(v, best):
			best = v
		}
	}
	if best == nil {
		return ""
	}
	return best.Name
}

func smaller(a, b *v1.PersistentVolume) bool {
	x, y := a.Spec.Capacity[v1.ResourceStorage], b.Spec.Capacity[v1.ResourceStorage]
	if c := x.Cmp(y); c != 0 {
		return c < 0
	}
	return a.Name < b.Name
}

func modeOf(m *v1.PersistentVolumeMode) v1.PersistentVolumeMode {
	if m == nil {
		return v1.PersistentVolumeFilesystem
	}
	return *m
}

func offers(has, want []v1.PersistentVolumeAccessMode) bool {
	return !slices.ContainsFunc(want, func(m v1.PersistentVolumeAccessMode) bool { return !slices.Contains(has, m) })
}

// Mount is a claim that has to be bound before the pod; Volume "": to one that is
// made for it.
type Mount struct {
	Claim, Volume string
	Asked         bool // its driver was asked to make it
}

// Choose finds the volumes for the claims of a pod that goes to a node; n is nil if that is gone.
func (all *Volumes) Choose(p *fit.Neighbour, n *v1.Node) (list []Mount, err error) {
	if n == nil {
		return nil, nil
	}
	_, open, err := all.claimsFor(p)
	if err != nil {
		return nil, err
	}
	var not []string
	for i := range open {
		w, v := &open[i], ""
		if w.begun() != n.Name {
			v = all.freeVolume(w.claim, n, not)
		}
		if v == "" && w.class.Provisioner == NoProvisioner {
			return nil, fmt.Errorf("no volume for claim %s on node %s any more", w.claim.Name, n.Name)
		}
		if v != "" {
			not, all.taken[v] = append(not, v), w.claim.Namespace+"/"+w.claim.Name
		}
		list = append(list, Mount{Claim: w.claim.Name, Volume: v})
	}
	return list, nil
}

// hasFree reports whether volumes of a class are there that no claim has.
func (all *Volumes) hasFree(class string) bool {
	for _, v := range all.volumes {
		if v.Status.Phase == v1.VolumeAvailable && classOfVolume(v) == class {
			return true
		}
	}
	return false
}

// need is what a pod has of volumes.
type need struct {
	claims []string     // persistent volume claims
	inline []*v1.Volume // volumes that are attached, or are for one pod, without a claim
}

// Read lists a pod's volumes.
func (all *Volumes) Read(obj *v1.Pod, _ v1.ResourceList) (fit.Need, bool, error) {
	n := need{claims: claimsOf(obj), inline: inlineOf(obj)}
	if n.claims == nil && n.inline == nil {
		return nil, false, nil
	}
	return n, sameDisk(n.inline, n.inline), nil
}

// of is what a pod has of volumes.
func of(p *fit.Neighbour) need {
	n, _ := fit.Of[need](p)
	return n
}

// Key is the claims: those of ephemeral volumes bear the pod's name.
func (all *Volumes) Key(p *fit.Neighbour) string {
	if n, ok := fit.Of[need](p); ok {
		return fmt.Sprint(n.claims)
	}
	return ""
}

// Limit bounds nodes by where a pod's volumes are, and which pods have them.
func (all *Volumes) Limit(l *fit.Look, p *fit.Neighbour) {
	if _, ok := fit.Of[need](p); ok {
		all.limitAlone(l, p)
		all.limitVolumes(l, p)
		all.limitDisks(l, p)
	}
}

// Together bounds nodes by all the volumes that the pods have.
func (all *Volumes) Together(l *fit.Look) {
	all.limitHomes(l)
	for i, p := range l.Pods {
		for k, q := range l.Pods {
			if i != k && sameDisk(of(p).inline, of(q).inline) {
				l.Apart()
			}
		}
	}
	all.limitAttached(l)
	all.limitPooled(l)
}

// Blocks reports whether both have volumes: they may take something of the node from each other.
func (all *Volumes) Blocks(_ *fit.World, p, q *fit.Neighbour) []string {
	_, a := fit.Of[need](p)
	_, b := fit.Of[need](q)
	if a && b {
		return []string{""}
	}
	return nil
}

// Alike holds for those with the same claims.
func (all *Volumes) Alike(p, q *fit.Neighbour) bool {
	a, _ := fit.Of[need](p)
	b, _ := fit.Of[need](q)
	return slices.Equal(a.claims, b.claims)
}
