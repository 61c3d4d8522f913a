package serving

import (
	"fmt"
	"math"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"
)

// share is a service that was measured under MPS: a batch of b takes base and b times each,
// on less than the part full of a GPU longer in proportion.
func share(name string, rate float64, latency, base, each time.Duration, full float64, sizes ...int) Service {
	s := Service{Name: name, Rate: rate, Latency: latency}
	for _, p := range sizes {
		for b := 1; b <= 32; b++ {
			took := time.Duration((float64(base) + float64(each)*float64(b)) / min(1, float64(p)/100/full))
			s.Points = append(s.Points, Point{Percent: p, Batch: b, Processes: 1, Rate: float64(b) / took.Seconds(), Latency: took})
		}
	}
	return s
}

// F-gpulet-interference, saturated: half a GPU takes 4 ms and one more for each request of a
// batch; within 40 ms, of which a batch may take half, 16 go together: 800 a second.
func TestGpuletSaturatedVector(t *testing.T) {
	s := share("s", 1600, 40*time.Millisecond, 4*time.Millisecond, time.Millisecond, 0.5, GpuletSizes()...)
	c, err := newCarrier(model(t, "A100-80GB"), []Service{s}, &ShareOptions{Headroom: 1, Enough: 1})
	if err != nil {
		t.Fatal(err)
	}
	half := slices.Index(c.sizes, 50)
	if c.most[0][half] != 16 || math.Abs(c.saturated(0, half)-800) > 0.01 {
		t.Errorf("batches of %d, %v a second; want 16 and 800", c.most[0][half], c.saturated(0, half))
	}
	if c.knee(0) != half {
		t.Errorf("the knee is at %d, want 50: more than half a GPU is of no use", c.sizes[c.knee(0)])
	}
	p, err := MakeShares(model(t, "A100-80GB"), []Service{s}, ShareOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if p.GPUs != 1 || len(p.Gpulets) != 2 || p.Gpulets[0].Percent != 50 || p.Gpulets[1].Percent != 50 || p.Gpulets[0].Turns[0].Batch != 16 || p.Gpulets[0].Duty != 20*time.Millisecond {
		t.Errorf("%+v", p)
	}
}

// A residue gets the smallest size and on it the largest batch for which it collects and
// computes in time; its cycle is as long as that takes to collect.
func TestGpuletResidue(t *testing.T) {
	s := share("s", 200, 100*time.Millisecond, 4*time.Millisecond, time.Millisecond, 0.5, GpuletSizes()...)
	c, err := newCarrier(model(t, "A100-80GB"), []Service{s}, &ShareOptions{Headroom: 1, Enough: 1})
	if err != nil {
		t.Fatal(err)
	}
	l := c.lay(nil, 0, false)
	z := l.smallest(&piece{0, 200, -1, false})
	g, ok := l.alone(&piece{0, 200, -1, false}, z)
	// on 20 %: L(b) = (4 + b) * 2.5 ms; b / 200/s = 5 b ms: 12 take 60 and 40, and 13 would be late
	if !ok || c.sizes[z] != 20 || g.Turns[0].Batch != 12 || g.Duty != 60*time.Millisecond || g.Turns[0].Takes.Round(time.Microsecond) != 40*time.Millisecond {
		t.Errorf("%d %%: %+v", c.sizes[z], g)
	}
	if busy := g.Busy(); math.Abs(busy-40.0/60) > 1e-6 {
		t.Errorf("occupancy %v, want 40 of 60 ms", busy)
	}
}

// One request every two seconds that has to be answered within 50 ms: a batch is never full
// in time, so the cycle is as long as the promise allows, and others may be in it.
func TestGpuletRare(t *testing.T) {
	var list []Service
	for k := range 4 {
		list = append(list, share(fmt.Sprint("s", k), 0.5, 50*time.Millisecond, 4*time.Millisecond, time.Millisecond, 1, 100))
	}
	p, err := MakeShares(model(t, "T4"), list, ShareOptions{Sizes: []int{100}})
	if err != nil {
		t.Fatal(err)
	}
	if p.GPUs != 1 || len(p.Gpulets) != 1 || len(p.Gpulets[0].Turns) != 4 || p.Gpulets[0].Duty != 45*time.Millisecond {
		t.Errorf("%+v", p)
	}
	for k, s := range PlayShares(p, list, Even, 1, time.Minute) {
		if s.Requests == 0 || s.Late > 0 {
			t.Errorf("service %d: %+v", k, s)
		}
	}
}

// F-gpulet-interference: what is left below a bound is left out where that is asked for, and
// said to be.
func TestGpuletIgnore(t *testing.T) {
	s := share("s", 810, 40*time.Millisecond, 4*time.Millisecond, time.Millisecond, 0.5, GpuletSizes()...)
	for _, c := range []struct{ ignore, left, capacity float64 }{{0, 0, 810}, {15, 10, 800}} {
		p, err := MakeShares(model(t, "A100-80GB"), []Service{s}, ShareOptions{Ignore: c.ignore})
		if err != nil {
			t.Fatal(err)
		}
		if math.Abs(p.Ignored[0]-c.left) > 0.01 || p.Capacity[0] < c.capacity-0.01 {
			t.Errorf("ignoring %v: %+v", c.ignore, p)
		}
	}
}

// What is not known, and what cannot be, is said.
func TestGpuletErrors(t *testing.T) {
	good := share("s", 10, time.Second, time.Millisecond, time.Millisecond, 1, GpuletSizes()...)
	slow := share("s", 10, 3*time.Millisecond, time.Millisecond, time.Millisecond, 1, GpuletSizes()...)
	other := share("s", 10, time.Second, time.Millisecond, time.Millisecond, 1, 33)
	none := good
	none.Rate = 0
	many := good
	many.Rate = 9e8
	for _, c := range []struct {
		gpu  string
		s    Service
		o    ShareOptions
		want string
	}{
		{"A100-80GB", slow, ShareOptions{}, "takes half of 3ms"},
		{"A100-80GB", other, ShareOptions{}, "not measured on [20 40 50 60 80 100] per cent"},
		{"A100-80GB", none, ShareOptions{}, "rate 0"},
		{"A100-80GB", many, ShareOptions{}, "more than 100000"},
		{"A100-80GB", good, ShareOptions{Sizes: []int{30, 60}}, "size 30 leaves 70"},
		{"A100-80GB", good, ShareOptions{Sizes: []int{0, 100}}, "size 0"},
		{"P100-16GB", good, ShareOptions{}, "before Volta"},
	} {
		if _, err := MakeShares(model(t, c.gpu), []Service{c.s}, c.o); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%v, want %s", err, c.want)
		}
	}
}

// randomShares are services with random curves.
func randomShares(r *rand.Rand, most int) (list []Service) {
	for k := range 1 + r.IntN(most) {
		s := Service{Name: fmt.Sprint("s", k), Rate: []float64{1, 30, 300, 3000}[r.IntN(4)] * (0.2 + r.Float64()), Latency: time.Duration(20+r.IntN(400)) * time.Millisecond}
		base, each, bend := 0.5+5*r.Float64(), 0.1+2*r.Float64(), 0.3+0.7*r.Float64()
		for _, p := range GpuletSizes() {
			for b := 1; b <= 32; b *= 2 {
				ms := (base + each*float64(b)/min(1, float64(p)/100/bend)) * (1 + 0.05*r.Float64())
				s.Points = append(s.Points, Point{Percent: p, Batch: b, Processes: 1, Rate: float64(b) / ms * 1000, Latency: time.Duration(ms * 1e6)})
			}
		}
		for b := 1; b <= 32; b *= 4 {
			s.Uses = append(s.Uses, Use{b, r.Float64(), r.Float64()})
		}
		list = append(list, s)
	}
	return list
}

// checkShares says what a plan must be whatever it is for.
func checkShares(t *testing.T, p *SharePlan, services []Service) {
	t.Helper()
	sum, parts := make([]int, p.GPUs), make([]int, p.GPUs)
	for i := range p.Gpulets {
		g := &p.Gpulets[i]
		sum[g.GPU] += g.Percent
		parts[g.GPU]++
		if g.Busy() > 1 || g.Slower < 1 || g.Cycle() > g.Duty || len(g.Turns) == 0 {
			t.Errorf("gpulet %d: busy %v, slower %v, cycle %v of %v", i, g.Busy(), g.Slower, g.Cycle(), g.Duty)
		}
	}
	for i := range sum {
		if sum[i] > 100 || sum[i] < 1 || parts[i] > 2 {
			t.Errorf("GPU %d: %d %% in %d parts", i, sum[i], parts[i])
		}
	}
	whole := 0
	for k := range services {
		if p.Capacity[k] < services[k].Rate*(1-1e-6) {
			t.Errorf("service %d takes %v of %v", k, p.Capacity[k], services[k].Rate)
		}
		// nobody beside it: as many whole GPUs as it saturates, and one for the rest
		best := 0.0
		for _, pt := range services[k].Points {
			if pt.Percent == 100 && 2*max(pt.Latency, time.Duration(float64(pt.Batch)/pt.Rate*1e9)+1) <= services[k].Latency {
				best = max(best, pt.Rate)
			}
		}
		whole += int(math.Ceil(services[k].Rate / best))
	}
	if p.GPUs < p.Least || p.GPUs > whole {
		t.Errorf("%d GPUs, at least %d, without sharing %d", p.GPUs, p.Least, whole)
	}
	for k, s := range PlayShares(p, services, Even, 1, 5*time.Second) {
		if s.Late > 0 {
			t.Errorf("service %d of %v: %+v", k, services[k].Latency, s)
		}
	}
}

// Plans for random services keep what they promise, and are the same each time.
func TestGpuletRandom(t *testing.T) {
	r := rand.New(rand.NewPCG(7, 8))
	m := model(t, "A100-80GB")
	made := 0
	for range 300 {
		services := randomShares(r, 8)
		p, err := MakeShares(m, services, ShareOptions{})
		if err != nil {
			continue // too slow on a whole GPU
		}
		made++
		checkShares(t, p, services)
		if again, _ := MakeShares(m, services, ShareOptions{}); !reflect.DeepEqual(p, again) {
			t.Fatal("two plans for the same services")
		}
	}
	if made < 200 {
		t.Errorf("%d plans only", made)
	}
}
