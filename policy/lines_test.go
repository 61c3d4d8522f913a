package policy

import (
	"cmp"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/internal/heap"
)

// Naive twin of gandiva's lines of partners: the whole order, searched for each job.
func TestPartnersTwin(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	var lines []partners
	for range 200 {
		turns := make([]turn, 1+r.IntN(40))
		for i := range turns {
			turns[i] = turn{gpus: 1 << r.IntN(3), stays: r.IntN(5) == 0, packs: r.IntN(4) > 0}
			if r.IntN(6) == 0 {
				turns[i].mate = 1
			}
		}
		order := r.Perm(len(turns))
		lines = partnersOf(lines[:0], turns, order)
		for rank, i := range order {
			turns[i].passed = true
			if !turns[i].packs || turns[i].mate > 0 {
				continue
			}
			var want, got []int
			for _, k := range order[rank+1:] {
				if o := &turns[k]; o.gpus == turns[i].gpus && !o.passed && o.mate == 0 && o.packs && !o.stays {
					want = append(want, k)
				}
			}
			for _, k := range lineOf(lines, turns[i].gpus).rest(turns) {
				if !turns[k].taken() {
					got = append(got, k)
				}
			}
			if !slices.Equal(got, want) {
				t.Fatalf("partners for job %d: %v, not %v", i, got, want)
			}
			if len(want) > 0 && r.IntN(2) == 0 {
				k := want[r.IntN(len(want))]
				turns[i].mate, turns[k].mate, turns[k].passed = k+1, i+1, true
			}
		}
	}
}

// Naive twin of the order of turns: jobs compared with each other.
func TestTurnOrderTwin(t *testing.T) {
	r := rand.New(rand.NewPCG(5, 6))
	var o turnOrder
	for range 400 {
		turns := make([]turn, r.IntN(40))
		late := r.IntN(2) == 0 // numbers do not follow submission
		for i := range turns {
			turns[i] = turn{rounds: time.Duration(r.IntN(4)), tier: cluster.Tier(r.IntN(3)), stays: r.IntN(4) == 0,
				submit: cluster.Time(i / 3)}
			if late {
				turns[i].submit = cluster.Time(r.IntN(5))
			}
		}
		want := make([]int, len(turns))
		for i := range want {
			want[i] = i
		}
		slices.SortStableFunc(want, func(a, b int) int {
			x, y := &turns[a], &turns[b]
			if x.stays != y.stays {
				if x.stays {
					return -1
				}
				return 1
			}
			return cmp.Or(cmp.Compare(x.tier, y.tier), cmp.Compare(x.rounds, y.rounds), cmp.Compare(x.submit, y.submit))
		})
		if got := o.of(turns); !slices.Equal(got, want) {
			t.Fatalf("order %v, not %v", got, want)
		}
	}
}

// Naive twin of the heap with which astraea finds a tenant's next job: all jobs sorted, each tried
// as long as GPUs are free.
func TestAstraeaNextTwin(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	rules := &astraeaRules{}
	for round := range 200 {
		now, sorted := &tenant{}, make([]*lessee, r.IntN(30))
		for i := range sorted {
			sorted[i] = &lessee{id: cluster.JobID(i), gpus: 1 + r.IntN(12), f: float64(r.IntN(4)),
				submit: cluster.Time(r.IntN(4)), starves: r.IntN(4) == 0}
			heap.Push(&now.waiting, waitingLessee{sorted[i]})
		}
		slices.SortStableFunc(sorted, func(a, b *lessee) int {
			switch {
			case a.starves != b.starves && a.starves:
				return -1
			case a.starves != b.starves:
				return 1
			case !a.starves && a.f != b.f:
				return int(a.f) - int(b.f)
			}
			return int(a.submit - b.submit)
		})
		var want, got []*lessee
		left := 1 + r.IntN(20)
		free := left
		for _, l := range sorted {
			if l.gpus <= left {
				want, left = append(want, l), left-l.gpus
			}
		}
		for now.fits(free) {
			l, _ := rules.next(now)
			got, free = append(got, l), free-l.gpus
		}
		if !slices.Equal(got, want) {
			t.Fatalf("round %d: others get something", round)
		}
	}
}
