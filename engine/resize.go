package engine

import "github.com/muster-gpu/muster/cluster"

// nodeChanged books that a node has more or less CPU and RAM than it had. What jobs hold there, they keep; a job that
// has its place there and has not started gives it up where it does not fit any more.
func (e *Engine) nodeChanged(id int32, cpu cluster.Milli, ram cluster.MiB) {
	n := &e.st.nodes[id]
	more := modelled(cpu) > modelled(n.spec.CPU) || modelled(ram) > modelled(n.spec.RAM)
	if !e.resize(id, cpu, ram) {
		return
	}
	for i := range e.shapes { // what can never run is another question now
		e.shapes[i].judged = 0
	}
	e.empty = nil
	if n.cpu < 0 || n.ram < 0 {
		e.displace(id)
	}
	e.fresh = true
	if more {
		e.epoch++
		e.reconsider()
	}
}

// resize gives a node another size; false: it has that already.
func (e *Engine) resize(id int32, cpu cluster.Milli, ram cluster.MiB) bool {
	n := &e.st.nodes[id]
	if n.spec.CPU == cpu && n.spec.RAM == ram {
		return false
	}
	hadCPU, hadRAM := modelled(n.spec.CPU), modelled(n.spec.RAM)
	e.totalCPU += cpu - n.spec.CPU
	e.totalRAM += ram - n.spec.RAM
	n.cpu += modelled(cpu) - hadCPU
	n.ram += modelled(ram) - hadRAM
	n.spec.CPU, n.spec.RAM, n.resized = cpu, ram, true
	e.st.changed(n)
	c := &e.st.classes[n.class]
	if hadCPU < c.cpu && modelled(cpu) <= c.cpu && hadRAM < c.ram && modelled(ram) <= c.ram {
		return true // another node is its largest
	}
	c.cpu, c.ram = 0, 0
	for _, id := range c.nodes {
		c.cpu, c.ram = max(c.cpu, modelled(e.st.nodes[id].spec.CPU)), max(c.ram, modelled(e.st.nodes[id].spec.RAM))
	}
	for i := range e.shapes {
		e.shapes[i].stale = true
	}
	e.demand.stale = true
	return true
}

// modelled is a node's CPU or RAM as the engine counts it.
func modelled(total int64) int64 {
	if total == 0 {
		return notModelled
	}
	return total
}
