package results

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strconv"
	"time"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/serving/llm"
)

// measuredLoop is a measurement of an instance in a closed loop: a number of callers, each of which sends its next
// request once it has the last token of the one before.
type measuredLoop struct {
	gpu, server    string
	gpus, callers  int // the GPUs share each layer
	prompt, output float64
	ttft, tpot     float64 // seconds, in the mean
}

// measuredModel is the measurements of a model.
type measuredModel struct {
	name      string
	model     llm.Model
	precision llm.Precision
	most      float64 // of the KV memory: points that fill it more are left out of the errors
	is        func(model, gpu, server, precision string) bool
	expected  map[string]float64 // of the errors' figures, %
	points    []measuredLoop
}

// measuredGPUs are our names of the GPUs.
var measuredGPUs = map[string]string{"h100": "H100-80GB", "h200": "H200-141GB", "b200": "B200-180GB"}

// llama70B is the model whose points show where KV memory ends.
const llama70B = "Llama-3.1-70B, fp8"

// The figures of errors that are compared.
const (
	errorMean   = "mean error of TPOT, %"
	errorMedian = "median difference, %"
	errorLow    = "lowest difference, %"
	errorHigh   = "highest difference, %"
)

func measuredModels() []measuredModel {
	llama := func(layers, heads int, params, weights float64) llm.Model {
		return llm.Model{Params: params, Weights: weights, Layers: layers, Heads: heads, KVHeads: 8, HeadDim: 128}
	}
	return []measuredModel{
		{name: llama70B, model: llama(80, 64, 70.6e9, 70.6e9), precision: llm.FP8, most: 0.8,
			is: func(model, _, _, precision string) bool { return model == "Llama-3.1-70B" && precision == "fp8" },
			expected: map[string]float64{errorMean: 12, errorMedian: -5, errorLow: -49,
				errorHigh: 38}},
		{name: "Llama-3.1-8B, bf16", model: llama(32, 32, 8.03e9, 16.06e9), precision: llm.BF16, most: math.Inf(1),
			is: func(model, gpu, server, _ string) bool {
				return model == "Llama-3.1-8B-Instruct" && gpu == "h100" && server == "trtllm"
			}, expected: map[string]float64{errorMean: 16}},
		{name: "Llama-3.1-70B, fp4", model: llama(80, 64, 70.6e9, 35.3e9), precision: llm.FP4, most: 0.8,
			is: func(model, _, _, precision string) bool { return model == "Llama-3.1-70B" && precision == "fp4" }},
		{name: "Qwen3-32B, fp8", model: llama(64, 64, 32.8e9, 32.8e9), precision: llm.FP8, most: 0.8,
			is: func(model, gpu, _, precision string) bool {
				return model == "Qwen3-32B" && gpu == "h100" && precision == "fp8"
			}},
		{name: "Qwen3-32B, bf16", model: llama(64, 64, 32.8e9, 65.6e9), precision: llm.BF16, most: 0.8,
			is: func(model, gpu, _, precision string) bool {
				return model == "Qwen3-32B" && gpu == "h100" && precision == "default"
			}},
	}
}

// readMeasuredLoops reads the measurements of models.
func readMeasuredLoops(path string) ([]measuredModel, error) {
	list := measuredModels()
	err := eachRow(path, func(_, r []string) error {
		if len(r) < 12 {
			return errors.New("there are fewer than 12 columns")
		}
		k := slices.IndexFunc(list, func(m measuredModel) bool { return m.is(r[0], r[1], r[2], r[3]) })
		if k < 0 {
			return nil
		}
		p := measuredLoop{gpu: measuredGPUs[r[1]], server: r[2]}
		var wrong [6]error
		p.gpus, wrong[0] = strconv.Atoi(r[4])
		p.prompt, wrong[1] = strconv.ParseFloat(r[6], 64)
		p.output, wrong[2] = strconv.ParseFloat(r[7], 64)
		p.callers, wrong[3] = strconv.Atoi(r[8])
		p.ttft, wrong[4] = strconv.ParseFloat(r[10], 64)
		p.tpot, wrong[5] = strconv.ParseFloat(r[11], 64)
		p.ttft, p.tpot = p.ttft/1e3, p.tpot/1e3
		list[k].points = append(list[k].points, p)
		return errors.Join(wrong[:]...)
	})
	return list, err
}

// instance is the GPU of a point, the blocks of KV memory and the step times of an instance on such.
func (m *measuredModel) instance(p *measuredLoop) (blocks int, takes llm.Timer) {
	g, _ := llm.FindGPU(p.gpu, m.precision)
	return m.model.Blocks(llm.Lay(p.gpus, 1), &g, 0.9, 0), llm.Roofline(&m.model, &g, llm.Lay(p.gpus, 1))
}

// filled is the part of KV memory that the requests of a point take in the mean; above 1, they wait for it.
func (m *measuredModel) filled(p *measuredLoop) float64 {
	blocks, _ := m.instance(p)
	return llm.Saturation(blocks, p.callers, p.prompt, p.output)
}

// LanguageModels sets step times of language models beside measured ones.
func LanguageModels(ctx context.Context, traces string) (Table, error) {
	return languageModels(ctx, traces, 1)
}

// languageModels plays, of the points that fill at most half of the KV memory, one of so many.
func languageModels(ctx context.Context, traces string, of int) (Table, error) {
	t := Table{Title: "Language models: step times and KV memory beside measurements",
		About: "Measured are TTFT and TPOT of model servers (vLLM, TensorRT-LLM, SGLang) on one instance of 1 to 8 GPUs in a closed loop: so many callers, each of which sends its next request when it has its answer (aiconfigurator's silicon points, from NVIDIA's sweeps and InferenceX; Apache-2.0). Ours are the step times of `muster sim --services` (`serving/llm`): a roofline of a GPU's operations, of which 60 % are reached, and of its memory's bandwidth, of which 80 % are, with a millisecond for each step and 20 µs for each exchange between GPUs. Nothing was fitted to these points. " +
			"Expected is what another program computes with the same formulas, to the per cent."}
	models, err := readMeasuredLoops(filepath.Join(traces, "llm-profiles", "silicon-agg.csv"))
	if err != nil {
		return t, err
	}
	t.tokenTimes(models)
	i := slices.IndexFunc(models, func(m measuredModel) bool { return m.name == llama70B })
	return t, t.memoryEnds(ctx, &models[i], of)
}

// tokenTimes adds the errors of the time of a token.
func (t *Table) tokenTimes(models []measuredModel) {
	s := Section{Title: "The time of a token",
		About: "In the steady state of a closed loop a token takes a step that makes one for each caller, at the mean context, and the prompts that come meanwhile: each new request stalls the others once (`llm.TokenTime`, by which the planners size replicas). Differences are of ours to the measured TPOT. Points that fill more than 0.8 of the KV memory are left out, except of Llama-3.1-8B, whose points all fill less. For the last three nothing is expected: they are other models and precisions under the same constants.",
		Head: []string{"model", "points", "mean error", "expected", "median difference",
			"90 % are within", "lowest", "highest"}}
	for i := range models {
		m := &models[i]
		var d differences
		for k := range m.points {
			p := &m.points[k]
			if m.filled(p) >= m.most {
				continue
			}
			_, takes := m.instance(p)
			d.add(llm.TokenTime(takes, 1, p.callers, p.prompt, p.output), p.tpot)
		}
		figures, expected := d.figures(), ""
		for _, name := range []string{errorMean, errorMedian, errorLow, errorHigh} {
			if want, ok := m.expected[name]; ok {
				t.Rows = append(t.Rows, Row{m.name, name, want, math.Round(figures[name]), ""})
			}
		}
		if want, ok := m.expected[errorMean]; ok {
			expected = fmt.Sprintf("%g %%", want)
		}
		s.Cells = append(s.Cells, slices.Insert(d.cells(m.name), 3, expected))
	}
	t.Sections = append(t.Sections, s)
}

// differences are relative ones, in per cent.
type differences []float64

func (d *differences) add(ours, measured float64) { *d = append(*d, 100*(ours/measured-1)) }

// off is the size of each, the least first.
func (d differences) off() []float64 {
	var off []float64
	for _, v := range d {
		off = append(off, math.Abs(v))
	}
	slices.Sort(off)
	return off
}

func (d differences) figures() map[string]float64 {
	mean, sorted := 0.0, slices.Sorted(slices.Values(d))
	for _, v := range d.off() {
		mean += v / float64(len(d))
	}
	return map[string]float64{errorMean: mean, errorMedian: sorted[len(d)/2], errorLow: sorted[0],
		errorHigh: sorted[len(d)-1]}
}

// cells are a row: name, points, mean error, median, what 90 % are within, lowest and highest.
func (d differences) cells(name string) []string {
	f := d.figures()
	return []string{name, strconv.Itoa(len(d)), fmt.Sprintf("%.1f %%", f[errorMean]),
		fmt.Sprintf("%+.1f %%", f[errorMedian]), fmt.Sprintf("%.0f %%", d.off()[len(d)*9/10]),
		fmt.Sprintf("%+.0f %%", f[errorLow]), fmt.Sprintf("%+.0f %%", f[errorHigh])}
}

// filledUp are the upper ends of the parts of KV memory by which points are counted.
var filledUp = []float64{0.5, 0.8, 1, 1.5, 2, math.Inf(1)}

// memoryEnds adds where requests wait for memory.
func (t *Table) memoryEnds(ctx context.Context, m *measuredModel, of int) error {
	counts := Section{Title: "Where KV memory ends",
		About: "The points of " + m.name + ", by the part of KV memory that the requests take in the mean (callers × (prompt + half of the answer), over the tokens that 0.9 of the GPUs' memory holds beside the weights). Late: the time to the first token is over a second and 20 prompts. Played: the same closed loop on an instance of ours (2,048 tokens a step, 1 % of the blocks left free on admission), ten requests for each caller, of 80 to 100 % of the nominal lengths, as InferenceX draws them. " +
			"Up to the whole memory no point is late in either; every point that was measured as late is late when it is played. Of the ten above that were not measured as late, nine are when played. Two of the ten waited for 6.5 and 7.8 s as measured, which is below that bound; why the others did not wait was not recorded (keys and values of one byte instead of two would explain it, but not the ten that were late).",
		Head: []string{"KV memory", "points", "late as measured", "late when played", "late in both"}}
	pair := Section{Title: "The cliff, played",
		About: m.name + " on two H100, prompts of 1,024 tokens and answers of 8,192: twice the callers, and the first token takes a hundred times as long.",
		Head:  []string{"callers", "KV memory", "TTFT measured", "played", "TPOT measured", "played", "preemptions"}}
	var first, each differences
	var early []float64 // milliseconds by which the first token comes earlier than measured
	n, measured, played, both := make([]int, len(filledUp)), make([]int, len(filledUp)), make([]int, len(filledUp)),
		make([]int, len(filledUp))
	for k := range m.points {
		if err := ctx.Err(); err != nil {
			return err
		}
		p := &m.points[k]
		filled := m.filled(p)
		_, takes := m.instance(p)
		late := 1 + 20*llm.PromptTime(takes, 1, p.prompt)
		i := slices.IndexFunc(filledUp, func(up float64) bool { return filled <= up })
		n[i]++
		measured[i] += one(p.ttft > late)
		if i == 0 && k%of > 0 {
			continue
		}
		got := m.play(p)
		if filled < m.most {
			first.add(got.ttft, p.ttft)
			each.add(got.tpot, p.tpot)
			early = append(early, 1e3*(p.ttft-got.ttft))
		}
		played[i] += one(got.ttft > late)
		both[i] += one(p.ttft > late && got.ttft > late)
		if p.gpu == "H100-80GB" && p.gpus == 2 && p.prompt == 1024 && p.output == 8192 && p.callers >= 32 {
			pair.Cells = append(pair.Cells, []string{strconv.Itoa(p.callers), fmt.Sprintf("%.2f", filled),
				fmt.Sprintf("%.2f s", p.ttft), fmt.Sprintf("%.2f s", got.ttft), fmt.Sprintf("%.1f ms", 1e3*p.tpot),
				fmt.Sprintf("%.1f ms", 1e3*got.tpot), strconv.FormatInt(got.preemptions, 10)})
		}
	}
	from := "0"
	for i, up := range filledUp {
		to := fmt.Sprintf("%s to %g", from, up)
		if from = fmt.Sprint(up); math.IsInf(up, 1) {
			to = fmt.Sprintf("above %g", filledUp[i-1])
		}
		counts.Cells = append(counts.Cells, []string{to, strconv.Itoa(n[i]), strconv.Itoa(measured[i]),
			strconv.Itoa(played[i]), strconv.Itoa(both[i])})
	}
	const whole = 3 // of filledUp: 0.5, 0.8 and 1
	sum := func(list []int) (s float64) {
		for _, v := range list {
			s += float64(v)
		}
		return s
	}
	t.Rows = append(t.Rows, Row{m.name, "points within KV memory", 289, sum(n[:whole]), ""},
		Row{m.name, "of these late as measured", 0, sum(measured[:whole]), ""},
		Row{m.name, "of these late when played", 0, sum(played[:whole]), ""},
		Row{m.name, "points beyond KV memory", 20, sum(n[whole:]), ""},
		Row{m.name, "of these late as measured", 10, sum(measured[whole:]), ""},
		Row{m.name, "of these late when played, too", 10, sum(both[whole:]), ""})
	slices.Sort(early)
	t.Sections = append(t.Sections, counts, pair, Section{Title: "Closed loops, played",
		About: fmt.Sprintf("The same runs of %s, where at most 0.8 of the KV memory is filled: ours to the measured times. The first token comes early when it is played, by %.0f ms in the median and by %.0f to %.0f ms on eight of ten points: what a server does for a request besides its steps is not in ours, nor are the crowds in which requests come where all answers are equally long. Where the first token has to come within a few tenths of a second, measure.",
			m.name, early[len(early)/2], early[len(early)/10], early[len(early)*9/10]),
		Head: []string{"time", "points", "mean error", "median difference", "90 % are within", "lowest",
			"highest"},
		Cells: [][]string{first.cells("TTFT"), each.cells("TPOT")}})
	return nil
}

func one(is bool) int {
	if is {
		return 1
	}
	return 0
}

// playedLoop is what became of a closed loop: seconds in the mean.
type playedLoop struct {
	ttft, tpot  float64
	preemptions int64
	n           int
	ended       int // in the last step
}

// Token implements llm.Observer.
func (l *playedLoop) Token(*llm.Sequence, cluster.Time) {}

// Tokens implements llm.Observer.
func (l *playedLoop) Tokens(int, time.Duration) {}

// Done implements llm.Observer.
func (l *playedLoop) Done(s *llm.Sequence) {
	l.n++
	l.ended++
	l.ttft += s.First.Sub(s.Arrived).Seconds()
	l.tpot += s.Last.Sub(s.First).Seconds() / float64(max(1, s.Output-1))
}

// loopRounds is how many requests each caller sends.
const loopRounds = 10

// play plays the closed loop of a point on an instance of ours.
func (m *measuredModel) play(p *measuredLoop) playedLoop {
	blocks, takes := m.instance(p)
	see := playedLoop{}
	x := llm.NewInstance(llm.Engine{Tokens: 2048, Sequences: p.callers, Blocks: blocks, Watermark: blocks / 100}, takes,
		&see)
	rng := rand.New(rand.NewPCG(1, uint64(p.callers)))
	length := func(nominal float64) int32 { return int32(math.Round(nominal * (0.8 + 0.2*rng.Float64()))) }
	left := loopRounds * p.callers
	send := func(n int, now cluster.Time) {
		for range min(n, left) {
			left--
			x.Add(llm.Sequence{Arrived: now, Prompt: length(p.prompt), Output: length(p.output)})
		}
		x.Begin(now)
	}
	const start = cluster.Time(1) // 0 is no time of a first token
	for send(p.callers, start); x.End() != cluster.Never; {
		now := x.End()
		see.ended = 0
		x.Finish()
		send(see.ended, now)
	}
	see.ttft, see.tpot, see.preemptions = see.ttft/float64(see.n), see.tpot/float64(see.n), x.Preemptions
	return see
}
