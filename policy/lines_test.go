package policy

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/muster-gpu/muster/cluster"
)

// Twin of gandiva's lines of partners: the whole order, looked through for each job.
func TestPartnersTwin(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for range 200 {
		turns := make([]turn, 1+r.IntN(40))
		for i := range turns {
			turns[i] = turn{gpus: 1 << r.IntN(3), stays: r.IntN(5) == 0, packs: r.IntN(4) > 0}
			if r.IntN(6) == 0 {
				turns[i].mate = 1
			}
		}
		order := r.Perm(len(turns))
		lines := partnersOf(turns, order)
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

// Twin of astraea's order of a tenant's jobs: all of them, sorted.
func TestAstraeaOrderTwin(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	for round := range 200 {
		rules := &astraeaRules{block: round%4 == 0}
		list := make([]lessee, r.IntN(30))
		var now tenant
		var want []*lessee
		free := 1 + r.IntN(8)
		for i := range list {
			l := &list[i]
			*l = lessee{gpus: r.IntN(12), f: float64(r.IntN(4)), submit: cluster.Time(r.IntN(4)), starves: r.IntN(4) == 0}
			now.waiting = append(now.waiting, l)
			if l.gpus <= free || rules.block {
				want = append(want, l)
			}
		}
		slices.SortStableFunc(want, func(a, b *lessee) int {
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
		if rules.order(&now, free); !slices.Equal(now.waiting, want) {
			t.Fatalf("round %d: another order", round)
		}
	}
}
