package engine

import (
	"math/bits"
	"slices"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/engine/inventory"
	"github.com/muster-gpu/muster/engine/job"
)

// undivided reports whether GPUs are handed out as jobs ask for them, whatever a
// plan says: where the driver does not choose GPUs no instance can be made, and an
// advance reservation counts on whole GPUs.
func (e *Engine) undivided() bool { return e.cfg.Unshared || e.resv.HasAdvance() }

// leaves reports whether plans that only divide GPUs (Traits.OnlyDivides) say nothing of the
// job, because none that could be divided suits it. If an older plan, on another cluster,
// left it idle or gave it an instance, a new plan has to replace that.
func (e *Engine) leaves(j *job.State) bool {
	return j.Whole && (j.Target == nil || !j.Target.Idle && j.Target.Slice == nil)
}

// indivisible reports whether plans only divide GPUs, and none that can be divided suits the job.
func (e *Engine) indivisible(j *job.State) bool {
	if !e.w.Traits.OnlyDivides {
		return false
	}
	suits := &e.shapes.At(j.Base).Suits[0]
	for c := range e.st.Classes() {
		if suits.Has(int32(c)) && e.st.Classes()[c].Model().MIG() {
			return false
		}
	}
	return true
}

// reconsider has plans be about jobs that they left, where a node has come that may suit them.
func (e *Engine) reconsider() {
	if !e.w.Traits.OnlyDivides {
		return
	}
	for _, j := range e.jobs {
		if j == nil || j.State == job.Done || j.Pooled {
			continue
		}
		if j.Whole = e.indivisible(j); e.chooses(j) {
			e.include(j)
		}
	}
}

// sliceOf is what a job holds of a GPU on an instance; false: it can never have it.
func (e *Engine) sliceOf(j *job.State, t *job.Slice) (a inventory.Alloc, ok bool) {
	s := e.shapes.At(j.Base)
	if e.undivided() || !e.w.Divided(j) || t.Node < 0 || int(t.Node) >= len(e.st.Nodes()) {
		return a, false
	}
	n := &e.st.Nodes()[t.Node]
	model := e.st.Classes()[n.Class()].Model()
	p, known := model.Profile(t.Profile)
	r := &s.Sets[0].Request
	if !known || t.GPU < 0 || t.GPU >= n.Spec().GPUs || !slices.Contains(p.Starts, t.Start) ||
		!s.Suits[0].Has(n.Class()) || p.Memory < r.Memory ||
		n.Stays(t.GPU) && !slices.ContainsFunc(n.Fixed().Instances()[t.GPU], func(in inventory.Instance) bool {
			return in.Profile() == p.Name && in.Start() == t.Start
		}) {
		return a, false
	}
	return inventory.Alloc{Node: t.Node, Tasks: 1, GPUs: 1 << t.GPU,
		Share: int32(int64(p.Compute) * cluster.Whole / int64(model.Compute)),
		Slots: p.Mask(t.Start), Compute: uint8(p.Compute), Media: p.Media(), Mem: min(p.Memory, model.Memory),
		CPU: r.CPU, RAM: r.RAM}, true
}

// divide starts a waiting job on the instance that its plan names, if that is free.
func (e *Engine) divide(j *job.State) {
	a, ok := e.sliceOf(j, j.Target.Slice)
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

// offSlice reports whether what a job holds, or where its memory is, is not where
// its target has it: on an instance, on another, or on none.
func (e *Engine) offSlice(j *job.State, allocs []inventory.Alloc) bool {
	if j.Target.Slice == nil {
		return e.shapes.Get(j.Base).OnInstance(allocs)
	}
	a, ok := e.sliceOf(j, j.Target.Slice)
	return ok && (len(allocs) != 1 || a.Node != allocs[0].Node || a.GPUs != allocs[0].GPUs ||
		a.Slots != allocs[0].Slots || a.Compute != allocs[0].Compute)
}
