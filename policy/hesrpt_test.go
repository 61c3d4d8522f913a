package policy

import (
	"math"
	"testing"
)

// By hand, for p = 1/2: of three jobs the longest has 1/9 of the GPUs, the two longest 4/9; the
// shortest has the rest. A job that cannot use its part leaves it to the others: 7 GPUs for two jobs,
// a quarter and three quarters of them. For p = 0 all have the same.
func TestHesrptParts(t *testing.T) {
	for _, c := range []struct {
		most       []float64
		gpus, bend float64
		want       []float64
	}{
		{[]float64{9, 9, 9}, 9, 2, []float64{5, 3, 1}},
		{[]float64{2, 9, 9}, 9, 2, []float64{2, 5.25, 1.75}},
		{[]float64{9, 9, 9}, 9, 1, []float64{3, 3, 3}},
		{[]float64{9, 1, 9}, 9, 1, []float64{4, 1, 4}},
		{[]float64{1, 1}, 9, 2, []float64{1, 1}},
		{nil, 9, 2, nil},
	} {
		got := hesrptParts(c.most, c.gpus, c.bend)
		for i := range c.want {
			if len(got) != len(c.want) || math.Abs(got[i]-c.want[i]) > 1e-9 {
				t.Errorf("%+v: %v", c, got)
				break
			}
		}
	}
}

// Of all divisions between two jobs that start together, the formula's has the least mean completion
// time, however they scale and however much longer one is.
func TestHesrptIsOptimal(t *testing.T) {
	for _, p := range []float64{0.1, 0.5, 0.8} {
		for _, long := range []float64{1, 1.5, 4} { // the short one is 1, on one GPU in all
			flow := func(short float64) float64 { // while both run, the short one has this part
				ends := 1 / math.Pow(short, p)
				left := long - ends*math.Pow(1-short, p)
				if left < 0 { // the long one would end first
					return math.Inf(1)
				}
				return ends + ends + left
			}
			best := hesrptParts([]float64{1, 1}, 1, 1/(1-p))[0]
			for part := 0.01; part < 1; part += 0.01 {
				if flow(part) < flow(best)-1e-9 {
					t.Errorf("p=%v, %v times as long: %.2f is better than %.4f", p, long, part, best)
				}
			}
		}
	}
}
