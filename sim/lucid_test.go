package sim

import (
	"context"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/driver"
	"github.com/muster-gpu/muster/engine"
	"github.com/muster-gpu/muster/internal/shared"
	"github.com/muster-gpu/muster/perf"
	"github.com/muster-gpu/muster/trace"
)

// packers tracks which jobs are on which GPUs under lucid.
type packers struct {
	t       *testing.T
	e       *engine.Engine
	limit   time.Duration
	profile map[int32]bool
	shared  map[int32]bool                 // nodes to which the profiling partition grows
	since   map[cluster.JobID]cluster.Time // when a job got its devices; looked up, never iterated
	where   map[cluster.JobID][]engine.Alloc
	starts  map[cluster.JobID]int
	short   int // runs in the profiling partition that ended within the limit
	cut     int // ... that were stopped at the limit
	joins   int
	grown   int // first starts on nodes to which the partition grew
}

func (p *packers) Record(b *engine.Batch, d *engine.Decision) error {
	for i := range b.Events {
		ev := &b.Events[i]
		if ev.Type != engine.Stopped {
			continue
		}
		if at := p.where[ev.Job]; p.new(ev.Job, at[0].Node) && ev.Reason == engine.Completed {
			p.short++
		}
		delete(p.where, ev.Job)
	}
	for i := range d.Actions {
		a := &d.Actions[i]
		switch a.Type {
		case engine.Start:
			p.start(b.Now, a)
		case engine.Preempt:
			if ran := b.Now.Sub(p.since[a.Job]); !p.new(a.Job, p.where[a.Job][0].Node) || ran != p.limit {
				p.t.Errorf("job %d is stopped after %v on node %d", a.Job, ran, p.where[a.Job][0].Node)
			}
			p.cut++
		}
	}
	return p.e.CheckInvariants()
}

// new reports whether a job is being profiled on a node.
func (p *packers) new(job cluster.JobID, node int32) bool {
	return p.profile[node] || p.shared[node] && p.starts[job] == 1
}

func (p *packers) start(now cluster.Time, a *engine.Action) {
	p.starts[a.Job]++
	if in := p.new(a.Job, a.Allocs[0].Node); in != (p.starts[a.Job] == 1 && len(p.profile) > 0) {
		p.t.Errorf("start %d of job %d: in the partition for profiling: %t", p.starts[a.Job], a.Job, in)
	}
	if p.shared[a.Allocs[0].Node] && p.starts[a.Job] == 1 {
		p.grown++
	}
	with := 0
	for other, held := range p.where { // counted only
		for _, x := range a.Allocs {
			for _, y := range held {
				if x.Node != y.Node || x.GPUs&y.GPUs == 0 {
					continue
				}
				with++
				if x.GPUs != y.GPUs || len(a.Allocs) != len(held) || p.profile[x.Node] {
					p.t.Errorf("job %d is on %+v, job %d on %+v", a.Job, a.Allocs, other, held)
				}
			}
		}
	}
	if with > 1 {
		p.t.Errorf("job %d is on GPUs of %d others", a.Job, with)
	}
	p.joins += with
	p.since[a.Job], p.where[a.Job] = now, a.Allocs
}

// Lucid's invariants (ASPLOS'23): at most two jobs on a GPU, both on the same set of GPUs; each
// starts once and is never stopped, except a new job at the time limit of the profiling partition,
// in which no GPU is shared.
func TestLucid(t *testing.T) {
	for _, pol := range []string{"lucid:pack=always", "lucid:waiting=0,profile=new,limit=100s",
		"lucid:profile=new,pack=never", "lucid:waiting=0,profile=new,grow=more"} {
		t.Run(pol, func(t *testing.T) {
			short, cut, joins, grown := 0, 0, 0, 0
			for seed := range shared.Soak[uint64](2, 3) {
				p := lucidPlayed(t, pol, seed)
				short, cut, joins, grown = short+p.short, cut+p.cut, joins+p.joins, grown+p.grown
			}
			if profiled := pol != "lucid:pack=always"; profiled != (short > 10 && cut > 10) {
				t.Errorf("%d ended within the limit, %d were stopped by it", short, cut)
			}
			if packed := pol != "lucid:profile=new,pack=never"; packed != (joins > 10) {
				t.Errorf("%d starts beside others", joins)
			}
			if grows := pol == "lucid:waiting=0,profile=new,grow=more"; grows != (grown > 10) {
				t.Errorf("%d jobs were profiled where the partition grew", grown)
			}
		})
	}
}

func lucidPlayed(t *testing.T, pol string, seed uint64) *packers {
	t.Helper()
	spec := shared.Must(cluster.ParseShort("3x8xA100-80GB"))
	names := [3]string{}
	for i := range names {
		names[i] = spec.Nodes[i].Name
	}
	p := &packers{t: t, profile: map[int32]bool{}, since: map[cluster.JobID]cluster.Time{},
		where: map[cluster.JobID][]engine.Alloc{}, starts: map[cluster.JobID]int{}}
	if pol != "lucid:pack=always" {
		spec.Partitions = []cluster.Partition{{Name: "main", Nodes: names[:2], Default: true},
			{Name: "new", Nodes: names[2:]}}
		p.profile[2], p.limit = true, 200*time.Second
	}
	if pol == "lucid:waiting=0,profile=new,grow=more" {
		spec.Partitions = append(spec.Partitions, cluster.Partition{Name: "more", Nodes: names[1:]})
		p.shared = map[int32]bool{1: true}
	}
	if pol == "lucid:waiting=0,profile=new,limit=100s" {
		p.limit = 100 * time.Second
	}
	entries := randomEntries(rand.New(rand.NewPCG(seed, 13)), 120)
	for i := range entries {
		entries[i].Job.Model, entries[i].Job.Submit = "light", entries[i].Job.Submit/3
	}
	table := &perf.Table{Pairs: map[perf.Pair]int64{{"light", "light"}: 960_000}}
	mode := mustPolicy(t, pol).Traits().Backfill
	cfg := engine.Config{Policy: mustPolicy(t, pol), Backfill: &mode, Speeds: perf.Belief{Model: table}}
	p.e = engineOn(spec, cfg)
	w := NewWorld(spec, Prepare(&trace.Workload{Jobs: entries}, spec, Estimates{}, PerNode), Options{Model: table})
	if err := driver.Run(context.Background(), p.e, w, p); err != nil {
		t.Fatal(err)
	}
	for id, n := range p.starts { // each job independently of the others
		if n > 1+len(p.profile) {
			t.Errorf("job %d starts %d times", id, n)
		}
	}
	if len(p.starts) != len(entries) || len(p.where) > 0 {
		t.Errorf("%d of %d jobs started; %d still hold devices", len(p.starts), len(entries), len(p.where))
	}
	return p
}
