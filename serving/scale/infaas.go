package scale

import (
	"math"

	"github.com/muster-gpu/muster/internal/knobs"
)

var infaasKind = kind{knobs.Kind{Name: "infaas",
	About: "INFaaS: when replicas are overloaded, the cheapest of replicating them, upgrading and downgrading",
	Knobs: []knobs.Knob{
		{Name: "high", Default: "0.8", About: "part of what it sustains at which a variant is overloaded"},
		{Name: "low", Default: "0.5", About: "... below which it is underused"}}}, newINFaaS}

// infaas follows INFaaS (Romero et al., ATC 2021, section 4.2): among the variants that meet the goal and the
// accuracy it adds for load beyond what is there those that cost least, switching included, and takes away what
// is underused. It reacts to what is measured, and forecasts nothing.
type infaas struct{ high, low float64 }

func newINFaaS(k *knobs.Set) (Policy, error) {
	f := &infaas{}
	var err error
	if f.high, err = k.Number("high", 0.01, 1); err != nil {
		return nil, err
	}
	f.low, err = k.Number("low", 0, 1)
	return f, err
}

func (f *infaas) Decide(v *View) []int {
	list := v.options(false)
	if len(list) == 0 {
		return only(v, 0, max(1, v.Replicas()))
	}
	want := make([]int, len(v.Service.Variants))
	covered := 0.0
	total := 0
	for k := range list {
		i := list[k].Variant
		want[i] = v.Ready[i] + v.Coming[i]
		total += want[i]
		covered += float64(want[i]) * list[k].rate
	}
	rate := v.Rate()
	if v.Period > 0 {
		rate += float64(v.Waiting) / v.Period.Seconds()
	}
	switch {
	case rate > f.high*covered:
		f.grow(v, list, want, rate/f.high-covered, total)
	case rate < f.low*covered && total > v.Service.Replicas.Min:
		f.shrink(list, want, covered-rate/f.high)
	}
	if total == 0 && v.Service.Replicas.Min > 0 {
		want, _ = v.cheapest(0, 1)
		return want
	}
	return want
}

// grow adds replicas for a rate: of the option whose replicas for all of it cost least.
func (f *infaas) grow(v *View, list []option, want []int, rate float64, total int) {
	best, least, number := -1, math.Inf(1), 0
	for k := range list {
		n := int(math.Ceil(rate / list[k].rate))
		if c := float64(n) * list[k].cost; c < least {
			best, least, number = k, c, n
		}
	}
	want[list[best].Variant] += min(number, max(0, v.Service.Replicas.Max-total))
}

// shrink takes away one replica that the others can do without: the dearest.
func (f *infaas) shrink(list []option, want []int, spare float64) {
	best := -1
	for k := range list {
		if o := &list[k]; want[o.Variant] > 0 && o.rate <= spare && (best < 0 || o.cost > list[best].cost) {
			best = k
		}
	}
	if best >= 0 {
		want[list[best].Variant]--
	}
}
