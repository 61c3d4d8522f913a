package trace

import (
	"bytes"
	"fmt"
	"time"

	"github.com/muster-gpu/muster/cluster"
)

// chronusFormat is the input of Chronus: Philly jobs with deadlines. All times
// are minutes. expect_time_list holds deadlines after submission, falling in
// value; the first (full value) becomes Job.Deadline.
var chronusFormat = Format{
	Name:   "chronus",
	About:  "Chronus: Philly jobs with deadlines, in minutes",
	Detect: columns(',', "job_id", "num_gpu", "submit_time", "expect_time_list", "best_effort"),
	Read:   readChronus,
}

func readChronus(b *Builder) error {
	t, err := b.table(',', "job_id", "user", "num_gpu", "submit_time", "model_name", "duration",
		"expect_time_list", "best_effort")
	if err != nil {
		return err
	}
	id, user, gpus, submit := t.col("job_id"), t.col("user"), t.col("num_gpu"), t.col("submit_time")
	model, dur, steps := t.col("model_name"), t.col("duration"), t.col("iterations")
	expect, best := t.col("expect_time_list"), t.col("best_effort")
	soft := 0
	err = t.each(func(e *Entry) bool {
		e.Job.Name, e.Job.Model = t.str(id), t.str(model)
		// The column called user names the virtual cluster (vc_6214e9).
		e.Job.Queue = b.text(bytes.TrimPrefix(t.raw(user), []byte("vc_")))
		e.Job.Submit = t.at(submit, time.Minute)
		e.Run = t.dur(dur, time.Minute)
		e.Job.Tier = cluster.Standard
		if t.num(best, 0, 1) == 1 {
			e.Job.Tier = cluster.BestEffort
		} else {
			var more bool
			e.Job.Deadline, more = t.firstDeadline(expect, e.Job.Submit)
			if more {
				soft++
			}
		}
		if steps >= 0 {
			e.Work = &Work{Steps: float64(t.num(steps, 0, maxSteps))}
		}
		b.gang(e, int(t.num(gpus, 0, cluster.MaxTasks)), 0, 0)
		return true
	})
	if soft > 0 {
		b.note("%d jobs have several deadlines of falling value; the first is taken", soft)
	}
	return err
}

// firstDeadline reads the first of the "-"-separated deadlines (minutes).
func (t *table) firstDeadline(i int, submit cluster.Time) (cluster.Time, bool) {
	first, _, more := bytes.Cut(t.raw(i), []byte("-"))
	d, ok := parseAmount(first, time.Minute)
	if !ok || d == 0 {
		t.fail(i, fmt.Sprintf("deadlines in minutes joined by %q, the first above 0", "-"))
	}
	return submit.Add(d), more
}
