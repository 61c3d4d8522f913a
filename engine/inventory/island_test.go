package inventory

import (
	"math/bits"
	"math/rand/v2"
	"testing"

	"github.com/muster-gpu/muster/cluster"
)

// TestPickWhole: devices of one NVLink island if possible, the one with the fewest that suffice,
// lowest numbers first.
func TestPickWhole(t *testing.T) {
	for _, c := range []struct {
		free          uint64
		gpus, islands int
		k             int
		want          uint64
	}{
		{0b11111111, 8, 1, 3, 0b111}, {0b11110000, 8, 0, 2, 0b110000},
		{0b11111111, 8, 2, 4, 0b1111}, {0b11110110, 8, 2, 2, 0b110}, {0b11110110, 8, 2, 3, 0b1110000},
		{0b10110001, 8, 2, 3, 0b10110000}, {0b10010011, 8, 2, 4, 0b10010011}, {0b11011011, 8, 2, 5, 0b1011011},
		{0b11111100, 8, 4, 2, 0b1100}, {0b111110, 6, 3, 2, 0b1100}, {0b1111111, 7, 2, 3, 0b1110000},
		{0b1110111, 7, 2, 3, 0b111},
		{1 << 63, 64, 1, 1, 1 << 63}, {^uint64(0), 64, 2, 32, 1<<32 - 1},
	} {
		n := &Node{free: c.free, spec: cluster.Node{GPUs: c.gpus, Islands: c.islands}}
		if got := n.PickWhole(c.k, AnyDevice); got != c.want {
			t.Errorf("%d of %08b in %d islands: %08b, want %08b", c.k, c.free, c.islands, got, c.want)
		}
	}
	r := rand.New(rand.NewPCG(1, 7))
	for range 20_000 {
		n := &Node{spec: cluster.Node{GPUs: 1 + r.IntN(16), Islands: r.IntN(5)}}
		n.free = r.Uint64() & (1<<n.spec.GPUs - 1)
		if n.free == 0 {
			continue
		}
		k := 1 + r.IntN(bits.OnesCount64(n.free))
		got := n.PickWhole(k, AnyDevice)
		if got&^n.free != 0 || bits.OnesCount64(got) != k {
			t.Fatalf("%d of %b: %b", k, n.free, got)
		}
		per := n.spec.GPUs
		if n.spec.Islands > 1 {
			per = (n.spec.GPUs + n.spec.Islands - 1) / n.spec.Islands
		}
		least := 99 // devices of the tightest island that suffices
		var in uint64
		for at := 0; at < n.spec.GPUs; at += per {
			m := n.free & ((1<<per - 1) << at)
			if c := bits.OnesCount64(m); c >= k && c < least {
				least, in = c, m
			}
		}
		if least < 99 && got&^in != 0 {
			t.Fatalf("%d of %b in islands of %d: %b, one island has %b", k, n.free, per, got, in)
		}
	}
}
