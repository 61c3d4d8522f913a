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
	"github.com/muster-gpu/muster/report"
	"github.com/muster-gpu/muster/trace"
)

// answers notes what is said of each job's deadline: first, and whether that was
// taken back.
type answers struct {
	e     *engine.Engine
	jobs  int
	first map[cluster.JobID]engine.DeadlineAnswer
	back  []cluster.JobID
}

func (a *answers) Record(*engine.Batch, *engine.Decision) error {
	for id := range a.jobs {
		if a.e.Spec(cluster.JobID(id)) == nil {
			continue // not submitted yet
		}
		job := a.e.Record(cluster.JobID(id))
		if job.Target == nil {
			continue
		}
		was, known := a.first[cluster.JobID(id)]
		if !known {
			a.first[cluster.JobID(id)] = job.Target.Deadline
		} else if was != job.Target.Deadline {
			a.back = append(a.back, cluster.JobID(id))
		}
	}
	return nil
}

// keepsDeadlines replays jobs under a policy that accepts deadlines: an accepted
// one is kept, if nothing fails and speeds are what they are believed to be. It
// counts the answers.
func keepsDeadlines(t *testing.T, pol, size string, model *perf.Table, entries []trace.Entry) (accepted, declined int) {
	t.Helper()
	spec, err := cluster.ParseShort(size)
	if err != nil {
		t.Fatal(err)
	}
	pl, err := place.New("best-fit")
	if err != nil {
		t.Fatal(err)
	}
	e, err := engine.New(engine.Config{Spec: *spec, Policy: mustPolicy(t, pol), Placer: pl, Speeds: perf.Belief{Model: model}})
	if err != nil {
		t.Fatal(err)
	}
	w, said := NewWorld(spec, entries, Options{Model: model}), &answers{e: e, jobs: len(entries), first: map[cluster.JobID]engine.DeadlineAnswer{}}
	if err := driver.Run(context.Background(), e, w, said); err != nil {
		t.Fatal(err)
	}
	if len(said.back) > 0 {
		t.Errorf("%s: the answers to jobs %v change", pol, said.back)
	}
	for i, rec := range w.Book().Run(w).Records {
		switch answer, deadline := said.first[cluster.JobID(i)], entries[i].Job.Deadline; {
		case answer == engine.DeadlineAccepted:
			if accepted++; rec.End > deadline {
				t.Errorf("%s: job %d ends at %v, its deadline is %v and was accepted", pol, i, rec.End, deadline)
			}
		case answer == engine.DeadlineDeclined:
			declined++
		case deadline > 0 && rec.Outcome != report.Rejected:
			t.Errorf("%s: nothing is said of job %d's deadline", pol, i)
		}
	}
	return accepted, declined
}

// TestDeadlinesKept: jobs that cannot be promised theirs are among them, and such
// without any.
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
		a, d := keepsDeadlines(t, "elasticflow", "2x8xT4", model, entries)
		accepted, declined = accepted+a, declined+d
	}
	if accepted < 100 || declined < 20 {
		t.Errorf("%d deadlines are accepted, %d declined", accepted, declined)
	}
}

// TestLeasesKept: the same of gangs of all sizes, which have to be moved out of
// each other's way, on nodes of two kinds.
func TestLeasesKept(t *testing.T) {
	accepted, declined := 0, 0
	for seed := range uint64(40) {
		r := rand.New(rand.NewPCG(seed, 12))
		model := &perf.Table{Speed: map[string]map[string]int64{"m": {"T4": 600_000}}}
		var entries []trace.Entry
		at := time.Duration(0)
		for i := range 80 {
			at += time.Duration(r.IntN(200_000)) * time.Millisecond
			run := time.Duration(30_000+r.IntN(1_500_000)) * time.Millisecond
			entries = append(entries, entry(i, at, run, 1+r.IntN(8), func(e *trace.Entry) {
				e.Job.Model = []string{"", "m"}[r.IntN(2)]
				switch r.IntN(6) {
				case 0:
					e.Job.Tasks[0].Count = 1 + r.IntN(4)
				case 1:
					e.Job.Tasks = append(e.Job.Tasks, cluster.TaskSet{Count: 1, Request: cluster.Request{GPUs: 1}})
				case 2:
					e.Job.Tier = cluster.BestEffort
				}
				if r.IntN(10) > 1 {
					e.Job.Deadline = e.Job.Submit.Add(run * time.Duration(10+r.IntN(100)) / 10)
				}
			}))
		}
		pol := "chronus:lease=2m" + []string{"", ",first=most"}[seed%2]
		a, d := keepsDeadlines(t, pol, []string{"3x8xV100-32GB+1x8xT4", "4x8xT4", "3x12xT4"}[seed%3], model, entries)
		accepted, declined = accepted+a, declined+d
	}
	if accepted < 400 || declined < 400 {
		t.Errorf("%d deadlines are accepted, %d declined", accepted, declined)
	}
}
