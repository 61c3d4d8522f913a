package solve

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
)

// Lyra (EuroSys'23), MCKP: three GPUs, one per worker; X saves 10, 14, 15, Y saves 8, 15: X gets
// one and Y two, which saves 25.
func TestKnapsackVector(t *testing.T) {
	menus := [][]Choice{
		{{}, {GPUs: 1, Cost: -10}, {GPUs: 2, Cost: -14}, {GPUs: 3, Cost: -15}},
		{{}, {GPUs: 1, Cost: -8}, {GPUs: 2, Cost: -15}},
	}
	at, gap := Knapsack(menus, 3)
	if at[0] != 1 || at[1] != 2 || gap != 0 || chosen(t, menus, []int{3}, at) != -25 {
		t.Errorf("%v, gap %g", at, gap)
	}
}

// knapsackMenus draws menus: jagged ones with arbitrary costs, or times of jobs with more tasks of
// several GPUs each.
func knapsackMenus(r *rand.Rand, n, sizes int, jagged bool) [][]Choice {
	menus := make([][]Choice, n)
	for i := range menus {
		left, each, bend := 100+900*r.Float64(), 1<<r.IntN(4), 0.3+0.7*r.Float64()
		menus[i] = []Choice{{Cost: left}}
		for k := 1; k <= 1+r.IntN(sizes); k++ {
			x := Choice{GPUs: k * each, Cost: left / math.Pow(float64(1+k), bend)}
			if jagged {
				x.GPUs, x.Cost = r.IntN(3*sizes), left*(0.5+r.Float64())
			}
			menus[i] = append(menus[i], x)
		}
	}
	return menus
}

// Knapsack's result is the optimum.
func TestKnapsack(t *testing.T) {
	r := rand.New(rand.NewPCG(5, 6))
	programs := 0
	for n := range 4000 {
		menus := knapsackMenus(r, 1+r.IntN(6), 5, n%2 == 0)
		capacity := r.IntN(40)
		at, gap := Knapsack(menus, capacity)
		got, want := chosen(t, menus, []int{capacity}, at), tryAll(menus, []int{capacity})
		if gap != 0 || math.Abs(got-want) > 1e-9*want {
			t.Errorf("case %d: %v costs %g, the best %g; gap %g", n, at, got, want, gap)
		}
		k := knapsack{menus: menus, at: make([]int, len(menus)), left: capacity}
		if k.relax() {
			programs++
		}
	}
	if programs < 1000 {
		t.Errorf("only %d cases are not those of the relaxation", programs)
	}
}

// plainKnapsack is Knapsack's other twin, for more menus: the dynamic program over all choices.
func plainKnapsack(menus [][]Choice, capacity int) float64 {
	best := make([]float64, capacity+1)
	for _, m := range menus {
		next := make([]float64, capacity+1)
		for c := range next {
			next[c] = math.Inf(1)
			for _, x := range m {
				if x.GPUs <= c {
					next[c] = min(next[c], best[c-x.GPUs]+x.Cost)
				}
			}
		}
		best = next
	}
	return best[capacity]
}

// Hundreds of menus: as good as the whole program, or within the stated gap.
func TestKnapsackLarge(t *testing.T) {
	r := rand.New(rand.NewPCG(7, 8))
	gaps := 0
	for n := range 40 {
		menus := knapsackMenus(r, 100+r.IntN(200), 8, n%4 == 0)
		capacity := 50 + r.IntN(500)
		at, gap := Knapsack(menus, capacity)
		got, want := chosen(t, menus, []int{capacity}, at), plainKnapsack(menus, capacity)
		if got-want > gap+1e-9*want || got < want-1e-9*want {
			t.Errorf("case %d: costs %g, the best %g; gap %g", n, got, want, gap)
		}
		if gap > 0 {
			gaps++
		}
	}
	if gaps > 0 {
		t.Errorf("%d of 40 programs were too large", gaps)
	}
}

// Beyond the program's bound a gap is stated and holds: it is at least half of the difference between
// the relaxation, a lower bound, and the filled solution.
func TestKnapsackBeyond(t *testing.T) {
	r := rand.New(rand.NewPCG(9, 10))
	menus := make([][]Choice, 3000)
	for i := range menus { // subset sums that never fill the capacity: every choice loses next to nothing
		g := 1000 + 2*r.IntN(4000) + i%2
		menus[i] = []Choice{{Cost: float64(g) + 1e-3*r.Float64()}, {GPUs: g}}
	}
	at, gap := Knapsack(menus, 2_000_001)
	k := knapsack{menus: menus, at: make([]int, len(menus)), left: 2_000_001}
	if !k.relax() {
		t.Fatal("the relaxation is the solution")
	}
	least := -k.price * float64(k.left)
	for i, c := range k.at {
		least += menus[i][c].Cost
	}
	if got := chosen(t, menus, []int{2_000_001}, at); gap == 0 || got < least-1e-6 || got > least+2*gap+1e-6 {
		t.Errorf("costs %g, the relaxation %g, gap %g", got, least, gap)
	}
}

func BenchmarkKnapsack(b *testing.B) {
	for _, jagged := range []bool{false, true} {
		for _, size := range [][2]int{{100, 500}, {1000, 1000}, {1000, 4000}, {3000, 10000}} {
			menus := knapsackMenus(rand.New(rand.NewPCG(1, 2)), size[0], 16, jagged)
			b.Run(fmt.Sprintf("jagged=%v/menus=%d/gpus=%d", jagged, size[0], size[1]), func(b *testing.B) {
				worst := 0.0
				for i := range b.N {
					at, gap := Knapsack(menus, size[1]-i%7)
					worst = max(worst, gap)
					_ = at
				}
				b.ReportMetric(worst, "gap")
			})
		}
	}
}
