package perf

import (
	"math/rand/v2"
	"testing"

	"github.com/muster-gpu/muster/cluster"
)

// NVIDIA's MPS documentation: of three always busy processes, two of A and one of B, A has two
// thirds of the GPU and B one third; switching takes its part; while there is time for all, only
// switching costs.
func TestSliced(t *testing.T) {
	for _, c := range []struct {
		cost      int64
		processes int
		duty      int64
		want      int64
	}{
		{0, 3, 3 * Million, 333_333}, {20_000, 3, 3 * Million, 320_000}, {20_000, 2, 700_000, 980_392},
		{0, 4, Million, Million},
		{50_000, 1, Million, Million}, {50_000, 2, 1_500_000, 633_333}, {100_000, 64, 64 * Million, 0},
	} {
		if got := Sliced(c.cost, c.processes, c.duty); got != c.want {
			t.Errorf("%d processes, %d ppm of the time, cost %d: %d, want %d", c.processes, c.duty, c.cost, got, c.want)
		}
	}
	table := &Table{Slicing: &TimeSlicing{Duty: map[string]int64{"A": Million, "B": Million, "*": 100_000},
		Processes: map[string]int{"A": 2}},
		Pairs: map[Pair]int64{{"*", "*"}: 777_777}}
	for _, c := range []struct {
		name  string
		model string
		p     Placement
		want  int64
	}{
		{"A beside B: its two processes had half each, and have a third", "A",
			Placement{Share: 500, Partners: []string{"B"}}, 666_666},
		{"B beside A", "B", Placement{Share: 500, Partners: []string{"A"}}, 333_333},
		{"however small its share is", "B", Placement{Share: 100, Partners: []string{"A"}}, 333_333},
		{"on whole GPUs, too", "B", Placement{Share: cluster.Whole, Partners: []string{"B", "B", "B"}}, 250_000},
		{"beside any other", "B", Placement{Share: 500, Partners: []string{"x"}}, 909_090},
		{"clients of MPS take no turns", "B", Placement{Share: 500, MPS: true, Partners: []string{"A"}}, 777_777},
		{"alone", "A", Placement{Share: 500}, Million},
	} {
		if got := table.Rate(&cluster.Job{Model: c.model}, c.p); got != c.want {
			t.Errorf("%s: %d, want %d", c.name, got, c.want)
		}
	}
	delete(table.Slicing.Duty, "*")
	if got := table.Rate(&cluster.Job{Model: "B"},
		Placement{Share: 500, Partners: []string{"A", "x"}}); got != 777_777*777_777/Million {
		t.Errorf("next to one that states nothing: %d", got)
	}
}

// An additional process speeds up no job, all together use no more than the whole GPU, and
// processes with equal turns get equal speed.
func TestSlicedLaws(t *testing.T) {
	r := rand.New(rand.NewPCG(4, 4))
	for range 2000 {
		cost, duty := r.Int64N(mostSwitch), int64(0)
		last, used := int64(Million), int64(0)
		for n := 1; n <= 8; n++ {
			duty += 1 + r.Int64N(Million)
			v := Sliced(cost, n, duty)
			if used = v * duty / Million; v > last || used > Million || v < 0 {
				t.Fatalf("%d processes that want %d at a cost of %d: %d each, %d before", n, duty, cost, v, last)
			}
			last = v
		}
	}
}
