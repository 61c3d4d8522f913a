package engine_test

import (
	"math/bits"
	"slices"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/engine"
)

// What a driver finds out about running jobs, as the twin takes it: reshaped, adopted, amended. A report that does not
// fit what the twin knows is ignored as a whole.

// reshape gives a running job other tasks, or other devices.
func (d *dumb) reshape(j *dumbJob, r *engine.Reshape) (taken bool) {
	if j.state != engine.Starting && j.state != engine.Running {
		return false
	}
	spec := *j.Job
	spec.Tasks, spec.Elastic = slices.Clone(r.Tasks), cluster.Elastic{}
	if spec.NoRequeue { // it is never placed again, so what its driver found stands
		spec.Nodes, spec.PerNode, spec.NodeLimits, spec.Topology = "", 0, nil, cluster.Topology{}
	}
	if !d.mayBe(j, &spec, r.Allocs) {
		return false
	}
	d.makeWay(j.allocs, r.Allocs)
	d.accrue(j)
	d.become(j, &spec)
	j.goal, j.narrow, j.part = nil, "", ""
	j.allocs = ownedBy(j, r.Allocs)
	d.list(j)
	d.loseOnDown(j)
	return true
}

// become gives a job another spec.
func (d *dumb) become(j *dumbJob, spec *cluster.Job) {
	j.Job = spec
	j.shape = d.shapeOf(spec)
}

func ownedBy(j *dumbJob, allocs []engine.Alloc) []engine.Alloc {
	list := slices.Clone(allocs)
	for i := range list {
		if list[i].Share > 0 && list[i].Slots == 0 {
			list[i].Tenant = 1 + int32(j.ID)
		}
	}
	return list
}

// mayBe reports whether a running job can have this spec on these devices.
func (d *dumb) mayBe(j *dumbJob, spec *cluster.Job, allocs []engine.Alloc) bool {
	as := *j
	as.Job, as.narrow, as.part = spec, "", ""
	if engine.CheckTasks(spec) != "" || d.unshareable(&as) || !d.isGang(&as, allocs) {
		return false
	}
	for _, a := range allocs {
		sameDevice := func(o engine.Alloc) bool { return o.Node == a.Node && o.GPUs == a.GPUs && o.Share > 0 }
		grown := less(dumbPartsOn(allocs, a.Node, a.GPUs), dumbPartsOn(j.allocs, a.Node, a.GPUs))
		for _, v := range d.jobs {
			if v.state == engine.Stopping && (slices.ContainsFunc(v.allocs, func(o engine.Alloc) bool {
				return o.Node == a.Node && o.GPUs&a.GPUs != 0 && !together(o, a)
			}) || a.Share > 0 && slices.ContainsFunc(v.allocs, sameDevice) && slices.Max(grown[:]) > 0) {
				return false
			}
		}
	}
	beside, instead := d.vacant(j.allocs, allocs)
	return beside || instead
}

// isGang reports whether allocations are all that a spec asks for, each where it may be.
func (d *dumb) isGang(j *dumbJob, allocs []engine.Alloc) bool {
	tasks, gpus, on, model := make([]int, len(j.Tasks)), make([]int, len(j.Tasks)), map[int32]int{}, ""
	for _, a := range allocs {
		if a.Node < 0 || int(a.Node) >= len(d.nodes) || a.Set < 0 || int(a.Set) >= len(j.Tasks) || a.Tasks < 0 {
			return false
		}
		n, r, count := &d.nodes[a.Node], &j.Tasks[a.Set].Request, bits.OnesCount64(a.GPUs)
		on[a.Node] += int(a.Tasks)
		switch {
		case a.GPUs>>n.GPUs != 0 || !d.mayRun(j, int(a.Set), int(a.Node)) || a.Beside,
			j.PerNode > 0 && on[a.Node] > j.PerNode,
			a.CPU != r.CPU*int64(a.Tasks) || a.RAM != r.RAM*int64(a.Tasks),
			partial(r) && (count != 1 || a.Share <= 0),
			!partial(r) && (a.Share != 0 || a.Slots != 0 || count != r.GPUs*int(a.Tasks)),
			partial(r) && r.Profile == "" && (int64(a.Share) != r.Share || a.Mem != r.Memory || a.Slots != 0),
			r.Profile != "" && !isInstance(n, &a, r.Profile),
			a.GPUs != 0 && model != "" && n.Model != model:
			return false
		}
		if a.GPUs != 0 {
			model = n.Model
		}
		tasks[a.Set] += int(a.Tasks)
		gpus[a.Set] += count
	}
	for set := range j.Tasks {
		if tasks[set] != j.Tasks[set].Count || gpus[set] != tasks[set]*j.Tasks[set].Request.GPUs {
			return false
		}
	}
	return true
}

// mayRun reports whether a node suits a running job, which a plan may have put in another partition than it names.
func (d *dumb) mayRun(j *dumbJob, set, node int) bool {
	return d.suits(j, set, node) || slices.ContainsFunc(d.parts, func(p cluster.Partition) bool {
		there := *j
		there.part = p.Name
		return d.suits(&there, set, node)
	})
}

// isInstance reports whether an allocation is an instance of a profile where the device can have, or has, one.
func isInstance(n *cluster.Node, a *engine.Alloc, profile string) bool {
	m, dev := modelOf(n), bits.TrailingZeros64(a.GPUs)
	p, ok := m.Profile(profile)
	_, list := instancesOf(n, dev)
	return ok && slices.ContainsFunc(p.Starts, func(start int) bool {
		return p.Mask(start) == a.Slots && int(a.Compute) == p.Compute &&
			(n.MIG == "" || slices.Contains(list, asNeeded) ||
				slices.Contains(list, cluster.Instance{Profile: p.Name, Start: start}))
	})
}

// unshareable: a client of MPS has one server, and that one GPU.
func (d *dumb) unshareable(j *dumbJob) bool {
	return d.mps && slices.ContainsFunc(j.Tasks, func(s cluster.TaskSet) bool {
		return s.Request.GPUs > 1 && s.Request.Fractional() && s.Request.Profile == ""
	})
}

// vacant reports whether devices are free once others are given back: beside all jobs, or if those give way that have
// not started on these nodes.
func (d *dumb) vacant(back, allocs []engine.Alloc) (beside, instead bool) {
	b := d.books()
	b.mps = d.mps
	b.give(back)
	if d.allFree(b.clone(), allocs, true) {
		return true, false
	}
	for _, w := range d.placedOn(allocs) {
		b.give(w.allocs)
	}
	return false, d.allFree(b, allocs, false)
}

// allFree reports whether these allocations are free in the books, and the leaving jobs' CPU and RAM are still there
// for them; claimed: but for what others wait for.
func (d *dumb) allFree(b books, allocs []engine.Alloc, claimed bool) bool {
	for _, a := range allocs { // whatever would become of speeds
		n, dev := &d.nodes[a.Node], bits.TrailingZeros64(a.GPUs)
		a.Tenant = 0
		if n.Bad&a.GPUs != 0 || a.Share > 0 && a.Slots == 0 && cutAt(n, dev) || !b.exactly([]engine.Alloc{a}) {
			return false
		}
		b.take([]engine.Alloc{a})
	}
	for _, a := range allocs {
		cpu, ram := b.cpu(int(a.Node)), b.ram(int(a.Node))
		for _, v := range d.jobs {
			if v.state != engine.Stopping {
				continue
			}
			c, r := dumbHost(v.allocs, a.Node)
			if claimed {
				c, r = d.unclaimed(v, a.Node)
			}
			cpu, ram = cpu-c, ram-r
		}
		if cpu < 0 || ram < 0 {
			return false
		}
	}
	return true
}

// placedOn lists the jobs that have places on the nodes of allocations and have not started.
func (d *dumb) placedOn(allocs []engine.Alloc) (list []*dumbJob) {
	for _, w := range d.jobs {
		if w.state == engine.Placed && slices.ContainsFunc(w.allocs, func(x engine.Alloc) bool {
			return slices.ContainsFunc(allocs, func(y engine.Alloc) bool { return x.Node == y.Node })
		}) {
			list = append(list, w)
		}
	}
	return list
}

// makeWay takes places back where a job turns out to run.
func (d *dumb) makeWay(back, allocs []engine.Alloc) {
	if beside, _ := d.vacant(back, allocs); !beside {
		for _, w := range d.placedOn(allocs) {
			d.unplace(w)
		}
	}
}

// adopt takes over a job that is found running. The record is one that a driver makes: nothing is under way.
func (d *dumb) adopt(r *engine.JobRecord) (taken bool) {
	if int(r.Spec.ID) < len(d.jobs) || d.noQueue(r.Spec) {
		return false
	}
	j := d.newJob(r.Spec)
	j.namesakes = nil // it has begun: it waits for none of its name
	if !d.mayBe(j, r.Spec, r.Allocs) {
		return false
	}
	d.makeWay(nil, r.Allocs)
	d.jobs = append(d.jobs, j)
	j.state, j.started, j.firstStart, j.limitAt, j.acc = r.State, r.Started, r.FirstStart, r.LimitAt, r.Acc
	j.stints = []stint{{weight: cluster.Whole, work: r.Attained}}
	j.ran, j.done, j.saved, j.computes, j.began = r.Ran, r.Done, r.Saved, r.Rate > 0, r.State == engine.Running
	j.since, j.predicted, j.begun = r.Since, r.Predicted, true
	j.allocs = ownedBy(j, r.Allocs)
	d.list(j)
	d.loseOnDown(j)
	d.line()
	return true
}

// loseOnDown stops a job that is found on a node that is down.
func (d *dumb) loseOnDown(j *dumbJob) {
	if slices.ContainsFunc(j.allocs, func(a engine.Alloc) bool { return d.nodes[a.Node].State == cluster.Down }) {
		d.stop(j, engine.NodeLost, cluster.NoJob)
	}
}

// amend takes over what of a running job's spec can change while it runs.
func (d *dumb) amend(j *dumbJob, to *cluster.Job) (taken bool) {
	if j.state != engine.Starting && j.state != engine.Running {
		return false
	}
	spec := *j.Job
	spec.Name, spec.NoRequeue, spec.Checkpoint = to.Name, to.NoRequeue, to.Checkpoint
	spec.Nodes, spec.PerNode, spec.NodeLimits = to.Nodes, to.PerNode, to.NodeLimits
	as := *j
	as.Job, as.narrow, as.part = &spec, "", ""
	if _, named := d.sets[spec.Nodes]; spec.Nodes != "" && !named {
		return false
	}
	if d.shapeOf(&spec) != d.shapeOf(j.Job) && !d.isGang(&as, j.allocs) {
		return false
	}
	d.become(j, &spec)
	d.aim(j, j.narrow, j.part)
	d.list(j)
	return true
}

// tell counts a report about a running job.
func (d *dumb) tell(ev *engine.Event, taken bool) {
	if d.told != nil {
		d.told[verdictOn{ev.Type, taken}]++
	}
}
