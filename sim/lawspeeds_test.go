package sim

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/engine"
	"github.com/muster-gpu/muster/internal/shared"
	"github.com/muster-gpu/muster/perf"
	"github.com/muster-gpu/muster/policy"
	"github.com/muster-gpu/muster/report"
	"github.com/muster-gpu/muster/trace"
)

// The same laws for elastic jobs on two GPU models with different speeds, which slow each other
// down on shared GPUs.

// speedTable knows three job models on two GPU models, at several sizes, and in pairs.
func speedTable() *perf.Table {
	return &perf.Table{
		Speed: map[string]map[string]int64{"a": {"T4-16GB": 250_000}, "b": {"T4-16GB": 500_000},
			"c": {"T4-16GB": 900_000}},
		Scale: map[string]map[int]int64{"a": {1: 300_000, 2: 550_000, 3: 800_000},
			"b": {1: 400_000, 2: 700_000, 3: 900_000}},
		Pairs: map[perf.Pair]int64{{"a", "b"}: 800_000, {"b", "a"}: 900_000, {"a", "a"}: 700_000, {"b", "b"}: 950_000,
			{"c", "c"}: 900_000},
	}
}

// speedEntries are gangs and elastic jobs of these models, spread over users and queues.
func speedEntries(r *rand.Rand, n int) []trace.Entry {
	entries := queued(r, randomEntries(r, n))
	for i := range entries {
		j := &entries[i].Job
		j.Model = []string{"a", "b", "c"}[r.IntN(3)]
		if g := j.Tasks[0].Request.GPUs; g > 1 && r.IntN(2) == 0 {
			n := min(4, g)
			j.Tasks, j.Elastic = []cluster.TaskSet{{Count: n, Request: cluster.Request{GPUs: 1}}},
				cluster.Elastic{Min: 1, Max: n}
		}
		j.Deadline = j.Submit.Add(entries[i].Run * time.Duration(1+r.IntN(9)))
	}
	return entries
}

// sameEnds names the first job whose end time, outcome or number of stops differs by more than
// accumulated rounding; "": none.
func sameEnds(a, b []report.Record, k int, to time.Duration) string {
	for i := range a {
		x, y := &a[i], &b[i]
		if d := x.End.Sub(y.End / cluster.Time(k)); x.Outcome != y.Outcome || x.Preemptions != y.Preemptions ||
			d.Abs() > to {
			return fmt.Sprintf("job %d ends at %v (%v, preempted %d), and at %v (%v, %d)", i, x.End, x.Outcome,
				x.Preemptions, y.End/cluster.Time(k), y.Outcome, y.Preemptions)
		}
	}
	return ""
}

// TestScaleOfSpeeds (U9): if all times are doubled or tripled, everything takes that much longer,
// to the nanoseconds to which work at a speed is rounded.
func TestScaleOfSpeeds(t *testing.T) {
	table, grown := speedTable(), 0
	rounded := map[string]time.Duration{ // looked up, never iterated: jobs leave a level at whole milliseconds
		"las": 100 * time.Millisecond, "tiresias-l": 100 * time.Millisecond,
	}
	for _, pol := range policy.Names() {
		switch pol {
		case "tiresias-g", "gittins": // as in TestScale
			continue
		case "e-las": // reads levels at whole minutes, whatever the scale
			continue
		case "elasticflow", "allox": // ties hold only up to rounding, so their order may change
			continue
		}
		for seed := range shared.Soak[uint64](1, 6) {
			var want []report.Record
			for k := 1; k <= 3; k++ {
				entries := longer(speedEntries(rand.New(rand.NewPCG(seed, 9)), 80), k)
				cfg := engine.Config{Policy: scaled(t, pol, k), Speeds: perf.Belief{Model: table}}
				got := lawUntil(t, "1x8xV100-16GB+1x8xT4-16GB", cfg, entries, Options{Model: table})
				if k == 1 {
					want = got
				} else if why := sameEnds(want, got, k, max(time.Microsecond, rounded[pol])); why != "" {
					t.Fatalf("%s seed %d, times %d: %s", pol, seed, k, why)
				}
				for i := range got {
					if n := entries[i].Job.Elastic.Max; n > 0 &&
						got[i].Held != int64(entries[i].Job.Tasks[0].Count)*1000*int64(got[i].Ran/time.Millisecond) {
						grown++
					}
				}
			}
		}
	}
	if grown < shared.Soak(500, 1000) {
		t.Errorf("%d elastic jobs had another size than requested", grown)
	}
}

// TestPermutationOfSpeeds (U8): jobs of one instant are renumbered; no two are alike in what the
// policy uses, so nothing changes for any of them. On two nodes of two GPU models this holds for
// policies that order jobs; under plans of sizes the job numbers decide which of several
// simultaneous starts is placed first. sched2 takes elastic jobs in order of arrival.
func TestPermutationOfSpeeds(t *testing.T) {
	sizes := []string{"afs", "hesrpt", "optimus:round=0s", "lyra", "themis", "elasticflow", "chronus", "hypersched"}
	tried := 0
	for _, pol := range policy.Names() {
		if pol == "qssf" {
			pol = "qssf:alpha=0" // as in TestPermutation
		} else if slices.Contains(equals, pol) || pol == "sjf-gpu" || pol == "sched2" {
			continue
		}
		pol = roundless(pol)
		for _, size := range []string{"1x16xT4-16GB", "1x8xV100-16GB+1x8xT4-16GB"} {
			if size != "1x16xT4-16GB" && slices.Contains(sizes, pol) {
				continue
			}
			tried++
			for seed := range shared.Soak[uint64](1, 6) {
				if why := permuted(t, pol, size, seed); why != "" {
					t.Fatalf("%s on %s, seed %d: %s", pol, size, seed, why)
				}
			}
		}
	}
	if tried < 35 {
		t.Errorf("%d policies and clusters", tried)
	}
}

// permuted renumbers the jobs of a history twice and says what changes; "": nothing.
func permuted(t *testing.T, pol, size string, seed uint64) string {
	t.Helper()
	r, table := rand.New(rand.NewPCG(seed, 8)), speedTable()
	entries := speedEntries(r, 60)
	for i := range entries { // batches of jobs at one instant
		j := &entries[i].Job
		j.Submit -= j.Submit % cluster.Time(4*time.Minute)
		j.Priority, j.Deadline = int64(r.IntN(1<<30)), j.Submit+cluster.Time(entries[i].Run)*3
	}
	want := map[time.Duration]string{} // by run time, which is unique
	for n := range 3 {
		mixed := slices.Clone(entries)
		for i := range mixed { // only jobs of one instant are swapped
			if j := i + r.IntN(len(mixed)-i); mixed[i].Job.Submit == mixed[j].Job.Submit {
				mixed[i], mixed[j] = mixed[j], mixed[i]
			}
		}
		for i := range mixed {
			mixed[i].Job.ID = cluster.JobID(i)
		}
		cfg := engine.Config{Policy: mustPolicy(t, pol), Speeds: perf.Belief{Model: table}}
		for i, s := range ends(t, lawUntil(t, size, cfg, mixed, Options{Model: table}), 1) {
			if n == 0 {
				want[mixed[i].Run] = s
			} else if want[mixed[i].Run] != s {
				return fmt.Sprintf("a job of %v ends %s when numbered %d, else %s", mixed[i].Run, s, i,
					want[mixed[i].Run])
			}
		}
	}
	return ""
}
