package forward_test

import (
	"testing"
	"time"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/engine"
	"github.com/muster-gpu/muster/forward"
	"github.com/muster-gpu/muster/internal/shared"
	"github.com/muster-gpu/muster/place"
	"github.com/muster-gpu/muster/policy"
)

// small is an engine with one GPU under fifo, with the given stop rules by tier, that knows these
// jobs; the jobs that it starts run at once.
func small(t *testing.T, stop *[3]engine.StopRule, jobs ...cluster.Job) *engine.Engine {
	t.Helper()
	return smallUnder(t, "fifo", nil, stop, jobs...)
}

// configOf is that of an engine for a cluster such as 1x8xT4, under a policy.
func configOf(t testing.TB, size, pol string) engine.Config {
	t.Helper()
	spec := shared.Must(cluster.ParseShort(size))
	cfg := engine.Config{Spec: *spec}
	cfg.Policy = shared.Must(policy.New(pol))
	cfg.Placer = shared.Must(place.New("best-fit"))
	return cfg
}

func smallUnder(t *testing.T, pol string, queues []cluster.Queue, stop *[3]engine.StopRule,
	jobs ...cluster.Job) *engine.Engine {
	t.Helper()
	cfg := configOf(t, "1x1xT4", pol)
	cfg.Spec.Queues, cfg.Stop = queues, stop
	e := shared.Must(engine.New(cfg))
	for i := range jobs {
		j := &jobs[i]
		j.ID = cluster.JobID(i)
		if j.Tasks == nil {
			j.Tasks = []cluster.TaskSet{{Count: 1, Request: cluster.Request{GPUs: 1}}}
		}
		d := e.Step(engine.Batch{Now: j.Submit, Events: []engine.Event{{Type: engine.Submitted, Job: j.ID, Spec: j}}})
		for _, a := range d.Actions {
			if a.Type == engine.Start {
				e.Step(engine.Batch{Now: j.Submit,
					Events: []engine.Event{{Type: engine.Started, Job: a.Job, Rate: 1_000_000}}})
			}
		}
	}
	return e
}

func at(s int) cluster.Time { return cluster.Time(time.Duration(s) * time.Second) }

func lasts(s int, edit ...func(*cluster.Job)) cluster.Job {
	j := cluster.Job{Tier: cluster.Standard, Estimate: time.Duration(s) * time.Second}
	for _, f := range edit {
		f(&j)
	}
	return j
}

// want compares the predicted starts with those given in seconds; -1: none.
func want(t *testing.T, r *forward.Result, end forward.End, starts ...int) {
	t.Helper()
	if r.End != end {
		t.Errorf("end %d, want %d", r.End, end)
	}
	for i, s := range starts {
		got, ok := r.Starts[cluster.JobID(i)]
		if ok != (s >= 0) || ok && got != at(s) {
			t.Errorf("job %d starts at %v (%v), want %d s", i, got, ok, s)
		}
	}
}

// A job behind one of unknown length has no start in sight; a time limit counts as a length; a
// chain of dependencies is followed; a held job is not waited for.
func TestLengths(t *testing.T) {
	after := func(id cluster.JobID, typ cluster.DependencyType) func(*cluster.Job) {
		return func(j *cluster.Job) { j.After = []cluster.Dependency{{Type: typ, Job: id}} }
	}
	want(t, forward.Run(small(t, nil, lasts(0), lasts(5)), forward.Options{}), forward.Idle, -1, -1)
	limited := lasts(0)
	limited.Limit = time.Minute
	want(t, forward.Run(small(t, nil, limited, lasts(5), lasts(5)), forward.Options{}), forward.AllStarted, -1, 60, 65)
	chain := []cluster.Job{lasts(10), lasts(20, after(0, cluster.AfterOK)), lasts(5, after(1, cluster.AfterAny)),
		lasts(7, func(j *cluster.Job) { j.Hold = true }),
		lasts(1, func(j *cluster.Job) { j.Begin = at(100) })}
	want(t, forward.Run(small(t, nil, chain...), forward.Options{}), forward.AllStarted, -1, 10, 30, -1, 100)
	r := forward.Run(small(t, nil, lasts(10), lasts(5, after(0, cluster.AfterNotOK)), lasts(1)), forward.Options{})
	want(t, r, forward.AllStarted, -1, -1, 10)
	if r.Never[1] == "" {
		t.Error("a job whose dependency cannot hold any more has no reason")
	}
}

// When and why running jobs leave their devices is reported, and so is a start that rests on a time
// limit, also indirectly; a start on devices of a job that completes before its limit does not rest
// on one.
func TestLeaves(t *testing.T) {
	limited := lasts(0)
	limited.Limit = time.Minute
	r := forward.Run(small(t, nil, limited, lasts(5), lasts(5)), forward.Options{})
	if got := r.Leaves[0]; got != (forward.Leaving{At: at(60), Reason: engine.TimedOut}) {
		t.Errorf("leaving of the first job: %+v", got)
	}
	if _, ok := r.Leaves[1]; ok || !r.Limits[1] || !r.Limits[2] {
		t.Errorf("leaves %+v, at limits %+v", r.Leaves, r.Limits)
	}
	known := lasts(10)
	known.Limit = time.Minute
	r = forward.Run(small(t, nil, known, lasts(5), lasts(5)), forward.Options{})
	if got := r.Leaves[0]; got != (forward.Leaving{At: at(10), Reason: engine.Completed}) || len(r.Limits) > 0 {
		t.Errorf("leaves %+v, at limits %+v", got, r.Limits)
	}
}

// Expected arrivals delay waiting jobs that come after them in the order.
func TestArrivals(t *testing.T) {
	e := small(t, nil, lasts(10), lasts(5))
	snap := e.Snapshot()
	later := lasts(7, func(j *cluster.Job) {
		j.ID, j.Tier, j.Submit = snap.Next, cluster.Critical, at(4)
		j.Tasks = []cluster.TaskSet{{Count: 1, Request: cluster.Request{GPUs: 1}}}
	})
	want(t, forward.Run(e, forward.Options{Arrivals: []cluster.Job{later}}), forward.AllStarted, 11, 17)
	later.Tier = cluster.Standard
	want(t, forward.Run(small(t, nil, lasts(10), lasts(5)), forward.Options{Arrivals: []cluster.Job{later}}),
		forward.AllStarted, -1, 10)
}

// A job that runs longer than expected ends shortly after now, as the engine expects, and an event
// in the past counts from now.
func TestOverdue(t *testing.T) {
	e := small(t, nil, lasts(10), lasts(5))
	r := forward.Run(e, forward.Options{Now: at(15)})
	want(t, r, forward.AllStarted, -1, 75)
	if r.Now != at(15) || r.Until != at(75) {
		t.Errorf("it looked from %v to %v", r.Now, r.Until)
	}
	w := func(*engine.JobRecord, time.Duration) time.Duration { return 25 * time.Second }
	want(t, forward.Run(small(t, nil, lasts(10), lasts(5), lasts(5)), forward.Options{Work: w}), forward.AllStarted, -1,
		25, 50)
}

// A critical job gets the GPU when the running job has written its checkpoint; that job later needs
// its restart and its remaining work. A killed job starts over.
func TestPreempted(t *testing.T) {
	job := func(cost, restart int) []cluster.Job {
		return []cluster.Job{
			lasts(100, func(j *cluster.Job) {
				j.Checkpoint = cluster.Checkpoint{Cost: time.Duration(cost) * time.Second,
					Restart: time.Duration(restart) * time.Second}
			}),
			lasts(30, func(j *cluster.Job) { j.Tier, j.Submit = cluster.Critical, at(40) }),
			lasts(1, func(j *cluster.Job) { j.Submit = at(40) })}
	}
	ckpt := &[3]engine.StopRule{{How: engine.Checkpoint, Grace: time.Minute},
		{How: engine.Checkpoint, Grace: time.Minute}, {}}
	kill := &[3]engine.StopRule{{}, {How: engine.Kill}, {}}
	// 40 s done, 5 s checkpoint, 30 s critical job, 2 s restart, 60 s remaining
	want(t, forward.Run(small(t, ckpt, job(5, 2)...), forward.Options{}), forward.AllStarted, 75, 45, 137)
	want(t, forward.Run(small(t, kill, job(5, 2)...), forward.Options{}), forward.AllStarted, 70, 40, 172)
	// without time for it, a checkpoint is as bad as a kill
	want(t, forward.Run(
		small(t, &[3]engine.StopRule{{}, {How: engine.Checkpoint, Grace: time.Second}, {}}, job(5, 2)[0], lasts(1)),
		forward.Options{
			Now: at(40), Events: []engine.Event{
				{Type: engine.Submitted, Job: 2,
					Spec: &cluster.Job{ID: 2, Tier: cluster.Critical, Submit: at(40), Estimate: time.Second,
						Tasks: []cluster.TaskSet{{Count: 1, Request: cluster.Request{GPUs: 1}}}}}},
			For: []cluster.JobID{1, 2}}),
		forward.AllStarted, 41, 143, 40)
}

// A job that starts on a sleeping node computes once the node is awake; a job that follows it there
// need not wait for that.
func TestAsleep(t *testing.T) {
	e := small(t, nil, lasts(10), lasts(5), lasts(5))
	asleep := engine.Event{Type: engine.NodeAsleep, Node: e.Nodes()[0].Name, Wake: time.Minute}
	want(t, forward.Run(e, forward.Options{Events: []engine.Event{asleep}}), forward.AllStarted, -1, 10, 75)
}

// Each bound ends the run and is reported; so does the start of the only job asked about.
func TestBounds(t *testing.T) {
	jobs := []cluster.Job{lasts(10), lasts(10), lasts(10), lasts(10)}
	want(t, forward.Run(small(t, nil, jobs...), forward.Options{Horizon: 25 * time.Second}), forward.HorizonPast, -1,
		10, 20, -1)
	want(t, forward.Run(small(t, nil, jobs...), forward.Options{Steps: 2}), forward.StepsSpent, -1, 10, -1, -1)
	want(t, forward.Run(small(t, nil, jobs...), forward.Options{Stop: func() bool { return true }}), forward.Stopped,
		-1, -1, -1, -1)
	r := forward.Run(small(t, nil, jobs...), forward.Options{For: []cluster.JobID{2}})
	want(t, r, forward.AllStarted, -1, 10, 20, -1)
	for end, complete := range map[forward.End]bool{forward.AllStarted: true, forward.Idle: true, forward.Quiet: false,
		forward.StepsSpent: false} {
		if r.End = end; r.Complete() != complete {
			t.Errorf("end %d: complete %v", end, !complete)
		}
	}
}

// A job that may run only on Mondays (time begins on a Thursday) waits until then without a step
// every five minutes in between; a job that waits for something that never happens has no start in
// sight, which is found quickly.
func TestWindow(t *testing.T) {
	day := 24 * time.Hour
	shut := cluster.Queue{Name: "q", Limit: 0, Lend: cluster.Unlimited,
		Windows: []cluster.Window{{Days: 2, From: 10 * time.Hour, To: 12 * time.Hour,
			Guarantee: cluster.Unlimited, Limit: 1000}}}
	job := lasts(5, func(j *cluster.Job) { j.Queue, j.Submit = "q", at(100) })
	r := forward.Run(smallUnder(t, "multifactor", []cluster.Queue{shut}, nil, job), forward.Options{})
	want(t, r, forward.AllStarted, int((4*day+10*time.Hour)/time.Second))
	if r.Steps > 60 {
		t.Errorf("%d steps", r.Steps)
	}
	r = forward.Run(smallUnder(t, "multifactor", nil, nil, lasts(0), lasts(5)), forward.Options{})
	want(t, r, forward.Idle, -1, -1)
	if r.Steps > 60 {
		t.Errorf("%d steps", r.Steps)
	}
}
