package sim

import (
	"testing"

	"github.com/muster-gpu/muster/cluster"
)

// Weights stay in a node's memory until others need the room; those used longest ago go first, and other nodes do not
// have them. What is larger than the room takes it all and does not stay.
func TestResidency(t *testing.T) {
	r := make(residency, 2)
	for i, c := range []struct {
		node, variant int
		had           bool
	}{{0, 0, false}, {0, 0, true}, {1, 0, false}, {0, 1, false}, {0, 0, true}, {0, 2, false}, {0, 1, false},
		{0, 0, false}, {0, 1, true}, {0, 3, false}, {0, 3, false}, {0, 1, false}} {
		size := map[int]int64{0: 40, 1: 40, 2: 30, 3: 200}[c.variant]
		if had := r.use(c.node, weights{0, c.variant, cluster.MiB(size)}, 100); had != c.had {
			t.Errorf("%d: variant %d on node %d was there: %t", i, c.variant, c.node, had)
		}
	}
	for range 3 {
		r.use(1, weights{1, 0, 1 << 40}, 0)
	}
	if !r.use(1, weights{0, 0, 40}, 0) {
		t.Error("without a bound something went")
	}
}
