package plan

import (
	"fmt"
	"slices"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/engine/inventory"
	"github.com/muster-gpu/muster/engine/job"
	"github.com/muster-gpu/muster/engine/sched"
)

// Tidy takes out of a target what does not concern the job.
func (b *Book) Tidy(j *job.State, t *job.Target) {
	s := b.world.Shapes.Get(j.Base)
	switch {
	case s.Min == s.Max || t.Tasks <= 0:
		t.Tasks, t.Least = 0, 0
	default:
		t.Tasks = min(max(t.Tasks, int(s.Min)), int(s.Max))
		if t.Least == 0 {
			t.Least = t.Tasks
		}
		t.Least = min(max(t.Least, int(s.Min)), t.Tasks)
	}
	if t.Slice != nil {
		if _, ok := b.Instance(j, t.Slice); ok && !t.Idle {
			t.GPU = ""
		} else {
			t.Slice = nil
		}
	}
	if t.GPU != "" && !job.AcceptsGPU(j.Spec, t.GPU) {
		t.GPU = ""
	}
	// what grows, grows where it may by itself
	if t.Partition != "" && (s.Min < s.Max || !b.admit.Admits(t.Partition, j.Spec)) {
		t.Partition = ""
	}
	if t.Within != cluster.LevelAny && (s.Min < s.Max || s.Topo.Level != cluster.LevelAny) {
		t.Within = cluster.LevelAny
	}
}

// SetTarget notes a copy of a target, without what the job can never follow: what
// most jobs keep must not hold on to the whole of an old plan. It takes the place of
// the old one, whose memory it uses: a policy may change all of them with every plan.
func (b *Book) SetTarget(j *job.State, t *job.Target) {
	if j.Target == nil {
		j.Target = &job.Target{}
	}
	c := j.Target
	memo := c.Memo
	*c = *t
	if c.Memo = nil; len(t.Memo) > 0 {
		c.Memo = append(memo[:0], t.Memo...)
	}
	if t.Slice != nil {
		slice := *t.Slice
		c.Slice = &slice
	}
	j.Narrow = b.admit.Narrowed(j.Spec, c, j.Base)
	if j.Narrow < 0 {
		j.Narrow, c.GPU, c.Tasks, c.Least, c.Partition, c.Within = j.Base, "", 0, 0, "", cluster.LevelAny
	}
}

// RenewTarget takes out of a job's target what its spec does not let it follow.
func (b *Book) RenewTarget(j *job.State) {
	if j.Target == nil {
		return
	}
	t := *j.Target
	j.Target = nil // it may be a snapshot's
	b.Tidy(j, &t)
	b.SetTarget(j, &t)
}

// Gated reports whether a job that has become ready waits for a plan.
func (b *Book) Gated(j *job.State) bool {
	if b.planner == nil || j.Planless() {
		return false
	}
	return j.Target == nil && b.world.Traits.Gated && b.Chooses(j) || j.Idle() || j.Sliced()
}

// Estranged reports whether a suspended job's target is not where its memory is.
func (b *Book) Estranged(j *job.State) bool {
	t := j.Target
	return t != nil && !j.Planless() && (b.offInstance(j, j.Home) || !b.world.Shapes.Within(j.Home, j.Partitions()) ||
		t.Tasks > 0 && t.Tasks != int(inventory.TasksIn(j.Home)) ||
		t.GPU != "" && inventory.GPUOf(b.world.Store, j.Home) != t.GPU)
}

// Astray reports whether a job holds devices of another model than its target's, or
// of another partition, or another instance, or others' where it is to be alone.
func (b *Book) Astray(j *job.State) bool {
	t := j.Target
	if t == nil || j.Planless() {
		return false
	}
	if j.State == job.Placed && t.Tasks > 0 && (int(j.Tasks) > t.Tasks || int(j.Tasks) < t.Least) {
		return true
	}
	if t.Alone && j.Hosted() && j.GuestOf != t.Beside || b.offInstance(j, j.Allocs) ||
		t.Partition != "" && !b.world.Shapes.Within(j.Allocs, j.Partitions()) {
		return true
	}
	if t.GPU == "" {
		return false
	}
	held := inventory.GPUOf(b.world.Store, j.Allocs)
	return held != "" && held != t.GPU
}

// Stays reports whether a job would come back where it goes, as far as the plan in
// force says.
func (b *Book) Stays(j *job.State) bool {
	return b.planner == nil ||
		j.Target != nil && !j.Idle() && j.Target.Beside == 0 && !b.Astray(j) && b.mayBe(j, j.Tasks)
}

// Allows reports whether a job is to start on these devices, by the plan in force,
// which may be another than when they were booked.
func (b *Book) Allows(j *job.State, allocs []inventory.Alloc) bool {
	t := j.Target
	return b.planner == nil ||
		t != nil && t.Partition == "" && (t.GPU == "" || t.GPU == inventory.GPUOf(b.world.Store, allocs)) &&
			b.mayBe(j, inventory.TasksIn(allocs))
}

// mayBe reports whether so many tasks are a size that a job asks for, by its plan if there is one.
func (b *Book) mayBe(j *job.State, tasks int32) bool {
	s := b.world.Shapes.At(j.Asks())
	return s.Min <= tasks && tasks <= s.Max
}

// Bounds are the least and the most tasks of the first set of a job that holds devices.
func (b *Book) Bounds(j *job.State) (least, most int32) {
	if t := j.Target; t != nil && t.Tasks > 0 {
		return int32(t.Least), int32(t.Tasks)
	}
	s := b.world.Shapes.Get(j.Shape)
	return s.Min, s.Max
}

// Instance is what a job holds of a GPU on a MIG instance; false: it can never have it.
func (b *Book) Instance(j *job.State, t *job.Slice) (a inventory.Alloc, ok bool) {
	st := b.world.Store
	s := b.world.Shapes.At(j.Base)
	if b.world.Oracle.Undivided() || !b.world.Divided(j) || t.Node < 0 || int(t.Node) >= len(st.Nodes()) {
		return a, false
	}
	n := &st.Nodes()[t.Node]
	model := st.Classes()[n.Class()].Model()
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

// offInstance reports whether what a job holds, or where its memory is, is not where
// its target has it: on an instance, on another, or on none.
func (b *Book) offInstance(j *job.State, allocs []inventory.Alloc) bool {
	if j.Target.Slice == nil {
		return b.world.Shapes.Get(j.Base).OnInstance(allocs)
	}
	a, ok := b.Instance(j, j.Target.Slice)
	return ok && (len(allocs) != 1 || a.Node != allocs[0].Node || a.GPUs != allocs[0].GPUs ||
		a.Slots != allocs[0].Slots || a.Compute != allocs[0].Compute)
}

// Serve counts the time that a job has held what it holds since its counters were last brought up to date.
func (b *Book) Serve(j *job.State) {
	if b.planner == nil || !j.Holding() || b.world.Now == j.Acc {
		return
	}
	j.Served = job.Serve(j.Served, inventory.GPUOf(b.world.Store, j.Allocs), b.world.Now.Sub(j.Acc))
}

// ServedAt is how long a job has held GPUs of each model at an instant from now on, if the policy plans.
func (b *Book) ServedAt(j *job.State, at cluster.Time) []job.Served {
	list := slices.Clone(j.Served)
	if b.planner == nil || !j.Holding() || at <= j.Acc {
		return list
	}
	return job.Serve(list, inventory.GPUOf(b.world.Store, j.Allocs), at.Sub(j.Acc))
}

// Text says why a job waits for a plan, and when the policy plans again; an instant is written by clock.
func (b *Book) Text(j *job.State, clock func(cluster.Time) string) string {
	text := "policy " + b.planner.Name() + " gives it nothing for now"
	switch {
	case j.Target == nil:
		text = "waits for policy " + b.planner.Name() + " to plan"
	case j.Sliced():
		t := j.Target.Slice
		text = fmt.Sprintf("waits for a %s of GPU %d of %s, as policy %s has it", t.Profile, t.GPU,
			b.world.Store.Nodes()[t.Node].Spec().Name, b.planner.Name())
	}
	if at := b.Wake(); at != cluster.Never {
		text += "; it plans again at " + clock(at)
	}
	return text + b.Explained(j)
}

// Explained is what the policy says of a job, to be put behind what others say of it.
func (b *Book) Explained(j *job.State) string {
	x, ok := b.planner.(sched.Explainer)
	if !ok || j.Target == nil {
		return ""
	}
	if text := x.Explain(j.Target, b.Memo); text != "" {
		return "; " + text
	}
	return ""
}
