package tally

import (
	"encoding/json"
	"math/rand/v2"
	"reflect"
	"testing"
	"time"
)

// TestHistogram: quantiles are at most 1/64 too large and never too small.
func TestHistogram(t *testing.T) {
	r := rand.New(rand.NewPCG(5, 5))
	for range 2000 {
		d := time.Duration(r.Uint64N(1 << (1 + r.IntN(50))))
		var h Histogram
		h.Add(d, 3)
		if q := h.Quantile(0.5); q < d || q > d+d/64+1 {
			t.Fatalf("%d becomes %d", d, q)
		}
	}
	var h Histogram
	for i := range 1000 {
		h.Add(time.Duration(i+1)*time.Second, 1)
	}
	if q := h.Quantile(0.99); q < 990*time.Second || q > 1006*time.Second {
		t.Errorf("p99 of 1 to 1000 s: %v", q)
	}
}

// TestSince: what is counted between two readings is their difference, also over JSON.
func TestSince(t *testing.T) {
	var all Tally
	all.Answer(3*time.Millisecond, true)
	all.Dropped = 2
	data, err := json.Marshal(&all)
	if err != nil {
		t.Fatal(err)
	}
	var was Tally
	if err := json.Unmarshal(data, &was); err != nil || !reflect.DeepEqual(was, all) {
		t.Fatalf("%+v of %s, not %+v: %v", was, data, all, err)
	}
	all.Answer(80*time.Millisecond, false)
	all.Refused++
	d := all.Since(&was)
	if d.Answered != 1 || d.InTime != 0 || d.Dropped != 0 || d.Missed() != 2 || d.Latency.Total() != 1 {
		t.Errorf("%+v", d)
	}
	if q := d.Latency.Quantile(0.5); q < 80*time.Millisecond || q > 82*time.Millisecond {
		t.Errorf("median %v", q)
	}
	for _, wrong := range []string{`[[-1,2]]`, `[[1,-2]]`, `[[1000000000,1]]`, `{}`} {
		if err := json.Unmarshal([]byte(wrong), &was.Latency); err == nil {
			t.Errorf("%s was taken", wrong)
		}
	}
}
