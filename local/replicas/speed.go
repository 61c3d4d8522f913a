package replicas

import (
	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/engine"
	"github.com/muster-gpu/muster/local/record"
	"github.com/muster-gpu/muster/perf"
)

// Slowed is what to tell the engine when a replica measured which part of its speed is left beside the jobs on its
// GPUs; false: nothing, as it is alone or as the engine knows. The engine learns from it which models should not meet.
// model is that of another job.
func Slowed(e *engine.Engine, j *record.Job, part float64, model func(cluster.JobID) string) (engine.Event, bool) {
	if j.Sub.Replica == nil || !j.Spec.Shares() || len(e.Company(j.ID)) == 0 {
		return engine.Event{}, false
	}
	rate := int64(part * perf.Million)
	far := func(a, b int64) bool { return max(a-b, b-a) >= perf.Million/50 }
	known := max(rate, perf.Million/2) // as far as that goes by reports
	return engine.Event{Type: engine.Progress, Job: j.ID, Rate: rate},
		far(e.Record(j.ID).Rate, rate) || far(believed(e, j, model), known)
}

// believed is what the engine believes to be left of a job's speed beside the one other on its GPUs, in ppm; nothing is
// lost beside several, which say nothing of one.
func believed(e *engine.Engine, j *record.Job, model func(cluster.JobID) string) int64 {
	if among := e.Company(j.ID); len(among) == 1 {
		for _, p := range e.Measured() {
			if p.Model == j.Spec.Model && p.Beside == model(among[0]) {
				return p.Speed
			}
		}
	}
	return perf.Million
}
