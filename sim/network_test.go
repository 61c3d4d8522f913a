package sim

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/engine"
	"github.com/muster-gpu/muster/internal/shared"
	"github.com/muster-gpu/muster/network"
	"github.com/muster-gpu/muster/network/traffic"
	"github.com/muster-gpu/muster/trace"
)

// narrow is nodes of one GPU on two leaf switches, joined by one link of 1 GB/s. Neighbours by number are on different
// switches.
func narrow(nodes int) *cluster.Spec {
	spec := &cluster.Spec{Models: []cluster.GPUModel{{Name: "G", Memory: 80 << 10}},
		Network: &cluster.Network{Classes: 8}}
	for i := range nodes {
		name := fmt.Sprintf("n%d", i+1)
		spec.Nodes = append(spec.Nodes, cluster.Node{Name: name, Model: "G", GPUs: 1})
		spec.Network.Links = append(spec.Network.Links,
			cluster.Link{A: name, B: fmt.Sprintf("leaf%d", i%2), Rate: 8e9})
	}
	spec.Network.Links = append(spec.Network.Links, cluster.Link{A: "leaf0", B: "leaf1", Rate: 8e9})
	return spec
}

func sends(id cluster.JobID, at, run time.Duration, bytes int64, compute time.Duration) trace.Entry {
	return trace.Entry{Run: run, Job: cluster.Job{ID: id, Submit: cluster.Time(at), Tier: cluster.Standard,
		Tasks:   []cluster.TaskSet{{Count: 2, Request: cluster.Request{GPUs: 1}}},
		Traffic: cluster.Traffic{Pattern: cluster.Hierarchical, Bytes: bytes, Compute: compute}}}
}

func playOn(t *testing.T, spec *cluster.Spec, name string, entries []trace.Entry, w Options) Outcome {
	t.Helper()
	out := Run(context.Background(), spec, entries, Setup{Policy: "fifo", Placer: "first-fit", Traffic: name, World: w})
	if out.Err != nil {
		t.Fatal(out.Err)
	}
	return out
}

// A job is slowed while another is on its link, and only then; what it lost is booked, and so is what passed the link.
func TestContention(t *testing.T) {
	// 2 s of computing and 2 s of transmission: alone 4 s an iteration, beside its like 6 s
	entries := []trace.Entry{sends(0, 0, 20*time.Minute, 2e9, 2*time.Second),
		sends(1, 0, 10*time.Minute, 2e9, 2*time.Second)}
	out := playOn(t, narrow(4), "none", entries, Options{})
	first, second := &out.Run.Records[0], &out.Run.Records[1]
	if end := second.End.Sub(0).Round(time.Second); end != 15*time.Minute {
		t.Errorf("the shorter ends after %v, want 15m", end)
	}
	if end := first.End.Sub(0).Round(time.Second); end != 25*time.Minute {
		t.Errorf("the longer ends after %v, want 25m: 10 minutes' work in 15, then the rest alone", end)
	}
	for i, r := range []int64{first.Contended, second.Contended} {
		want := int64(2 * 1000 * 5 * 60 * 1000) // two GPUs, five minutes
		if r < want-want/100 || r > want+want/100 {
			t.Errorf("job %d lost %d milli-GPU-milliseconds, want %d", i, r, want)
		}
	}
	// 900 GB in 25 minutes: 300 and 150 iterations of 2 GB
	if l := out.Run.Links[0]; l.Rate != 8e9 || l.Load < .59 || l.Load > .61 {
		t.Errorf("the busiest link: %+v, want a load of 0.6", l)
	}
	s := out.Run.Summarise()
	if s.ContendedHours < .32 || s.ContendedHours > .35 || len(s.Links) == 0 {
		t.Errorf("summary: %v GPU-hours, %v", s.ContendedHours, s.Links)
	}
	// of the first 15 and 10 minutes, of the second 10 minutes; alone it is half of the time
	if want := 2 * (15.*4/6 + 10./2 + 15.*4/6) / 60; s.SendingHours < .99*want || s.SendingHours > 1.01*want {
		t.Errorf("%v GPU-hours of transmission, want %v", s.SendingHours, want)
	}
}

// crowded is jobs on a narrow link whose nodes fail, treated by a policy: 60 of them under MUSTER_SOAK.
func crowded(name string, seed uint64) (*cluster.Spec, []trace.Entry, Setup) {
	var entries []trace.Entry
	for i := range cluster.JobID(shared.Soak(30, 60)) {
		entries = append(entries,
			sends(i, time.Duration(i)*time.Minute, time.Duration(5+i%7)*time.Minute, int64(1+i%3)*1e9,
				time.Duration(1+i%4)*time.Second))
	}
	return narrow(12), entries, Setup{Policy: "srtf", Placer: "first-fit", Traffic: name, World: Options{
		NodeMTBF: 40 * time.Minute, Repair: 5 * time.Minute, Seed: seed, Startup: 10 * time.Second}}
}

// Treatments change how jobs are slowed while they run, by as much as the engine says; a job that is preempted, fails
// or ends no longer transmits, and after all are gone the links are free.
func TestTreatedWorld(t *testing.T) {
	for _, name := range shared.Soak([]string{"muster"}, traffic.Names()) {
		spec, entries, s := crowded(name, 3)
		cfg, err := s.config(spec)
		if err != nil {
			t.Fatal(err)
		}
		e := shared.Must(engine.New(cfg))
		w := NewWorld(spec, entries, s.World)
		for step := 0; ; step++ {
			b, err := w.Next(context.Background())
			if err != nil {
				break
			}
			if err := w.Apply(context.Background(), e.Step(b)); err != nil {
				t.Fatal(err)
			}
			on := map[network.LinkID]int{}
			for i := range w.jobs {
				j := &w.jobs[i]
				if (j.sends != nil) != (j.phase == running) {
					t.Fatalf("%s: job %d in phase %d transmits: %v", name, i, j.phase, j.sends != nil)
				}
				if j.sends != nil {
					for _, b := range j.sends.on {
						on[b.Link]++
					}
				}
			}
			w.respeed(w.contend())
			one := &w.jobs[step%len(w.jobs)]
			v, yes := e.OnNetwork(one.entry.Job.ID)
			between := func(j jobRun) bool { return j.phase == starting || j.phase == leaving }
			if yes && !slices.ContainsFunc(w.jobs, between) && v.Takes != max(one.sends.takes, v.Alone) {
				t.Fatalf("%s: an iteration takes %v, the engine says %v", name, one.sends.takes, v.Takes)
			}
			for l, users := range w.net.users {
				if len(users) != on[network.LinkID(l)] {
					t.Fatalf("%s: link %d has %d users, want %d", name, l, len(users), on[network.LinkID(l)])
				}
			}
		}
		run := w.Book().Run(w)
		if sum := run.Summarise(); sum.Completed != len(entries) {
			t.Errorf("%s: %d jobs completed", name, sum.Completed)
		}
	}
}

// A mix is played once at an instant, before time passes or a speed is reported. Jobs start and end as if it were
// played after each decision and each event.
func TestOncePerInstant(t *testing.T) {
	for _, name := range []string{"none", "crux"} {
		for seed := range shared.Soak[uint64](2, 3) {
			spec, entries, s := crowded(name, 30+seed)
			s.World.Startup = time.Duration(seed) * time.Second // without it, jobs begin at the instant of the decision
			once := Run(context.Background(), spec, entries, s)
			if once.Err != nil {
				t.Fatal(once.Err)
			}
			e, w := shared.Must(engine.New(shared.Must(s.config(spec)))), NewWorld(spec, entries, s.World)
			for {
				b, err := w.Next(context.Background())
				if err != nil {
					break
				}
				w.respeed(w.contend())
				if err := w.Apply(context.Background(), e.Step(b)); err != nil {
					t.Fatal(err)
				}
				w.respeed(w.contend())
			}
			each := w.Book().Run(w)
			for i := range entries {
				a, b := &once.Run.Records[i], &each.Records[i]
				off := func(a, b cluster.Time) bool { return a.Sub(b).Abs() > time.Microsecond } // rounding adds up
				if off(a.FirstStart, b.FirstStart) || off(a.End, b.End) {
					t.Errorf("%s, seed %d: job %d runs from %v to %v, not from %v to %v", name, seed, i, a.FirstStart,
						a.End, b.FirstStart, b.End)
				}
			}
		}
	}
}

// Over replays that differ by which nodes fail, muster loses less to contention than jobs that are not treated, and in
// make soak, over more of them, than every other policy. In one of them, and in a few, any may be ahead: which jobs
// meet afterwards is chance.
func TestTreatedReplays(t *testing.T) {
	if testing.Short() {
		t.Skip("a minute")
	}
	seeds := shared.Soak(1, 16)
	lost := map[string]float64{}
	for _, name := range shared.Soak([]string{"muster", "none"}, traffic.Names()) {
		for seed := range uint64(seeds) {
			spec, entries, s := crowded(name, 3+seed)
			out := Run(context.Background(), spec, entries, s)
			if out.Err != nil {
				t.Fatal(out.Err)
			}
			lost[name] += out.Run.Summarise().ContendedHours / float64(seeds)
		}
	}
	for name, hours := range lost {
		if lost["muster"] > hours {
			t.Errorf("muster loses %v GPU-hours, %s %v", lost["muster"], name, hours)
		}
	}
	t.Log(lost)
}

// Without facts about traffic a replay on a network is the replay without one.
func TestSilentNetwork(t *testing.T) {
	var entries []trace.Entry
	for i := range cluster.JobID(20) {
		e := sends(i, time.Duration(i)*time.Minute, 7*time.Minute, 0, 0)
		e.Job.Traffic = cluster.Traffic{}
		entries = append(entries, e)
	}
	spec := narrow(6)
	with := playOn(t, spec, "muster", entries, Options{})
	spec.Network = nil
	without := playOn(t, spec, "", entries, Options{})
	if with.Hash != without.Hash {
		t.Error("the hashes differ")
	}
}
