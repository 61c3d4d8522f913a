package serving

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/muster-gpu/muster/cluster"
)

func model(t *testing.T, name string) *cluster.GPUModel {
	t.Helper()
	m, ok := cluster.FindModel(name)
	if !ok {
		t.Fatal(name)
	}
	return &m
}

// measured is a service with measured rates by compute slices, in small batches.
func measured(name string, rate float64, by map[int]float64) Service {
	s := Service{Name: name, Rate: rate, Latency: time.Second}
	for _, c := range []int{1, 2, 3, 4, 7} {
		if by[c] > 0 {
			s.Points = append(s.Points,
				Point{Compute: c, Batch: 1, Processes: 1, Rate: by[c],
					Latency: time.Duration(float64(time.Second) / by[c])})
		}
	}
	return s
}

// ParvaGPU's example (SC'24): on whole GPUs the two services need three, on instances two.
func TestMIGServingVector(t *testing.T) {
	x := map[int]float64{1: 10, 2: 18, 3: 30, 4: 36, 7: 56}
	y := map[int]float64{1: 5, 2: 15, 7: 50}
	p, err := Make(model(t, "A100-80GB"), []Service{measured("X", 60, x), measured("Y", 30, y)}, 1)
	if err != nil {
		t.Fatal(err)
	}
	if p.GPUs != 2 {
		t.Errorf("%d GPUs, want 2: %+v", p.GPUs, p.Instances)
	}
	whole := 0
	for _, s := range []Service{measured("X", 60, map[int]float64{7: 56}), measured("Y", 30, map[int]float64{7: 50})} {
		p, err := Make(model(t, "A100-80GB"), []Service{s}, 1)
		if err != nil {
			t.Fatal(err)
		}
		whole += p.GPUs
	}
	if whole != 3 {
		t.Errorf("%d whole GPUs, want 3", whole)
	}
}

// gpulet's example (ATC'22), saturated: half a GPU takes 4 ms and one more for each request of a batch; within
// 40 ms, of which a batch may take half, 16 go together: 800 a second.
func TestSaturatedBatch(t *testing.T) {
	s := Service{Name: "s", Rate: 800, Latency: 40 * time.Millisecond}
	for b := 1; b <= 32; b++ {
		took := time.Duration(4+b) * time.Millisecond
		s.Points = append(s.Points,
			Point{Compute: 3, Batch: b, Processes: 1, Rate: float64(b) / took.Seconds(), Latency: took})
	}
	p, err := Make(model(t, "A100-80GB"), []Service{s}, 1)
	if err != nil {
		t.Fatal(err)
	}
	if len(p.Instances) != 1 || p.Instances[0].Batch != 16 || p.Capacity[0] != 800 {
		t.Errorf("%+v with %v requests a second, want one instance with batches of 16 and 800", p.Instances, p.Capacity)
	}
}

// Plans of random services: every GPU has a legal partition, every service has the capacity that it needs, in
// time; no plan is below its bound, none above one GPU for each instance. Small ones are as good as an
// exhaustive search.
func TestMakeRandom(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	m := model(t, "H100-80GB")
	exact := 0
	for range 150 {
		var services []Service
		for k := range 1 + r.IntN(5) {
			by := map[int]float64{}
			last := 0.0
			for _, c := range []int{1, 2, 3, 4, 7} {
				last += 5 + 40*r.Float64()
				by[c] = last
			}
			s := measured(fmt.Sprint("s", k), 10+150*r.Float64(), by)
			if r.IntN(3) == 0 {
				s.Latency = 60 * time.Millisecond // small instances are too slow
			}
			services = append(services, s)
		}
		p, err := Make(m, services, 1)
		if err != nil {
			if services[0].Latency == time.Second && len(services) == 1 {
				t.Fatal(err)
			}
			continue
		}
		checkPlan(t, m, p, services)
		if len(services) <= 2 {
			if n, sure := bruteForce(m, services); sure {
				if exact++; p.GPUs != n {
					t.Errorf("%d GPUs, %d suffice: %+v", p.GPUs, n, services)
				}
			}
		}
	}
	if exact < 20 {
		t.Errorf("only %d plans were compared", exact)
	}
}

func checkPlan(t *testing.T, m *cluster.GPUModel, p *Plan, services []Service) {
	t.Helper()
	geometry := make([][]cluster.Instance, p.GPUs)
	capacity := make([]float64, len(services))
	for i := range p.Instances {
		in := &p.Instances[i]
		geometry[in.GPU] = append(geometry[in.GPU], in.Instance)
		profile, ok := m.Profile(in.Profile)
		s := &services[in.Service]
		if !ok || profile.Compute != in.Compute || 2*in.Latency > s.Latency {
			t.Errorf("%+v is not for %+v", in, s)
		}
		capacity[in.Service] += in.Capacity()
	}
	node := cluster.Node{GPUs: p.GPUs, MIG: cluster.GeometryText(geometry)}
	if _, _, err := node.Geometry(m); err != nil {
		t.Errorf("%s: %v", node.MIG, err)
	}
	for k, c := range capacity {
		if c < services[k].Rate || c < p.Capacity[k]-1e-6 || c > p.Capacity[k]+1e-6 {
			t.Errorf("service %d has %g, counted %g, needs %g", k, c, p.Capacity[k], services[k].Rate)
		}
	}
	if p.GPUs < p.Least || p.GPUs > len(p.Instances) {
		t.Errorf("%d GPUs for %d instances; at least %d", p.GPUs, len(p.Instances), p.Least)
	}
}

// bruteForce tries every multiset of instances, fewest GPUs first, with cluster's Fit; sure reports whether the
// result is exact.
func bruteForce(m *cluster.GPUModel, services []Service) (n int, sure bool) {
	list := sizes(m, services)
	sure = true
	for gpus := 1; ; gpus++ {
		var try func(k, from int, have float64, names []string) bool
		try = func(k, from int, have float64, names []string) bool {
			if k == len(services) {
				got, exact, err := m.Fit(names)
				sure = sure && exact
				return err == nil && len(got) <= gpus
			}
			if have >= services[k].Rate {
				return try(k+1, 0, 0, names)
			}
			if len(names) == 7*gpus {
				return false
			}
			for i := from; i < len(list); i++ {
				if b := &list[i].best[k]; b.Batch > 0 &&
					try(k, i, have+b.Capacity(), append(names, list[i].profile.Name)) {
					return true
				}
			}
			return false
		}
		if try(0, 0, 0, nil) {
			return gpus, sure
		}
	}
}

// A service that cannot be planned is an error that says why.
func TestMakeErrors(t *testing.T) {
	ok := measured("a", 1, map[int]float64{1: 10})
	slow, none, idle := ok, ok, ok
	slow.Latency, none.Points, idle.Rate = time.Millisecond, nil, 0
	for _, s := range []Service{slow, none, idle} {
		if _, err := Make(model(t, "A100-80GB"), []Service{s}, 1); err == nil {
			t.Errorf("%+v was planned", s)
		}
	}
	if _, err := Make(model(t, "T4-16GB"), []Service{ok}, 1); err == nil {
		t.Error("a T4 was divided")
	}
}
