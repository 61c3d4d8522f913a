package trace

import (
	"time"

	"github.com/muster-gpu/muster/cluster"
)

// itpFormat is Microsoft's ITP trace as released with ElasticFlow: the raw
// list, the list with models and (absolute) deadlines, and the third form of
// the same authors with submit_time, iteration and ddl. Seconds from the start
// of the collection.
var itpFormat = Format{
	Name:  "itp",
	About: "ElasticFlow/ITP: job_id,submission_time,duration,num_gpu, with or without model and deadline",
	Detect: func(head []byte, name string) bool {
		return columns(',', "job_id", "submission_time", "duration", "num_gpu")(head, name) ||
			columns(',', "job_id", "submit_time", "duration", "num_gpu", "ddl")(head, name)
	},
	Read: readITP,
}

func readITP(b *Builder) error {
	t, err := b.table(',', "job_id", "duration", "num_gpu")
	if err != nil {
		return err
	}
	either := func(x, y string) int { return max(t.col(x), t.col(y)) }
	id, gpus, dur, model := t.col("job_id"), t.col("num_gpu"), t.col("duration"), t.col("model_name")
	submit, steps := either("submission_time", "submit_time"), either("num_iteration", "iteration")
	deadline, batch := either("deadline", "ddl"), t.col("batch_size")
	if submit < 0 {
		return b.fatal(1, "no column \"submission_time\" in the header")
	}
	return t.each(func(e *Entry) bool {
		e.Job.Name, e.Job.Model = t.str(id), t.str(model)
		e.Job.Tier = cluster.Standard
		e.Job.Submit = t.at(submit, time.Second)
		e.Run = t.dur(dur, time.Second)
		e.Job.Deadline = t.at(deadline, time.Second)
		if steps >= 0 {
			e.Work = &Work{Steps: t.real(steps, 0, maxSteps), Batch: t.num(batch, 0, maxSteps)}
		}
		b.gang(e, int(t.num(gpus, 1, cluster.MaxTasks)), 0, 0)
		return true
	})
}
