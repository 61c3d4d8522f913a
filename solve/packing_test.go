package solve

import (
	"errors"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"gonum.org/v1/gonum/mat"
	"gonum.org/v1/gonum/optimize/convex/lp"

	"github.com/muster-gpu/muster/internal/shared"
)

// packingOracle solves the program of single jobs, not of classes, by a general simplex: a variable
// for every job and every pair of jobs, on every type. It returns the largest t so that a job's
// rate is at least its class's floor plus weight times t; without weights the largest sum of rates,
// each divided by the price of its type. NaN: infeasible.
func packingOracle(t *testing.T, p *Packing, factor, floor, weight, price []float64) float64 {
	t.Helper()
	k := len(p.Capacity)
	var class []int
	for i, n := range p.Jobs {
		for range int(n) {
			class = append(class, i)
		}
	}
	n := len(class)
	type use struct {
		jobs []int
		kind int
		rate []float64
	}
	var uses []use
	for a, ca := range class {
		for j := range k {
			uses = append(uses, use{[]int{a}, j, []float64{p.Speed[ca*k+j]}})
			for b := a + 1; b < n; b++ {
				for _, u := range p.Pairs {
					if v := u.Speed; u.A == ca && u.B == class[b] && v[0][j] > 0 && v[1][j] > 0 {
						uses = append(uses, use{[]int{a, b}, j, []float64{v[0][j], v[1][j]}})
					}
				}
			}
		}
	}
	T, rows := len(uses), 2*n+k
	A, right, c := mat.NewDense(rows, T+1+rows, nil), make([]float64, rows), make([]float64, T+1+rows)
	for v, u := range uses {
		for m, job := range u.jobs {
			rate := u.rate[m] * factor[class[job]]
			if weight == nil {
				c[v] -= rate / price[u.kind]
			}
			A.Set(job, v, rate)
			A.Set(n+job, v, 1)
			A.Set(2*n+u.kind, v, p.GPUs[class[job]])
		}
	}
	for row := range rows {
		by := 1.0
		switch {
		case row < n:
			right[row], by = floor[class[row]], -1
			if weight != nil {
				A.Set(row, T, -weight[class[row]])
			}
		case row < 2*n:
			right[row] = 1
		default:
			right[row] = p.Capacity[row-2*n]
		}
		A.Set(row, T+1+row, by)
	}
	if c[T] = -1; weight == nil { // no t
		A.Set(n, T, 1)
		c[T] = 1
	}
	opt, _, err := lp.Simplex(c, A, right, 1e-10, nil)
	if errors.Is(err, lp.ErrInfeasible) {
		return math.NaN()
	}
	if err != nil {
		t.Skipf("the oracle gave up: %v", err)
	}
	return -opt
}

// each is n copies of v.
func each(n int, v float64) []float64 { return slices.Repeat([]float64{v}, n) }

// randomPacking draws classes of jobs; a job in a pair keeps 0.2 to 1 of its speed.
func randomPacking(r *rand.Rand, most int) (*Packing, []float64) {
	n, k := 1+r.IntN(most), 1+r.IntN(3)
	s, speed := random(r, n, k)
	p, factor := &Packing{Shares: *s, Speed: speed}, make([]float64, n)
	for i := range n {
		s.GPUs[i] = float64(1 + r.IntN(2))
		p.Jobs = append(p.Jobs, float64(1+r.IntN(3)))
		factor[i] = math.Exp(r.NormFloat64())
	}
	for a := range n {
		for b := a; b < n; b++ {
			if p.GPUs[a] != p.GPUs[b] || r.IntN(4) == 0 {
				continue
			}
			u := Pair{A: a, B: b}
			for m, i := range [2]int{a, b} {
				for j := range k {
					u.Speed[m] = append(u.Speed[m], speed[i*k+j]*(0.2+0.8*r.Float64()))
				}
			}
			if a == b {
				u.Speed[1] = u.Speed[0]
			}
			p.Pairs = append(p.Pairs, u)
		}
	}
	return p, factor
}

// within fails unless the shares stay within time and GPUs.
func within(t *testing.T, p *Packing, alone, together []float64) {
	t.Helper()
	k := len(p.Capacity)
	time, used := make([]float64, len(p.GPUs)), make([]float64, k)
	for ij, x := range alone {
		time[ij/k] += x / p.Jobs[ij/k]
		used[ij%k] += x * p.GPUs[ij/k]
	}
	for uj, x := range together {
		u := &p.Pairs[uj/k]
		time[u.A] += x / p.Jobs[u.A]
		time[u.B] += x / p.Jobs[u.B]
		used[uj%k] += x * p.GPUs[u.A]
	}
	for i, v := range time {
		if v > 1+1e-9 {
			t.Errorf("jobs of class %d have %g of their time", i, v)
		}
	}
	for j, v := range used {
		if v > p.Capacity[j]*(1+1e-9) {
			t.Errorf("type %d gives %g of %g", j, v, p.Capacity[j])
		}
	}
}

// Most work per price with pairs, and with minimum speeds for some classes.
func TestPackingMost(t *testing.T) {
	infeasible, gained, asked := 0, 0, 0
	for seed := range uint64(300) {
		r := rand.New(rand.NewPCG(seed, 12))
		p, _ := randomPacking(r, 5)
		n, k := len(p.GPUs), len(p.Capacity)
		one, least, price := each(n, 1), make([]float64, n), make([]float64, k)
		for j := range price {
			price[j] = 0.5 + 4*r.Float64()
		}
		if seed%3 > 0 {
			for i := range least {
				if r.IntN(2) == 0 {
					least[i] = 0.7 * r.Float64() * p.Speed[i*k]
				}
			}
		}
		want := packingOracle(t, p, one, least, nil, price)
		alone, together, err := p.Most(price, least)
		if unsolvable(t, seed, want, err) {
			infeasible++
			continue
		}
		within(t, p, alone, together)
		got := workPerPrice(p, price, alone, together)
		if !near(got, want, 1e-5) {
			t.Errorf("seed %d: %.9f, the simplex has %.9f", seed, got, want)
		}
		for i, v := range p.Rates(alone, together) {
			if v < least[i]*(1-1e-5) {
				t.Errorf("seed %d: class %d has %g, requires %g", seed, i, v, least[i])
			}
		}
		apart := *p
		apart.Pairs = nil
		if a, b, err := apart.Most(price, least); err == nil && got > 1.01*workPerPrice(&apart, price, a, b) {
			gained++
		}
		if slices.Max(least) > 0 {
			asked++
		}
	}
	if infeasible < 10 || gained < 30 || asked < 50 {
		t.Errorf("of 300 programs %d are infeasible, in %d pairs help, %d have deadlines: the test is lopsided",
			infeasible, gained, asked)
	}
}

// workPerPrice is the sum of all speeds, each divided by the price of the type.
func workPerPrice(p *Packing, price, alone, together []float64) (sum float64) {
	k := len(price)
	for ij, x := range alone {
		sum += x * p.Speed[ij] / price[ij%k]
	}
	for uj, x := range together {
		u := &p.Pairs[uj/k]
		sum += x * (u.Speed[0][uj%k] + u.Speed[1][uj%k]) / price[uj%k]
	}
	return sum
}

// Water filling over classes with pairs, compared with one program for every question.
func TestPackingHierarchy(t *testing.T) {
	helped := 0
	for seed := range shared.Soak[uint64](30, 60) {
		r := rand.New(rand.NewPCG(seed, 13))
		p, factor := randomPacking(r, 3)
		n := len(factor)
		entities := randomEntities(r, n, func(int) bool { return seed%3 == 0 })
		if seed%3 == 0 {
			p.Jobs = each(n, 1)
		}
		level, alone, together, err := p.Hierarchy(factor, entities)
		if err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
		within(t, p, alone, together)
		want := filledPairs(t, p, factor, entities)
		for i := range want {
			if math.Abs(level[i]-want[i]) > 2e-3*max(want[i], 1e-2) && !(seed%3 == 0 && level[i] > want[i]) {
				t.Errorf("seed %d (%+v): class %d has %g, want %g", seed, entities, i, level[i], want[i])
			}
		}
		apart := *p
		apart.Pairs = nil
		if alone, _, _, err := apart.Hierarchy(factor, entities); err == nil &&
			slices.Max(level) > 1.01*slices.Max(alone) {
			helped++
		}
	}
	if helped < 5 {
		t.Errorf("pairs help in %d of 60 programs: the test is lopsided", helped)
	}
}

// filledPairs is filled over classes.
func filledPairs(t *testing.T, p *Packing, factor []float64, entities *Entities) []float64 {
	t.Helper()
	n := len(factor)
	floor, final := make([]float64, n), make([]bool, n)
	for {
		weight, open := make([]float64, n), false
		for e := range entities.Weight {
			var list []int
			many := 0.0
			for i := range n {
				if entities.Of[i] == e && !final[i] && !(entities.FIFO[e] && len(list) == 1) {
					list, many = append(list, i), many+p.Jobs[i]
				}
			}
			for _, i := range list {
				weight[i], open = portion(entities, final, e)/many, true
			}
		}
		if !open {
			return floor
		}
		up := packingOracle(t, p, factor, floor, weight, nil)
		for i := range n {
			floor[i] = max(0, floor[i]+weight[i]*up*(1-1e-9)-1e-12)
		}
		for i := range n {
			one := make([]float64, n)
			if one[i] = 1; weight[i] > 0 && packingOracle(t, p, factor, floor, one, nil) < 1e-5*max(floor[i], 1e-3) {
				final[i] = true
			}
		}
	}
}

// The level is that of the program over all jobs and all pairs of jobs, and the shares stay within
// time and GPUs.
func TestPackingIsTheOptimum(t *testing.T) {
	gained, thin := 0, 0
	for seed := range shared.Soak[uint64](150, 300) {
		r := rand.New(rand.NewPCG(seed, 6))
		p, factor := randomPacking(r, 5)
		got, alone, together, err := p.MaxMin(factor)
		if err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
		within(t, p, alone, together)
		if want := packingOracle(t, p, factor, each(len(factor), 0), each(len(factor), 1),
			nil); math.Abs(got-want) > 1e-6*want {
			t.Errorf("seed %d: %.9f, the simplex has %.9f", seed, got, want)
		}
		sum := 0.0
		for i, v := range p.Rates(alone, together) {
			if v*factor[i] < got*(1-2e-5) {
				t.Errorf("seed %d: class %d has %g, below the level %g", seed, i, v*factor[i], got)
			}
			sum += v * factor[i] * p.Jobs[i]
		}
		if most := packingOracle(t, p, factor, each(len(factor), got*(1-1e-6)), nil,
			each(len(p.Capacity), 1)); sum < most*(1-1e-3) {
			thin++
			if sum < most*0.5 {
				t.Errorf("seed %d: %g is done, could be %g", seed, sum, most)
			}
		}
		apart := *p
		apart.Pairs = nil
		single, _, _, err := apart.MaxMin(factor)
		if err != nil || single > got*(1+1e-6) {
			t.Errorf("seed %d: %g without pairs, %v; with them %g", seed, single, err, got)
		}
		if got > single*1.01 {
			gained++
		}
	}
	if thin > 10 {
		t.Errorf("in %d of 300 programs the sum is not maximal", thin)
	}
	if gained < 50 {
		t.Errorf("pairs help in %d of 300 programs: the test is lopsided", gained)
	}
}

// Without pairs, and with every class of one job, it is the max-min program of Shares.
func TestPackingWithoutPairs(t *testing.T) {
	for seed := range shared.Soak[uint64](50, 100) {
		r := rand.New(rand.NewPCG(seed, 7))
		s, speed := random(r, 1+r.IntN(40), 1+r.IntN(6))
		p, one := &Packing{Shares: *s, Speed: speed}, make([]float64, len(s.GPUs))
		for i := range one {
			one[i] = 1
		}
		p.Jobs = one
		want, _, err := s.MaxMin(speed)
		if err != nil {
			t.Fatal(err)
		}
		got, _, _, err := p.MaxMin(one)
		if err != nil || math.Abs(got-want) > 1e-6*want {
			t.Errorf("seed %d: %.9f, %v; want %.9f", seed, got, err, want)
		}
	}
}

func TestPackingRefused(t *testing.T) {
	one := func() *Packing {
		return &Packing{Shares: Shares{GPUs: []float64{1, 2}, Capacity: []float64{1}}, Jobs: []float64{1, 1},
			Speed: []float64{1, 1}}
	}
	for what, spoil := range map[string]func(p *Packing, f []float64){
		"no jobs":   func(p *Packing, _ []float64) { p.Jobs[0] = 0 },
		"no factor": func(_ *Packing, f []float64) { f[1] = 0 },
		"unequal GPUs": func(p *Packing, _ []float64) {
			p.Pairs = []Pair{{A: 0, B: 1, Speed: [2][]float64{{1}, {1}}}}
		},
		"no such class": func(p *Packing, _ []float64) {
			p.Pairs = []Pair{{A: 0, B: 2, Speed: [2][]float64{{1}, {1}}}}
		},
		"speeds are missing": func(p *Packing, _ []float64) { p.Pairs = []Pair{{A: 0, B: 0}} },
		"a negative speed":   func(p *Packing, _ []float64) { p.Pairs = []Pair{{Speed: [2][]float64{{1}, {-1}}}} },
	} {
		p, f := one(), []float64{1, 1}
		spoil(p, f)
		if _, _, _, err := p.MaxMin(f); err == nil {
			t.Errorf("%s: taken", what)
		}
	}
	p := one()
	p.Speed[1] = 0
	if _, _, _, err := p.MaxMin([]float64{1, 1}); !errors.Is(err, ErrInfeasible) {
		t.Errorf("a class that can run nowhere: %v", err)
	}
}

// Without pairs, finish-time fairness is that of Shares; with pairs the returned shares reach it,
// and no smaller one is possible.
func TestPackingFinishTime(t *testing.T) {
	for seed := range shared.Soak[uint64](30, 60) {
		r := rand.New(rand.NewPCG(seed, 8))
		p, factor := randomPacking(r, 5)
		n := len(factor)
		left, age, own := make([]float64, n), make([]float64, n), make([]float64, n)
		for i := range n {
			left[i], age[i], own[i] = math.Exp(8*r.Float64()), 1000*r.Float64(), 10+1000*r.Float64()
		}
		rho, alone, together, err := p.FinishTime(left, age, own)
		if err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
		for i, z := range p.Rates(alone, together) {
			if got := (age[i] + left[i]/z) / own[i]; got > rho*(1+1e-4) {
				t.Errorf("seed %d: class %d has %g, more than %g", seed, i, got, rho)
			}
			factor[i] = max(1e-12, (rho*(1-1e-3)*own[i]-age[i])/left[i])
		}
		if want := packingOracle(t, p, factor, each(len(factor), 0), each(len(factor), 1), nil); want >= 1 {
			t.Errorf("seed %d: a finish-time fairness of 0.999 x %g is possible", seed, rho)
		}
	}
}

// Thirty classes of four jobs each, all of which may be paired, on three types.
func BenchmarkPacking(b *testing.B) {
	r := rand.New(rand.NewPCG(1, 1))
	s, speed := random(r, 30, 3)
	p, factor := &Packing{Shares: *s, Speed: speed}, make([]float64, 30)
	for i := range 30 {
		s.GPUs[i], factor[i], p.Jobs = 1, 1, append(p.Jobs, 4)
		for k := range i + 1 {
			u := Pair{A: k, B: i}
			for m, c := range [2]int{k, i} {
				for j := range 3 {
					u.Speed[m] = append(u.Speed[m], speed[c*3+j]*(0.4+0.6*r.Float64()))
				}
			}
			p.Pairs = append(p.Pairs, u)
		}
	}
	for b.Loop() {
		if _, _, _, err := p.MaxMin(factor); err != nil {
			b.Fatal(err)
		}
	}
}
