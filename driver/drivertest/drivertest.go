// Package drivertest is the conformance suite that every driver passes: the simulator, the local machine,
// Kubernetes. It plays small workloads under a real engine and checks what the engine relies on. Run times are
// fractions of a second, so that drivers in real time can be tested, too.
package drivertest

import (
	"context"
	"errors"
	"io"
	"testing"
	"time"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/driver"
	"github.com/muster-gpu/muster/engine"
	"github.com/muster-gpu/muster/internal/shared"
	"github.com/muster-gpu/muster/place"
	"github.com/muster-gpu/muster/policy"
)

// Fixture is the world of a test: the driver under test is made with these nodes and jobs.
type Fixture struct {
	Spec cluster.Spec
	Jobs []Job         // in order of submission, numbered from 0
	Late time.Duration // set by the maker: how late a wake-up may be; 0: virtual time
	Own  Own           // set by the maker
}

// Own lists what the world under test does itself instead of the engine, each with the reason; the zero value:
// nothing. No test is left out because of it: it expects that the world does it, or that it is not done.
type Own struct {
	Size  string // running jobs are never resized: the engine gets no elastic ones
	Limit string // the world ends jobs at their time limit: the engine gets no limits
	Again string // a job that had to leave is over, and its owner submits it again as another job
}

// Job is one job of a fixture. Job.Submit counts from the start of the driver.
type Job struct {
	Job    cluster.Job
	Run    time.Duration // until it ends by itself, at any size; 0: it does not
	Fails  bool          // it ends unsuccessfully
	Cancel time.Duration // when a person cancels it, from the start of the driver; 0: never
}

const ms = time.Millisecond

// patience is how long a test may take on a busy machine.
const patience = 5 * time.Minute

// small is a node with four GPUs and jobs on it.
func small(jobs ...Job) Fixture {
	f := Fixture{Spec: cluster.Spec{Nodes: []cluster.Node{{Name: "n1", Model: "T4-16GB", GPUs: 4}}}}
	for i := range jobs {
		jobs[i].Job.ID = cluster.JobID(i)
	}
	f.Jobs = jobs
	return f
}

// job requests GPUs at a time.
func job(at time.Duration, gpus int, run time.Duration, change ...func(*Job)) Job {
	j := Job{Run: run, Job: cluster.Job{User: "u", Tier: cluster.Standard, Submit: cluster.Time(at), Estimate: run,
		Tasks: []cluster.TaskSet{{Count: 1, Request: cluster.Request{GPUs: gpus}}}}}
	for _, f := range change {
		f(&j)
	}
	return j
}

func bestEffort(j *Job) { j.Job.Tier = cluster.BestEffort }

// Run tests the drivers that make makes, one for each sub-test. The maker may complete the nodes of a fixture
// with the driver's own properties.
func Run(t *testing.T, make func(t *testing.T, f *Fixture) driver.Driver) {
	t.Run("order", func(t *testing.T) { testOrder(t, make) })
	t.Run("failure", func(t *testing.T) { testFailure(t, make) })
	t.Run("preempt", func(t *testing.T) { testPreempt(t, make, false) })
	t.Run("cancel", func(t *testing.T) { testCancel(t, make) })
	t.Run("limit", func(t *testing.T) { testLimit(t, make) })
	t.Run("resize", func(t *testing.T) { testResize(t, make) })
	t.Run("repeat", func(t *testing.T) { testPreempt(t, make, true) })
	t.Run("wake", func(t *testing.T) { testWake(t, make) })
	t.Run("context", func(t *testing.T) { testContext(t, make) })
}

type maker = func(t *testing.T, f *Fixture) driver.Driver

// play runs a fixture under an engine to its end.
func play(t *testing.T, make maker, f Fixture, repeat bool) *watch {
	t.Helper()
	d := make(t, &f)
	w := newWatch(d, f.Late, t.Errorf)
	w.repeat, w.own = repeat, f.Own
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	if err := driver.Run(ctx, newEngine(t, &f.Spec), w, nil); err != nil {
		t.Fatal(err)
	}
	w.finish()
	most := len(f.Jobs)
	if f.Own.Again != "" {
		most += w.left
	}
	if n := len(w.jobs); n < len(f.Jobs) || n > most {
		t.Errorf("%d jobs were submitted, the fixture has %d; %d had to leave", n, len(f.Jobs), w.left)
	}
	if _, err := w.Next(ctx); !errors.Is(err, io.EOF) {
		t.Errorf("after the end Next returns %v, not io.EOF again", err)
	}
	return w
}

func newEngine(t *testing.T, spec *cluster.Spec) *engine.Engine {
	t.Helper()
	p := shared.Must(policy.New("fifo"))
	pl := shared.Must(place.New("best-fit"))
	e := shared.Must(engine.New(engine.Config{Spec: *spec, Policy: p, Placer: pl,
		Stop: &[3]engine.StopRule{{How: engine.Kill}, {How: engine.Checkpoint, Grace: time.Second},
			{How: engine.Kill, Grace: 50 * ms}}}))
	return e
}

// counts checks how often an event happened.
func (w *watch) counts(t *testing.T, typ engine.EventType, want int) {
	t.Helper()
	if got := w.seen[typ]; got != want {
		t.Errorf("%s was reported %d times, not %d times", typ, got, want)
	}
}

// Jobs that queue up, start and end: each is reported once, in order of time.
func testOrder(t *testing.T, make maker) {
	w := play(t, make, small(job(0, 2, 60*ms), job(0, 2, 30*ms), job(10*ms, 4, 20*ms), job(20*ms, 1, 30*ms)), false)
	w.counts(t, engine.Started, 4)
	w.counts(t, engine.Stopped, 4)
}

// A failed job is reported as such, and does not come back.
func testFailure(t *testing.T, make maker) {
	w := play(t, make, small(job(0, 1, 20*ms, func(j *Job) { j.Fails = true })), false)
	w.counts(t, engine.Started, 1)
	w.counts(t, engine.Stopped, 1)
}

// A preempted job is reported once as stopped; only after that do its devices belong to another job; then it
// starts again.
func testPreempt(t *testing.T, make maker, repeat bool) {
	w := play(t, make, small(job(0, 4, 200*ms, bestEffort), job(60*ms, 2, 60*ms), job(80*ms, 2, 20*ms)), repeat)
	if w.acts[engine.Preempt] == 0 {
		t.Error("nothing was preempted: the best-effort job ended too early, or time does not pass")
	}
	if s, a := w.seen[engine.Stopped]+w.seen[engine.StartFailed], w.acts[engine.Start]; s != a {
		t.Errorf("%d starts and %d ends", a, s)
	}
	if n := len(w.jobs); w.own.Again != "" && n != 3+w.left {
		t.Errorf("%d of 3 jobs had to leave, and %d were submitted in all", w.left, n)
	}
}

// Cancellations of a running job, a waiting one, one that is stopping, and one that is over.
func testCancel(t *testing.T, make maker) {
	cancel := func(at time.Duration) func(*Job) { return func(j *Job) { j.Cancel = at } }
	w := play(t, make, small(
		job(0, 4, 0, cancel(60*ms)),
		job(10*ms, 4, 40*ms, cancel(30*ms)),
		job(20*ms, 4, 100*ms, bestEffort, cancel(500*ms)),
		job(90*ms, 4, 30*ms)), false)
	if len(w.cancelled) < 2 {
		t.Errorf("cancellations of %d jobs were reported", len(w.cancelled))
	}
	if w.acts[engine.Preempt] == 0 {
		t.Error("the cancelled job was not told to leave")
	}
}

// A time limit is the engine's: it asks to be woken, and stops the job. Where the world enforces limits, the job
// ends by itself.
func testLimit(t *testing.T, make maker) {
	w := play(t, make, small(job(0, 1, 0, func(j *Job) { j.Job.Limit = 80 * ms })), false)
	w.counts(t, engine.Started, 1)
	w.counts(t, engine.Stopped, 1)
	want := 1
	if w.own.Limit != "" {
		want = 0
	}
	if w.acts[engine.Preempt] != want {
		t.Errorf("the job was told to leave %d times, not %d times", w.acts[engine.Preempt], want)
	}
}

// An elastic job grows and shrinks; each change is confirmed once. Where jobs cannot be resized, it keeps its
// size.
func testResize(t *testing.T, make maker) {
	w := play(t, make, small(
		job(0, 3, 60*ms),
		job(10*ms, 1, 400*ms, func(j *Job) { j.Job.Elastic = cluster.Elastic{Min: 1, Max: 4} }),
		job(120*ms, 2, 60*ms)), false)
	if w.own.Size != "" {
		w.counts(t, engine.Started, 3)
		w.counts(t, engine.Resized, 0)
		if w.acts[engine.Resize] != 0 {
			t.Errorf("%d resizes were asked for: %s", w.acts[engine.Resize], w.own.Size)
		}
		return
	}
	if w.acts[engine.Resize] < 2 || w.seen[engine.Resized] != w.acts[engine.Resize] {
		t.Errorf("%d resizes were asked for, %d confirmed", w.acts[engine.Resize], w.seen[engine.Resized])
	}
}

// A wake-up happens even if nothing else does, and not long before its time.
func testWake(t *testing.T, make maker) {
	f := small(job(0, 1, 400*ms))
	d := make(t, &f)
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	e := newEngine(t, &f.Spec)
	var want cluster.Time
	woken := false
	for !woken {
		b, err := d.Next(ctx)
		if err != nil {
			t.Fatalf("before the wake-up: %v", err)
		}
		dec := e.Step(b)
		switch {
		case want == 0:
			want = b.Now.Add(70 * ms)
		case b.Now >= want:
			woken = true
			if b.Now > want.Add(f.Late) {
				t.Errorf("woken at %v, wanted %v", b.Now, want)
			}
		}
		dec.WakeAt = want
		if woken {
			dec.WakeAt = cluster.Never
		}
		if err := d.Apply(ctx, dec); err != nil {
			t.Fatal(err)
		}
	}
	for { // to the end, so that nothing is left running
		b, err := d.Next(ctx)
		if err != nil {
			break
		}
		if err := d.Apply(ctx, e.Step(b)); err != nil {
			t.Fatal(err)
		}
	}
}

// When the context is done, Next returns soon, with io.EOF or its error.
func testContext(t *testing.T, make maker) {
	f := small(job(0, 1, 50*ms), job(cluster.MaxDuration/1000, 1, 50*ms))
	d := make(t, &f)
	ctx, cancel := context.WithCancel(t.Context())
	e := newEngine(t, &f.Spec)
	b, err := d.Next(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if err := d.Apply(ctx, e.Step(b)); err != nil {
		t.Fatal(err)
	}
	cancel()
	for range 100 { // earlier events may still be delivered
		if _, err = d.Next(ctx); err != nil {
			break
		}
	}
	if !errors.Is(err, io.EOF) && !errors.Is(err, context.Canceled) {
		t.Errorf("with a cancelled context Next returns %v", err)
	}
}
