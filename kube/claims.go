package kube

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	v1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/tools/cache"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"
	"k8s.io/dynamic-resource-allocation/resourceclaim"

	"github.com/muster-gpu/muster/kube/fit"
	"github.com/muster-gpu/muster/kube/fit/claims"
)

// Resource claims (dynamic resource allocation, resource.k8s.io/v1) ask for
// devices that drivers publish in slices. Which devices a claim gets is decided
// when its pod is bound: the engine counts GPUs, the looker tells it on which
// nodes the claims can be met (devices.go), and what is chosen is written into the
// claim before the pod is bound (reserve.go). In between it is a grant.

// devices is what the driver knows of resource claims and devices.
type devices struct {
	served  bool // by the API server
	claims  map[string]*resourceapi.ResourceClaim
	classes claims.Classes
	slices  map[string]*resourceapi.ResourceSlice
	grants  map[string]*grant
	payer   map[string]*pod        // whose request counts the GPUs of a claim
	lacking map[*pod]bool          // pods that wait to know their claims
	found   *claims.Pools          // what the slices say; nil: they changed
	sizes   map[string]claims.Size // what claims count for, by what they ask; of these slices
	ways    map[string]claimWay    // how pods would share what claims that are open get, likewise
	used    *taken                 // nil: it changed
}

func newDevices() devices {
	return devices{claims: map[string]*resourceapi.ResourceClaim{}, classes: claims.Classes{},
		slices: map[string]*resourceapi.ResourceSlice{},
		grants: map[string]*grant{}, payer: map[string]*pod{}, lacking: map[*pod]bool{},
		sizes: map[string]claims.Size{}, ways: map[string]claimWay{}}
}

// grant is a claim whose devices are chosen, or which is allocated, and that is
// being reserved for pods, or taken back from them.
type grant struct {
	uid        types.UID
	allocation *resourceapi.AllocationResult
	pods       map[*pod]bool
}

// claimed is what of a pod is about its resource claims.
type claimed struct {
	keys   []string    // its claims, namespace/name
	known  bool        // they were found; what they count for does not change any more
	lacks  string      // why they cannot be looked at yet; "": they can
	wants  string      // what they ask for, as text
	busy   bool        // grants of its claims are on their way
	counts claims.Size // what it pays for
}

// watchDevices watches claims and devices, where the API server has them.
func (d *Driver) watchDevices(ctx context.Context, f informers.SharedInformerFactory) error {
	err := d.untilAnswered(ctx, "are there resource claims?", func(context.Context) error {
		_, err := d.opt.Client.Discovery().ServerResourcesForGroupVersion(resourceapi.SchemeGroupVersion.String())
		return err
	})
	switch {
	case apierrors.IsNotFound(err):
		return nil
	case err != nil:
		return fmt.Errorf("whether the API server has resource claims: %w", err)
	}
	d.dra.served = true
	r := f.Resource().V1()
	return d.watchThese(ctx, f, []watched{
		{r.DeviceClasses().Informer(), d.onClass, d.onClassGone},
		{r.ResourceSlices().Informer(), d.onSlices, d.onSliceGone},
		{r.ResourceClaims().Informer(), d.onClaim, d.onClaimGone},
	})
}

// onClaim books a claim as it is now, unless we know it better: from an answer
// that came before the watch.
func (d *Driver) onClaim(_, obj any) {
	if c, ok := obj.(*resourceapi.ResourceClaim); ok {
		d.inbox.Put(func() { d.claimChanged(c) })
	}
}

func (d *Driver) claimChanged(c *resourceapi.ResourceClaim) {
	key := cache.MetaObjectToName(c).String()
	if old := d.dra.claims[key]; old != nil && old.UID == c.UID && !newer(c.ResourceVersion, old.ResourceVersion) {
		return
	}
	d.dra.claims[key] = c
	d.claimsMoved()
}

// newer reports whether a resource version is after another.
func newer(a, b string) bool { return len(a) > len(b) || len(a) == len(b) && a > b }

func (d *Driver) onClaimGone(obj any) {
	if c, ok := obj.(*resourceapi.ResourceClaim); ok {
		d.inbox.Put(func() {
			key := cache.MetaObjectToName(c).String()
			if old := d.dra.claims[key]; old != nil && old.UID == c.UID {
				delete(d.dra.claims, key)
				d.claimsMoved()
			}
		})
	}
}

// claimsMoved books that claims are others than they were.
func (d *Driver) claimsMoved() {
	d.dra.used = nil
	d.nodesDirty = true
	d.moves++
	d.lookForClaims()
}

// lookForClaims looks again for the claims of pods that lack them.
func (d *Driver) lookForClaims() {
	for p := range d.dra.lacking {
		was := p.claimed.lacks
		if d.resolve(p); p.claimed.lacks != was && p.gang != nil {
			d.touch(p.gang)
		}
	}
}

// resolve finds the claims of a pod, and what they count for. They may not be
// made yet.
func (d *Driver) resolve(p *pod) {
	if len(p.obj.Spec.ResourceClaims) == 0 || p.gang == nil || p.claimed.known {
		return
	}
	keys, err := d.keysOf(p)
	if err != nil {
		p.claimed = claimed{lacks: err.Error()}
		d.dra.lacking[p] = true
		return
	}
	c := claimed{keys: keys, known: true}
	var asks []any
	for _, key := range keys {
		if payer := d.dra.payer[key]; payer == nil || payer == p {
			s, err := d.sizeOf(key, &p.Want)
			if err != nil {
				p.claimed = claimed{lacks: err.Error()}
				d.dra.lacking[p] = true
				return
			}
			d.dra.payer[key] = p
			c.counts = c.counts.Plus(s)
		}
		asks = append(asks, d.dra.claims[key].Spec)
	}
	c.wants = jsonText(asks)
	p.claimed = c
	p.request = c.counts.Add(d.gpus.RequestOf(p.obj))
	p.around = fit.Around(p.obj) + c.wants
	delete(d.dra.lacking, p)
	d.dra.used = nil
}

func jsonText(v any) string {
	text, err := json.Marshal(v)
	if err != nil {
		panic(err) // it came as JSON
	}
	return string(text)
}

// keysOf finds the claims of a pod; the error says what is missing, or not
// possible.
func (d *Driver) keysOf(p *pod) (keys []string, err error) {
	if !d.dra.served {
		return nil, errors.New("it has resourceClaims, and the API server does not serve resource.k8s.io/v1 (Kubernetes 1.34 and later do)")
	}
	for i := range p.obj.Spec.ResourceClaims {
		pc := &p.obj.Spec.ResourceClaims[i]
		name, own, err := resourceclaim.Name(p.obj, pc)
		switch {
		case errors.Is(err, resourceclaim.ErrClaimNotFound):
			return nil, fmt.Errorf("its resource claim %s of template %s is not made yet", pc.Name,
				*pc.ResourceClaimTemplateName)
		case err != nil:
			return nil, err
		case name == nil: // the pod needs none after all
			continue
		}
		key := p.obj.Namespace + "/" + *name
		c := d.dra.claims[key]
		if err := usable(c, *name); err != nil {
			return nil, err
		}
		if own {
			if err := resourceclaim.IsForPod(p.obj, c, false); err != nil {
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

// unpay lets others count what a pod counted: it is over.
func (d *Driver) unpay(p *pod) {
	delete(d.dra.lacking, p)
	for _, key := range p.claimed.keys {
		if d.dra.payer[key] == p {
			delete(d.dra.payer, key)
			d.dra.used, d.nodesDirty = nil, true
		}
	}
}

// allocation is where a claim is, or is going to be; nil: that is open.
func (d *Driver) allocation(key string) *resourceapi.AllocationResult {
	c := d.dra.claims[key]
	if g := d.dra.grants[key]; g != nil && (c == nil || c.UID == g.uid) {
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

// shares reports whether two of the pods use one claim that is not allocated
// yet: then it is not known where they can be together.
func (d *Driver) shares(pods []*pod) bool {
	seen := map[string]bool{}
	for _, p := range pods {
		for _, key := range p.claimed.keys {
			if seen[key] && d.allocation(key) == nil {
				return true
			}
			seen[key] = true
		}
	}
	return false
}

// grantAll chooses the devices of all pods of a gang that has its places; why
// says who cannot have them, and then nobody has.
func (d *Driver) grantAll(g *gang) (why string) {
	var done []*pod
	for i := range g.slots {
		p := g.pods[g.slots[i].pod]
		if g.slots[i].beyond || p.claimed.busy {
			continue
		}
		if why := d.grant(p, g.slots[i].node); why != "" {
			for _, q := range done {
				d.ungrant(q)
			}
			return fmt.Sprintf("pod %s: %s", p.obj.Name, why)
		}
		done = append(done, p)
	}
	return ""
}

// grant chooses the devices of a pod that goes to a node; why says what is
// missing.
func (d *Driver) grant(p *pod, node string) (why string) {
	if len(p.obj.Spec.ResourceClaims) == 0 {
		return ""
	}
	n := d.nodes[node]
	switch {
	case p.claimed.lacks != "":
		return p.claimed.lacks
	case p.claimed.busy:
		return "its devices are being taken back"
	case n == nil || n.obj == nil:
		return "node " + node + " is gone"
	}
	var open []*resourceapi.ResourceClaim
	for _, key := range p.claimed.keys {
		c := d.dra.claims[key]
		if err := usable(c, nameOf(key)); err != nil {
			return err.Error()
		}
		if a := d.allocation(key); a == nil {
			open = append(open, c)
		} else if !reaches(a, n.obj) {
			return fmt.Sprintf("resource claim %s is allocated to devices that node %s does not reach", c.Name, node)
		}
	}
	results, err := d.allocate(n.obj, d.takenOn(node, false).Insert(d.unfit(&p.Want, node)...), open)
	if err != nil {
		return err.Error()
	}
	for i, c := range open {
		key := cache.MetaObjectToName(c).String()
		d.dra.grants[key] = &grant{uid: c.UID, allocation: &results[i], pods: map[*pod]bool{}}
	}
	d.hold(p)
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
func (d *Driver) hold(p *pod) {
	for _, key := range p.claimed.keys {
		g := d.dra.grants[key]
		if g == nil {
			c := d.dra.claims[key]
			g = &grant{uid: c.UID, allocation: c.Status.Allocation, pods: map[*pod]bool{}}
			d.dra.grants[key] = g
		}
		g.pods[p] = true
	}
	p.claimed.busy, d.dra.used = true, nil
}

// ungrant forgets what is on its way for a pod: it is written, or will not be.
func (d *Driver) ungrant(p *pod) {
	if !p.claimed.busy {
		return
	}
	for _, key := range p.claimed.keys {
		if g := d.dra.grants[key]; g != nil {
			if delete(g.pods, p); len(g.pods) == 0 {
				delete(d.dra.grants, key)
			}
		}
	}
	p.claimed.busy = false
	d.claimsMoved()
	if p.gang != nil {
		d.touch(p.gang)
	}
}

// given lists what is to be written for a pod.
func (d *Driver) given(p *pod) (list []given) {
	for _, key := range p.claimed.keys {
		if g, c := d.dra.grants[key], d.dra.claims[key]; g != nil && c != nil && p.claimed.busy {
			list = append(list, given{claim: c, uid: g.uid, allocation: g.allocation})
		}
	}
	return list
}

// leftover takes back what an earlier scheduler, or an earlier start, reserved
// for pods of a gang that are not bound, and reports whether there is any.
func (d *Driver) leftover(g *gang) bool {
	busy := false
	for _, p := range g.sorted() {
		if p.node != "" || p.binding || len(p.claimed.keys) == 0 {
			continue
		}
		if !p.claimed.busy && slices.ContainsFunc(p.claimed.keys, d.idle) {
			d.hold(p)
			d.takeBack(p)
		}
		busy = busy || p.claimed.busy
	}
	if busy && g.phase == gathering {
		g.refused = "devices of an earlier start are being taken back"
	}
	return busy
}

// idle reports whether a claim is allocated for nobody but pods of ours that are
// not bound, nor on their way.
func (d *Driver) idle(key string) bool {
	c := d.dra.claims[key]
	if c == nil || c.Status.Allocation == nil || len(c.Status.ReservedFor) == 0 || d.dra.grants[key] != nil {
		return false
	}
	return !slices.ContainsFunc(c.Status.ReservedFor, func(r resourceapi.ResourceClaimConsumerReference) bool {
		p := d.pods[r.UID]
		return r.Resource != "pods" || p == nil || p.gang == nil || p.node != "" || p.binding || p.over() ||
			p.gang.phase == starting
	})
}

// lacking says which pod of a gang waits for claims, and for which; "": none.
func (g *gang) lacking() string {
	for _, p := range g.sorted() {
		if p.claimed.lacks != "" && p.node == "" && !p.over() {
			return fmt.Sprintf("pod %s: %s", p.obj.Name, p.claimed.lacks)
		}
	}
	return ""
}

func (d *Driver) onSlices(_, obj any) { d.slicesMoved(func() { keepIn(d.dra.slices, obj) }) }

func (d *Driver) onSliceGone(obj any) { d.slicesMoved(func() { dropFrom(d.dra.slices, obj) }) }

func (d *Driver) onClass(_, obj any) { d.slicesMoved(func() { keepIn(d.dra.classes, obj) }) }

func (d *Driver) onClassGone(obj any) { d.slicesMoved(func() { dropFrom(d.dra.classes, obj) }) }

func (d *Driver) slicesMoved(f func()) {
	d.inbox.Put(func() {
		f()
		d.dra.found, d.dra.used, d.dra.sizes, d.dra.ways = nil, nil, map[string]claims.Size{}, map[string]claimWay{}
		d.sizesDirty, d.nodesDirty = true, true
		d.moves++
		d.lookForClaims()
	})
}

func keepIn[T interface{ GetName() string }](list map[string]T, obj any) {
	if o, ok := obj.(T); ok {
		list[o.GetName()] = o
	}
}

func dropFrom[T interface{ GetName() string }](list map[string]T, obj any) {
	if o, ok := obj.(T); ok {
		delete(list, o.GetName())
	}
}

// pinned reports whether a pod's claims that are allocated can be used on a node, and
// its volumes are reached from there.
func (d *Driver) pinned(p *pod, node string) bool {
	n := d.nodes[node]
	if n != nil && n.obj != nil && !d.volumes.Reach(&p.Neighbour, n.obj) {
		return false
	}
	return !slices.ContainsFunc(p.claimed.keys, func(key string) bool {
		a := d.allocation(key)
		return a != nil && (n == nil || n.obj == nil || !reaches(a, n.obj))
	})
}
