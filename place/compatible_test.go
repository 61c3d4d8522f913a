package place

import (
	"encoding/json"
	"math/big"
	"os"
	"testing"

	"github.com/muster-gpu/muster/engine/placement"
)

// TestCompatibleVectors: of candidates that are rated as in the vectors the same is taken as by the mean of their
// links, and one with a loop is not.
func TestCompatibleVectors(t *testing.T) {
	data, err := os.ReadFile("../network/traffic/testdata/cassini.json")
	if err != nil {
		t.Fatal(err)
	}
	var v struct {
		Placement []struct {
			Name       string
			Candidates []json.RawMessage
			Best       int `json:"best_by_mean"`
		}
	}
	if err := json.Unmarshal(data, &v); err != nil {
		t.Fatal(err)
	}
	for _, c := range v.Placement {
		at, best := -1, rank{}
		for i, text := range c.Candidates {
			var rated placement.Compatibility
			var links []json.RawMessage
			if json.Unmarshal(text, &links) != nil {
				rated.Loop = true
			}
			for _, score := range links {
				var s string
				if json.Unmarshal(score, &s) != nil {
					s = string(score)
				}
				r, ok := new(big.Rat).SetString(s)
				if !ok {
					t.Fatalf("%s: %s", c.Name, score)
				}
				f, _ := r.Float64()
				rated.Links = append(rated.Links, f)
			}
			if r := rankOf(&rated); at < 0 || r.above(&best) {
				at, best = i, r
			}
		}
		if at != c.Best {
			t.Errorf("%s: candidate %d is taken, want %d", c.Name, at, c.Best)
		}
	}
	if len(v.Placement) != 2 {
		t.Errorf("%d vectors", len(v.Placement))
	}
	loop, bad := rank{loop: true}, rank{lacks: 3e6}
	if loop.above(&bad) || !bad.above(&loop) {
		t.Error("a loop is better than a bad link")
	}
}
