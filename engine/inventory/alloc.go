package inventory

import (
	"math/bits"
	"slices"
	"time"

	"github.com/muster-gpu/muster/cluster"
)

// Alloc is what tasks of one set hold on one node.
type Alloc struct {
	Node int32 `json:"node"`          // index in the order in which nodes joined
	Set  int32 `json:"set,omitempty"` // index into Job.Tasks
	// tasks of the set on this node, in ascending order of their devices
	Tasks   int32         `json:"tasks"`
	GPUs    uint64        `json:"gpus,omitempty"`    // mask of devices
	Share   int32         `json:"share,omitempty"`   // milli-GPU of each device; 0: whole
	Beside  bool          `json:"guest,omitempty"`   // a guest's allocation: whole devices that another job holds
	Slots   uint8         `json:"slots,omitempty"`   // MIG memory slices held on the (single) device
	Compute uint8         `json:"compute,omitempty"` // MIG compute slices held
	Media   bool          `json:"media,omitempty"`   // ... with the GPU's media engines
	Mem     cluster.MiB   `json:"mem,omitempty"`     // GPU memory on each shared device
	User    string        `json:"user,omitempty"`    // owner of the share, if all shares of a device must be one user's
	Tenant  int32         `json:"-"`                 // 1 + the job that holds the share; 0: no share
	CPU     cluster.Milli `json:"cpu,omitempty"`     // all tasks together
	RAM     cluster.MiB   `json:"ram,omitempty"`     // all tasks together
}

// MilliIn is the milli-GPU of allocations.
func MilliIn(allocs []Alloc) (m cluster.Milli) {
	for i := range allocs {
		m += allocs[i].Milli()
	}
	return m
}

// TasksIn counts the tasks of the first set.
func TasksIn(allocs []Alloc) (n int32) {
	for i := range allocs {
		if allocs[i].Set == 0 {
			n += allocs[i].Tasks
		}
	}
	return n
}

// Milli returns the milli-GPU of an allocation; a guest's devices count for its host.
func (a *Alloc) Milli() cluster.Milli {
	if a.Beside {
		return 0
	}
	if a.Share > 0 {
		return cluster.Milli(a.Share)
	}
	n := 0
	for m := a.GPUs; m != 0; m &= m - 1 {
		n++
	}
	return cluster.Milli(n) * cluster.Whole
}

// SplitLost divides what a gang holds into what remains after a loss and what is lost. The tasks of
// an allocation have its devices in ascending order. It fails if other tasks than those of the
// first set are hit, or a task with several shared devices.
func SplitLost(allocs []Alloc, node int32, mask uint64, gpus int) (keep, gone []Alloc, ok bool) {
	for i := range allocs {
		a := allocs[i]
		all := a.Node == node && mask == AnyDevice
		switch {
		case !all && (a.Node != node || a.GPUs&mask == 0):
			keep = append(keep, a)
		case a.Set != 0 || a.Share != 0 && gpus > 1:
			return nil, nil, false
		case all || a.Share != 0 || a.Tasks == 1:
			gone = append(gone, a)
		default:
			k, g := a.divide(mask, gpus)
			if k.Tasks > 0 {
				keep = append(keep, k)
			}
			gone = append(gone, g)
		}
	}
	return keep, gone, true
}

// divide splits an allocation of whole devices into the tasks without lost devices and those with
// one.
func (a *Alloc) divide(lost uint64, gpus int) (keep, gone Alloc) {
	keep, gone = *a, *a
	keep.GPUs, keep.Tasks, gone.GPUs, gone.Tasks = 0, 0, 0, 0
	for rest := a.GPUs; rest != 0; {
		var task uint64
		for range gpus {
			task |= rest & -rest
			rest &= rest - 1
		}
		to := &keep
		if task&lost != 0 {
			to = &gone
		}
		to.GPUs |= task
		to.Tasks++
	}
	cpu, ram := a.CPU/cluster.Milli(a.Tasks), a.RAM/cluster.MiB(a.Tasks)
	keep.CPU, keep.RAM = cpu*cluster.Milli(keep.Tasks), ram*cluster.MiB(keep.Tasks)
	gone.CPU, gone.RAM = cpu*cluster.Milli(gone.Tasks), ram*cluster.MiB(gone.Tasks)
	return keep, gone
}

// Excludes reports whether two allocations cannot be on a device at the same time: one is whole,
// only one is in MIG mode, they overlap in memory slices or media engines, or the MPS server allows
// only one user at a time.
func (a *Alloc) Excludes(o *Alloc) bool {
	switch {
	case a.Node != o.Node || a.GPUs&o.GPUs == 0:
		return false
	case a.Share == 0 || o.Share == 0 || (a.Slots == 0) != (o.Slots == 0):
		return true
	}
	return a.Slots&o.Slots != 0 || a.Media && o.Media || a.User != o.User
}

// SplitTask removes the last task of the first set from the allocations.
func SplitTask(allocs *[]Alloc, r *cluster.Request) []Alloc {
	list := *allocs
	for i := len(list) - 1; i >= 0; i-- {
		a := &list[i]
		if a.Set != 0 || a.Tasks == 0 {
			continue
		}
		if a.Share != 0 && r.GPUs > 1 {
			return nil // a task with several shares is not split
		}
		if a.Tasks == 1 {
			gone := *a
			*allocs = append(list[:i:i], list[i+1:]...)
			return []Alloc{gone}
		}
		gone := *a
		gone.Tasks, gone.CPU, gone.RAM, gone.GPUs = 1, r.CPU, r.RAM, 0
		for range r.GPUs {
			high := uint64(1) << (63 - bits.LeadingZeros64(a.GPUs))
			gone.GPUs |= high
			a.GPUs &^= high
		}
		a.Tasks, a.CPU, a.RAM = a.Tasks-1, a.CPU-r.CPU, a.RAM-r.RAM
		return []Alloc{gone}
	}
	return nil
}

// SamePlace reports whether two lists of allocations are the same except for which job holds the
// devices and which is a guest.
func SamePlace(a, b []Alloc) bool {
	return slices.EqualFunc(a, b, func(x, y Alloc) bool {
		x.Beside, y.Beside, x.Tenant, y.Tenant = false, false, 0, 0
		return x == y
	})
}

// ModelOf is the model of the first GPU among the allocations; nil: there is none.
func (s *Store) ModelOf(allocs []Alloc) *cluster.GPUModel {
	for i := range allocs {
		if a := &allocs[i]; a.GPUs != 0 {
			return s.Classes()[s.Nodes()[a.Node].Class()].Model()
		}
	}
	return nil
}

// GPUOf is the model name of the first GPU among the allocations; "": there is none.
func GPUOf(s *Store, allocs []Alloc) string {
	if m := s.ModelOf(allocs); m != nil {
		return m.Name
	}
	return ""
}

// OnNode reports whether some of the allocations are on a node.
func OnNode(allocs []Alloc, node int32) bool {
	return slices.ContainsFunc(allocs, func(a Alloc) bool { return a.Node == node })
}

// Overlap reports whether two lists of allocations have a device in common.
func Overlap(a, b []Alloc) bool {
	return slices.ContainsFunc(a, func(x Alloc) bool {
		return slices.ContainsFunc(b, func(y Alloc) bool { return x.Node == y.Node && x.GPUs&y.GPUs != 0 })
	})
}

// IdleGPUs counts the GPUs of which no job has anything.
func IdleGPUs(st *Store) (n int) {
	for i := range st.Classes() {
		n += st.Classes()[i].Free()
	}
	return n
}

// WakeTime is how long it takes until all nodes of some allocations are awake; 0: they are.
func WakeTime(st *Store, allocs []Alloc) (longest time.Duration) {
	for i := range allocs {
		longest = max(longest, st.Nodes()[allocs[i].Node].Spec().Asleep)
	}
	return longest
}

// ShareDevice reports whether allocations have a part of the same device as another.
func ShareDevice(allocs []Alloc, a *Alloc) bool {
	return slices.ContainsFunc(allocs, func(o Alloc) bool {
		return o.Node == a.Node && o.GPUs == a.GPUs && o.Share > 0
	})
}
