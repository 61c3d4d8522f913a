// Package found says whether what a driver finds out, besides how jobs get on, fits what the engine knows: jobs that
// run and are unknown, or are made of other tasks, or hold something else, and nodes that are others than they were.
// It changes nothing.
package found

import (
	"math/bits"
	"slices"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/engine/admission"
	"github.com/muster-gpu/muster/engine/inventory"
	"github.com/muster-gpu/muster/engine/job"
	"github.com/muster-gpu/muster/engine/pending"
	"github.com/muster-gpu/muster/engine/placement"
	"github.com/muster-gpu/muster/engine/plan"
	"github.com/muster-gpu/muster/engine/running"
	"github.com/muster-gpu/muster/engine/sched"
)

// Books are what findings are compared with.
type Books struct {
	Spec      *cluster.Spec
	World     *sched.World
	Jobs      func() []*job.State // by number; nil where there is none
	Nodes     map[string]int32    // numbers of nodes by name; looked up only
	Admission *admission.Checker
	Leavers   *pending.Leavers
	Running   *running.Jobs
	Plan      *plan.Book
}

// Reshape is what a job that runs is made of from now on.
type Reshape struct {
	Tasks  []cluster.TaskSet `json:"tasks"`
	Allocs []inventory.Alloc `json:"allocs"` // of all of these
}

// Reshaped is a job's spec with other tasks; text says why it cannot have these.
func (b *Books) Reshaped(j *job.State, r *Reshape) (spec *cluster.Job, text string) {
	switch {
	case r == nil:
		return nil, "nothing is said of it"
	case j.State != job.Starting && j.State != job.Running:
		return nil, "it is " + j.State.String()
	case j.Resizing || len(j.Leaving) > 0 || j.Hosted() || len(j.Guests) > 0:
		return nil, "it is being resized, or beside another"
	}
	next := *j.Spec
	next.Tasks, next.Elastic = slices.Clone(r.Tasks), cluster.Elastic{}
	if next.NoRequeue { // it is not placed again: where it may be, it is
		next.Nodes, next.PerNode, next.NodeLimits, next.Topology = "", 0, nil, cluster.Topology{}
	}
	if text := b.Admission.CheckTasks(&next); text != "" {
		return nil, text
	}
	return &next, b.checkPlace(j, &next, r.Allocs)
}

// checkPlace says why a job cannot be, with such a spec, where these allocations are; "": it can.
func (b *Books) checkPlace(j *job.State, spec *cluster.Job, allocs []inventory.Alloc) string {
	noSet := func(a inventory.Alloc) bool { return a.Set < 0 }
	if !inventory.Valid(b.World.Store, allocs, false) || slices.ContainsFunc(allocs, noSet) {
		return "there is no such node or device"
	}
	as := *j
	as.Spec, as.Shape = spec, b.Admission.ShapeOf(spec)
	as.Tenure = &job.Tenure{Holdings: job.Holdings{Allocs: j.Owned(allocs)}}
	b.CountHeld(&as)
	if err := b.Holds(&as, false); err != nil {
		return err.Error()
	}
	if !onItsNodes(b.World, &as) {
		return "it is on a node that it may not be on"
	}
	for i := range as.Allocs {
		a := &as.Allocs[i]
		if a.Beside || (a.Share > 0 || a.Slots > 0) && bits.OnesCount64(a.GPUs) != 1 {
			return "it is beside another, or has a part of several GPUs"
		}
		for _, id := range b.World.Store.Nodes()[a.Node].Stopping() {
			v := b.Jobs()[id]
			beside := a.Share > 0 && inventory.ShareDevice(v.Allocs, a) && grows(j.Allocs, as.Allocs, a)
			if v.InTheWay(a) || beside {
				return "a job that leaves still has a device of it"
			}
		}
	}
	if ok, _ := b.Leavers.Vacant(j.Allocs, as.Allocs, b.Running.Placed()); !ok {
		return "not all of it is free"
	}
	return ""
}

// grows reports whether a job would have more of the device of an allocation than it has.
func grows(now, then []inventory.Alloc, a *inventory.Alloc) bool {
	p := job.PartOn(then, a.Node, a.GPUs)
	p.Add(job.PartOn(now, a.Node, a.GPUs), -1)
	return max(p.Milli, p.Mem, p.Compute, p.Clients) > 0
}

// Holds says what a job holds otherwise than it asked for; keeps: or may have held when its node was larger.
func (b *Books) Holds(j *job.State, keeps bool) error {
	return placement.CheckHeld(b.World, j, keeps, b.Strays())
}

// Strays reports whether plans may have jobs run in other partitions than their own.
func (b *Books) Strays() bool { return b.Plan.Active() && b.World.Shapes.HasPartitions() }

// CountHeld notes how large a job is by what it holds.
func (b *Books) CountHeld(j *job.State) {
	j.Tasks = inventory.TasksIn(j.Allocs)
	j.Devices, j.Milli = int32(b.World.Shapes.At(j.Shape).Devices(int(j.Tasks))), inventory.MilliIn(j.Allocs)
}

// onItsNodes reports whether a job is on nodes that its spec names.
func onItsNodes(w *sched.World, j *job.State) bool {
	s := w.Shapes.Get(j.Shape)
	return !slices.ContainsFunc(j.Allocs, func(a inventory.Alloc) bool { return !s.Reaches(a.Node) })
}

// Amended is a spec that a running job may get where it is, and its shape: with another name, and with what else may
// change while it runs, which is whether it comes back when it is stopped, what it saves, where it may be when it does,
// and whether it is a replica of a service that lends. No spec: it may not have this one.
func (b *Books) Amended(j *job.State, spec *cluster.Job) (*cluster.Job, int32) {
	if spec == nil || spec.ID != j.Spec.ID {
		return nil, 0
	}
	next := *j.Spec
	next.Name, next.NoRequeue, next.Checkpoint = spec.Name, spec.NoRequeue, spec.Checkpoint
	next.Nodes, next.Partitions, next.Topology = spec.Nodes, spec.Partitions, spec.Topology
	next.PerNode, next.NodeLimits, next.Service = spec.PerNode, spec.NodeLimits, spec.Service
	if _, text := b.Admission.CheckSpec(&next); text != "" {
		return nil, 0
	}
	as := *j
	as.Spec, as.Shape = &next, b.Admission.ShapeOf(&next)
	if as.Shape != j.Shape && (j.Resizing || b.Holds(&as, false) != nil || !onItsNodes(b.World, &as)) {
		return nil, 0 // it may not be where it is
	}
	return &next, as.Shape
}
