package engine_test

import (
	"encoding/json"
	"fmt"
	"reflect"
	"testing"
	"time"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/engine"
	"github.com/muster-gpu/muster/network"
	"github.com/muster-gpu/muster/network/traffic"
	"github.com/muster-gpu/muster/place"
	"github.com/muster-gpu/muster/policy"
)

// networked is a configuration of eight nodes on two leaf switches that two spines join.
func networked(t *testing.T, name string) engine.Config { return joined(t, name, 2) }

// joined is networked with a number of spines.
func joined(t *testing.T, name string, spines int) engine.Config {
	t.Helper()
	spec := cluster.Spec{Models: []cluster.GPUModel{{Name: "G", Memory: 80 << 10}}}
	c := network.Clos{NodesPerLeaf: 4, Cards: 1, Spines: spines, CardRate: 8e9, SpineRate: 8e9}
	for i := range 8 {
		spec.Nodes = append(spec.Nodes, cluster.Node{Name: fmt.Sprintf("n%d", i+1), Model: "G", GPUs: 1})
		c.Nodes = append(c.Nodes, fmt.Sprintf("n%d", 1+i%4*2+i/4)) // neighbours are on different switches
	}
	spec.Network = &cluster.Network{Links: c.Links(), Classes: 4}
	cfg := engine.Config{Spec: spec, Policy: must(policy.New("fifo")), Placer: must(place.New("best-fit")),
		Traffic: must(traffic.New(name))}
	return cfg
}

// sender is a job of some tasks that transmits.
func sender(id cluster.JobID, tasks int, seconds time.Duration) *cluster.Job {
	return &cluster.Job{ID: id, Tier: cluster.Standard,
		Tasks: []cluster.TaskSet{{Count: tasks, Request: cluster.Request{GPUs: 1}}}, Traffic: cluster.Traffic{
			Pattern: cluster.Ring, Bytes: 1e9, Compute: seconds * time.Second}}
}

// reopened is an engine that begins with another's snapshot, as it is stored.
func reopened(t *testing.T, cfg engine.Config, e *engine.Engine) *engine.Engine {
	t.Helper()
	data, err := json.Marshal(e.Snapshot())
	if err != nil {
		t.Fatal(err)
	}
	var snap engine.Snapshot
	if err := json.Unmarshal(data, &snap); err != nil {
		t.Fatal(err)
	}
	again, err := engine.Restore(cfg, &snap)
	if err != nil {
		t.Fatal(err)
	}
	return again
}

// A job that starts beside others is told how its traffic is treated with its start, those that run are told when it
// changes, nothing is told twice, and a treatment ends with the run. A restored engine decides the same.
func TestTreatments(t *testing.T) {
	for _, name := range append(traffic.Names(), "cassini:hold=all") {
		cfg := networked(t, name)
		e := must(engine.New(cfg))
		told := map[cluster.JobID]cluster.Treatment{}
		now := cluster.Time(0)
		changes := 0
		step := func(e *engine.Engine, evs ...engine.Event) engine.Decision {
			return e.Step(engine.Batch{Now: now, Events: evs})
		}
		for round := range 60 {
			now = now.Add(time.Second)
			var evs []engine.Event
			id := cluster.JobID(round)
			evs = append(evs, engine.Event{Type: engine.Submitted, Job: id,
				Spec: sender(id, 2+round%3, time.Duration(1+round%4))})
			if round >= 3 {
				gone := id - 3
				evs = append(evs, engine.Event{Type: engine.Stopped, Job: gone, Reason: engine.Completed})
				delete(told, gone)
			}
			again := reopened(t, networked(t, name), e)
			d := step(e, evs...)
			if d2 := step(again, evs...); d.Hash != d2.Hash || len(d.Actions) > 0 &&
				!reflect.DeepEqual(d.Actions, d2.Actions) {
				t.Fatalf("%s: round %d: a restored engine decides %+v instead of %+v", name, round, d2.Actions,
					d.Actions)
			}
			var started []engine.Event
			for _, a := range d.Actions {
				switch before, known := told[a.Job]; {
				case a.Type == engine.Treat && !known:
					t.Errorf("%s: round %d: job %d is treated and does not run", name, round, a.Job)
				case a.Type == engine.Treat && before.Equal(a.Treatment):
					t.Errorf("%s: round %d: job %d is told again what it was told: %+v", name, round, a.Job, before)
				case a.Type == engine.Start:
					started = append(started, engine.Event{Type: engine.Started, Job: a.Job})
					told[a.Job] = cluster.Treatment{}
				}
				if a.Treatment != nil {
					told[a.Job] = *a.Treatment
					changes++
				}
			}
			step(e, started...)
			for id := range told {
				r := e.Record(id)
				var now cluster.Treatment
				if r.Treatment != nil {
					now = *r.Treatment
				}
				if was := told[id]; !was.Equal(&now) {
					t.Errorf("%s: round %d: job %d was told %+v and is treated %+v", name, round, id, was, now)
				}
			}
			if round >= 3 && e.Record(id-3).Treatment != nil {
				t.Errorf("%s: round %d: a job that is over is treated", name, round)
			}
		}
		if name != "none" && name != "cassini" && changes < 20 { // cassini holds no job that would be slower so
			t.Errorf("%s: only %d treatments in 60 rounds", name, changes)
		}
	}
}

// Under another traffic policy all is decided again at the next step, and without one nothing is treated any more.
func TestOtherTraffic(t *testing.T) {
	e := must(engine.New(networked(t, "crux")))
	var evs []engine.Event
	for id := range cluster.JobID(4) {
		evs = append(evs, engine.Event{Type: engine.Submitted, Job: id, Spec: sender(id, 2, 2)})
	}
	e.Step(engine.Batch{Events: evs})
	snap := e.Snapshot()
	treated := func(e *engine.Engine) (n int) {
		for id := range cluster.JobID(4) {
			if r := e.Record(id); r.Treatment != nil && !r.Treatment.Plain() {
				n++
			}
		}
		return n
	}
	if treated(e) == 0 {
		t.Fatal("nothing is treated")
	}
	off := networked(t, "crux")
	off.Traffic = nil
	if e := must(engine.Restore(off, &snap)); treated(e) != 0 {
		t.Errorf("%d jobs are treated without a policy", treated(e))
	}
	none := must(engine.Restore(networked(t, "none"), &snap))
	if d := none.Step(engine.Batch{Now: 1, Events: []engine.Event{{Type: engine.Tick}}}); treated(none) != 0 ||
		len(d.Actions) == 0 || d.Actions[0].Type != engine.Treat {
		t.Errorf("%d jobs are treated as before, actions %+v", treated(none), d.Actions)
	}
}

// What was measured of a job's traffic replaces what it states, and jobs are treated by it; noise changes nothing.
func TestMeasuredTraffic(t *testing.T) {
	e := must(engine.New(networked(t, "crux")))
	e.Step(engine.Batch{Events: []engine.Event{{Type: engine.Submitted, Job: 0, Spec: sender(0, 8, 4)}}})
	var seen []engine.Action
	measure := func(at cluster.Time, m cluster.Traffic) {
		d := e.Step(engine.Batch{Now: at, Events: []engine.Event{{Type: engine.Progress, Job: 0, Traffic: &m}}})
		seen = d.Actions
	}
	e.Step(engine.Batch{Now: 1, Events: []engine.Event{{Type: engine.Started, Job: 0}}})
	measure(2, cluster.Traffic{Compute: 4100 * time.Millisecond})
	if r := e.Record(0); r.Traffic != nil || len(seen) != 0 {
		t.Errorf("2.5 %% more computing is noise: %+v %+v", r.Traffic, seen)
	}
	measure(3, cluster.Traffic{Compute: 8 * time.Second, Bytes: 2e9})
	if r := e.Record(0); r.Account.Traffic == nil || r.Account.Traffic.Bytes != 2e9 ||
		r.Account.Traffic.Compute != 8*time.Second {
		t.Errorf("measured: %+v", r.Account.Traffic)
	}
}

// Of a job that tells what an iteration takes, and not what of it is computing, that follows while no other job shares
// its links; the jobs are treated by it.
func TestMeasuredIteration(t *testing.T) {
	e := must(engine.New(joined(t, "crux", 1)))
	now := cluster.Time(0)
	step := func(evs ...engine.Event) {
		now = now.Add(time.Second)
		e.Step(engine.Batch{Now: now, Events: evs})
	}
	submit := func(id cluster.JobID, seconds time.Duration) {
		j := sender(id, 4, seconds)
		j.Traffic.Overlap = 500
		step(engine.Event{Type: engine.Submitted, Job: id, Spec: j})
		step(engine.Event{Type: engine.Started, Job: id})
	}
	says := func(id cluster.JobID, iteration time.Duration) {
		step(engine.Event{Type: engine.Progress, Job: id, Iteration: iteration})
	}
	check := func(what string, alone time.Duration, classes [2]int) {
		t.Helper()
		v, _ := e.OnNetwork(0)
		if v.Alone < alone-time.Millisecond || v.Alone > alone+time.Millisecond {
			t.Errorf("%s: an iteration takes %v alone, want %v", what, v.Alone, alone)
		}
		for id, want := range classes {
			if v, yes := e.OnNetwork(cluster.JobID(id)); yes && v.Treatment.Class != want {
				t.Errorf("%s: job %d has class %d, want %d", what, id, v.Treatment.Class, want)
			}
		}
	}
	submit(0, 2) // half of the computing, then 1.5 s of traffic: 2.5 s
	check("stated", 2500*time.Millisecond, [2]int{})
	says(0, 2550*time.Millisecond)
	check("about what was stated", 2500*time.Millisecond, [2]int{})
	says(0, 1400*time.Millisecond)
	check("less than its traffic takes", 2500*time.Millisecond, [2]int{})
	says(0, 8*time.Second)
	check("long", 8*time.Second, [2]int{})
	says(0, 1700*time.Millisecond)
	check("short", 1700*time.Millisecond, [2]int{})
	submit(1, 3)
	check("beside one that computes more for its traffic", 1700*time.Millisecond, [2]int{2, 1})
	says(0, 8*time.Second)
	check("beside another it is not seen what it takes alone", 1700*time.Millisecond, [2]int{2, 1})
	step(engine.Event{Type: engine.Stopped, Job: 1, Reason: engine.Completed})
	says(0, 8*time.Second)
	check("once it was alone again", 8*time.Second, [2]int{})
}

// Real jobs are given slots once they tell of their iterations, and count as keeping them once they say so; until then,
// or when they say that they do not, a class keeps them apart, and without classes nothing is expected.
func TestSlots(t *testing.T) {
	for _, classes := range []int{1, 4} {
		cfg := joined(t, "cassini", 1)
		cfg.Spec.Network.Real, cfg.Spec.Network.Classes = true, classes
		e := must(engine.New(cfg))
		now := cluster.Time(0)
		says := func(id cluster.JobID, s cluster.SlotsReport) {
			now = now.Add(time.Second)
			e.Step(engine.Batch{Now: now, Events: []engine.Event{{Type: engine.Progress, Job: id, Slots: s}}})
		}
		var evs, started []engine.Event
		for id := range cluster.JobID(2) {
			evs = append(evs, engine.Event{Type: engine.Submitted, Job: id, Spec: sender(id, 4, 3)})
			started = append(started, engine.Event{Type: engine.Started, Job: id})
		}
		e.Step(engine.Batch{Events: evs})
		e.Step(engine.Batch{Now: 1, Events: started})
		check := func(what string, want [2]int, slots, expected bool) {
			t.Helper()
			for id := range cluster.JobID(2) {
				v, _ := e.OnNetwork(id)
				if classes == 1 {
					want[id] = 0
				}
				if v.Treatment.Class != want[id] || v.Treatment.Period > 0 != slots {
					t.Errorf("%d classes, %s: job %d has class %d and a period of %v, want class %d, slots: %v",
						classes, what, id, v.Treatment.Class, v.Treatment.Period, want[id], slots)
				}
				if none := v.Takes <= v.Alone+v.Alone/50; none != (classes > 1 || expected) {
					t.Errorf("%d classes, %s: an iteration of job %d takes %v, alone %v", classes, what, id, v.Takes,
						v.Alone)
				}
			}
		}
		check("nothing heard", [2]int{1, 2}, false, false)
		says(0, cluster.SlotsCalled)
		check("one tells of its iterations", [2]int{1, 2}, false, false)
		says(1, cluster.SlotsCalled)
		check("both do", [2]int{1, 2}, true, false)
		says(0, cluster.SlotsHeld)
		says(1, cluster.SlotsHeld)
		check("both keep their slots", [2]int{}, true, true)
		says(1, cluster.SlotsCalled)
		check("one has a report without a word of slots", [2]int{}, true, true)
		says(1, cluster.SlotsTooShort)
		check("one does not keep them", [2]int{1, 2}, false, false)

		e = reopened(t, cfg, e)
		check("after a restart", [2]int{1, 2}, false, false)
		says(1, cluster.SlotsHeld)
		check("when it keeps them again", [2]int{}, true, true)
	}
}

// No policy gives real jobs a path, and jobs that share paths are in classes apart although paths could be chosen
// on which they do not meet.
func TestRealPaths(t *testing.T) {
	for _, name := range traffic.Names() {
		for _, real := range []bool{false, true} {
			cfg := networked(t, name)
			cfg.Spec.Network.Real = real
			e := must(engine.New(cfg))
			var evs []engine.Event
			for id := range cluster.JobID(2) {
				evs = append(evs, engine.Event{Type: engine.Submitted, Job: id, Spec: sender(id, 2, 3)})
			}
			paths, classes := 0, 0
			for _, a := range e.Step(engine.Batch{Events: evs}).Actions {
				paths += len(a.Treatment.Value().Path)
				classes += a.Treatment.Value().Class
			}
			if chooses := name == "crux" || name == "muster"; paths > 0 != (chooses && !real) {
				t.Errorf("%s, real jobs: %v: %d paths are given", name, real, paths)
			}
			if name == "crux" && classes > 0 != real {
				t.Errorf("real jobs: %v: classes add up to %d", real, classes)
			}
		}
	}
}

// Without facts about traffic decisions are those without a network, hash by hash.
func TestWithoutTraffic(t *testing.T) {
	hash := func(cfg engine.Config) (h uint64) {
		e := must(engine.New(cfg))
		for i := range 20 {
			j := sender(cluster.JobID(i), 2, 1)
			j.Traffic = cluster.Traffic{}
			d := e.Step(engine.Batch{Now: cluster.Time(i),
				Events: []engine.Event{{Type: engine.Submitted, Job: j.ID, Spec: j}}})
			h = d.Hash
		}
		return h
	}
	plain := networked(t, "muster")
	plain.Spec.Network, plain.Traffic = nil, nil
	if hash(plain) != hash(networked(t, "muster")) {
		t.Error("a network changes decisions about jobs that state no traffic")
	}
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

// Jobs on one node that transmit between hosts outside of the cluster are treated by the links between those.
func TestHosts(t *testing.T) {
	cfg := engine.Config{Policy: must(policy.New("fifo")), Placer: must(place.New("best-fit")),
		Traffic: must(traffic.New("crux"))}
	cfg.Spec = cluster.Spec{Models: []cluster.GPUModel{{Name: "G", Memory: 80 << 10}},
		Nodes: []cluster.Node{{Name: "here", Model: "G", GPUs: 8}}}
	n := &cluster.Network{Classes: 4, Hosts: []string{"h1", "h2", "here", "h3"}}
	for host, leaf := range map[string]string{"h1": "left", "here": "left", "h2": "right", "h3": "right"} {
		n.Links = append(n.Links, cluster.Link{A: host, B: leaf, Rate: 10e9})
	}
	n.Links = append(n.Links, cluster.Link{A: "left", B: "right", Rate: 1e9})
	cfg.Spec.Network = n
	e := must(engine.New(cfg))
	var evs []engine.Event
	for id, hosts := range [][]string{{"h1", "h2"}, {"here", "h3"}, {"h1", "nowhere"}, nil} {
		j := sender(cluster.JobID(id), 1, 1)
		j.Hosts = hosts
		evs = append(evs, engine.Event{Type: engine.Submitted, Job: j.ID, Spec: j})
	}
	d := e.Step(engine.Batch{Events: evs})
	classes := map[int]bool{}
	for _, a := range d.Actions {
		shares := a.Job < 2 // the link between the leaves
		if a.Type == engine.Start && shares != (a.Treatment != nil && a.Treatment.Class > 0) {
			t.Errorf("job %d: %+v", a.Job, a.Treatment)
		} else if shares {
			classes[a.Treatment.Class] = true
		}
	}
	if len(classes) != 2 {
		t.Errorf("jobs on one link are in classes %v", classes)
	}
}
