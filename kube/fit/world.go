package fit

import (
	"fmt"
	"maps"
	"slices"

	v1 "k8s.io/api/core/v1"

	"github.com/muster-gpu/muster/kube/gpus"
	"github.com/muster-gpu/muster/kube/patch"
)

// Need is what a pod asks for by one predicate; each has a type of its own.
type Need any

// Neighbour is a pod among others.
type Neighbour struct {
	Obj   *v1.Pod
	Where string // the node on which it counts; "": none
	Needs []Need // what of it depends on what else is on the nodes; nil: nothing
	Err   error  // why that cannot be read; nil: it can
	// Serial: pods like it are in each other's way, so that where one may go is known only when the one before
	// it has its place.
	Serial bool
	// Counted is the resource by which it has a part of a GPU, one, if the engine counts that; "": it has none.
	Counted v1.ResourceName
	Replica gpus.Replica // what it asks for of replicas of shared GPUs
	Want    gpus.Want    // what its gang needs of each of its GPUs
	// Around is what else of it decides where its neighbours let it run, of a pod that may ask: what the function says,
	// and what its claims want.
	Around string
	Record any // what the scheduler knows of it besides
}

// Of is what a pod asks for of one kind; false: it asks for nothing of it.
func Of[N Need](p *Neighbour) (n N, ok bool) {
	for _, need := range p.Needs {
		if n, ok = need.(N); ok {
			return n, true
		}
	}
	return n, false
}

// Predicate looks at what else is on the nodes. What more it can do, it says by the interfaces below.
type Predicate interface {
	// Read is what a pod asks for; nil: nothing of the kind. serial: pods like it are in each other's way.
	Read(obj *v1.Pod, requests v1.ResourceList) (need Need, serial bool, err error)
	// Key is what it goes by of a pod at the moment, besides what Around has: pods with the same keys are told the
	// same.
	Key(p *Neighbour) string
	// Limit bounds what nodes take of one of the pods that are asked about.
	Limit(l *Look, p *Neighbour)
}

// Keeper keeps counts of which pods are where, exactly undoable.
type Keeper interface {
	// Put counts a pod that is on its node now (+1), or not any more (-1), really or supposed. Of the pod it may
	// go by its needs and its place only.
	Put(w *World, p *Neighbour, by int)
	// NodeChanged: a node is another than it was.
	NodeChanged(w *World, node string)
}

// Joint bounds what nodes take of pods that start together, for what they are to each other.
type Joint interface{ Together(l *Look) }

// Symmetric keeps also pods off nodes that ask for nothing themselves.
type Symmetric interface {
	// Active reports whether there is anything at present that may.
	Active() bool
}

// Verifier looks at pods that are about to be bound, so many on each node: bounds for each node alone do not say all.
type Verifier interface {
	// Verify says why they may not be; "": they may.
	Verify(w *World, ask *Ask, on map[string]int) string
}

// Blocker knows which pods are in the way.
type Blocker interface {
	// Blocks lists the labels of nodes by which q can keep p off those with the value of its own; "": off its own node.
	Blocks(w *World, p, q *Neighbour) []string
}

// Distinct tells pods apart that ask for the same.
type Distinct interface {
	// Alike reports whether each of two pods can go wherever the other can, as far as it knows.
	Alike(p, q *Neighbour) bool
}

// World is which pods are on which nodes. It belongs to one goroutine.
type World struct {
	list      []Predicate
	keepers   []Keeper    // those of them
	symmetric []Symmetric // ... likewise

	nodes  map[string]*place
	spaces map[string]map[string]string // labels of namespaces
	hidden map[*Neighbour]bool          // pods that do not count at the moment
	shy    []v1.Taint                   // of nodes, with PreferNoSchedule

	version int               // counts changes after which answers may be others
	known   map[string]Limits // what was found for single pods since the last, by what they ask for
	knownOf int               // ... that version
}

// place is a node, and the pods that are on it or going there.
type place struct {
	obj  *v1.Node // nil: it is gone
	pods map[*Neighbour]bool
}

// having are the pods with a place that have a need of a kind.
type having[N Need] map[*Neighbour]bool

// Put notes whether a pod is one of them.
func (h having[N]) Put(_ *World, p *Neighbour, by int) {
	if by < 0 {
		delete(h, p)
	} else if _, ok := Of[N](p); ok {
		h[p] = true
	}
}

// NodeChanged changes nothing.
func (having[N]) NodeChanged(*World, string) {}

// Books are what the predicates ask of the user, which counts GPUs.
type Books struct {
	Free func(node string) int // GPUs of a node that no pod has
	// Besides is what of a pod's requests is not counted.
	Besides func(obj *v1.Pod, requests v1.ResourceList) map[v1.ResourceName]int64
}

// Neighbours lists the predicates of this package that look at what else is on the nodes.
func Neighbours(b Books) []Predicate {
	return []Predicate{
		&crowd{full: map[string]bool{}},
		&apart{having[apartNeed]{}},
		near{b.Free},
		spread{},
		&ports{having[portsNeed]{}},
		extended{b.Besides},
	}
}

// NewWorld is a world without nodes and pods, with these predicates.
func NewWorld(list ...Predicate) *World {
	w := &World{list: list, nodes: map[string]*place{}, spaces: map[string]map[string]string{},
		hidden: map[*Neighbour]bool{}}
	for _, f := range list {
		if k, ok := f.(Keeper); ok {
			w.keepers = append(w.keepers, k)
		}
		if s, ok := f.(Symmetric); ok {
			w.symmetric = append(w.symmetric, s)
		}
	}
	return w
}

// Read reads what a pod asks for, as it is now.
func (w *World) Read(p *Neighbour, requests v1.ResourceList) {
	counts := p.Where != "" && !w.hidden[p]
	if counts {
		w.count(p, -1)
	}
	p.Needs, p.Err, p.Serial = nil, nil, false
	for _, f := range w.list {
		need, serial, err := f.Read(p.Obj, requests)
		if err != nil {
			need, p.Err = unreadable{}, err
		}
		if need != nil {
			p.Needs, p.Serial = append(p.Needs, need), p.Serial || serial
		}
	}
	if counts {
		w.count(p, 1)
	}
}

// unreadable stands for what cannot be read.
type unreadable struct{}

// Around is what of a pod decides where its neighbours let it run, as text: but for resources, ports and the like,
// which are the predicates' keys.
func Around(obj *v1.Pod) string {
	s := &obj.Spec
	return string(patch.JSON([]any{obj.Namespace, obj.Labels, s.NodeSelector, s.Affinity, s.Tolerations,
		s.TopologySpreadConstraints, s.Volumes}))
}

// Key is what predicates go by of a pod besides that.
func (w *World) Key(p *Neighbour) string {
	var keys []string
	for _, f := range w.list {
		keys = append(keys, f.Key(p))
	}
	return fmt.Sprintf("%q", keys)
}

// SetNode books a node as it is now; nil: it is gone.
func (w *World) SetNode(name string, obj *v1.Node) {
	w.place(name).obj = obj
	w.nodeChanged(name)
}

// Forget drops a node that is gone and on which nothing is.
func (w *World) Forget(name string) {
	if n := w.nodes[name]; n != nil && n.obj == nil && len(n.pods) == 0 {
		delete(w.nodes, name)
		w.nodeChanged(name)
	}
}

func (w *World) nodeChanged(name string) {
	for _, k := range w.keepers {
		k.NodeChanged(w, name)
	}
}

func (w *World) place(name string) *place {
	n := w.nodes[name]
	if n == nil {
		n = &place{pods: map[*Neighbour]bool{}}
		w.nodes[name] = n
	}
	return n
}

// Changed notes that something is another that answers depend on: where pods are, nodes, or what predicates know.
func (w *World) Changed() { w.version++ }

// Version is another whenever answers may be.
func (w *World) Version() int { return w.version }

// LimitsNow is Limits, or none where it does not matter to the pods what is around them. For a single pod it is found
// once, until something changes, for all of which the same is known; where pods are hidden, each time.
func (w *World) LimitsNow(ask Ask) Limits {
	switch {
	case !slices.ContainsFunc(ask.Pods, w.Matters):
		return Limits{}
	case len(ask.Pods) != 1 || len(w.hidden) > 0:
		return w.Limits(ask)
	}
	if w.knownOf != w.version {
		w.knownOf, w.known = w.version, map[string]Limits{}
	}
	p := ask.Pods[0]
	key := fmt.Sprint(ask.Binding, ask.Careful, p.Around, w.Key(p))
	l, ok := w.known[key]
	if !ok {
		l = w.Limits(ask)
		w.known[key] = l
	}
	return l
}

// Matters reports whether it matters to a pod what is around it.
func (w *World) Matters(p *Neighbour) bool { return w.Active() || p.Needs != nil }

// SetSpace books the labels of a namespace, and reports whether they are others than before.
func (w *World) SetSpace(name string, labels map[string]string) bool {
	if maps.Equal(w.spaces[name], labels) {
		return false
	}
	w.spaces[name] = labels
	w.Changed()
	return true
}

// Put has a pod count on a node.
func (w *World) Put(p *Neighbour, node string) {
	p.Where = node
	w.add(p)
}

// Remove has a pod count nowhere.
func (w *World) Remove(p *Neighbour) {
	w.take(p)
	p.Where = ""
}

func (w *World) add(p *Neighbour) {
	w.place(p.Where).pods[p] = true
	w.count(p, 1)
}

func (w *World) take(p *Neighbour) {
	delete(w.place(p.Where).pods, p)
	w.count(p, -1)
}

func (w *World) count(p *Neighbour, by int) {
	for _, k := range w.keepers {
		k.Put(w, p, by)
	}
}

// Without looks at the world as if some pods were not there. Those that have no place, or are hidden already, do not
// matter.
func (w *World) Without(pods []*Neighbour, look func()) {
	var list []*Neighbour
	for _, p := range pods {
		if p.Where != "" && !w.hidden[p] {
			w.hidden[p] = true
			w.take(p)
			list = append(list, p)
		}
	}
	look()
	for _, p := range list {
		delete(w.hidden, p)
		w.add(p)
	}
}

// Hidden are the pods that do not count at the moment.
func (w *World) Hidden() map[*Neighbour]bool { return w.hidden }

// Node is a node; nil: it is not there.
func (w *World) Node(name string) *v1.Node {
	if n := w.nodes[name]; n != nil {
		return n.obj
	}
	return nil
}

// On is the pods that are on a node, or going there.
func (w *World) On(name string) map[*Neighbour]bool {
	if n := w.nodes[name]; n != nil {
		return n.pods
	}
	return nil
}

// Each calls f for all pods that have a place.
func (w *World) Each(f func(q *Neighbour)) {
	for _, n := range w.nodes {
		for q := range n.pods {
			f(q)
		}
	}
}

// Domain is a node's value of a label; false: it has none.
func (w *World) Domain(name, key string) (string, bool) {
	n := w.Node(name)
	if n == nil {
		return "", false
	}
	v, ok := n.Labels[key]
	return v, ok
}

// Active reports whether something keeps also pods off nodes that ask for nothing.
func (w *World) Active() bool {
	for _, s := range w.symmetric {
		if s.Active() {
			return true
		}
	}
	return false
}

// Blocks lists the labels of nodes by which q can keep p off those with the value of its own; "": off its own node.
func (w *World) Blocks(p, q *Neighbour) (keys []string) {
	for _, f := range w.list {
		if b, ok := f.(Blocker); ok {
			keys = append(keys, b.Blocks(w, p, q)...)
		}
	}
	return keys
}

// Alike reports whether each of two pods can go wherever the other can, as far as their neighbours go.
func (w *World) Alike(p, q *Neighbour) bool {
	return (p.Needs == nil) == (q.Needs == nil) && !slices.ContainsFunc(w.list, func(f Predicate) bool {
		d, ok := f.(Distinct)
		return ok && !d.Alike(p, q)
	})
}
