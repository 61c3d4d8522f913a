package trace

import (
	"time"

	"github.com/muster-gpu/muster/cluster"
)

// muriFormat is the input of Muri's simulator and testbed. Everything is in
// milliseconds from the trace's own zero. priority 1 marks an opportunistic
// job (AntMan's word), which is our best-effort tier.
var muriFormat = Format{
	Name:   "muri",
	About:  "Muri: Tiresias' columns in milliseconds, with iteration and stage times",
	Detect: columns(',', "job_id", "num_gpu", "submit_time", "iteration_time", "resource_time_0", "duration"),
	Read:   readMuri,
}

func readMuri(b *Builder) error {
	t, err := b.table(',', "job_id", "num_gpu", "submit_time", "iterations", "model_name", "batch_size",
		"duration", "iteration_time", "resource_time_0")
	if err != nil {
		return err
	}
	id, gpus, submit, steps := t.col("job_id"), t.col("num_gpu"), t.col("submit_time"), t.col("iterations")
	model, batch, dur, step := t.col("model_name"), t.col("batch_size"), t.col("duration"), t.col("iteration_time")
	stages := []int{t.col("resource_time_0"), t.col("resource_time_1"), t.col("resource_time_2")}
	prio := t.col("priority")
	return t.each(func(e *Entry) bool {
		const ms = time.Millisecond
		e.Work = &Work{
			Steps: float64(t.num(steps, 0, maxSteps)),
			Batch: t.num(batch, 0, maxSteps),
			Step:  t.dur(step, ms),
		}
		for _, s := range stages {
			e.Work.Stages = append(e.Work.Stages, t.dur(s, ms))
		}
		e.Job.Name, e.Job.Model = t.str(id), t.str(model)
		e.Job.Tier = cluster.Standard
		if t.num(prio, 0, 1) == 1 {
			e.Job.Tier = cluster.BestEffort
		}
		e.Job.Submit = t.at(submit, ms)
		e.Run = t.dur(dur, ms)
		b.gang(e, int(t.num(gpus, 1, cluster.MaxTasks)), 0, 0)
		return true
	})
}
