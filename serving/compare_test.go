package serving

import (
	"fmt"
	"math"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/internal/csvfile"
	"github.com/muster-gpu/muster/internal/shared"
	"github.com/muster-gpu/muster/service"
	"github.com/muster-gpu/muster/serving/inss"
	"github.com/muster-gpu/muster/serving/nexus"
)

// compared are services as each planner wants them.
type compared struct {
	services []Service
	models   []inss.Service // none: only whole GPUs were measured
	sessions []nexus.Session
	slower   func(own, beside Use, share, besideShare float64) float64
	measured [][]parts // by service; none: as its latency model says
	off      float64   // the largest error of a latency model
}

// outcome is what a planner needs, and how its plan fares.
type outcome struct {
	gpus, requests, late int
	evenLate             int // of requests that come evenly
}

func (o *outcome) play(p *SharePlan, services []Service) {
	for _, s := range PlayShares(p, services, Poisson, 1, 10*time.Second) {
		o.requests, o.late = o.requests+s.Requests, o.late+s.Late
	}
	for _, s := range PlayShares(p, services, Even, 1, 10*time.Second) {
		o.evenLate += s.Late
	}
}

// gpulets plans with MakeShares.
func (c *compared) gpulets(t *testing.T, o *outcome) {
	t.Helper()
	how := ShareOptions{Slower: c.slower}
	if c.models == nil {
		how.Sizes = []int{100}
	}
	p, err := MakeShares(model(t, "A100-80GB"), c.services, how)
	if err != nil {
		t.Fatal(err)
	}
	o.gpus += p.GPUs
	o.play(p, c.services)
}

// inss plans with package inss, services that no GPU carries as replicas.
func (c *compared) inss(t *testing.T, o *outcome) {
	t.Helper()
	var list []inss.Service
	var of []int
	for k, s := range c.models {
		n, err := inss.Replicas(&inss.GPU{}, s, inss.Options{})
		if err != nil || n == 0 {
			t.Fatalf("%s: %d replicas (%v)", s.Name, n, err)
		}
		s.Rate /= float64(n)
		for i := range n {
			s.Name = fmt.Sprint(k, ".", i)
			list, of = append(list, s), append(of, k)
		}
	}
	p, err := inss.Make(&inss.GPU{}, list, inss.Options{})
	if err != nil || len(p.Rejected) > 0 {
		t.Fatal(p, err)
	}
	o.gpus += p.Used()
	as := &SharePlan{}
	for g, there := range p.GPUs {
		for _, x := range there {
			i := slices.IndexFunc(list, func(s inss.Service) bool { return s.Name == x.Service })
			turn := Turn{Service: of[i], Batch: x.Batch}
			for b := range x.Batch {
				d := list[i].Takes(&inss.GPU{}, b+1, float64(x.Percent)/100, inss.Load{}).Latency()
				turn.curve = append(turn.curve, d)
			}
			turn.Takes = turn.curve[x.Batch-1]
			part := Gpulet{GPU: g, Percent: x.Percent, Slower: float64(x.Latency) / float64(turn.Takes)}
			if c.measured != nil {
				if takes := curve(c.measured[of[i]], x.Percent); len(takes) >= x.Batch {
					turn.curve, turn.Takes = takes, takes[x.Batch-1]
				}
			}
			part.Turns = []Turn{turn}
			as.Gpulets = append(as.Gpulets, part)
		}
	}
	o.play(as, c.services)
}

// nexus plans with package nexus.
func (c *compared) nexus(t *testing.T, o *outcome) (least int) {
	t.Helper()
	p, err := nexus.Make(c.sessions, 0)
	if err != nil {
		t.Fatal(err)
	}
	o.gpus += len(p.GPUs)
	as := &SharePlan{}
	for g := range p.GPUs {
		part := Gpulet{GPU: g, Percent: 100, Duty: p.GPUs[g].Duty, Slower: 1}
		for _, x := range p.GPUs[g].Turns {
			part.Turns = append(part.Turns, Turn{Service: x.Session, Batch: x.Batch, Takes: x.Takes,
				curve: c.sessions[x.Session].Takes})
		}
		as.Gpulets = append(as.Gpulets, part)
	}
	o.play(as, c.services)
	return p.Least
}

// invented draws services whose batches of b take (each*b + fixed)/(part + offset) + floor, with a load of so many
// GPUs each; what a service does to neighbours is proportional to its part.
func invented(r *rand.Rand, n int, load, sensitivity float64) *compared {
	c := &compared{}
	if sensitivity > 0 {
		c.slower = func(own, beside Use, _, besideShare float64) float64 {
			return 1 + own.Compute*beside.Memory*besideShare
		}
	}
	for k := range n {
		m := inss.Model{Activity: inss.Activity{Each: 0.3 + 2*r.Float64(), Fixed: 4 * r.Float64(),
			Offset: 0.3 * r.Float64(), Floor: r.Float64()},
			Sensitivity: sensitivity * 2 * r.Float64(), Cache: inss.Use{Whole: 0.2 + 0.6*r.Float64()}}
		s := Service{Name: fmt.Sprint(k), Latency: time.Duration(40+r.IntN(160)) * time.Millisecond}
		s.Uses = []Use{{1, m.Sensitivity, m.Cache.Whole}}
		var whole nexus.Curve
		for _, percent := range GpuletSizes() {
			for b := 1; b <= 32; b++ {
				d := m.Takes(&inss.GPU{}, b, float64(percent)/100, inss.Load{}).Latency()
				s.Points = append(s.Points, Point{Percent: percent, Batch: b, Processes: 1,
					Rate: float64(b) / d.Seconds(), Latency: d})
				if percent == 100 {
					whole = append(whole, d)
				}
			}
		}
		_, most := whole.Saturated(s.Latency)
		s.Rate = most * load * 2 * r.Float64()
		c.add(s, m, whole)
	}
	return c
}

func (c *compared) add(s Service, m inss.Model, whole nexus.Curve) {
	c.services = append(c.services, s)
	if m.Activity != (inss.Activity{}) {
		c.models = append(c.models, inss.Service{Name: s.Name, Model: m, Rate: s.Rate, Goal: s.Latency})
	}
	c.sessions = append(c.sessions, nexus.Session{Name: s.Name, Rate: s.Rate, Goal: s.Latency, Takes: whole})
}

// parva reads services that were measured on parts of an A100, with the promises of one of ParvaGPU's sets (SC 2024).
// It fits a latency model to each, and plays with what was measured.
func parva(t *testing.T, set int) *compared {
	t.Helper()
	dir := filepath.Dir(shared.Path(t, "traces/parvagpu-mig/SLO_SLO_latency.csv"))
	line := func(name string) []string {
		rows, err := csvfile.Read(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		return rows[set-1]
	}
	rates, latencies := line("SLO_SLO_req_rate.csv"), line("SLO_SLO_latency.csv")
	files, err := filepath.Glob(filepath.Join(dir, "prof_data_*.csv"))
	if err != nil || len(files) != len(rates) {
		t.Fatalf("%d profiles, %d rates (%v)", len(files), len(rates), err)
	}
	c := &compared{}
	for k, file := range files {
		rate, err1 := strconv.ParseFloat(rates[k], 64)
		ms, err2 := strconv.ParseFloat(latencies[k], 64)
		if err1 != nil || err2 != nil {
			continue // not in the set
		}
		s := Service{Name: strings.TrimSuffix(strings.TrimPrefix(filepath.Base(file), "prof_data_"), ".csv"),
			Rate: rate, Latency: time.Duration(ms * 1e6)}
		if err := s.Measure(dir); err != nil {
			t.Fatal(err)
		}
		parts := partsOf(model(t, "A100-80GB"), &s)
		var profile service.Profile
		for _, percent := range []int{15, 20, 30, 40, 50, 60, 80, 100} {
			takes := curve(parts, percent)
			for b := 1; b <= min(32, len(takes)); b *= 2 {
				profile = append(profile,
					service.Point{Share: cluster.Milli(10 * percent), Batch: b, Latency: takes[b-1]})
			}
		}
		a, off, err := inss.Fit(profile)
		if err != nil {
			t.Fatal(err)
		}
		c.off = max(c.off, off)
		c.add(s, inss.Model{Activity: a.Above(profile)}, curve(parts, 100))
		c.measured = append(c.measured, parts)
	}
	return c
}

// titan draws services of models that Nexus' authors measured on a TITAN X (SOSP 2019), for 0.3 GPUs each in the mean.
func titan(t *testing.T, r *rand.Rand, n int) *compared {
	t.Helper()
	rows, err := csvfile.Read(shared.Path(t, "traces/serving-profiles/nexus-titanx.csv"))
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	points, profiles := map[string][]Point{}, map[string]service.Profile{}
	for _, row := range rows[1:] {
		batch, err1 := strconv.Atoi(row[3])
		us, err2 := strconv.ParseFloat(row[4], 64)
		if err1 != nil || err2 != nil {
			t.Fatalf("%v", row)
		}
		name, d := row[1], time.Duration(us*1e3)
		if points[name] == nil {
			names = append(names, name)
		}
		points[name] = append(points[name],
			Point{Percent: 100, Batch: batch, Processes: 1, Rate: float64(batch) / d.Seconds(), Latency: d})
		profiles[name] = append(profiles[name], service.Point{Share: cluster.Whole, Batch: batch, Latency: d})
	}
	c := &compared{}
	for k := range n {
		name := names[r.IntN(len(names))]
		whole := nexus.CurveOf(profiles[name])
		s := Service{Name: fmt.Sprint(k), Points: points[name]}
		s.Latency = 3*whole[0] + time.Duration(r.IntN(400))*time.Millisecond
		_, most := whole.Saturated(s.Latency)
		s.Rate = most * 0.6 * r.Float64()
		c.add(s, inss.Model{}, whole)
	}
	return c
}

// heading is the first line of the tables.
const heading = "GPUs of                            services    Nexus at least            gpulet              InSS             Nexus"

// compare logs a line of the tables.
func compare(t *testing.T, name string, cases ...*compared) {
	t.Helper()
	var out [3]outcome
	services, least, off := 0, 0, 0.0
	for _, c := range cases {
		services, off = services+len(c.services), max(off, c.off)
		c.gpulets(t, &out[0])
		if c.models != nil {
			c.inss(t, &out[1])
		}
		least += c.nexus(t, &out[2])
	}
	s, fewest := fmt.Sprintf("%-34s %8d %17d", name, services, least), math.MaxInt
	for _, o := range out {
		if o.gpus == 0 {
			s += fmt.Sprintf(" %17s", "")
			continue
		}
		s += fmt.Sprintf(" %5d (%.2f %% late)", o.gpus, 100*float64(o.late)/float64(o.requests))
		fewest = min(fewest, o.gpus)
	}
	if off > 0 {
		s += fmt.Sprintf("; latency models are off by up to %.0f %%", 100*off)
	}
	t.Log(s)
	for i, o := range out {
		if o.gpus > 2*fewest || o.evenLate > 0 {
			t.Errorf("%s: planner %d: %d GPUs, and %d requests are late though they come evenly", name, i, o.gpus,
				o.evenLate)
		}
	}
}

// TestPlanners counts the GPUs that gpulets, InSS and Nexus need for the same services, and how many requests are late
// when they arrive by chance (-v prints the table); none is when they come evenly. No planner is best throughout: on
// parts of GPUs more is computed than on whole ones that services have in turns; but InSS has at most four services on
// a GPU, and there neighbours disturb each other.
func TestPlanners(t *testing.T) {
	t.Log(heading)
	for i, x := range []struct {
		name              string
		load, sensitivity float64
	}{{"small, alone", 0.1, 0}, {"small, neighbours cost 20 %", 0.1, 0.4}, {"medium, alone", 0.3, 0},
		{"medium, neighbours cost 20 %", 0.3, 0.4}, {"large, alone", 1.5, 0},
		{"large, neighbours cost 20 %", 1.5, 0.4}} {
		r := rand.New(rand.NewPCG(1, uint64(i)))
		var cases []*compared
		for range shared.Soak(2, 10) {
			cases = append(cases, invented(r, 12, x.load, x.sensitivity))
		}
		compare(t, x.name, cases...)
	}
}

// TestPlannersRecorded counts them for models that were measured.
func TestPlannersRecorded(t *testing.T) {
	t.Log(heading)
	r := rand.New(rand.NewPCG(2, 1))
	var whole []*compared
	for range shared.Soak(4, 10) {
		whole = append(whole, titan(t, r, 12))
	}
	compare(t, "TITAN X, as a whole", whole...)
	for set := 1; set <= 4; set++ {
		compare(t, fmt.Sprintf("A100, ParvaGPU's set %d", set), parva(t, set))
	}
}
