package perf

import (
	"math/rand/v2"
	"testing"

	"github.com/muster-gpu/muster/cluster"
)

func TestPeriod(t *testing.T) {
	for _, c := range []struct {
		name string
		jobs [][]int64
		want int64
	}{
		{"alone", [][]int64{{3, 1, 4, 1}}, 9},
		{"nobody", nil, 0},
		{"each its own resource", [][]int64{{5, 0, 0, 0}, {0, 5, 0, 0}, {0, 0, 5, 0}, {0, 0, 0, 5}}, 5},
		{"the same one: no gain", [][]int64{{0, 0, 5, 0}, {0, 0, 5, 0}}, 10},
		{"Muri's simulator, 12.5: dqn and gpt2", [][]int64{{4460, 80, 0}, {6, 4100, 0}}, 4460 + 80 + 6},
		{"two that load and compute", [][]int64{{2, 0, 3, 0}, {2, 0, 3, 0}}, 6},
		{"more than there are stages: turns", [][]int64{{1, 2}, {1, 2}, {1, 2}}, 9},
		{"fewer stages", [][]int64{{7}, {0, 6}}, 7},
	} {
		if got := Period(c.jobs); got != c.want {
			t.Errorf("%s: %d, want %d", c.name, got, c.want)
		}
	}
}

// An iteration of a group takes at least as long as the longest job, and as the total use of any
// resource; the order of the jobs does not matter.
func TestPeriodBounds(t *testing.T) {
	r := rand.New(rand.NewPCG(5, 6))
	for range 2000 {
		jobs, least := make([][]int64, 1+r.IntN(4)), int64(0)
		var used [4]int64
		for i := range jobs {
			for k := range 4 {
				d := r.Int64N(10)
				jobs[i] = append(jobs[i], d)
				used[k] += d
			}
			least = max(least, total(jobs[i]))
		}
		for _, u := range used {
			least = max(least, u)
		}
		got := Period(jobs)
		r.Shuffle(len(jobs), func(i, k int) { jobs[i], jobs[k] = jobs[k], jobs[i] })
		if again := Period(jobs); got < least || got != again {
			t.Fatalf("%v: %d, in another order %d, at least %d", jobs, got, again, least)
		}
	}
}

func TestInterleaving(t *testing.T) {
	tab := &Table{
		Stages: map[string][]int64{"load": {446, 8, 0, 0}, "compute": {0, 410, 44, 0}},
		Pairs:  map[Pair]int64{{"load", "compute"}: 1, {"load", "other"}: 700_000},
	}
	for _, c := range []struct {
		model    string
		partners []string
		share    cluster.Milli
		want     int64
	}{
		{"load", nil, cluster.Whole, 1_000_000},
		{"load", []string{"compute"}, cluster.Whole, 454 * 1_000_000 / 490}, // 446, then 44; pairs do not count
		{"load", []string{"load"}, cluster.Whole, 454 * 1_000_000 / 900},    // the 8 overlap with the other's 446
		{"load", []string{"other"}, cluster.Whole, 700_000},
		{"load", []string{"compute"}, 500, 1},
	} {
		if got := tab.Rate(&cluster.Job{Model: c.model},
			Placement{Partners: c.partners, Share: c.share}); got != c.want {
			t.Errorf("%s beside %v: %d, want %d", c.model, c.partners, got, c.want)
		}
	}
	for _, s := range [][]int64{{}, {0, 0}, {1, -1}, {1, 1, 1, 1, 1}, {1 << 41}} {
		if (&Table{Stages: map[string][]int64{"a": s}}).Check() == nil {
			t.Errorf("stages %v are accepted", s)
		}
	}
}
