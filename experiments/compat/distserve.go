package compat

import (
	"encoding/json"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// The world of DistServe's simulator (OSDI'24): requests for one language model on A100-80GB, either on two instances,
// of which one computes prompts and the other the tokens that follow, or on one that does both. An instance is a ring
// of pipeline stages, each with a queue of prompts and one of requests that want their next token; a stage computes a
// step at a time, of one kind, prompts first. Step times are fits of measurements. Nothing limits the KV memory, and
// moving it takes no time. Times are in milliseconds.
const (
	distContext  = 50_000 // DistMachine.context
	distStep     = 2      // ms of a step at the first stage, beside what it computes
	distPerToken = 0.0001 // ms of such a step for each token of its prompts or context
	distPerStage = 1      // ms of a prefill step for each stage of the pipeline
)

// DistParallel is how an instance is spread over GPUs: each layer over TP, the layers over PP stages.
type DistParallel struct{ TP, PP int }

// DistLayout is the instance that computes prompts and the one that computes tokens; Together, the first does both, and
// there is no second.
type DistLayout struct {
	Together        bool
	Prefill, Decode DistParallel
}

// GPUs is how many GPUs the instances hold.
func (l DistLayout) GPUs() int { return l.Prefill.TP*l.Prefill.PP + l.Decode.TP*l.Decode.PP }

// engine is the name of the fits.
func (l DistLayout) engine() string {
	if l.Together {
		return "vllm"
	}
	return "distserve"
}

func (l DistLayout) String() string {
	if l.Together {
		return fmt.Sprintf("%s %d,%d", l.engine(), l.Prefill.TP, l.Prefill.PP)
	}
	return fmt.Sprintf("%s %d,%d,%d,%d", l.engine(), l.Prefill.TP, l.Prefill.PP, l.Decode.TP, l.Decode.PP)
}

// distFit is how long steps take, as a + b*x + c*y. Of prompts x is their tokens and y the sum of the squares of their
// lengths; of decodes x is the tokens of context, the new ones included, and y the requests.
type distFit struct {
	Prefill   [3]float64 `json:"prefill"`
	Small     [3]float64 `json:"decoding_smallbs"` // decodes of fewer requests than Threshold
	Large     [3]float64 `json:"decoding_largebs"`
	Threshold int        `json:"decoding_large_small_bs_threshold"`
}

type (
	distFitKey struct {
		engine, model string
		tp            int
	}
	distTokensKey struct {
		model string
		DistParallel
	}
)

// DistServe is what was measured for the simulator.
type DistServe struct {
	fits   map[distFitKey]distFit
	tokens map[distTokensKey]int // of KV memory
}

// ReadDistServe reads the measurements.
func ReadDistServe(dir string) (*DistServe, error) {
	d := &DistServe{fits: map[distFitKey]distFit{}, tokens: map[distTokensKey]int{}}
	for _, engine := range []string{"distserve", "vllm"} {
		path := filepath.Join(dir, "profiler-a100-80g."+engine+".json")
		var models map[string]map[string]distFit
		data, err := os.ReadFile(path)
		if err == nil {
			err = json.Unmarshal(data, &models)
		}
		if err != nil {
			return nil, fmt.Errorf("%s: %w", path, err)
		}
		for model, fits := range models {
			for text, fit := range fits {
				tp, err := strconv.Atoi(text)
				if err != nil {
					return nil, fmt.Errorf("%s: %s: %q is not a number of GPUs", path, model, text)
				}
				d.fits[distFitKey{engine, distModel(model), tp}] = fit
			}
		}
	}
	rows, err := table(filepath.Join(dir, "max_num_tokens.csv"), 1, "model", "tp", "pp", "max_num_tokens")
	if err != nil {
		return nil, err
	}
	for _, r := range rows {
		d.tokens[distTokensKey{distModel(r.text[0]), DistParallel{int(r.n[1]), int(r.n[2])}}] = int(r.n[3])
	}
	return d, nil
}

// distModel is the name of a model without that of its maker.
func distModel(name string) string { return name[strings.LastIndex(name, "/")+1:] }

// DistRequest is a request of a workload.
type DistRequest struct {
	Prompt, Output int     // tokens
	Gap            float64 // since the request before, in mean gaps
}

// ReadDistRequests reads a workload.
func ReadDistRequests(path string) (list []DistRequest, err error) {
	rows, err := table(path, 0, "prompt_tokens", "output_tokens", "unit_gap")
	if err != nil {
		return nil, err
	}
	for _, r := range rows {
		list = append(list, DistRequest{int(r.n[0]), int(r.n[1]), r.n[2]})
	}
	return list, nil
}

// DistArrivals is when requests arrive if a number of them do each second.
func DistArrivals(list []DistRequest, rate float64) []float64 {
	at, now := make([]float64, len(list)), 0.0
	for i := range list {
		now += 1 / rate * list[i].Gap * 1000
		at[i] = now
	}
	return at
}

// DistTimes is what a request got. TPOT is the mean time of a decode, of which there is one for each token of output:
// the first token, of the prompt's step, comes on top.
type DistTimes struct{ TTFT, TPOT, Exit float64 }

// DistMachine is a model in a layout.
type DistMachine struct {
	layout          DistLayout
	prefill, decode distFit
	budget          int // tokens of a prefill step, at most
	most            int // requests of a decode step, at most
	context         int // tokens of a decode step, the new ones included, at most
}

// Machine returns a model in a layout; false: it was not measured there.
func (d *DistServe) Machine(model string, l DistLayout) (*DistMachine, bool) {
	second := l.Decode
	if l.Together {
		second = l.Prefill
	}
	m := &DistMachine{layout: l, context: distContext}
	var ok [4]bool
	m.prefill, ok[0] = d.fits[distFitKey{l.engine(), model, l.Prefill.TP}]
	m.decode, ok[1] = d.fits[distFitKey{l.engine(), model, second.TP}]
	m.budget, ok[2] = d.tokens[distTokensKey{model, l.Prefill}]
	m.most, ok[3] = d.tokens[distTokensKey{model, second}]
	return m, !slices.Contains(ok[:], false)
}

// distStage is a stage of a pipeline.
type distStage struct {
	prompts, tokens []int32 // queues of requests
	batch           []int32 // of the step
	does            distDoes
	at              float64 // the step's end; infinite while it sleeps
	order           int     // of what is due at the same instant
}

type distDoes byte

const (
	distSleeps distDoes = iota
	distWakes           // it got something
	distPrefills
	distDecodes
)

// distRun is a run. The stages are those for prompts, then those for tokens unless the same do both.
type distRun struct {
	*DistMachine
	stages       []distStage
	second       int // the first stage for tokens
	lastP, lastD int // the last stages
	now          float64
	order        int
	batches      int32 // of prompts, so far
	prompt       []int32
	batch        []int32 // by request: of its prompt
	there, left  []int32 // by request: tokens that are there, and tokens to come
	first        []float64
	exit         []float64
}

// Run plays requests that arrive at the given times, in that order.
func (m *DistMachine) Run(list []DistRequest, arrivals []float64) ([]DistTimes, error) {
	r := &distRun{DistMachine: m, lastP: m.layout.Prefill.PP - 1, lastD: m.layout.Prefill.PP - 1}
	if !m.layout.Together {
		r.second = m.layout.Prefill.PP
		r.lastD = r.second + m.layout.Decode.PP - 1
	}
	r.stages = make([]distStage, r.lastD+1)
	for i := range r.stages {
		r.stages[i].at = math.Inf(1)
	}
	n := len(list)
	r.prompt, r.batch, r.there, r.left = make([]int32, n), make([]int32, n), make([]int32, n), make([]int32, n)
	r.first, r.exit = make([]float64, n), make([]float64, n)
	for i, q := range list {
		// without these bounds a stage would begin empty steps for ever; TPOT of no output is undefined
		if q.Prompt < 0 || q.Output < 1 || q.Prompt > m.budget || q.Prompt+q.Output > m.context {
			return nil, fmt.Errorf("request %d: a prompt of %d tokens and %d of output: want at most %d, at least 1, "+
				"and at most %d together", i, q.Prompt, q.Output, m.budget, m.context)
		}
		r.prompt[i], r.there[i], r.left[i] = int32(q.Prompt), int32(q.Prompt), int32(q.Output)
	}
	for next := 0; ; {
		s := r.due()
		if next < n && arrivals[next] <= r.stages[s].at {
			r.now = arrivals[next]
			r.stages[0].prompts = append(r.stages[0].prompts, int32(next))
			r.wake(0)
			next++
			continue
		}
		if r.now = r.stages[s].at; math.IsInf(r.now, 1) {
			break
		}
		r.end(s)
		r.begin(s)
	}
	out := make([]DistTimes, n)
	for i := range out {
		out[i] = DistTimes{r.first[i] - arrivals[i], (r.exit[i] - r.first[i]) / float64(list[i].Output), r.exit[i]}
	}
	return out, nil
}

// due is the stage with the earliest end of a step.
func (r *distRun) due() int {
	best := 0
	for i := 1; i < len(r.stages); i++ {
		a, b := &r.stages[i], &r.stages[best]
		if a.at < b.at || a.at == b.at && a.order < b.order {
			best = i
		}
	}
	return best
}

// wake makes a sleeping stage look at its queues, after all else that is due now.
func (r *distRun) wake(stage int) {
	if s := &r.stages[stage]; s.does == distSleeps {
		s.does = distWakes
		r.until(s, r.now)
	}
}

func (r *distRun) until(s *distStage, at float64) {
	r.order++
	s.at, s.order = at, r.order
}

// end ends a stage's step and passes its requests on.
func (r *distRun) end(stage int) {
	s := &r.stages[stage]
	switch s.does {
	case distPrefills:
		if stage < r.lastP {
			to := &r.stages[stage+1]
			to.prompts = append(to.prompts, s.batch...)
			r.wake(stage + 1)
			return
		}
		for _, i := range s.batch {
			r.first[i] = r.now
		}
		r.decodeAt(r.second, s.batch)
	case distDecodes:
		if stage < r.lastD {
			r.decodeAt(stage+1, s.batch)
			return
		}
		stay := s.batch[:0]
		for _, i := range s.batch {
			r.there[i]++
			if r.left[i]--; r.left[i] > 0 {
				stay = append(stay, i)
			} else {
				r.exit[i] = r.now
			}
		}
		if len(stay) > 0 {
			r.decodeAt(r.second, stay)
		}
	}
}

func (r *distRun) decodeAt(stage int, list []int32) {
	to := &r.stages[stage]
	to.tokens = append(to.tokens, list...)
	r.wake(stage)
}

// begin begins a stage's next step. Sums are rounded after each product, so that every machine computes the same.
func (r *distRun) begin(stage int) {
	s := &r.stages[stage]
	took := 0.0
	switch {
	case len(s.prompts) > 0:
		s.does = distPrefills
		n, sum, squares := r.nextPrompts(stage, s.prompts)
		s.take(&s.prompts, n)
		f, pp := &r.prefill.Prefill, float64(r.layout.Prefill.PP)
		took = (f[0]+float64(f[1]*sum)+float64(f[2]*squares))/pp + distPerStage*pp
		if stage == 0 {
			took += distStep + float64(distPerToken*sum)
		}
	case len(s.tokens) > 0:
		s.does = distDecodes
		n, context := r.nextTokens(s.tokens)
		s.take(&s.tokens, n)
		f, b := &r.decode.Small, float64(n)
		if n >= r.decode.Threshold {
			f = &r.decode.Large
		}
		took = (f[0] + float64(f[1]*(context+b)) + float64(f[2]*b)) / float64(r.lastD-r.second+1)
		if stage == r.second {
			took += distStep + float64(distPerToken*context)
		}
	default:
		s.does, s.at = distSleeps, math.Inf(1)
		return
	}
	r.until(s, r.now+took)
}

// nextPrompts is how many prompts of a queue are computed next, their tokens, and the sum of the squares: at the first
// stage as many as fit, later those that were together there.
func (r *distRun) nextPrompts(stage int, queue []int32) (n int, sum, squares float64) {
	tokens, square := 0, 0
	if stage == 0 {
		r.batches++
	}
	for _, i := range queue {
		p := int(r.prompt[i])
		if stage == 0 && tokens+p > r.budget || stage > 0 && r.batch[i] != r.batch[queue[0]] {
			break
		}
		if stage == 0 {
			r.batch[i] = r.batches
		}
		tokens += p
		square += p * p
		n++
	}
	return n, float64(tokens), float64(square)
}

// nextTokens is how many requests of a queue get their next token together, and their context.
func (r *distRun) nextTokens(queue []int32) (n int, context float64) {
	tokens := 0
	for _, i := range queue[:min(len(queue), r.most)] {
		c := int(r.there[i])
		if tokens+n+c+1 > r.context {
			break
		}
		tokens += c
		n++
	}
	return n, float64(tokens)
}

// take moves the first n requests of a queue into the batch.
func (s *distStage) take(queue *[]int32, n int) {
	s.batch = append(s.batch[:0], (*queue)[:n]...)
	*queue = slices.Delete(*queue, 0, n)
}
