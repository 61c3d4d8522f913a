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
		cost, duty int64
		all        []Turns
		want       int64
	}{
		{0, Million, []Turns{{Million, 3}}, 333_333}, {20_000, Million, []Turns{{Million, 3}}, 320_000},
		{20_000, 350_000, []Turns{{350_000, 2}}, 980_392}, {0, 250_000, []Turns{{250_000, 4}}, Million},
		{50_000, Million, []Turns{{Million, 1}}, Million}, {50_000, 750_000, []Turns{{750_000, 2}}, 633_333},
		{100_000, Million, []Turns{{Million, 64}}, 0},
		// one that wants less than its part has it, and leaves the rest
		{0, 400_000, []Turns{{400_000, 1}, {Million, 1}}, Million},
		{0, Million, []Turns{{400_000, 1}, {Million, 1}}, 600_000},
		{50_000, Million, []Turns{{400_000, 1}, {Million, 1}}, 550_000},
		{0, Million, []Turns{{100_000, 2}, {300_000, 1}, {Million, 2}}, 266_666},
		{0, 300_000, []Turns{{100_000, 2}, {300_000, 1}, {Million, 2}}, 888_888},
	} {
		if got := Sliced(c.cost, c.duty, c.all); got != c.want {
			t.Errorf("one that wants %d among %v, cost %d: %d, want %d", c.duty, c.all, c.cost, got, c.want)
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
		{"beside any other", "B", Placement{Share: 500, Partners: []string{"x"}}, 900_000},
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

// An additional process speeds up no other, all together use no more than the GPU has and, where it is short, all that
// switching leaves; who wants less is not slower than who wants more.
func TestSlicedLaws(t *testing.T) {
	r := rand.New(rand.NewPCG(4, 4))
	for range 2000 {
		cost := r.Int64N(mostSwitch)
		var all []Turns
		last := []int64{}
		for range 8 {
			all = append(all, Turns{1 + r.Int64N(Million), 1})
			used, wanted := int64(0), int64(0)
			for i, p := range all {
				v := Sliced(cost, p.Duty, all)
				if i < len(last) && v > last[i] || v < 0 {
					t.Fatalf("%v at a cost of %d: %d, %d before", all, cost, v, last[i])
				}
				for _, o := range all[:i] {
					if w := Sliced(cost, o.Duty, all); o.Duty < p.Duty && w < v {
						t.Fatalf("%v at a cost of %d: %d is slower than %d", all, cost, o.Duty, p.Duty)
					}
				}
				used, wanted = used+v*p.Duty/Million, wanted+p.Duty
				last = append(last[:i:i], append([]int64{v}, last[min(i+1, len(last)):]...)...)
			}
			left := Million - cost*int64(len(all)-1)
			if used > Million || wanted > Million && used > left+8 {
				t.Fatalf("%v at a cost of %d: %d of the time is used", all, cost, used)
			}
		}
	}
}
