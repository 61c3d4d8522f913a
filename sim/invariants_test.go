package sim

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/driver"
	"github.com/muster-gpu/muster/engine"
	"github.com/muster-gpu/muster/internal/shared"
	"github.com/muster-gpu/muster/perf"
	"github.com/muster-gpu/muster/policy"
	"github.com/muster-gpu/muster/trace"
)

// checker checks every invariant of the engine after every step.
type checker struct {
	e     *engine.Engine
	t     *testing.T
	steps int
	joins int // starts as a guest on another job's GPUs
}

func (c *checker) Record(b *engine.Batch, d *engine.Decision) error {
	c.steps++
	for i := range d.Actions {
		if a := &d.Actions[i]; a.Type == engine.Start && len(a.Allocs) > 0 && a.Allocs[0].Beside {
			c.joins++
		}
	}
	if err := c.e.CheckInvariants(); err != nil {
		c.t.Fatalf("step %d at %v: %v\nevents %+v\nactions %+v", c.steps, b.Now, err, b.Events, d.Actions)
	}
	return nil
}

func checked(t *testing.T, wl *trace.Workload, size, pol string, mode engine.Backfill, opt Options) *checker {
	t.Helper()
	spec := shared.Must(cluster.ParseShort(size))
	AutoQueues(spec, wl)
	cfg := engine.Config{Policy: mustPolicy(t, pol), Backfill: &mode}
	if opt.Model != nil {
		cfg.Speeds = perf.Belief{Model: opt.Model}
	}
	e := engineOn(spec, cfg)
	w := NewWorld(spec, Prepare(wl, spec, Estimates{From: Noisy, Sigma: 0.5, Seed: 3}, PerNode), opt)
	c := &checker{e: e, t: t}
	if err := driver.Run(context.Background(), e, w, c); err != nil {
		t.Fatal(err)
	}
	return c
}

// TestInvariants replays an overloaded, failing cluster under every policy and
// backfill mode with every invariant checked after every step.
func TestInvariants(t *testing.T) {
	s := shared.Must(trace.ParseSynth(fmt.Sprintf("preset=small-team,jobs=%d,gpus=16,load=1.4,seed=5",
		shared.Soak(45, 100))))
	wl := shared.Must(trace.Synth(s))
	for i, pol := range policy.Names() {
		for mode := engine.Strict; mode <= engine.Conservative; mode++ {
			if shared.Soak(i%4 != int(mode)%4, false) {
				continue
			}
			t.Run(pol+"/"+mode.String(), func(t *testing.T) {
				checked(t, wl, "2x8xA100-80GB", pol, mode,
					Options{NodeMTBF: 5 * 24 * time.Hour, Seed: 7, Startup: time.Minute})
			})
		}
	}
}

// TestInvariantsOnMuri does the same on recorded jobs with a deep backlog.
func TestInvariantsOnMuri(t *testing.T) {
	wl := shared.Must(trace.Open(shared.Path(t, "traces/muri/trace1.csv"), trace.Options{Limit: shared.Soak(110, 250)}))
	for _, pol := range []string{"las", "srtf"} {
		t.Run(pol, func(t *testing.T) { checked(t, wl, "4x8xV100-32GB", pol, engine.Skip, Options{}) })
	}
}

// joining replays jobs of some models, of which at least some must start beside others, while nodes fail.
func joining(t *testing.T, pol, size string, table *perf.Table, models []string, draw uint64, least int,
	change func(i int, j *cluster.Job)) {
	t.Helper()
	joins, seeds, jobs := 0, shared.Soak[uint64](1, 2), shared.Soak(70, 150)
	for seed := range seeds {
		r := rand.New(rand.NewPCG(seed, draw))
		entries := randomEntries(r, jobs)
		for i := range entries {
			j := &entries[i].Job
			j.Model, j.Submit, j.Checkpoint.None = models[r.IntN(len(models))], j.Submit/4, r.IntN(8) == 0
			change(i, j)
			if r.IntN(6) == 0 {
				j.Tier = cluster.BestEffort
			}
		}
		joins += checked(t, &trace.Workload{Jobs: entries}, size, pol, engine.Skip, Options{NodeMTBF: 6 * time.Hour,
			Repair: 10 * time.Minute, Seed: seed, Startup: 20 * time.Second, Model: table}).joins
	}
	if joins < least*int(seeds)*jobs/300 {
		t.Errorf("%d starts beside others: the test tests too little", joins)
	}
}

// TestInvariantsOfGroups does the same with jobs that interleave, so that groups are formed,
// dissolved and moved while nodes fail.
func TestInvariantsOfGroups(t *testing.T) {
	table := &perf.Table{
		Stages: map[string][]int64{"load": {9, 1, 0, 0}, "prepare": {1, 8, 2, 0}, "train": {0, 1, 9, 1},
			"send": {0, 0, 3, 7}}}
	models := []string{"load", "prepare", "train", "send", "unknown"}
	for pol, least := range map[string]int{"muri:round=1m": 50, "muri:order=s,round=30s,keep=0": 50,
		"muri:round=1m,group=2": 50, "muri:order=s,group=3": 50, "antman:throttle=true,eps=0.2": 10} {
		t.Run(pol, func(t *testing.T) {
			joining(t, pol, "2x8xA100-80GB", table, models, 11, least, func(int, *cluster.Job) {})
		})
	}
}

// TestInvariantsOfPairs does the same with jobs that share GPUs in pairs under gavel.
func TestInvariantsOfPairs(t *testing.T) {
	table := &perf.Table{Speed: map[string]map[string]int64{"old": {"T4-16GB": 300_000}},
		Pairs: map[perf.Pair]int64{{"old", "*"}: 700_000, {"*", "old"}: 600_000, {"light", "light"}: 950_000,
			{"large", "large"}: 900_000}}
	models := []string{"old", "light", "large", "unknown"}
	for _, pol := range []string{"gavel:space_sharing=true,round=1m,reset=5m",
		"gavel:space_sharing=true,round=1m,solve=resets,reset=4m",
		"gavel:space_sharing=true,objective=ftf,round=2m",
		"gavel:space_sharing=true,objective=makespan,round=2m,heterogeneity=false",
		"gavel:space_sharing=true,objective=fifo,round=1m", "gavel:space_sharing=true,objective=throughput,round=1m",
		"gavel:space_sharing=true,objective=cost,prices=A100-80GB:3,round=1m",
		"gavel:space_sharing=true,objective=waterfill,round=2m",
		"gavel:space_sharing=true,objective=hierarchical,entities=user,round=2m",
		"gavel:space_sharing=true,objective=hierarchical,entities=user,inside=fifo,round=2m"} {
		t.Run(pol, func(t *testing.T) {
			least := 50
			if strings.Contains(pol, "fifo") { // or all jobs wait behind the first that finds no partner
				least = 3
			}
			joining(t, pol, "2x8xA100-80GB+2x4xT4-16GB", table, models, 12, least, func(i int, j *cluster.Job) {
				j.User = string('a' + rune(i%8))
				if j.Model == "large" && j.GPUs() > 0 && j.Tasks[0].Request.Share == 0 {
					j.Tasks[0].Request.Memory = 9 << 10
				}
			})
		})
	}
}
