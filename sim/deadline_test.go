package sim

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/driver"
	"github.com/muster-gpu/muster/engine"
	"github.com/muster-gpu/muster/engine/sched"
	"github.com/muster-gpu/muster/internal/shared"
	"github.com/muster-gpu/muster/perf"
	"github.com/muster-gpu/muster/report"
	"github.com/muster-gpu/muster/trace"
)

// answers records the first answer to each job's deadline, and whether it was withdrawn later.
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

// verdicts counts what was said of deadlines.
type verdicts struct{ accepted, declined int }

func (a *verdicts) add(accepted, declined int) {
	a.accepted += accepted
	a.declined += declined
}

// check finds both often enough for a test to mean something.
func (a *verdicts) check(t *testing.T, accepted, declined int) {
	t.Helper()
	if a.accepted < accepted || a.declined < declined {
		t.Errorf("%d deadlines are accepted, %d declined", a.accepted, a.declined)
	}
}

// keepsDeadlines replays jobs under a policy that accepts deadlines: an accepted deadline is kept
// if nothing fails and real speeds equal the believed ones. It counts the answers.
func keepsDeadlines(t *testing.T, pol, size string, model *perf.Table, entries []trace.Entry) (accepted, declined int) {
	t.Helper()
	return keepsDeadlinesIn(t, pol, size, Options{Model: model}, entries)
}

// keepsDeadlinesIn is keepsDeadlines with world options.
func keepsDeadlinesIn(t *testing.T, pol, size string, opt Options, entries []trace.Entry) (accepted, declined int) {
	t.Helper()
	spec := shared.Must(cluster.ParseShort(size))
	e := engineOn(spec, engine.Config{Policy: mustPolicy(t, pol), Speeds: perf.Belief{Model: opt.Model}})
	w, said := NewWorld(spec, entries, opt),
		&answers{e: e, jobs: len(entries), first: map[cluster.JobID]engine.DeadlineAnswer{}}
	if err := driver.Run(context.Background(), e, w, said); err != nil {
		t.Fatal(err)
	}
	if len(said.back) > 0 {
		t.Errorf("%s: the answers to jobs %v changed", pol, said.back)
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
			t.Errorf("%s: no answer to job %d's deadline", pol, i)
		}
	}
	return accepted, declined
}

// TestDeadlinesKept includes jobs whose deadlines cannot be promised, and jobs without deadlines.
func TestDeadlinesKept(t *testing.T) {
	var sum verdicts
	for seed := range shared.Soak[uint64](8, 15) {
		r := rand.New(rand.NewPCG(seed, 11))
		model := &perf.Table{Scale: map[string]map[int]int64{"m": {}}}
		for n := 1; n < 8; n++ { // speed grows sublinearly with the tasks
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
		sum.add(keepsDeadlines(t, "elasticflow", "2x8xT4", model, entries))
	}
	sum.check(t, shared.Soak(50, 100), shared.Soak(10, 20))
}

// arriving makes jobs that arrive at most gap seconds apart and run for least seconds to 50 minutes more.
func arriving(r *rand.Rand, n, gap, least int, job func(e *trace.Entry)) (entries []trace.Entry) {
	at := time.Duration(0)
	for i := range n {
		at += time.Duration(r.IntN(gap)) * time.Second
		run := time.Duration(least+r.IntN(3000)) * time.Second
		entries = append(entries, entry(i, at, run, 1, job))
	}
	return entries
}

// TestGangDeadlinesKept: the same for gangs of fixed size, which have to be moved out of each
// other's way, mixed with elastic jobs of small and large tasks.
func TestGangDeadlinesKept(t *testing.T) {
	var sum verdicts
	for seed := range shared.Soak[uint64](4, 40) {
		r := rand.New(rand.NewPCG(seed, 13))
		size, perNode := "2x8xT4", 8
		if seed%2 == 1 {
			size, perNode = "4x4xT4", 4
		}
		entries := arriving(r, 60, 240, 30, func(e *trace.Entry) {
			e.Job.Tasks = cluster.GroupTasks(1+r.IntN(8), perNode, cluster.Request{})
			if r.IntN(3) == 0 {
				e.Job.Tasks = []cluster.TaskSet{
					{Count: 1 + r.IntN(4), Request: cluster.Request{GPUs: 1 + r.IntN(3)}}}
				e.Job.Elastic = cluster.Elastic{Min: 1, Max: 4}
			}
			if r.IntN(10) > 0 {
				e.Job.Deadline = e.Job.Submit.Add(e.Run * time.Duration(10+r.IntN(60)) / 10)
			}
		})
		sum.add(keepsDeadlines(t, "elasticflow", size, &perf.Table{}, entries))
	}
	least := shared.Soak(38, 400)
	sum.check(t, least, least)
}

// costly gives jobs checkpoint and restart costs, and disables checkpoints for some: a stop then
// loses all of their work.
func costly(r *rand.Rand, entries []trace.Entry) []trace.Entry {
	for i := range entries {
		j := &entries[i].Job
		j.Checkpoint = cluster.Checkpoint{Cost: time.Duration(r.IntN(20)) * time.Second,
			Restart: time.Duration(r.IntN(30)) * time.Second}
		switch r.IntN(5) {
		case 0:
			j.Checkpoint.Interval = time.Duration(2+r.IntN(10)) * time.Minute
		case 1:
			j.Checkpoint = cluster.Checkpoint{None: true, Restart: j.Checkpoint.Restart}
		}
	}
	return entries
}

// TestCostlyDeadlinesKept: the same where starts, checkpoints and resizes take time. Jobs without
// checkpoints are not stopped.
func TestCostlyDeadlinesKept(t *testing.T) {
	var sum verdicts
	seeds := []uint64{68, 142, 147, 167} // seeds where a new plan misses accepted deadlines that the old one keeps
	for seed := range shared.Soak[uint64](2, 40) {
		seeds = append(seeds, seed)
	}
	for _, seed := range seeds {
		r := rand.New(rand.NewPCG(seed, 14))
		size, perNode := "2x8xT4", 8
		if seed%2 == 1 {
			size, perNode = "4x4xT4", 4
		}
		entries := arriving(r, 60, 240, 60, func(e *trace.Entry) {
			e.Job.Tasks = cluster.GroupTasks(1+r.IntN(8), perNode, cluster.Request{})
			if seed%3 == 0 || r.IntN(3) == 0 {
				e.Job.Tasks = []cluster.TaskSet{
					{Count: 1 + r.IntN(4), Request: cluster.Request{GPUs: 1 + r.IntN(3)*int(min(1, seed%3))}}}
				e.Job.Elastic = cluster.Elastic{Min: 1, Max: 4}
			}
			if r.IntN(10) > 0 {
				e.Job.Deadline = e.Job.Submit.Add(e.Run * time.Duration(10+r.IntN(60)) / 10)
			}
		})
		sum.add(keepsDeadlinesIn(t, "elasticflow:overhead=10s", size,
			Options{Model: &perf.Table{}, Startup: 10 * time.Second}, costly(r, entries)))
		if t.Failed() {
			t.Fatalf("seed %d", seed)
		}
	}
	least := shared.Soak(45, 400)
	sum.check(t, least, least)
}

// TestDeadlinesKeptAmongUncheckpointed: the same with many jobs that have neither checkpoints nor accepted
// deadlines: they start wherever they delay no promised job, and stay there.
func TestDeadlinesKeptAmongUncheckpointed(t *testing.T) {
	var sum verdicts
	for seed := range shared.Soak[uint64](9, 40) {
		r := rand.New(rand.NewPCG(seed, 17))
		size, perNode := []string{"2x8xT4", "4x4xT4", "1x8xT4"}[seed%3], []int{8, 4, 8}[seed%3]
		overhead := time.Duration(seed%2) * 10 * time.Second
		entries := arriving(r, 60, 300, 60, func(e *trace.Entry) {
			e.Job.Tasks = cluster.GroupTasks(1+r.IntN(8), perNode, cluster.Request{})
			e.Job.Deadline = e.Job.Submit.Add(e.Run * time.Duration(11+r.IntN(60)) / 10)
			if overhead > 0 {
				e.Job.Checkpoint.Cost, e.Job.Checkpoint.Restart = time.Duration(r.IntN(20))*time.Second,
					time.Duration(r.IntN(30))*time.Second
			}
			if r.IntN(2) == 0 {
				e.Job.Tasks, e.Job.Deadline = cluster.GroupTasks(1+r.IntN(2), perNode, cluster.Request{}), 0
				e.Job.Checkpoint = cluster.Checkpoint{None: true}
			}
		})
		sum.add(keepsDeadlinesIn(t, fmt.Sprintf("elasticflow:overhead=%s", overhead), size,
			Options{Model: &perf.Table{}, Startup: overhead}, entries))
		if t.Failed() {
			t.Fatalf("seed %d", seed)
		}
	}
	least := shared.Soak(90, 400)
	sum.check(t, least, least/2)
}

// TestLeasesKept: the same for gangs of all sizes, which have to be moved out of each other's way,
// on nodes of two kinds.
func TestLeasesKept(t *testing.T) {
	leasesKept(t, 0, shared.Soak(90, 400))
}

// TestCostlyLeasesKept: the same where starts and checkpoints take time.
func TestCostlyLeasesKept(t *testing.T) {
	leasesKept(t, 10*time.Second, shared.Soak(65, 300))
}

// leasesKept replays jobs with a startup delay under chronus; at least the given number of
// deadlines must be accepted, and as many declined.
func leasesKept(t *testing.T, startup time.Duration, least int) {
	var sum verdicts
	for seed := range shared.Soak[uint64](9, 40) {
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
		if startup > 0 {
			pol, entries = fmt.Sprintf("%s,overhead=%s", pol, startup), costly(r, entries)
		}
		sum.add(keepsDeadlinesIn(t, pol, []string{"3x8xV100-32GB+1x8xT4", "4x8xT4", "3x12xT4"}[seed%3],
			Options{Model: model, Startup: startup}, entries))
	}
	sum.check(t, least, least)
}

// accepts submits jobs one after the other at one instant and reports for each whether its deadline
// is accepted.
func accepts(t *testing.T, size string, speeds sched.Speeds, jobs ...*cluster.Job) (list []bool) {
	t.Helper()
	e := engineOn(shared.Must(cluster.ParseShort(size)),
		engine.Config{Policy: mustPolicy(t, "elasticflow"), Speeds: speeds})
	for i, j := range jobs {
		j := *j
		j.ID = cluster.JobID(i)
		e.Step(engine.Batch{Events: []engine.Event{{Type: engine.Submitted, Job: j.ID, Spec: &j}}})
		list = append(list, e.Record(j.ID).Target.Deadline == engine.DeadlineAccepted)
	}
	return list
}

// due is an elastic job of one-GPU tasks; work and deadline are in minutes.
func due(work, deadline, most int, model string) *cluster.Job {
	return &cluster.Job{User: "u", Tier: cluster.Standard, Model: model, Estimate: time.Duration(work) * time.Minute,
		Deadline: cluster.Time(deadline) * cluster.Time(time.Minute),
		Elastic:  cluster.Elastic{Min: 1, Max: most},
		Tasks:    []cluster.TaskSet{{Count: 1, Request: cluster.Request{GPUs: 1}}}}
}

// ElasticFlow (ASPLOS'23): where speed grows linearly with the GPUs, deadlines are accepted if and
// only if the work due by each of them fits into the cluster's GPU time until then.
func TestElasticFlowLinear(t *testing.T) {
	said := map[bool]int{}
	for seed := range uint64(400) {
		r := rand.New(rand.NewPCG(seed, 20))
		var jobs []*cluster.Job
		for range 1 + r.IntN(8) {
			jobs = append(jobs, due(1+r.IntN(12), 1+r.IntN(20), 2, ""))
		}
		got := accepts(t, "1x2xT4", nil, jobs...)
		var kept []*cluster.Job
		for i, j := range jobs {
			with, fits := append(slices.Clone(kept), j), true
			for _, by := range with {
				work := time.Duration(0)
				for _, k := range with {
					if k.Deadline <= by.Deadline {
						work += k.Estimate
					}
				}
				fits = fits && work <= 2*time.Duration(by.Deadline)
			}
			if said[fits]++; got[i] != fits {
				t.Fatalf("seed %d: job %d of %d (%v by %v): accepted %t, fits %t", seed, i, len(jobs), j.Estimate,
					j.Deadline, got[i], fits)
			}
			if fits {
				kept = with
			}
		}
	}
	if said[true] < 300 || said[false] < 300 {
		t.Errorf("%v", said)
	}
}

// ElasticFlow (ASPLOS'23): a job whose deadline is declined is also declined when one more job was
// accepted before it.
func TestElasticFlowMonotone(t *testing.T) {
	pairs := 0
	for seed := range shared.Soak[uint64](1000, 2000) {
		r := rand.New(rand.NewPCG(seed, 21))
		model := &perf.Table{Scale: map[string]map[int]int64{"m": {}}}
		for n := 1; n <= 8; n++ {
			model.Scale["m"][n] = int64(9_000_000 * n / (n + 8))
		}
		belief := perf.Belief{Model: model}
		some := func() *cluster.Job { return due(1+r.IntN(40), 1+r.IntN(20), 1+r.IntN(8), "m") }
		var jobs []*cluster.Job
		for range 1 + r.IntN(6) {
			jobs = append(jobs, some())
		}
		more, last := some(), some()
		n := len(jobs)
		if accepts(t, "1x8xT4", belief, append(slices.Clone(jobs), last)...)[n] {
			continue
		}
		if got := accepts(t, "1x8xT4", belief, append(slices.Clone(jobs), more, last)...); got[n] {
			if pairs++; got[n+1] {
				t.Errorf("seed %d: of %d jobs the last is declined; it is accepted after one more", seed, n+1)
			}
		}
	}
	if pairs < shared.Soak(150, 300) {
		t.Errorf("%d pairs", pairs)
	}
}
