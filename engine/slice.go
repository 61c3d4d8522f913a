package engine

import (
	"math/bits"

	"github.com/muster-gpu/muster/engine/inventory"
	"github.com/muster-gpu/muster/engine/job"
)

// divide starts a waiting job on the instance that its plan names, if that is free.
func (e *Engine) divide(j *job.State) {
	a, ok := e.plan.Instance(j, j.Target.Slice)
	if !ok {
		return
	}
	n := &e.st.Nodes()[a.Node]
	d := &n.Devices()[bits.TrailingZeros64(a.GPUs)]
	a.Mem = min(a.Mem, d.Mem()) // the nominal memory of all instances is a little more than the GPU's on some models
	if !n.TakesJobs() || n.Healthy()&a.GPUs == 0 || !e.st.CanTake(&a, false, false) ||
		int(d.Compute())+int(a.Compute) > e.st.Classes()[n.Class()].Model().Compute ||
		!e.limits.Allows(j, a.Milli()) {
		return
	}
	allocs := []inventory.Alloc{a}
	if j.Home != nil && !inventory.SamePlace(j.Home, allocs) {
		e.touch(j)
		j.Thaw()
	}
	e.st.Take(&a)
	j.Parked = job.NotParked
	e.book(j, allocs, 1)
}
