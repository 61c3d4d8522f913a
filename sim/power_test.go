package sim

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/driver"
	"github.com/muster-gpu/muster/engine"
	"github.com/muster-gpu/muster/internal/shared"
	"github.com/muster-gpu/muster/place"
	"github.com/muster-gpu/muster/policy"
	"github.com/muster-gpu/muster/report"
	"github.com/muster-gpu/muster/trace"
)

// sleepy is a cluster whose surplus nodes sleep after half an hour.
func sleepy(t *testing.T, size string, change func(*cluster.Power)) *cluster.Spec {
	t.Helper()
	spec := shared.Must(cluster.ParseShort(size))
	p := cluster.DefaultPower(len(spec.Nodes))
	p.Settled, p.Keep, p.Wake, p.Watts = 30*time.Minute, 30*time.Minute, 5*time.Minute,
		cluster.Watts{Asleep: 10, Idle: 100, Busy: 500}
	if change != nil {
		change(&p)
	}
	spec.Power = []cluster.Power{p}
	return spec
}

// One of four nodes is used for two hours, so two are asleep after half an hour (one is the
// buffer). At one hour a gang arrives that needs three: it starts at once on the free node and two
// that have to be woken, and computes five minutes later. A single job that fits next to the first
// does not wait.
func TestPowerWakesForJobs(t *testing.T) {
	gang := func(e *trace.Entry) { e.Job.Tasks = []cluster.TaskSet{{Count: 3, Request: cluster.Request{GPUs: 2}}} }
	entries := []trace.Entry{entry(0, 0, 2*time.Hour, 1), entry(1, time.Hour, time.Hour, 2, gang),
		entry(2, 61*time.Minute, time.Hour, 1)}
	o := Run(context.Background(), sleepy(t, "4x2xT4", nil), entries, Setup{Policy: "fifo", Placer: "best-fit"})
	if o.Err != nil {
		t.Fatal(o.Err)
	}
	min := cluster.Time(time.Minute)
	for i, want := range []report.Record{{FirstStart: 0, End: 120 * min}, {FirstStart: 60 * min, End: 125 * min},
		{FirstStart: 61 * min, End: 121 * min}} {
		if r := o.Run.Records[i]; r.FirstStart != want.FirstStart || r.End != want.End {
			t.Errorf("job %d: started %v, ended %v; want %v, %v", i, r.FirstStart, r.End, want.FirstStart, want.End)
		}
	}
	p := o.Run.Power[0]
	// Awake: four for 30 minutes, two until the hour, four until the end at 125.
	if want := (30*4 + 30*2 + 65*4) * 60.0; p.Active != want || p.Total != 125*4*60 || p.Wakes != 1 || p.Woken != 2 ||
		p.Slept != 2 {
		t.Errorf("%+v, want %v node-seconds awake, one wake-up of two", p, want)
	}
	if want := (60 + 61*4 + 4*3) * 60.0; p.Used != want { // one; with the gang four until the 121st minute; then three
		t.Errorf("used %v node-seconds, want %v", p.Used, want)
	}
	// Held GPUs on awake nodes: 1 for 120 minutes, 6 for 65 (4 of them on two nodes that are waking
	// for the first five), 1 for 60; a fully used node draws 400 W more than an idle one.
	if joules := (120+6*65-4*5+60)*60*200 + p.Active*100 + (p.Total-p.Active)*10; math.Abs(p.Joules-joules) > 1e-6 ||
		p.Saved != (p.Total-p.Active)*90 {
		t.Errorf("%v J, want %v; saved %v", p.Joules, joules, p.Saved)
	}
	s := o.Run.Summarise().Power
	if s == nil || math.Abs(s.Utilisation-p.Used/p.Active) > 1e-9 || math.Abs(s.Woken-2*24*60/125.) > 1e-9 ||
		math.Abs(s.KWh-p.Joules/3.6e6) > 1e-9 {
		t.Errorf("%+v", s)
	}
}

// Nodes of different sizes draw by the held part of their own GPUs: two of two held GPUs draw 400 W
// more than idle, two of eight 100 W more.
func TestPowerSizes(t *testing.T) {
	for node, busy := range map[string]float64{"n1": 400, "n2": 100} {
		spec := sleepy(t, "1x2xT4+1x8xT4", nil)
		spec.Nodes[0].Name, spec.Nodes[1].Name = "n1", "n2"
		spec.Partitions = []cluster.Partition{{Name: "p", Nodes: []string{node}}}
		at := func(e *trace.Entry) { e.Job.Partitions = []string{"p"} }
		o := Run(context.Background(), spec, []trace.Entry{entry(0, 0, 20*time.Minute, 2, at)},
			Setup{Policy: "fifo", Placer: "best-fit"})
		if o.Err != nil {
			t.Fatal(o.Err)
		}
		if p := o.Run.Power[0]; p.Total != 2*1200 || math.Abs(p.Joules-1200*(200+busy)) > 1e-6 {
			t.Errorf("on %s: %+v, want %v J", node, p, 1200*(200+busy))
		}
	}
}

// A lost node draws nothing that is booked, busy or not; nor does a drained node while a job ends
// there.
func TestPowerOut(t *testing.T) {
	w := NewWorld(sleepy(t, "2x2xT4", nil), nil, Options{})
	w.powerHold([]engine.Alloc{{Node: 0, Tasks: 1, GPUs: 3}}, 1)
	w.now = cluster.Time(time.Minute)
	w.powerOut(&engine.Event{Type: engine.NodeDrained, Node: w.spec.Nodes[0].Name})
	w.now = cluster.Time(2 * time.Minute)
	w.powerOut(&engine.Event{Type: engine.NodeDrained, Node: w.spec.Nodes[0].Name, Undo: true})
	w.now = cluster.Time(3 * time.Minute)
	if p := w.closePower()[0]; p.Joules != 60*(500+100)+60*100+60*(500+100) || p.Total != 60*5 {
		t.Errorf("%+v", p)
	}
}

// Nodes that are woken for a job end the surplus period, like nodes that the rule wakes.
func TestPowerWakeEndsOver(t *testing.T) {
	w := NewWorld(sleepy(t, "2x2xT4", nil), nil, Options{})
	w.power.nodes[1].state = asleep
	m := &w.power.groups[0].meter
	m.Over = w.unix()
	w.now = cluster.Time(time.Minute)
	if wait := w.wakeFor([]engine.Alloc{{Node: 1, Tasks: 1, GPUs: 1}}); wait != 5*time.Minute || m.Over != 0 ||
		m.Grown != w.unix() {
		t.Errorf("it waits %v; %+v", wait, m)
	}
}

// An elastic job takes only the nodes that are awake, and grows when nodes wake for other jobs.
func TestPowerElastic(t *testing.T) {
	elastic := func(e *trace.Entry) { e.Job.Elastic = cluster.Elastic{Min: 1, Max: 8} }
	entries := []trace.Entry{entry(0, 0, time.Hour, 1), entry(1, 50*time.Minute, time.Hour, 1, elastic)}
	o := Run(context.Background(), sleepy(t, "4x2xT4", nil), entries, Setup{Policy: "fifo", Placer: "best-fit"})
	if o.Err != nil {
		t.Fatal(o.Err)
	}
	if p := o.Run.Power[0]; p.Woken != 0 {
		t.Errorf("nodes were woken for what a job does not need: %+v", p)
	}
	if o.Run.Records[1].End == cluster.Never {
		t.Error("the elastic job did not end")
	}
}

// watcher checks the world after each step.
type watcher struct {
	w *World
}

// Record checks for states that must never occur.
func (x *watcher) Record(b *engine.Batch, _ *engine.Decision) error {
	if len(x.w.power.nodes) == 0 {
		return nil
	}
	jobs := make([]int32, len(x.w.power.nodes))
	for i := range x.w.jobs {
		seen := map[int32]bool{}
		for _, a := range x.w.jobs[i].allocs {
			if n := &x.w.power.nodes[a.Node]; x.w.jobs[i].phase == running && n.state != awake && !n.out {
				return fmt.Errorf("%v: job %d computes on node %d, which is not awake", b.Now, i, a.Node)
			}
			if !seen[a.Node] {
				seen[a.Node] = true
				jobs[a.Node]++
			}
		}
		for _, a := range x.w.jobs[i].frozen {
			if x.w.power.nodes[a.Node].state == asleep {
				return fmt.Errorf("%v: job %d has its memory on node %d, which is asleep", b.Now, i, a.Node)
			}
		}
	}
	for i := range x.w.power.nodes {
		n := &x.w.power.nodes[i]
		if n.jobs != jobs[i] || n.state == asleep && jobs[i] > 0 {
			return fmt.Errorf("%v: node %d has %d jobs, not %d, and state %d", b.Now, i, jobs[i], n.jobs, n.state)
		}
		if s := x.w.power.groups[0]; n.state == asleep && x.w.seen(&s).Active < x.w.seen(&s).Used {
			return fmt.Errorf("%v: %+v", b.Now, x.w.seen(&s))
		}
	}
	return nil
}

// No job waits for ever for sleeping nodes: with failures, preemption, suspension, elastic jobs and
// gangs, each job that ends with all nodes awake also ends when nodes sleep. No job is on a node
// that is asleep.
func TestPowerProperties(t *testing.T) {
	for seed := shared.Soak[uint64](20, 0); seed < 40; seed++ {
		r := rand.New(rand.NewPCG(seed, 7))
		pol := []string{"fifo", "las", "srtf", "sjf", "pollux", "gandiva", "elasticflow", "tiresias"}[seed%8]
		if _, err := policy.New(pol); err != nil {
			pol = "las"
		}
		entries := randomEntries(r, 60)
		for i := range entries {
			e := &entries[i]
			e.Job.Submit *= cluster.Time(1 + seed%40)
			e.Job.Checkpoint = cluster.Checkpoint{Interval: time.Minute, Cost: time.Second, Restart: time.Second}
			switch r.IntN(5) {
			case 0:
				e.Job.Elastic = cluster.Elastic{Min: 1, Max: 3}
			case 1:
				e.Job.Tasks[0].Count = 2
			}
		}
		setup := Setup{Policy: pol, Placer: []string{"best-fit", "worst-fit", "topology", "first-fit"}[r.IntN(4)],
			World: Options{Seed: seed}}
		if seed%3 == 0 {
			setup.World.NodeMTBF, setup.World.Repair = 3*time.Hour, 20*time.Minute
		}
		if seed%4 == 1 {
			setup.Config.Stop = &[3]engine.StopRule{{How: engine.Suspend}, {How: engine.Suspend}, {How: engine.Suspend}}
		}
		spec := sleepy(t, "3x8xT4+2x8xA100-40GB", func(p *cluster.Power) {
			p.Every, p.Buffer, p.Settled, p.Keep = time.Minute, r.IntN(2), time.Duration(1+r.IntN(5))*time.Minute,
				time.Duration(r.IntN(5))*time.Minute
		})
		plain := *spec
		plain.Power = nil
		want, slept := watched(t, &plain, entries, setup, nil), 0
		got := watched(t, spec, entries, setup, &slept)
		for i := range want {
			if want[i].End != cluster.Never && got[i].End == cluster.Never {
				t.Errorf("seed %d, %s: job %d never ends where nodes sleep", seed, pol, i)
			}
		}
		if slept == 0 && seed%40 > 20 {
			t.Errorf("seed %d: no node was ever asleep", seed)
		}
	}
}

// watched replays with a watcher attached.
func watched(t *testing.T, spec *cluster.Spec, entries []trace.Entry, s Setup, slept *int) []report.Record {
	t.Helper()
	cfg := s.Config
	cfg.Policy, cfg.Placer = mustPolicy(t, s.Policy), shared.Must(place.New(s.Placer))
	e := engineOn(spec, cfg)
	s.World.Lanes, s.World.Memory = cfg.Policy.Traits().Lanes, cfg.Policy.Traits().Memory
	w := NewWorld(spec, entries, s.World)
	if err := driver.Run(context.Background(), e, w, &watcher{w: w}); err != nil {
		t.Fatalf("%s: %v", s.Policy, err)
	}
	if slept != nil {
		*slept = w.power.groups[0].book.Slept
	}
	return w.Book().Run(w).Records
}
