// Package holds says what jobs hold of nodes, in the engine's records, and takes allocations and task sets apart. Nodes
// have numbers there: order is their names.
package holds

import (
	"math/bits"
	"slices"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/engine"
)

// Of is what gangs hold of a node.
type Of struct {
	GPUs     uint64         // whole ones
	Slices   map[string]int // by MIG profile
	CPU, RAM int64
}

// ByNode is what jobs really hold of nodes, by name: those that are placed only,
// hold nothing yet.
func ByNode(snap *engine.Snapshot, order []string) map[string]Of {
	list := map[string]Of{}
	for name, count := range Slices(snap, order) {
		list[name] = Of{Slices: count}
	}
	for i := range snap.Jobs {
		r := &snap.Jobs[i]
		if r.State < engine.Starting || r.State > engine.Stopping {
			continue
		}
		for k := range r.Allocs {
			a := &r.Allocs[k]
			h := list[order[a.Node]]
			if a.Slots == 0 && Profile(r, a) == "" {
				h.GPUs |= a.GPUs
			}
			h.CPU += a.CPU
			h.RAM += a.RAM
			list[order[a.Node]] = h
		}
	}
	return list
}

// Slices counts the slices that jobs hold, by node and profile.
func Slices(snap *engine.Snapshot, order []string) map[string]map[string]int {
	list := map[string]map[string]int{}
	for i := range snap.Jobs {
		r := &snap.Jobs[i]
		for k := range r.Allocs {
			a := &r.Allocs[k]
			profile := Profile(r, a)
			if profile == "" {
				continue
			}
			name := order[a.Node]
			if list[name] == nil {
				list[name] = map[string]int{}
			}
			list[name][profile] += int(a.Tasks)
		}
	}
	return list
}

// Profile is the MIG profile of an allocation; "": it is of whole GPUs, or shares.
func Profile(r *engine.JobRecord, a *engine.Alloc) string {
	if int(a.Set) >= len(r.Spec.Tasks) {
		return ""
	}
	return r.Spec.Tasks[a.Set].Request.Profile
}

// On reports whether a job has something of a node.
func On(r *engine.JobRecord, order []string, node string) bool {
	return slices.ContainsFunc(r.Allocs, func(a engine.Alloc) bool { return order[a.Node] == node })
}

// WholeGPUs is the GPUs of a task that are not slices.
func WholeGPUs(r *cluster.Request) int {
	if r.Profile != "" {
		return 0
	}
	return r.GPUs
}

// InUse is what of a node's devices is given away in the engine's books.
type InUse struct {
	Devices uint64
	parts   [cluster.MaxGPUsPerNode]int32 // milli-GPU of those that are shared
}

// InUseByNode is that of all nodes, by name.
func InUseByNode(snap *engine.Snapshot, order []string) map[string]InUse {
	list := map[string]InUse{}
	for name, h := range ByNode(snap, order) {
		list[name] = InUse{Devices: h.GPUs}
	}
	for i := range snap.Jobs {
		r := &snap.Jobs[i]
		for k := range r.Allocs {
			a := &r.Allocs[k]
			if u := list[order[a.Node]]; a.Share > 0 && u.Devices&a.GPUs != 0 {
				u.parts[First(a.GPUs)] += a.Share
				list[order[a.Node]] = u
			}
		}
	}
	return list
}

// First is the lowest of some devices.
func First(devices uint64) int {
	for i := range cluster.MaxGPUsPerNode {
		if devices>>i&1 != 0 {
			return i
		}
	}
	return cluster.MaxGPUsPerNode
}

// Take gives away the first device that no job has, or for a share the first that is shared already and has as much
// left; false: there is none.
func (u *InUse) Take(share int32) (device uint64, ok bool) {
	dev := First(^u.Devices)
	for i := range u.parts {
		if share > 0 && u.parts[i] > 0 && u.parts[i]+share <= int32(cluster.Whole) {
			dev = i
			break
		}
	}
	if dev == cluster.MaxGPUsPerNode {
		return 0, false
	}
	u.Devices |= uint64(1) << dev
	u.parts[dev] += share
	return uint64(1) << dev, true
}

// SlotsInUse is the memory slices that jobs have of a node, by device.
func SlotsInUse(snap *engine.Snapshot, node int32, gpus int) []uint8 {
	used := make([]uint8, gpus)
	for i := range snap.Jobs {
		for _, a := range snap.Jobs[i].Allocs {
			if dev := First(a.GPUs); a.Node == node && a.Slots != 0 && dev < gpus {
				used[dev] |= a.Slots
			}
		}
	}
	return used
}

// Fewer is an allocation without k of its tasks.
func Fewer(a engine.Alloc, k int) engine.Alloc {
	each, cpu, ram := bits.OnesCount64(a.GPUs)/int(a.Tasks), a.CPU/cluster.Milli(a.Tasks), a.RAM/cluster.MiB(a.Tasks)
	for range k * each {
		a.GPUs &^= 1 << (bits.Len64(a.GPUs) - 1)
	}
	a.Tasks -= int32(k)
	a.CPU, a.RAM = cpu*cluster.Milli(a.Tasks), ram*cluster.MiB(a.Tasks)
	return a
}

// AddTasks adds tasks to the set that asks for the same.
func AddTasks(sets []cluster.TaskSet, t cluster.TaskSet) []cluster.TaskSet {
	sets = slices.Clone(sets)
	if i := SetOf(sets, &t.Request); i >= 0 {
		sets[i].Count += t.Count
		return sets
	}
	return append(sets, t)
}

// SetOf finds the task set of a request; -1: there is none.
func SetOf(sets []cluster.TaskSet, r *cluster.Request) int {
	return slices.IndexFunc(sets, func(s cluster.TaskSet) bool { return s.Request == *r })
}

// Reset is an allocation whose tasks are of other sets now, one for each set.
func Reset(a engine.Alloc, of []int, sets []cluster.TaskSet) (list []engine.Alloc) {
	each, left := bits.OnesCount64(a.GPUs)/len(of), a.GPUs
	for _, set := range of {
		i := slices.IndexFunc(list, func(b engine.Alloc) bool { return int(b.Set) == set })
		if i < 0 {
			b := a
			b.Set, b.Tasks, b.GPUs, b.CPU, b.RAM = int32(set), 0, 0, 0, 0
			i, list = len(list), append(list, b)
		}
		b, r := &list[i], &sets[set].Request
		b.Tasks++
		b.CPU, b.RAM = b.CPU+r.CPU, b.RAM+r.RAM
		for range each {
			dev := left & -left
			b.GPUs, left = b.GPUs|dev, left&^dev
		}
	}
	return list
}

// Cut takes the devices of one place out of a gang's; false: they are not among them.
func Cut(allocs *[]engine.Alloc, order []string, node string, set int) (al engine.Alloc, held bool) {
	list := *allocs
	for i := len(list) - 1; i >= 0; i-- {
		a := list[i]
		if order[a.Node] != node || int(a.Set) != set {
			continue
		}
		if a.Tasks == 1 {
			*allocs = slices.Delete(list, i, i+1)
			a.Set = 0
			return a, true
		}
		rest := Fewer(a, 1)
		list[i] = rest
		a.Tasks, a.GPUs, a.CPU, a.RAM, a.Set = 1, a.GPUs&^rest.GPUs, a.CPU-rest.CPU, a.RAM-rest.RAM, 0
		return a, true
	}
	return al, false
}

// TasksOn counts the tasks that these allocations are for, by node.
func TasksOn(allocs []engine.Alloc, order []string) map[string]int {
	on := map[string]int{}
	for i := range allocs {
		on[order[allocs[i].Node]] += int(allocs[i].Tasks)
	}
	return on
}
