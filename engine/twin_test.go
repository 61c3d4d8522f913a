package engine_test

import (
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/engine"
	"github.com/muster-gpu/muster/place"
	"github.com/muster-gpu/muster/policy"
)

// TestTwin feeds the same batches to the engine and to its dumb twin. Their
// starts (with nodes and devices) and rejections must be the same in the same
// order; their preemptions the same, in any order within a step.
func TestTwin(t *testing.T) {
	want := 3000
	if s := os.Getenv("MUSTER_SOAK"); s != "" {
		n, err := strconv.Atoi(s)
		if err != nil {
			t.Fatal(err)
		}
		want = n / 10
	}
	for _, pol := range []string{"fifo", "sjf", "srtf", "las"} {
		for _, placer := range []string{"best-fit", "first-fit", "worst-fit"} {
			for _, mode := range []engine.Backfill{engine.Strict, engine.Skip} {
				t.Run(fmt.Sprintf("%s/%s/%s", pol, placer, mode), func(t *testing.T) {
					t.Parallel()
					for seed, n := uint64(1), 0; n < want; seed++ {
						n += twins(t, pol, placer, mode, seed)
					}
				})
			}
		}
	}
}

// pair is the engine, its twin, and a world that answers both.
type pair struct {
	r      *rand.Rand
	e      *engine.Engine
	d      *dumb
	now    cluster.Time
	queue  []stimulus
	jobs   []*cluster.Job
	events int
	log    []string
	never  map[cluster.JobID]bool // looked up only
}

func twins(t *testing.T, pol, placer string, mode engine.Backfill, seed uint64) int {
	t.Helper()
	r := rand.New(rand.NewPCG(seed, 0x7477696e))
	spec := cluster.Spec{}
	for i := range 2 + r.IntN(5) {
		spec.Nodes = append(spec.Nodes, cluster.Node{Name: fmt.Sprintf("n%d", i+1), Model: pick(r, "T4-16GB", "T4-16GB", "V100-16GB"),
			GPUs: pick(r, 2, 4, 4, 8), CPU: pick[int64](r, 16000, 32000)})
	}
	text := pol
	if pol == "las" {
		text = "las:base=1m"
	}
	p, err := policy.New(text)
	if err != nil {
		t.Fatal(err)
	}
	pl, err := place.New(placer)
	if err != nil {
		t.Fatal(err)
	}
	w := &pair{r: r, never: map[cluster.JobID]bool{}, d: &dumb{policy: pol, placer: placer, strict: mode == engine.Strict, nodes: slices.Clone(spec.Nodes)}}
	if w.e, err = engine.New(engine.Config{Spec: spec, Policy: p, Placer: pl, Backfill: &mode, Launches: 1 << 20}); err != nil {
		t.Fatal(err)
	}
	for at := cluster.Time(0); len(w.jobs) < 60; at = at.Add(seconds(r.IntN(40))) {
		w.draw(at, spec.Nodes)
	}
	if err := w.play(); err != nil {
		t.Fatalf("seed %d: %v\nnodes %+v\n%s", seed, err, spec.Nodes, strings.Join(w.log, "\n"))
	}
	return w.events
}

// draw adds something that happens from outside.
func (w *pair) draw(at cluster.Time, nodes []cluster.Node) {
	r := w.r
	switch k := r.IntN(20); {
	case k < 14 || len(w.jobs) == 0:
		j := &cluster.Job{ID: cluster.JobID(len(w.jobs)), User: "u", Submit: at, Priority: int64(r.IntN(3)), Estimate: seconds(r.IntN(400)),
			Tier:  pick(r, cluster.Standard, cluster.Standard, cluster.BestEffort, cluster.Critical),
			Tasks: []cluster.TaskSet{{Count: pick(r, 1, 1, 1, 2, 3, 5), Request: cluster.Request{GPUs: pick(r, 1, 1, 2, 4), CPU: pick[int64](r, 0, 0, 1000, 5000)}}}}
		if chance(r, 20) {
			j.GPUTypes = pick(r, []string{"T4-16GB"}, []string{"V100-16GB", "T4-16GB"})
		}
		j.Checkpoint.None = chance(r, 30)
		w.jobs = append(w.jobs, j)
		w.add(at, engine.Event{Type: engine.Submitted, Job: j.ID, Spec: j})
	case k < 16:
		w.add(at, engine.Event{Type: engine.Cancelled, Job: cluster.JobID(r.IntN(len(w.jobs)))})
	case k < 18:
		w.add(at, engine.Event{Type: engine.NodeDown, Node: nodes[r.IntN(len(nodes))].Name})
	default:
		w.add(at, engine.Event{Type: engine.NodeUp, Node: nodes[r.IntN(len(nodes))].Name})
	}
}

func (w *pair) add(at cluster.Time, ev engine.Event) {
	i := len(w.queue)
	for i > 0 && w.queue[i-1].at > at {
		i--
	}
	w.queue = slices.Insert(w.queue, i, stimulus{at, ev})
}

// later is a latency: often none.
func (w *pair) later() cluster.Time {
	return w.now.Add(seconds(pick(w.r, 0, 0, 5, 20)))
}

func (w *pair) play() error {
	wake := cluster.Never
	attempt := map[cluster.JobID]int{} // starts; looked up only
	for w.events < 3000 {
		at := wake
		if len(w.queue) > 0 {
			at = min(at, w.queue[0].at)
		}
		if at == cluster.Never || len(w.queue) == 0 {
			return nil
		}
		w.now = at
		b := engine.Batch{Now: at}
		for len(w.queue) > 0 && w.queue[0].at == at && (len(b.Events) == 0 || chance(w.r, 60)) {
			ev := w.queue[0].ev
			w.queue = w.queue[1:]
			if ev.Saved != 0 { // an answer to one attempt: void if it was overtaken
				if int(ev.Saved) != attempt[ev.Job] {
					continue
				}
				ev.Saved = 0
				if ev.Type == engine.Stopped || ev.Type == engine.StartFailed {
					attempt[ev.Job]++
				}
			}
			b.Events = append(b.Events, ev)
		}
		w.events += max(1, len(b.Events))
		dec := w.e.Step(b)
		wake = dec.WakeAt
		if err := w.e.CheckInvariants(); err != nil {
			return err
		}
		others, preempts := w.d.step(w.possible(b, &dec))
		var got, stops []string
		for i := range dec.Actions {
			a := &dec.Actions[i]
			s := fmt.Sprintf("%s %d", a.Type, a.Job)
			switch a.Type {
			case engine.Start:
				for _, al := range a.Allocs {
					s += fmt.Sprintf(" n%d:%b", al.Node, al.GPUs)
				}
			case engine.Reject:
				continue
			case engine.Preempt:
				stops = append(stops, fmt.Sprintf("%s %s for %d", s, a.Reason, a.For))
				continue
			}
			got = append(got, s)
		}
		slices.Sort(stops)
		w.log = append(w.log, describe(&b, &dec))
		if !slices.Equal(got, others) || !slices.Equal(stops, preempts) {
			return fmt.Errorf("at %v the engine decides %q %q, its twin %q %q", at, got, stops, others, preempts)
		}
		w.answer(&dec, attempt)
	}
	return nil
}

// possible leaves out what the engine rejects: the twin leaves it to the engine
// what is impossible.
func (w *pair) possible(b engine.Batch, dec *engine.Decision) engine.Batch {
	evs := slices.Clone(b.Events)
	for i := range dec.Actions {
		if a := &dec.Actions[i]; a.Type == engine.Reject {
			w.never[a.Job] = true
		}
	}
	b.Events = slices.DeleteFunc(evs, func(ev engine.Event) bool {
		return w.never[ev.Job] && (ev.Type == engine.Submitted || ev.Type == engine.Cancelled)
	})
	return b
}

// answer is what the world will say to a decision.
func (w *pair) answer(dec *engine.Decision, attempt map[cluster.JobID]int) {
	for i := range dec.Actions {
		a := &dec.Actions[i]
		tell := func(at cluster.Time, ev engine.Event) {
			ev.Job, ev.Saved = a.Job, time.Duration(attempt[a.Job])
			w.add(at, ev)
		}
		switch a.Type {
		case engine.Start:
			attempt[a.Job] += 1000
			at := w.later()
			if chance(w.r, 5) {
				tell(at, engine.Event{Type: engine.StartFailed})
				continue
			}
			tell(at, engine.Event{Type: engine.Started})
			run := seconds(1 + w.r.IntN(400))
			tell(at.Add(run), engine.Event{Type: engine.Stopped, Reason: pick(w.r, engine.Completed, engine.Completed, engine.Failed), Done: run})
		case engine.Preempt:
			attempt[a.Job]++
			tell(w.later(), engine.Event{Type: engine.Stopped, Reason: a.Reason, Done: seconds(w.r.IntN(60))})
		}
	}
}
