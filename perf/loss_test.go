package perf

import (
	"math"
	"math/rand/v2"
	"testing"
)

func losses(c LossCurve, n int, every float64, noise func() float64) (list []Loss) {
	for i := 1; i <= n; i++ {
		k := float64(i) * every
		list = append(list, Loss{k, c.At(k) * noise()})
	}
	return list
}

// slowEnd is End's naive twin, step by step.
func slowEnd(c Convergence, curve LossCurve, every float64) float64 {
	n := 0.0
	if curve.B1 == 0 {
		n = 1
	}
	for row := 0; ; n++ {
		if a, b := curve.At(n*every), curve.At((n+1)*every); a-b < c.Below*a {
			row++
		} else {
			row = 0
		}
		if row == c.Times {
			return (n + 1) * every
		}
	}
}

// FitLoss recovers an exactly reported curve, and End its convergence.
func TestFitLoss(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 1))
	exact := func() float64 { return 1 }
	for range 300 {
		want := LossCurve{B0: math.Exp(r.Float64()*6 - 5), B1: r.Float64() * 3, B2: r.Float64()}
		every := float64(1 + r.IntN(50))
		got, ok := FitLoss(losses(want, 12, every, exact))
		for _, k := range []float64{1, 20, 100} {
			if a, b := got.At(k*every), want.At(k*every); !ok || math.Abs(a-b) > 1e-3*b {
				t.Fatalf("%+v every %v: %+v (%v): after %v steps %v, not %v", want, every, got, ok, k*every, a, b)
			}
		}
		c := Convergence{"loss", 0.001 + r.Float64()*0.05, 1 + r.IntN(4)}
		if a, b := c.End(want, every), slowEnd(c, want, every); a != b {
			t.Fatalf("%+v every %v, %+v: ends at %v, step by step at %v", want, every, c, a, b)
		}
	}
}

// With noise and outliers, the end predicted in the middle of a job is close to the true one.
func TestFitLossNoise(t *testing.T) {
	r := rand.New(rand.NewPCG(2, 2))
	c, curve := Convergence{"loss", 0.005, 3}, LossCurve{0.05, 0.4, 0.3}
	end := slowEnd(c, curve, 1)
	for range 50 {
		list := losses(curve, int(end/2), 1, func() float64 { return 1 + 0.004*r.NormFloat64() })
		list[7].Value *= 20
		list[11].Value /= 20
		got, ok := FitLoss(list)
		if at := c.End(got, 1); !ok || math.Abs(at-end) > 0.2*end {
			t.Errorf("it ends at %v, predicted %v (%+v, %v)", end, at, got, ok)
		}
	}
}

// Reports that do not fall, or too few of them, give no curve.
func TestFitLossNothing(t *testing.T) {
	for name, list := range map[string][]Loss{
		"none":     nil,
		"four":     {{1, 4}, {2, 3}, {3, 2}, {4, 1.5}},
		"constant": {{1, 2}, {2, 2}, {3, 2}, {4, 2}, {5, 2}, {6, 2}},
		"rising":   {{1, 1}, {2, 2}, {3, 3}, {4, 4}, {5, 5}, {6, 6}},
		"negative": {{1, -1}, {2, -2}, {3, -3}, {4, -4}, {5, -5}, {6, -6}},
		"no loss":  {{1, math.NaN()}, {2, math.Inf(1)}, {3, 2}, {4, 1}, {5, 0.5}, {6, 0.4}},
	} {
		if c, ok := FitLoss(list); ok {
			t.Errorf("%s: %+v", name, c)
		}
	}
	if _, ok := FitLoss([]Loss{{0, 3}, {1, 2}, {2, 1.5}, {3, 1.2}, {4, 1.1}, {5, 1}}); !ok {
		t.Error("a loss that falls from step 0 on says nothing")
	}
}

func TestParseConvergence(t *testing.T) {
	if c, err := ParseConvergence("loss:0.01:3"); err != nil || c != (Convergence{"loss", 0.01, 3}) {
		t.Errorf("%+v %v", c, err)
	}
	if c, err := ParseConvergence("val_loss:0.5"); err != nil || c != (Convergence{"val_loss", 0.5, 1}) {
		t.Errorf("%+v %v", c, err)
	}
	for _, text := range []string{"", "loss", "loss:", ":0.1", "loss:0", "loss:1", "loss:NaN", "loss:0.1:0",
		"loss:0.1:x", "loss:0.1:2:3", "loss:0.1:2000"} {
		if c, err := ParseConvergence(text); err == nil {
			t.Errorf("%q is %+v", text, c)
		}
	}
}
