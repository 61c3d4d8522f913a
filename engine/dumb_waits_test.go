package engine_test

import (
	"slices"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/engine"
)

// dumbClaim is CPU and RAM that a placed job will get from one that leaves.
type dumbClaim struct {
	from     cluster.JobID
	node     int32
	cpu, ram int64
}

// waitForLeavers is who a booked job waits for: those on its devices, and for
// the CPU and RAM that is not free yet those first, then others by number.
func (d *dumb) waitForLeavers(j *dumbJob) {
	j.waits, j.claims = nil, nil
	for _, v := range d.jobs {
		if v != nil && v.state == engine.Stopping && slices.ContainsFunc(v.allocs, func(x engine.Alloc) bool {
			return slices.ContainsFunc(j.allocs, func(y engine.Alloc) bool { return x.Node == y.Node && x.GPUs&y.GPUs != 0 })
		}) {
			j.waits = append(j.waits, v.ID)
		}
	}
	var nodes []int32
	for _, a := range j.allocs {
		if !slices.Contains(nodes, a.Node) {
			nodes = append(nodes, a.Node)
		}
	}
	for _, node := range nodes {
		needCPU, needRAM := d.lacks(j, node)
		for _, waited := range []bool{true, false} {
			for _, v := range d.jobs {
				if v == nil || v.state != engine.Stopping || slices.Contains(j.waits, v.ID) != waited {
					continue
				}
				cpu, ram := d.unclaimed(v, node)
				cpu, ram = max(0, min(cpu, needCPU)), max(0, min(ram, needRAM))
				if cpu == 0 && ram == 0 {
					continue
				}
				j.claims = append(j.claims, dumbClaim{v.ID, node, cpu, ram})
				needCPU, needRAM = needCPU-cpu, needRAM-ram
				if !waited {
					j.waits = append(j.waits, v.ID)
				}
			}
		}
	}
}

func dumbHost(allocs []engine.Alloc, node int32) (cpu, ram int64) {
	for _, a := range allocs {
		if a.Node == node {
			cpu, ram = cpu+a.CPU, ram+a.RAM
		}
	}
	return cpu, ram
}

// unclaimed is what a leaving job has that no placed job will get.
func (d *dumb) unclaimed(v *dumbJob, node int32) (cpu, ram int64) {
	cpu, ram = dumbHost(v.allocs, node)
	for _, w := range d.jobs {
		if w == nil || w.state != engine.Placed {
			continue
		}
		for _, c := range w.claims {
			if c.from == v.ID && c.node == node && slices.Contains(w.waits, v.ID) {
				cpu, ram = cpu-c.cpu, ram-c.ram
			}
		}
	}
	return cpu, ram
}

// lacks is how much of a booked job's CPU and RAM on a node is not free yet: what
// the node has, less what runs there, what others were promised and do not get
// from those who leave, and what these have. j is among the booked.
func (d *dumb) lacks(j *dumbJob, node int32) (cpu, ram int64) {
	freeCPU, freeRAM := d.nodes[node].CPU, d.nodes[node].RAM
	for _, v := range d.jobs {
		switch {
		case v == nil:
		case v.inBooks():
			c, r := dumbHost(v.allocs, node)
			freeCPU, freeRAM = freeCPU-c, freeRAM-r
		case v.state == engine.Stopping:
			c, r := d.unclaimed(v, node)
			freeCPU, freeRAM = freeCPU-c, freeRAM-r
		}
	}
	cpu, ram = dumbHost(j.allocs, node)
	if cpu = min(cpu, -freeCPU); d.nodes[node].CPU == 0 {
		cpu = 0
	}
	if ram = min(ram, -freeRAM); d.nodes[node].RAM == 0 {
		ram = 0
	}
	return max(0, cpu), max(0, ram)
}
