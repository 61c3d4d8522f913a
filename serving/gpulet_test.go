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

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/internal/shared"
)

// share is a service measured under MPS: a batch of b takes base plus b times each, and proportionally longer on
// less than the part full of a GPU.
func share(name string, rate float64, latency, base, each time.Duration, full float64, sizes ...int) Service {
	s := Service{Name: name, Rate: rate, Latency: latency}
	for _, p := range sizes {
		for b := 1; b <= 32; b++ {
			took := time.Duration((float64(base) + float64(each)*float64(b)) / min(1, float64(p)/100/full))
			s.Points = append(s.Points,
				Point{Percent: p, Batch: b, Processes: 1, Rate: float64(b) / took.Seconds(), Latency: took})
		}
	}
	return s
}

// gpulet's example (ATC'22), saturated: half a GPU takes 4 ms and one more for each request of a batch; within
// 40 ms, of which a batch may take half, 16 go together: 800 a second.
func TestGpuletSaturatedVector(t *testing.T) {
	s := share("s", 1600, 40*time.Millisecond, 4*time.Millisecond, time.Millisecond, 0.5, GpuletSizes()...)
	c, err := newCarrier(model(t, "A100-80GB"), []Service{s}, &ShareOptions{Headroom: 1, Enough: 1})
	if err != nil {
		t.Fatal(err)
	}
	half := slices.Index(c.sizes, 50)
	if c.most[0][half] != 16 || math.Abs(c.full[0][half]-800) > 0.01 {
		t.Errorf("batches of %d, %v a second; want 16 and 800", c.most[0][half], c.full[0][half])
	}
	if c.knee(0) != half {
		t.Errorf("the knee is at %d, want 50: more than half a GPU is of no use", c.sizes[c.knee(0)])
	}
	p, err := MakeShares(model(t, "A100-80GB"), []Service{s}, ShareOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if p.GPUs != 1 || len(p.Gpulets) != 2 || p.Gpulets[0].Percent != 50 || p.Gpulets[1].Percent != 50 ||
		p.Gpulets[0].Turns[0].Batch != 16 || p.Gpulets[0].Duty != 20*time.Millisecond {
		t.Errorf("%+v", p)
	}
}

// A remainder gets the smallest size, and on it the largest batch that it fills and computes in time; its cycle
// is as long as filling it takes.
func TestGpuletResidue(t *testing.T) {
	s := share("s", 200, 100*time.Millisecond, 4*time.Millisecond, time.Millisecond, 0.5, GpuletSizes()...)
	c, err := newCarrier(model(t, "A100-80GB"), []Service{s}, &ShareOptions{Headroom: 1, Enough: 1})
	if err != nil {
		t.Fatal(err)
	}
	l := c.lay(nil, 0, false)
	z := l.smallest(&piece{0, 200, -1, false})
	g, ok := l.alone(&piece{0, 200, -1, false}, z)
	// On 20 %: L(b) = (4 + b) * 2.5 ms; b / 200/s = 5 b ms: 12 take 60 and 40, and 13 would be late.
	if !ok || c.sizes[z] != 20 || g.Turns[0].Batch != 12 || g.Duty != 60*time.Millisecond ||
		g.Turns[0].Takes.Round(time.Microsecond) != 40*time.Millisecond {
		t.Errorf("%d %%: %+v", c.sizes[z], g)
	}
	if busy := g.Busy(); math.Abs(busy-40.0/60) > 1e-6 {
		t.Errorf("occupancy %v, want 40 of 60 ms", busy)
	}
}

// One request every two seconds that has to be answered within 50 ms: a batch never fills in time, so the cycle
// is as long as the promise allows, and others may share it.
func TestGpuletRare(t *testing.T) {
	var list []Service
	for k := range 4 {
		list = append(list, share(fmt.Sprint("s", k), 0.5, 50*time.Millisecond, 4*time.Millisecond, time.Millisecond, 1,
			100))
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

// gpulet's option (ATC'22): a remainder below a bound is left out if that is asked for, and reported.
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

// A rate is planned however small it is compared with what a GPU can do.
func TestGpuletLittle(t *testing.T) {
	s := share("s", 0.001, time.Second, 0, 100*time.Nanosecond, 1, GpuletSizes()...)
	p, err := MakeShares(model(t, "A100-80GB"), []Service{s}, ShareOptions{})
	if err != nil || len(p.Gpulets) != 1 || p.Capacity[0] < s.Rate {
		t.Errorf("%+v %v", p, err)
	}
}

// A service that is to have whole GPUs gets them, however long its requests may take: next to another service
// none is counted as alone.
func TestGpuletPatient(t *testing.T) {
	var list []Service
	for _, name := range []string{"a", "b", "c"} {
		s := share(name, 0.001, 10*time.Hour, time.Microsecond, time.Microsecond, 1, GpuletSizes()...)
		s.Uses = []Use{{1, 1, 1}}
		list = append(list, s)
	}
	c, err := newCarrier(model(t, "A100-80GB"), list, &ShareOptions{Headroom: 1, Enough: 1})
	if err != nil {
		t.Fatal(err)
	}
	if err := c.slow(func(int) float64 { return onWhole }); err != nil {
		t.Fatal(err)
	}
	for k := range list {
		for z := range c.sizes[:len(c.sizes)-1] {
			if c.most[k][z] > 0 {
				t.Errorf("service %d: batches of %d on %d %%", k, c.most[k][z], c.sizes[z])
			}
		}
	}
}

// A time that cannot be represented is too slow, and does not overflow.
func TestGpuletNever(t *testing.T) {
	for _, rate := range []float64{1e-12, 1e-300} {
		s := Service{Name: "s", Rate: 1, Latency: time.Hour}
		for _, p := range GpuletSizes() {
			s.Points = append(s.Points,
				Point{Percent: p, Batch: 512, Processes: 1, Rate: rate, Latency: time.Millisecond})
		}
		if p, err := MakeShares(model(t, "A100-80GB"), []Service{s}, ShareOptions{}); err == nil ||
			!strings.Contains(err.Error(), "no measured batch takes half of") {
			t.Errorf("%v a second: %+v %v", rate, p, err)
		}
	}
	if d := longer(10000*time.Second, 1e9); d != never {
		t.Errorf("%v", d)
	}
}

// Unknown and impossible services and options are errors that say why.
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
		if _, err := MakeShares(model(t, c.gpu), []Service{c.s}, c.o); err == nil ||
			!strings.Contains(err.Error(), c.want) {
			t.Errorf("%v, want %s", err, c.want)
		}
	}
}

// randomShares are services with random curves.
func randomShares(r *rand.Rand, most int) (list []Service) {
	for k := range 1 + r.IntN(most) {
		s := Service{Name: fmt.Sprint("s", k), Rate: []float64{1, 30, 300, 3000}[r.IntN(4)] * (0.2 + r.Float64()),
			Latency: time.Duration(20+r.IntN(400)) * time.Millisecond}
		base, each, bend := 0.5+5*r.Float64(), 0.1+2*r.Float64(), 0.3+0.7*r.Float64()
		for _, p := range GpuletSizes() {
			for b := 1; b <= 32; b *= 2 {
				ms := (base + each*float64(b)/min(1, float64(p)/100/bend)) * (1 + 0.05*r.Float64())
				s.Points = append(s.Points,
					Point{Percent: p, Batch: b, Processes: 1, Rate: float64(b) / ms * 1000,
						Latency: time.Duration(ms * 1e6)})
			}
		}
		for b := 1; b <= 32; b *= 4 {
			s.Uses = append(s.Uses, Use{b, r.Float64(), r.Float64()})
		}
		list = append(list, s)
	}
	return list
}

// checkShares checks what every plan must fulfil.
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
		// Unshared: as many whole GPUs as it saturates, and one for the remainder.
		best := 0.0
		for _, pt := range services[k].Points {
			if pt.Percent == 100 &&
				2*max(pt.Latency, time.Duration(float64(pt.Batch)/pt.Rate*1e9)+1) <= services[k].Latency {
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
		if late := strictly(p, services, k, 5*time.Second); late > 0 {
			t.Errorf("service %d of %v: %d are late where every batch takes as long as a full one", k,
				services[k].Latency, late)
		}
	}
}

// strictly counts the late requests of a service with evenly spaced arrivals if each turn takes as long as a
// full batch whether it is full or not: the slowest that a plan allows.
func strictly(p *SharePlan, services []Service, k int, length time.Duration) (late int) {
	type turn struct {
		at, cycle, takes time.Duration
		batch            int
	}
	var turns []turn
	for i := range p.Gpulets {
		g, at := &p.Gpulets[i], time.Duration(0)
		for j := range g.Turns {
			takes := g.Takes(&g.Turns[j])
			if g.Turns[j].Service == k {
				turns = append(turns, turn{at, g.Cycle(), takes, g.Turns[j].Batch})
			}
			at += takes
		}
	}
	var waiting []time.Duration
	for n := 1; ; {
		next := 0
		for i := range turns {
			if turns[i].at < turns[next].at {
				next = i
			}
		}
		c := &turns[next]
		for ; ; n++ {
			at := time.Duration(math.Round(float64(n) / services[k].Rate * 1e9))
			if at > c.at || at >= length {
				break
			}
			waiting = append(waiting, at)
		}
		if len(waiting) == 0 && c.at >= length {
			return late
		}
		taken := min(len(waiting), c.batch)
		for _, came := range waiting[:taken] {
			if c.at+c.takes-came > services[k].Latency {
				late++
			}
		}
		waiting = waiting[taken:]
		c.at += c.cycle
	}
}

// Plans for random services keep their promises, and are deterministic.
func TestGpuletRandom(t *testing.T) {
	r := rand.New(rand.NewPCG(7, 8))
	m := model(t, "A100-80GB")
	made, draws := 0, shared.Soak(50, 300)
	for range draws {
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
	if made < draws*2/3 {
		t.Errorf("%d plans only", made)
	}
}

// linear is gpulet's model of interference with the given weights.
func linear(c ...float64) func(own, beside Use, share, besideShare float64) float64 {
	return func(own, beside Use, share, besideShare float64) float64 {
		return c[0]*share*own.Compute + c[1]*besideShare*beside.Compute + c[2]*share*own.Memory +
			c[3]*besideShare*beside.Memory + c[4]
	}
}

// gpulet's example (ATC'22) in a plan: two services on halves of a GPU, of which one uses .5 and .4 and the
// other .5 and .6: 1.255 times as long, and 1.245 the other way.
func TestGpuletInterferenceVector(t *testing.T) {
	a := share("a", 100, time.Second, 4*time.Millisecond, time.Millisecond, 0.5, 50, 100)
	b := share("b", 100, time.Second, 4*time.Millisecond, time.Millisecond, 0.5, 50, 100)
	a.Uses, b.Uses = []Use{{1, .5, .4}}, []Use{{1, .5, .6}}
	a.Rate, b.Rate = 700, 700
	p, err := MakeShares(model(t, "A100-80GB"), []Service{a, b},
		ShareOptions{Sizes: []int{50, 100}, Slower: linear(.1, .2, .3, .4, 1)})
	if err != nil {
		t.Fatal(err)
	}
	if p.GPUs != 1 || len(p.Gpulets) != 2 {
		t.Fatalf("%+v", p)
	}
	want := []float64{1.255, 1.245}
	for i := range p.Gpulets {
		if g := &p.Gpulets[i]; math.Abs(g.Slower-want[g.Turns[0].Service]) > 1e-9 {
			t.Errorf("service %d: %v, want %v", g.Turns[0].Service, g.Slower, want[g.Turns[0].Service])
		}
	}
	b.Uses = a.Uses // equal services slow each other down equally
	if p, err = MakeShares(model(t, "A100-80GB"), []Service{a, b},
		ShareOptions{Sizes: []int{50, 100}, Slower: linear(.1, .2, .3, .4, 1)}); err != nil ||
		p.Gpulets[0].Slower != p.Gpulets[1].Slower {
		t.Errorf("%+v %v", p, err)
	}
}

// Services that would be late because of interference are planned again; played with interference no request is
// late, and none is faster than alone. Ignoring interference would make some late.
func TestGpuletInterferenceRandom(t *testing.T) {
	r := rand.New(rand.NewPCG(9, 10))
	m := model(t, "A100-80GB")
	made, repeated, late, more := 0, 0, 0, 0
	for range 200 {
		services := randomShares(r, 7)
		slower := linear(r.Float64(), r.Float64(), r.Float64(), r.Float64(), 0.5+r.Float64())
		without, err := MakeShares(m, services, ShareOptions{})
		if err != nil {
			continue
		}
		p, err := MakeShares(m, services, ShareOptions{Slower: slower})
		if err != nil {
			t.Fatal(err)
		}
		made++
		checkShares(t, p, services)
		if p.Rounds > 1 {
			repeated++
		}
		if p.GPUs > without.GPUs {
			more++
		}
		ofTwo(without, services, slower)
		for _, s := range PlayShares(without, services, Even, 1, 2*time.Second) {
			late += s.Late
		}
		got := make([]float64, len(p.Gpulets))
		for i := range p.Gpulets {
			got[i] = p.Gpulets[i].Slower
		}
		ofTwo(p, services, slower)
		for i := range p.Gpulets {
			if p.Gpulets[i].Slower != got[i] {
				t.Errorf("gpulet %d is %v times as slow, want %v", i, got[i], p.Gpulets[i].Slower)
			}
		}
	}
	t.Logf("%d plans: %d were planned again, %d took more GPUs; without, %d requests are late",
		made, repeated, more, late)
	if made < 120 || repeated < 20 || late == 0 {
		t.Error("too few")
	}
}

// ofTwo is how much gpulets slow each other down, by the worst pair of services.
func ofTwo(p *SharePlan, services []Service, slower func(own, beside Use, share, besideShare float64) float64) {
	for i := range p.Gpulets {
		g := &p.Gpulets[i]
		g.Slower = 1
		for j := range p.Gpulets {
			o := &p.Gpulets[j]
			if i == j || o.GPU != g.GPU {
				continue
			}
			for _, a := range g.Turns {
				for _, b := range o.Turns {
					g.Slower = max(g.Slower,
						slower(services[a.Service].use(a.Batch), services[b.Service].use(b.Batch),
							float64(g.Percent)/100, float64(o.Percent)/100))
				}
			}
		}
	}
}

// gpulet's code accepts 0.85 of a rate under interference; so does a plan with that option.
func TestGpuletEnough(t *testing.T) {
	var list []Service
	for _, name := range []string{"a", "b"} {
		s := share(name, 790, 40*time.Millisecond, 4*time.Millisecond, time.Millisecond, 0.5, GpuletSizes()...)
		s.Uses = []Use{{1, 1, 1}}
		list = append(list, s)
	}
	for enough, want := range map[float64]int{1: 2, 0.85: 1} {
		p, err := MakeShares(model(t, "A100-80GB"), list, ShareOptions{Slower: linear(0, 0, 0, 0, 1.1), Enough: enough})
		if err != nil {
			t.Fatal(err)
		}
		if p.GPUs != want {
			t.Errorf("%v of the rate: %d GPUs, want %d", enough, p.GPUs, want)
		}
	}
}

// Two services take turns. A request waits for the other's batch; what arrives meanwhile is computed together;
// smaller batches take less time, and interference makes all take longer. Above capacity requests are late.
func TestPlayShares(t *testing.T) {
	ms := func(list ...int) (out []time.Duration) {
		for _, v := range list {
			out = append(out, time.Duration(v)*time.Millisecond)
		}
		return out
	}
	list := []Service{{Name: "a", Rate: 20, Latency: 90 * time.Millisecond},
		{Name: "b", Rate: 20, Latency: 90 * time.Millisecond}}
	p := &SharePlan{GPUs: 1, Gpulets: []Gpulet{{Percent: 100, Duty: 60 * time.Millisecond, Slower: 1,
		Turns: []Turn{{0, 20, 2, 40 * time.Millisecond, ms(15, 40)}, {1, 20, 2, 40 * time.Millisecond, ms(20, 40)}}}}}
	// Both arrive at 50, 100, 150 ...: a is answered 15 later, b 20 later.
	got := PlayShares(p, list, Even, 1, 1010*time.Millisecond)
	if got[0] != (Served{20, 0, 15 * time.Millisecond, 15 * time.Millisecond}) ||
		got[1] != (Served{20, 0, 35 * time.Millisecond, 35 * time.Millisecond}) {
		t.Errorf("%+v", got)
	}
	// a, of 50: 50 to 80; b: 80 to 120; a, of 100: to 150; b, of 100 and 150: to 230; a, of 150 and 200: to 310;
	// b, of 200: to 350. So a has 30, 50, 160, 110, and b 70, 130, 80, 150.
	p.Gpulets[0].Slower = 2
	got = PlayShares(p, list, Even, 1, 225*time.Millisecond)
	if got[0] != (Served{4, 2, 160 * time.Millisecond, 160 * time.Millisecond}) ||
		got[1] != (Served{4, 2, 150 * time.Millisecond, 150 * time.Millisecond}) {
		t.Errorf("in company: %+v", got)
	}
	p.Gpulets[0].Turns = p.Gpulets[0].Turns[:1]
	if got := PlayShares(p, list, Even, 1, time.Second); got[1].Requests != 19 || got[1].Late != 19 {
		t.Errorf("no gpulet answers: %+v", got[1])
	}
}

// Two gpulets of a service share one line: an idle one takes the waiting requests.
func TestPlaySharesLine(t *testing.T) {
	list := []Service{{Name: "a", Rate: 100, Latency: 30 * time.Millisecond}}
	one := Gpulet{Percent: 50, Duty: 15 * time.Millisecond, Slower: 1,
		Turns: []Turn{{0, 50, 1, 15 * time.Millisecond, nil}}}
	for n, late := range map[int]bool{1: true, 2: false} {
		p := &SharePlan{GPUs: 1}
		for range n {
			p.Gpulets = append(p.Gpulets, one)
		}
		if got := PlayShares(p, list, Even, 1, 10*time.Second)[0]; got.Requests != 999 || (got.Late > 900) != late ||
			!late && got.Worst != 15*time.Millisecond {
			t.Errorf("%d gpulets: %+v", n, got)
		}
	}
}

// BenchmarkMakeShares plans 1,000 services, measured at six sizes and six batches each.
func BenchmarkMakeShares(b *testing.B) {
	r := rand.New(rand.NewPCG(5, 6))
	m, _ := cluster.FindModel("A100-80GB")
	var services []Service
	for len(services) < 1000 {
		for _, s := range randomShares(r, 8) {
			if _, err := newCarrier(&m, []Service{s}, &ShareOptions{Headroom: 1, Enough: 1}); err == nil &&
				len(services) < 1000 {
				s.Name = fmt.Sprint("s", len(services))
				services = append(services, s)
			}
		}
	}
	for _, c := range []struct {
		name   string
		slower func(own, beside Use, share, besideShare float64) float64
	}{{"alone", nil}, {"interference", linear(.1, .2, .3, .4, 1)}} {
		b.Run(c.name, func(b *testing.B) {
			for b.Loop() {
				p, err := MakeShares(&m, services, ShareOptions{Slower: c.slower})
				if err != nil {
					b.Fatal(err)
				}
				b.ReportMetric(float64(p.GPUs), "GPUs")
				b.ReportMetric(float64(p.Least), "least")
				b.ReportMetric(float64(p.Rounds), "rounds")
			}
		})
	}
}
