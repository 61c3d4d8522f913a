package forward_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/engine"
	"github.com/muster-gpu/muster/forward"
	"github.com/muster-gpu/muster/internal/shared"
	"github.com/muster-gpu/muster/place"
	"github.com/muster-gpu/muster/policy"
	"github.com/muster-gpu/muster/sim"
	"github.com/muster-gpu/muster/trace"
)

func minutes(n int) time.Duration { return time.Duration(n) * time.Minute }

func chance(r *rand.Rand, percent int) bool { return r.IntN(100) < percent }

func pick[T any](r *rand.Rand, list ...T) T { return list[r.IntN(len(list))] }

// world is a random cluster with a workload that is submitted within its first half hour, and the
// run time of each job.
type world struct {
	cfg     engine.Config
	entries []trace.Entry
}

func randomWorld(t *testing.T, r *rand.Rand, pol string) *world {
	t.Helper()
	spec := shared.Must(cluster.ParseShort(pick(r, "1x4xT4", "2x4xA100-40GB", "1x8xA100-40GB+2x2xT4")))
	spec.Queues = []cluster.Queue{
		{Name: "a", Guarantee: pick[cluster.Milli](r, 0, 1000, 2000), Limit: cluster.Unlimited, Lend: cluster.Unlimited,
			UserJobs: pick(r, 0, 0, 2), MaxJobs: pick(r, 0, 0, 3)},
		{Name: "b", Limit: pick[cluster.Milli](r, cluster.Unlimited, 3000), Lend: cluster.Unlimited},
	}
	if chance(r, 30) { // a quota that is raised later in the day
		spec.Queues[1].Windows = []cluster.Window{
			{From: minutes(60 + r.IntN(120)), To: minutes(300), Guarantee: cluster.Unlimited, Limit: 4000}}
	}
	if len(spec.Nodes) > 1 && chance(r, 30) { // one node is lent and wanted back for a while
		spec.Partitions = []cluster.Partition{{Name: "own", Nodes: []string{spec.Nodes[0].Name}, Default: true},
			{Name: "lent", Nodes: []string{spec.Nodes[1].Name}, Default: true}}
		from := minutes(20 + r.IntN(100))
		spec.Loans = []cluster.Loan{
			{Partition: "lent", Back: []cluster.Back{
				{Hours: cluster.Hours{From: from, To: from + minutes(60)}, Nodes: 1}}}}
	}
	w := &world{cfg: engine.Config{Spec: *spec}}
	c := &w.cfg
	c.Policy = shared.Must(policy.New(pol))
	c.Placer = shared.Must(place.New(pick(r, "best-fit", "first-fit", "consolidate")))
	if chance(r, 60) {
		mode := pick(r, engine.Strict, engine.Skip, engine.EASY, engine.Conservative)
		c.Backfill = &mode
	}
	c.MinRuntime = pick(r, 0, 0, minutes(7))
	c.Starvation = pick(r, 0, 0, minutes(45))
	if chance(r, 30) {
		c.Stop = &[3]engine.StopRule{{How: engine.Suspend}, {How: engine.Suspend}, {How: engine.Kill}}
	}
	for i := range 20 + r.IntN(60) {
		w.entries = append(w.entries, w.job(r, cluster.JobID(i)))
	}
	for i := range w.entries { // in the order of submission
		w.entries[i].Job.Submit = cluster.Time(minutes(30)) * cluster.Time(i) / cluster.Time(len(w.entries))
	}
	return w
}

// job is a random one: gangs, shares, elastic jobs, arrays, dependencies, begin
// times, limits, tiers, checkpoints.
func (w *world) job(r *rand.Rand, id cluster.JobID) trace.Entry {
	run := time.Duration(30+r.IntN(3600)) * time.Second
	j := cluster.Job{ID: id, Name: pick(r, "x", "y"), User: pick(r, "u", "v", "w"), Queue: pick(r, "a", "b"),
		Kind: cluster.Training, Estimate: run,
		Tier:  pick(r, cluster.Standard, cluster.Standard, cluster.Standard, cluster.BestEffort, cluster.Critical),
		Tasks: []cluster.TaskSet{{Count: pick(r, 1, 1, 1, 2, 3), Request: cluster.Request{GPUs: pick(r, 1, 1, 2)}}}}
	switch {
	case chance(r, 10):
		j.Tasks[0] = cluster.TaskSet{Count: 1, Request: cluster.Request{GPUs: 1, Share: 500}}
	case chance(r, 10):
		j.Elastic = cluster.Elastic{Min: 1, Max: j.Tasks[0].Count + 1}
	case chance(r, 30):
		j.Checkpoint = cluster.Checkpoint{Interval: minutes(5), Cost: time.Duration(r.IntN(20)) * time.Second,
			Restart: time.Duration(r.IntN(20)) * time.Second, None: chance(r, 10)}
	}
	if chance(r, 20) {
		j.Limit = run * time.Duration(pick(r, 1, 2, 4)) / 2
	}
	if chance(r, 10) {
		j.Begin = cluster.Time(minutes(30 + r.IntN(300)))
	}
	if id > 3 && chance(r, 20) {
		j.After = []cluster.Dependency{
			{Type: pick(r, cluster.AfterOK, cluster.AfterAny, cluster.AfterNotOK, cluster.AfterStart),
				Job: cluster.JobID(r.IntN(int(id)))}}
	}
	if chance(r, 15) && id > 0 {
		first := id
		if a := w.entries[id-1].Job.Array; a != nil {
			first = a.ID
		}
		j.Array = &cluster.Array{ID: first, Index: int(id - first), Cap: 2}
	}
	return trace.Entry{Job: j, Run: run}
}

// rate is the simulator's speed without a performance model.
func rate(r *engine.JobRecord) int64 {
	ppm := int64(1_000_000)
	if n := r.Spec.NumTasks(); r.Spec.Elastic.Max > 0 {
		have := 0
		for i := range r.Allocs {
			have += int(r.Allocs[i].Tasks)
		}
		if have != n {
			ppm = ppm * int64(have) / int64(n)
		}
	}
	// A plan placed it on a MIG instance of the requested GPU.
	if a := r.Allocs; len(a) == 1 && a[0].Slots != 0 && r.Spec.Tasks[0].Request.Profile == "" {
		ppm = ppm * int64(a[0].Share) / 1000
	}
	if c := &r.Spec.Checkpoint; c.Interval > 0 && c.Cost > 0 && !c.None {
		ppm = ppm * int64(c.Interval/1000) / int64((c.Interval+c.Cost)/1000)
	}
	return max(1, ppm)
}

// seen is a moment of a simulation: the engine's state then, and the jobs' first starts after it.
type seen struct {
	snap    engine.Snapshot
	waiting []cluster.JobID
	starts  map[cluster.JobID]cluster.Time
}

// simulate runs the world and keeps a moment after every so many steps that follow the last
// submission.
func (w *world) simulate(t *testing.T, every int) (list []*seen) {
	t.Helper()
	e := shared.Must(engine.New(w.cfg))
	sw := sim.NewWorld(&w.cfg.Spec, w.entries, sim.Options{})
	last := w.entries[len(w.entries)-1].Job.Submit
	for step := 0; ; step++ {
		b, err := sw.Next(context.Background())
		if errors.Is(err, io.EOF) {
			return list
		}
		if err != nil {
			t.Fatal(err)
		}
		if step > 200_000 { // some 80 jobs of at most an hour: they preempt each other for ever
			t.Fatalf("no end in sight at %v", b.Now)
		}
		d := e.Step(b)
		for i := range d.Actions {
			if a := &d.Actions[i]; a.Type == engine.Start {
				for _, s := range list {
					if _, ok := s.starts[a.Job]; !ok {
						s.starts[a.Job] = b.Now
					}
				}
			}
		}
		if err := sw.Apply(context.Background(), d); err != nil {
			t.Fatal(err)
		}
		if b.Now >= last && step%every == 0 && len(list) < 15 && len(e.Waiting()) > 0 {
			if s := look(t, e); s != nil {
				list = append(list, s)
			}
		}
	}
}

// look returns the engine's state as it would be restored; nil while a job is stopping or being
// resized for longer than an instant: the record does not say since when.
func look(t *testing.T, e *engine.Engine) *seen {
	t.Helper()
	for _, b := range e.Beliefs() {
		c := &e.Spec(b.Job).Checkpoint
		if b.State == engine.Stopping && c.Cost > 0 || b.Resizing && c.Restart > 0 {
			return nil
		}
	}
	text, err := json.Marshal(e.Snapshot())
	if err != nil {
		t.Fatal(err)
	}
	s := &seen{waiting: e.Waiting(), starts: map[cluster.JobID]cluster.Time{}}
	if err := json.Unmarshal(text, &s.snap); err != nil {
		t.Fatal(err)
	}
	return s
}

// With exact run times and no unforeseeable events, each start that is predicted from any moment is
// the actual one.
func TestPredictedStarts(t *testing.T) {
	worlds := shared.Soak(1, 6)
	moments, starts := 0, 0
	for _, pol := range policy.Names() {
		if pol == "gandiva" {
			pol = "gandiva:pack=false" // the speed of jobs on shared GPUs is assumed to stay as it is
		}
		for seed := range worlds {
			name := fmt.Sprintf("%s/%d", pol, seed)
			w := randomWorld(t, rand.New(rand.NewPCG(uint64(seed), 7)), pol)
			for _, s := range w.simulate(t, 11) {
				moments++
				starts += w.compare(t, name, s)
			}
		}
	}
	if moments < 20*worlds || starts < 20*moments/10 {
		t.Errorf("only %d starts from %d moments were compared", starts, moments)
	}
	t.Logf("%d starts from %d moments", starts, moments)
}

// compare runs ahead from a moment and compares the starts.
func (w *world) compare(t *testing.T, name string, s *seen) int {
	t.Helper()
	cfg := w.cfg
	cfg.Spec.Queues = s.snap.Queues
	e, err := engine.Restore(cfg, &s.snap)
	if err != nil {
		t.Fatal(err)
	}
	res := forward.Run(e,
		forward.Options{Rate: rate, Work: func(r *engine.JobRecord, _ time.Duration) time.Duration {
			return w.entries[r.Spec.ID].Run
		}})
	for _, id := range s.waiting {
		at, ok := res.Starts[id]
		want, started := s.starts[id]
		if ok != started || at != want {
			t.Errorf("%s: from %v on, job %d starts at %v (%v), actually at %v (%v); end %d after %d steps", name,
				s.snap.Now, id, at, ok, want, started, res.End, res.Steps)
		}
		if _, never := res.Never[id]; !started && !never && res.Complete() != (res.End == forward.Idle) {
			t.Errorf("%s: job %d has neither a start nor a reason", name, id)
		}
	}
	return len(s.waiting)
}
