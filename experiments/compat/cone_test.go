package compat

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/muster-gpu/muster/solve"
)

// Gavel's simulator, example 8: three jobs on two GPUs with a unique optimal division; and four
// equal jobs on three GPUs, which get the centre of all optimal ones.
func TestConeVectors(t *testing.T) {
	t.Parallel()
	near := func(name string, got, want []float64) {
		t.Helper()
		for i, v := range want {
			if math.Abs(got[i]-v) > 1e-6 {
				t.Errorf("%s: %v, want %v", name, got, want)
				return
			}
		}
	}
	jobs := make([]coneJob, 3)
	for i, a := range [][2]float64{{1.6, .4}, {4. / 3, 2. / 3}, {1, 1}} {
		jobs[i] = coneJob{gpus: 1, limit: [coneVars]float64{-a[0], -a[1]}}
	}
	x, ok := newConeProgram(jobs, []float64{1, 1}, false).solve()
	if !ok {
		t.Fatal("three jobs: no solution")
	}
	near("three jobs", x, []float64{.5, 0, .5, .2, 0, .8, -.8})
	alike := make([]coneJob, 4)
	for i := range alike {
		alike[i] = coneJob{gpus: 1, limit: [coneVars]float64{-1, -1, -1}}
	}
	if x, ok = newConeProgram(alike, []float64{1, 1, 1}, false).solve(); !ok {
		t.Fatal("four jobs: no solution")
	}
	near("four jobs", x, []float64{.25, .25, .25, .25, .25, .25, .25, .25, .25, .25, .25, .25, -.75})
}

// The solver's divisions are optimal: their values equal those of package solve, whose oracle is a
// simplex. All results stay within bounds.
func TestConeOptimum(t *testing.T) {
	t.Parallel()
	for seed := range uint64(200) {
		r := rand.New(rand.NewPCG(seed, 7))
		n, cones := 1+r.IntN(14), seed%2 == 1
		s := solve.Shares{Capacity: []float64{float64(1 + r.IntN(4)), float64(1 + r.IntN(4)), float64(1 + r.IntN(4))}}
		jobs, rate := make([]coneJob, n), make([]float64, 0, 3*n)
		left, age, alone := make([]float64, n), make([]float64, n), make([]float64, n)
		for i := range jobs {
			s.GPUs = append(s.GPUs, float64(int(1)<<r.IntN(3)))
			jobs[i].gpus = s.GPUs[i]
			left[i], age[i] = 1e3*math.Exp(6*r.Float64()), 1e4*r.Float64()
			alone[i] = (age[i]*r.Float64() + left[i]) * (1 + 3*r.Float64())
			for k := range 3 {
				v := math.Exp(4*r.Float64() - 1)
				rate = append(rate, v)
				if jobs[i].limit[k] = -v; cones {
					jobs[i].limit[k], jobs[i].speed[k] = 0, v
				}
			}
			if cones {
				jobs[i].limit[3], jobs[i].offset = left[i]/alone[i], age[i]/alone[i]
			}
		}
		want, _, err := s.MaxMin(rate)
		if want = -want; cones {
			want, _, err = s.FinishTime(rate, left, age, alone)
		}
		if err != nil {
			t.Fatal(err)
		}
		p := newConeProgram(jobs, s.Capacity, cones)
		x, ok := p.solve()
		if got := x[len(x)-1]; !ok || math.Abs(got-want) > 3e-6*math.Abs(want) {
			t.Errorf("seed %d, %d jobs: the value is %.9g (%t), want %.9g", seed, n, got, ok, want)
		}
		held := make([]float64, 3)
		for i := range jobs {
			own, sum := x[i*p.vars:(i+1)*p.vars], 0.0
			for k, v := range own[:3] {
				sum += v
				held[k] += jobs[i].gpus * v
				if v < -1e-7 {
					t.Errorf("seed %d: job %d has %g of a model", seed, i, v)
				}
			}
			if sum > 1+1e-6 {
				t.Errorf("seed %d: job %d has %g of its time", seed, i, sum)
			}
		}
		for k, v := range held {
			if v > s.Capacity[k]*(1+1e-6) {
				t.Errorf("seed %d: %g of %g GPUs of model %d are in use", seed, v, s.Capacity[k], k)
			}
		}
	}
}
