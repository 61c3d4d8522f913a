package perf

import (
	"encoding/json"
	"math"
	"strings"
	"testing"

	"github.com/muster-gpu/muster/internal/shared"
)

// For each of Gavel's job models two GPU models are measured, in an arbitrary unit, and the third
// is estimated from the other job models: the error is a third smaller than with the mean
// proportion, never larger, and independent of the unit.
func TestCompletesMeasured(t *testing.T) {
	var all map[string]map[string]map[string]json.RawMessage
	if err := json.NewDecoder(shared.Unzip(t, "traces/gavel/simulation_throughputs.json.gz")).Decode(&all); err != nil {
		t.Fatal(err)
	}
	full := &Table{Speed: map[string]map[string]int64{}}
	for _, gpu := range []string{"v100", "p100", "k80"} {
		for name, row := range all[gpu] {
			var v float64
			if strings.HasSuffix(name, ", 1)") && json.Unmarshal(row["null"], &v) == nil && v > 0 {
				if full.Speed[name] == nil {
					full.Speed[name] = map[string]int64{}
				}
				full.Speed[name][gpu] = int64(v * 1000)
			}
		}
	}
	for name, row := range full.Speed { // tables are relative to the V100
		reference := row["v100"]
		for gpu, v := range row {
			full.Speed[name][gpu] = v * Million / reference
		}
	}
	sum, bluntly := 0.0, 0.0
	for _, hidden := range []string{"v100", "p100", "k80"} {
		off, blunt, n := 0.0, 0.0, 0.0
		for name, row := range full.Speed {
			given := &Table{Speed: map[string]map[string]int64{}}
			mean, others := 0.0, 0.0
			for other, r := range full.Speed {
				if other != name {
					given.Speed[other] = r
					mean, others = mean+math.Log(float64(r[hidden])/math.Sqrt(product(r, hidden))), others+1
				}
			}
			known := map[string]int64{}
			for gpu, v := range row {
				if gpu != hidden {
					known[gpu] = 7 * v
				}
			}
			b := Belief{Model: &Table{Given: given}}
			got := b.Completes(name, known)
			if len(got) != 1 || got[hidden] == 0 {
				t.Fatalf("%s: %v", name, got)
			}
			truth := float64(7 * row[hidden])
			off += math.Abs(float64(got[hidden])/truth - 1)
			blunt += math.Abs(math.Exp(mean/others)*math.Sqrt(product(known, ""))/truth - 1)
			n++
			for gpu := range known {
				known[gpu] *= 3
			}
			if again := b.Completes(name, known); math.Abs(float64(again[hidden])/float64(got[hidden])/3-1) > 1e-4 &&
				again[hidden] < 100*Million {
				t.Errorf("%s on %s: %d, in another unit %d", name, hidden, got[hidden], again[hidden])
			}
		}
		t.Logf("%s: %.0f job models, off by %.3f, with the mean proportion %.3f", hidden, n, off/n, blunt/n)
		sum, bluntly = sum+off/n, bluntly+blunt/n
		if off > blunt {
			t.Errorf("%s: off by %.3f, with the mean proportion %.3f", hidden, off/n, blunt/n)
		}
	}
	if sum > bluntly*0.67 {
		t.Errorf("off by %.3f in all, with the mean proportion %.3f", sum, bluntly)
	}
	if got := (Belief{Model: full}).Completes("x", map[string]int64{"v100": 1, "p100": 1}); got != nil {
		t.Errorf("a table without Predict returned %v", got)
	}
}

// product is the product of two entries of a row, all except one.
func product(row map[string]int64, but string) float64 {
	v := 1.0
	for gpu, x := range row {
		if gpu != but {
			v *= float64(x)
		}
	}
	return v
}
