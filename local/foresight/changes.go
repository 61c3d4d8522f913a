package foresight

import (
	"fmt"
	"time"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/engine"
)

// placed reports whether a job got devices, possibly after others leave them.
func placed(e *engine.Engine, id cluster.JobID) bool {
	s := e.Record(id).State
	return s != engine.Pending && s != engine.Done
}

// change is something that a user could ask for instead.
type change struct {
	text string
	edit func(*cluster.Job)
}

// changes lists what a job could ask for instead, the smallest first.
func changes(spec *cluster.Job) (list []change) {
	r := spec.Tasks[0].Request
	add := func(text string, edit func(*cluster.Job)) { list = append(list, change{text, edit}) }
	request := func(edit func(*cluster.TaskSet)) func(*cluster.Job) {
		return func(j *cluster.Job) {
			j.Tasks = append([]cluster.TaskSet(nil), j.Tasks...)
			edit(&j.Tasks[0])
		}
	}
	if len(spec.GPUTypes) > 0 {
		add("any GPU model", func(j *cluster.Job) { j.GPUTypes = nil })
	}
	if r.Memory > 0 {
		add("less GPU memory", request(func(t *cluster.TaskSet) { t.Request.Memory = 0 }))
	}
	if r.RAM > 0 {
		add(fmt.Sprintf("half the host memory (%d MiB per task)", r.RAM/2),
			request(func(t *cluster.TaskSet) { t.Request.RAM /= 2 }))
	}
	if r.CPU > 1000 {
		add(fmt.Sprintf("half the CPU cores (%g per task)", float64(r.CPU)/2000),
			request(func(t *cluster.TaskSet) { t.Request.CPU /= 2 }))
	}
	if spec.Topology.Required {
		add("without the required topology level", func(j *cluster.Job) { j.Topology.Required = false })
	}
	if spec.Limit == 0 || spec.Limit > 10*time.Minute {
		add("a time limit of 10m (it may pass in a gap)", func(j *cluster.Job) { j.Limit = 10 * time.Minute })
	}
	for n := spec.Tasks[0].Count - 1; n >= 1 && len(list) < mostChanges; n-- {
		add(fmt.Sprintf("%d tasks instead of %d", n, spec.Tasks[0].Count),
			request(func(t *cluster.TaskSet) { t.Count = n }))
	}
	for g := r.GPUs - 1; g >= 1 && len(list) < mostChanges; g-- {
		add(fmt.Sprintf("%d GPUs per task instead of %d", g, r.GPUs),
			request(func(t *cluster.TaskSet) { t.Request.GPUs = g }))
	}
	if r.GPUs == 1 && r.Profile == "" && !r.Fractional() {
		add("half a GPU", request(func(t *cluster.TaskSet) { t.Request.Share = 500 }))
	}
	if spec.Tier == cluster.Standard {
		add("tier best-effort (it may use what its queue is not owed, and is the first to leave)",
			func(j *cluster.Job) { j.Tier = cluster.BestEffort })
	}
	if spec.Tier != cluster.Critical {
		add("tier critical (it would preempt)", func(j *cluster.Job) { j.Tier = cluster.Critical })
	}
	return list
}

// mostChanges is how many single changes are tried.
const mostChanges = 12

// Helping returns the single changes that would give a job devices now, of those that may be made. Each is tried on an
// engine of its own.
func Helping(spec *cluster.Job, now cluster.Time, fork func() (*engine.Engine, error),
	may func(spec *cluster.Job) bool) (list []string, err error) {
	tasks := false
	for _, c := range changes(spec) {
		if tasks && c.text[0] >= '1' && c.text[0] <= '9' {
			continue // fewer still would do as well
		}
		e, err := fork()
		if err != nil {
			return nil, err
		}
		other := *spec
		c.edit(&other)
		if e.Check(&other) != "" || !may(&other) {
			continue
		}
		e.Step(engine.Batch{Now: now, Events: []engine.Event{{Type: engine.Updated, Job: spec.ID, Spec: &other}}})
		if placed(e, spec.ID) {
			list = append(list, c.text)
			tasks = tasks || c.text[0] >= '1' && c.text[0] <= '9'
		}
	}
	return list, nil
}
