package solve

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/muster-gpu/muster/internal/heap"
	"github.com/muster-gpu/muster/internal/shared"
)

// tryAll is Choose's naive twin: the minimum cost over all choices that fit.
func tryAll(menus [][]Choice, left []int) float64 {
	if len(menus) == 0 {
		return 0
	}
	best := math.Inf(1)
	for _, x := range menus[0] {
		if x.GPUs <= left[x.Kind] {
			left[x.Kind] -= x.GPUs
			best = min(best, x.Cost+tryAll(menus[1:], left))
			left[x.Kind] += x.GPUs
		}
	}
	return best
}

// chosen is the total cost of the choices, which must fit.
func chosen(t *testing.T, menus [][]Choice, capacity, at []int) (sum float64) {
	t.Helper()
	left := slices.Clone(capacity)
	for i, n := range at {
		x := menus[i][n]
		left[x.Kind] -= x.GPUs
		sum += x.Cost
	}
	if slices.Min(left) < 0 {
		t.Fatalf("%v of %v exceeds the capacity: %v are left of %v", at, menus, left, capacity)
	}
	return sum
}

// TestChoose compares with exhaustive search on random menus, with costs that fall with the GPUs
// and with arbitrary costs. Even on these, which are as irregular as possible, nearly all results
// are exact; a few are off by more than a tenth.
func TestChoose(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	exact, cases, worst, sum := 0, 2000, 0.0, 0.0
	for n := range cases {
		kinds := 1 + n%3
		capacity := make([]int, kinds)
		for k := range capacity {
			capacity[k] = r.IntN(10)
		}
		menus := make([][]Choice, 1+r.IntN(5))
		for i := range menus {
			menus[i] = []Choice{{Cost: 1}}
			for range r.IntN(6) {
				x := Choice{Kind: r.IntN(kinds), GPUs: 1 + r.IntN(6)}
				x.Cost = 1 / (1 + r.Float64()*float64(x.GPUs))
				if r.IntN(10) == 0 {
					x.Cost *= 2
				}
				menus[i] = append(menus[i], x)
			}
		}
		got, want := chosen(t, menus, capacity, new(Chooser).Choose(menus, capacity)), tryAll(menus, capacity)
		if got < want-1e-9 {
			t.Fatalf("case %d: %g is less than the least, %g", n, got, want)
		}
		if got < want+1e-9 {
			exact++
		}
		worst, sum = max(worst, got/want-1), sum+got/want-1
	}
	t.Logf("%d of %d are exact, the mean gap is %.4f %%, the worst %.2f %%", exact, cases, 100*sum/float64(cases),
		100*worst)
	if exact < cases*9/10 || worst > 0.3 || sum/float64(cases) > 0.002 {
		t.Errorf("%d of %d are exact, the mean gap is %g, the worst %g", exact, cases, sum/float64(cases), worst)
	}
}

func BenchmarkChoose(b *testing.B) {
	for name, kinds := range map[string]int{"1000x1": 1, "1000x3": 3} {
		r := rand.New(rand.NewPCG(3, 4))
		capacity := slices.Repeat([]int{1000}, kinds)
		menus := make([][]Choice, 1000)
		for i := range menus {
			menus[i] = []Choice{{Cost: 1000}}
			for k := range kinds {
				speed := 1 + r.Float64()
				for g := 1; g <= 16; g++ {
					menus[i] = append(menus[i], Choice{k, g, (1 + 0.1*float64(g)) / speed / float64(g)})
				}
			}
		}
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				new(Chooser).Choose(menus, capacity)
			}
		})
	}
}

// choosePlain is Choose without its optimizations: every menu is evaluated at every price, and
// every wish is examined until it can no longer fit.
func choosePlain(menus [][]Choice, capacity []int) []int {
	c := &Chooser{}
	c.begin(menus, capacity)
	improve := func() {
		var open []wish
		for i := range menus {
			if w, ok := c.wish(i); ok {
				heap.Push(&open, w)
			}
		}
		for len(open) > 0 {
			w := heap.Pop(&open)
			again, ok := c.wish(w.job)
			if ok && again == w {
				c.move(w.job, w.to)
				again, ok = c.wish(w.job)
			}
			if ok {
				heap.Push(&open, again)
			}
		}
		c.trade()
	}
	improve()
	greedy, cost := slices.Clone(c.at), c.cost()
	most := 0.0
	for _, m := range menus {
		for _, x := range m {
			most = max(most, 2*(m[0].Cost-x.Cost))
		}
	}
	rounds := 1
	if len(capacity) > 1 {
		rounds = 4
	}
	for range rounds {
		for k := range capacity {
			if c.price[k] = 0; most == 0 || c.used(k) <= capacity[k] {
				continue
			}
			low, high := most*1e-12, most
			for range 40 {
				c.price[k] = math.Sqrt(low * high)
				if c.used(k) > capacity[k] {
					low = c.price[k]
				} else {
					high = c.price[k]
				}
			}
			c.price[k] = high
		}
	}
	for i := range menus {
		c.move(i, 0)
	}
	for i := range menus {
		c.move(i, c.cheapest(i, true))
	}
	improve()
	if c.cost() < cost+worth {
		return c.at
	}
	return greedy
}

// TestChoosePlain compares with choosePlain, choice by choice: many menus, most of them with one
// option and many alike, like those of waiting jobs.
func TestChoosePlain(t *testing.T) {
	r := rand.New(rand.NewPCG(5, 6))
	chooser := &Chooser{}
	for n := range shared.Soak(750, 1500) {
		kinds := 1 + n%3
		capacity := make([]int, kinds)
		for k := range capacity {
			capacity[k] = r.IntN(100)
		}
		menus := make([][]Choice, 1+r.IntN(80))
		single := r.IntN(3) == 0
		for i := range menus {
			menus[i] = []Choice{{Cost: 1000}}
			if r.IntN(4) == 0 {
				menus[i][0].Cost = 1.1
			}
			up := 1 / float64(1+r.IntN(4))
			sizes := 1 + max(0, r.IntN(12)-6)
			if single {
				sizes = 1
			}
			for k := range kinds {
				least := 1 << r.IntN(4)
				for g := least; g < least+sizes; g++ {
					menus[i] = append(menus[i], Choice{k, g, float64(k+1) / (0.001 + up*math.Sqrt(float64(g)))})
				}
			}
			if r.IntN(5) == 0 {
				menus[i][r.IntN(len(menus[i]))].Cost *= 0.7
			}
		}
		got, want := chooser.Choose(menus, capacity), choosePlain(menus, capacity)
		if !slices.Equal(got, want) {
			t.Fatalf("case %d, %d menus, %v GPUs:\n%v, plain\n%v", n, len(menus), capacity, got, want)
		}
	}
}
