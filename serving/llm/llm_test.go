package llm

import (
	"encoding/csv"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/muster-gpu/muster/cluster"
)

var (
	llama8B = Model{Name: "Llama-3.1-8B", Params: 8.03e9, Weights: 16.06e9, Layers: 32, Heads: 32, KVHeads: 8,
		HeadDim: 128}
	llama70B = Model{Name: "Llama-3.1-70B fp8", Params: 70.6e9, Weights: 70.6e9, Layers: 80, Heads: 64, KVHeads: 8,
		HeadDim: 128}
	h100    = GPU{Memory: 85899345920, Flops: 989e12, Rate: 3.35e12}
	h100fp8 = GPU{Memory: 85899345920, Flops: 1978e12, Rate: 3.35e12}
)

// TestKV: bytes of KV memory.
func TestKV(t *testing.T) {
	if got := llama8B.KV() * 4096; got != 536870912 {
		t.Errorf("4096 tokens of the 8B model take %v bytes", got)
	}
	if got := llama70B.KV() * 2048; got != 671088640 {
		t.Errorf("2048 tokens of the 70B model take %v bytes", got)
	}
	if got := llama8B.Blocks(Lay(1, 1), &h100, 0.9, 0); got != 29205 {
		t.Errorf("%d blocks on one H100, want 29205", got)
	}
	if got := llama70B.Blocks(Lay(1, 1), &h100fp8, 0.5, 0); got != 0 {
		t.Errorf("weights that do not fit leave %d blocks", got)
	}
}

func steps(list ...[2]int64) *Step {
	s := &Step{}
	for _, x := range list {
		s.Add(x[0], x[1])
	}
	return s
}

func decodes(n int, context int64) *Step {
	s := &Step{}
	for range n {
		s.Add(1, context)
	}
	return s
}

// TestRoofline: step times in milliseconds, computed by hand from the formula.
func TestRoofline(t *testing.T) {
	mixed := decodes(32, 1088)
	mixed.Add(512, 512)
	for _, c := range []struct {
		name  string
		model *Model
		gpu   *GPU
		tp    int
		step  *Step
		ms    float64
	}{
		{"prefill 1024", &llama8B, &h100, 1, steps([2]int64{1024, 0}), 29.1776},
		{"decode 8", &llama8B, &h100, 1, decodes(8, 1088), 7.4186},
		{"decode 32", &llama8B, &h100, 1, decodes(32, 1088), 8.6969},
		{"chunk and decodes", &llama8B, &h100, 1, mixed, 16.1015},
		{"decode 4 on 2", &llama70B, &h100fp8, 2, decodes(4, 1536), 17.7475},
		{"decode 4 on 4", &llama70B, &h100fp8, 4, decodes(4, 1536), 10.9737},
		{"decode 4 on 8", &llama70B, &h100fp8, 8, decodes(4, 1536), 7.5869},
		{"prefill 8192 on 4", &llama70B, &h100fp8, 4, steps([2]int64{8192, 0}), 266.3929},
	} {
		got := Roofline(c.model, c.gpu, Lay(c.tp, 1))(c.step).Seconds() * 1e3
		if math.Abs(got-c.ms) > 6e-5 {
			t.Errorf("%s: %.4f ms, want %.4f", c.name, got, c.ms)
		}
	}
}

// record keeps what an instance hands out.
type record struct {
	first, last map[int64]cluster.Time
	order       []int64
	gaps        []gap
	tokens      int64
}

type gap struct {
	ns int64
	n  int
}

func (r *record) Token(s *Sequence, now cluster.Time) {
	r.tokens++
	if s.First == 0 {
		r.first[s.ID] = now
	} else {
		r.gaps = append(r.gaps, gap{int64(now - s.Last), 1})
	}
}

func (r *record) Tokens(n int, ns time.Duration) {
	r.tokens += int64(n)
	r.gaps = append(r.gaps, gap{int64(ns), n})
}

func (r *record) Done(s *Sequence) { r.last[s.ID], r.order = s.Last, append(r.order, s.ID) }

// play runs requests on an instance to their end, and returns it with what it handed out.
func play(t *testing.T, e Engine, timer Timer, list []Sequence) (*Instance, *record) {
	t.Helper()
	if err := e.Check(); err != nil {
		t.Fatal(err)
	}
	r := &record{first: map[int64]cluster.Time{}, last: map[int64]cluster.Time{}}
	x := NewInstance(e, timer, r)
	next := 0
	for next < len(list) || x.End() != cluster.Never {
		if x.End() == cluster.Never || next < len(list) && list[next].Arrived < x.End() {
			now := list[next].Arrived
			for next < len(list) && list[next].Arrived <= now {
				x.Add(list[next])
				next++
			}
			x.Begin(now)
			continue
		}
		now := x.End()
		x.Finish()
		for next < len(list) && list[next].Arrived <= now {
			x.Add(list[next])
			next++
		}
		x.Begin(now)
		used := int32(0)
		for i := range x.running {
			used += x.running[i].blocks
		}
		if used+x.free != int32(e.Blocks) || x.free < 0 {
			t.Fatalf("%d blocks are held and %d free, of %d", used, x.free, e.Blocks)
		}
	}
	if x.Clear() != 0 || len(r.last) != len(list) {
		t.Fatalf("%d of %d requests are done", len(r.last), len(list))
	}
	return x, r
}

func (r *record) ttft(s *Sequence) float64 { return float64(r.first[s.ID]-s.Arrived) / 1e6 }

func (r *record) tpot(s *Sequence) float64 {
	if s.Output == 1 {
		return 0
	}
	return float64(r.last[s.ID]-r.first[s.ID]) / 1e6 / float64(s.Output-1)
}

// linear is 10 ms and a tenth for each token.
func linear(s *Step) time.Duration {
	return 10*time.Millisecond + time.Duration(s.Tokens)*time.Millisecond/10
}

const ms = cluster.Time(time.Millisecond)

// TestSteps: two requests, by hand.
func TestSteps(t *testing.T) {
	list := []Sequence{{ID: 1, Prompt: 100, Output: 3}, {ID: 2, Arrived: 5 * ms, Prompt: 300, Output: 2}}
	for _, c := range []struct {
		name   string
		engine Engine
		steps  int64
		want   [4]float64
	}{
		{"chunked", Engine{Tokens: 128, Sequences: 8, Blocks: 1000}, 5, [4]float64{20, 22.8, 75.2, 10.1}},
		{"whole prompts first", Engine{Tokens: 2048, Sequences: 8, Blocks: 1000, Whole: true}, 4,
			[4]float64{20, 30.15, 55, 10.2}},
	} {
		x, r := play(t, c.engine, linear, list)
		got := [4]float64{r.ttft(&list[0]), r.tpot(&list[0]), r.ttft(&list[1]), r.tpot(&list[1])}
		for i := range got {
			if math.Abs(got[i]-c.want[i]) > 1e-6 {
				t.Errorf("%s: %v, want %v", c.name, got, c.want)
				break
			}
		}
		if x.Steps != c.steps {
			t.Errorf("%s: %d steps, want %d", c.name, x.Steps, c.steps)
		}
	}
}

// TestPreemption: memory for one block less than two requests need.
func TestPreemption(t *testing.T) {
	list := []Sequence{{ID: 1, Prompt: 64, Output: 20}, {ID: 2, Prompt: 80, Output: 4}}
	for _, c := range []struct {
		blocks             int
		preemptions, steps int64
		end, a, b          float64
	}{{10, 1, 23, 254.6, 0, 76.73333333}, {11, 0, 20, 216.6, 10.11578947, 10.2}} {
		x, r := play(t, Engine{Tokens: 2048, Sequences: 8, Blocks: c.blocks}, linear, list)
		end := float64(max(r.last[1], r.last[2])) / 1e6
		if x.Preemptions != c.preemptions || x.Steps != c.steps || math.Abs(end-c.end) > 1e-6 ||
			math.Abs(r.tpot(&list[1])-c.b) > 1e-6 || c.a > 0 && math.Abs(r.tpot(&list[0])-c.a) > 1e-6 ||
			r.ttft(&list[0]) != 24.4 || r.ttft(&list[1]) != 24.4 {
			t.Errorf("%d blocks: %d preemptions, %d steps, end %.4f, %.6f and %.6f: want %+v", c.blocks, x.Preemptions,
				x.Steps, end, r.tpot(&list[0]), r.tpot(&list[1]), c)
		}
	}
}

const traces = "../../../shared/traces"

func rows(t *testing.T, path string) []map[string]string {
	t.Helper()
	f, err := os.Open(filepath.Join(traces, path))
	if errors.Is(err, fs.ErrNotExist) {
		t.Skip("the recorded traces are not beside the repository")
	}
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	all, err := csv.NewReader(f).ReadAll()
	if err != nil {
		t.Fatal(err)
	}
	var list []map[string]string
	for _, r := range all[1:] {
		m := map[string]string{}
		for i, v := range r {
			m[all[0][i]] = v
		}
		list = append(list, m)
	}
	return list
}

func number(t *testing.T, text string) float64 {
	t.Helper()
	v, err := strconv.ParseFloat(text, 64)
	if err != nil {
		t.Fatal(err)
	}
	return v
}

func workload(t *testing.T, name string, rate float64) (list []Sequence) {
	t.Helper()
	at := 0.0
	for i, r := range rows(t, "distserve-profiles/workload-"+name+".csv") {
		at += number(t, r["unit_gap"]) / rate * 1e9
		list = append(list, Sequence{ID: int64(i + 1), Arrived: cluster.Time(math.Round(at)),
			Prompt: int32(number(t, r["prompt_tokens"])), Output: int32(number(t, r["output_tokens"]))})
	}
	return list
}

func mean(v []float64) float64 {
	sum := 0.0
	for _, x := range v {
		sum += x
	}
	return sum / float64(len(v))
}

// part is the quantile of sorted values, interpolated.
func part(v []float64, q float64) float64 {
	at := q * float64(len(v)-1)
	i := int(at)
	if i+1 == len(v) {
		return v[i]
	}
	return v[i] + (at-float64(i))*(v[i+1]-v[i])
}

// TestChunked compares 18 runs of 300 requests with those of an independent program: steps, preemptions and blocks are
// equal, times agree to a microsecond.
func TestChunked(t *testing.T) {
	all := rows(t, "llm-profiles/expected-chunked.csv")
	if len(all) != 18 {
		t.Fatalf("%d runs, want 18", len(all))
	}
	for _, want := range all {
		list := workload(t, want["workload"], number(t, want["rate"]))
		e := Engine{Tokens: int(number(t, want["tau"])), Sequences: 256, Blocks: int(number(t, want["blocks"]))}
		x, r := play(t, e, Roofline(&llama8B, &h100, Lay(1, 1)), list)
		var ttft, tpot, gaps []float64
		end, met := cluster.Time(0), 0
		for i := range list {
			f, p := r.ttft(&list[i]), r.tpot(&list[i])
			ttft, tpot = append(ttft, f), append(tpot, p)
			end = max(end, r.last[list[i].ID])
			if f <= 200 && p <= 30 {
				met++
			}
		}
		tokens := int64(0)
		for i := range list {
			tokens += int64(list[i].Output)
		}
		if r.tokens != tokens {
			t.Errorf("%v: %d tokens, want %d", want, r.tokens, tokens)
		}
		for _, g := range r.gaps {
			for range g.n {
				gaps = append(gaps, float64(g.ns)/1e6)
			}
		}
		meanTTFT, meanTPOT := mean(ttft), mean(tpot)
		slices.Sort(ttft)
		slices.Sort(tpot)
		slices.Sort(gaps)
		got := map[string]float64{"steps": float64(x.Steps), "preemptions": float64(x.Preemptions),
			"peak_blocks": float64(x.MostBlocks), "end_ms": float64(end) / 1e6, "mean_ttft_ms": meanTTFT,
			"p90_ttft_ms": part(ttft, 0.9), "mean_tpot_ms": meanTPOT, "p90_tpot_ms": part(tpot, 0.9),
			"p99_itl_ms": part(gaps, 0.99), "attain_pct": 100 * float64(met) / float64(len(list))}
		for k, v := range got {
			if w := number(t, want[k]); math.Abs(v-w) > 1e-3 {
				t.Errorf("%s at %s/s, %s tokens, %s blocks: %s %.4f, want %.4f", want["workload"], want["rate"],
					want["tau"],
					want["blocks"], k, v, w)
			}
		}
	}
}

// TestChunkedRequests compares two of these runs request by request.
func TestChunkedRequests(t *testing.T) {
	for _, c := range []struct{ rate, tau, blocks int }{{20, 512, 600}, {40, 2048, 29206}} {
		list := workload(t, "azconv300", float64(c.rate))
		e := Engine{Tokens: c.tau, Sequences: 256, Blocks: c.blocks}
		_, r := play(t, e, Roofline(&llama8B, &h100, Lay(1, 1)), list)
		for i, want := range rows(t,
			fmt.Sprintf("llm-profiles/expected-chunked-r%d-tau%d-b%d.csv", c.rate, c.tau, c.blocks)) {
			f, p := r.ttft(&list[i]), r.tpot(&list[i])
			if math.Abs(f-number(t, want["ttft_ms"])) > 1e-3 || math.Abs(p-number(t, want["tpot_ms"])) > 1e-3 {
				t.Errorf("%+v: request %d: %.4f and %.4f, want %s and %s", c, i, f, p, want["ttft_ms"], want["tpot_ms"])
			}
		}
	}
}

func BenchmarkInstance(b *testing.B) {
	x := NewInstance(Engine{Tokens: 2048, Sequences: 256, Blocks: 29206, Watermark: 292},
		Roofline(&llama8B, &h100, Lay(1, 1)), quiet{})
	now := cluster.Time(0)
	for i := range b.N {
		arrived := cluster.Time(i) * 50 * ms
		for x.End() <= arrived {
			now = x.End()
			x.Finish()
			x.Begin(now)
		}
		x.Add(Sequence{ID: int64(i), Arrived: arrived, Prompt: int32(300 + i*7919%900),
			Output: int32(1 + i*104729%420)})
		x.Begin(arrived)
	}
	b.ReportMetric(float64(x.Steps)/float64(b.N), "steps/op")
}

type quiet struct{}

func (quiet) Token(*Sequence, cluster.Time) {}
func (quiet) Tokens(int, time.Duration)     {}
func (quiet) Done(*Sequence)                {}

// TestSteady: a token in the steady state takes its step and its part of the others' prompts, as computed by hand; the
// requests of a closed loop take half of their answers of KV memory in the mean.
func TestSteady(t *testing.T) {
	takes := Roofline(&llama70B, &h100fp8, Lay(2, 1))
	step, prompt := 17.7475, PromptTime(takes, 1, 1024)*1e3
	if want := 65.6950; math.Abs(prompt-want) > 1e-3 {
		t.Errorf("a prompt of 1024 tokens takes %.4f ms, want %.4f", prompt, want)
	}
	if got, want := TokenTime(takes, 1, 4, 1024, 1024)*1e3, step+4./1024*prompt; math.Abs(got-want) > 1e-3 {
		t.Errorf("a token takes %.4f ms, want %.4f", got, want)
	}
	blocks := llama70B.Blocks(Lay(2, 1), &h100fp8, 0.9, 0)
	if got, want := Saturation(blocks, 64, 1024, 8192), 1.278; math.Abs(got-want) > 1e-3 {
		t.Errorf("64 requests take %.4f of the memory, want %.4f", got, want)
	}
}
