package policy

import (
	"math"
	"math/rand/v2"
	"testing"
)

// output is the total speed of a user's GPUs.
func (h *holder) output() (sum float64) {
	for j, p := range h.parts {
		sum += p * h.speed[j]
	}
	return sum
}

// TestTrade: equal users have equal parts, no user has more than it can use, no GPU is lost or
// created, and no user is worse off by trading.
func TestTrade(t *testing.T) {
	r, gained := rand.New(rand.NewPCG(5, 6)), 0
	for n := range 2000 {
		kinds := 1 + r.IntN(4)
		users, capacity := make([]holder, 1+r.IntN(6)), make([]float64, kinds)
		for j := range capacity {
			capacity[j] = float64(r.IntN(20))
		}
		for u := range users {
			h := &users[u]
			h.demand, h.parts = float64(1+r.IntN(30)), make([]float64, kinds)
			for range kinds {
				h.speed = append(h.speed, float64(r.IntN(5)))
			}
		}
		divide(users, capacity)
		before, given := make([]float64, len(users)), make([]float64, kinds)
		for u := range users {
			before[u] = users[u].output()
			for j, p := range users[u].parts {
				given[j] += p
			}
		}
		trade(users, kinds)
		used := make([]float64, kinds)
		for u := range users {
			h := &users[u]
			switch now := h.output(); {
			case now < before[u]-1e-6:
				t.Fatalf("case %d: user %d had %g, has %g after trading", n, u, before[u], now)
			case now > before[u]+1e-6:
				gained++
			}
			if h.total() > h.demand+1e-6 {
				t.Fatalf("case %d: user %d has %g GPUs and can use %g", n, u, h.total(), h.demand)
			}
			for j, p := range h.parts {
				if used[j] += p; p < -1e-9 || p > 1e-9 && h.speed[j] == 0 {
					t.Fatalf("case %d: user %d has %g of kind %d", n, u, p, j)
				}
			}
		}
		for j := range used {
			if used[j] > capacity[j]+1e-6 || math.Abs(used[j]-given[j]) > 1e-6 {
				t.Fatalf("case %d: of %g GPUs of kind %d %g are given, %g after trading", n, capacity[j], j, given[j],
					used[j])
			}
		}
	}
	if gained < 500 {
		t.Errorf("only %d users gain", gained)
	}
}

// Two users with two jobs each, two fast GPUs and two slow ones. One user is four times as fast on
// the fast GPUs, the other equally fast on both: a fast GPU is traded for a slow one. If a third
// user gains twice as much, the first pays two slow GPUs; when it has no more, the third buys for
// one.
func TestPrice(t *testing.T) {
	two := []holder{{demand: 2, parts: []float64{1, 1}, speed: []float64{4, 1}},
		{demand: 2, parts: []float64{1, 1}, speed: []float64{1, 1}}}
	trade(two, 2)
	if a, b := two[0].parts, two[1].parts; a[0] != 2 || a[1] != 0 || b[0] != 0 || b[1] != 2 {
		t.Errorf("%v and %v, want all fast GPUs and all slow ones", a, b)
	}
	three := []holder{{demand: 9, parts: []float64{2, 2}, speed: []float64{4, 1}},
		{demand: 9, parts: []float64{2, 2}, speed: []float64{2, 1}},
		{demand: 9, parts: []float64{2, 2}, speed: []float64{1, 1}}}
	trade(three, 2)
	a, b, c := three[0].parts, three[1].parts, three[2].parts
	if a[0] != 3 || a[1] != 0 || b[0] != 3 || b[1] != 1 ||
		c[0] != 0 || c[1] != 5 {
		t.Errorf("%v, %v and %v, want [3 0], [3 1] and [0 5]", a, b, c)
	}
}
