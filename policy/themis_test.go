package policy

import (
	"math"
	"math/rand/v2"
	"testing"
)

// Themis, NSDI'20, vector 1: the product of the values is 4 with a GPU each, 3 and 3.5 with both at
// one app; each keeps the fraction that the other retains in its presence.
func TestAuction(t *testing.T) {
	bids := [][]offer{{{0, 0, 1}, {1, 1, 2}, {2, 2, 3}}, {{0, 0, 1}, {1, 1, 2}, {2, 2, 3.5}}}
	won := new(market).auction(bids, 2)
	if won[0].offer != 1 || won[1].offer != 1 || math.Abs(won[0].kept-2/3.5) > 1e-9 ||
		math.Abs(won[1].kept-2.0/3) > 1e-9 {
		t.Errorf("%+v", won)
	}
	if alone := new(market).auction(bids[:1], 2); alone[0] != (win{2, 1}) {
		t.Errorf("a single bidder: %+v", alone)
	}
}

// Themis, NSDI'20, vector 2: started 100 s ago, 50 of 100 iterations of 8 s left, 8 GPUs
// in the cluster for two apps: with 4 GPUs it takes as long as with its share.
func TestFinishTimeFairness(t *testing.T) {
	const work, elapsed = 100 * 8.0, 100.0
	shared := elapsed + 50*8/4.0
	if rho := shared / finishAlone(work, 8, 2); rho != 1 {
		t.Errorf("rho %g, want 1", rho)
	}
}

// No app gains by overstating the worth of GPUs if what was won can be divided; none keeps more
// than it won; no more is granted than there is.
func TestAuctionIsTruthful(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for range 2000 {
		n, free := 2+r.IntN(3), 1+r.IntN(6)
		bids := make([][]offer, n)
		for i := range bids {
			value := 0.2 + r.Float64()
			for k := range free + 1 {
				bids[i] = append(bids[i], offer{k, k, value})
				value += r.Float64()
			}
		}
		honest, sum := new(market).auction(bids, free), 0
		for i, w := range honest {
			sum += bids[i][w.offer].gpus
			if !(w.kept > 0 && w.kept <= 1) {
				t.Fatalf("keeps %g", w.kept)
			}
		}
		if sum > free {
			t.Fatalf("%d of %d GPUs are granted", sum, free)
		}
		lied := append([][]offer(nil), bids...)
		lied[0] = append([]offer(nil), bids[0]...)
		for k := 1; k < len(lied[0]); k++ {
			lied[0][k].value = max(lied[0][k].value*(0.5+r.Float64()), lied[0][k-1].value)
		}
		// of c_i of the allocation, as the paper counts it
		worth := func(w win) float64 { return w.kept * bids[0][w.offer].value }
		if a, b := worth(honest[0]), worth(new(market).auction(lied, free)[0]); b > a*(1+1e-9) {
			t.Fatalf("bids %v: honest %g, lying %g", bids, a, b)
		}
	}
}

// The greedy allocation is exact if each GPU adds less than the one before.
func TestGreedyAuction(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	for range 500 {
		n, free := 2+r.IntN(3), 1+r.IntN(6)
		bids := make([][]offer, n)
		for i := range bids {
			value, factor := 0.2+r.Float64(), 3*r.Float64()+1
			for k := range free + 1 {
				bids[i] = append(bids[i], offer{k, k, value})
				value *= factor
				factor = 1 + (factor-1)*r.Float64()
			}
		}
		product := func(at []int) (p float64) {
			for i, k := range at {
				p += math.Log(bids[i][k].value)
			}
			return p
		}
		if a, b := product(fairest(bids, free, -1)),
			product(greedily(stepsOf(nil, bids, free), n, free, -1, nil)); math.Abs(a-b) > 1e-9 {
			t.Fatalf("bids %v: best %g, greedy %g", bids, a, b)
		}
	}
}

// Themis, NSDI'20, the last invariant: with f = 1 - 1/n exactly one of n apps bids; with f = 0 all
// do, with f = 1 one.
func TestBidders(t *testing.T) {
	for n := 1; n <= 2000; n++ {
		for f, want := range map[float64]int{1 - 1/float64(n): 1, 1: 1} {
			if got := (&themisRules{f: f}).bidders(n); got != want {
				t.Errorf("f=%g: %d of %d bid, want %d", f, got, n, want)
			}
		}
		if got := (&themisRules{}).bidders(n); got != n {
			t.Errorf("f=0: %d of %d bid", got, n)
		}
	}
	if got := (&themisRules{f: 0.8}).bidders(11); got != 3 {
		t.Errorf("f=0.8: %d of 11 bid, want 3", got)
	}
	if got := (&themisRules{f: 0.8}).bidders(0); got != 0 {
		t.Errorf("%d bid of an empty list", got)
	}
}
