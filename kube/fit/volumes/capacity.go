package volumes

import (
	"maps"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/muster-gpu/muster/kube/amount"
	"github.com/muster-gpu/muster/kube/fit"
)

// A CSI driver that says so (storageCapacity) publishes how much it can still make
// volumes of, by storage class and for which nodes. A pod goes where it can make the
// volumes that the pod waits for, each by itself, as with kube-scheduler
// (VolumeBinding). A gang is bound as a whole, so what its pods take together is
// counted, too.

// noCapacity is what keeps a pod off nodes for which its volumes cannot be made.
const noCapacity = "too little storage capacity for its volumes"

// capacity is what is left for volumes of a storage class, on some nodes.
type capacity struct {
	name       string
	nodes      labels.Selector
	key, value string // a label that its nodes have; "": it selects them in another way
	largest    int64  // bytes of the largest volume
	left       int64  // bytes of all volumes
}

// capacities are those of a storage class, by a label of their nodes: of a thousand
// nodes each may have its own.
type capacities struct {
	keys []string
	by   map[[2]string][]*capacity
}

// SameCapacity reports whether two states of what a driver can make volumes of are the same in all that is read:
// drivers publish it again and again.
func SameCapacity(a, b *storagev1.CSIStorageCapacity) bool {
	return a.StorageClassName == b.StorageClassName && equality.Semantic.DeepEqual(a.NodeTopology, b.NodeTopology) &&
		equality.Semantic.DeepEqual(a.Capacity, b.Capacity) &&
		equality.Semantic.DeepEqual(a.MaximumVolumeSize, b.MaximumVolumeSize)
}

// capacityOf reads what a driver published; nil: it is of no use.
func capacityOf(name string, c *storagev1.CSIStorageCapacity) *capacity {
	limit := c.Capacity
	if c.MaximumVolumeSize != nil {
		limit = c.MaximumVolumeSize
	}
	if limit == nil || c.NodeTopology == nil {
		return nil
	}
	sel, err := metav1.LabelSelectorAsSelector(c.NodeTopology)
	if err != nil {
		return nil
	}
	p := &capacity{name: name, nodes: sel, largest: amount.Bytes(limit), left: amount.Bytes(limit)}
	if c.Capacity != nil {
		p.left = max(p.left, amount.Bytes(c.Capacity))
	}
	for _, key := range slices.Sorted(maps.Keys(c.NodeTopology.MatchLabels)) {
		p.key, p.value = key, c.NodeTopology.MatchLabels[key]
	}
	return p
}

// capacitiesOf lists what is left of a storage class.
func (all *Volumes) capacitiesOf(class string) *capacities {
	if all.capacities == nil {
		all.capacities = map[string]*capacities{}
		for _, name := range slices.Sorted(maps.Keys(all.reported)) {
			c := all.reported[name]
			p := capacityOf(name, c)
			if p == nil {
				continue
			}
			l := all.capacities[c.StorageClassName]
			if l == nil {
				l = &capacities{by: map[[2]string][]*capacity{}}
				all.capacities[c.StorageClassName] = l
			}
			at := [2]string{p.key, p.value}
			l.by[at] = append(l.by[at], p)
			if !slices.Contains(l.keys, p.key) {
				l.keys = append(l.keys, p.key)
			}
		}
	}
	return all.capacities[class]
}

// of lists what a node can use.
func (l *capacities) of(n *v1.Node) (list []*capacity) {
	if l == nil {
		return nil
	}
	for _, key := range l.keys {
		for _, p := range l.by[[2]string{key, n.Labels[key]}] {
			if p.nodes.Matches(labels.Set(n.Labels)) {
				list = append(list, p)
			}
		}
	}
	return list
}

// sized is how many bytes a claim asks for where its driver says how much it has;
// false: that is not looked at.
func (all *Volumes) sized(w *late) (bytes int64, ok bool) {
	want, asks := w.claim.Spec.Resources.Requests[v1.ResourceStorage]
	driver := all.csiDrivers[w.class.Provisioner]
	return amount.Bytes(&want), asks && driver != nil && driver.Spec.StorageCapacity != nil &&
		*driver.Spec.StorageCapacity
}

// canMake reports whether the driver of a claim's class has what it takes to make a
// volume for it that a node can use.
func (all *Volumes) canMake(w *late, n *v1.Node) bool {
	bytes, ok := all.sized(w)
	return !ok || slices.ContainsFunc(all.capacitiesOf(w.class.Name).of(n), func(p *capacity) bool {
		return p.largest >= bytes
	})
}

// limitPooled bounds nodes by what the volumes of a gang's pods take together. Where volumes of a
// class are there already, the driver need not make them all: then each pod is looked
// at by itself.
func (all *Volumes) limitPooled(l *fit.Look) {
	if len(l.Pods) < 2 {
		return
	}
	users := map[string]int{}
	for _, p := range l.Pods {
		for _, name := range of(p).claims {
			users[name]++
		}
	}
	each := map[string][]int{} // bytes by class, of each pod that wants any of its own
	for _, p := range l.Pods {
		if len(of(p).claims) == 0 {
			continue
		}
		_, open, err := all.claimsFor(p)
		if err != nil {
			return // Limit says so
		}
		sum := map[string]int{}
		for i := range open {
			if bytes, ok := all.sized(&open[i]); ok && users[open[i].claim.Name] == 1 {
				sum[open[i].class.Name] += int(bytes)
			}
		}
		for class, bytes := range sum {
			each[class] = append(each[class], bytes)
		}
	}
	for _, class := range slices.Sorted(maps.Keys(each)) {
		if len(each[class]) == len(l.Pods) && !all.hasFree(class) {
			all.ration(l, class, each[class])
		}
	}
}

// ration bounds the nodes with the same capacity by how many of the gang's pods, whichever they
// are, find their volumes there.
func (all *Volumes) ration(l *fit.Look, class string, each []int) {
	together, most := map[string][]string{}, map[string]int{}
	l.Open(func(name string, n *v1.Node) {
		var names []string
		room := 0
		for _, p := range all.capacitiesOf(class).of(n) {
			names, room = append(names, p.name), room+largest(slices.Clone(each), int(p.left))
		}
		key := strings.Join(names, " ")
		together[key], most[key] = append(together[key], name), room
	})
	for _, key := range slices.Sorted(maps.Keys(together)) {
		if most[key] < len(l.Pods) {
			l.Group(together[key], most[key])
		}
	}
}
