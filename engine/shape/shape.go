// Package shape groups jobs with the same requirements: what fits for one job of a shape fits for
// all.
package shape

import (
	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/engine/inventory"
)

// Shape is a class of identical requirements: what fits for one job of a shape fits for all, and
// what failed for one fails for all.
type Shape struct {
	Sets       []cluster.TaskSet
	Min        int32 // least tasks of the first set (elastic), else its count
	Max        int32
	Types      []string
	Partitions []string
	Topo       cluster.Topology
	Most       Bounds
	NoPreempt  bool                 // its jobs preempt no others
	Stale      bool                 // classes must be computed again: a new class appeared
	Suits      []inventory.ClassSet // by task set: all classes on which its tasks can ever run
	Any        inventory.ClassSet   // union of Suits of the sets with GPUs, else of all sets: where it competes
	Stages     []Stage              // single tasks
	Gangs      []Stage
	GPUs       int // devices at the smallest size

	Waiting int32 // jobs in line
	Failed  int64

	Judged  int // number of nodes when Verdict was computed
	Verdict string
	Models  []ModelShape // the same shape on a single GPU model, as plans demand
}

// StagesOf returns the sets of classes among which the shape's GPUs can be.
func (s *Shape) StagesOf() []Stage {
	if s.Min > 1 {
		return s.Gangs
	}
	return s.Stages
}

// Wide reports whether tasks of the shape have shares of several GPUs of a node.
func (s *Shape) Wide() bool { return s.Partly() && s.Sets[0].Request.GPUs > 1 }

// Several tasks of one set are alike in this where nodes are bounded together.
func (s *Shape) Several() bool { return len(s.Sets) > 1 || s.Most.Groups != nil && s.Max > 1 }

// IsPart reports whether tasks ask for parts of GPUs.
func IsPart(r *cluster.Request) bool { return r.Profile != "" || r.Fractional() }

// Partly reports whether some tasks of the shape ask for parts of GPUs.
func (s *Shape) Partly() bool {
	for i := range s.Sets {
		if IsPart(&s.Sets[i].Request) {
			return true
		}
	}
	return false
}

// ModelShape is a shape that differs from another only in its GPU model.
type ModelShape struct {
	GPU   string
	Shape int32
}

// OnModel is the shape on a GPU model; -1: it has not been asked for yet.
func (s *Shape) OnModel(gpu string) int32 {
	for i := range s.Models {
		if s.Models[i].GPU == gpu {
			return s.Models[i].Shape
		}
	}
	return -1
}

// Shut reports whether one of the shape's task sets has no class outside t.
func (s *Shape) Shut(t *inventory.ClassSet) bool {
	for i := range s.Suits {
		if s.Suits[i].Minus(t) == (inventory.ClassSet{}) {
			return true
		}
	}
	return false
}

// Divides reports whether jobs of the shape can run on an instance instead of the GPU that they ask
// for.
func (s *Shape) Divides() bool {
	r := &s.Sets[0].Request
	return len(s.Sets) == 1 && s.Min == 1 && s.Max == 1 && s.NodeBounds() == nil && r.GPUs == 1 && !r.Fractional() &&
		r.Profile == ""
}

// OnInstance reports whether a job of the shape, which asks for a whole GPU, holds an instance.
func (s *Shape) OnInstance(allocs []inventory.Alloc) bool {
	return len(allocs) == 1 && allocs[0].Slots != 0 && s.Sets[0].Request.Profile == ""
}

// Sliced reports whether tasks of the shape ask for slices.
func (s *Shape) Sliced() bool {
	for i := range s.Sets {
		if s.Sets[i].Request.Profile != "" {
			return true
		}
	}
	return false
}

// Devices is the number of GPUs of a job of the shape with so many tasks of its first set.
func (s *Shape) Devices(tasks int) int {
	n := 0
	for i := range s.Sets {
		c := s.Sets[i].Count
		if i == 0 {
			c = tasks
		}
		n += c * s.Sets[i].Request.GPUs
	}
	return n
}
