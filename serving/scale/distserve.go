package scale

import (
	"errors"
	"math"
	"slices"
	"time"

	"github.com/muster-gpu/muster/internal/knobs"
	"github.com/muster-gpu/muster/service"
	"github.com/muster-gpu/muster/serving/llm"
)

var distserveKind = kind{knobs.Kind{Name: "distserve",
	About: "DistServe: of the variants for prompts and of those for the tokens after, the one that does most on each GPU",
	Knobs: []knobs.Knob{
		{Name: "over", Default: "0.1", About: "part by which the forecast is exceeded on purpose"},
		{Name: "window", Default: "2m", About: "replicas leave when none of this time needed them"}}},
	newDistServe}

// distserve follows DistServe (Zhong et al., OSDI 2024, section 4.1): prompts (prefill) and the tokens after the first
// (decode) are computed by different replicas. For each phase alone the goodput of every variant is found by
// simulation, the variant with the most for each GPU is taken, and as many replicas of it as the rate needs. It
// plans again when the rate has changed, or requests have become longer or shorter by a tenth. The paper takes
// a recorded workload and the parallelism as it comes; here lengths are drawn with the means that were seen,
// and variants say how many GPUs a replica has.
type distserve struct {
	over          float64
	rate          forecast
	recent        peak
	lengths, last tokens    // moving means of requests; for which goodput was found last
	goodput       []float64 // by variant
	runs          [2]int    // variant of each phase; -1: none was chosen yet
}

// tokens is how long requests are.
type tokens struct{ prompt, output float64 }

// away reports whether a length differs from another by more than a tenth.
func (t tokens) away(o tokens) bool {
	return math.Abs(t.prompt-o.prompt) > o.prompt/10 || math.Abs(t.output-o.output) > o.output/10
}

const (
	workload  = 600         // requests that are played to find a goodput
	newest    = 0.1         // weight of a period's lengths in the moving means
	better    = 1.1         // times the goodput for each GPU for which another variant replaces one that runs
	drainedIn = time.Minute // what waits is to be gone after so long
)

func newDistServe(k *knobs.Set) (Policy, error) {
	d := &distserve{runs: [2]int{-1, -1}}
	var err error
	if d.over, err = k.Number("over", 0, 10); err != nil {
		return nil, err
	}
	d.recent.window, err = k.Duration("window")
	return d, err
}

// Check reports as an error that a service's variants have no phases.
func (d *distserve) Check(s *service.Service) error {
	if !s.Phased() {
		return errors.New("distserve needs variants with phase: prefill and variants with phase: decode")
	}
	return nil
}

func (d *distserve) Decide(v *View) []int {
	d.rate.see(v)
	need := d.rate.expected(v, 1) * (1 + d.over)
	need += float64(v.Waiting) / drainedIn.Seconds()
	need = d.recent.highest(v.Now, need)
	d.measure(v)
	want := make([]int, len(v.Service.Variants))
	first, then := d.best(v, llm.Prefill), d.best(v, llm.Decode)
	for _, i := range []int{first, then} {
		if g := d.goodput[i]; g > 0 {
			want[i] = int(math.Ceil(need / g))
		}
		if v.Arrived > 0 || v.Waiting > 0 || v.Service.Replicas.Min > 0 {
			want[i] = max(want[i], 1)
		}
	}
	if least := v.Service.Replicas.Min; want[first]+want[then] < least {
		want[then] = least - want[first]
	}
	if total, most := want[first]+want[then], v.Service.Replicas.Max; total > most { // both phases for the same part
		want[first] = min(most-1, max(1, want[first]*most/total))
		want[then] = most - want[first]
	}
	return want
}

// measure finds the goodput of each variant if requests are not as long as when it was found last.
func (d *distserve) measure(v *View) {
	l, seen := &d.lengths, v.tokens()
	if l.prompt == 0 {
		*l = seen
	}
	l.prompt += newest * (seen.prompt - l.prompt)
	l.output += newest * (seen.output - l.output)
	if d.goodput != nil && !l.away(d.last) {
		return
	}
	d.last = *l
	d.goodput = make([]float64, len(v.Service.Variants))
	if l.prompt < 1 || l.output < 1 {
		return
	}
	goal := v.Service.Goal
	part := 1 - (1-goal.Percentile/100)/2 // of each phase, so that of the requests as many meet both
	w := llm.Exponential(workload, l.prompt, l.output)
	for i := range d.goodput {
		x := &v.Service.Variants[i]
		for k, gpu := range v.gpusOf(x) { // on the slowest of those that it may get
			takes, e, err := x.Language.On(gpu, x.Request.GPUs)
			rate := 0.0
			if err == nil {
				rate = llm.Goodput(e, takes, x.Language.Phase, w, goal.TTFT, d.tpot(v, x), part)
			}
			if k == 0 || rate < d.goodput[i] && rate > 0 || d.goodput[i] == 0 {
				d.goodput[i] = rate
			}
		}
	}
}

// tpot is the time of a token after the first, without the keys' and values' way from one replica to the other, which
// the slowest link bounds.
func (d *distserve) tpot(v *View, x *service.Variant) time.Duration {
	slowest := math.Inf(1)
	for i := range v.Service.Variants {
		if l := v.Service.Variants[i].Language; l.Phase == llm.Prefill {
			slowest = min(slowest, l.Link)
		}
	}
	moved := d.last.prompt * x.Language.Model.KV() / slowest / max(1, d.last.output-1)
	return max(0, v.Service.Goal.TPOT-time.Duration(moved*1e9))
}

// best is the variant of a phase that does most on each GPU, the first of the phase if nothing is known. One that runs
// stays unless another is clearly better.
func (d *distserve) best(v *View, phase llm.Phase) int {
	goodput, gpus := slices.Clone(d.goodput), make([]int, len(d.goodput))
	first := -1
	for i := range goodput {
		gpus[i] = v.Service.Variants[i].Request.GPUs
		switch {
		case v.Service.Variants[i].Language.Phase != phase:
			goodput[i] = 0
		case first < 0:
			first = i
		}
	}
	i, was := llm.Best(goodput, gpus), &d.runs[phase-llm.Prefill]
	switch {
	case i < 0 && *was < 0:
		return first
	case i >= 0 && (*was < 0 || goodput[i]/float64(gpus[i]) > better*goodput[*was]/float64(gpus[*was])):
		*was = i
	}
	return *was
}
