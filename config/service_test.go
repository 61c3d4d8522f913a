package config

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/requests"
	"github.com/muster-gpu/muster/service"
	"github.com/muster-gpu/muster/serving/llm"
)

const aService = `# what answers
name: vision
queue: prod
latency: 50ms
percentile: 95
replicas: {min: 1, max: 4}
batching: {rule: triton, max: 8, delay: 2ms, preferred: [4, 8]}
scaling: hpa:target=0.6
forecast:
  times: {"mon-fri 08:00-20:00": 120, "12:00-13:00": 200}
  zone: Europe/Berlin
  steps: [{at: 2026-11-28T08:00:00Z, rate: 500}, {at: 2026-11-28T09:00:00Z, rate: 0}]
variants:
  - name: small
    accuracy: 0.7
    share: 0.5
    memory: 10GiB
    startup: 20s
    profile:
      - {batch: 8, latency: 9ms}
      - {batch: 1, latency: 5ms}
      - {batch: 1, share: 0.5, latency: 8ms}
---
name: chat
ttft: 500ms
replicas: {max: 2}
variants:
  - name: 8b
    gpu_types: [H100-80GB]
    model: {params: 8.03e9, weights: 16.06e9, layers: 32, heads: 32, kv_heads: 8, head_dim: 128}
`

func TestServices(t *testing.T) {
	list, err := ReadServices("s.yaml", []byte(aService))
	if err != nil {
		t.Fatal(err)
	}
	s, c := &list[0], &list[1]
	v := &s.Variants[0]
	if len(list) != 2 || s.Goal.Latency != 50*time.Millisecond || s.Goal.Percentile != 95 ||
		s.Tier != cluster.Critical ||
		v.Share() != 500 || v.Request.Memory != 10240 || v.Startup != 20*time.Second ||
		v.Profile.Takes(500, 1) != 8*time.Millisecond || v.Profile.Takes(cluster.Whole, 8) != 9*time.Millisecond ||
		s.MaxBatch(v) != 8 || s.Batching.Preferred[1] != 8 || s.Scaling != "hpa:target=0.6" {
		t.Errorf("%+v", s)
	}
	for at, want := range map[string]float64{"2026-11-27T06:58:00Z": 0, "2026-11-27T06:59:00Z": 120,
		"2026-11-27T10:59:30Z": 200, "2026-11-28T07:57:00Z": 0, "2026-11-28T07:59:00Z": 500,
		"2026-11-28T08:30:00Z": 500, "2026-11-28T09:00:00Z": 0} {
		from, err := time.Parse(time.RFC3339, at)
		if got := s.Forecast.Most(from.Unix(), from.Unix()+90); err != nil || got != want {
			t.Errorf("from %s for 90 s: %g/s are expected, want %g", at, got, want)
		}
	}
	if !c.Language() || c.Goal.TTFT != 500*time.Millisecond || c.Goal.Percentile != 99 ||
		c.Variants[0].Language.Engine.Tokens != 2048 {
		t.Errorf("%+v", c)
	}
}

// TestAutoGPUs: what meets the goal and does most on each GPU is chosen: here half a GPU, for a language model one that
// is large enough.
func TestAutoGPUs(t *testing.T) {
	for goal, want := range map[string]cluster.Milli{"50ms": 500, "12ms": 0} {
		text := strings.NewReplacer("share: 0.5\n    memory", "gpus: auto\n    memory", "latency: 50ms",
			"latency: "+goal,
			"{batch: 1, share: 0.5, latency: 8ms}", "{batch: 1, share: 0.5, latency: 8ms}\n      - "+
				"{batch: 8, share: 0.5, latency: 10ms}").Replace(aService)
		list, err := ReadServices("s.yaml", []byte(text))
		if err != nil {
			t.Fatal(err)
		}
		if r := list[0].Variants[0].Request; r.GPUs != 1 || r.Share != want {
			t.Errorf("%s: %+v", goal, r)
		}
	}
	for model, want := range map[string]int{"params: 8.03e9, weights: 16.06e9": 1,
		"params: 70.6e9, weights: 141e9": 4} {
		text := strings.NewReplacer("gpu_types: [H100-80GB]", "gpus: auto\n    gpu_types: [H100-80GB]",
			"params: 8.03e9, weights: 16.06e9", model).Replace(aService)
		list, err := ReadServices("s.yaml", []byte(text))
		if err != nil {
			t.Fatal(err)
		}
		if n := list[1].Variants[0].Request.GPUs; n != want {
			t.Errorf("%s: %d GPUs", model, n)
		}
	}
}

// TestBadServices: each mistake is an error that names the service and the field, or the line.
func TestBadServices(t *testing.T) {
	for _, c := range [][3]string{
		{"latency: 50ms", "latency: soon", `s.yaml:4: "soon" is not a duration`},
		{"latency: 50ms", "latency: 1ms",
			"service vision: latency: no variant answers within 1ms; the nearest is small, which takes 8ms"},
		{"latency: 50ms", "ttft: 1s", "service vision: latency: of models that compute batches"},
		{"latency: 50ms\n", "", "service vision: latency: what is promised is missing"},
		{"queue: prod", "lend: {within: 2h}", "service vision: lend: within is a time up to an hour"},
		{"queue: prod", "tier: standard\nlend: {within: 20s}", "only a service of the tier critical"},
		{"percentile: 95", "percentile: 950", "service vision: percentile: 950"},
		{"max: 4}", "max: 0}", "service vision: replicas: min is 0 or more"},
		{"share: 0.5\n", "share: 2\n", "service vision: variants[0]: share: 2"},
		{"preferred: [4, 8]", "preferred: [8, 4]", "service vision: batching: preferred"},
		{"rule: triton", "rule: tritone", `service vision: batching: rule: unknown batching rule "tritone"`},
		{"hpa:target=0.6", "hpa:goal=0.6", `service vision: scaling: scaling policy hpa: unknown knob "goal"`},
		{"share: 0.5\n    memory", "gpus: some\n    memory", `gpus: "some" is neither a number nor auto`},
		{"share: 0.5\n    memory", "share: 0.5\n    gpus: auto\n    memory", "gpus: auto chooses the share, too"},
		{"gpu_types: [H100-80GB]", "gpus: auto",
			"service chat: variants[0]: gpus: auto of a language model needs gpu_types"},
		{"scaling: hpa:target=0.6", "canary: 0.1", "service vision: canary: a part above 0 and below 1"},
		{"hpa:target=0.6", "inss-rl:weights=/etc/passwd", "only muster sim reads a file"},
		{"ttft: 500ms", "ttft: 1ms", "service chat: ttft: no variant has the first token of a request alone (1024 tokens, " +
			"256 in its answer; prompt and output of forecast state others) within 1ms; the nearest is 8b on 1 H100-80GB, " +
			"which takes 29.18ms"},
		{"ttft: 500ms", "tpot: 5ms", "service chat: tpot: no variant makes each further token of a request alone"},
		{"ttft: 500ms", "latency: 1s", "service chat: latency: no variant answers a request alone"},
		{"ttft: 500ms", "ttft: 100ms\nforecast: {prompt: 8000, output: 10}", "(8000 tokens, 10 in its answer;"},
		{"ttft: 500ms", "ttft: 1s\nbudget: {accuracy: 0.9}",
			"service chat: scaling: budget: no variant has an accuracy of 0.9"},
		{"{batch: 8,", "{batch: 0,", "service vision: variants[0]: profile: batch: 0"},
		{"{batch: 8,", "{batch: 1,", "service vision: variants[0]: profile: batch 1 with share 1000 was given twice"},
		{"accuracy: 0.7", "accurate: 0.7", `s.yaml:15: unknown key "accurate"`},
		{"name: chat", "name: vision", "service vision: name: there are two"},
		{"layers: 32", "layers: 0", "service chat: variants[0]: model: layers"},
		{"ttft: 500ms", "tpft: 500ms", `s.yaml:25: unknown key "tpft"`},
		{"weights: 16.06e9", "weights: 160e9", "service chat: variants[0]: 1 H100-80GB have no memory left"},
		{"accuracy: 0.7", "pipeline: 2", "service vision: variants[0]: pipeline: only a language model"},
		{"gpu_types: [H100-80GB]", "pipeline: 0", "service chat: variants[0]: pipeline: 0 is not a number of stages"},
		{"gpu_types: [H100-80GB]", "pipeline: 2", "service chat: variants[0]: pipeline: 2 stages do not divide 1 GPUs"},
		{"gpu_types: [H100-80GB]", "gpus: 33\n    pipeline: 33",
			"service chat: variants[0]: pipeline: 33 is not a number of stages from 1 to 32"},
		{"gpu_types: [H100-80GB]", "gpus: auto\n    pipeline: 99\n    gpu_types: [H100-80GB]",
			"service chat: variants[0]: pipeline: 99 is not a number of stages from 1 to 32"},
		{"gpu_types: [H100-80GB]", "phase: first", `service chat: variants[0]: unknown phase "first"`},
		{"gpu_types: [H100-80GB]", "phase: prefill", "service chat: variants: where some have a phase, all do"},
		{"startup: 20s", "startup: 20s\n    warm: 21s", "service vision: variants[0]: warm: a start"},
		{"accuracy: 0.7", "phase: decode", "service vision: variants[0]: phase: only a language model"},
		{"gpu_types: [H100-80GB]", "gpu_types: [K80-12GB]",
			"service chat: variants[0]: the speed of K80-12GB at bf16 is not known"},
		{"mon-fri 08", "mon-fry 08", `service vision: forecast: times: "mon-fry 08:00-20:00"`},
		{"120,", "-1,", "service vision: forecast: rate: -1"},
		{"zone: Europe/Berlin", "zone: Berlin", "service vision: forecast: zone"},
		{"at: 2026-11-28T08:00:00Z", "at: 8:00", `service vision: forecast: steps[0]: at: "8:00" is not a time`},
		{"at: 2026-11-28T09", "at: 2026-11-28T07", "service vision: forecast: steps[1]: at: is not later"},
		{"zone: Europe/Berlin", "prompt: 100", "service vision: forecast: prompt and output"},
	} {
		if strings.Count(aService, c[0]) == 0 {
			t.Fatalf("%q is not in the file", c[0])
		}
		_, err := ReadServices("s.yaml", []byte(strings.Replace(aService, c[0], c[1], 1)))
		if err == nil || !strings.Contains(err.Error(), c[2]) {
			t.Errorf("%s: %v, want %s", c[1], err, c[2])
		}
	}
	if _, err := ReadServices("s.yaml", []byte("# nothing\n---\n")); err == nil ||
		!strings.Contains(err.Error(), "empty") {
		t.Errorf("an empty file: %v", err)
	}
}

// TestGoalsOfLanguage: a goal that one of the GPUs meets, or that shorter requests meet, is accepted, and any where it
// is not known what a replica runs on; where variants have phases, each has its own part of the goal.
func TestGoalsOfLanguage(t *testing.T) {
	text := func(goal, types string) string {
		return strings.NewReplacer("ttft: 500ms", goal, "    gpu_types: [H100-80GB]\n", types).Replace(aService)
	}
	const h100 = "    gpu_types: [H100-80GB]\n"
	for _, c := range [][2]string{{"ttft: 40ms\ntpot: 8ms", h100},
		{"ttft: 15ms\nforecast: {prompt: 100, output: 10}", h100},
		{"ttft: 1ms", ""}, {"ttft: 40ms", "    gpu_types: [A100-80GB, H100-80GB]\n"}} {
		if _, err := ReadServices("s.yaml", []byte(text(c[0], c[1]))); err != nil {
			t.Errorf("%q: %v", c, err)
		}
	}
	phases := "name: chat\nttft: %s\ntpot: %s\nreplicas: {min: 2, max: 4}\nscaling: distserve\nvariants:\n" +
		"  - {name: p, phase: prefill, gpu_types: [H100-80GB], model: &m {params: 8.03e9, weights: 16.06e9, layers: 32, heads: 32, kv_heads: 8, head_dim: 128}}\n" +
		"  - {name: d, phase: decode, gpu_types: [H100-80GB], model: *m}\n"
	for goal, want := range map[[2]string]string{{"200ms", "20ms"}: "", {"20ms", "20ms"}: "the nearest is p on",
		{"200ms", "5ms"}: "the nearest is d on"} {
		_, err := ReadServices("s.yaml", fmt.Appendf(nil, phases, goal[0], goal[1]))
		if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%v: %v, want %q", goal, err, want)
		}
	}
}

// TestRequestLoad reads a load of drawn and recorded requests; it can be replayed.
func TestRequestLoad(t *testing.T) {
	services, err := ReadServices("s.yaml", []byte(aService))
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "r.csv"),
		[]byte("arrival_s,prompt_tokens,output_tokens\n5,10,20\n7,10,20\n8,1,1\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	text := "service: vision\nrate: 10\ncv: 0\nfor: 1s\n---\nservice: chat\ntrace: r.csv\nspeed: 2\nfrom: 1s\nfor: 1500ms\n"
	l, err := ReadRequests(filepath.Join(dir, "l.yaml"), []byte(text), services)
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		s, err := l.Stream()
		if err != nil {
			t.Fatal(err)
		}
		n := [2]int{}
		var r, last requests.Request
		for err = s.Next(&r); err == nil; err = s.Next(&r) {
			n[r.Service]++
			last = r
		}
		if !errors.Is(err, io.EOF) || n != [2]int{9, 2} || last.At.Sub(0) != 2*time.Second || last.Output != 20 {
			t.Errorf("%v %v %+v", n, err, last)
		}
	}
	for _, c := range [][2]string{
		{"service: vison\nrate: 1\nfor: 1s\n", `unknown service "vison"`},
		{"service: chat\nrate: 1\n", "load of service chat: for: how long"},
		{"service: chat\n", "either trace"}, {"service: chat\ntrace: a\nrate: 1\n", "trace: recorded requests have"},
		{"service: chat\nrate: fast\n", "l.yaml:2:"}, {"service: chat\ncolour: 1\n", `l.yaml:2: unknown key "colour"`},
		{"", "is empty"},
	} {
		if _, err := ReadRequests("l.yaml", []byte(c[0]), services); err == nil ||
			!strings.Contains(err.Error(), c[1]) {
			t.Errorf("%q: %v, want %s", c[0], err, c[1])
		}
	}
}

// TestProfiled: what was measured stands in a service's file where it said so, and the file says the same otherwise.
func TestProfiled(t *testing.T) {
	text := `# images
name: images
latency: 100ms
replicas: {min: 1, max: 4}
variants:
  - {name: small, share: 0.5, profile: measure}   # half
  - {name: large, profile: measure}
  - {name: stated, profile: [{batch: 1, latency: 5ms}]}
`
	got, err := Profiled(text, map[string]service.Profile{
		"small":  {{Batch: 1, Latency: 7 * time.Millisecond}, {Batch: 4, Latency: 9500 * time.Microsecond}},
		"stated": {{Batch: 1, Latency: time.Second}}})
	if err != nil || !strings.Contains(got, "# images") || !strings.Contains(got, "# half") {
		t.Fatalf("%v: %s", err, got)
	}
	list, err := ReadServices("images.yaml", []byte(got))
	if err != nil {
		t.Fatalf("%v: %s", err, got)
	}
	v := list[0].Variants
	if v[0].Measure || !v[1].Measure || v[0].Profile.Takes(500, 4) != 9500*time.Microsecond ||
		v[2].Profile.Takes(cluster.Whole, 1) != 5*time.Millisecond {
		t.Errorf("%+v: %s", v, got)
	}
}

// A language model's stages divide its GPUs; gpus: auto chooses how many each stage has, and a request that is computed
// alone passes one stage after the other.
func TestPipeline(t *testing.T) {
	text := func(ttft, gpus string, stages int) []byte {
		return fmt.Appendf(nil, "name: chat\nttft: %s\ntpot: 40ms\nreplicas: {max: 4}\nvariants:\n  - {name: v, gpus: %s, "+
			"pipeline: %d, gpu_types: [H100-80GB], model: {params: 70.6e9, weights: 141.2e9, layers: 80, heads: 64, "+
			"kv_heads: 8, head_dim: 128}}\n", ttft, gpus, stages)
	}
	refused := func(text []byte, why string) {
		t.Helper()
		if _, err := ReadServices("s.yaml", text); err == nil || !strings.Contains(err.Error(), why) {
			t.Errorf("%v, want %s", err, why)
		}
	}
	refused(text("100ms", "8", 4), "ttft: no variant")
	refused(text("2s", "4", 4), "tpot: no variant") // a token passes all four GPUs, each of which reads its weights
	for gpus, want := range map[string]llm.Layout{"8": {TP: 2, PP: 4}, "auto": {TP: 2, PP: 4}} {
		list, err := ReadServices("s.yaml", text("2s", gpus, 4))
		if err != nil {
			t.Fatalf("%s GPUs: %v", gpus, err)
		}
		if got := list[0].Variants[0].Parallel(); got != want {
			t.Errorf("%s GPUs are %+v, want %+v", gpus, got, want)
		}
	}
	alone := func(stages int) time.Duration {
		list, err := ReadServices("s.yaml", text("2s", "8", stages))
		if err != nil {
			t.Fatal(err)
		}
		takes, e, err := list[0].Variants[0].Language.On("H100-80GB", 8)
		if err != nil || e.Stages != stages {
			t.Fatalf("%d stages: %+v, %v", stages, e, err)
		}
		return time.Duration(llm.PromptTime(takes, stages, 1024) * 1e9)
	}
	if one, four := alone(1), alone(4); four < 3*one || four > 4*one {
		t.Errorf("a prompt alone takes %v on eight GPUs, and %v in four stages of two", one, four)
	}
}
