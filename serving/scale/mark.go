package scale

import "github.com/muster-gpu/muster/internal/knobs"

var markKind = kind{knobs.Kind{Name: "mark",
	About: "MArk: the cheapest mix of instances for the rate that is forecast, and at once for what came beyond it",
	Knobs: []knobs.Knob{{Name: "over", Default: "0.1", About: "part by which the forecast is exceeded on purpose"}}},
	newMark}

// mark follows MArk (Zhang et al., ATC 2019, section 4): a forecast for the time when new instances answer, the
// cheapest set of instances for it, and a reactive correction in each period by what came. The paper forecasts
// with an LSTM; here it is a level with a trend.
type mark struct {
	over float64
	rate forecast
}

func newMark(k *knobs.Set) (Policy, error) {
	over, err := k.Number("over", 0, 10)
	return &mark{over: over}, err
}

func (m *mark) Decide(v *View) []int {
	m.rate.see(v)
	if len(v.options(true)) == 0 {
		return only(v, 0, max(1, v.Replicas()))
	}
	want, _ := v.cheapest(m.rate.expected(v, 1)*(1+m.over), 1)
	return want
}
