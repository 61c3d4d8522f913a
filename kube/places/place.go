// Package places says where a gang is: a place for each of its tasks, which pod has it, and which of the gang's devices
// go with it. Places are taken out of a gang, and those of another put in, by arithmetic that knows no pods and no
// nodes but by name.
package places

import (
	"slices"

	"k8s.io/apimachinery/pkg/types"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/engine"
	"github.com/muster-gpu/muster/kube/holds"
	"github.com/muster-gpu/muster/kube/nodes"
	"github.com/muster-gpu/muster/kube/plans"
)

// Place is where one task is.
type Place struct {
	Node string
	Set  int       // the task set that it is of
	Pod  types.UID // that has it; "": none, or none any more
	Done bool      // its pod succeeded
	Lost bool      // its node takes no pods, and the gang is to be repaired
	// It is beyond what the gang needs: the gang is divided when it has that.
	Surplus bool
}

// List is the places of a gang, one for each task.
type List []Place

// Of lists the places of a plan.
func Of(p *plans.Plan) (list List) {
	for _, on := range p.On {
		for range on.Tasks {
			list = append(list, Place{Node: on.Node, Set: on.Set})
		}
	}
	return list
}

// On is where a plan says that allocations are; order is the names of nodes by their numbers.
func On(allocs []engine.Alloc, order []string) (list []plans.On) {
	for i := range allocs {
		a := &allocs[i]
		list = append(list, plans.On{Node: order[a.Node], Set: int(a.Set), Tasks: int(a.Tasks)})
	}
	return list
}

// AddTo adds the places to a plan.
func (l List) AddTo(p *plans.Plan) {
	for i := range l {
		p.Put(l[i].Node, l[i].Set)
	}
}

// Has reports whether a pod has one of the places.
func (l List) Has(pod types.UID) bool {
	return slices.ContainsFunc(l, func(s Place) bool { return s.Pod == pod })
}

// Empty counts the places that no pod has.
func (l List) Empty() (n int) {
	for i := range l {
		if l[i].Pod == "" {
			n++
		}
	}
	return n
}

// HasSurplus reports whether some are beyond what the gang needs.
func (l List) HasSurplus() bool {
	return slices.ContainsFunc(l, func(s Place) bool { return s.Surplus })
}

// Needed lists those that are not beyond what the gang needs.
func (l List) Needed() List {
	return slices.DeleteFunc(slices.Clone(l), func(s Place) bool { return s.Surplus })
}

// Nodes lists the nodes, each once, in the order of their first places.
func (l List) Nodes() (names []string) {
	for i := range l {
		if !slices.Contains(names, l[i].Node) {
			names = append(names, l[i].Node)
		}
	}
	return names
}

// PerNode counts the places on each node.
func (l List) PerNode() map[string]int {
	on := map[string]int{}
	for i := range l {
		on[l[i].Node]++
	}
	return on
}

// WholeGPUs counts the GPUs that the places have of each node, but for parts of GPUs.
func (l List) WholeGPUs(tasks []cluster.TaskSet) map[string]int {
	on := map[string]int{}
	for i := range l {
		if r := &tasks[l[i].Set].Request; !r.Fractional() {
			on[l[i].Node] += holds.WholeGPUs(r)
		}
	}
	return on
}

// Bound is a pod and the node that it is bound to.
type Bound struct {
	*nodes.Pod
	Node string
}

// Seat gives pods that are found bound the empty places on their nodes, and lists those that there is none for. A pod
// that asks for exactly what a place is for comes first; one whose CPU or memory was resized since has it all the same.
func (l List) Seat(tasks []cluster.TaskSet, pods []Bound) (without []Bound) {
	var rest []Bound
	for _, q := range pods {
		if !l.take(tasks, q, q.Asks) {
			rest = append(rest, q)
		}
	}
	for _, q := range rest {
		if !l.take(tasks, q, q.SameDevices) {
			without = append(without, q)
		}
	}
	return without
}

func (l List) take(tasks []cluster.TaskSet, q Bound, fits func(*cluster.Request) bool) bool {
	i := slices.IndexFunc(l, func(s Place) bool {
		return s.Pod == "" && s.Node == q.Node && fits(&tasks[s.Set].Request)
	})
	if i >= 0 {
		l[i].Pod = q.Obj.UID
	}
	return i >= 0
}
