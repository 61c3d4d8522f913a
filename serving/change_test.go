package serving

import (
	"bytes"
	"math/rand/v2"
	"reflect"
	"slices"
	"testing"

	"github.com/muster-gpu/muster/cluster"
)

// stepped replays steps on a table of its own, and checks each state.
type stepped struct {
	t        *testing.T
	m        *cluster.GPUModel
	geometry [][]cluster.Instance
	busy     map[place]string // the service; looked up and counted only
	capacity map[string]float64
	least    map[string]float64
}

type place struct {
	gpu int
	cluster.Instance
}

func (s *stepped) geometryOf(gpu int) *[]cluster.Instance {
	for len(s.geometry) <= gpu {
		s.geometry = append(s.geometry, nil)
	}
	return &s.geometry[gpu]
}

func (s *stepped) run(gpu int, in cluster.Instance, service string, capacity float64) {
	if !slices.Contains(*s.geometryOf(gpu), in) || s.busy[place{gpu, in}] != "" {
		s.t.Fatalf("%s is started on GPU %d, %v: there are %v, %v", service, gpu, in, s.geometry[gpu], s.busy)
	}
	s.busy[place{gpu, in}] = service
	s.capacity[service] += capacity
}

func (s *stepped) halt(gpu int, in cluster.Instance, service string, capacity float64) {
	if s.busy[place{gpu, in}] != service {
		s.t.Fatalf("%s is stopped on GPU %d, %v, where %q runs", service, gpu, in, s.busy[place{gpu, in}])
	}
	delete(s.busy, place{gpu, in})
	s.capacity[service] -= capacity
}

func (s *stepped) step(st *Step, names []string) {
	service := ""
	if st.Do != Repartition {
		service = names[st.Service]
	}
	switch st.Do {
	case Repartition:
		g := s.geometryOf(st.GPU)
		for _, in := range *g {
			if s.busy[place{st.GPU, in}] != "" && !slices.Contains(st.Geometry, in) {
				s.t.Fatalf("GPU %d is repartitioned while %v is in use", st.GPU, in)
			}
		}
		*g = slices.Clone(st.Geometry)
	case Create:
		s.run(st.GPU, st.Instance.Instance, service, st.Capacity())
	case Migrate:
		if st.From.Profile != st.Profile || st.From.Point != st.Point {
			s.t.Fatalf("%+v is no migration", st)
		}
		s.run(st.GPU, st.Instance.Instance, service, st.Capacity())
		s.halt(st.From.GPU, st.From.Instance, service, st.Capacity())
	case Delete:
		s.halt(st.GPU, st.Instance.Instance, service, st.Capacity())
	}
	for _, name := range names {
		s.least[name] = min(s.least[name], s.capacity[name])
	}
	node := cluster.Node{GPUs: len(s.geometry), MIG: cluster.GeometryText(s.geometry)}
	if _, _, err := node.Geometry(s.m); err != nil {
		s.t.Fatalf("%s after %+v: %v", node.MIG, st, err)
	}
}

// checkChange replays a change and checks the final state. It returns the worst shortfall, as a fraction of the
// floor.
func checkChange(t *testing.T, m *cluster.GPUModel, old *Deployment, c *Change, services []Service,
	spare int) (short float64) {
	t.Helper()
	s := &stepped{t: t, m: m, busy: map[place]string{}, capacity: map[string]float64{}, least: map[string]float64{}}
	gpus := map[int]bool{} // counted only
	for _, r := range old.Runs {
		in := cluster.Instance{Profile: r.Profile, Start: r.Start}
		*s.geometryOf(r.GPU) = append(*s.geometryOf(r.GPU), in)
		s.run(r.GPU, in, r.Service, r.Rate*float64(r.Processes))
		gpus[r.GPU] = true
	}
	for _, name := range c.Names {
		s.least[name] = s.capacity[name]
	}
	before := len(gpus)
	for i := range c.Steps {
		s.step(&c.Steps[i], c.Names)
		gpus[c.Steps[i].GPU] = true
	}
	if extra := len(gpus) - max(before, c.Plan.GPUs); extra != c.Spare || spare >= 0 && extra > spare {
		t.Errorf("%d spare GPUs were used, %d are said, %d given", extra, c.Spare, spare)
	}
	for k, name := range c.Names {
		floor := 0.0
		for _, o := range old.Services {
			if k < len(services) && o.Name == name {
				floor = min(o.Rate, services[k].Rate)
			}
		}
		if c.Floor[k] != floor || c.Least[k]-s.least[name] > 1e-6 || s.least[name]-c.Least[k] > 1e-6 {
			t.Errorf("%s keeps %g of %g; said are %g of %g", name, s.least[name], floor, c.Least[k], c.Floor[k])
		}
		if floor > 0 {
			short = max(short, c.Short(k)/floor)
		}
	}
	checkEnd(t, s, c, services)
	return short
}

func checkEnd(t *testing.T, s *stepped, c *Change, services []Service) {
	t.Helper()
	var end []place
	geometry := make([][]cluster.Instance, len(s.geometry))
	for _, in := range c.Plan.Instances {
		p := place{in.GPU, in.Instance}
		end = append(end, p)
		geometry[in.GPU] = append(geometry[in.GPU], in.Instance)
		if s.busy[p] != services[in.Service].Name {
			t.Errorf("on %v is %q, to be %q", p, s.busy[p], services[in.Service].Name)
		}
	}
	if len(end) != len(s.busy) {
		t.Errorf("in the end there are %v, to be %v", s.busy, end)
	}
	used := 0
	for g := range geometry {
		slices.SortFunc(s.geometry[g], func(a, b cluster.Instance) int { return a.Start - b.Start })
		if !slices.Equal(geometry[g], s.geometry[g]) {
			t.Errorf("GPU %d ends as %v, to be %v", g, s.geometry[g], geometry[g])
		}
		if len(geometry[g]) > 0 {
			used++
		}
	}
	if used != c.Plan.GPUs {
		t.Errorf("%d GPUs in the end, not %d", used, c.Plan.GPUs)
	}
}

// TestChangeRandom goes from plan to plan, with services that come and go and rates and latencies that change:
// every state is legal, every service keeps its floor, and the result is on as few GPUs as a plan from scratch.
// With fewer spare GPUs the shortfall is reported.
func TestChangeRandom(t *testing.T) {
	r := rand.New(rand.NewPCG(7, 8))
	spares, shorts, kept, of, steps := map[int]int{}, 0, 0, 0, 0
	for round := range 400 {
		m := model(t, []string{"H100-80GB", "A30-24GB"}[round%2])
		pool := randomKind(r, []int{0, 0, 1, 4, 0, 3}[r.IntN(6)], 1+r.IntN(6))
		old := drawn(r, pool)
		first, err := Make(m, old, 1+0.2*float64(r.IntN(2)*r.IntN(3)))
		if err != nil {
			continue
		}
		d := readBack(t, m, Deploy(m, first, old))
		services := drawn(r, pool)
		alone, err := Make(m, services, 1)
		if err != nil {
			continue
		}
		plan, err := MakeNear(m, services, 1, d)
		if err != nil {
			t.Fatal(err)
		}
		if round%3 == 0 {
			plan = alone // whatever it shares with the present deployment is chance
		}
		if plan.GPUs != alone.GPUs {
			t.Errorf("%d GPUs near what runs, %d from nothing", plan.GPUs, alone.GPUs)
		}
		c := d.To(m, plan, services, -1)
		if short := checkChange(t, m, d, c, services, -1); short > 0 {
			t.Errorf("short by %g of what is to be kept", short)
		}
		spares[c.Spare]++
		kept, of, steps = kept+c.Keeps, of+len(plan.Instances), steps+len(c.Steps)
		if c.Spare > 0 {
			if short := checkChange(t, m, d, d.To(m, plan, services, c.Spare-1), services, c.Spare-1); short == 0 {
				t.Errorf("%d spare GPUs are said to be needed, with %d no service is short", c.Spare, c.Spare-1)
			}
			shorts++
		}
		if t.Failed() {
			t.Fatalf("round %d", round)
		}
	}
	t.Logf("spare GPUs %v; %d steps, %d of %d instances stay", spares, steps, kept, of)
	if shorts < 10 || kept*3 < of {
		t.Errorf("%d changes took spare GPUs; %d of %d instances stay", shorts, kept, of)
	}
}

// drawn draws some of the services, with other rates, and sometimes with other latencies.
func drawn(r *rand.Rand, pool []Service) (list []Service) {
	for _, s := range pool {
		if s.Rate *= 0.8 + 0.4*r.Float64(); r.IntN(6) == 0 {
			s.Rate *= 2 * r.Float64()
			s.Latency = s.Latency * 9 / 10
		}
		if r.IntN(5) > 0 {
			list = append(list, s)
		}
	}
	if list == nil {
		list = pool[:1]
	}
	return list
}

// readBack writes a deployment and reads it again.
func readBack(t *testing.T, m *cluster.GPUModel, d *Deployment) *Deployment {
	t.Helper()
	var b bytes.Buffer
	if err := d.Write(&b); err != nil {
		t.Fatal(err)
	}
	got, err := ReadDeployment("plan.json", b.Bytes(), m)
	if err != nil || !reflect.DeepEqual(got, d) {
		t.Fatalf("%v: %+v, want %+v", err, got, d)
	}
	return got
}
