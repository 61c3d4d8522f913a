package inss

import (
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/service"
)

// scaled is a model whose batches of b take (each*b + fixed)/x ms, with what its cache use does to others.
func scaled(each, fixed, sensitivity, cache float64) Model {
	return Model{Activity: Activity{Each: each, Fixed: fixed}, Sensitivity: sensitivity, Cache: Use{Whole: cache}}
}

func ms(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

func near(a, b float64) bool { return math.Abs(a-b) < 1e-4 }

// TestLatency: 2b/x ms next to a neighbour that uses half of the cache; 32 ms alone, 35.2 ms beside it.
func TestLatency(t *testing.T) {
	m := scaled(2, 0, 0.2, 0)
	half := Load{Services: 1, Cache: 0.5}
	for _, c := range []struct {
		batch  int
		part   float64
		beside Load
		want   float64
	}{{8, 0.5, Load{}, 32}, {8, 0.5, half, 35.2}, {16, 0.5, Load{}, 64}, {1, 0.5, half, 4.4},
		{8, 0.45, half, 39.1111}} {
		if got := ms(m.Takes(&GPU{}, c.batch, c.part, c.beside).Latency()); !near(got, c.want) {
			t.Errorf("%+v: %v ms", c, got)
		}
	}
}

// TestGoal: 400 requests a second within 60 ms. A batch of 8 fills in 20 ms: 55.2 ms in all on half a GPU, and in time
// from 45 % on; but it keeps up with the rate only from 80 % on.
func TestGoal(t *testing.T) {
	s := Service{Name: "s", Model: scaled(2, 0, 0.2, 0), Rate: 400, Goal: 60 * time.Millisecond}
	beside := Load{Services: 1, Cache: 0.5}
	inTime := func(batch int, part float64) bool {
		return s.fills(batch)+s.Takes(&GPU{}, batch, part, beside).Latency() <= s.Goal
	}
	if s.fills(8) != 20*time.Millisecond || !inTime(8, 0.5) || inTime(16, 0.5) || !inTime(8, 0.45) || inTime(8, 0.4) {
		t.Errorf("a batch of 8 fills in %v", s.fills(8))
	}
	p, err := newPlanner(&GPU{}, []Service{s}, Options{})
	if err != nil || p.solo[0] != 80 {
		t.Errorf("alone it needs %d %%, want 80 (%v)", p.solo[0], err)
	}
}

// TestStages: launches that neighbours delay, transfers, and a GPU at its limit of power.
func TestStages(t *testing.T) {
	m := Model{Activity: Activity{1, 2, 3, 0.5, 4}, Launches: 10, Launch: 0.1, Queued: 0.5, In: 1e6, Out: 5e5,
		Power: Use{Whole: 100, Each: 10}}
	g := GPU{Bus: 1e9, Idle: 50, Limit: 200, Throttle: 0.002, Slowest: 0.6}
	// (16 + 8 + 3)/1 + 4 = 31, launches 10 * 0.1 * (1 + 2 * 0.5) = 2.
	if got := m.Takes(&g, 4, 0.5, Load{Services: 2}); got != (Stages{4e6, 33e6, 2e6}) {
		t.Errorf("%+v", got)
	}
	// 50 + 70 + 180 = 300 W: a fifth of the speed is lost.
	if got := m.Takes(&g, 4, 0.5, Load{Power: 180}).Execute; got != 40e6 {
		t.Errorf("beyond the limit: %v", got)
	}
	if got := ms(m.Takes(&g, 4, 0.5, Load{Power: 9999}).Execute); !near(got, 32/0.6) {
		t.Errorf("far beyond the limit: %v", got)
	}
	if got := m.Load(4, 0.5); got != (Load{1, 0, 70}) {
		t.Errorf("what it does to others: %+v", got)
	}
}

func randomModel(r *rand.Rand) Model {
	return Model{Activity: Activity{0.02 * r.Float64(), 0.2 + 3*r.Float64(), 5 * r.Float64(), 0.3 * r.Float64(),
		2 * r.Float64()}, Launches: r.IntN(200), Launch: 0.01 * r.Float64(), Queued: 0.2 * r.Float64(),
		Sensitivity: 0.5 * r.Float64(), Cache: Use{0.5 * r.Float64(), 0.01 * r.Float64()},
		Power: Use{150 * r.Float64(), r.Float64()}, In: 6e5 * r.Float64(), Out: 1e4 * r.Float64(),
		Memory: int64(500 + r.IntN(6000))}
}

func randomGPU(r *rand.Rand) GPU {
	g := GPU{Memory: 16384, Bus: 1e10, Idle: 40}
	if r.IntN(2) == 0 {
		g.Limit, g.Throttle, g.Slowest = 120+100*r.Float64(), 0.002, 0.5
	}
	return g
}

// TestMonotonic: latencies rise with the batch and with what neighbours do; while no power is short, they fall with
// the share.
func TestMonotonic(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for range 2000 {
		m, g := randomModel(r), randomGPU(r)
		batch, part := 1+r.IntN(31), 0.1+0.85*r.Float64()
		beside := Load{r.IntN(3), r.Float64(), 200 * r.Float64()}
		now := m.Takes(&g, batch, part, beside).Latency()
		if more := m.Takes(&g, batch+1, part, beside).Latency(); more <= now {
			t.Fatalf("a larger batch: %v, then %v", now, more)
		}
		for _, l := range []Load{{1, 0, 0}, {0, 0.1, 0}, {0, 0, 20}} {
			if more := m.Takes(&g, batch, part, beside.plus(l)).Latency(); more < now {
				t.Fatalf("more load %+v: %v, then %v", l, now, more)
			}
		}
		g.Limit = 0
		small, large := m.Takes(&g, batch, part, beside).Latency(), m.Takes(&g, batch, part+0.05, beside).Latency()
		if large >= small {
			t.Fatalf("a larger share: %v, then %v", small, large)
		}
	}
}

// TestFit finds known coefficients again from 12 to 20 points; with errors of 2 % it predicts about as well.
func TestFit(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	worst, worstNoisy := 0.0, 0.0
	for range 40 {
		want := randomModel(r).Activity
		var exact, noisy service.Profile
		for _, share := range []cluster.Milli{100, 250, 400, 700, 1000}[:4+r.IntN(2)] {
			for _, b := range []int{1, 4, 16, 32}[:3+r.IntN(2)] {
				took := want.At(b, float64(share)/1000) * 1e6
				exact = append(exact, service.Point{Share: share, Batch: b, Latency: time.Duration(took)})
				took *= 1 + 0.02*r.NormFloat64()
				noisy = append(noisy, service.Point{Share: share, Batch: b, Latency: time.Duration(took)})
			}
		}
		got, off, err := Fit(exact)
		if err != nil || off > 1e-6 {
			t.Fatalf("%v, off by %v", err, off)
		}
		for i, v := range [][2]float64{{got.Square, want.Square}, {got.Each, want.Each}, {got.Fixed, want.Fixed},
			{got.Offset, want.Offset}, {got.Floor, want.Floor}} {
			if math.Abs(v[0]-v[1]) > 1e-3*max(1, v[1]) {
				t.Errorf("coefficient %d: %v, want %v (%+v)", i, v[0], v[1], want)
			}
		}
		rough, _, err := Fit(noisy)
		if err != nil {
			t.Fatal(err)
		}
		for i := range exact {
			part := float64(exact[i].Share) / 1000
			truth := want.At(exact[i].Batch, part)
			worst = max(worst, math.Abs(got.At(exact[i].Batch, part)/truth-1))
			worstNoisy = max(worstNoisy, math.Abs(rough.At(exact[i].Batch, part)/truth-1))
			slow := rough.Above(noisy)
			if slow.At(exact[i].Batch, part) < ms(noisy[i].Latency)*(1-1e-9) {
				t.Errorf("%+v takes longer than %+v says", noisy[i], slow)
			}
		}
	}
	t.Logf("largest relative error: %.2g exact, %.2g with noise of 2 %%", worst, worstNoisy)
	if worst > 1e-6 || worstNoisy > 0.08 {
		t.Error("too much")
	}
	two := service.Profile{{Share: 1000, Batch: 1, Latency: 1}, {Share: 1000, Batch: 2, Latency: 2}}
	if _, _, err := Fit(two); err == nil {
		t.Error("two points on a whole GPU say nothing about parts")
	}
}

func TestFitSensitivity(t *testing.T) {
	if got := FitSensitivity([]Beside{{0.5, 1.1}, {0.25, 1.05}, {1, 1.2}}); !near(got, 0.2) {
		t.Errorf("%v, want 0.2", got)
	}
	if a, b := FitSensitivity(nil), FitSensitivity([]Beside{{0.5, 0.9}}); a != 0 || b != 0 {
		t.Errorf("%v and %v, want 0", a, b)
	}
}
