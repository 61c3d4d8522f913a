package perf

import (
	"encoding/json"
	"math"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/muster-gpu/muster/internal/shared"
)

// measured is Gavel's pairs of jobs of one GPU on a GPU model.
func measured(t *testing.T, gpu string) *Table {
	t.Helper()
	var all map[string]map[string]map[string]json.RawMessage
	if err := json.NewDecoder(shared.Unzip(t, "traces/gavel/simulation_throughputs.json.gz")).Decode(&all); err != nil {
		t.Fatal(err)
	}
	table := &Table{Pairs: map[Pair]int64{}}
	for a, row := range all[gpu] {
		if !strings.HasSuffix(a, ", 1)") {
			continue
		}
		var alone float64
		if err := json.Unmarshal(row["null"], &alone); err != nil {
			t.Fatal(err)
		}
		for b, text := range row {
			var both [2]float64
			if b != "null" && json.Unmarshal(text, &both) == nil && alone > 0 {
				table.Pairs[Pair{a, b}] = ppm(both[0]/alone, 1)
			}
		}
	}
	return table
}

// For jobs with three measured pairs, among 25 fully measured ones, the estimates' error is less
// than half of that of the mean over all pairs.
func TestPredictMeasured(t *testing.T) {
	for _, gpu := range []string{"v100", "p100", "k80"} {
		full := measured(t, gpu)
		var names []string
		mean := 0.0
		for p, v := range full.Pairs {
			names = append(names, p[0])
			mean += float64(v) / float64(len(full.Pairs))
		}
		names = sorted(names)
		r := rand.New(rand.NewPCG(1, 1))
		var off, blunt float64
		hidden := 0
		for _, x := range names {
			known := map[string]bool{}
			for _, i := range r.Perm(len(names)) {
				if names[i] != x && len(known) < 3 {
					known[names[i]] = true
				}
			}
			part := &Table{Pairs: map[Pair]int64{}}
			for p, v := range full.Pairs {
				if p[0] != x && p[1] != x || known[p[0]] || known[p[1]] {
					part.Pairs[p] = v
				}
			}
			got, _, e := part.Predict()
			if e.Known != len(part.Pairs) || e.Filled != len(full.Pairs)-len(part.Pairs) ||
				len(got.Pairs) != len(full.Pairs) {
				t.Fatalf("%s: %+v with %d pairs known of %d", x, e, len(part.Pairs), len(full.Pairs))
			}
			for p, v := range full.Pairs {
				if _, ok := part.Pairs[p]; !ok && p[0] != p[1] {
					off += math.Abs(float64(got.Pairs[p] - v))
					blunt += math.Abs(mean - float64(v))
					hidden++
				}
			}
		}
		_, _, e := full.Predict()
		t.Logf("%s: off by %.3f, the mean by %.3f; hiding one of all pairs: %+v", gpu, off/float64(hidden)/Million,
			blunt/float64(hidden)/Million, e)
		if hidden != 2*22*len(names) || off > blunt/2 {
			t.Errorf("%s: %d pairs, off by %.3f, the mean by %.3f", gpu, hidden, off/float64(hidden)/Million,
				blunt/float64(hidden)/Million)
		}
	}
}

// Unmeasured entries are as for the most similar jobs; listed entries stay, and jobs of which
// nothing is known get no estimate.
func TestPredict(t *testing.T) {
	table := &Table{
		Speed: map[string]map[string]int64{
			"a": {"V100": Million, "K80": 250_000, "T4": 500_000, "T4/x": 7},
			"b": {"V100": Million, "K80": 250_000, "T4": 500_000},
			"c": {"V100": Million, "K80": 900_000, "T4": 950_000}, "new": {"V100": Million, "K80": 250_000},
			"*": {"V100": Million},
		},
		Pairs: map[Pair]int64{
			{"a", "a"}: 500_000, {"a", "b"}: 500_000, {"a", "c"}: 900_000, {"b", "a"}: 500_000, {"b", "b"}: 500_000,
			{"b", "c"}: 900_000,
			{"c", "a"}: 800_000, {"c", "b"}: 800_000, {"c", "c"}: 950_000, {"new", "c"}: 900_000, {"c", "new"}: 800_000,
			{"*", "*"}: 123_456,
		},
	}
	got, speeds, pairs := table.Predict()
	near := func(v, want int64) bool { return v > want*97/100 && v < want*103/100 }
	if v := got.Speed["new"]["T4"]; !near(v, 500_000) || speeds.Filled != 1 || len(table.Speed["new"]) != 2 ||
		got.Speed["a"]["T4/x"] != 7 {
		t.Errorf("speed of new on a T4: %d, %+v", v, speeds)
	}
	for p, want := range map[Pair]int64{{"new", "a"}: 500_000, {"a", "new"}: 500_000, {"new", "b"}: 500_000,
		{"*", "*"}: 123_456, {"c", "new"}: 800_000} {
		if v := got.Pairs[p]; !near(v, want) {
			t.Errorf("%v: %d, want about %d", p, v, want)
		}
	}
	if pairs.Filled != 5 || len(table.Pairs) != 12 || pairs.Mean > 0.1 {
		t.Errorf("pairs: %+v", pairs)
	}
	if err := got.Check(); err != nil {
		t.Error(err)
	}
	empty, speeds, pairs := (&Table{Pairs: map[Pair]int64{{"a", "b"}: 1}}).Predict()
	if len(empty.Pairs) != 1 || speeds.Filled+pairs.Filled+pairs.Known != 0 {
		t.Errorf("from one pair: %+v %+v %v", speeds, pairs, empty.Pairs)
	}
}
