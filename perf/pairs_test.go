package perf

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
)

// gpulet (ATC'22): the linear model with weights 0.1, 0.2, 0.3, 0.4 and 1, for two jobs with half a
// GPU each; and rooflines with total computing 1.1 and total memory 1.3.
func TestInterferenceVectors(t *testing.T) {
	l := Linear{.1, .2, .3, .4, 1}
	if v := l.At(Use{500_000, 400_000}, Use{500_000, 600_000}, .5, .5); math.Abs(v-1.255) > 1e-12 {
		t.Errorf("linear: %v, want 1.255", v)
	}
	a, b := Use{600_000, 700_000}, Use{500_000, 600_000}
	for _, v := range []float64{Roofline(a, b), Roofline(b, a)} {
		if math.Abs(v-1.3) > 1e-12 {
			t.Errorf("roofline: %v, want 1.3", v)
		}
	}
	for _, c := range []struct {
		own, other Use
		want       float64
	}{{Use{400_000, 300_000}, Use{500_000, 600_000}, 1}, {Use{600_000, 40_000}, Use{100_000, Million}, 1},
		{Use{Million, 0}, Use{Million, 0}, 2}} {
		if v := Roofline(c.own, c.other); v != c.want {
			t.Errorf("%+v beside %+v: %v, want %v", c.own, c.other, v, c.want)
		}
	}
}

// world is a table of pairs that follow a rule from the jobs' use, up to noise.
func world(r *rand.Rand, models int, noise float64, left func(a, b Use) float64) *Table {
	t := &Table{Pairs: map[Pair]int64{}, Use: map[string]Use{}}
	for i := range models {
		t.Use[fmt.Sprintf("m%02d", i)] = Use{50_000 + r.Int64N(900_000), 50_000 + r.Int64N(900_000)}
	}
	for i := range models {
		for k := range models {
			a, b := fmt.Sprintf("m%02d", i), fmt.Sprintf("m%02d", k)
			t.Pairs[Pair{a, b}] = ppm(left(t.Use[a], t.Use[b])+noise*r.NormFloat64(), 1)
		}
	}
	return t
}

func linearly(a, b Use) float64 {
	return Linear{-.1, -.25, -.05, -.4, 1}.At(a, b, 1, 1)
}

func byRoof(a, b Use) float64 { return 1 / Roofline(a, b) }

// Interference follows one rule or another; the selected way is the one close to it, for pairs and
// for job models without known pairs, and the stated errors are the actual ones.
func TestWaysAreChosen(t *testing.T) {
	r := rand.New(rand.NewPCG(7, 7))
	for _, c := range []struct {
		name string
		left func(a, b Use) float64
		way  int
	}{{"linear", linearly, byLinear}, {"roofline", byRoof, byRoofline}} {
		full := world(r, 16, 0.01, c.left)
		part := &Table{Use: full.Use, Pairs: map[Pair]int64{}}
		for p, v := range full.Pairs {
			if p[0] < "m14" && p[1] < "m14" && (p[0] != "m03" || p[1] != "m05") {
				part.Pairs[p] = v
			}
		}
		got, _, pairs := part.Predict()
		if pairs.Filled != 16*16-14*14+1 || got.Ways[c.way].Models.Filled != 16*16-14*14 ||
			got.Ways[c.way].Models.Known < 14*14-1 {
			t.Errorf("%s: %+v, %+v", c.name, pairs, got.Ways)
		}
		off := 0.0
		for p, v := range full.Pairs {
			if _, listed := part.Pairs[p]; !listed {
				off += math.Abs(float64(got.Pairs[p]-v)) / Million / float64(pairs.Filled)
			} else if got.Pairs[p] != v {
				t.Errorf("%s: %v is listed as %d, but %d is returned", c.name, p, v, got.Pairs[p])
			}
		}
		if said := got.Ways[c.way].Models.Mean; off > 0.02 || said > 0.02 || math.Abs(off-said) > 0.01 {
			t.Errorf("%s: off by %.3f, it says %.3f", c.name, off, said)
		}
	}
	alone := &Table{Use: map[string]Use{"a": {Million, 0}, "b": {Million, 0}}}
	if got, _, e := alone.Predict(); e.Filled != 4 || e.Known != 0 || got.Pairs[Pair{"a", "b"}] != 500_000 {
		t.Errorf("without any pair: %v, %+v", got.Pairs, e)
	}
	if _, _, e := (&Table{Pairs: map[Pair]int64{{"a", "b"}: 1}}).Predict(); e.Filled != 0 {
		t.Errorf("of two job models of which one pair is known: %+v", e)
	}
}

// On Gavel's pairs, which state no use, the most similar job models are closer to the truth than
// the linear model.
func TestWaysMeasured(t *testing.T) {
	for _, gpu := range []string{"v100", "p100", "k80"} {
		got, _, e := measured(t, gpu).Predict()
		like, linear := got.Ways[byLike].Pairs, got.Ways[byLinear].Pairs
		t.Logf("%s: off by %.3f by like models, by %.3f by the linear model, on %d pairs", gpu, like.Mean, linear.Mean,
			like.Known)
		if like.Mean > linear.Mean || e.Mean != like.Mean || linear.Known != like.Known || linear.Mean > 0.15 {
			t.Errorf("%s: %+v", gpu, got.Ways)
		}
	}
}

// The fit is a minimum: the residuals leave nothing that the weights, or (up to the ridge) the
// terms of a job model, could explain. Equal jobs have equal estimates, and no job speeds up next
// to another.
func TestFitIsLeast(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 9))
	for range 20 {
		table := world(r, 9, 0.1, linearly)
		for p := range table.Pairs {
			if r.IntN(3) == 0 {
				delete(table.Pairs, p)
			}
		}
		d := pairsOf(table, nil)
		f := fitLinear(d)
		own, beside := make([]float64, len(d.names)), make([]float64, len(d.names))
		var weights [features]float64
		for _, p := range d.list {
			x := terms(d.use[p.i], d.use[p.k], 1, 1)
			off := p.v - f.weights.At(d.use[p.i], d.use[p.k], 1, 1) - f.own[p.i] - f.beside[p.k]
			own[p.i], beside[p.k] = own[p.i]+off, beside[p.k]+off
			for k := range weights {
				weights[k] += x[k] * off
			}
		}
		for m := range own {
			own[m] -= ridge * f.own[m]
			beside[m] -= ridge * f.beside[m]
		}
		for _, left := range [][]float64{own, beside, weights[:]} {
			for _, v := range left {
				if math.Abs(v) > 0.02 {
					t.Errorf("%v is left", left)
				}
			}
		}
		fit := d.fit()
		for i := range d.names {
			for k := range d.names {
				for w := range ways {
					if v, ok := fit.by(w, i, k); ok && (v < 0 || v > 1) {
						t.Errorf("%s of %d beside %d: %v", PairWays[w], i, k, v)
					}
				}
			}
		}
	}
}

// Measured pairs count like listed ones, except where the table lists the pair.
func TestEstimator(t *testing.T) {
	full := world(rand.New(rand.NewPCG(2, 3)), 10, 0, linearly)
	measured := map[[2]string]int64{}
	for p, v := range full.Pairs {
		if p[0] != "m09" && p[1] != "m09" {
			measured[p] = v
		}
	}
	table, _, _ := (&Table{Use: full.Use, Pairs: map[Pair]int64{{"m00", "m01"}: 123_456}}).Predict()
	before := table.Pairs[Pair{"m09", "m02"}]
	of := table.Estimator(measured)
	for _, p := range []Pair{{"m09", "m02"}, {"m02", "m09"}, {"m09", "m09"}} {
		v, ok := of(p[0], p[1])
		if truth := full.Pairs[p]; !ok || math.Abs(float64(v-truth)) > 40_000 {
			t.Errorf("%v: %d %v, it is %d; before %d", p, v, ok, truth, before)
		}
	}
	for _, p := range []Pair{{"m00", "m01"}, {"m00", "nobody"}} {
		if v, ok := of(p[0], p[1]); ok {
			t.Errorf("%v: %d", p, v)
		}
	}
	if (&Table{}).Estimator(measured) != nil {
		t.Error("a table that does not predict does")
	}
}
