package trace

import (
	"time"

	"github.com/muster-gpu/muster/cluster"
)

// rubickFormat is the workload of Rubick (reconfigurable training jobs).
// Seconds from the trace's own zero; num_cpus is for the whole job. In a file
// that has jobs with is_sla 1, the others are best-effort.
var rubickFormat = Format{
	Name:   "rubick",
	About:  "Rubick: name,submission_time,duration,application,num_gpus,num_cpus,bandwidth,exec_plan,steps,is_sla",
	Detect: columns(',', "name", "submission_time", "duration", "application", "num_gpus", "exec_plan"),
	Read:   readRubick,
}

func readRubick(b *Builder) error {
	t, err := b.table(',', "name", "submission_time", "duration", "application", "num_gpus")
	if err != nil {
		return err
	}
	name, submit, dur, app := t.col("name"), t.col("submission_time"), t.col("duration"), t.col("application")
	gpus, cpus, steps, sla := t.col("num_gpus"), t.col("num_cpus"), t.col("steps"), t.col("is_sla")
	promised := false
	err = t.each(func(e *Entry) bool {
		e.Work = &Work{Steps: t.real(steps, 0, maxSteps)}
		e.Job.Name, e.Job.Model = t.str(name), t.str(app)
		e.Job.Submit = t.at(submit, time.Second)
		e.Run = t.dur(dur, time.Second)
		// Settled below, once it is known whether the file distinguishes the two.
		e.Job.Tier = cluster.BestEffort
		if t.num(sla, 0, 1) == 1 {
			e.Job.Tier, promised = cluster.Standard, true
		}
		b.gang(e, int(t.num(gpus, 1, cluster.MaxTasks)), 1000*t.num(cpus, 0, 1<<30), 0)
		return true
	})
	for _, chunk := range b.chunks {
		for i := range chunk {
			if !promised {
				chunk[i].Job.Tier = cluster.Standard
			}
		}
	}
	return err
}
