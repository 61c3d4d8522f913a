package fit

import (
	"slices"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/muster-gpu/muster/kube/gpus"
)

// devices are the GPUs that a pod asks for by name: of one vendor's there are none at another's, and of a slice or a
// shared GPU none where there are no such.
type devices struct{ *gpus.Names }

// Key is the resources of that kind that the pod asks for.
func (d devices) Key(p *Pod) any {
	var list []string
	for name, q := range p.Requests {
		if d.Has(name) && !(slices.Contains(d.GPUs, string(name)) && q.IsZero()) {
			list = append(list, string(name))
		}
	}
	slices.Sort(list)
	return list
}

// Suits looks whether the node has any of each.
func (d devices) Suits(p *Pod, n *v1.Node) string {
	for _, name := range d.GPUs {
		want, have := p.Requests[v1.ResourceName(name)], n.Status.Capacity[v1.ResourceName(name)]
		if !want.IsZero() && have.IsZero() {
			return "no " + name
		}
	}
	for name := range p.Requests {
		if _, slice := d.Slice(name); slice {
			if have := n.Status.Capacity[name]; have.IsZero() {
				return "no " + string(name)
			}
		}
	}
	return ""
}

// Differs compares what the nodes have of them.
func (d devices) Differs(a, b *v1.Node) bool {
	x, y := a.Status.Capacity, b.Status.Capacity
	for _, list := range []v1.ResourceList{x, y} {
		for name := range list {
			if d.Has(name) && !x.Name(name, resource.DecimalSI).Equal(*y.Name(name, resource.DecimalSI)) {
				return true
			}
		}
	}
	return false
}
