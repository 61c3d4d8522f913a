package solve

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"gonum.org/v1/gonum/mat"
	"gonum.org/v1/gonum/optimize/convex/lp"

	"github.com/muster-gpu/muster/internal/shared"
)

// oracle solves the program of MaxMin, or with value that of Most, by a general simplex with
// variables x, t and the slacks of rows, times and types.
func oracle(t *testing.T, s *Shares, rate, least, value []float64) float64 {
	t.Helper()
	n, k := len(s.GPUs), len(s.Capacity)
	vars, T := n*k+1+2*n+k, n*k
	A, b, c := mat.NewDense(2*n+k, vars, nil), make([]float64, 2*n+k), make([]float64, vars)
	for i := range n {
		for j := range k {
			A.Set(i, i*k+j, rate[i*k+j])
			A.Set(n+i, i*k+j, 1)
			A.Set(2*n+j, i*k+j, s.GPUs[i])
		}
		if value == nil {
			A.Set(i, T, -1)
		} else {
			b[i] = least[i]
		}
		A.Set(i, T+1+i, -1)
		A.Set(n+i, T+1+n+i, 1)
		b[n+i] = 1
	}
	for j := range k {
		A.Set(2*n+j, T+1+2*n+j, 1)
		b[2*n+j] = s.Capacity[j]
	}
	if value == nil {
		c[T] = -1
	}
	for ij, v := range value {
		c[ij] = -v
	}
	if value != nil { // no t
		A.Set(0, T, -1)
		c[T] = 1
	}
	opt, _, err := lp.Simplex(c, A, b, 1e-10, nil)
	if errors.Is(err, lp.ErrInfeasible) {
		return math.NaN()
	}
	if err != nil {
		t.Skipf("the oracle gave up: %v", err)
	}
	return -opt
}

// random draws a program; some jobs cannot use some types.
func random(r *rand.Rand, n, k int) (*Shares, []float64) {
	s := &Shares{}
	for range n {
		s.GPUs = append(s.GPUs, []float64{1, 1, 1, 2, 4, 0.5}[r.IntN(6)])
	}
	for range k {
		s.Capacity = append(s.Capacity, float64(1+r.IntN(2*n)))
	}
	rate := make([]float64, n*k)
	for i := range rate {
		if rate[i] = math.Exp(1.5 * r.NormFloat64()); i%k != 0 && r.IntN(8) == 0 {
			rate[i] = 0
		}
	}
	return s, rate
}

// feasible fails unless the shares satisfy the constraints.
func feasible(t *testing.T, s *Shares, x []float64) {
	t.Helper()
	k := len(s.Capacity)
	used := make([]float64, k)
	for i, g := range s.GPUs {
		sum := 0.0
		for j := range k {
			if x[i*k+j] < 0 {
				t.Fatalf("job %d has %g of type %d", i, x[i*k+j], j)
			}
			sum += x[i*k+j]
			used[j] += g * x[i*k+j]
		}
		if sum > 1+1e-9 {
			t.Fatalf("job %d has %g of its time", i, sum)
		}
	}
	for j, u := range used {
		if u > s.Capacity[j]*(1+1e-9) {
			t.Fatalf("type %d gives %g of %g", j, u, s.Capacity[j])
		}
	}
}

func near(a, b, to float64) bool { return math.Abs(a-b) <= to*max(1, math.Abs(a), math.Abs(b)) }

// asSimplex checks that MaxMin finds the simplex' level.
func asSimplex(t *testing.T, seed uint64, s *Shares, rate []float64) {
	t.Helper()
	got, x, err := s.MaxMin(rate)
	if err != nil {
		t.Fatalf("seed %d: %v", seed, err)
	}
	feasible(t, s, x)
	if want := oracle(t, s, rate, nil, nil); math.Abs(got-want) > 1e-6*want {
		t.Errorf("seed %d: %.9f, the simplex has %.9f", seed, got, want)
	}
}

func TestMaxMinIsTheOptimum(t *testing.T) {
	for seed := range shared.Soak[uint64](250, 500) {
		r := rand.New(rand.NewPCG(seed, 1))
		s, rate := random(r, 1+r.IntN(12), 1+r.IntN(6))
		asSimplex(t, seed, s, rate)
	}
}

// busy draws a program as policy gavel makes it: rates relative to those with an equal part of
// everything, more or fewer GPUs than jobs request.
func busy(r *rand.Rand, n, k int, load float64) (*Shares, []float64) {
	s, total := &Shares{}, 0.0
	for range n {
		s.GPUs = append(s.GPUs, []float64{1, 1, 1, 1, 1, 1, 2, 4, 8}[r.IntN(9)])
		total += s.GPUs[len(s.GPUs)-1]
	}
	for range k {
		s.Capacity = append(s.Capacity, math.Ceil(total/float64(k)/load))
	}
	rate, part := make([]float64, n*k), s.Proportional()
	for i := range n {
		job := rate[i*k : (i+1)*k]
		for j := range job {
			job[j] = math.Pow(float64(j+1), 0.2+1.5*r.Float64()) * (0.9 + 0.2*r.Float64())
		}
		by := s.GPUs[i] / dot(part, job)
		for j := range job {
			job[j] *= by
		}
	}
	return s, rate
}

// Programs that are hard for the method: far more jobs than GPUs, jobs that are almost equal, rates
// over many orders of magnitude, types that no job can use or that have next to no GPUs.
func TestHardMaxMin(t *testing.T) {
	for seed := range shared.Soak[uint64](120, 240) {
		r := rand.New(rand.NewPCG(seed, 11))
		n, k := 1+r.IntN(14), 1+r.IntN(6)
		s, rate := busy(r, n, k, math.Exp(3*r.NormFloat64()))
		switch seed % 4 {
		case 0:
			for ij := range rate {
				rate[ij] = rate[ij%k] * (1 + 1e-9*r.Float64())
			}
		case 1:
			for ij := range rate {
				rate[ij] *= math.Pow(10, 6*r.Float64()-3)
			}
		case 2:
			s.Capacity[r.IntN(k)] = []float64{0, 1e-3}[r.IntN(2)]
			s.Capacity[r.IntN(k)] = 1
		}
		asSimplex(t, seed, s, rate)
	}
}

// Where the simplex would take too long, multipliers give an upper bound of the level: with sum f =
// 1 and h >= 0 it is at most sum_j W_j h_j + sum_i max_j (f_i a_ij - s_i h_j).
func TestManyJobs(t *testing.T) {
	for _, load := range []float64{0.3, 1, 1.5, 3, 10} {
		s, rate := busy(rand.New(rand.NewPCG(1, 1)), 3000, 6, load)
		level, x, err := s.MaxMin(rate)
		if err != nil {
			t.Fatalf("load %g: %v", load, err)
		}
		feasible(t, s, x)
		p := s.program(func(int) bool { return true })
		for i := range p.row {
			p.row[i], p.b[i] = true, 1
		}
		p.a, p.gain = rate, 1
		q := newInterior(p)
		q.run()
		f := 0.0
		for i := range q.parts {
			f += q.parts[i].f
		}
		bound := 0.0
		for j := range q.kinds {
			bound += s.Capacity[j] * q.kinds[j].h / f
		}
		for i := range q.parts {
			most := 0.0
			for j := range 6 {
				most = max(most, (q.parts[i].f*rate[i*6+j]-s.GPUs[i]*q.kinds[j].h)/f)
			}
			bound += most
		}
		if level < bound*(1-1e-6) {
			t.Errorf("load %g: %.9f, the bound is %.9f", load, level, bound)
		}
	}
}

func TestMostIsTheOptimum(t *testing.T) {
	infeasible := 0
	for seed := range shared.Soak[uint64](250, 500) {
		r := rand.New(rand.NewPCG(seed, 2))
		s, speed := random(r, 1+r.IntN(10), 1+r.IntN(4))
		n, k := len(s.GPUs), len(s.Capacity)
		value, least := make([]float64, n*k), make([]float64, n)
		for ij := range value {
			value[ij] = speed[ij] / float64(1+r.IntN(4))
		}
		for i := range least {
			if r.IntN(2) == 0 {
				least[i] = r.Float64() * speed[i*k]
			}
		}
		want := oracle(t, s, speed, least, value)
		got, x, err := s.Most(value, speed, least)
		if unsolvable(t, seed, want, err) {
			infeasible++
			continue
		}
		feasible(t, s, x)
		if !near(got, want, 1e-6) {
			t.Errorf("seed %d: %.9f, the simplex has %.9f", seed, got, want)
		}
	}
	if infeasible < 10 || infeasible > 200 {
		t.Errorf("%d of 300 programs are infeasible: the test is lopsided", infeasible)
	}
}

func wants(t *testing.T, what string, got []float64, to float64, want ...float64) {
	t.Helper()
	for i := range want {
		if !near(got[i], want[i], to) {
			t.Errorf("%s: %.6f, want %v", what, got, want)
			return
		}
	}
}

// Vectors 1, 2, 3 and 5 of Gavel (OSDI'20), and those of its simulator.
func TestVectors(t *testing.T) {
	two := func(n int) *Shares {
		return &Shares{GPUs: slices.Repeat([]float64{1}, n), Capacity: []float64{1, 1}}
	}
	level, x, err := two(3).MaxMin([]float64{4 / 2.5, 1 / 2.5, 1, 1, 1, 1})
	if err != nil {
		t.Fatal(err)
	}
	part := two(3).Proportional()
	wants(t, "vector 1, speeds with equal parts", []float64{dot([]float64{4, 1}, part), dot([]float64{1, 1}, part)},
		1e-12, 2.5, 1)
	wants(t, "vector 1", append([]float64{level}, x[:2]...), 1e-6, 16.0/21, 10.0/21, 0)
	levels, _, err := two(2).WaterFill([]float64{1.6, 0.4, 1, 1}, []float64{1, 1})
	if err != nil {
		t.Fatal(err)
	}
	wants(t, "vector 2", levels, 1e-5, 1.6, 1)
	span, x, err := two(2).Makespan([]float64{4, 1, 1, 1}, []float64{8, 2})
	if err != nil {
		t.Fatal(err)
	}
	wants(t, "vector 3", append([]float64{span}, x...), 1e-5, 2, 1, 0, 0, 1)
	wants(t, "vector 5", two(2).Isolated(), 1e-12, 0.5, 0.5, 0.5, 0.5)
	level, x, err = two(3).MaxMin([]float64{1.6, 0.4, 4.0 / 3, 2.0 / 3, 1, 1})
	if err != nil {
		t.Fatal(err)
	}
	wants(t, "Gavel's simulator, three jobs", append([]float64{level}, x...), 1e-6, 0.8, 0.5, 0, 0.5, 0.2, 0, 0.8)
	four := &Shares{GPUs: []float64{1, 1, 1, 1}, Capacity: []float64{1, 1, 1}}
	level, x, err = four.MaxMin(slices.Repeat([]float64{1}, 12))
	if err != nil {
		t.Fatal(err)
	}
	wants(t, "Gavel's simulator, four equal jobs", append([]float64{level}, x...), 1e-6,
		append([]float64{0.75}, slices.Repeat([]float64{0.25}, 12)...)...)
}

// A job that is as fast on 1 GPU of one type as on any of 10 of the other: every division of its
// time is optimal. The centre maximises the product of all slacks, those of the types included.
func TestCentre(t *testing.T) {
	s := &Shares{GPUs: []float64{1}, Capacity: []float64{1, 10}}
	_, x, err := s.MaxMin([]float64{1, 1})
	if err != nil {
		t.Fatal(err)
	}
	best, where := 0.0, 0.0
	for y := 0.0001; y < 1; y += 0.0001 {
		if p := y * (1 - y) * (1 - y) * (10 - (1 - y)); p > best {
			best, where = p, y
		}
	}
	wants(t, "centre", x, 1e-3, where, 1-where)
}

// The levels of water filling cannot be raised for any job: if no job with an equal or lower rate
// loses, the job gains nothing.
func TestWaterFillLeavesNothing(t *testing.T) {
	for seed := range uint64(40) {
		r := rand.New(rand.NewPCG(seed, 3))
		s, rate := random(r, 2+r.IntN(5), 1+r.IntN(3))
		n, k := len(s.GPUs), len(s.Capacity)
		weight := make([]float64, n)
		for i := range weight {
			weight[i] = float64(1 + r.IntN(3))
		}
		level, x, err := s.WaterFill(rate, weight)
		if err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
		feasible(t, s, x)
		for i := range n {
			least, value := make([]float64, n), make([]float64, n*k)
			for m := range n {
				if level[m]/weight[m] <= level[i]/weight[i]*(1+1e-4) {
					least[m] = level[m] * (1 - 1e-5)
				}
			}
			copy(value[i*k:(i+1)*k], rate[i*k:(i+1)*k])
			if most := oracle(t, s, rate, least, value); most > level[i]*(1+1e-2) {
				t.Errorf("seed %d: job %d has %g, and could have %g (levels %v)", seed, i, level[i], most, level)
			}
		}
	}
}

// The shares reach the finish-time fairness found, and no smaller one is possible.
func TestFinishTime(t *testing.T) {
	for seed := range shared.Soak[uint64](50, 100) {
		r := rand.New(rand.NewPCG(seed, 4))
		s, speed := random(r, 1+r.IntN(8), 1+r.IntN(4))
		n, k := len(s.GPUs), len(s.Capacity)
		left, age, alone := make([]float64, n), make([]float64, n), make([]float64, n)
		for i := range n {
			left[i], age[i] = math.Exp(8*r.Float64()), 1000*r.Float64()
			alone[i] = 10 + 1000*r.Float64()
		}
		rho, x, err := s.FinishTime(speed, left, age, alone)
		if err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
		feasible(t, s, x)
		rate := make([]float64, n*k)
		for i := range n {
			if got := (age[i] + left[i]/dot(speed[i*k:(i+1)*k], x[i*k:(i+1)*k])) / alone[i]; got > rho*(1+1e-6) {
				t.Errorf("seed %d: job %d has %g, more than %g", seed, i, got, rho)
			}
			for j := range k {
				rate[i*k+j] = max(0, speed[i*k+j]*(rho*(1-1e-4)*alone[i]-age[i])/left[i])
			}
		}
		if level, _, err := s.MaxMin(rate); err == nil && level >= 1 {
			t.Errorf("seed %d: a finish-time fairness of 0.9999 x %g is possible", seed, rho)
		}
	}
}

// Multiplying all rates by a number does not change the shares; an additional GPU never lowers the
// level, an additional job never raises it.
func TestMaxMinMoves(t *testing.T) {
	for seed := range shared.Soak[uint64](25, 50) {
		r := rand.New(rand.NewPCG(seed, 5))
		s, rate := random(r, 2+r.IntN(8), 1+r.IntN(4))
		n, k := len(s.GPUs), len(s.Capacity)
		level, x, err := s.MaxMin(rate)
		if err != nil {
			t.Fatal(err)
		}
		thrice := make([]float64, len(rate))
		for i := range rate {
			thrice[i] = 3 * rate[i]
		}
		l3, x3, err := s.MaxMin(thrice)
		if err != nil {
			t.Fatal(err)
		}
		wants(t, "three times the rates", append([]float64{l3}, x3...), 1e-4, append([]float64{3 * level}, x...)...)
		more := &Shares{GPUs: s.GPUs, Capacity: slices.Clone(s.Capacity)}
		more.Capacity[r.IntN(k)]++
		if l, _, _ := more.MaxMin(rate); l < level*(1-1e-6) {
			t.Errorf("seed %d: a GPU more, and the level falls from %g to %g", seed, level, l)
		}
		fewer := &Shares{GPUs: s.GPUs[:n-1], Capacity: s.Capacity}
		if l, _, _ := fewer.MaxMin(rate[:(n-1)*k]); l < level*(1-1e-6) {
			t.Errorf("seed %d: a job less, and the level falls from %g to %g", seed, level, l)
		}
	}
}

func TestRefused(t *testing.T) {
	one := &Shares{GPUs: []float64{1}, Capacity: []float64{1}}
	for _, c := range []struct {
		s    *Shares
		rate []float64
		want string
	}{
		{&Shares{Capacity: []float64{1}}, nil, "0 jobs and 1 types"},
		{one, []float64{1, 2}, "want 1"},
		{one, []float64{math.NaN()}, "job 0 has rate NaN on type 0"},
		{one, []float64{0}, "on no type"},
		{&Shares{GPUs: []float64{0}, Capacity: []float64{1}}, []float64{1}, "takes 0 GPUs"},
		{&Shares{GPUs: []float64{1}, Capacity: []float64{-1}}, []float64{1}, "type 0 has -1 GPUs"},
	} {
		if _, _, err := c.s.MaxMin(c.rate); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%v: %v, want %s", c.rate, err, c.want)
		}
	}
	if _, _, err := one.Makespan([]float64{1}, []float64{0}); err == nil ||
		!strings.Contains(err.Error(), "0 work left") {
		t.Errorf("no work: %v", err)
	}
}

// All jobs differ: with enough GPUs of some type for all, and with three times too few.
func BenchmarkMaxMin(b *testing.B) {
	for _, c := range [][2]int{{100, 3}, {1000, 3}, {10_000, 6}} {
		run := func(name string, s *Shares, rate []float64) {
			b.Run(fmt.Sprintf("%s/%dx%d", name, c[0], c[1]), func(b *testing.B) {
				b.ReportAllocs()
				for b.Loop() {
					if _, _, err := s.MaxMin(rate); err != nil {
						b.Fatal(err)
					}
				}
			})
		}
		s, rate := random(rand.New(rand.NewPCG(1, 1)), c[0], c[1])
		run("idle", s, rate)
		s, rate = busy(rand.New(rand.NewPCG(1, 1)), c[0], c[1], 3)
		run("busy", s, rate)
	}
}

// unsolvable reports whether the oracle found no solution, and checks that the error agrees.
func unsolvable(t *testing.T, seed uint64, want float64, err error) bool {
	t.Helper()
	if math.IsNaN(want) {
		if !errors.Is(err, ErrInfeasible) {
			t.Errorf("seed %d: %v, want infeasible", seed, err)
		}
		return true
	}
	if err != nil {
		t.Fatalf("seed %d: %v", seed, err)
	}
	return false
}
