package engine_test

import (
	"slices"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/engine"
)

// scattered is the key of a job under the policy scatter.
func (j *dumbJob) scattered() [2]int64 {
	if j.goal == nil {
		return [2]int64{9}
	}
	return [2]int64{j.goal.Rank, -1}
}

// types are the GPU models that a job takes.
func (j *dumbJob) types() []string {
	if j.narrow != "" {
		return []string{j.narrow}
	}
	return j.GPUTypes
}

// gated reports whether a job that has become ready waits for a plan.
func (d *dumb) gated(j *dumbJob) bool {
	return j.Tier != cluster.Critical &&
		(j.goal == nil && (d.policy == "scatter:gated" || d.policy == "scatter:divides" && !d.ignores(j)) ||
			j.goal != nil && j.goal.Slice != nil) || d.nothing(j)
}

// nothing reports whether the plan in force gives a job nothing.
func (d *dumb) nothing(j *dumbJob) bool {
	return j.Tier != cluster.Critical && j.goal != nil && j.goal.Idle
}

// plan gives every job a target that could run, and has it go there.
func (d *dumb) plan() {
	var kinds []string
	for i := range d.nodes {
		if m := d.nodes[i].Model; !slices.Contains(kinds, m) {
			kinds = append(kinds, m)
		}
	}
	d.inPlan = nil
	for _, j := range d.jobs {
		back := j.state == engine.Stopping && (j.reason == engine.Preempted || j.reason == engine.NodeLost) &&
			!j.NoRequeue
		if !(j.eligible || j.idled || j.inBooks() || back) {
			continue
		}
		if d.policy == "scatter:some" && !chosen(j.ID) && j.state == engine.Pending || d.ignores(j) {
			continue
		}
		d.inPlan = append(d.inPlan, j)
		j.narrow, j.part = "", ""
		t := chanceTarget(j.ID, d.now)
		t.Idle = t.Idle && (d.policy != "scatter:some" || chosen(j.ID))
		if d.policy == "scatter:slices" || d.policy == "scatter:divides" {
			if t.Slice = chanceSlice(&t); t.Slice != nil && (t.Idle || d.instance(j, t.Slice) == nil) {
				t.Slice = nil
			}
		}
		model, part := "", ""
		if j.goal = &t; t.Tasks%3 == 0 && t.Slice == nil {
			model = kinds[t.Tasks%len(kinds)]
		}
		if d.policy == "scatter:parts" {
			part = chancePartition(&t)
		}
		d.aim(j, model, part)
		switch {
		case j.eligible && d.gated(j):
			j.eligible, j.idled = false, true
		case j.idled && !d.gated(j):
			d.admit(j)
		case j.state == engine.Placed && (d.nothing(j) || d.astray(j)):
			eligibleSince := j.eligibleSince
			d.unplace(j)
			d.admit(j)
			j.eligibleSince = eligibleSince
		case j.inBooks():
			if d.follow(j); j.inBooks() {
				d.list(j)
			}
		}
	}
	d.divide()
}

// aim has a job take only one GPU model, and nodes of one partition, if it accepts
// that, the partition takes it, and it can ever run so.
func (d *dumb) aim(j *dumbJob, model, part string) {
	if model != "" && len(j.GPUTypes) > 0 && !slices.ContainsFunc(j.GPUTypes, func(want string) bool {
		return model == want || len(model) > len(want) && model[:len(want)+1] == want+"-"
	}) {
		model = ""
	}
	if !slices.ContainsFunc(d.parts, func(p cluster.Partition) bool {
		return p.Name == part && (p.MaxGPUs == 0 || j.GPUs() <= p.MaxGPUs)
	}) {
		part = ""
	}
	j.narrow, j.part = model, part
	if model+part != "" && !d.everFits(j) {
		j.narrow, j.part = "", ""
	}
}

// astray reports whether a job holds devices of another model, or in another partition,
// than it is to have.
func (d *dumb) astray(j *dumbJob) bool {
	if j.Tier != cluster.Critical && d.offSlice(j) {
		return true
	}
	if j.Tier != cluster.Critical && j.part != "" &&
		slices.ContainsFunc(j.allocs, func(a engine.Alloc) bool { return !d.inPart(j.part, int(a.Node)) }) {
		return true
	}
	if j.narrow == "" || j.Tier == cluster.Critical {
		return false
	}
	for _, a := range j.allocs {
		if a.GPUs != 0 {
			return d.nodes[a.Node].Model != j.narrow
		}
	}
	return false
}

// follow stops a job that is to have nothing, or something else, once it has had
// its minimum run time.
func (d *dumb) follow(j *dumbJob) {
	if (j.state == engine.Starting || j.state == engine.Running) && j.goal != nil && (d.nothing(j) || d.astray(j)) &&
		j.started.Add(d.minRuntime) <= d.now {
		d.stop(j, engine.Preempted, cluster.NoJob)
	}
}
