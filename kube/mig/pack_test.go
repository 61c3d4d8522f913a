package mig

import (
	"slices"
	"testing"

	"github.com/muster-gpu/muster/cluster"
)

// Slices are put together on as few GPUs as they fit on, and never so that they
// could not exist.
func TestPack(t *testing.T) {
	m, _ := cluster.FindModel("A100-40GB")
	for _, c := range []struct {
		count map[string]int
		want  int
	}{
		{map[string]int{"1g.5gb": 7}, 1}, {map[string]int{"1g.5gb": 8}, 2}, {map[string]int{"3g.20gb": 4}, 2},
		{map[string]int{"3g.20gb": 8, "2g.10gb": 8, "1g.5gb": 16}, 8}, {map[string]int{"7g.40gb": 2, "1g.5gb": 1}, 3},
		{map[string]int{"9g.90gb": 3}, 0}, {map[string]int{"1g.5gb": -2}, 0},
	} {
		devices := pack(&m, c.count, 64)
		if len(devices) != c.want {
			t.Errorf("%v is on %d GPUs, want %d: %v", c.count, len(devices), c.want, devices)
		}
		n := cluster.Node{GPUs: len(devices), MIG: cluster.GeometryText(devices)}
		if _, _, err := n.Geometry(&m); err != nil {
			t.Errorf("%v: %v", c.count, err)
		}
		found := map[string]int{}
		for _, in := range slices.Concat(devices...) {
			found[in.Profile]++
		}
		for profile, k := range c.count {
			if c.want > 0 && found[profile] != max(0, k) {
				t.Errorf("%v: %d of %s", c.count, found[profile], profile)
			}
		}
	}
	if got := pack(&m, map[string]int{"7g.40gb": 9}, 4); len(got) != 4 {
		t.Errorf("%d GPUs of at most 4", len(got))
	}
}
