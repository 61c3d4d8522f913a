package results

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/serving/llm"
)

// instances are equal ones that compute a phase: the GPUs of each (tensor parallel, stages, data parallel).
type instances struct{ number, tp, pp, dp int }

// measuredApart is a measurement of a closed loop whose prompts and further tokens are computed by different instances.
type measuredApart struct {
	model, gpu, precision string
	callers               int
	phase                 [2]instances // prefill, decode
	prompt, output        float64
	ttft, tpot            float64 // seconds, in the mean
}

// apartModel is a model of these measurements: experts of which a token passes some, and keys and values in one latent
// vector for all heads, if latent.
type apartModel struct {
	model           llm.Model
	latent          bool
	experts, passes float64
	shared          float64 // part of the weights that every token passes
}

// latentDim is what a head of DeepSeek-V3 computes with for a token after the first: the latent vector and its position
// (512 and 64) for how much it looks at each, the latent vector for what it sees.
const latentDim = (512 + 64 + 512) / 2

// apartModels are those whose sizes are known, by name and precision: DeepSeek-V3's from its report (2024), with a byte
// for each parameter, half of one in fp4; Qwen3-32B's with half a byte.
var apartModels = func() map[string]apartModel {
	deepSeek := func(bytes float64) apartModel {
		return apartModel{latent: true, experts: 256, passes: 8, shared: 17. / 671,
			model: llm.Model{Params: 37e9, Weights: 671e9 * bytes, Layers: 61, Heads: 128, HeadDim: 160,
				KVBytes: 70272}}
	}
	return map[string]apartModel{"DeepSeek-V3, fp8": deepSeek(1), "DeepSeek-V3, fp4": deepSeek(0.5),
		"Qwen3-32B-NVFP4, fp4": {shared: 1, model: llm.Model{Params: 32.8e9, Weights: 16.4e9, Layers: 64, Heads: 64,
			KVHeads: 8, HeadDim: 128}}}
}()

// apartGPUs are our names of the GPUs.
var apartGPUs = map[string]string{"h100": "H100-80GB", "h200": "H200-141GB", "b200": "B200-180GB",
	"gb200": "GB200-186GB"}

// on is an instance on GPUs: the blocks of KV memory, and how long its steps take. Data parallel groups share the
// experts, and each has sequences of its own: they are one instance, on which no key and value is twice. Without them
// every GPU that shares a layer has all of the latent vectors. Of the experts' weights those are read that the tokens
// of a step hit, if each picks at random.
func (m *apartModel) on(gpu string, precision llm.Precision, x instances, decode bool) (blocks int, takes llm.Timer) {
	g, _ := llm.FindGPU(gpu, precision)
	model, lay := m.model, llm.Layout{TP: x.tp * x.dp, PP: x.pp}
	if m.latent && x.dp == 1 {
		model.KVHeads = 1
	}
	if m.latent && decode {
		model.HeadDim = latentDim
	}
	blocks = model.Blocks(lay, &g, 0.9, 0)
	if m.experts == 0 {
		return blocks, llm.Roofline(&model, &g, lay)
	}
	all := model.Weights
	return blocks, func(s *llm.Step) time.Duration {
		hit := 1 - math.Pow(1-m.passes/m.experts, float64(s.Tokens))
		model.Weights = all * (m.shared + (1-m.shared)*hit)
		return llm.Roofline(&model, &g, lay)(s)
	}
}

func readApart(path string) (list []measuredApart, err error) {
	err = eachRow(path, func(_, r []string) error {
		if len(r) < 18 {
			return errors.New("there are fewer than 18 columns")
		}
		p := measuredApart{model: r[0] + ", " + r[3], gpu: r[1], precision: r[3]}
		var whole [9]int
		var wrong []error
		for i, k := range []int{6, 7, 8, 9, 10, 14, 11, 12, 13} {
			n, err := strconv.Atoi(r[k])
			whole[i], wrong = n, append(wrong, err)
		}
		p.callers = whole[0]
		p.phase = [2]instances{{whole[1], whole[2], whole[3], whole[4]}, {whole[5], whole[6], whole[7], whole[8]}}
		for to, k := range map[*float64]int{&p.prompt: 4, &p.output: 5, &p.ttft: 16, &p.tpot: 17} {
			v, err := strconv.ParseFloat(r[k], 64)
			*to, wrong = v, append(wrong, err)
		}
		p.ttft, p.tpot = p.ttft/1e3, p.tpot/1e3
		list = append(list, p)
		return errors.Join(wrong...)
	})
	return list, err
}

// lacks says why a measurement cannot be predicted; "": it can.
func (p *measuredApart) lacks() string {
	m, known := apartModels[p.model]
	gpu := apartGPUs[p.gpu]
	switch {
	case !known:
		return "the sizes of " + strings.Split(p.model, ",")[0] + " are not known here"
	case gpu == "":
		return "the speed of " + p.gpu + " is not known here"
	}
	for i, x := range p.phase {
		blocks, _ := m.on(gpu, llm.Precision(p.precision), x, i > 0)
		if blocks*llm.BlockTokens < int(p.prompt+p.output) {
			return "the weights, or a request beside them, do not fit on so few GPUs"
		}
	}
	return ""
}

// apartLoop is a closed loop while it is played.
type apartLoop struct {
	playedLoop
	now     cluster.Time
	x       [2][]*llm.Instance
	done    []apartMove // heads that are done, whose keys and values another instance fetches, in order
	moving  []apartMove
	rate    float64 // bytes of keys and values of a token, over bytes per second
	answers int     // in the last step
}

// apartMove is what is left of a request, and where its keys and values are, or go.
type apartMove struct {
	rest     llm.Sequence
	from, to *llm.Instance
	blocks   int32
	at       cluster.Time
}

// head observes an instance of prefill.
type head struct {
	*apartLoop
	of *llm.Instance
}

// Done implements llm.Observer.
func (h *head) Done(s *llm.Sequence) {
	rest, more := s.Tail()
	if !more {
		h.playedLoop.Done(s)
		h.answers++
		return
	}
	h.done = append(h.done, apartMove{rest: rest, from: h.of, blocks: h.of.Hold(s)})
}

// Done implements llm.Observer.
func (l *apartLoop) Done(s *llm.Sequence) {
	l.playedLoop.Done(s)
	l.answers++
}

// fewest is the instance with the fewest sequences of those with room for a request; nil: none has.
func fewest(list []*llm.Instance, room func(x *llm.Instance) bool) (best *llm.Instance) {
	for _, x := range list {
		if room(x) && (best == nil || x.Waiting()+x.Running() < best.Waiting()+best.Running()) {
			best = x
		}
	}
	return best
}

// fetch lets instances of decode fetch what they have room for, and gives them what has come.
func (l *apartLoop) fetch() {
	for len(l.moving) > 0 && l.moving[0].at <= l.now {
		m := l.moving[0]
		l.moving = l.moving[1:]
		m.to.Arrived(&m.rest)
		m.to.Add(m.rest)
		m.from.Release(m.blocks)
	}
	for len(l.done) > 0 {
		m := l.done[0]
		if m.to = fewest(l.x[1], func(x *llm.Instance) bool { return x.Room(&m.rest) }); m.to == nil {
			return
		}
		l.done = l.done[1:]
		m.to.Expect(&m.rest)
		m.at = l.now.Add(time.Duration(float64(m.rest.Prompt) * l.rate * 1e9))
		k, _ := slices.BinarySearchFunc(l.moving, m.at+1,
			func(a apartMove, at cluster.Time) int { return int(a.at - at) })
		l.moving = slices.Insert(l.moving, k, m)
	}
}

// rounds is how many requests each caller sends: five, down to two where there are many callers.
func (p *measuredApart) rounds() int {
	const tokens = 1e6
	return int(min(5, max(2, tokens/(float64(p.callers)*p.output))))
}

// play plays the closed loop of a measurement on instances of ours, with steps of as many tokens of prompts as the
// longest has, and keys and values that move at 50 GB/s.
func (p *measuredApart) play() playedLoop {
	m := apartModels[p.model]
	l := &apartLoop{rate: m.model.KV() / 50e9}
	for phase, n := range p.phase {
		blocks, takes := m.on(apartGPUs[p.gpu], llm.Precision(p.precision), n, phase > 0)
		for range n.number {
			h := &head{apartLoop: l}
			see := llm.Observer(h)
			if phase == 1 {
				see = l
			}
			h.of = llm.NewInstance(llm.Engine{Tokens: 8192, Sequences: p.callers, Blocks: blocks,
				Watermark: blocks / 100, Stages: n.pp}, takes, see)
			l.x[phase] = append(l.x[phase], h.of)
		}
	}
	rng := rand.New(rand.NewPCG(1, uint64(p.callers)))
	length := func(nominal float64) int32 { return int32(math.Round(nominal * (0.8 + 0.2*rng.Float64()))) }
	left := p.rounds() * p.callers
	send := func(n int) {
		for range min(n, left) {
			left--
			x := fewest(l.x[0], func(*llm.Instance) bool { return true })
			x.Add(llm.Head(llm.Sequence{Arrived: l.now, Prompt: length(p.prompt), Output: length(p.output)}))
		}
	}
	all := slices.Concat(l.x[0], l.x[1])
	l.now = 1 // 0 is no time of a first token
	send(p.callers)
	for {
		next := cluster.Never
		if l.fetch(); len(l.moving) > 0 {
			next = l.moving[0].at
		}
		for _, x := range all {
			x.Begin(l.now)
			next = min(next, x.End())
		}
		if next == cluster.Never {
			break
		}
		l.now, l.answers = next, 0
		for _, x := range all {
			if x.End() == next {
				x.Finish()
			}
		}
		send(l.answers)
	}
	l.ttft, l.tpot = l.ttft/float64(l.n), l.tpot/float64(l.n)
	return l.playedLoop
}

// LanguageApart sets language models whose prompts and further tokens are computed by different instances beside
// measured ones.
func LanguageApart(ctx context.Context, traces string) (Table, error) {
	t := Table{Title: "Language models: prompts and further tokens apart, beside measurements"}
	list, err := readApart(filepath.Join(traces, "llm-profiles", "silicon-disagg.csv"))
	if err != nil {
		return t, err
	}
	all, on, at := errorsApart{}, map[string]*errorsApart{}, make([]errorsApart, len(apartCallers))
	out := map[string]int{}
	for i := range list {
		if err := ctx.Err(); err != nil {
			return t, err
		}
		p := &list[i]
		if why := p.lacks(); why != "" {
			out[why]++
			continue
		}
		name := p.model + ", " + apartGPUs[p.gpu]
		if on[name] == nil {
			on[name] = &errorsApart{}
		}
		k := slices.IndexFunc(apartCallers, func(most int) bool { return p.callers <= most })
		got := p.play()
		for _, e := range []*errorsApart{&all, on[name], &at[k]} {
			e.ttft.add(got.ttft, p.ttft)
			e.tpot.add(got.tpot, p.tpot)
		}
	}
	t.About = fmt.Sprintf(apartAbout, len(list), len(all.ttft), apartLeft(out))
	head := []string{"rows", "TTFT: mean error", "median difference", "lowest", "highest", "TPOT: mean error",
		"median difference", "lowest", "highest"}
	by := Section{Title: "By model and GPU", Head: append([]string{"model, precision, GPU"}, head...)}
	for _, name := range slices.Sorted(maps.Keys(on)) {
		by.Cells = append(by.Cells, on[name].cells(name))
	}
	by.Cells = append(by.Cells, all.cells("all"))
	crowd := Section{Title: "By callers", About: apartWhy, Head: append([]string{"callers"}, head...)}
	for i, most := range apartCallers {
		name := fmt.Sprintf("up to %d", most)
		if i+1 == len(apartCallers) {
			name = "more"
		}
		crowd.Cells = append(crowd.Cells, at[i].cells(name))
	}
	t.Sections = append(t.Sections, by, crowd)
	return t, nil
}

// apartCallers are the upper ends of the numbers of callers by which measurements are grouped.
var apartCallers = []int{16, 128, 1024, math.MaxInt}

// apartLeft says how many measurements are left out for which reason.
func apartLeft(out map[string]int) string {
	var list []string
	for _, why := range slices.Sorted(maps.Keys(out)) {
		list = append(list, fmt.Sprintf("%d because %s", out[why], why))
	}
	return strings.Join(list, ", and ")
}

// errorsApart are differences to measured times.
type errorsApart struct{ ttft, tpot differences }

func (e *errorsApart) cells(name string) []string {
	a, b := e.ttft.cells(name), e.tpot.cells(name)
	return []string{a[0], a[1], a[2], a[3], a[5], a[6], b[2], b[3], b[5], b[6]}
}

const apartAbout = "Measured are TTFT and TPOT of model servers (SGLang, TensorRT-LLM) of which some instances compute prompts and others the further tokens, in a closed loop: so many callers, each of which sends its next request when it has its answer (aiconfigurator's silicon points, from InferenceX; Apache-2.0; %d rows). %d of them are played on as many instances of ours (`phase: prefill`, `phase: decode`), with the roofline of `muster sim --services`: two to five requests for each caller, of 80 to 100 %% of the nominal lengths, up to 8,192 tokens of prompts a step, keys and values at 50 GB/s. Nothing was fitted to these rows. " +
	"DeepSeek-V3 passes 8 of 256 experts, and a step reads the weights of those that its tokens hit if each picks at random (a services file has no experts: there a step reads all weights). GPUs that are data parallel are one instance here: they share the experts, whose weights fit on none of them. No row has stages (pp is 1 throughout), so pipelines are not compared. Left out are %s. Differences are of ours to the measured times; for such predictions nothing is published to compare with."

const apartWhy = "Where few callers wait for each other the first token is as much too early as anywhere: so it is not the queue that is wrong but the time of a prompt. One of 8,192 tokens takes 39 ms on four B200 in fp4 by the roofline, and the first token of four callers took 330 ms: likely prompts that pass many small experts reach far less than 60 % of a GPU's operations, in fp4 least, and exchanges with experts on other GPUs take more than 20 µs. With more callers, the wait for others is more of the time, and it is played. " +
	"Tokens come a third too early, with more than a thousand callers by half: likely for the same exchanges, and for what a server does between steps. H100 are worst: 16 of them, for each instance, are on two servers, which the roofline does not know. Of the two rows of Qwen3-32B, which is dense, tokens come too late instead; keys and values of one byte rather than two would explain it, and were not recorded. Of models with experts, plan no promise by these times: measure. Dense models are [within 12 to 22 % for a token](language.md)."
