package perf

import (
	"bufio"
	"encoding/json"
	"math"
	"os"
	"testing"
)

// What jobs in halves of an H100 lost to each other when they took turns, as scripts/bench-gpu.py recorded it, is what
// the rule for turns says, within a sixth. Of the light job it is known that it computes for 8 multiplications of
// matrices every 33 ms, so how busy it keeps the GPU follows from how many of them the GPU does alone.
func TestRecordedTurns(t *testing.T) {
	f, err := os.Open("testdata/h100.jsonl")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = f.Close() }()
	type measured struct {
		Shares, Kind, Beside string
		Alone, Kept          float64
	}
	alone, pairs := map[string]float64{}, []measured{}
	for s := bufio.NewScanner(f); s.Scan(); {
		var m measured
		if err := json.Unmarshal(s.Bytes(), &m); err != nil {
			t.Fatal(err)
		}
		if m.Alone > 0 {
			alone[m.Kind] = m.Alone
		}
		if m.Shares == "time-slicing" && m.Kept > 0 && m.Kind != "small" && m.Beside != "small" {
			pairs = append(pairs, m)
		}
	}
	b := Belief{Model: &Table{Slicing: &TimeSlicing{Switch: 80_000, Duty: map[string]int64{"compute": Million,
		"memory": Million, "light": int64(8 * alone["light"] / alone["compute"] * Million)}}}}
	sum := 0.0
	for _, m := range pairs {
		v, ok := b.Turns(m.Kind, []string{m.Beside})
		off := float64(v)/Million - m.Kept
		t.Logf("%s beside %s: %.2f, predicted %.2f", m.Kind, m.Beside, m.Kept, float64(v)/Million)
		if sum += math.Abs(off); !ok || math.Abs(off) > 1.0/6 {
			t.Error("that is too far off")
		}
	}
	if len(pairs) != 6 || sum/float64(len(pairs)) > 0.05 {
		t.Errorf("%d measurements, off by %.2f in the mean", len(pairs), sum/float64(len(pairs)))
	}
}
