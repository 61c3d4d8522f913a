package place

import (
	"encoding/json"
	"math"
	"math/big"
	"os"
	"strings"
	"testing"

	"github.com/muster-gpu/muster/engine/placement"
)

// TestCompatibleVectors: of candidates that are rated as in the vectors the same is taken, by the mean of their links
// and by the worst, and one with a loop is not.
func TestCompatibleVectors(t *testing.T) {
	data, err := os.ReadFile("../network/traffic/testdata/cassini.json")
	if err != nil {
		t.Fatal(err)
	}
	var v struct {
		Placement []struct {
			Name       string
			Candidates []json.RawMessage
			Mean, Min  []json.RawMessage
			ByMean     int `json:"best_by_mean"`
			ByWorst    int `json:"best_by_min"`
		}
	}
	if err := json.Unmarshal(data, &v); err != nil {
		t.Fatal(err)
	}
	number := func(text json.RawMessage) float64 {
		r, ok := new(big.Rat).SetString(strings.Trim(string(text), `"`))
		if !ok {
			t.Fatalf("%s", text)
		}
		f, _ := r.Float64()
		return f
	}
	for _, c := range v.Placement {
		for _, by := range []struct {
			knob   string
			want   int
			scores []json.RawMessage
		}{{"by=mean", c.ByMean, c.Mean}, {"by=worst", c.ByWorst, c.Min}, {"by=total", c.ByMean, nil}} {
			placer, err := newSharing(by.knob)
			if err != nil {
				t.Fatal(err)
			}
			p := placer.(sharing)
			at, best := -1, rank{}
			for i, text := range c.Candidates {
				var rated placement.Compatibility
				var links []json.RawMessage
				rated.Loop = json.Unmarshal(text, &links) != nil
				for _, score := range links {
					rated.Links = append(rated.Links, number(score))
				}
				r := p.rank(&rated)
				if at < 0 || r.above(&best) {
					at, best = i, r
				}
				if by.scores != nil && !rated.Loop && r.lacks != int64(math.Round(1e6*(1-number(by.scores[i])))) {
					t.Errorf("%s, %s: candidate %d lacks %d, its score is %s", c.Name, by.knob, i, r.lacks,
						by.scores[i])
				}
			}
			if at != by.want {
				t.Errorf("%s, %s: candidate %d is taken, want %d", c.Name, by.knob, at, by.want)
			}
		}
	}
	if len(v.Placement) != 2 {
		t.Errorf("%d vectors", len(v.Placement))
	}
	for knobs, want := range map[string]string{"by=least": "total, mean, worst", "of=mean": "by"} {
		if _, err := New("compatible:" + knobs); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", knobs, err)
		}
	}
	loop, bad := rank{loop: true}, rank{lacks: 3e6}
	if loop.above(&bad) || !bad.above(&loop) {
		t.Error("a loop is better than a bad link")
	}
}
