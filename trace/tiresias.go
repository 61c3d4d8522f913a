package trace

import (
	"time"

	"github.com/muster-gpu/muster/cluster"
)

// tiresiasFormat is the input of the Tiresias simulator (and, with other
// columns after the first few, of its testbed: tf_job.csv). Seconds from the
// trace's own zero. interval (the gap to the job before) is redundant.
var tiresiasFormat = Format{
	Name:   "tiresias",
	About:  "Tiresias: job_id,num_gpu,submit_time,iterations,model_name,duration,interval in seconds",
	Detect: columns(',', "job_id", "num_gpu", "submit_time", "model_name", "duration"),
	Read:   readTiresias,
}

func readTiresias(b *Builder) error {
	t, err := b.table(',', "job_id", "num_gpu", "submit_time", "model_name", "duration")
	if err != nil {
		return err
	}
	id, gpus, submit := t.col("job_id"), t.col("num_gpu"), t.col("submit_time")
	model, dur, steps := t.col("model_name"), t.col("duration"), t.col("iterations")
	return t.each(func(e *Entry) bool {
		e.Job.Name, e.Job.Model = t.str(id), t.str(model)
		e.Job.Tier = cluster.Standard
		e.Job.Submit = t.at(submit, time.Second)
		e.Run = t.dur(dur, time.Second)
		if steps >= 0 {
			e.Work = &Work{Steps: float64(t.num(steps, 0, maxSteps))}
		}
		b.gang(e, int(t.num(gpus, 1, cluster.MaxTasks)), 0, 0)
		return true
	})
}
