package engine

import (
	"slices"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/engine/inventory"
)

// Two jobs and more on the same whole GPUs (D-packing, A-gandiva, C-lucid): the
// first of them holds the devices, the others are its guests and run beside it on
// exactly those. Who joins whom says a plan (Target.Beside), never a placer. Guests
// count for nothing against quotas: the devices are charged once. When the holder
// leaves, the guest that came first takes its place, if its queue's limits allow it.

// hosted reports whether the job is a guest.
func (j *jobState) hosted() bool { return j.beside != 0 }

// host is the job on whose devices a guest is.
func (e *Engine) host(j *jobState) *jobState { return e.jobs[j.beside-1] }

// serves is the milli-GPU by which service counts: a guest's devices serve it, too.
func (j *jobState) serves() cluster.Milli {
	if j.hosted() {
		return cluster.Milli(j.devices) * cluster.Whole
	}
	return j.milli
}

// joinPlanned has waiting jobs join those beside whom the plan wants them, and take
// the instances on which it wants them.
func (e *Engine) joinPlanned() {
	if !e.plans.joining {
		return
	}
	for _, v := range e.plans.jobs {
		e.joinTarget(v.j)
	}
}

// joinMoved has those who were stopped for it join those beside whom the plan wants them.
func (e *Engine) joinMoved() {
	for _, id := range e.plans.moves {
		e.joinTarget(e.jobs[id])
	}
}

// moves reports whether a running job is stopped because it is to run beside another
// one, as it could. If it then cannot, it is not stopped again before the next plan.
func (e *Engine) moves(j *jobState) bool {
	t := j.target
	if !t.Move || t.Beside == 0 || j.beside == t.Beside || j.planless() || !e.mayStop(j) {
		return false
	}
	_, ok := e.seat(j, e.job(cluster.JobID(t.Beside-1)))
	return ok
}

// seat is where a job would run as the guest of another. What is looked at when it is to join
// is also when it is stopped for that: else it would be stopped, started where it was, and so on.
func (e *Engine) seat(j, h *jobState) (allocs []inventory.Alloc, ok bool) {
	if !e.joins(j, h) {
		return nil, false
	}
	s := e.shapeAt(j.shape)
	if allocs, ok = e.alongside(s, h); !ok || e.limits.byQueue && e.overQuota(j, 0).code != notRefused {
		return nil, false
	}
	return allocs, !s.topo.Required || e.st.Together(allocs, s.topo.Level)
}

func (e *Engine) joinTarget(j *jobState) {
	if j.state == Pending && j.parked == ParkedPlan && j.sliced() {
		e.divide(j)
	} else if t := j.target; t != nil && t.Beside > 0 && j.state == Pending && (j.eligible || j.parked == ParkedPlan) && !j.planless() {
		e.join(j, e.job(cluster.JobID(t.Beside-1)))
	}
}

// join starts a job beside another, if that runs on whole devices of its own which
// suit the job, task by task, and there is CPU and RAM for both.
func (e *Engine) join(j, h *jobState) bool {
	allocs, ok := e.seat(j, h)
	if !ok {
		return false
	}
	if j.home != nil && !SameDevices(j.home, allocs) {
		e.touch(j)
		j.thaw()
	}
	for i := range allocs {
		e.st.Take(&allocs[i])
	}
	j.parked = NotParked
	j.beside, j.packed, h.packed = int32(h.spec.ID)+1, true, true
	h.guests = append(h.guests, j.spec.ID)
	e.touch(h)
	e.book(j, allocs, e.shapeAt(j.shape).max)
	return true
}

// joins reports whether a job may be a guest of another; nil: there is none.
func (e *Engine) joins(j, h *jobState) bool {
	if h == nil || h == j || e.cfg.Unshared || h.hosted() || !h.booked() || h.resizing || len(e.advance) > 0 {
		return false
	}
	s := e.shapeAt(j.shape)
	return len(s.sets) == 1 && s.bounds() == nil && !e.stretches(j) && !e.stretches(h)
}

// stretches reports whether a job may be resized.
func (e *Engine) stretches(j *jobState) bool { s := e.shapeAt(j.base); return s.min != s.max }

// alongside is the allocations of a job of one task set on the devices of another.
func (e *Engine) alongside(s *shape, h *jobState) (allocs []inventory.Alloc, ok bool) {
	r, left := &s.sets[0].Request, int(s.max)
	if r.GPUs == 0 || r.Fractional() || r.Profile != "" {
		return nil, false
	}
	for i := range h.allocs {
		a := &h.allocs[i]
		if a.Share != 0 {
			return nil, false
		}
		k := slices.IndexFunc(allocs, func(b inventory.Alloc) bool { return b.Node == a.Node })
		if k < 0 {
			k = len(allocs)
			allocs = append(allocs, inventory.Alloc{Node: a.Node, Beside: true})
		}
		allocs[k].GPUs |= a.GPUs
	}
	allocs = slices.DeleteFunc(allocs, func(a inventory.Alloc) bool { return a.GPUs == 0 })
	for i := range allocs {
		a := &allocs[i]
		n := &e.st.Nodes()[a.Node]
		tasks := popcount(a.GPUs) / r.GPUs
		a.Tasks, a.CPU, a.RAM = int32(tasks), r.CPU*int64(tasks), r.RAM*int64(tasks)
		if left -= tasks; tasks*r.GPUs != popcount(a.GPUs) || !n.TakesJobs() || !s.suits[0].Has(n.Class()) || n.CPU() < a.CPU || n.RAM() < a.RAM {
			return nil, false
		}
	}
	return allocs, left == 0
}

// part ends that a job runs beside others, when it has left the books.
func (e *Engine) part(j *jobState) {
	if heir := e.leave(j); heir != nil {
		e.inherit(heir)
	}
}

// leave frees a guest's place; if the job held the devices, it returns the guest
// that came first, which is to inherit them.
func (e *Engine) leave(j *jobState) (heir *jobState) {
	if j.hosted() {
		h := e.host(j)
		e.touch(h)
		h.guests, j.beside = without(h.guests, j.spec.ID), 0
		j.allocs = apart(j.allocs)
		j.milli = e.heldMilli(j) // for as long as it is still there
	}
	if len(j.guests) == 0 {
		return nil
	}
	heir, others := e.jobs[j.guests[0]], j.guests[1:]
	j.guests = nil
	e.touch(heir)
	e.accrue(heir)
	heir.guests, heir.beside = others, 0
	for _, id := range others {
		e.touch(e.jobs[id])
		e.jobs[id].beside = int32(heir.spec.ID) + 1
	}
	return heir
}

// inherit has a guest hold the devices that it is on, if its queue may.
func (e *Engine) inherit(j *jobState) {
	e.charge(j, -1)
	e.st.ReleaseAll(j.allocs)
	j.allocs = apart(j.allocs)
	for i := range j.allocs {
		e.st.Take(&j.allocs[i])
	}
	e.st.Commit()
	m := e.heldMilli(j)
	over := e.limits.byQueue && e.overQuota(j, m).code != notRefused
	j.milli = m
	e.charge(j, 1)
	e.st.Commit()
	e.rerun(j)
	switch {
	case !over:
	case j.state == Placed:
		e.unplace(j)
		e.admit(j)
	default:
		e.stop(j, e.howToStop(j), Preempted, cluster.NoJob)
	}
}

// apart is a copy of a guest's allocations as those of a job of its own.
func apart(allocs []inventory.Alloc) []inventory.Alloc {
	list := slices.Clone(allocs)
	for i := range list {
		list[i].Beside = false
	}
	return list
}

// companyText says who else is on a job's devices.
func (e *Engine) companyText(j *jobState) string {
	list := slices.Clone(j.guests)
	if j.hosted() {
		h := e.host(j)
		list = append([]cluster.JobID{h.spec.ID}, h.guests...)
	}
	text := ""
	for _, id := range list {
		if id != j.spec.ID {
			text += ", " + e.jobs[id].label()
		}
	}
	if text != "" {
		text = ", beside " + text[2:]
	}
	return text
}

// SameDevices reports whether two lists of allocations are the same but for who
// holds the devices and who is a guest there.
func SameDevices(a, b []inventory.Alloc) bool {
	return slices.EqualFunc(a, b, func(x, y inventory.Alloc) bool {
		x.Beside, y.Beside, x.Tenant, y.Tenant = false, false, 0, 0
		return x == y
	})
}

// leaveAll is leave for jobs that go together, and returns the heirs: nobody is one
// who goes, too.
func (e *Engine) leaveAll(jobs []*jobState) (heirs []*jobState) {
	for _, j := range jobs {
		if j.hosted() {
			e.leave(j)
		}
	}
	for _, j := range jobs {
		if heir := e.leave(j); heir != nil {
			heirs = append(heirs, heir)
		}
	}
	return heirs
}

// yields is how much of its speed whom a guest is beside is to keep, in ppm; 0: that was
// not said.
func (j *jobState) yields() int64 {
	if !j.hosted() || j.target == nil {
		return 0
	}
	return j.target.Yield
}

// Beside returns the job on whose devices this one is a guest, if it is one.
func (j JobView) Beside() (cluster.JobID, bool) { return cluster.JobID(j.j.beside - 1), j.j.hosted() }

// Guests lists the jobs that run beside this one, on its devices. It must not be
// changed.
func (j JobView) Guests() []cluster.JobID { return j.j.guests }

// Shared reports whether jobs can be put beside others on whole GPUs at present.
func (v View) Shared() bool { return !v.e.undivided() }

// Rate returns the speed that the job reported last in this run, in ppm of that on
// the reference GPU; 0: none yet.
func (j JobView) Rate() int64 { return j.j.rate }

// DeviceMemory returns the memory of each GPU that the job holds, in MiB; 0: it
// holds none.
func (j JobView) DeviceMemory() cluster.MiB {
	if m := j.e.modelOf(j.j.allocs); m != nil {
		return m.Memory
	}
	return 0
}

// PeakMemory returns the most that the job was measured to use of any of its GPUs, in
// MiB; 0: nobody measured it (Traits.Memory).
func (j JobView) PeakMemory() cluster.MiB { return j.j.memory }

// WantsMemory reports whether the policy looks at what jobs were measured to use of the
// memory of their GPUs.
func (e *Engine) WantsMemory() bool { return e.traits.Memory }

// Computes reports whether the job has begun to compute in this run.
func (j JobView) Computes() bool { return j.j.holding() && j.j.rate > 0 }

// SpeedBeside returns what the scheduler believes is left of a job's speed while
// others run on the same GPUs, of a model, in ppm of its speed there alone. Without
// any knowledge they take turns.
func (v View) SpeedBeside(j JobView, gpu string, others []JobView) int64 {
	if s := v.e.cfg.Speeds; s != nil {
		specs := make([]*cluster.Job, len(others))
		for i := range others {
			specs[i] = others[i].j.spec
		}
		return s.Beside(j.j.spec, gpu, specs)
	}
	return million / int64(1+len(others))
}
