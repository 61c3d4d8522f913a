// Package service has the nouns of online inference: a service with its latency goal, the variants of its model, and
// how long they compute.
package service

import (
	"cmp"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/serving/llm"
)

// Service is a model, or several for the same task, that answers requests while it runs.
type Service struct {
	Name     string
	Queue    string
	Tier     cluster.Tier
	Goal     Goal
	Replicas Replicas
	Variants []Variant // the first is what runs if nothing chooses
	Batching Batching
	Budget   Budget
	Path     string // HTTP requests below /PATH/ are its own, besides those of the models' protocols; "": none
	Probe    Probe
	Scaling  string  // policy by which replicas are added and removed, with its knobs; "": the default
	Canary   float64 // part of the requests that the last variant answers, whatever the policy chooses; 0: none
	Metrics  Metrics
	Lend     Lend
	Forecast Forecast
}

// Lend is what a service promises itself of the GPUs that it does not use: jobs that may be preempted hold them
// meanwhile, and it has them back in time.
type Lend struct {
	Within time.Duration // after they were asked for; 0: as the tiers of the jobs say
}

// Metrics says where, on Kubernetes, is found what replicas have to do.
type Metrics struct {
	Server string // kind of model server; "": the one whose metrics are found
	Port   int    // 0: the pod's annotation prometheus.io/port, else its only port
	Path   string // "": the pod's annotation prometheus.io/path, else /metrics
	Demand string // query of Prometheus for the requests per second that arrive in front of all replicas; "": none
}

// Goal is what a service promises of a request's latency; 0: nothing of that kind.
type Goal struct {
	Latency    time.Duration // from its arrival to its answer, at most
	TTFT       time.Duration // from its arrival to the first token of the answer
	TPOT       time.Duration // between two tokens of the answer, in the mean
	Percentile float64       // of the requests that must meet it, in per cent: above 0, at most 100
}

// Replicas bounds how many copies of a service run.
type Replicas struct {
	Min int // 0: none while there are no requests
	Max int
}

// Probe says how it is found out whether a replica answers: by an HTTP request that must be answered with a status
// from 200 to 399.
type Probe struct {
	Path     string        // "": /v2/health/ready, or /health of language models
	Every    time.Duration // 0: each second
	Timeout  time.Duration // 0: 5 s
	Failures int           // in a row after which a replica that has answered gets no more requests; 0: 3
}

// Budget bounds what a service costs and how well it answers; where both cannot be kept, one gives way.
type Budget struct {
	Accuracy float64 // least accuracy of the variants that answer; 0: any
	PerHour  float64 // most cost of all replicas; 0: any
	Gives    Gives
}

// Affords reports whether all replicas may cost so much an hour.
func (b *Budget) Affords(perHour float64) bool {
	return b.PerHour == 0 || perHour <= b.PerHour || b.Gives == Cost
}

// Gives is what gives way where accuracy and cost cannot both be kept.
type Gives uint8

// What gives way: neither means that fewer requests are answered in time.
const (
	Neither Gives = iota
	Accuracy
	Cost
)

// GivesNames are the spellings, by value.
var GivesNames = []string{"neither", "accuracy", "cost"}

// Variant is one model for a service's task.
type Variant struct {
	Name     string
	Accuracy float64           // 0 to 1; 0: unknown
	Cost     float64           // of a replica and hour; 0: the GPUs that it holds
	Request  cluster.Request   // what a replica holds
	GPUTypes []string          // models of GPUs that it runs on; none: all
	Command  []string          // arguments with {port}, {name} (the service's), and of a language model {tensor}, {pipeline}
	Dir      string            // working directory; "": the owner's home
	Env      map[string]string // what replicas find in their environment, besides what Muster says
	Startup  time.Duration     // from the start of a replica until it answers
	Warm     time.Duration     // the same where the host's memory still has its weights; 0: no shorter
	Profile  Profile           // of a model that computes batches
	Use      Use
	Auto     bool      // gpus: auto: the policy may give replicas other parts of a GPU than the one that was chosen
	Measure  bool      // its profile is what is measured while it runs
	Language *Language // a language model; nil: it computes batches
}

// Use is what a variant uses of a GPU that it has for itself while it computes its largest batch, 0 to 1, and how much
// longer it takes next to others.
type Use struct {
	Compute, Memory float64 // of its threads, of its memory's bandwidth
	Slowed          float64 // part by which it takes longer next to neighbours that use all of the bandwidth
}

// Language is a variant that is a language model.
type Language struct {
	Model     llm.Model
	Precision llm.Precision
	Engine    llm.Engine // its blocks: 0: what is left of the memory; its stages divide the GPUs
	Phase     llm.Phase
	Link      float64 // bytes per second at which keys and values leave an instance of prefill
	Part      float64 // of a GPU's memory that it may use
	Reserve   float64 // of that, bytes for activations on each GPU
}

// On returns what a replica on a number of GPUs of a model is, and how long each of its stages takes for a step; an
// error says why it cannot run there.
func (l *Language) On(gpu string, n int) (takes llm.Timer, e llm.Engine, err error) {
	g, ok := llm.FindGPU(gpu, l.Precision)
	if !ok {
		return nil, e, fmt.Errorf("the speed of %s at %s is not known", gpu, l.Precision)
	}
	on, err := l.Layout(n)
	if err != nil {
		return nil, e, err
	}
	e = l.Engine
	if e.Stages = on.PP; e.Blocks == 0 {
		e.Blocks = l.Model.Blocks(on, &g, l.Part, l.Reserve)
	}
	if e.Blocks == 0 {
		return nil, e, fmt.Errorf("%d %s have no memory left beside the weights (%.1f GB)", n, gpu, l.Model.Weights/1e9)
	}
	e.Watermark = min(e.Watermark, e.Blocks-1)
	return llm.Roofline(&l.Model, &g, on), e, e.Check()
}

// Layout is how a replica's GPUs share the model; an error says why its stages cannot have as many each.
func (l *Language) Layout(gpus int) (llm.Layout, error) {
	stages := l.Engine.Stages
	if most := min(l.Model.Layers, llm.MaxStages); stages < 0 || stages > max(1, most) {
		return llm.Layout{}, fmt.Errorf("pipeline: %d is not a number of stages from 1 to %d: each has layers of the model",
			stages, most)
	}
	on := llm.Lay(gpus, stages)
	if on.TP < 1 || on.TP*on.PP != gpus {
		return on, fmt.Errorf("pipeline: %d stages do not divide %d GPUs: all have as many", stages, gpus)
	}
	return on, nil
}

// Parallel is how a replica's GPUs share a language model that passes Check; of others the GPUs are one stage.
func (v *Variant) Parallel() llm.Layout {
	if v.Language == nil {
		return llm.Lay(v.Request.GPUs, 1)
	}
	return llm.Lay(v.Request.GPUs, v.Language.Engine.Stages)
}

// Phased reports whether replicas compute either prompts or the tokens after the first.
func (s *Service) Phased() bool { return s.Language() && s.Variants[0].Language.Phase != llm.Both }

// phases reports as an error that a service has no variants of one of the phases, or some of both.
func (s *Service) phases() error {
	var n [len(llm.PhaseNames)]int
	for i := range s.Variants {
		if l := s.Variants[i].Language; l != nil {
			n[l.Phase]++
		}
	}
	split := n[llm.Prefill] + n[llm.Decode]
	switch {
	case split == 0:
		return nil
	case n[llm.Both] > 0 || n[llm.Prefill] == 0 || n[llm.Decode] == 0:
		return errors.New("variants: where some have a phase, all do, and there is one for prefill and one for decode")
	case s.Goal.TTFT == 0 || s.Goal.TPOT == 0:
		return errors.New("ttft: where variants have phases both ttft and tpot are promised")
	case s.Replicas.Min == 1 || s.Replicas.Max < 2:
		return errors.New("replicas: where variants have phases a request needs two replicas: min is 0 or at least 2, max at least 2")
	}
	return nil
}

// Language reports whether a service's variants are language models.
func (s *Service) Language() bool { return len(s.Variants) > 0 && s.Variants[0].Language != nil }

// Batching says how requests are put into batches.
type Batching struct {
	Rule      string        // name of a rule of package batch, with its knobs; "": the default
	Max       int           // requests in a batch; 0: the largest that was measured
	Delay     time.Duration // how long the first request waits for others
	Preferred []int         // sizes that are sent as soon as they are there
	Waiting   int           // requests that may wait for each replica; 0: 1000
}

// Check says what is wrong with a service.
func (s *Service) Check() error {
	switch g := s.Goal; {
	case s.Name == "":
		return errors.New("name: a service needs one")
	case g.Latency < 0 || g.TTFT < 0 || g.TPOT < 0 || g == Goal{Percentile: g.Percentile}:
		return errors.New("latency: what is promised is missing: latency, such as 50ms, or ttft and tpot")
	case !s.Language() && (g.Latency == 0 || g.TTFT > 0 || g.TPOT > 0):
		return errors.New("latency: of models that compute batches latency is promised; ttft and tpot are for language models")
	case !(g.Percentile > 0 && g.Percentile <= 100):
		return fmt.Errorf("percentile: %g is not above 0 and at most 100", g.Percentile)
	case s.Replicas.Min < 0 || s.Replicas.Max < max(1, s.Replicas.Min) || s.Replicas.Max > maxReplicas:
		return fmt.Errorf("replicas: min is 0 or more, max at least min and from 1 to %d", maxReplicas)
	case len(s.Variants) == 0:
		return errors.New("variants: at least one is needed")
	case s.Batching.Max < 0 || s.Batching.Max > maxBatch || s.Batching.Delay < 0 || s.Batching.Waiting < 0:
		return fmt.Errorf("batching: max is from 1 to %d, delay and waiting are 0 or more", maxBatch)
	}
	if b := s.Budget; !(b.Accuracy >= 0 && b.Accuracy <= 1) || !(b.PerHour >= 0 && b.PerHour <= 1e9) {
		return errors.New("budget: accuracy is from 0 to 1, per_hour 0 or more")
	}
	if err := s.Probe.check(); err != nil {
		return err
	}
	if l := s.Lend.Within; l < 0 || l > time.Hour || l > 0 && s.Tier != cluster.Critical {
		return errors.New("lend: within is a time up to an hour; only a service of the tier critical is sure to get GPUs back")
	}
	if err := s.Forecast.check(); err != nil {
		return fmt.Errorf("forecast: %w", err)
	}
	if m := &s.Metrics; m.Port < 0 || m.Port > 65535 ||
		m.Path != "" && (m.Path[0] != '/' || strings.ContainsAny(m.Path, " \n")) {
		return errors.New("metrics: port is a number up to 65535, path begins with a slash and has no blanks")
	}
	for i, p := range s.Batching.Preferred {
		if p < 1 || p > maxBatch || i > 0 && p <= s.Batching.Preferred[i-1] {
			return fmt.Errorf("batching: preferred: sizes rise, from 1 to %d", maxBatch)
		}
	}
	names := map[string]bool{}
	for i := range s.Variants {
		v := &s.Variants[i]
		if err := v.check(); err != nil {
			return fmt.Errorf("variants[%d]: %w", i, err)
		}
		if (v.Language != nil) != s.Language() {
			return fmt.Errorf("variants[%d]: a service's variants are language models all or none", i)
		}
		if names[v.Name] {
			return fmt.Errorf("variants[%d]: name: there are two called %q", i, v.Name)
		}
		names[v.Name] = true
	}
	if c := s.Canary; c != 0 && (!(c > 0 && c < 1) || len(s.Variants) < 2 || s.Replicas.Max < 2 || s.Phased()) {
		return errors.New("canary: a part above 0 and below 1 of the requests, for the last of two or more variants without " +
			"phases, of at least 2 replicas")
	}
	if err := s.phases(); err != nil {
		return err
	}
	return s.reachable(0)
}

func (p *Probe) check() error {
	switch {
	case p.Path != "" && (p.Path[0] != '/' || strings.ContainsAny(p.Path, " \n")):
		return fmt.Errorf("probe: path: %q does not begin with a slash, or has blanks", p.Path)
	case p.Every < 0 || p.Timeout < 0 || p.Every > time.Hour || p.Timeout > time.Hour || p.Failures < 0:
		return errors.New("probe: every and timeout are times up to an hour, failures is 0 or more")
	}
	return nil
}

// ProbePath is what replicas are asked.
func (s *Service) ProbePath() string {
	switch {
	case s.Probe.Path != "":
		return s.Probe.Path
	case s.Language():
		return "/health"
	}
	return "/v2/health/ready"
}

// Accurate reports as an error that no variant is accurate enough and can meet the goal, and which is nearest.
func (s *Service) Accurate() error {
	if s.Budget.Gives == Accuracy {
		return nil
	}
	return s.reachable(s.Budget.Accuracy)
}

// reachable reports as an error that no variant of an accuracy can meet the goal, and which is nearest.
func (s *Service) reachable(accuracy float64) error {
	if s.Language() {
		return s.languageReachable(accuracy)
	}
	nearest, takes := "", time.Duration(0)
	for i := range s.Variants {
		v := &s.Variants[i]
		if v.Measure {
			return nil // it is not known yet
		}
		if v.Accuracy < accuracy {
			continue
		}
		t := v.Profile.Takes(v.Share(), 1)
		if t <= s.Goal.Latency {
			return nil
		}
		if nearest == "" || t < takes {
			nearest, takes = v.Name, t
		}
	}
	if nearest == "" {
		return fmt.Errorf("budget: no variant has an accuracy of %g or more", accuracy)
	}
	return fmt.Errorf("latency: no variant answers within %v; the nearest is %s, which takes %v for a request alone",
		s.Goal.Latency, nearest, takes)
}

const (
	maxReplicas   = 10_000
	maxBatch      = 4096
	measuredBatch = 32 // the largest batch of a variant whose profile is measured, where its service states none
)

func (v *Variant) check() error {
	switch {
	case !(v.Accuracy >= 0 && v.Accuracy <= 1):
		return fmt.Errorf("accuracy: %g is not from 0 to 1", v.Accuracy)
	case !(v.Cost >= 0 && v.Cost <= 1e9):
		return fmt.Errorf("cost: %g is not a number of 0 or more", v.Cost)
	case v.Request.GPUs < 0 || v.Request.GPUs > 64:
		return fmt.Errorf("gpus: %d is not from 0 to 64", v.Request.GPUs)
	case v.Startup < 0:
		return errors.New("startup: must not be negative")
	case v.Warm < 0 || v.Warm > v.Startup:
		return errors.New("warm: a start with weights in the host's memory takes no longer than startup")
	}
	if u := &v.Use; !(u.Compute >= 0 && u.Compute <= 1 && u.Memory >= 0 && u.Memory <= 1 && u.Slowed >= 0 &&
		u.Slowed <= 100) {
		return errors.New("use: compute and memory are from 0 to 1, slowed from 0 to 100")
	}
	if l := v.Language; l != nil {
		return l.check(v)
	}
	if v.Measure {
		return nil
	}
	if err := v.Profile.check(); err != nil {
		return fmt.Errorf("profile: %w", err)
	}
	return nil
}

func (l *Language) check(v *Variant) error {
	if err := l.Model.Check(); err != nil {
		return fmt.Errorf("model: %w", err)
	}
	e := l.Engine
	switch {
	case e.Blocks < 0 || e.Tokens < 1 || e.Sequences < 1 || e.Watermark < 0:
		return errors.New("engine: tokens and sequences are 1 or more, blocks and watermark 0 or more")
	case l.Phase == llm.Prefill && !(l.Link > 0 && l.Link <= 1e15):
		return errors.New("engine: link is the bytes per second at which keys and values leave, above 0")
	case l.Phase == llm.Decode && e.Whole:
		return errors.New("engine: whole_prompts is not for decode, which computes none")
	case !(l.Part > 0 && l.Part <= 1) || !(l.Reserve >= 0):
		return errors.New("engine: memory is a part above 0 and at most 1, reserve 0 or more bytes")
	case v.Request.GPUs < 1 || v.Request.Fractional() || v.Request.Profile != "":
		return errors.New("gpus: a language model has whole GPUs")
	}
	if _, err := l.Layout(v.Request.GPUs); err != nil {
		return err
	}
	for _, gpu := range v.GPUTypes {
		if _, _, err := l.On(gpu, v.Request.GPUs); err != nil {
			return err
		}
	}
	return nil
}

// Weights is the host memory that a variant's weights take: a language model's as stated, else its GPU memory.
func (v *Variant) Weights() cluster.MiB {
	if v.Language != nil {
		return cluster.MiB(v.Language.Model.Weights / (1 << 20))
	}
	return v.Request.Memory
}

// Share is the part of a GPU that a replica has.
func (v *Variant) Share() cluster.Milli {
	if v.Request.Fractional() {
		return v.Request.Share
	}
	return cluster.Whole
}

// ReplacedWithin is within what time another replica is taken to answer in the place of one that is moved.
func (v *Variant) ReplacedWithin() time.Duration {
	const least = 2 * time.Minute
	return least + 2*v.Startup
}

// MaxBatch is the largest batch that replicas of a variant compute.
func (s *Service) MaxBatch(v *Variant) int {
	switch {
	case v.Measure:
		return cmp.Or(s.Batching.Max, measuredBatch)
	case s.Batching.Max > 0:
		return min(v.Profile.MaxBatch(), s.Batching.Max)
	}
	return v.Profile.MaxBatch()
}

// Sized is what a replica holds that has another share of a GPU than the variant says.
func (v *Variant) Sized(share cluster.Milli) cluster.Request {
	r := v.Request
	if share != v.Share() {
		r.Share = share
	}
	if r.Share == cluster.Whole {
		r.Share = 0
	}
	return r
}

// PerHour is what a replica costs each hour.
func (v *Variant) PerHour() float64 { return v.PerHourOf(v.Share()) }

// PerHourOf is what a replica with a share of a GPU costs each hour: a cost that the variant states is for its own.
func (v *Variant) PerHourOf(share cluster.Milli) float64 {
	if v.Cost > 0 {
		return v.Cost * float64(share) / float64(v.Share())
	}
	return float64(v.Sized(share).Milli()) / float64(cluster.Whole)
}
