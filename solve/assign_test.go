package solve

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"
)

// cheapest is Assign's naive twin: it tries all assignments.
func cheapest(rows int, cost [][]int64, used []bool) int64 {
	if rows == 0 {
		return 0
	}
	best := int64(math.MaxInt64)
	for j := range used {
		if !used[j] {
			used[j] = true
			best = min(best, cost[rows-1][j]+cheapest(rows-1, cost, used))
			used[j] = false
		}
	}
	return best
}

func TestAssign(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for n := range 500 {
		rows := r.IntN(6)
		cols := rows + r.IntN(3)
		most := []int64{2, 100, 1 << 50}[n%3]
		cost := make([][]int64, rows)
		for i := range cost {
			for range cols {
				cost[i] = append(cost[i], r.Int64N(most))
			}
		}
		got, sum := Assign(rows, cols, slices.Concat(cost...)), int64(0)
		for i, j := range got {
			sum += cost[i][j]
		}
		if want := cheapest(rows, cost, make([]bool, cols)); sum != want {
			t.Fatalf("%v: %v costs %d, the least is %d", cost, got, sum, want)
		}
		slices.Sort(got)
		if len(slices.Compact(got)) != rows {
			t.Fatalf("%v: a column is given twice", cost)
		}
	}
}
