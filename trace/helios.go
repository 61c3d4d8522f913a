package trace

import (
	"time"

	"github.com/muster-gpu/muster/cluster"
)

// heliosFormat is cluster_log.csv of SenseTime's Helios (HeliosData), also
// with Lucid's extra column jobname. submit_time and so on are the site's
// local times without a zone, duration seconds of running, queue seconds of
// waiting (not used).
var heliosFormat = Format{
	Name:   "helios",
	About:  "Helios: job_id,user,vc,gpu_num,cpu_num,node_num,state,submit_time,...,duration,queue",
	Detect: columns(',', "job_id", "user", "vc", "gpu_num", "cpu_num", "state", "submit_time", "duration"),
	Read:   readHelios,
}

func readHelios(b *Builder) error {
	t, err := b.table(',', "job_id", "user", "vc", "gpu_num", "cpu_num", "state", "submit_time", "duration")
	if err != nil {
		return err
	}
	b.calendar = true
	id, user, vc, gpus, cpus := t.col("job_id"), t.col("user"), t.col("vc"), t.col("gpu_num"), t.col("cpu_num")
	state, submit, start, dur := t.col("state"), t.col("submit_time"), t.col("start_time"), t.col("duration")
	name := t.col("jobname")
	var left unusable
	err = t.each(func(e *Entry) bool {
		if !left.ran(t, e, state, start, -1) {
			return false
		}
		if e.Job.Name = t.str(name); e.Job.Name == "" {
			e.Job.Name = t.str(id)
		}
		e.Job.User, e.Job.Queue, e.Job.Tier = t.str(user), t.str(vc), cluster.Standard
		e.Job.Submit = t.stamp(submit)
		e.Run = t.dur(dur, time.Second)
		b.gang(e, int(t.num(gpus, 0, cluster.MaxTasks)), 1000*t.num(cpus, 0, 1<<30), 0)
		return true
	})
	left.note(b)
	return err
}
