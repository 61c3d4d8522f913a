package engine_test

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/engine"
	"github.com/muster-gpu/muster/place"
)

// fewestBins is the least number of bins of 1,000 that hold all sizes, by trying every
// way; most is what was found already.
func fewestBins(sizes []int64, most int) int {
	var bins []int64
	var put func(k int)
	put = func(k int) {
		if len(bins) >= most {
			return
		}
		if k == len(sizes) {
			most = len(bins)
			return
		}
		for i := range bins {
			if bins[i]+sizes[k] <= 1000 && !slices.Contains(bins[:i], bins[i]) {
				bins[i] += sizes[k]
				put(k + 1)
				bins[i] -= sizes[k]
			}
		}
		bins = append(bins, sizes[k])
		put(k + 1)
		bins = bins[:len(bins)-1]
	}
	put(0)
	return most
}

// Shares of GPUs as they come, on nodes of one GPU (invariants): best-fit
// opens no idle GPU while one in use has room, so it uses at most 1.7 times as many as
// would do, and, the largest first, at most 11/9 of them and 6/9.
func TestBestFitBounds(t *testing.T) {
	r := rand.New(rand.NewPCG(5, 8))
	worse, opened := 0, 0
	for range 300 {
		sizes := make([]int64, 4+r.IntN(7))
		for i := range sizes {
			sizes[i] = 50 + r.Int64N(700)
		}
		used := func(sizes []int64) int {
			h := newHand(t, "12x1xV100-16GB", "fifo", nil)
			free := make([]int64, 12)
			for i := range free {
				free[i] = 1000
			}
			for id, size := range sizes {
				h.at(id+1, submit(job(id, 1, 1000, func(j *cluster.Job) { j.Tasks[0].Request.Share = size })))
				a := h.e.Record(cluster.JobID(id)).Allocs
				if len(a) != 1 {
					t.Fatalf("a share of %d has %+v", size, a)
				}
				fits := slices.IndexFunc(free, func(f int64) bool { return f < 1000 && f >= size })
				if free[a[0].Node] == 1000 {
					opened++
					if fits >= 0 {
						t.Fatalf("%v: the share of %d opens node %d; node %d has %d left", sizes, size, a[0].Node, fits,
							free[fits])
					}
				}
				free[a[0].Node] -= size
			}
			return 12 - len(slices.DeleteFunc(slices.Clone(free), func(f int64) bool { return f < 1000 }))
		}
		online := used(sizes)
		falling := slices.Clone(sizes)
		slices.SortFunc(falling, func(a, b int64) int { return int(b - a) })
		best := fewestBins(falling, len(sizes))
		if float64(online) > 1.7*float64(best) {
			t.Errorf("%v: %d GPUs, %d would do", sizes, online, best)
		}
		if d := used(falling); 9*d > 11*best+6 {
			t.Errorf("%v: %d GPUs, %d would do", falling, d, best)
		}
		if online > best {
			worse++
		}
	}
	if worse < 10 || opened < 1000 {
		t.Errorf("%d times more than the least, %d GPUs opened: the test shows little", worse, opened)
	}
}

// A-hami's nodes: with three and two of four GPUs in use, packing takes the first and
// spreading the second, whichever comes first.
func TestPackOrSpread(t *testing.T) {
	for placer, fuller := range map[string]bool{"best-fit": true, "worst-fit": false} {
		h := newHand(t, "2x4xV100-16GB", "fifo", func(c *engine.Config) {
			var err error
			if c.Placer, err = place.New(placer); err != nil {
				t.Fatal(err)
			}
		})
		h.at(1, submit(job(0, 3, 1000)))
		first := h.e.Record(0).Allocs[0].Node
		h.at(2, submit(job(1, 2, 1000)))
		if second := h.e.Record(1).Allocs[0].Node; second == first {
			t.Fatalf("%s: both on node %d", placer, first)
		}
		h.at(3, submit(job(2, 1, 1000)))
		if got := h.e.Record(2).Allocs[0].Node; (got == first) != fuller {
			t.Errorf("%s: on node %d; three GPUs are used on node %d", placer, got, first)
		}
	}
}
