package shared

import (
	"math/rand/v2"
	"testing"

	"github.com/muster-gpu/muster/kube/kubetest"
	"github.com/muster-gpu/muster/perf"
)

// A pod is said to be too slow if it could be, in the worst of all ways to put the pods on
// the node's GPUs: against a search through all of them.
func TestSlowed(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 7))
	models := []string{"a", "b", "c"}
	seen := map[bool]int{}
	for range 3000 {
		list := map[string]int64{}
		for _, x := range models {
			for _, y := range models {
				list[x+"/"+y] = []int64{1_000_000, 800_000, 500_000}[r.IntN(3)]
			}
		}
		known := kubetest.Pairs(list)
		c, gpus, of := &Company{table: perf.Belief{Model: known}}, 1+r.IntN(3), 2+r.IntN(2)
		if r.IntN(2) == 0 { // one of the models may not say how busy it is
			known.Slicing = &perf.TimeSlicing{Switch: []int64{0, 20_000}[r.IntN(2)],
				Duty:      map[string]int64{"a": 200_000, "b": 300_000 + r.Int64N(600_000)},
				Processes: map[string]int{"b": 1 + r.IntN(3)}}
			if r.IntN(2) == 0 {
				known.Slicing.Duty["c"] = 100_000 + r.Int64N(900_000)
			}
			c.turns = perf.Belief{Model: known}
		}
		one := func() Sharer {
			return Sharer{models[r.IntN(3)], []int64{0, 300_000, 450_000, 700_000, 900_000}[r.IntN(5)]}
		}
		var there []Sharer
		for range r.IntN(min(gpus*of, 5)) {
			there = append(there, one())
		}
		kind := one()
		got := c.Slowed(there, kind, 1, of)
		want := tooSlow(c, append(there[:len(there):len(there)], kind), make([][]int, gpus), of, 0)
		if seen[want]++; (got != "") != want {
			t.Fatalf("%d GPUs of %d replicas, %v there, %v comes: %q, and too slow: %v; %v", gpus, of, there, kind, got,
				want, list)
		}
	}
	if seen[true] < 100 || seen[false] < 100 {
		t.Errorf("%v: too few of one kind", seen)
	}
}

// tooSlow tries all ways to put the rest of the pods on GPUs, and reports whether one of them
// is slower than it accepts in one.
func tooSlow(c *Company, pods []Sharer, on [][]int, of, next int) bool {
	if next == len(pods) {
		for _, group := range on {
			for _, i := range group {
				var others []string
				for _, k := range group {
					if k != i {
						others = append(others, pods[k].Model)
					}
				}
				if c.Among(pods[i].Model, others) < pods[i].Least {
					return true
				}
			}
		}
		return false
	}
	for g := range on {
		if len(on[g]) < of {
			on[g] = append(on[g], next)
			found := tooSlow(c, pods, on, of, next+1)
			on[g] = on[g][:len(on[g])-1]
			if found {
				return true
			}
		}
	}
	return false
}

// The worst company that is found is the worst that there is, also where pods take turns.
func TestWorst(t *testing.T) {
	r := rand.New(rand.NewPCG(2, 7))
	models := []string{"a", "b", "c", "d"}
	for range 500 {
		list := map[string]int64{}
		for _, x := range models {
			for _, y := range models {
				list[x+"/"+y] = 500_000 + r.Int64N(500_000)
			}
		}
		table := kubetest.Pairs(list)
		table.Slicing = &perf.TimeSlicing{Switch: r.Int64N(50_000), Duty: map[string]int64{},
			Processes: map[string]int{}}
		for _, m := range models[:1+r.IntN(4)] {
			table.Slicing.Duty[m], table.Slicing.Processes[m] = 1+r.Int64N(1_000_000), 1+r.IntN(3)
		}
		c := &Company{table: perf.Belief{Model: table}, turns: perf.Belief{Model: table}}
		var others []Sharer
		for range 1 + r.IntN(7) {
			others = append(others, Sharer{Model: models[r.IntN(4)]})
		}
		most, worst := 1+r.IntN(4), int64(PPM)
		for mask := range 1 << len(others) {
			var names []string
			for i := range others {
				if mask>>i&1 == 1 {
					names = append(names, others[i].Model)
				}
			}
			if len(names) <= most {
				worst = min(worst, c.Among("a", names))
			}
		}
		if got := c.worst("a", others, most); got != worst {
			t.Fatalf("at most %d of %v: %d, and %d is possible; %+v", most, others, got, worst, table.Slicing)
		}
	}
}
