package engine

import (
	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/engine/job"
	"github.com/muster-gpu/muster/engine/shape"
)

// narrowed is the shape of a job as a target has it; -1: it can never run so. It
// tries placements: not while one is being looked for.
func (e *Engine) narrowed(of *cluster.Job, t *job.Target, base int32) int32 {
	if t.Tasks == 0 && t.GPU == "" && t.Partition == "" && t.Within == cluster.LevelAny {
		return base
	}
	model := t.Tasks == 0 && t.Partition == "" && t.Within == cluster.LevelAny
	if shape := e.shapes.Get(base).OnModel(t.GPU); model && shape >= 0 &&
		e.shapes.Get(shape).Judged == len(e.st.Nodes()) {
		if e.shapes.Get(shape).Verdict != "" {
			return -1
		}
		return shape
	}
	spec := *of
	if t.Tasks > 0 {
		spec.Tasks = append([]cluster.TaskSet(nil), spec.Tasks...)
		spec.Tasks[0].Count = t.Tasks
		spec.Elastic = cluster.Elastic{}
		if t.Least < t.Tasks {
			spec.Elastic = cluster.Elastic{Min: t.Least, Max: t.Tasks}
		}
	}
	if t.GPU != "" {
		spec.GPUTypes = []string{t.GPU}
	}
	if t.Partition != "" {
		spec.Partitions = []string{t.Partition}
	}
	if t.Within != cluster.LevelAny {
		spec.Topology = cluster.Topology{Level: t.Within, Required: true}
	}
	shapeID := e.shapeOf(&spec)
	s := e.shapes.At(shapeID)
	if s.Judged != len(e.st.Nodes()) {
		s.Judged, s.Verdict = len(e.st.Nodes()), e.judge(&job.State{Tenure: &e.none, Spec: &spec, Shape: shapeID}, s)
	}
	if b := e.shapes.Get(base); model && b.OnModel(t.GPU) < 0 {
		b.Models = append(b.Models, shape.ModelShape{GPU: t.GPU, Shape: shapeID})
	}
	if s.Verdict != "" {
		return -1
	}
	return shapeID
}

// shapeOf is the shape of a job.
func (e *Engine) shapeOf(j *cluster.Job) int32 {
	id, first := e.shapes.Of(j)
	if first && e.shapes.Get(id).Sliced() {
		e.find.Ask(id)
	}
	return id
}
