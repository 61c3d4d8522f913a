package sim

import (
	"context"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/driver"
	"github.com/muster-gpu/muster/engine"
	"github.com/muster-gpu/muster/internal/shared"
	"github.com/muster-gpu/muster/policy"
	"github.com/muster-gpu/muster/report"
	"github.com/muster-gpu/muster/trace"
)

// entry is a job with one set of one-GPU tasks.
func entry(id int, at, run time.Duration, gpus int, change ...func(*trace.Entry)) trace.Entry {
	e := trace.Entry{Run: run,
		Job: cluster.Job{ID: cluster.JobID(id), User: "u", Tier: cluster.Standard, Submit: cluster.Time(at),
			Estimate: run,
			Tasks:    []cluster.TaskSet{{Count: 1, Request: cluster.Request{GPUs: gpus}}}}}
	for _, f := range change {
		f(&e)
	}
	return e
}

func replayed(t *testing.T, size, pol string, entries []trace.Entry, opt Options, change ...func(*Setup)) Outcome {
	t.Helper()
	spec := shared.Must(cluster.ParseShort(size))
	s := Setup{Policy: pol, Placer: "best-fit", World: opt}
	for _, f := range change {
		f(&s)
	}
	o := Run(context.Background(), spec, entries, s)
	if o.Err != nil {
		t.Fatal(o.Err)
	}
	return o
}

// A job that is cancelled while it leaves (it writes a checkpoint because it is preempted) is gone:
// it does not wait for ever in the world.
func TestCancelWhileLeaving(t *testing.T) {
	entries := []trace.Entry{
		entry(0, 0, time.Hour, 2, func(e *trace.Entry) {
			e.Job.Tier, e.Job.Checkpoint.Cost, e.End = cluster.BestEffort, time.Minute, cluster.Time(630*time.Second)
		}),
		entry(1, 10*time.Minute, time.Hour, 2),
	}
	o := replayed(t, "1x2xT4", "fifo", entries, Options{}, func(s *Setup) {
		s.Config.Stop = &[3]engine.StopRule{2: {How: engine.Checkpoint, Grace: time.Hour}}
	})
	if r := o.Run.Records[0]; r.Outcome != report.Cancelled || r.End != cluster.Time(660*time.Second) {
		t.Fatalf("the cancelled job: %+v", r)
	}
}

// randomEntries are jobs with distinct times, so that no tie is left to ids.
func randomEntries(r *rand.Rand, n int) []trace.Entry {
	var list []trace.Entry
	at := time.Duration(0)
	used := map[time.Duration]bool{}
	for i := range n {
		at += time.Duration(1+r.IntN(50_000)) * time.Millisecond
		run := time.Duration(1+r.IntN(400_000)) * time.Millisecond
		for used[run] {
			run += time.Millisecond
		}
		used[run] = true
		list = append(list, entry(i, at, run, 1<<r.IntN(4)))
	}
	return list
}

// TestWorkDone (U4): completed jobs did exactly their work; service is the integral of their
// holdings; without preemption they ran for exactly that time.
func TestWorkDone(t *testing.T) {
	for _, pol := range []string{"fifo", "sjf", "srtf", "las:base=1m"} {
		for seed := range uint64(5) {
			entries := randomEntries(rand.New(rand.NewPCG(seed, 4)), 80)
			for i := range entries {
				entries[i].Job.Checkpoint = cluster.Checkpoint{Interval: 20 * time.Second, Restart: 5 * time.Second}
			}
			o := replayed(t, "2x8xT4", pol, entries, Options{Startup: 3 * time.Second}, func(s *Setup) {
				s.Config.Stop = &[3]engine.StopRule{{How: engine.Kill}, {How: engine.Kill}, {How: engine.Kill}}
			})
			for i := range o.Run.Records {
				r, e := &o.Run.Records[i], &entries[i]
				milli := e.Job.GPUMilli()
				if r.Outcome != report.Completed {
					t.Fatalf("%s seed %d: job %d: %+v", pol, seed, i, r)
				}
				if useful := r.Busy - r.Lost; useful != milli*int64(e.Run/time.Millisecond) {
					t.Errorf("%s seed %d: job %d did %d milli-GPU-ms of useful work, its work is %d", pol, seed, i,
						useful, milli*int64(e.Run/time.Millisecond))
				}
				if r.Held != milli*int64(r.Ran/time.Millisecond) {
					t.Errorf("%s seed %d: job %d held %d milli-GPU-ms in %v", pol, seed, i, r.Held, r.Ran)
				}
				if got := r.End.Sub(r.Submit); got != r.Waited+r.Ran {
					t.Errorf("%s seed %d: job %d was there for %v: waited %v, ran %v", pol, seed, i, got, r.Waited,
						r.Ran)
				}
			}
		}
	}
}

// TestPlainJobsEnd (U4): where a stop costs a job all of its work, every policy lets each job end,
// however short its turns, within five times the sum of all run times. Policies with turns stop no
// job. Policies with promotion promote as often as they can.
func TestPlainJobsEnd(t *testing.T) {
	turns := []string{"themis", "astraea", "gavel", "gandiva", "gandiva-fair", "muri", "pollux", "sia", "miso", "afs",
		"optimus", "lyra", "hypersched", "lucid", "elasticflow"}
	for _, pol := range append(policy.Names(), promoting("0.001")...) {
		for seed := range uint64(3) {
			r := rand.New(rand.NewPCG(seed, 11))
			entries := queued(r, randomEntries(r, 30))
			end := entries[len(entries)-1].Job.Submit
			for i := range entries {
				e := &entries[i]
				e.Run *= 10 // longer than a turn
				e.Job.Estimate = e.Run
				end = end.Add(5 * e.Run)
				switch i % 3 {
				case 1: // for policies with deadlines
					e.Job.Deadline = e.Job.Submit.Add(e.Run * time.Duration(10+r.IntN(40)) / 10)
				case 2: // for policies that resize
					e.Job.Tasks = []cluster.TaskSet{{Count: 4, Request: cluster.Request{GPUs: 1}}}
					e.Job.Elastic, e.Job.Priority = cluster.Elastic{Min: 1, Max: 8}, int64(r.IntN(3))
				}
			}
			cfg := engine.Config{Policy: scaled(t, pol, 1),
				Stop: &[3]engine.StopRule{{How: engine.Kill}, {How: engine.Kill}, {How: engine.Kill}}}
			records := lawUntil(t, "1x8xT4", cfg, entries, Options{Until: end})
			for i := range records {
				if rec := &records[i]; rec.Outcome != report.Completed {
					t.Errorf("%s seed %d: after %v job %d, which runs for %v: %+v", pol, seed, end, i, entries[i].Run,
						rec)
					break
				} else if rec.Lost > 0 && slices.Contains(turns, pol) {
					t.Errorf("%s seed %d: job %d was stopped %d times and lost %d milli-GPU-ms", pol, seed, i,
						rec.Preemptions, rec.Lost)
				}
			}
		}
	}
}

// promoting lists the policies that promote, with short levels and the given knob.
func promoting(knob string) (list []string) {
	for _, p := range policy.List() {
		if slices.ContainsFunc(p.Knobs, func(k policy.Knob) bool { return k.Name == "promote" }) {
			list = append(list, p.Name+":thresholds=100/1000,promote="+knob)
		}
	}
	return list
}

// TestPromotedEnd: jobs whose restore takes longer than a level also end: a job that made no
// progress in the first level is not promoted again.
func TestPromotedEnd(t *testing.T) {
	if list := promoting("1"); len(list) < 3 {
		t.Fatalf("only %v promote", list)
	}
	for _, pol := range append(promoting("0.001"), promoting("4")...) {
		for seed := range shared.Soak[uint64](2, 5) {
			r := rand.New(rand.NewPCG(seed, 12))
			entries := randomEntries(r, 30)
			end := entries[len(entries)-1].Job.Submit
			for i := range entries {
				e := &entries[i]
				e.Run *= 10
				e.Job.Estimate, e.Job.Checkpoint = e.Run,
					cluster.Checkpoint{Cost: 30 * time.Second, Restart: 2 * time.Minute}
				if i%4 == 0 {
					e.Job.Tier = cluster.BestEffort
				}
				end = end.Add(5 * e.Run)
			}
			o := replayed(t, "1x8xT4", pol, entries, Options{Until: end})
			for i := range o.Run.Records {
				if rec := &o.Run.Records[i]; rec.Outcome != report.Completed {
					t.Errorf("%s seed %d: after %v job %d, which runs for %v: %+v", pol, seed, end, i, entries[i].Run,
						rec)
					break
				}
			}
		}
	}
}

// TestHeadIsNotDelayed: under EASY with exact estimates, fifo's blocked head starts no later than
// in strict order, without any backfill.
func TestHeadIsNotDelayed(t *testing.T) {
	for seed := range shared.Soak[uint64](8, 20) {
		entries := randomEntries(rand.New(rand.NewPCG(seed, 7)), 100)
		start := func(m engine.Backfill) (list []cluster.Time, mean float64) {
			o := replayed(t, "1x8xT4", "fifo", entries, Options{}, func(s *Setup) { s.Backfill = &m })
			for i := range o.Run.Records {
				list = append(list, o.Run.Records[i].FirstStart)
				mean += o.Run.Records[i].End.Sub(o.Run.Records[i].Submit).Seconds() / float64(len(o.Run.Records))
			}
			return list, mean
		}
		strict, slow := start(engine.Strict)
		cons, _ := start(engine.Conservative)
		_, fast := start(engine.EASY)
		for i := range strict { // conservative: no job is later than in strict order
			if cons[i] > strict[i] {
				t.Errorf("seed %d: conservative backfill starts job %d at %v, strict order at %v", seed, i, cons[i],
					strict[i])
			}
		}
		if fast > slow {
			t.Errorf("seed %d: EASY has a mean JCT of %.0f s, strict order %.0f s", seed, fast, slow)
		}
	}
}

// again is a driver that applies every decision twice.
type again struct{ *World }

func (w again) Apply(ctx context.Context, d engine.Decision) error {
	if err := w.World.Apply(ctx, d); err != nil {
		return err
	}
	return w.World.Apply(ctx, d)
}

// TestRepeatedDecision: applying a decision a second time changes nothing.
func TestRepeatedDecision(t *testing.T) {
	entries := randomEntries(rand.New(rand.NewPCG(3, 3)), 60)
	for i := range entries {
		if i%3 == 0 {
			entries[i].Job.Elastic = cluster.Elastic{Min: 1, Max: 2}
		}
	}
	var want []report.Record
	for n := range 2 {
		spec := shared.Must(cluster.ParseShort("2x8xT4"))
		e := engineOn(spec, engine.Config{Policy: mustPolicy(t, "srtf")})
		w := NewWorld(spec, entries, Options{Startup: time.Second})
		var d driver.Driver = w
		if n == 1 {
			d = again{w}
		}
		if err := driver.Run(context.Background(), e, d, nil); err != nil {
			t.Fatal(err)
		}
		if n == 0 {
			want = slices.Clone(w.Book().Records)
		} else if !slices.Equal(want, w.Book().Records) {
			t.Errorf("records differ:\n%+v\n%+v", w.Book().Records, want)
		}
	}
}
