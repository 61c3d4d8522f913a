package solve

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"gonum.org/v1/gonum/mat"
	"gonum.org/v1/gonum/optimize/convex/lp"

	"github.com/muster-gpu/muster/internal/shared"
)

// raise solves, by a general simplex, max t so that every job's rate is at least floor_i + weight_i
// t.
func raise(t *testing.T, s *Shares, rate, floor, weight []float64) float64 {
	t.Helper()
	n, k := len(s.GPUs), len(s.Capacity)
	T, rows := n*k, 2*n+k
	A, b, c := mat.NewDense(rows, T+1+rows, nil), make([]float64, rows), make([]float64, T+1+rows)
	c[T] = -1
	for i := range n {
		for j := range k {
			A.Set(i, i*k+j, rate[i*k+j])
			A.Set(n+i, i*k+j, 1)
			A.Set(2*n+j, i*k+j, s.GPUs[i])
		}
		A.Set(i, T, -weight[i])
		b[i], b[n+i] = floor[i], 1
	}
	for j := range k {
		b[2*n+j] = s.Capacity[j]
	}
	for row := range rows {
		A.Set(row, T+1+row, map[bool]float64{true: -1, false: 1}[row < n])
	}
	opt, _, err := lp.Simplex(c, A, b, 1e-11, nil)
	if err != nil {
		t.Skipf("the oracle gave up: %v", err)
	}
	return -opt
}

// portion is entity e's part of the weight while some jobs are final: its own weight at the top
// level, else its share of its parent's portion, by weight among the siblings that have jobs which
// are not final.
func portion(entities *Entities, final []bool, e int) float64 {
	open := func(e int) bool {
		for i, of := range entities.Of {
			for ; of != e && of >= 0; of = entities.Parent[of] {
			}
			if of == e && !final[i] {
				return true
			}
		}
		return false
	}
	above := entities.Parent[e]
	if above < 0 {
		return entities.Weight[e]
	}
	all := 0.0
	for o, w := range entities.Weight {
		if entities.Parent[o] == above && open(o) {
			all += w
		}
	}
	return portion(entities, final, above) * entities.Weight[e] / all
}

// filled is water filling by one program per question: a job is final if it alone cannot be raised
// while no other falls.
func filled(t *testing.T, s *Shares, rate []float64, entities *Entities) []float64 {
	t.Helper()
	n := len(s.GPUs)
	floor, final := make([]float64, n), make([]bool, n)
	for {
		weight, open := make([]float64, n), false
		for e := range entities.Weight {
			var list []int
			for i := range n {
				if entities.Of[i] == e && !final[i] && !(entities.FIFO[e] && len(list) == 1) {
					list = append(list, i)
				}
			}
			for _, i := range list {
				weight[i], open = portion(entities, final, e)/float64(len(list)), true
			}
		}
		if !open {
			return floor
		}
		up := raise(t, s, rate, floor, weight)
		for i := range n {
			floor[i] = max(0, floor[i]+weight[i]*up*(1-1e-9)-1e-12)
		}
		for i := range n {
			one := make([]float64, n)
			if one[i] = 1; weight[i] > 0 && raise(t, s, rate, floor, one) < 1e-5*max(floor[i], 1e-3) {
				final[i] = true
			}
		}
	}
}

// randomEntities draws a forest: up to three at the top, each of which may have parts.
func randomEntities(r *rand.Rand, jobs int, fifo func(e int) bool) *Entities {
	entities := &Entities{}
	add := func(parent int) {
		entities.Parent = append(entities.Parent, parent)
		entities.Weight = append(entities.Weight, float64(1+r.IntN(3)))
		entities.FIFO = append(entities.FIFO, fifo(len(entities.FIFO)))
	}
	for range 1 + r.IntN(3) {
		add(-1)
	}
	leaves := []int{}
	for e := range len(entities.Weight) {
		if r.IntN(2) == 0 {
			leaves = append(leaves, e)
			continue
		}
		for range 1 + r.IntN(3) {
			leaves = append(leaves, len(entities.Weight))
			add(e)
		}
	}
	for range jobs {
		entities.Of = append(entities.Of, leaves[r.IntN(len(leaves))])
	}
	return entities
}

func TestHierarchyIsWaterFilling(t *testing.T) {
	nested := 0
	for seed := range shared.Soak[uint64](45, 90) {
		r := rand.New(rand.NewPCG(seed, 9))
		s, rate := random(r, 2+r.IntN(4), 1+r.IntN(3))
		entities := randomEntities(r, len(s.GPUs), func(e int) bool { return (seed+uint64(e)*(seed/3))%3 == 0 })
		if slices.Max(entities.Parent) >= 0 {
			nested++
		}
		level, x, err := s.Hierarchy(rate, entities)
		if err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
		feasible(t, s, x)
		for i, want := range filled(t, s, rate, entities) {
			if math.Abs(level[i]-want) > 2e-3*max(want, 1e-2) &&
				!(slices.Contains(entities.FIFO, true) && level[i] > want) {
				t.Errorf("seed %d (%+v): job %d has %g, want %g", seed, entities, i, level[i], want)
			}
		}
	}
	if nested < 30 {
		t.Errorf("%d of 90 forests have trees: the test is lopsided", nested)
	}
}

// Two entities of weights 1 and 2 on one GPU get a third and two thirds. The second has two jobs,
// served alike or in order; with six GPUs every job has one.
func TestHierarchyByHand(t *testing.T) {
	s := &Shares{GPUs: []float64{1, 1, 1}, Capacity: []float64{1}}
	for _, c := range []struct {
		gpus float64
		fifo bool
		want []float64
	}{
		{1, false, []float64{1.0 / 3, 1.0 / 3, 1.0 / 3}}, {1, true, []float64{1.0 / 3, 2.0 / 3, 0}},
		{2, false, []float64{2.0 / 3, 2.0 / 3, 2.0 / 3}}, {1.8, true, []float64{0.6, 1, 0.2}},
		{6, true, []float64{1, 1, 1}},
	} {
		s.Capacity[0] = c.gpus
		level, _, err := s.Hierarchy([]float64{1, 1, 1},
			&Entities{Of: []int{0, 1, 1}, Weight: []float64{1, 2}, Parent: []int{-1, -1},
				FIFO: []bool{!c.fifo, c.fifo}})
		if err != nil {
			t.Fatal(err)
		}
		wants(t, "levels", level, 1e-3, c.want...)
	}
	flat := func(weight ...float64) *Entities {
		return &Entities{Of: []int{0, 0, 0}, Weight: weight, Parent: slices.Repeat([]int{-1}, len(weight)),
			FIFO: make([]bool, len(weight))}
	}
	for what, spoil := range map[string]func(w *Entities){
		"no jobs":             func(w *Entities) { w.Of = nil },
		"no such entity":      func(w *Entities) { w.Of[2] = 2 },
		"no weight":           func(w *Entities) { w.Weight[0] = 0 },
		"part of a later one": func(w *Entities) { w.Parent[0] = 1 },
		"jobs beside parts":   func(w *Entities) { w.Parent[1] = 0 },
		"no orders":           func(w *Entities) { w.FIFO = nil },
	} {
		entities := flat(1, 1)
		spoil(entities)
		if _, _, err := s.Hierarchy([]float64{1, 1, 1}, entities); err == nil {
			t.Errorf("%s: taken", what)
		}
	}
}

// One entity has only jobs; the other has two parts of weights 1 and 3. On two GPUs the second gets
// one, of which its parts have a quarter and three quarters. When the job of one part can rise no
// further, the other part gets the rest, and then the first entity.
func TestHierarchyOfParts(t *testing.T) {
	s := &Shares{GPUs: []float64{1, 1, 1, 1}, Capacity: []float64{2}}
	entities := &Entities{Of: []int{0, 2, 3, 0}, Weight: []float64{1, 1, 1, 3}, Parent: []int{-1, -1, 1, 1}}
	entities.FIFO = make([]bool, 4)
	for _, c := range []struct{ gpus, a, b, c float64 }{{2, 0.5, 0.25, 0.75}, {3, 0.75, 0.5, 1}, {3.8, 0.95, 0.9, 1}} {
		s.Capacity[0] = c.gpus
		level, _, err := s.Hierarchy([]float64{1, 1, 1, 1}, entities)
		if err != nil {
			t.Fatal(err)
		}
		wants(t, "levels", level, 1e-3, c.a, c.b, c.c, c.a)
	}
}

// Water filling terminates for all inputs, even where floors leave the method hardly any room: no
// job has less than the max-min level.
func TestWaterFillEnds(t *testing.T) {
	for seed := range shared.Soak[uint64](20, 40) {
		r := rand.New(rand.NewPCG(seed, 99))
		s, rate := random(r, 1+r.IntN(120), 1+r.IntN(4))
		n := len(s.GPUs)
		level, x, err := s.WaterFill(rate, each(n, 1))
		if err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
		feasible(t, s, x)
		least, _, err := s.MaxMin(rate)
		if err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
		if got := slices.Min(level); got < least*(1-2e-3) {
			t.Errorf("seed %d: a job has %g, all could have %g", seed, got, least)
		}
		entities := randomEntities(r, n, func(int) bool { return r.IntN(4) == 0 })
		if _, x, err = s.Hierarchy(rate, entities); err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
		feasible(t, s, x)
	}
}
