package solve

import (
	"math"
	"math/rand/v2"
	"testing"

	"gonum.org/v1/gonum/mat"
	"gonum.org/v1/gonum/optimize/convex/lp"
)

// raise solves, by a general simplex, max t so that every job's rate is floor_i +
// weight_i t or more.
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

// filled is water filling by a program for every question: who cannot be raised alone,
// while nobody falls, is final.
func filled(t *testing.T, s *Shares, rate []float64, who *Entities) []float64 {
	t.Helper()
	n := len(s.GPUs)
	floor, final := make([]float64, n), make([]bool, n)
	for {
		weight, open := make([]float64, n), false
		for e, w := range who.Weight {
			var list []int
			for i := range n {
				if who.Of[i] == e && !final[i] && !(who.FIFO && len(list) == 1) {
					list = append(list, i)
				}
			}
			for _, i := range list {
				weight[i], open = w/float64(len(list)), true
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

func TestHierarchyIsWaterFilling(t *testing.T) {
	for seed := range uint64(40) {
		r := rand.New(rand.NewPCG(seed, 9))
		s, rate := random(r, 2+r.IntN(3), 1+r.IntN(3))
		who := &Entities{FIFO: seed%2 == 1}
		for range 1 + r.IntN(3) {
			who.Weight = append(who.Weight, float64(1+r.IntN(3)))
		}
		for range s.GPUs {
			who.Of = append(who.Of, r.IntN(len(who.Weight)))
		}
		level, x, err := s.Hierarchy(rate, who)
		if err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
		feasible(t, s, x)
		for i, want := range filled(t, s, rate, who) {
			if math.Abs(level[i]-want) > 2e-3*max(want, 1e-2) && !(who.FIFO && level[i] > want) {
				t.Errorf("seed %d (fifo %v): job %d of entity %d has %g, want %g", seed, who.FIFO, i, who.Of[i], level[i], want)
			}
		}
	}
}

// Two entities of weights 1 and 2 on one GPU: a third and two thirds. The second has
// two jobs, alike or one after the other; with six GPUs everybody has one.
func TestHierarchyByHand(t *testing.T) {
	s := &Shares{GPUs: []float64{1, 1, 1}, Capacity: []float64{1}}
	for _, c := range []struct {
		gpus float64
		fifo bool
		want []float64
	}{
		{1, false, []float64{1.0 / 3, 1.0 / 3, 1.0 / 3}}, {1, true, []float64{1.0 / 3, 2.0 / 3, 0}},
		{2, false, []float64{2.0 / 3, 2.0 / 3, 2.0 / 3}}, {1.8, true, []float64{0.6, 1, 0.2}}, {6, true, []float64{1, 1, 1}},
	} {
		s.Capacity[0] = c.gpus
		level, _, err := s.Hierarchy([]float64{1, 1, 1}, &Entities{Of: []int{0, 1, 1}, Weight: []float64{1, 2}, FIFO: c.fifo})
		if err != nil {
			t.Fatal(err)
		}
		wants(t, "levels", level, 1e-3, c.want...)
	}
	for _, bad := range []*Entities{{}, {Of: []int{0, 1, 2}, Weight: []float64{1, 1}}, {Of: []int{0, 0, 0}, Weight: []float64{0}}} {
		if _, _, err := s.Hierarchy([]float64{1, 1, 1}, bad); err == nil {
			t.Errorf("%v: taken", bad)
		}
	}
}
