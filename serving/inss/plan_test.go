package inss

import (
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"testing"
	"time"
)

func served(id int, each, fixed, sensitivity, cache, rate, goal float64) Service {
	return Service{Name: fmt.Sprint(id), Model: scaled(each, fixed, sensitivity, cache), Rate: rate,
		Goal: milliseconds(goal)}
}

// text is a plan as in the tables: 1:45/8 (45.8444) is service 1 on 45 % with batches of 8.
func text(p *Plan) string {
	var all []string
	for _, g := range p.GPUs {
		var list []string
		for _, x := range g {
			list = append(list, fmt.Sprintf("%s:%d/%d (%.4f)", x.Service, x.Percent, x.Batch, ms(x.Latency)))
		}
		all = append(all, strings.Join(list, " "))
	}
	return strings.Join(all, "; ")
}

// TestVectors: the cases W1 to W7, with the exhaustive optimum beside.
func TestVectors(t *testing.T) {
	for _, c := range []struct {
		name            string
		services        []Service
		solo            []int
		want            string
		gpus, total     int
		best, bestTotal int
	}{
		{"W1 settling raises both", []Service{served(1, 2, 0, .2, .5, 200, 60), served(2, 2, 0, .2, .5, 200, 60)},
			[]int{40, 40}, "1:45/4 (18.5778) 2:45/4 (18.5778)", 1, 90, 1, 90},
		{"W2 alone, not together", []Service{served(1, 2, 0, .2, .5, 250, 60), served(2, 2, 0, .2, .5, 250, 60)},
			[]int{50, 50}, "1:50/4 (16.0000); 2:50/4 (16.0000)", 2, 100, 2, 100},
		{"W3 strong interference", []Service{served(1, 1, 2, .5, .8, 300, 40), served(2, 1, 2, .5, .8, 300, 40),
			served(3, 1, 2, .1, .2, 100, 40)}, []int{45, 45, 20},
			"1:50/4 (12.3000) 3:25/2 (16.6400); 2:45/4 (13.3333)", 2, 120, 2, 120},
		{"W4 mixed", []Service{served(1, 2, 4, .3, .6, 150, 100), served(2, .5, 1, .2, .3, 400, 20),
			served(3, 1, 1, .4, .5, 100, 30), served(4, 3, 2, .2, .4, 60, 120)}, []int{45, 30, 20, 25},
			"1:45/8 (45.8444) 2:35/4 (9.0343); 4:25/2 (32.8000) 3:25/1 (8.3200)", 2, 130, 2, 130},
		{"W5 in order costs share", []Service{served(1, 1, 0, .2, .5, 500, 50), served(2, 1, 0, .2, .5, 450, 50),
			served(3, 1, 0, .2, .5, 350, 50), served(4, 1, 0, .2, .5, 300, 50), served(5, 1, 0, .2, .5, 200, 50)},
			[]int{50, 45, 35, 30, 20},
			"1:55/8 (15.1273) 3:40/8 (21.1000); 2:50/8 (16.5600) 4:35/4 (12.0000); 5:20/4 (20.0000)",
			3, 200, 3, 195},
		{"W6 three on a GPU", []Service{served(1, 1, 4, .3, .5, 120, 40), served(2, 1, 4, .3, .5, 120, 40),
			served(3, 2, 2, .3, .5, 80, 80), served(4, .5, 2, .2, .4, 200, 30), served(5, 1, 2, .2, .4, 150, 40),
			served(6, 2, 4, .4, .6, 60, 100)}, []int{40, 40, 25, 30, 30, 25},
			"1:40/2 (15.9000) 2:40/2 (15.9000); 4:35/2 (9.0686) 5:35/2 (12.0914) 3:30/2 (21.6800); 6:25/2 (32.0000)",
			3, 205, 3, 205},
		{"W7 impossible", []Service{served(1, 4, 10, .2, .5, 50, 12)}, []int{0}, "", 0, 0, 0, 0},
	} {
		p, err := newPlanner(&GPU{}, c.services, Options{})
		if err != nil || !slices.Equal(p.solo, c.solo) {
			t.Errorf("%s: alone %v, want %v (%v)", c.name, p.solo, c.solo, err)
		}
		plan, err := Make(&GPU{}, c.services, Options{})
		if err != nil {
			t.Fatal(err)
		}
		if got := text(plan); got != c.want || plan.Used() != c.gpus || plan.Percent() != c.total {
			t.Errorf("%s: %d GPUs, %d %%: %s\nwant %s", c.name, plan.Used(), plan.Percent(), got, c.want)
		}
		if impossible := c.solo[0] == 0; impossible != (len(plan.Rejected) == 1) {
			t.Errorf("%s: rejected %v", c.name, plan.Rejected)
		}
		if c.solo[0] == 0 {
			continue
		}
		if gpus, total := p.optimum(); gpus != c.best || total != c.bestTotal {
			t.Errorf("%s: the optimum is %d GPUs and %d %%, want %d and %d", c.name, gpus, total, c.best, c.bestTotal)
		}
	}
}

// optimum is the fewest GPUs, and on those the least total share, of all ways to group services and all shares.
func (p *planner) optimum() (gpus, total int) {
	n := len(p.services)
	share := make([]int, 1<<n) // by set of services: the least share with which they fit on a GPU; 0: they do not
	for set := 1; set < 1<<n; set++ {
		var list []resident
		for k := range n {
			if set>>k&1 == 1 {
				list = append(list, resident{k: k})
			}
		}
		if len(list) <= p.o.Services {
			share[set] = p.leastShare(list, 0, whole, 0)
		}
	}
	fewest, least := make([]int, 1<<n), make([]int, 1<<n)
	for set := 1; set < 1<<n; set++ {
		fewest[set] = math.MaxInt
		for sub := set; sub > 0; sub = (sub - 1) & set {
			rest := set &^ sub
			if share[sub] == 0 || fewest[rest] == math.MaxInt {
				continue
			}
			g, s := fewest[rest]+1, least[rest]+share[sub]
			if g < fewest[set] || g == fewest[set] && s < least[set] {
				fewest[set], least[set] = g, s
			}
		}
	}
	return fewest[1<<n-1], least[1<<n-1]
}

func (p *planner) leastShare(list []resident, i, room, best int) int {
	if i == len(list) {
		for j := range list {
			if b, _ := p.batch(list[j].k, list[j].percent, p.beside(list, j)); b == 0 {
				return best
			}
		}
		if sum := percent(list); best == 0 || sum < best {
			return sum
		}
		return best
	}
	for list[i].percent = p.solo[list[i].k]; list[i].percent <= room; list[i].percent += step {
		best = p.leastShare(list, i+1, room-list[i].percent, best)
	}
	return best
}

// TestOptimum: on 400 random cases of 3 to 5 services the planner never uses more GPUs than the optimum. In other
// 20,000 it was so as well; without regroup it used more in 26.
func TestOptimum(t *testing.T) {
	r := rand.New(rand.NewPCG(5, 6))
	cases, gpus, share := 0, 0, 0
	sum, bestSum := 0, 0
	most := 400
	if os.Getenv("MUSTER_SOAK") != "" {
		most = 20_000
	}
	for cases < most {
		var list []Service
		for k := range 3 + r.IntN(3) {
			list = append(list, served(k, 0.5+2*r.Float64(), 4*r.Float64(), 0.1+0.4*r.Float64(), 0.2+0.6*r.Float64(),
				float64(10*(5+r.IntN(30))), float64(10*(3+r.IntN(10)))))
		}
		p, err := newPlanner(&GPU{}, list, Options{})
		if err != nil {
			t.Fatal(err)
		}
		if slices.Contains(p.solo, 0) {
			continue
		}
		cases++
		plan, err := Make(&GPU{}, list, Options{})
		if err != nil {
			t.Fatal(err)
		}
		best, total := p.optimum()
		switch {
		case plan.Used() > best:
			gpus++
		case plan.Used() < best || plan.Percent() < total:
			t.Fatalf("%s is better than the optimum of %d GPUs and %d %%", text(plan), best, total)
		case plan.Percent() > total:
			share++
		}
		sum, bestSum = sum+plan.Percent(), bestSum+total
	}
	t.Logf("%d cases: more GPUs than the optimum in %d, more share in %d (%.2f %% more in all)", cases, gpus, share,
		100*(float64(sum)/float64(bestSum)-1))
	if gpus > 0 || float64(sum) > 1.02*float64(bestSum) {
		t.Error("too many")
	}
}

func randomServices(r *rand.Rand, n int) (list []Service) {
	for k := range n {
		list = append(list, Service{Name: fmt.Sprint(k), Model: randomModel(r), Rate: math.Exp(7*r.Float64() - 1),
			Goal: time.Duration(20+r.IntN(200)) * time.Millisecond})
	}
	return list
}

// check verifies what holds for every plan: shares, memory, and each service's goal next to what its neighbours do.
func check(t *testing.T, g *GPU, services []Service, o Options, plan *Plan) {
	t.Helper()
	p, err := newPlanner(g, services, o)
	if err != nil {
		t.Fatal(err)
	}
	seen := slices.Clone(plan.Rejected)
	for at, list := range plan.GPUs {
		var there []resident
		memory := int64(0)
		for i := range list {
			k := slices.IndexFunc(services, func(s Service) bool { return s.Name == list[i].Service })
			there = append(there, resident{k: k, percent: list[i].Percent})
			memory, seen = memory+services[k].Memory, append(seen, list[i].Service)
		}
		if percent(there) > whole || g.Memory > 0 && memory > g.Memory || len(there) > p.o.Services {
			t.Fatalf("GPU %d: %d services, %d %%, %d MiB", at, len(there), percent(there), memory)
		}
		for i := range list {
			// What neighbours do with the batches that they really have is no more than what was assumed.
			real := Load{}
			for j := range list {
				if j != i {
					real = real.plus(services[there[j].k].Load(list[j].Batch, float64(list[j].Percent)/whole))
				}
			}
			k := there[i].k
			took := services[k].Takes(g, list[i].Batch, float64(list[i].Percent)/whole, real)
			if took.Latency() > list[i].Latency || !p.meets(k, list[i].Batch, took) {
				t.Fatalf("GPU %d: %+v takes %v", at, list[i], took.Latency())
			}
		}
	}
	slices.Sort(seen)
	if len(slices.Compact(seen)) != len(services) || len(seen) != len(services) {
		t.Fatalf("%d services were planned, not %d", len(seen), len(services))
	}
	for k, x := range p.solo {
		if rejected := slices.Contains(plan.Rejected, services[k].Name); o.GPUs == 0 && rejected != (x == 0) {
			t.Fatalf("service %d needs %d %% alone; rejected: %v", k, x, rejected)
		}
	}
}

// TestInvariants: random services on random GPUs, with either way to meet goals.
func TestInvariants(t *testing.T) {
	r := rand.New(rand.NewPCG(7, 8))
	placed := 0
	for range 300 {
		g, list := randomGPU(r), randomServices(r, 1+r.IntN(20))
		o := Options{Half: r.IntN(2) == 0, Services: r.IntN(6)}
		plan, err := Make(&g, list, o)
		if err != nil {
			t.Fatal(err)
		}
		check(t, &g, list, o, plan)
		placed += len(list) - len(plan.Rejected)
	}
	if placed < 1000 {
		t.Errorf("only %d services were placed", placed)
	}
}

// TestMoreGPUs: with one GPU more no fewer requests are served.
func TestMoreGPUs(t *testing.T) {
	r := rand.New(rand.NewPCG(9, 10))
	for range 200 {
		g, list := randomGPU(r), randomServices(r, 5+r.IntN(15))
		before := 0.0
		for n := 1; n < 8; n++ {
			o := Options{GPUs: n}
			plan, err := Make(&g, list, o)
			if err != nil {
				t.Fatal(err)
			}
			check(t, &g, list, o, plan)
			rate := 0.0
			for k := range list {
				if !slices.Contains(plan.Rejected, list[k].Name) {
					rate += list[k].Rate
				}
			}
			if plan.Used() > n || rate < before-1e-6 {
				t.Fatalf("%v requests/s on %d GPUs, %v on one fewer", rate, n, before)
			}
			before = rate
		}
	}
}

// TestReplay: requests that come evenly are all answered within the goal. A batch is loaded when it is full, computed
// when it is loaded and the one before is done, and answered then.
func TestReplay(t *testing.T) {
	r := rand.New(rand.NewPCG(11, 12))
	played := 0
	for range 200 {
		g, list := randomGPU(r), randomServices(r, 1+r.IntN(12))
		plan, err := Make(&g, list, Options{})
		if err != nil {
			t.Fatal(err)
		}
		for _, there := range plan.GPUs {
			for i, x := range there {
				beside := Load{}
				for j, y := range there {
					if j != i {
						k := slices.IndexFunc(list, func(s Service) bool { return s.Name == y.Service })
						beside = beside.plus(list[k].Load(y.Batch, float64(y.Percent)/whole))
					}
				}
				s := &list[slices.IndexFunc(list, func(s Service) bool { return s.Name == x.Service })]
				took := s.Takes(&g, x.Batch, float64(x.Percent)/whole, beside)
				if worst := replay(s.Rate, x.Batch, took, 200); worst > s.Goal+time.Microsecond {
					t.Fatalf("%+v: a request took %v of %v", x, worst, s.Goal)
				}
				played++
			}
		}
	}
	t.Logf("%d services were played", played)
}

// replay is the longest time from a request's arrival to its answer.
func replay(rate float64, batch int, took Stages, batches int) (worst time.Duration) {
	var loaded, done time.Duration
	for n := range batches {
		first := milliseconds(float64(n*batch) / rate * 1e3)
		full := milliseconds(float64(n*batch+batch-1) / rate * 1e3)
		loaded = max(full, loaded) + took.Load
		done = max(loaded, done) + took.Execute + took.Return
		worst = max(worst, done-first)
	}
	return worst
}

// TestRare: a service with a request every two seconds needs no batches.
func TestRare(t *testing.T) {
	s := served(1, 2, 0, .2, .5, 0.5, 50)
	plan, err := Make(&GPU{}, []Service{s}, Options{})
	if err != nil || text(plan) != "1:10/1 (20.0000)" {
		t.Errorf("%s %v", text(plan), err)
	}
}

// TestReplicas: a GPU computes 500 requests a second. For 501, two replicas need 55 % each, and three 35 %.
func TestReplicas(t *testing.T) {
	for rate, want := range map[float64]int{400: 1, 500: 1, 501: 3, 1700: 4} {
		if n, err := Replicas(&GPU{}, served(1, 2, 0, .2, .5, rate, 60), Options{}); n != want || err != nil {
			t.Errorf("%v/s: %d replicas, want %d (%v)", rate, n, want, err)
		}
	}
	if n, err := Replicas(&GPU{}, served(1, 4, 10, .2, .5, 50, 12), Options{}); n != 0 || err != nil {
		t.Errorf("%d replicas of what is always too slow (%v)", n, err)
	}
}

func TestErrors(t *testing.T) {
	good := served(1, 2, 0, .2, .5, 100, 60)
	for want, change := range map[string]func(g *GPU, list []Service){
		"0 or more":           func(_ *GPU, list []Service) { list[0].Sensitivity = -1 },
		"of a GPU":            func(g *GPU, _ []Service) { g.Bus = math.NaN() },
		"slowest":             func(g *GPU, _ []Service) { g.Limit = 100 },
		"rate and goal":       func(_ *GPU, list []Service) { list[1].Rate = 0 },
		"two of this name":    func(_ *GPU, list []Service) { list[1].Name = "1" },
		`service "2": a numb`: func(_ *GPU, list []Service) { list[1].Activity.Each = math.Inf(1) },
	} {
		g, list := GPU{}, []Service{good, good}
		list[1].Name = "2"
		change(&g, list)
		if _, err := Make(&g, list, Options{}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %s", err, want)
		}
	}
}

// TestHalf: a batch of 2 fills in 20 ms. Of 36 ms it may take what is left, or half.
func TestHalf(t *testing.T) {
	for half, want := range map[bool]string{false: "1:40/2 (15.0000)", true: "1:35/2 (17.1429)"} {
		plan, err := Make(&GPU{}, []Service{served(1, 1, 4, .2, .5, 100, 36)}, Options{Half: half})
		if err != nil || text(plan) != want {
			t.Errorf("half %v: %s, want %s (%v)", half, text(plan), want, err)
		}
	}
}

// BenchmarkMake plans 1000 services, on about 300 GPUs.
func BenchmarkMake(b *testing.B) {
	r := rand.New(rand.NewPCG(15, 16))
	g, list := GPU{Memory: 81920, Bus: 1e10}, randomServices(r, 1000)
	for b.Loop() {
		plan, err := Make(&g, list, Options{})
		if err != nil {
			b.Fatal(err)
		}
		b.ReportMetric(float64(plan.Used()), "GPUs")
	}
}
