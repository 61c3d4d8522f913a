// Package claims says what devices resource claims can get on a node: what drivers publish of their GPUs, which of
// these count for what, the choice of kube-scheduler's allocator, and what was chosen for claims and is not written
// yet.
package claims

import (
	"errors"
	"fmt"
	"slices"

	v1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"
	"k8s.io/dynamic-resource-allocation/resourceclaim"

	"github.com/muster-gpu/muster/kube/fit"
	"github.com/muster-gpu/muster/kube/fit/shared"
	"github.com/muster-gpu/muster/kube/patch"
)

// Resource claims (dynamic resource allocation, resource.k8s.io/v1) ask for devices that drivers publish in slices.
// Which devices a claim gets is decided when its pod is bound: the engine counts GPUs, a predicate says on which nodes
// the claims can be met (devices.go), and what is chosen is written into the claim before the pod is bound (write.go).
// In between it is a grant.

// Claims is what is known of resource claims and devices, and the predicate. It belongs to one goroutine.
type Claims struct {
	Served bool // by the API server

	books   Books
	drivers []string // whose devices count as GPUs
	claims  map[string]*resourceapi.ResourceClaim
	classes Classes
	slices  map[string]*resourceapi.ResourceSlice
	grants  map[string]*grant
	payer   map[string]*fit.Neighbour // whose request counts the GPUs of a claim
	lacking map[*fit.Neighbour]bool   // pods that wait to know their claims
	found   *Pools                    // what the slices say; nil: they changed
	sizes   map[string]Size           // what claims count for, by what they ask; of these slices
	ways    map[string]Way            // how pods would share what claims that are open get, likewise
	used    *taken                    // nil: it changed
}

// Books are what it asks of its user, which knows the pods and nodes, and what it tells.
type Books struct {
	Part  func(p *fit.Neighbour) *Pod
	Find  func(uid types.UID) *fit.Neighbour // nil: it is not known
	Nodes func() []*v1.Node                  // by name
	Ours  func(p *fit.Neighbour) bool        // it belongs to a gang
	Open  func(p *fit.Neighbour) bool        // ... and it is not bound, nor about to be
	Same  func(p, q *fit.Neighbour) bool     // two pods are of one gang
	// Room is for how many of these pods GPUs are believed to be on a node.
	Room   func(pods []*fit.Neighbour, node string) int
	Speeds func() any // what the engine knows of them
	Sharer func(p *fit.Neighbour) shared.Sharer
	// Changed hears that claims are others than they were, or also the devices that there are.
	Changed func(devices bool)
	// Resolved hears that what a pod's claims count for is known, Learnt that what it lacks is another.
	Resolved, Learnt func(p *fit.Neighbour)
}

// Pod is what of a pod is about its resource claims.
type Pod struct {
	Keys   []string // its claims, namespace/name
	Known  bool     // they were found; what they count for does not change any more
	Lacks  string   // why they cannot be looked at yet; "": they can
	Wants  string   // what they ask for, as text
	Busy   bool     // grants of its claims are on their way
	Counts Size     // what it pays for
}

// New knows of none; devices of these drivers count as GPUs.
func New(drivers []string, b Books) *Claims {
	return &Claims{books: b, drivers: drivers, claims: map[string]*resourceapi.ResourceClaim{}, classes: Classes{},
		slices: map[string]*resourceapi.ResourceSlice{}, grants: map[string]*grant{},
		payer: map[string]*fit.Neighbour{}, lacking: map[*fit.Neighbour]bool{}, sizes: map[string]Size{},
		ways: map[string]Way{}}
}

// grant is a claim whose devices are chosen, or which is allocated, and that is being reserved for pods, or taken back
// from them.
type grant struct {
	uid        types.UID
	allocation *resourceapi.AllocationResult
	pods       map[*fit.Neighbour]bool
}

// Changed books a claim, a class or a slice as it is now.
func (all *Claims) Changed(obj any) {
	switch o := obj.(type) {
	case *resourceapi.ResourceClaim:
		key := cache.MetaObjectToName(o).String()
		// it may be known better: from an answer that came before the watch
		if old := all.claims[key]; old != nil && old.UID == o.UID && !newer(o.ResourceVersion, old.ResourceVersion) {
			return
		}
		all.claims[key] = o
		all.changed(false)
	case *resourceapi.ResourceSlice:
		all.slices[o.Name] = o
		all.changed(true)
	case *resourceapi.DeviceClass:
		all.classes[o.Name] = o
		all.changed(true)
	}
}

// Written books claims as they were written, before a watch says so.
func (all *Claims) Written(list []*resourceapi.ResourceClaim) {
	for _, c := range list {
		all.Changed(c)
	}
}

// newer reports whether a resource version is after another.
func newer(a, b string) bool { return len(a) > len(b) || len(a) == len(b) && a > b }

// Gone books that one of them is not there any more.
func (all *Claims) Gone(obj any) {
	switch o := obj.(type) {
	case *resourceapi.ResourceClaim:
		key := cache.MetaObjectToName(o).String()
		if old := all.claims[key]; old != nil && old.UID == o.UID {
			delete(all.claims, key)
			all.changed(false)
		}
	case *resourceapi.ResourceSlice:
		delete(all.slices, o.Name)
		all.changed(true)
	case *resourceapi.DeviceClass:
		delete(all.classes, o.Name)
		all.changed(true)
	}
}

// changed looks again for the claims of pods that lack them.
func (all *Claims) changed(devices bool) {
	if all.used = nil; devices {
		all.found, all.sizes, all.ways = nil, map[string]Size{}, map[string]Way{}
	}
	all.books.Changed(devices)
	for p := range all.lacking {
		part := all.books.Part(p)
		was := part.Lacks
		if all.Resolve(p); part.Lacks != was {
			all.books.Learnt(p)
		}
	}
}

// Moved reports whether claims of a pod are used elsewhere now that it is: whether a pod of ours pays for them is
// another matter then.
func (all *Claims) Moved(p *fit.Neighbour) bool {
	if len(all.books.Part(p).Keys) == 0 {
		return false
	}
	all.used = nil
	return true
}

// Resolve finds the claims of a pod of ours, and what they count for. They may not be made yet.
func (all *Claims) Resolve(p *fit.Neighbour) {
	part := all.books.Part(p)
	if len(p.Obj.Spec.ResourceClaims) == 0 || !all.books.Ours(p) || part.Known {
		return
	}
	found, err := all.resolved(p)
	if err != nil {
		*part = Pod{Lacks: err.Error()}
		all.lacking[p] = true
		return
	}
	*part = found
	delete(all.lacking, p)
	all.used = nil
	all.books.Resolved(p)
}

func (all *Claims) resolved(p *fit.Neighbour) (found Pod, err error) {
	keys, err := all.keysOf(p.Obj)
	if err != nil {
		return found, err
	}
	found = Pod{Keys: keys, Known: true}
	var asks []any
	for _, key := range keys {
		if payer := all.payer[key]; payer == nil || payer == p {
			s, err := all.sizeOf(key, &p.Want)
			if err != nil {
				return found, err
			}
			all.payer[key] = p
			found.Counts = found.Counts.Plus(s)
		}
		asks = append(asks, all.claims[key].Spec)
	}
	found.Wants = string(patch.JSON(asks))
	return found, nil
}

// keysOf finds the claims of a pod; the error says what is missing, or not possible.
func (all *Claims) keysOf(obj *v1.Pod) (keys []string, err error) {
	if !all.Served {
		return nil, errors.New("it has resourceClaims, and the API server does not serve resource.k8s.io/v1 " +
			"(Kubernetes 1.34 and later do)")
	}
	for i := range obj.Spec.ResourceClaims {
		pc := &obj.Spec.ResourceClaims[i]
		name, own, err := resourceclaim.Name(obj, pc)
		switch {
		case errors.Is(err, resourceclaim.ErrClaimNotFound):
			return nil, fmt.Errorf("its resource claim %s of template %s is not made yet", pc.Name,
				*pc.ResourceClaimTemplateName)
		case err != nil:
			return nil, err
		case name == nil: // the pod needs none after all
			continue
		}
		key := obj.Namespace + "/" + *name
		c := all.claims[key]
		if err := usable(c, *name); err != nil {
			return nil, err
		}
		if own {
			if err := resourceclaim.IsForPod(obj, c, false); err != nil {
				return nil, err
			}
		}
		if !slices.Contains(keys, key) {
			keys = append(keys, key)
		}
	}
	return keys, nil
}

// usable says why no pod can have a claim now.
func usable(c *resourceapi.ResourceClaim, name string) error {
	switch {
	case c == nil:
		return fmt.Errorf("resource claim %s does not exist", name)
	case c.DeletionTimestamp != nil:
		return fmt.Errorf("resource claim %s is being deleted", name)
	}
	for i := range c.Spec.Devices.Requests {
		if r := c.Spec.Devices.Requests[i].Exactly; r != nil && r.AdminAccess != nil && *r.AdminAccess {
			return fmt.Errorf("request %s of resource claim %s is for adminAccess, which Muster does not give",
				c.Spec.Devices.Requests[i].Name, name)
		}
	}
	return nil
}

// Unpay lets other pods count what one counted: it is over. It reports whether it counted any.
func (all *Claims) Unpay(p *fit.Neighbour) (counted bool) {
	delete(all.lacking, p)
	for _, key := range all.books.Part(p).Keys {
		if all.payer[key] == p {
			delete(all.payer, key)
			all.used, counted = nil, true
		}
	}
	return counted
}

// allocation is where a claim is, or is going to be; nil: that is open.
func (all *Claims) allocation(key string) *resourceapi.AllocationResult {
	c := all.claims[key]
	if g := all.grants[key]; g != nil && (c == nil || c.UID == g.uid) {
		return g.allocation
	}
	if c == nil {
		return nil
	}
	return c.Status.Allocation
}

// reaches reports whether an allocation can be used on a node.
func reaches(a *resourceapi.AllocationResult, n *v1.Node) bool {
	if a.NodeSelector == nil {
		return true
	}
	sel, err := nodeaffinity.NewNodeSelector(a.NodeSelector)
	return err == nil && sel.Match(n)
}

// Reach reports whether a pod's claims that are allocated can be used on a node; nil: it is gone.
func (all *Claims) Reach(p *fit.Neighbour, n *v1.Node) bool {
	return !slices.ContainsFunc(all.books.Part(p).Keys, func(key string) bool {
		a := all.allocation(key)
		return a != nil && (n == nil || !reaches(a, n))
	})
}

// Shared reports whether two of the pods use one claim that is not allocated yet: then it is not known where they can
// be together.
func (all *Claims) Shared(pods []*fit.Neighbour) bool {
	seen := map[string]bool{}
	for _, p := range pods {
		for _, key := range all.books.Part(p).Keys {
			if seen[key] && all.allocation(key) == nil {
				return true
			}
			seen[key] = true
		}
	}
	return false
}

// Place is where a pod goes.
type Place struct {
	Pod  *fit.Neighbour
	Node string
	Obj  *v1.Node // nil: it is gone
}

// GrantAll chooses the devices of all pods of a gang; why says which cannot have them, and then none has.
func (all *Claims) GrantAll(places []Place) (why string) {
	for i, x := range places {
		if why := all.Grant(x); why != "" {
			for _, done := range places[:i] {
				all.Ungrant(done.Pod)
			}
			return fmt.Sprintf("pod %s: %s", x.Pod.Obj.Name, why)
		}
	}
	return ""
}

// Grant chooses the devices of a pod; why says what is missing.
func (all *Claims) Grant(x Place) (why string) {
	p, node, n := x.Pod, x.Node, x.Obj
	if len(p.Obj.Spec.ResourceClaims) == 0 {
		return ""
	}
	part := all.books.Part(p)
	switch {
	case part.Lacks != "":
		return part.Lacks
	case part.Busy:
		return "its devices are being taken back"
	case n == nil:
		return "node " + node + " is gone"
	}
	var open []*resourceapi.ResourceClaim
	for _, key := range part.Keys {
		c := all.claims[key]
		if err := usable(c, nameOf(key)); err != nil {
			return err.Error()
		}
		if a := all.allocation(key); a == nil {
			open = append(open, c)
		} else if !reaches(a, n) {
			return fmt.Sprintf("resource claim %s is allocated to devices that node %s does not reach", c.Name, node)
		}
	}
	results, err := all.allocate(n, all.takenOn(node, false).Insert(all.unfit(&p.Want, node)...), open)
	if err != nil {
		return err.Error()
	}
	for i, c := range open {
		key := cache.MetaObjectToName(c).String()
		all.grants[key] = &grant{uid: c.UID, allocation: &results[i], pods: map[*fit.Neighbour]bool{}}
	}
	all.hold(p)
	return ""
}

func nameOf(key string) string {
	_, name, err := cache.SplitMetaNamespaceKey(key)
	if err != nil {
		return key
	}
	return name
}

// hold notes that what becomes of a pod's claims is on its way.
func (all *Claims) hold(p *fit.Neighbour) {
	part := all.books.Part(p)
	for _, key := range part.Keys {
		g := all.grants[key]
		if g == nil {
			c := all.claims[key]
			g = &grant{uid: c.UID, allocation: c.Status.Allocation, pods: map[*fit.Neighbour]bool{}}
			all.grants[key] = g
		}
		g.pods[p] = true
	}
	part.Busy, all.used = true, nil
}

// Ungrant forgets what is on its way for a pod: it is written, or will not be. It reports whether anything was.
func (all *Claims) Ungrant(p *fit.Neighbour) bool {
	part := all.books.Part(p)
	if !part.Busy {
		return false
	}
	for _, key := range part.Keys {
		if g := all.grants[key]; g != nil {
			if delete(g.pods, p); len(g.pods) == 0 {
				delete(all.grants, key)
			}
		}
	}
	part.Busy = false
	all.changed(false)
	return true
}

// Given lists what is to be written for a pod.
func (all *Claims) Given(p *fit.Neighbour) (list []Given) {
	part := all.books.Part(p)
	for _, key := range part.Keys {
		if g, c := all.grants[key], all.claims[key]; g != nil && c != nil && part.Busy {
			list = append(list, Given{claim: c, uid: g.uid, allocation: g.allocation})
		}
	}
	return list
}

// HoldLeft reports whether an earlier scheduler, or an earlier start, reserved a claim of a pod for pods that are not
// bound: that is to be taken back, and is on its way from now on.
func (all *Claims) HoldLeft(p *fit.Neighbour) bool {
	if part := all.books.Part(p); part.Busy || !slices.ContainsFunc(part.Keys, all.idle) {
		return false
	}
	all.hold(p)
	return true
}

// idle reports whether a claim is allocated for no pods but ours that are not bound, nor on their way.
func (all *Claims) idle(key string) bool {
	c := all.claims[key]
	if c == nil || c.Status.Allocation == nil || len(c.Status.ReservedFor) == 0 || all.grants[key] != nil {
		return false
	}
	return !slices.ContainsFunc(c.Status.ReservedFor, func(r resourceapi.ResourceClaimConsumerReference) bool {
		p := all.books.Find(r.UID)
		return r.Resource != "pods" || p == nil || !all.books.Open(p)
	})
}

// claimed is the need of a pod that has claims.
type claimed struct{}

// Read reads whether a pod has any.
func (all *Claims) Read(obj *v1.Pod, _ v1.ResourceList) (fit.Need, bool, error) {
	if len(obj.Spec.ResourceClaims) > 0 {
		return claimed{}, false, nil
	}
	return nil, false, nil
}

// Key is what is wanted of GPUs, which claims have devices, and beside which others the pod would be.
func (all *Claims) Key(p *fit.Neighbour) string {
	key := fmt.Sprint(p.Want, all.settled(p))
	if len(all.books.Part(p).Keys) > 0 && shared.Known(all.books.Speeds()) {
		key += fmt.Sprint(all.books.Sharer(p))
	}
	return key
}

// Limit keeps a pod off devices on which others are, where that is not enough for one of them.
func (all *Claims) Limit(l *fit.Look, p *fit.Neighbour) { all.limitShared(l, p) }

// Together bounds nodes by the devices that are there.
func (all *Claims) Together(l *fit.Look) {
	if !l.Binding {
		all.limitDevices(l)
	}
}
