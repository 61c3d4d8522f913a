package results

import (
	"context"
	"errors"
	"fmt"
	"math"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/internal/csvfile"
	"github.com/muster-gpu/muster/requests"
	"github.com/muster-gpu/muster/service"
	"github.com/muster-gpu/muster/serving"
	"github.com/muster-gpu/muster/serving/inss"
	"github.com/muster-gpu/muster/serving/llm"
	"github.com/muster-gpu/muster/serving/nexus"
	"github.com/muster-gpu/muster/serving/scale"
	"github.com/muster-gpu/muster/sim"
)

// Serving plays recorded requests and models under every policy that scales services, and sets what sharing GPUs gains
// beside what is published of it.
func Serving(ctx context.Context, traces string) (Table, error) {
	t := Table{Title: "Services: every scaling policy on the same requests", Tolerance: 0.05,
		About: "What becomes of requests on eight GPUs, four servers with two each, under each policy of `muster sim --services`. The better of two policies is the one with more requests in time, up to what the goal promises; of two that keep the goal, or miss it by as much, the one with fewer GPU-hours. By that rule `muster` is not the best where the others hold more all the time than has come so far, which helps against what could not be foreseen: `lyra`, whose servers have two GPUs, and `hpa` in the images, at 1.3 and 2.2 times the GPU-hours. In the conversations as they were recorded it has the 15 seconds of a second replica at the beginning more than `mark`. In time is the part of all requests that met the goal; what was dropped or refused did not. " +
			"The last column counts requests in time for each GPU-hour, where the goal's percentile was kept. `static` has the number of replicas that turned out to be right: it knows what comes. " +
			"All others learn; they begin with one replica, `muster` with two, of which one leaves after the first period if it is not needed; `muster, foreseen` has the rates in its `forecast`. `distserve` has the model for prompts and for the tokens after the first, on a GPU each."}
	for _, load := range []func(string) (servingLoad, error){conversations(1), conversations(4), conversations(8),
		chatDay, images} {
		l, err := load(traces)
		if err != nil {
			return t, err
		}
		s, err := l.section(ctx)
		if err != nil {
			return t, err
		}
		t.Sections = append(t.Sections, s)
	}
	if err := t.together(ctx, traces, []int{1, 3}, 58); err != nil {
		return t, err
	}
	return t, t.sharing(traces, parvaSets)
}

// servingLoad is a service with its requests.
type servingLoad struct {
	title, about string
	service      service.Service
	stream       func() (requests.Stream, error)
	static       []int // numbers of replicas
	foreseen     service.Forecast
	gpu          string
}

// section plays the load under every policy.
func (l *servingLoad) section(ctx context.Context) (Section, error) {
	s := Section{Title: l.title, About: l.about, Head: []string{"policy", "in time", "p99", "GPU-hours",
		"most replicas", "started", "in time for each GPU-hour"}}
	var policies []string
	for _, n := range l.static {
		policies = append(policies, fmt.Sprintf("static:replicas=%d", n))
	}
	policies = append(policies, "hpa", "mark", "infaas", "lyra")
	if l.service.Language() {
		policies = append(policies, "distserve")
	}
	policies = append(policies, "muster", "muster, foreseen")
	for _, name := range policies {
		own := l.service
		text, foreseen := strings.CutSuffix(name, ", foreseen")
		if foreseen {
			own.Forecast = l.foreseen
		}
		if name == "distserve" {
			own.Variants = phases(own.Variants[0])
		}
		got, err := l.play(ctx, own, text)
		if err != nil {
			return s, fmt.Errorf("%s: %s: %w", l.title, name, err)
		}
		each := ""
		if 100*got.Attainment() >= own.Goal.Percentile {
			each = fmt.Sprintf("%.0f", float64(got.InTime)/got.GPUHours)
		}
		s.Cells = append(s.Cells, []string{"`" + text + "`" + strings.TrimPrefix(name, text),
			fmt.Sprintf("%.2f %%", 100*got.Attainment()),
			got.Latency.Quantile(0.99).Round(time.Millisecond / 10).String(),
			fmt.Sprintf("%.2f", got.GPUHours), strconv.Itoa(got.Peak), strconv.Itoa(got.Started), each})
	}
	return s, nil
}

func (l *servingLoad) play(ctx context.Context, own service.Service, scaling string) (*sim.Served, error) {
	stream, err := l.stream()
	if err != nil {
		return nil, err
	}
	list, err := serve(ctx, []service.Service{own}, scaling, stream, l.gpu)
	if err != nil {
		return nil, err
	}
	return &list[0], nil
}

// serve plays the requests of services, all under the same policy, on four servers with two GPUs each.
func serve(ctx context.Context, list []service.Service, scaling string, stream requests.Stream,
	gpu string) ([]sim.Served, error) {
	policies, err := scale.Policies(list, slices.Repeat([]string{scaling}, len(list)))
	if err != nil {
		return nil, err
	}
	sv := &sim.Serving{Services: list, Scaling: policies, Stream: stream}
	spec := &cluster.Spec{}
	for i := range sharingGPUs / 2 {
		spec.Nodes = append(spec.Nodes, cluster.Node{Name: fmt.Sprintf("n%d", i+1), Model: gpu, GPUs: 2})
	}
	out := sim.Run(ctx, spec, nil, sim.Setup{Policy: "fifo", Placer: "best-fit", World: sim.Options{Serving: sv}})
	return sv.Served, out.Err
}

// chat is Llama-3.1-8B in bf16 on a GPU each.
func chat() service.Service {
	return service.Service{Name: "chat", Tier: cluster.Critical,
		Goal:     service.Goal{TTFT: 500 * time.Millisecond, TPOT: 50 * time.Millisecond, Percentile: 95},
		Replicas: service.Replicas{Min: 1, Max: 8},
		Variants: []service.Variant{{Name: "llama-3.1-8b", Request: cluster.Request{GPUs: 1}, Startup: time.Minute,
			Language: &service.Language{Precision: llm.BF16, Part: 0.9,
				Model:  llm.Model{Params: 8.03e9, Weights: 16.06e9, Layers: 32, Heads: 32, KVHeads: 8, HeadDim: 128},
				Engine: llm.Engine{Tokens: 2048, Sequences: 256, Watermark: 64}}}}}
}

// phases are a variant's two: one for prompts, one for the tokens after the first.
func phases(v service.Variant) (both []service.Variant) {
	for _, p := range []llm.Phase{llm.Prefill, llm.Decode} {
		own, model := v, *v.Language
		own.Name = v.Name + "-" + llm.PhaseNames[p]
		if model.Phase = p; p == llm.Prefill {
			model.Link = 50e9
		}
		own.Language = &model
		both = append(both, own)
	}
	return both
}

// azure is the file of Azure's recorded conversations.
func azure(traces string) string {
	return filepath.Join(traces, "azure-llm", "AzureLLMInferenceTrace_conv.csv")
}

// conversations is Azure's recorded conversations, some times as fast.
func conversations(speed float64) func(traces string) (servingLoad, error) {
	return func(traces string) (servingLoad, error) {
		file := azure(traces)
		l := servingLoad{title: fmt.Sprintf("Azure's conversations of 2023, %g times as fast", speed), service: chat(),
			gpu: "H100-80GB", static: map[float64][]int{1: {1, 2}, 4: {2, 3}, 8: {3, 4}}[speed],
			about: fmt.Sprintf("19,366 requests in %.0f minutes, for Llama-3.1-8B in bf16 on an H100 each, which starts in a minute; 500 ms to the first token and 50 ms for each further one are promised for 95 %%.", 58.7/speed),
			stream: func() (requests.Stream, error) {
				return requests.Open(file, requests.Options{Speed: speed}, 0)
			}}
		l.foreseen = service.Forecast{Prompt: 1150, Output: 210,
			Steps: []service.ExpectedStep{{At: 0, Rate: 5.5 * speed}}}
		return l, nil
	}
}

// chatDay is a drawn day of conversations.
func chatDay(string) (servingLoad, error) {
	l := servingLoad{title: "A day of conversations", service: chat(), gpu: "H100-80GB", static: []int{2, 3},
		about: "The same model; 2.2 million requests, drawn: 25 a second in the mean, from 5 at night to 45 in the afternoon; prompts of 700 tokens and answers of 150 in the median, log-normal.",
		stream: func() (requests.Stream, error) {
			return requests.Draw(&requests.Arrivals{Rate: 25, CV: 1, Daily: 0.8, Peak: 14 * time.Hour,
				For: 24 * time.Hour, Prompt: requests.Tokens{Median: 700, Sigma: 1},
				Output: requests.Tokens{Median: 150, Sigma: 0.8}}, 0), nil
		}}
	l.foreseen = service.Forecast{Prompt: 1150, Output: 210}
	for hour := range 24 { // the highest rate of each hour
		rate := 0.0
		for minute := 0; minute <= 60; minute++ {
			at := float64(hour) + float64(minute)/60
			rate = max(rate, 25*(1+0.8*math.Cos(2*math.Pi*(at-14)/24)))
		}
		l.foreseen.Steps = append(l.foreseen.Steps, service.ExpectedStep{At: int64(hour) * 3600, Rate: rate})
	}
	return l, nil
}

// images is ResNet-50 as measured, with a drawn load that has steps, bursts and a spike.
func images(traces string) (servingLoad, error) {
	v := service.Variant{Name: "resnet50", Request: cluster.Request{GPUs: 1}, Startup: 20 * time.Second}
	rows, err := csvfile.Read(filepath.Join(traces, "serving-profiles", "nvidia-batch-latency.csv"))
	for _, r := range rows {
		if !slices.Equal(r[:4], []string{"resnet50", "pytorch", "V100", "amp"}) {
			continue
		}
		batch, err1 := strconv.Atoi(r[5])
		ms, err2 := strconv.ParseFloat(r[8], 64)
		if err = errors.Join(err, err1, err2); err == nil {
			v.Profile = append(v.Profile, service.Point{Share: cluster.Whole, Batch: batch,
				Latency: time.Duration(ms * float64(time.Millisecond))})
		}
	}
	if len(v.Profile) == 0 {
		err = errors.Join(err, errors.New("resnet50 was not measured on V100"))
	}
	v.Profile.Sort()
	l := servingLoad{title: "Images", gpu: "V100-32GB", static: []int{2, 3},
		about: "ResNet-50 on V100 as NVIDIA measured it (mixed precision, 95th percentile), a replica starts in 20 s; 100 ms are promised for 99 %. Half an hour, drawn: 1,500 a second, 6,000 from the tenth minute, bursts of 1.5 times that, and twice that from minute 20 to 22.",
		service: service.Service{Name: "images", Tier: cluster.Critical,
			Goal:     service.Goal{Latency: 100 * time.Millisecond, Percentile: 99},
			Replicas: service.Replicas{Min: 1, Max: 8}, Variants: []service.Variant{v}},
		stream: func() (requests.Stream, error) {
			return requests.Draw(&requests.Arrivals{Rate: 1500, CV: 1, For: 30 * time.Minute,
				Steps:  []requests.Step{{At: 10 * time.Minute, Rate: 6000}},
				Bursts: requests.Bursts{Times: 1.5, For: 30 * time.Second, Between: 5 * time.Minute},
				Spikes: []requests.Spike{{At: 20 * time.Minute, For: 2 * time.Minute, Times: 2}}}, 0), nil
		}}
	l.foreseen.Steps = []service.ExpectedStep{{At: 0, Rate: 1500}, {At: 600, Rate: 6000}, {At: 1200, Rate: 12000},
		{At: 1320, Rate: 6000}}
	return l, err
}

// sharingGPUs is how many GPUs the sets of services share.
const sharingGPUs = 8

// sharing adds the throughput of plans on the same GPUs for the first sets of ParvaGPU, beside what is published of it.
func (t *Table) sharing(traces string, sets int) error {
	m, _ := cluster.FindModel("A100-80GB")
	s := Section{Title: fmt.Sprintf("What sharing gains: requests a second on %d A100", sharingGPUs),
		About: "ParvaGPU's four sets of services, measured on MIG instances: by which factor all rates of a set can be multiplied until a plan needs more GPUs, as requests a second. " +
			"Alone: each service has GPUs of its own, where there are enough. In turns: services take turns on whole GPUs (Nexus' squishy bin packing), as gpulet's and InSS' papers compare with. gpulet, InSS: parts of GPUs under MPS. Instances: `muster mig plan`. " +
			"Parts are taken to be as fast as instances of that size, and neighbours not to slow each other down.",
		Head: []string{"set", "alone", "in turns", "gpulet", "InSS", "instances",
			"gpulet over turns", "InSS over turns"}}
	var gains [2][]float64
	for set := 1; set <= sets; set++ {
		services, err := ReadParva(filepath.Join(traces, "parvagpu-mig"), set)
		if err != nil {
			return err
		}
		got := make([]float64, len(sharers))
		for i, gpus := range sharers {
			got[i] = mostRate(services, func(list []serving.Service) int { return gpus(&m, list) })
		}
		row := []string{strconv.Itoa(set)}
		for _, rate := range got {
			text := "–"
			if rate > 0 {
				text = fmt.Sprintf("%.0f", rate)
			}
			row = append(row, text)
		}
		a, b := got[2]/got[1]-1, got[3]/got[1]-1
		gains[0], gains[1] = append(gains[0], a), append(gains[1], b)
		s.Cells = append(s.Cells, append(row, fmt.Sprintf("%+.1f %%", 100*a), fmt.Sprintf("%+.1f %%", 100*b)))
	}
	mean := 0.0
	for _, a := range gains[0] {
		mean += 100 * a / float64(len(gains[0]))
	}
	t.Rows = append(t.Rows,
		Row{"gpulet", "more throughput than in turns on whole GPUs, %, in the mean", 102.6, mean,
			"other models and GPUs: on an RTX 2080 Ti, small models leave more of a GPU idle"},
		Row{"InSS", "more throughput than prior schedulers, %, at most", 86, 100 * slices.Max(gains[1]),
			"ten other models, and schedulers that disregard interference, which was not measured here"})
	t.Sections = append(t.Sections, s, Section{Title: "Beside what is published",
		About: "The sets above are not those of the papers, whose profiles are not published.",
		Head:  []string{"paper", "figure", "published", "ours", "why they differ"}, Cells: headlines(t.Rows)})
	return nil
}

func headlines(rows []Row) (cells [][]string) {
	for _, r := range rows {
		cells = append(cells, []string{r.Case, r.Figure, fmt.Sprintf("%g", r.Published), fmt.Sprintf("%.1f", r.Ours),
			r.Reason})
	}
	return cells
}

// sharers are how many GPUs plans need.
var sharers = []func(m *cluster.GPUModel, list []serving.Service) int{
	func(_ *cluster.GPUModel, list []serving.Service) (n int) {
		for i := range list {
			p := shareProfile(&list[i])
			if _, rate := p.Sustained(cluster.Whole, p.MaxBatch(), list[i].Latency); rate > 0 {
				n += int(math.Ceil(list[i].Rate / rate))
			}
		}
		return n
	},
	func(_ *cluster.GPUModel, list []serving.Service) int {
		var sessions []nexus.Session
		for i := range list {
			s := &list[i]
			sessions = append(sessions, nexus.Session{Name: s.Name, Rate: s.Rate, Goal: s.Latency,
				Takes: nexus.CurveOf(shareProfile(s))})
		}
		plan, err := nexus.Make(sessions, 0)
		if err != nil {
			return math.MaxInt
		}
		return len(plan.GPUs)
	},
	func(m *cluster.GPUModel, list []serving.Service) int {
		plan, err := serving.MakeShares(m, list, serving.ShareOptions{})
		if err != nil {
			return math.MaxInt
		}
		return plan.GPUs
	},
	func(m *cluster.GPUModel, list []serving.Service) int {
		g := &inss.GPU{Memory: int64(m.Memory)}
		var services []inss.Service
		for i := range list {
			s := inss.Service{Name: list[i].Name, Rate: list[i].Rate, Goal: list[i].Latency,
				Model: inss.Model{Measured: shareProfile(&list[i])}}
			n, err := inss.Replicas(g, s, inss.Options{})
			if err != nil || n == 0 {
				return math.MaxInt
			}
			s.Rate /= float64(n)
			for k := range n {
				s.Name = fmt.Sprintf("%s %d", list[i].Name, k)
				services = append(services, s)
			}
		}
		plan, err := inss.Make(g, services, inss.Options{})
		if err != nil || len(plan.Rejected) > 0 {
			return math.MaxInt
		}
		return plan.Used()
	},
	func(m *cluster.GPUModel, list []serving.Service) int {
		plan, err := serving.Make(m, list, 1)
		if err != nil {
			return math.MaxInt
		}
		return plan.GPUs
	},
}

// shareProfile is how long batches of one process take on parts of a GPU, as measured on instances.
func shareProfile(s *serving.Service) (p service.Profile) {
	for _, x := range s.Points {
		if x.Processes == 1 && x.Rate > 0 {
			share := cluster.Milli(x.Compute) * cluster.Whole / 7
			p = append(p, service.Point{Share: share, Batch: x.Batch, Latency: x.Latency})
		}
	}
	p.Sort()
	return p
}

// mostRate is the most requests a second with which plans need no more GPUs than there are, at the proportions of the
// services' rates, to a thousandth.
func mostRate(services []serving.Service, gpus func([]serving.Service) int) float64 {
	times := func(by float64) []serving.Service {
		list := slices.Clone(services)
		for i := range list {
			list[i].Rate *= by
		}
		return list
	}
	lo, hi := 0.0, 64.0
	for hi-lo > lo/1000+1e-3 {
		if mid := (lo + hi) / 2; gpus(times(mid)) <= sharingGPUs {
			lo = mid
		} else {
			hi = mid
		}
	}
	sum := 0.0
	for _, s := range times(lo) {
		sum += s.Rate
	}
	return sum
}
