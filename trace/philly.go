package trace

import (
	"time"

	"github.com/muster-gpu/muster/cluster"
)

// phillyFormat is the processed list of Microsoft's Philly trace that the
// Pollux, Sia and ElasticFlow artifacts share. gpu_time is redundant.
var phillyFormat = Format{
	Name:   "philly",
	About:  "Philly, processed list: timestamp,duration,num_gpus,gpu_time,cluster",
	Detect: columns(',', "timestamp", "duration", "num_gpus", "cluster"),
	Read:   readPhilly,
}

func readPhilly(b *Builder) error {
	t, err := b.table(',', "timestamp", "duration", "num_gpus", "cluster")
	if err != nil {
		return err
	}
	b.calendar = true
	stamp, dur, gpus, vc := t.col("timestamp"), t.col("duration"), t.col("num_gpus"), t.col("cluster")
	return t.each(func(e *Entry) bool {
		e.Job.Tier = cluster.Standard
		e.Job.Submit = t.stamp(stamp)
		e.Run = t.dur(dur, time.Second)
		e.Job.Queue = t.str(vc) // text even if it looks like a number (6214e9)
		b.gang(e, int(t.num(gpus, 1, cluster.MaxTasks)), 0, 0)
		return true
	})
}
