package progress

import (
	"math"
	"testing"

	"github.com/muster-gpu/muster/perf"
	"github.com/muster-gpu/muster/show"
)

// A job's end is predicted from its loss, whatever the number of reports, and also after it went
// back to a checkpoint.
func TestConverges(t *testing.T) {
	curve, c := perf.LossCurve{B0: 0.02, B1: 0.5, B2: 0.2}, perf.Convergence{Metric: "loss", Below: 0.001, Times: 2}
	end := c.End(curve, 10)
	var f *Falling
	const stated = "loss:0.001:2"
	tell := func(step, steps float64) show.Progress {
		v, other := curve.At(step), 3.0
		p := show.Progress{Step: step, Steps: steps}
		f = Converges(stated, f,
			[]Measure{{Step: step, Of: map[string]*float64{"loss": &v}},
				{Step: step, Of: map[string]*float64{"other": &other}},
				{Trial: 2, Step: step, Of: map[string]*float64{"loss": &other}}}, &p)
		return p
	}
	for k := 1; k < 5; k++ {
		if p := tell(float64(k*10), 0); p.Steps != 0 || p.Predicted {
			t.Errorf("after %d reports: %+v", k, p)
		}
	}
	for k := 5; k < 3*mostLosses && float64(k*10) < end; k++ {
		if p := tell(float64(k*10), 0); k > 6 && math.Abs(p.Steps-end) > 20 || !p.Predicted {
			t.Fatalf("after %d reports: %+v, it will converge at %v", k, p, end)
		}
	}
	if len(f.List) > mostLosses || f.Every != 10 {
		t.Errorf("%d reports are kept, every %v", len(f.List), f.Every)
	}
	if p := tell(60, 100); p.Steps != 100 || p.Predicted || len(f.List) > 6 {
		t.Errorf("it went back, and states an earlier end: %+v, %d reports", p, len(f.List))
	}
	if p := tell(end+50, 0); p.Steps != end+70 || !p.Predicted {
		t.Errorf("it continues beyond its end: %+v", p)
	}
	p := show.Progress{Step: end + 55}
	if f = Converges(stated, f, nil, &p); p.Steps != end+75 {
		t.Errorf("without a new report: %+v", p)
	}
	p = show.Progress{Step: 1}
	if Converges("", f, nil, &p); p.Steps != 0 {
		t.Errorf("a job that states nothing: %+v", p)
	}
}
