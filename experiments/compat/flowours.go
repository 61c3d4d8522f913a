package compat

import (
	"math"
	"math/bits"
	"time"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/engine"
)

// flowOurs is that world under a policy of ours: the scheduler runs when jobs arrive or end, and
// when it asks to; whatever is due within a minute is merged.
type flowOurs struct {
	w    *FlowWorld
	stir bool                               // a job arrived or ended in this event
	cost func(j *flowJob, restart bool) int // seconds that a running job, which had want GPUs, loses at an event
}

func newFlowOurs(w *FlowWorld, x Flow) *flowOurs {
	f := &flowOurs{w: w, cost: func(*flowJob, bool) int { return 0 }}
	switch x.World {
	case "gandiva":
		w.gangs()
		f.cost = f.starts
	case "themis":
		w.gangs()
	case "chronus":
		w.gangs()
		f.cost = f.resumes
	case "elasticflow":
		w.elastic(flowElasticMost)
		f.cost = f.stirs
	default:
		w.elastic(flowMost)
	}
	for i := range w.jobs {
		j := &w.jobs[i]
		if x.Largest {
			j.spec.Elastic = cluster.Elastic{}
		}
		j.spec.Deadline = cluster.Time(j.deadline) * cluster.Time(time.Second)
		j.spec.Estimate = max(1, j.reference())
	}
	return f
}

// starts charges starting jobs, and all jobs at each sixtieth event.
func (f *flowOurs) starts(j *flowJob, restart bool) int {
	if j.want > 0 && !restart {
		return 0
	}
	return slotStart(f.w.total, j.gpus, restart)
}

// resumes charges starting jobs: half a second, and more for every doubling of GPUs.
func (f *flowOurs) resumes(j *flowJob, _ bool) int {
	if j.want > 0 {
		return 0
	}
	return ceilDiv(bits.Len(uint(j.gpus)), 2)
}

// stirs charges all jobs whenever one arrives or ends, and resized jobs.
func (f *flowOurs) stirs(j *flowJob, restart bool) int {
	switch {
	case j.want != j.given || restart:
		return slotStart(f.w.total, j.given, restart)
	case f.stir:
		return slotKept(f.w.total)
	}
	return 0
}

// next brings jobs up to the next event.
func (f *flowOurs) next() bool {
	w := f.w
	if !w.begin() {
		return false
	}
	for _, i := range w.known {
		if j := &w.jobs[i]; j.given > 0 {
			j.left -= float64(float64(max(0, w.span-max(0, w.now-j.end)-j.lost)) * j.rate(j.given))
		}
	}
	f.stir = len(w.events[0].come)+len(w.events[0].ends) > 0
	for _, i := range w.events[0].ends {
		w.finish(i, w.jobs[i].end)
	}
	for _, i := range w.known {
		if j := &w.jobs[i]; j.given > 0 {
			w.reports = append(w.reports,
				engine.Event{Type: engine.Progress, Job: j.spec.ID, Done: j.done(), Rate: j.ppm(j.given)})
		}
	}
	for _, i := range w.events[0].come {
		w.known = append(w.known, i)
		w.arrive(i)
	}
	return true
}

func (*flowOurs) decide() {} // the policy decides

// settle computes when jobs end at their current speeds, and the next events.
func (f *flowOurs) settle() error {
	w := f.w
	w.events = w.events[1:]
	restart := w.restarts()
	for _, i := range w.known {
		j := &w.jobs[i]
		end := 0
		if j.given > 0 {
			j.lost = f.cost(j, restart)
			end = w.now + j.lost + int(math.Ceil(j.left/j.rate(j.given)))
			j.end = end
		}
		if end != j.moved {
			w.events.drop(j.moved, i)
		}
		if end > 0 {
			w.events.end(end, i)
		}
		j.moved, j.want = end, j.given
	}
	if w.wake != cluster.Never && len(w.known) > 0 {
		w.events.at(max(w.now+1, int((w.wake+cluster.Time(time.Second)-1)/cluster.Time(time.Second))))
	}
	w.events.gather(w.now)
	return nil
}

// reference is the remaining work of a job, as run time on the requested number of GPUs.
func (j *flowJob) reference() time.Duration {
	return nanos(j.left / j.rate(j.spec.Tasks[0].Count))
}

// done is the completed work of the job, in the same measure.
func (j *flowJob) done() time.Duration { return max(0, j.spec.Estimate-j.reference()) }

// ppm is the job's speed relative to that on the requested number of GPUs.
func (j *flowJob) ppm(gpus int) int64 {
	return int64(math.Round(1e6 * j.rate(gpus) / j.rate(j.spec.Tasks[0].Count)))
}

// flowSpeeds tells a policy the actual speeds.
type flowSpeeds struct{ w *FlowWorld }

// Speed implements sched.Speeds.
func (s flowSpeeds) Speed(j *cluster.Job, _ string, tasks int) int64 {
	return s.w.jobs[j.ID].ppm(tasks)
}

// Slice implements sched.Speeds: there are no MIG instances here.
func (flowSpeeds) Slice(*cluster.Job, string, string, int64) int64 { return 1_000_000 }

// Beside implements sched.Speeds: GPUs are not shared here.
func (flowSpeeds) Beside(_ *cluster.Job, _ string, others []*cluster.Job) int64 {
	return 1_000_000 / int64(1+len(others))
}
