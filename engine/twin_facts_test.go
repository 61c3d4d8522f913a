package engine_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/engine"
)

// factual is a seed beyond which jobs are found running, and running jobs are found to be other than they were.
const factual = 1 << 34

// singleUser: for this seed the shares of one GPU are of one user.
func singleUser(seed uint64) bool {
	return seed > oneUser && seed < holding || seed > factual && seed%3 == 0
}

// TestTwinFacts is TestTwin and TestTwinQueues where drivers find out about running jobs: reshaped, adopted, amended.
func TestTwinFacts(t *testing.T) {
	told := tally{}
	for _, pol := range []string{"fifo", "srtf", "las:base=1m", "sjf-gpu:preempt=true", "edf", "multifactor", twoLevels,
		byIndex, byPace, byRest, "qssf", "drf", "scatter", "scatter:round", "scatter:gated", "scatter:slices",
		"scatter:divides", "scatter:parts", "scatter:some"} {
		for mode := engine.Strict; mode <= engine.Conservative; mode++ {
			if mode >= engine.EASY && pol != "fifo" && pol != "srtf" && pol != "multifactor" {
				continue // the twin knows promises under these
			}
			t.Run(fmt.Sprintf("%s/%s", pol, mode), func(t *testing.T) {
				for seed, n := uint64(1), 0; n < twinEvents(t)/3; seed++ {
					queues := twinQueues
					if seed%2 == 0 && pol != "drf" {
						queues = nil
					}
					placer := []string{"best-fit", "first-fit", "worst-fit"}[seed%3]
					if w := newPair(t, pol, placer, mode, seed+factual, queues); w != nil {
						w.d.told = told
						n += w.mustPlay(t, seed+factual)
					}
				}
			})
		}
	}
	for _, typ := range []engine.EventType{engine.JobReshaped, engine.Adopted, engine.Updated} {
		taken, refused := told[verdictOn{typ, true}], told[verdictOn{typ, false}]
		if t.Logf("%s: %d were taken, %d did not fit", typ, taken, refused); min(taken, refused) < 40 {
			t.Errorf("%s: too few to tell", typ)
		}
	}
}

// tally counts reports by what became of them.
type tally map[verdictOn]int

type verdictOn struct {
	typ   engine.EventType
	taken bool
}

// found is a job that is found running: mostly where it could start, now and then anywhere.
func (w *pair) found(spec *cluster.Job) engine.Event {
	j := *spec
	j.Array = nil
	r := &engine.JobRecord{Spec: &j}
	r.Allocs = w.finder().anywhere(j.Tasks, w.sharer(&j))
	if known := len(w.d.jobs); known == int(j.ID) && chance(w.facts, 80) {
		as := w.d.newJob(&j)
		w.d.jobs = append(w.d.jobs, as) // whose share it is has to be known
		b := w.d.books()
		for _, o := range w.d.jobs { // now and then where others have their place that have not started
			if o.state == engine.Placed && chance(w.facts, 60) {
				b.give(o.allocs)
			}
		}
		if place := w.d.place(as, b, nil); place != nil {
			r.Allocs = place
		}
		w.d.jobs = w.d.jobs[:known]
	}
	r.State, r.LimitAt, r.StarvingSince = engine.Running, cluster.Never, cluster.Never
	r.Started = w.now - min(w.now, cluster.Time(seconds(w.facts.IntN(100))))
	r.FirstStart, r.Acc, r.Since = r.Started, w.now, r.Started
	if r.Ran = w.now.Sub(r.Started); j.Limit > 0 {
		r.LimitAt = r.Started.Add(j.Limit)
	}
	r.Rate, r.Speed, r.Done = 1_000_000, 1_000_000, r.Ran/2
	if r.Attained = w.facts.Int64N(100_000_000); chance(w.facts, 20) {
		r.State, r.Rate, r.Speed = engine.Starting, 0, 0
	}
	return engine.Event{Type: engine.Adopted, Job: j.ID, Record: r}
}

// observe adds, now and then, that a running job has other tasks than it had, or another spec.
func (w *pair) observe(b *engine.Batch) {
	if w.facts == nil {
		return
	}
	ends := map[cluster.JobID]bool{} // looked up only
	for i := range b.Events {
		if ev := &b.Events[i]; ev.Type == engine.Stopped || ev.Type == engine.StartFailed {
			ends[ev.Job] = true
		}
	}
	for _, j := range w.d.jobs {
		switch runs := j.state == engine.Starting || j.state == engine.Running; {
		case !j.holds() || !chance(w.facts, 12):
		case chance(w.facts, 70):
			b.Events = append(b.Events, engine.Event{Type: engine.JobReshaped, Job: j.ID, Reshape: w.reshape(j)})
		case runs && !ends[j.ID]:
			b.Events = append(b.Events, engine.Event{Type: engine.Updated, Job: j.ID, Spec: w.amended(j)})
		}
	}
}

// amended is a running job's spec with other words about what becomes of it when it stops.
func (w *pair) amended(j *dumbJob) *cluster.Job {
	r, spec := w.facts, *j.Job
	spec.Name, spec.NoRequeue = pick(r, spec.Name, "x", "y"), chance(r, 30)
	spec.Checkpoint.Cost, spec.Checkpoint.None = seconds(r.IntN(20)), chance(r, 30)
	if chance(r, 40) {
		spec.PerNode, spec.NodeLimits = 0, nil
		boundNodes(r, &spec, w.d.nodes)
	}
	if chance(r, 10) {
		spec.Nodes = pick(r, "", "set0", "set1")
	}
	return &spec
}

// reshape makes a random change to what a job has.
func (w *pair) reshape(j *dumbJob) *engine.Reshape {
	add := func(q cluster.Request) []engine.Alloc {
		one := cluster.Job{ID: j.ID, User: j.User, Model: j.Model, Tasks: []cluster.TaskSet{{Count: 1, Request: q}}}
		return w.d.place(&dumbJob{Job: &one}, w.d.books(), nil)
	}
	return w.finder().reshape(j.Tasks, j.allocs, w.sharer(j.Job), add, w.request)
}

func (w *pair) finder() finder { return finder{w.facts, w.d.nodes} }

// sharer is the user of a job's shares, where those of a GPU are of one user.
func (w *pair) sharer(j *cluster.Job) string {
	if w.d.mps {
		return j.User
	}
	return ""
}

// compare looks whether engine and twin believe the same about every job.
func (w *pair) compare() error {
	if w.facts == nil {
		return nil
	}
	for id, j := range w.d.jobs {
		r := w.e.Record(cluster.JobID(id))
		switch {
		case r == nil:
			return fmt.Errorf("the engine does not know job %d, which is %s", id, j.state)
		case r.State != j.state:
			return fmt.Errorf("the engine takes job %d to be %s, its twin to be %s", id, r.State, j.state)
		case j.state != engine.Done && !slices.Equal(r.Allocs, j.allocs):
			return fmt.Errorf("the engine takes job %d to hold\n%+v, its twin\n%+v", id, r.Allocs, j.allocs)
		}
	}
	return nil
}

// answerAdopted has jobs that were found running start, and end.
func (w *pair) answerAdopted(b *engine.Batch, attempt map[cluster.JobID]int) {
	for i := range b.Events {
		ev := &b.Events[i]
		if ev.Type != engine.Adopted || int(ev.Job) >= len(w.d.jobs) || attempt[ev.Job] != 0 {
			continue
		}
		j := w.d.jobs[ev.Job]
		if j.Job != ev.Record.Spec || j.state != engine.Starting && j.state != engine.Running {
			continue
		}
		attempt[ev.Job] = 1000
		at, tag := w.later(), time.Duration(1000)
		if ev.Record.State == engine.Starting {
			w.add(at, engine.Event{Type: engine.Started, Job: ev.Job, Saved: tag})
		}
		run := seconds(1 + w.r.IntN(400))
		w.add(at.Add(run), engine.Event{Type: engine.Stopped, Job: ev.Job, Saved: tag, Reason: engine.Completed,
			Done: run})
	}
}
