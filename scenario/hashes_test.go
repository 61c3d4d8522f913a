package scenario

import (
	"cmp"
	"context"
	"flag"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/engine"
	"github.com/muster-gpu/muster/internal/shared"
	"github.com/muster-gpu/muster/place"
	"github.com/muster-gpu/muster/policy"
	"github.com/muster-gpu/muster/sim"
	"github.com/muster-gpu/muster/trace"
)

// Run `go test ./scenario -run TestHashes -hashes -rewrite` to accept decisions that differ from
// testdata/hashes.txt.
var printHashes = flag.Bool("hashes", false, "replay the recorded traces too, and print every decision hash")

const hashFile = "testdata/hashes.txt"

const (
	openbPods  = "openb-v2023/openb_pod_list_default.csv"
	openbNodes = "openb-v2023/openb_node_list_gpu_node.csv"
)

// recordedRun is a recorded trace on a cluster. Together the worlds cover failures, moves,
// reservations and preemption rules under every policy.
type recordedRun struct {
	name, path, cluster string
	trace               trace.Options // file names are relative to the traces
	policies, placers   []string      // none: all policies, best-fit
	backfill            string
	world               sim.Options
	config              engine.Config
}

var recordedRuns = []recordedRun{
	{
		name: "philly-whole", path: "philly/philly_pollux.csv", cluster: "60x8xV100-32GB",
		policies: []string{"fifo", "las", "multifactor"},
	},
	{
		name: "philly", path: "philly/philly_pollux.csv", cluster: "6x8xV100-32GB", trace: trace.Options{Limit: 600},
		world: sim.Options{Startup: 30 * time.Second, NodeMTBF: 400 * time.Hour, Seed: 7},
	},
	{
		name: "openb", path: openbPods, cluster: "8x8xA100-80GB", trace: trace.Options{Limit: 600, Nodes: openbNodes},
		backfill: "easy", config: engine.Config{Defrag: &engine.Defrag{Auto: true}},
	},
	{
		name: "openb-placers", path: openbPods, cluster: "12x8xA100-80GB+12x4xT4",
		trace: trace.Options{Limit: 2000, Nodes: openbNodes}, policies: []string{"fifo"}, placers: placerNames(),
	},
	{
		name: "pollux", path: "pollux/workloads/workload-1.csv", cluster: "8x4xT4",
		trace: trace.Options{Profiles: "pollux/traces"}, world: sim.Options{Startup: 30 * time.Second},
	},
	{
		name: "gavel", path: "gavel/continuous_multi_seed0.csv.gz", cluster: "3x4xV100-16GB+3x4xP100-16GB+3x4xT4",
		trace:    trace.Options{Limit: 120, Throughputs: "gavel/simulation_throughputs.json.gz"},
		backfill: "conservative", config: engine.Config{MinRuntime: time.Hour},
	},
	{
		name: "muri", path: "muri/trace1.csv", cluster: "4x8xV100-32GB", trace: trace.Options{Limit: 200},
		placers: []string{"topology"},
		config:  engine.Config{Starvation: 24 * time.Hour, HoldAfter: engine.DefaultHoldAfter},
	},
	{
		name: "itp", path: "elasticflow-itp/deadline/cluster10.csv", cluster: "4x8xA100-80GB",
		trace: trace.Options{Limit: 200},
	},
	{
		name: "chronus", path: "chronus/trace_job_Philly_MIX1.csv.gz", cluster: "6x8xV100-32GB",
		trace: trace.Options{Limit: 400}, backfill: "easy", world: sim.Options{GPUMTBF: 2000 * time.Hour, Seed: 3},
	},
	{name: "tiresias", path: "tiresias/60_job.csv", cluster: "4x4xP100-16GB"},
	{
		name: "rubick", path: "profiles-misc/Rubick_workload-mt.csv", cluster: "4x8xA100-80GB",
		trace: trace.Options{Limit: 200},
	},
}

func placerNames() (names []string) {
	for _, p := range place.List() {
		names = append(names, p.Name)
	}
	return names
}

// replays runs the trace under each policy and placer and returns the named hashes.
func (r *recordedRun) replays(t *testing.T) (lines []hashLine) {
	opt := r.trace
	for _, file := range []*string{&opt.Nodes, &opt.Throughputs, &opt.Profiles} {
		if *file != "" {
			*file = shared.Path(t, "traces/"+*file)
		}
	}
	wl, err := trace.Open(shared.Path(t, "traces/"+r.path), opt)
	if err != nil {
		t.Fatal(err)
	}
	spec, err := cluster.ParseShort(r.cluster)
	if err != nil {
		t.Fatal(err)
	}
	sim.AutoQueues(spec, wl)
	policies, placers := r.policies, r.placers
	if policies == nil {
		policies = policy.Names()
	}
	if placers == nil {
		placers = []string{"best-fit"}
	}
	var setups []sim.Setup
	for _, pol := range policies {
		for _, placer := range placers {
			s := sim.Setup{Policy: pol, Placer: placer, World: r.world, Config: r.config}
			if r.backfill != "" {
				if err := s.SetBackfill(r.backfill); err != nil {
					t.Fatal(err)
				}
			}
			setups = append(setups, s)
		}
	}
	entries := sim.Prepare(wl, spec, sim.Estimates{}, sim.PerNode)
	for _, o := range sim.RunAll(context.Background(), spec, entries, setups, nil) {
		if o.Err != nil {
			t.Fatalf("%s: %v", o.Label, o.Err)
		}
		lines = append(lines, hashLine{o.Setup.Policy + " " + o.Setup.Placer, fmt.Sprintf("%016x", o.Hash)})
	}
	return lines
}

// hashLine is a replay and the hash of all its decisions.
type hashLine struct{ name, hash string }

// hashesOf runs a scenario and returns the hash of each of its replays.
func hashesOf(t *testing.T, path string) (lines []hashLine) {
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	f, err := parse(path, text)
	if err != nil {
		t.Fatal(err)
	}
	for i := range f.cmds {
		r := f.cmds[i].run
		if r == nil {
			continue
		}
		for _, v := range r.variants {
			p, err := r.play(context.Background(), v)
			if err != nil {
				t.Fatalf("%s:%d: %s: %v", path, r.line, v.label, err)
			}
			name := fmt.Sprintf("%s:%d %s", filepath.Base(path), r.line, strings.ReplaceAll(v.label, " ", "_"))
			lines = append(lines, hashLine{name, fmt.Sprintf("%016x", p.hash)})
		}
	}
	return lines
}

// listedHashes is the stored list, by scenarios and by trace.
func listedHashes(t *testing.T) map[string][]hashLine {
	text, err := os.ReadFile(hashFile)
	if err != nil {
		t.Fatal(err)
	}
	list := map[string][]hashLine{}
	for line := range strings.Lines(string(text)) {
		of, rest, _ := strings.Cut(strings.TrimSpace(line), " ")
		if at := strings.LastIndexByte(rest, ' '); at > 0 {
			list[of] = append(list[of], hashLine{rest[:at], rest[at+1:]})
		}
	}
	return list
}

// TestHashes compares every decision hash with the list: a change of the engine that is meant to
// preserve decisions changes none of them. Without -hashes only those of the scenarios are
// compared.
func TestHashes(t *testing.T) {
	list := listedHashes(t)
	groups := []string{"scenarios"}
	t.Run(groups[0], func(t *testing.T) {
		var lines []hashLine
		for _, path := range scenarios(t) {
			lines = append(lines, hashesOf(t, path)...)
		}
		sameHashes(t, list, groups[0], lines)
	})
	for i := 0; *printHashes && i < len(recordedRuns); i++ {
		r := &recordedRuns[i]
		groups = append(groups, r.name)
		t.Run(r.name, func(t *testing.T) { sameHashes(t, list, r.name, r.replays(t)) })
	}
	if !*rewrite || !*printHashes {
		return
	}
	var b strings.Builder
	for _, of := range groups {
		for _, l := range list[of] {
			fmt.Fprintf(&b, "%s %s %s\n", of, l.name, l.hash)
		}
	}
	if err := os.WriteFile(hashFile, []byte(b.String()), 0o644); err != nil {
		t.Fatal(err)
	}
}

// sameHashes prints hashes and compares them with those in the list, which it replaces with
// -rewrite.
func sameHashes(t *testing.T, list map[string][]hashLine, of string, lines []hashLine) {
	want := map[string]string{}
	for _, l := range list[of] {
		want[l.name] = l.hash
	}
	for _, l := range lines {
		if *printHashes {
			fmt.Println(of, l.name, l.hash)
		}
		if w := cmp.Or(want[l.name], "none"); w != l.hash && !*rewrite {
			t.Errorf("%s %s %s: the list has %s", of, l.name, l.hash, w)
		}
		delete(want, l.name)
	}
	for _, name := range slices.Sorted(maps.Keys(want)) {
		t.Errorf("%s %s: in the list, but not replayed", of, name)
	}
	list[of] = lines
}
