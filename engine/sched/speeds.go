package sched

import (
	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/engine/job"
)

// SpeedBeside returns the expected share of a job's speed, in ppm of its speed alone, while others
// run on the same GPUs of a model. If nothing is known they take turns.
func (v View) SpeedBeside(j JobView, gpu string, others []JobView) int64 {
	if s := v.w.Speeds; s != nil {
		specs := make([]*cluster.Job, len(others))
		for i := range others {
			specs[i] = others[i].j.Spec
		}
		return s.Beside(j.j.Spec, gpu, specs)
	}
	return job.Million / int64(1+len(others))
}

// Distances is a Speeds that knows how distance between a gang's tasks affects its speed.
type Distances interface {
	// Apart returns a job's speed on several nodes within one domain of a level, and no nearer, in
	// ppm of that on one node.
	Apart(j *cluster.Job, gpu string, l cluster.Level) int64
}

// Apart returns the job's expected speed on several nodes within a domain of a level, in ppm of
// that on one node (see Distances); known: there is data.
func (v View) Apart(j JobView, gpu string, l cluster.Level) (ppm int64, known bool) {
	d, ok := v.w.Speeds.(Distances)
	if !ok {
		return job.Million, false
	}
	return d.Apart(j.j.Spec, gpu, l), true
}

// skewed is the share of its speed that a job is assumed to lose on several nodes if all that is
// known is that its largest message exceeds a tenth of the model (Tiresias).
const skewed = 0.3

// Losses returns the shares of its speed that a gang is expected to lose on several nodes of a
// rack, and of several racks, on GPUs of a model: from data on distances, else by its skew.
func (v View) Losses(j JobView, gpu string) (loss [2]float64) {
	for i, l := range []cluster.Level{cluster.LevelRack, cluster.LevelFabric} {
		switch ppm, known := v.Apart(j, gpu, l); {
		case known:
			loss[i] = min(max(1-float64(ppm)/job.Million, 0), 1)
		case j.Spec().Skew > 100:
			loss[i] = skewed
		}
	}
	return loss
}

// Speeds is the scheduler's estimate of how fast jobs run.
type Speeds interface {
	// Speed returns a job's speed with so many tasks of its first set on GPUs of a model, as near
	// to one another as possible, in ppm of that on the reference GPU with the number of tasks that
	// it asks for.
	Speed(j *cluster.Job, gpu string, tasks int) int64
	// Beside returns a job's speed while others run on the same GPUs of a model, in ppm of its
	// speed alone.
	Beside(j *cluster.Job, gpu string, others []*cluster.Job) int64
	// Slice returns the speed of a job that asks for one GPU on a MIG instance of a model, which
	// has part thousandths of its compute slices, in ppm as Speed.
	Slice(j *cluster.Job, gpu, profile string, part int64) int64
}

// SpeedOn returns the job's expected speed on a MIG instance instead of a GPU of the model, in ppm
// (see Speeds); if nothing is known, the instance's share of the compute slices.
func (v View) SpeedOn(j JobView, model *cluster.GPUModel, p *cluster.SliceProfile) int64 {
	part := int64(p.Compute) * cluster.Whole / int64(model.Compute)
	if s := v.w.Speeds; s != nil {
		return s.Slice(j.j.Spec, model.Name, p.Name, part)
	}
	return part * (job.Million / cluster.Whole)
}

// Speed returns the job's expected speed with so many tasks of its first set on GPUs of a model, in
// ppm (see Speeds); if nothing is known, it is proportional to the number of tasks.
func (v View) Speed(j JobView, gpu string, tasks int) int64 {
	return v.w.Oracle.Speed(j.j, gpu, tasks)
}

// Measured reports whether anything is known of speeds; otherwise a job is equally fast on all
// GPUs.
func (v View) Measured() bool { return v.w.Speeds != nil || v.w.Oracle.SpeedsMeasured() }
