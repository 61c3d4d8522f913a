package driver_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/driver"
	"github.com/muster-gpu/muster/engine"
	"github.com/muster-gpu/muster/internal/shared"
	"github.com/muster-gpu/muster/place"
	"github.com/muster-gpu/muster/policy"
)

// world has processes and nodes, and a lossy connection to the engine.
type world struct {
	t     *testing.T
	r     *rand.Rand
	e     *engine.Engine
	now   cluster.Time
	nodes []cluster.Node
	names []string // in the order in which the engine saw them
	runs  map[cluster.JobID][]driver.Held
	ended []driver.Outcome
	jobs  int
}

func newWorld(t *testing.T, seed uint64) *world {
	w := &world{t: t, r: rand.New(rand.NewPCG(seed, 0x64696666)), runs: map[cluster.JobID][]driver.Held{}}
	for i := range 4 {
		w.nodes = append(w.nodes, cluster.Node{Name: fmt.Sprintf("n%d", i+1), Model: "T4-16GB", GPUs: 4})
	}
	p := shared.Must(policy.New("srtf"))
	pl := shared.Must(place.New("best-fit"))
	spec := cluster.Spec{Nodes: slices.Clone(w.nodes)}
	w.e = shared.Must(engine.New(engine.Config{Spec: spec, Policy: p, Placer: pl, Launches: 1000}))
	return w
}

// step sends events to the engine; its decisions are carried out unless they get lost.
func (w *world) step(lose int, evs ...engine.Event) {
	d := w.e.Step(engine.Batch{Now: w.now, Events: evs})
	if err := w.e.CheckInvariants(); err != nil {
		w.t.Fatal(err)
	}
	w.names = w.names[:0]
	for _, n := range w.e.Nodes() {
		w.names = append(w.names, n.Name)
	}
	for i := range d.Actions {
		if w.r.IntN(100) < lose {
			continue
		}
		w.do(&d.Actions[i])
	}
}

func (w *world) do(a *engine.Action) {
	switch a.Type {
	case engine.Start, engine.Resize:
		var on []driver.Held
		for _, al := range a.Allocs {
			on = append(on, driver.Held{Node: w.names[al.Node], GPUs: al.GPUs})
		}
		w.runs[a.Job] = on
	case engine.Preempt:
		delete(w.runs, a.Job)
	}
}

func (w *world) observed() driver.Observed {
	o := driver.Observed{Nodes: slices.Clone(w.nodes), Ended: w.ended}
	for id := range cluster.JobID(w.jobs + 1000) {
		if on, ok := w.runs[id]; ok {
			o.Running = append(o.Running, driver.Found{Job: id, On: on})
		}
	}
	return o
}

// disturb changes the world without telling the engine, or telling it only in part.
func (w *world) disturb() {
	w.now = w.now.Add(time.Duration(w.r.IntN(5000)) * time.Millisecond)
	n := &w.nodes[w.r.IntN(len(w.nodes))]
	id := cluster.JobID(w.r.IntN(w.jobs + 1))
	switch w.r.IntN(10) {
	case 0, 1, 2, 3:
		j := &cluster.Job{ID: cluster.JobID(w.jobs), User: "u", Tier: cluster.Standard, Submit: w.now,
			Estimate: time.Duration(w.r.IntN(1000)) * time.Second,
			Tasks:    []cluster.TaskSet{{Count: 1 + w.r.IntN(3), Request: cluster.Request{GPUs: 1 + w.r.IntN(2)}}}}
		if w.r.IntN(4) == 0 {
			j.Elastic = cluster.Elastic{Min: 1, Max: 4}
		}
		w.jobs++
		w.step(30, engine.Event{Type: engine.Submitted, Job: j.ID, Spec: j})
	case 4: // a job ends unnoticed
		if _, ok := w.runs[id]; ok {
			delete(w.runs, id)
			w.ended = append(w.ended, driver.Outcome{Job: id, Reason: engine.Completed})
		}
	case 5: // it vanishes
		delete(w.runs, id)
	case 6: // a person starts something by hand
		w.runs[cluster.JobID(w.jobs+1+w.r.IntN(900))] = []driver.Held{{Node: n.Name, GPUs: 1}}
	case 7:
		n.State = cluster.NodeState(w.r.IntN(3))
		if n.State == cluster.Down {
			for id := range cluster.JobID(w.jobs + 1000) {
				if slices.ContainsFunc(w.runs[id], func(h driver.Held) bool { return h.Node == n.Name }) {
					delete(w.runs, id)
				}
			}
		}
		if n.Asleep = 0; n.State != cluster.Down && w.jobs%2 == 0 {
			n.Asleep = time.Minute
		}
	case 8:
		n.Bad ^= 1 << w.r.IntN(n.GPUs)
	case 9:
		if len(w.nodes) < 7 {
			w.nodes = append(w.nodes, cluster.Node{Name: fmt.Sprintf("n%d", len(w.nodes)+1), Model: "T4-16GB", GPUs: 4})
		} else if w.r.IntN(3) == 0 {
			w.step(30, engine.Event{Type: engine.Cancelled, Job: id})
		}
	}
}

// relist brings the engine up to date by Diff alone, as after a restart: its decisions are carried out, and the
// next Diff finds their outcome.
func (w *world) relist() {
	for round := 0; ; round++ {
		evs, orphans := driver.Diff(w.observed(), driver.ViewOf(w.e))
		for _, id := range orphans {
			delete(w.runs, id)
		}
		for _, b := range w.e.Beliefs() { // a lost resize is still pending
			if _, ok := w.runs[b.Job]; ok && b.Resizing {
				w.do(&engine.Action{Type: engine.Resize, Job: b.Job, Allocs: b.Allocs})
			}
			if b.State == engine.Stopping { // and so is a stop
				delete(w.runs, b.Job)
			}
		}
		resizing := slices.ContainsFunc(w.e.Beliefs(), func(b engine.Belief) bool {
			return b.Resizing || b.State == engine.Stopping
		})
		if len(evs) == 0 && !resizing {
			return
		}
		if round > 200 {
			w.t.Fatalf("%d rounds and still %+v", round, evs)
		}
		w.step(0, evs...)
	}
}

// agree compares engine and world.
func (w *world) agree() error {
	n := 0
	for _, b := range w.e.Beliefs() {
		on, ok := w.runs[b.Job]
		if !ok || b.State != engine.Running {
			return fmt.Errorf("job %d is believed to be %s; it runs: %v", b.Job, b.State, ok)
		}
		n++
		have, want := map[string]uint64{}, map[string]uint64{}
		for _, h := range on {
			have[h.Node] |= h.GPUs
		}
		for _, a := range b.Allocs {
			want[w.names[a.Node]] |= a.GPUs
		}
		if fmt.Sprint(have) != fmt.Sprint(want) {
			return fmt.Errorf("job %d is on %v, believed on %v", b.Job, have, want)
		}
	}
	if n != len(w.runs) {
		return fmt.Errorf("%d jobs run, %d are believed to", len(w.runs), n)
	}
	for i, b := range w.e.Nodes() {
		if n := w.nodes[i]; n.Name != b.Name || n.State != b.State || n.Bad != b.Bad || n.Asleep != b.Asleep {
			return fmt.Errorf("node %+v is believed to be %+v", n, b)
		}
	}
	return nil
}

// TestDiff: whatever got lost, after a relist the engine agrees with the world, no event is missing, and
// repeating the events changes nothing.
func TestDiff(t *testing.T) {
	for seed := range uint64(400) {
		w := newWorld(t, seed)
		for range 3 {
			for range 1 + w.r.IntN(25) {
				w.disturb()
			}
			w.relist()
			if err := w.agree(); err != nil {
				t.Fatalf("seed %d: %v", seed, err)
			}
			if evs, orphans := driver.Diff(w.observed(), driver.ViewOf(w.e)); len(evs)+len(orphans) != 0 {
				t.Fatalf("seed %d: between equal states: %+v %v", seed, evs, orphans)
			}
		}
	}
}

// TestDiffTwice: applying the same events twice changes nothing more, as long as nothing starts again in
// between.
func TestDiffTwice(t *testing.T) {
	for seed := range uint64(200) {
		w := newWorld(t, seed)
		for range 20 {
			w.disturb()
		}
		evs, _ := driver.Diff(w.observed(), driver.ViewOf(w.e))
		before := w.e.Beliefs()
		d := w.e.Step(engine.Batch{Now: w.now, Events: evs})
		if slices.ContainsFunc(d.Actions, func(a engine.Action) bool { return a.Type == engine.Start }) {
			continue // the failure of a start may be reported that was only just decided
		}
		once := fmt.Sprintf("%+v %+v", w.e.Beliefs(), w.e.Nodes())
		d = w.e.Step(engine.Batch{Now: w.now, Events: evs})
		if twice := fmt.Sprintf("%+v %+v", w.e.Beliefs(), w.e.Nodes()); twice != once || len(d.Actions) > 0 {
			t.Fatalf("seed %d: events %+v\nbefore %+v\nonce  %s\ntwice %s\n%+v", seed, evs, before, once, twice,
				d.Actions)
		}
	}
}
