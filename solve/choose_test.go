package solve

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"
)

// tryAll is Choose's dumb twin: the least cost of all choices that fit.
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

// chosen is what a choice costs; it must fit.
func chosen(t *testing.T, menus [][]Choice, capacity, at []int) (sum float64) {
	t.Helper()
	left := slices.Clone(capacity)
	for i, n := range at {
		x := menus[i][n]
		left[x.Kind] -= x.GPUs
		sum += x.Cost
	}
	if slices.Min(left) < 0 {
		t.Fatalf("%v of %v takes more than there is: %v are left of %v", at, menus, left, capacity)
	}
	return sum
}

// TestChoose compares with trying all: random menus, the costs of which fall with
// the GPUs, and as they like. Of these, which are as jagged
// as can be, nearly all are exact, a few are off by more than a tenth.
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
		got, want := chosen(t, menus, capacity, Choose(menus, capacity)), tryAll(menus, capacity)
		if got < want-1e-9 {
			t.Fatalf("case %d: %g is less than the least, %g", n, got, want)
		}
		if got < want+1e-9 {
			exact++
		}
		worst, sum = max(worst, got/want-1), sum+got/want-1
	}
	t.Logf("%d of %d are exact, the mean gap is %.4f %%, the worst %.2f %%", exact, cases, 100*sum/float64(cases), 100*worst)
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
				Choose(menus, capacity)
			}
		})
	}
}
