package policy

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/muster-gpu/muster/solve"
)

// bestMatches is the least cost of all choices that fit, by exhaustive search.
func bestMatches(menus [][]solve.Choice, left []int) float64 {
	if len(menus) == 0 {
		return 0
	}
	best := math.Inf(1)
	for _, x := range menus[0] {
		if x.GPUs <= left[x.Kind] {
			left[x.Kind] -= x.GPUs
			best = min(best, x.Cost+bestMatches(menus[1:], left))
			left[x.Kind] += x.GPUs
		}
	}
	return best
}

func asMany(tasks int) int { return tasks }

// TestSiaVector: four GPUs of one model, A is 1, 1.8 and 3 times as fast with one,
// two and four, B 1, 1.2 and 1.3 times. Two each cost 1.6582; four for A and B
// queued 1.6774 (Sia, SOSP'23, vector 3).
func TestSiaVector(t *testing.T) {
	var menus [][]solve.Choice
	for _, speed := range [][]float64{{1, 1.8, 3}, {1, 1.2, 1.3}} {
		list := []match{{}, {tasks: 1, speed: speed[0]}, {tasks: 2, speed: speed[1]}, {tasks: 4, speed: speed[2]}}
		menu := siaMenu(make([]solve.Choice, len(list)), list, 0, 1, 1, asMany)
		for i := range menu[1:] {
			menu[i+1].Cost -= siaChange // no history
		}
		menus = append(menus, menu)
	}
	at := new(solve.Chooser).Choose(menus, []int{4})
	if cost := menus[0][at[0]].Cost + menus[1][at[1]].Cost; !slices.Equal(at, []int{2, 2}) ||
		math.Abs(cost-1.6582) > 5e-5 {
		t.Errorf("chosen is %v at %g, want two each at 1.6582", at, cost)
	}
	if cost := menus[0][3].Cost + menus[1][0].Cost; math.Abs(cost-1.6774) > 5e-5 {
		t.Errorf("four for A cost %g, want 1.6774", cost)
	}
}

// TestSiaConfigs: on nodes with 8 GPUs 1, 2, 4, 8, 16, 24 ...; on nodes with 6, 1, 2,
// 4, 6, 12 ...
func TestSiaConfigs(t *testing.T) {
	for perNode, want := range map[int][]int{8: {1, 2, 4, 8, 16, 24, 32}, 6: {1, 2, 4, 6, 12, 18, 24, 30},
		1: {1, 2, 3, 4}} {
		var got []int
		for n := 1; n <= want[len(want)-1]; n++ {
			if siaConfig(n, perNode) {
				got = append(got, n)
			}
		}
		if !slices.Equal(got, want) {
			t.Errorf("%d per node: %v, want %v", perNode, got, want)
		}
	}
}

// TestSiaMatches compares with exhaustive search: jobs that run or wait, on up to three models.
// Every choice is one of the job's matches; a job that fits in addition to the others runs, since
// queueing costs more than any match.
func TestSiaMatches(t *testing.T) {
	r := rand.New(rand.NewPCG(7, 8))
	exact, cases, sum, worst := 0, 1000, 0.0, 0.0
	for range cases {
		kinds := 1 + r.IntN(3)
		capacity := make([]int, kinds)
		for k := range capacity {
			capacity[k] = 4 * r.IntN(4)
		}
		var menus [][]solve.Choice
		for range 1 + r.IntN(5) {
			list, bend := []match{{}}, 0.5+r.Float64()/2
			for k := range kinds {
				speed := 0.2 + r.Float64()
				for _, n := range []int{1, 2, 4, 8} {
					list = append(list, match{k, n, speed * math.Pow(float64(n), bend)})
				}
			}
			menus = append(menus,
				siaMenu(make([]solve.Choice, len(list)), list, r.IntN(len(list)), 1, 0.3+0.7*r.Float64(), asMany))
		}
		cost, left := 0.0, slices.Clone(capacity)
		at := new(solve.Chooser).Choose(menus, capacity)
		for i, n := range at {
			x := menus[i][n]
			left[x.Kind] -= x.GPUs
			cost += x.Cost
		}
		want := bestMatches(menus, slices.Clone(capacity))
		if slices.Min(left) < 0 || cost < want-1e-9 {
			t.Fatalf("%v of %v: %v are left, at %g, the least is %g", at, capacity, left, cost, want)
		}
		for i, n := range at {
			if n == 0 && slices.Max(left) > 0 && menus[i][0].Cost == siaQueued {
				t.Errorf("job %d waits although %v are left: %v", i, left, menus[i])
			}
		}
		if cost < want+1e-9 {
			exact++
		}
		sum, worst = sum+cost/want-1, max(worst, cost/want-1)
	}
	t.Logf("%d of %d are exact, the mean gap is %.4f %%, the worst %.2f %%", exact, cases, 100*sum/float64(cases),
		100*worst)
	if exact < cases*9/10 || worst > 0.15 {
		t.Errorf("%d of %d are exact, the mean gap is %g, the worst %g", exact, cases, sum/float64(cases), worst)
	}
}
