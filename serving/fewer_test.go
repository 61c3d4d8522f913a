package serving

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/internal/shared"
)

// kinds are kinds of services: what they do on a number of compute slices, and their greatest rate.
var kinds = []struct {
	name string
	most float64
	does func(r *rand.Rand, compute int, less float64) float64 // less: its rate on the next smaller instance
}{
	{"rising by chance", 150, func(r *rand.Rand, _ int, less float64) float64 { return less + 5 + 40*r.Float64() }},
	{"much faster on large instances", 150, func(r *rand.Rand, c int, _ float64) float64 {
		return float64(c*c) * (1 + 2*r.Float64())
	}},
	{"too large for half of the instances", 150, func(r *rand.Rand, c int, less float64) float64 {
		return (less + 5 + 40*r.Float64()) * float64(max(c/7, r.IntN(2)))
	}},
	{"at high rates", 600, func(r *rand.Rand, _ int, less float64) float64 { return less + 5 + 40*r.Float64() }},
	{"nearly in proportion", 150, func(r *rand.Rand, c int, _ float64) float64 {
		return 10 * float64(c) * (0.9 + 0.2*r.Float64())
	}},
	{"on one size only", 150, nil},
}

func randomKind(r *rand.Rand, kind, services int) (list []Service) {
	k := kinds[kind]
	for i := range services {
		by, less := map[int]float64{}, 0.0
		for _, c := range []int{1, 2, 3, 4, 7} {
			if k.does != nil {
				by[c] = k.does(r, c, less)
				less = max(less, by[c])
			}
		}
		if k.does == nil {
			c := []int{1, 2, 3, 4, 7}[r.IntN(5)]
			by[c] = float64(c) * (5 + 20*r.Float64())
		}
		s := measured(fmt.Sprint("s", i), 10+k.most*r.Float64(), by)
		if r.IntN(4) == 0 && by[7] > 0 {
			s.Latency = time.Duration(2*float64(time.Second)/max(by[3], by[7])) + 1 // small instances are too slow
		}
		list = append(list, s)
	}
	return list
}

// exchanged is the plan before the search for fewer GPUs.
func exchanged(m *cluster.GPUModel, services []Service) *planner {
	p := &planner{m: m, services: services, sizes: sizes(m, services), known: map[counts]int{},
		at: make([]int, len(services))}
	p.findLayouts()
	for k := range services {
		p.choices = append(p.choices, p.waysFor(k, 1))
	}
	p.fewest()
	return p
}

// How far plans are from the fewest GPUs: by compute slices, and by exhaustive search (go test ./serving -run
// TestFewest -v). The search never makes a plan worse, and decides all of these plans.
func TestFewest(t *testing.T) {
	plans, gaps, better, draws := 0, 0, 0, shared.Soak(12, 40)
	m := model(t, "H100-80GB")
	for kind := range kinds {
		for _, n := range []int{2, 4, 8, 12} {
			r := rand.New(rand.NewPCG(uint64(n), uint64(kind)))
			gap, saved := 0, 0
			if kind == 3 && n == 12 || n == 8 && shared.Soak(true, false) {
				continue // these take long
			}
			for range draws {
				services := randomKind(r, kind, n)
				p, err := Make(m, services, 1)
				if err != nil {
					t.Fatal(err)
				}
				checkPlan(t, m, p, services)
				before := exchanged(m, services)
				bound, was := boundOf(m, services), before.gpus(before.total())
				if p.GPUs > was || p.Least < bound || p.GPUs != p.Least {
					t.Errorf("%s: %d GPUs after a search, %d before; at least %d, by compute slices %d",
						kinds[kind].name, p.GPUs, was, p.Least, bound)
				}
				plans++
				if was > bound {
					gap++
				}
				saved += was - p.GPUs
			}
			t.Logf("%2d services %s: %d of %d plans above the bound by compute slices, the search saves %d GPUs", n,
				kinds[kind].name, gap, draws, saved)
			gaps, better = gaps+gap, better+saved
		}
	}
	t.Logf("%d plans, %d above the bound by compute slices, the search saves %d GPUs", plans, gaps, better)
	if gaps < draws/2 || better == 0 {
		t.Errorf("%d plans are above the bound, %d GPUs saved: this tries little", gaps, better)
	}
}

// boundOf is the fewest GPUs by compute slices.
func boundOf(m *cluster.GPUModel, services []Service) int {
	p := &planner{m: m, services: services, sizes: sizes(m, services)}
	sum := 0
	for k := range services {
		sum += p.leastCompute(k, services[k].Rate)
	}
	return (sum + m.Compute - 1) / m.Compute
}

// The search finds and proves the same as trying every multiset of instances, also where exchanging choices is
// not enough.
func TestFewerTwin(t *testing.T) {
	r := rand.New(rand.NewPCG(5, 6))
	m := model(t, "H100-80GB")
	above := 0
	for i := range shared.Soak(400, 1500) {
		services := randomKind(r, []int{1, 2, 5, 5, 5}[i%5], 3)
		for k := range services {
			if i%5 < 2 {
				services[k].Rate = min(services[k].Rate, 25) // brute force is slow
			}
		}
		p, err := Make(m, services, 1)
		if err != nil || p.GPUs > 3 {
			continue
		}
		n, sure := bruteForce(m, services)
		if !sure {
			continue
		}
		if p.GPUs != n || p.Least != n {
			t.Errorf("%d GPUs, no plan below %d; %d suffice: %+v", p.GPUs, p.Least, n, services)
		}
		if p.GPUs > boundOf(m, services) {
			above++
		}
	}
	if above < shared.Soak(1, 3) {
		t.Errorf("only %d plans are above the bound by compute slices", above)
	}
}

// A search with too few tries proves nothing, and changes nothing.
func TestFewerCut(t *testing.T) {
	m := model(t, "H100-80GB")
	services := []Service{measured("a", 40, map[int]float64{3: 10}), measured("b", 4, map[int]float64{1: 4}),
		measured("c", 4, map[int]float64{1: 4})}
	p := exchanged(m, services)
	before := slices.Clone(p.at)
	if f := p.searching(p.gpus(p.total())-1, 1, 0); f.try(0, counts{}, 0) || !f.cut {
		t.Errorf("without a try: %+v", f)
	}
	if f := p.searching(p.gpus(p.total())-1, 1, mostTries); f.try(0, counts{}, 0) || f.cut {
		t.Errorf("with tries: %+v", f)
	}
	if least := p.improve(1); least != p.gpus(p.total()) || !slices.Equal(before, p.at) {
		t.Errorf("at least %d GPUs, chosen are %v, before %v", least, p.at, before)
	}
}
