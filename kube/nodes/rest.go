package nodes

import (
	"fmt"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/engine"
	"github.com/muster-gpu/muster/kube/amount"
	"github.com/muster-gpu/muster/kube/holds"
)

// Rest is what some of the pods that are on nodes, or on their way there, leave of them.
type Rest struct {
	room   *Room
	counts func(*Pod) bool
}

// Rest is what the pods that count leave.
func (r *Room) Rest(counts func(*Pod) bool) Rest { return Rest{r, counts} }

// WholeGPUs is how many GPUs a node has, and how many of them its pods have, but for claims and parts of GPUs.
func (r Rest) WholeGPUs(name string) (have, used int) {
	for q := range r.room.World.On(name) {
		p := podOf(q)
		if r.counts(p) && !p.Request.Fractional() && len(p.Obj.Spec.ResourceClaims) == 0 {
			used += holds.WholeGPUs(&p.Request)
		}
	}
	return r.room.opt.GPUs.Count(r.room.nodes[name].Obj.Status.Allocatable), used
}

// Left is how much CPU and memory a node has left.
func (r Rest) Left(name string) (cpu cluster.Milli, ram cluster.MiB) {
	have := r.room.nodes[name].Obj.Status.Allocatable
	cpu, ram = amount.Milli(have.Cpu()), amount.MiB(have.Memory(), false)
	for q := range r.room.World.On(name) {
		if p := podOf(q); r.counts(p) {
			cpu, ram = cpu-p.Request.CPU, ram-p.Request.RAM
		}
	}
	return cpu, ram
}

// Overdrawn says on which node there are fewer than so many whole GPUs left; "": on none.
func (r Rest) Overdrawn(more map[string]int) string {
	for name, k := range more {
		if k == 0 || r.room.Lost(name) {
			continue
		}
		if have, used := r.WholeGPUs(name); used+k > have {
			return fmt.Sprintf("node %s has %d GPUs, pods hold %d, and it was to have %d more", name, have, used, k)
		}
	}
	return ""
}

// Outgrown says on which node there is less CPU or memory left than allocations need; "": on none.
func (r Rest) Outgrown(allocs []engine.Alloc) string {
	more := map[string]cluster.Request{}
	for i := range allocs {
		name := r.room.order[allocs[i].Node]
		sum := more[name]
		sum.CPU, sum.RAM = sum.CPU+allocs[i].CPU, sum.RAM+allocs[i].RAM
		more[name] = sum
	}
	for name, need := range more {
		if r.room.Lost(name) {
			continue
		}
		if cpu, ram := r.Left(name); need.CPU > cpu || need.RAM > ram {
			return fmt.Sprintf("node %s has %d milli-cores and %d MiB left, and it needs %d and %d", name, cpu, ram,
				need.CPU, need.RAM)
		}
	}
	return ""
}
