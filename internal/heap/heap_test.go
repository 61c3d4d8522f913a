package heap

import (
	"math/rand/v2"
	"slices"
	"testing"
)

type num int

func (a *num) Before(b *num) bool { return *a < *b }

// Compared with a naive twin: a sorted slice.
func TestHeap(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	var h, twin []num
	for range 20_000 {
		if rng.IntN(5) < 3 || len(twin) == 0 {
			v := num(rng.IntN(1000))
			Push(&h, v)
			i, _ := slices.BinarySearch(twin, v)
			twin = slices.Insert(twin, i, v)
			continue
		}
		if got := Pop(&h); got != twin[0] {
			t.Fatalf("popped %d, want %d", got, twin[0])
		}
		twin = twin[1:]
	}
	if len(h) != len(twin) {
		t.Errorf("%d left, want %d", len(h), len(twin))
	}
}

// Elements of Init come out in order.
func TestInit(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 4))
	for n := range 100 {
		h := make([]num, n)
		for i := range h {
			h[i] = num(rng.IntN(50))
		}
		twin := slices.Clone(h)
		slices.Sort(twin)
		Init(h)
		for i := range twin {
			if got := Pop(&h); got != twin[i] {
				t.Fatalf("popped %d, want %d", got, twin[i])
			}
		}
	}
}
