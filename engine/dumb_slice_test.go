package engine_test

import (
	"math/bits"
	"slices"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/engine"
)

// asNeeded is the only instance of a GPU on which they are made as needed.
var asNeeded = cluster.Instance{Profile: cluster.AsNeeded}

// divisible: a job of one task with one whole GPU, under a policy that may have it
// run on an instance.
func (d *dumb) divisible(j *dumbJob) bool {
	r := j.Tasks[0].Request
	return (d.policy == "scatter:slices" || d.policy == "scatter:divides") && len(j.Tasks) == 1 &&
		j.Tasks[0].Count == 1 && r.GPUs == 1 && !partial(&r) && j.PerNode == 0 && j.NodeLimits == nil &&
		j.Nodes == ""
}

// ignores: plans say nothing of the job, because it could run on no GPU that can be divided.
func (d *dumb) ignores(j *dumbJob) bool {
	if d.policy != "scatter:divides" || j.goal != nil && (j.goal.Idle || j.goal.Slice != nil) {
		return false
	}
	asked := *j // not what an earlier plan has it ask for
	asked.narrow, asked.part = "", ""
	for i := range d.nodes {
		if modelOf(&d.nodes[i]).MIG() && d.suits(&asked, 0, i) {
			return false
		}
	}
	return true
}

// instance is what a job would hold; nil: it can never have it.
func (d *dumb) instance(j *dumbJob, t *engine.Slice) *engine.Alloc {
	if !d.divisible(j) || int(t.Node) >= len(d.nodes) || t.GPU >= d.nodes[t.Node].GPUs || !d.suits(j, 0, int(t.Node)) {
		return nil
	}
	n, r := &d.nodes[t.Node], j.Tasks[0].Request
	m := modelOf(n)
	p, ok := m.Profile(t.Profile)
	if !ok || !slices.Contains(p.Starts, t.Start) || p.Memory < r.Memory {
		return nil
	}
	if _, list := instancesOf(n, t.GPU); n.MIG != "" && !slices.Contains(list, asNeeded) &&
		!slices.Contains(list, cluster.Instance{Profile: p.Name, Start: t.Start}) {
		return nil
	}
	return &engine.Alloc{Node: t.Node, Tasks: 1, GPUs: 1 << t.GPU, Share: int32(p.Compute * 1000 / m.Compute),
		Slots:   p.Mask(t.Start),
		Compute: uint8(p.Compute), Media: p.Media(), Mem: min(p.Memory, m.Memory), CPU: r.CPU, RAM: r.RAM}
}

// someInstance: where every GPU is divided, jobs that ask for a whole one are not
// refused if there is an instance for them.
func (d *dumb) someInstance(j *dumbJob) bool {
	for i := range d.nodes {
		for dev := range d.nodes[i].GPUs {
			_, list := instancesOf(&d.nodes[i], dev)
			if slices.Contains(list, asNeeded) {
				for _, p := range modelOf(&d.nodes[i]).Profiles {
					list = append(list, cluster.Instance{Profile: p.Name})
				}
			}
			for _, in := range list {
				if j.Tier != cluster.Critical &&
					d.instance(j, &engine.Slice{Node: int32(i), GPU: dev, Profile: in.Profile,
						Start: in.Start}) != nil {
					return true
				}
			}
		}
	}
	return false
}

// offSlice: a job that asks for a whole GPU is not on the instance that the plan
// names, or on one though it names none.
func (d *dumb) offSlice(j *dumbJob) bool {
	if j.goal.Slice == nil {
		return len(j.allocs) == 1 && j.allocs[0].Slots != 0 && j.Tasks[0].Request.Profile == ""
	}
	want := *d.instance(j, j.goal.Slice)
	return len(j.allocs) != 1 || j.allocs[0].Node != want.Node || j.allocs[0].GPUs != want.GPUs ||
		j.allocs[0].Slots != want.Slots
}

// divide starts jobs on the instances that the plan names, as far as they are free.
func (d *dumb) divide() {
	for _, j := range d.inPlan {
		if j.state != engine.Pending || !j.idled || j.goal.Slice == nil || j.Tier == cluster.Critical {
			continue
		}
		a := *d.instance(j, j.goal.Slice)
		n, b := &d.nodes[a.Node], d.books()
		g := b.gpu(int(a.Node), bits.TrailingZeros64(a.GPUs))
		a.Mem = min(a.Mem, g.mem)
		if n.State == cluster.Up && n.Bad&a.GPUs == 0 && b.exactly([]engine.Alloc{a}) &&
			g.compute+int(a.Compute) <= modelOf(n).Compute && !d.overBy(j, a.Milli(), nil) {
			j.idled = false
			d.book(j, []engine.Alloc{a})
		}
	}
}
