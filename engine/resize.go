package engine

import "github.com/muster-gpu/muster/cluster"

// nodeResized books that a node has more or less CPU and RAM than it had. What jobs hold there, they keep; a job that
// has its place there and has not started gives it up where it does not fit any more.
func (e *Engine) nodeResized(id int32, cpu cluster.Milli, ram cluster.MiB) {
	had := e.st.Nodes()[id].Spec()
	more := larger(cpu, had.CPU) || larger(ram, had.RAM)
	if !e.resize(id, cpu, ram) {
		return
	}
	e.shapes.Judge()
	e.admission.NodesChanged()
	e.plan.NodesChanged()
	if e.leavers.TooSmall(id) { // what jobs waited for was counted by the size that it had
		e.displace(id)
	}
	e.fresh = true
	if more {
		e.epoch++
		e.plan.Reconsider()
	}
}

// larger compares totals of CPU or RAM; a node that states none, 0, has no bound.
func larger(a, b int64) bool { return b != 0 && (a == 0 || a > b) }

// resize gives a node another size; false: it has that already.
func (e *Engine) resize(id int32, cpu cluster.Milli, ram cluster.MiB) bool {
	had := e.st.Nodes()[id].Spec()
	if had.CPU == cpu && had.RAM == ram {
		return false
	}
	e.w.CPU += cpu - had.CPU
	e.w.RAM += ram - had.RAM
	if e.st.SetSize(id, cpu, ram) {
		e.shapes.Recompute()
		e.find.Recount()
	}
	return true
}
