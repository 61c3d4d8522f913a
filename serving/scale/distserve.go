package scale

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
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
// a recorded workload; here lengths are drawn with the means that were seen, and variants are the ways to use GPUs
// together (TP, PP) of which it chooses: how many a replica has, and in how many stages.
type distserve struct {
	over          float64
	rate          forecast
	recent        peak
	lengths, last tokens    // moving means of requests; for which goodput was found last
	goodput       []float64 // by variant
	none          []string  // why a variant has no goodput
	says          string
	runs          [2]int // variant of each phase; -1: none was chosen yet
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
	d.says = d.compared(v, first) + "; " + d.compared(v, then)
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
	d.fit(v, want, first, then)
	return want
}

// fit leaves out what the cluster's GPUs can never hold beside each other, of the phase that does more: where replicas
// of one phase had them all, no request would be answered.
func (d *distserve) fit(v *View, want []int, first, then int) {
	gpus := func(i int) int { return want[i] * v.Service.Variants[i].Request.GPUs }
	does := func(i int) float64 { return float64(want[i]-1) * d.goodput[i] }
	models := append(slices.Clone(v.gpusOf(&v.Service.Variants[first])), v.gpusOf(&v.Service.Variants[then])...)
	total := 0
	for _, g := range v.GPUs {
		if slices.Contains(models, g.Model) {
			total += g.Number
		}
	}
	for total > 0 && gpus(first)+gpus(then) > total && max(want[first], want[then]) > 1 {
		if want[then] == 1 || want[first] > 1 && does(first) >= does(then) {
			want[first]--
		} else {
			want[then]--
		}
	}
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
	d.goodput, d.none = make([]float64, len(v.Service.Variants)), make([]string, len(v.Service.Variants))
	if l.prompt < 1 || l.output < 1 {
		return
	}
	w := llm.Exponential(workload, l.prompt, l.output)
	for i := range d.goodput {
		x := &v.Service.Variants[i]
		for k, gpu := range v.gpusOf(x) { // on the slowest of those that it may get
			rate, lacks := d.on(v, x, gpu, w)
			if k == 0 || rate < d.goodput[i] && rate > 0 || d.goodput[i] == 0 {
				d.goodput[i], d.none[i] = rate, lacks
			}
		}
	}
}

// on is the goodput of a replica of a variant on GPUs of a model, with requests such as these; else why it has none.
func (d *distserve) on(v *View, x *service.Variant, gpu string, w llm.Workload) (rate float64, lacks string) {
	takes, e, err := x.Language.On(gpu, x.Request.GPUs)
	if err != nil {
		return 0, err.Error()
	}
	goal, phase := v.Service.Goal, x.Language.Phase
	part := 1 - (1-goal.Percentile/100)/2 // of each phase, so that of the requests as many meet both
	if rate = llm.Goodput(e, takes, phase, w, goal.TTFT, d.tpot(v, x), part); rate > 0 {
		return rate, ""
	}
	bound := "ttft"
	if phase == llm.Decode {
		bound = "tpot"
	}
	return 0, "it misses " + bound + " on " + gpu
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
	goodput, on := slices.Clone(d.goodput), make([]llm.Layout, len(d.goodput))
	first := -1
	for i := range goodput {
		on[i] = v.Service.Variants[i].Parallel()
		switch {
		case v.Service.Variants[i].Language.Phase != phase:
			goodput[i] = 0
		case first < 0:
			first = i
		}
	}
	i, was := llm.Best(goodput, on), &d.runs[phase-llm.Prefill]
	switch {
	case i < 0 && *was < 0:
		return first
	case i >= 0 && (*was < 0 || d.each(v, i) > better*d.each(v, *was)):
		*was = i
	}
	return *was
}

// each is the goodput of a variant for each GPU.
func (d *distserve) each(v *View, i int) float64 {
	return d.goodput[i] / float64(v.Service.Variants[i].Request.GPUs)
}

// compared says what the variants of a phase do on each GPU: the one that is taken first, then the others, the best
// of them first.
func (d *distserve) compared(v *View, taken int) string {
	of := &v.Service.Variants[taken]
	var others []int
	for i := range v.Service.Variants {
		if i != taken && v.Service.Variants[i].Language.Phase == of.Language.Phase {
			others = append(others, i)
		}
	}
	slices.SortStableFunc(others, func(a, b int) int { return cmp.Compare(d.each(v, b), d.each(v, a)) })
	list := make([]string, 0, 1+len(others))
	for _, i := range append([]int{taken}, others...) {
		name := v.Service.Variants[i].Name
		if d.goodput[i] > 0 {
			list = append(list, fmt.Sprintf("%s %.3g", name, d.each(v, i)))
		} else {
			list = append(list, fmt.Sprintf("%s none (%s)", name, cmp.Or(d.none[i], "no request was seen yet")))
		}
	}
	return fmt.Sprintf("%s, requests a second on each GPU: %s", llm.PhaseNames[of.Language.Phase],
		strings.Join(list, ", "))
}

// Says is what the variants of each phase were found to do.
func (d *distserve) Says() string { return d.says }
