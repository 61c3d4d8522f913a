package policy

import (
	"cmp"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/muster-gpu/muster/solve"
)

// On equal GPUs the sum of completion times is the least of all assignments, with queues as long as
// there are jobs; each seat is taken once.
func TestSeatShortest(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for range 2000 {
		n := 1 + rng.IntN(8)
		ready := [][]int64{make([]int64, 1+rng.IntN(4)), make([]int64, rng.IntN(3))}
		for _, list := range ready {
			for i := range list {
				list[i] = int64(rng.IntN(3) * rng.IntN(40))
			}
			slices.Sort(list)
		}
		line := make([]waiter, n)
		for i := range line {
			at := int64(1 + rng.IntN(30))
			line[i] = waiter{at: i, time: []int64{at, at}, least: at}
			if len(ready[1]) == 0 {
				line[i].time[1] = 0
			}
		}
		slices.SortFunc(line, func(a, b waiter) int { return cmp.Compare(a.least, b.least) })
		seatShortest(line, ready)
		var got int64
		taken := map[seat]bool{} // looked up only
		for _, w := range line {
			got += int64(w.turn)*w.least + w.ready
			if taken[w.seat] || w.turn > 1 &&
				!slices.ContainsFunc(line, func(o waiter) bool {
					return o.kind == w.kind && o.gpu == w.gpu && o.turn == w.turn-1
				}) {
				t.Fatalf("%+v: the seat is taken twice, or the one behind it is empty", w.seat)
			}
			taken[w.seat] = true
		}
		if want := leastSum(line, ready); got != want {
			t.Fatalf("sum of completion times %d, the least is %d: %+v, %v", got, want, line, ready)
		}
	}
}

// leastSum tries all assignments of the jobs to all seats.
func leastSum(line []waiter, ready [][]int64) (sum int64) {
	var costs []int64
	cols := 0
	for i := range line {
		cols = 0
		for _, list := range ready {
			for _, at := range list {
				for turn := range line {
					costs = append(costs, int64(turn+1)*line[i].least+at)
					cols++
				}
			}
		}
	}
	for i, j := range solve.Assign(len(line), cols, costs) {
		sum += costs[i*cols+j]
	}
	return sum
}
