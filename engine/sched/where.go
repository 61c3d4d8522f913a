package sched

import (
	"math/bits"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/engine/inventory"
	"github.com/muster-gpu/muster/engine/job"
)

// Shape is the same number for jobs that ask for the same, in everything that decides
// where they may run.
func (j JobView) Shape() int32 { return j.j.Base }

// Tasks returns how many tasks of its first set the job has running, 0 while it
// waits; least and most are its own bounds.
func (j JobView) Tasks() (now, least, most int) {
	if j.Running() {
		now = int(j.j.Tasks)
	}
	s := j.w.Shapes.Get(j.j.Base)
	return now, int(s.Min), int(s.Max)
}

// GPUs returns the devices that the job takes with so many tasks of its first set.
func (j JobView) GPUs(tasks int) int { return j.w.Shapes.Get(j.j.Base).Devices(tasks) }

// Accepts reports whether the job may run on GPUs of the model, and fits nodes
// that have it.
func (j JobView) Accepts(gpu string) bool {
	s := j.w.Shapes.At(j.j.Base)
	for ci := range j.w.Store.Classes() {
		if s.Any.Has(int32(ci)) && j.w.Store.Classes()[ci].Model().Name == gpu {
			return true
		}
	}
	return false
}

// Suits reports whether the job could ever run on the node.
func (j JobView) Suits(node int32) bool {
	return j.w.Shapes.At(j.j.Base).Suits[0].Has(j.w.Store.Nodes()[node].Class())
}

// Classes is the set of node classes on which the job's tasks with GPUs can ever run, one bit each.
func (j JobView) Classes() [inventory.MaxKinds / 64]uint64 { return j.w.Shapes.At(j.j.Base).Any }

// Within reports whether the job holds devices, all on nodes of a partition.
func (j JobView) Within(partition string) bool {
	return j.w.Shapes.Within(j.j.Allocs, []string{partition})
}

// MayEnter reports whether a plan may place the job on the nodes of a partition (Target.Partition):
// the partition's rules admit it, and the nodes are large enough.
func (j JobView) MayEnter(partition string) bool { return j.w.Oracle.MayEnter(j.j, partition) }

// GPU returns the model of the GPUs that the job holds; "" while it waits.
func (j JobView) GPU() string { return inventory.GPUOf(j.w.Store, j.j.Allocs) }

// DeviceMemory returns the memory of each GPU that the job holds, in MiB; 0: it
// holds none.
func (j JobView) DeviceMemory() cluster.MiB {
	if m := j.w.Store.ModelOf(j.j.Allocs); m != nil {
		return m.Memory
	}
	return 0
}

// PeakMemory returns the peak memory measured on any of the job's GPUs, in MiB; 0: not measured
// (Traits.Memory).
func (j JobView) PeakMemory() cluster.MiB { return j.j.Memory }

// Host returns the job on whose devices this one is a guest, if it is one.
func (j JobView) Host() (cluster.JobID, bool) { return cluster.JobID(j.j.GuestOf - 1), j.j.Hosted() }

// Guests lists the jobs that are guests on this job's devices. It must not be changed.
func (j JobView) Guests() []cluster.JobID { return j.j.Guests }

// Shared reports whether jobs can be guests on whole GPUs at present.
func (v View) Shared() bool { return !v.w.Oracle.Undivided() }

// Divides reports whether the job could run on a MIG instance instead of the GPU that it asks for:
// it has one task with one whole GPU, and a fixed size.
func (j JobView) Divides() bool { return j.w.Divided(j.j) && !j.j.Planless() }

// Slice returns the instance held by a job that asked for a whole GPU; false: it holds none.
func (j JobView) Slice() (job.Slice, bool) {
	if !j.j.Booked() || !j.w.Shapes.Get(j.j.Base).OnInstance(j.j.Allocs) {
		return job.Slice{}, false
	}
	a := &j.j.Allocs[0]
	model := j.w.Store.Classes()[j.w.Store.Nodes()[a.Node].Class()].Model()
	p, start, ok := model.Held(a.Slots, int(a.Compute), a.Media)
	if !ok {
		return job.Slice{}, false
	}
	return job.Slice{Node: a.Node, GPU: bits.TrailingZeros64(a.GPUs), Profile: p.Name, Start: start}, true
}
