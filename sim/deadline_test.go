package sim

import (
	"context"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/driver"
	"github.com/muster-gpu/muster/engine"
	"github.com/muster-gpu/muster/perf"
	"github.com/muster-gpu/muster/place"
	"github.com/muster-gpu/muster/trace"
)

// TestDeadlinesKept: under a policy that accepts deadlines, an accepted one is
// kept, if nothing fails and speeds are what they are believed to be. Jobs that
// cannot be promised theirs are among them, and such without any.
func TestDeadlinesKept(t *testing.T) {
	accepted, declined := 0, 0
	for seed := range uint64(15) {
		r := rand.New(rand.NewPCG(seed, 11))
		model := &perf.Table{Scale: map[string]map[int]int64{"m": {}}}
		for n := 1; n < 8; n++ { // speed grows less than the tasks
			model.Scale["m"][n] = 1_000_000 * int64(2*n) / int64(n+8)
		}
		var entries []trace.Entry
		at := time.Duration(0)
		for i := range 60 {
			at += time.Duration(r.IntN(240)) * time.Second
			run := time.Duration(30+r.IntN(900)) * time.Second
			e := entry(i, at, run, 1, func(e *trace.Entry) {
				e.Job.Estimate, e.Job.Model = e.Run, "m"
				e.Job.Tasks[0].Count, e.Job.Elastic = 8, cluster.Elastic{Min: 1 + r.IntN(2), Max: 8}
				if r.IntN(10) > 0 {
					e.Job.Deadline = e.Job.Submit.Add(run * time.Duration(10+r.IntN(60)) / 10)
				}
			})
			entries = append(entries, e)
		}
		spec, err := cluster.ParseShort("2x8xT4")
		if err != nil {
			t.Fatal(err)
		}
		pl, err := place.New("best-fit")
		if err != nil {
			t.Fatal(err)
		}
		e, err := engine.New(engine.Config{Spec: *spec, Policy: mustPolicy(t, "elasticflow"), Placer: pl, Speeds: perf.Belief{Model: model}})
		if err != nil {
			t.Fatal(err)
		}
		w := NewWorld(spec, entries, Options{Model: model})
		if err := driver.Run(context.Background(), e, w, nil); err != nil {
			t.Fatal(err)
		}
		for i, rec := range w.Book().Run(w).Records {
			job := e.Record(cluster.JobID(i))
			switch answer := job.Target.Deadline; {
			case answer == engine.DeadlineAccepted:
				if accepted++; rec.End > job.Spec.Deadline {
					t.Errorf("seed %d: job %d ends at %v, its deadline is %v and was accepted", seed, i, rec.End, job.Spec.Deadline)
				}
			case answer == engine.DeadlineDeclined:
				declined++
			case job.Spec.Deadline > 0:
				t.Errorf("seed %d: nothing is said of job %d's deadline", seed, i)
			}
		}
	}
	if accepted < 100 || declined < 20 {
		t.Errorf("%d deadlines are accepted, %d declined", accepted, declined)
	}
}
