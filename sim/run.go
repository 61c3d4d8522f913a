package sim

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/driver"
	"github.com/muster-gpu/muster/engine"
	"github.com/muster-gpu/muster/engine/sched"
	"github.com/muster-gpu/muster/network/traffic"
	"github.com/muster-gpu/muster/perf"
	"github.com/muster-gpu/muster/place"
	"github.com/muster-gpu/muster/policy"
	"github.com/muster-gpu/muster/report"
	"github.com/muster-gpu/muster/trace"
)

// Estimates says what the scheduler knows of run times.
type Estimates struct {
	From  EstimateSource
	Sigma float64 // with Noisy: the estimate is run * exp(sigma*N(0,1))
	Seed  uint64
}

// EstimateSource is where estimates come from.
type EstimateSource uint8

// The sources of estimates.
const (
	StatedElseExact EstimateSource = iota // the stated estimate, or the run time if none is stated
	Exact                                 // every job's run time, whatever it states
	Stated                                // the stated estimate only
	Noisy                                 // every job's run time with a log-normal error, whatever it states
	NoEstimates                           // none, whatever a job states
)

// EstimateForms are the spellings that ParseEstimates accepts.
var EstimateForms = []string{"auto", "exact", "stated", "none", "noise:SIGMA"}

// ParseEstimates reads auto, exact, stated, none or noise:SIGMA with SIGMA between 0 and 10.
func ParseEstimates(text string) (Estimates, error) {
	name, arg, noisy := strings.Cut(text, ":")
	if name == "noise" {
		sigma, err := strconv.ParseFloat(arg, 64)
		if err != nil || !(sigma >= 0) || sigma > 10 {
			return Estimates{}, fmt.Errorf("%q: want noise:SIGMA with SIGMA between 0 and 10", text)
		}
		return Estimates{From: Noisy, Sigma: sigma}, nil
	}
	from, ok := map[string]EstimateSource{"auto": StatedElseExact, "exact": Exact, "stated": Stated,
		"none": NoEstimates}[name]
	if !ok || noisy {
		return Estimates{}, fmt.Errorf("%q: want one of %s", text, strings.Join(EstimateForms, ", "))
	}
	return Estimates{From: from}, nil
}

// of returns the estimate that the scheduler gets for a job with a stated estimate (0: none) and a
// run time (0: unknown).
func (e *Estimates) of(stated, run time.Duration, rng *rand.Rand) time.Duration {
	exact := stated
	if run > 0 {
		exact = run
	}
	switch e.From {
	case NoEstimates:
		return 0
	case Stated:
		return stated
	case Exact:
		return exact
	case Noisy:
		noise := math.Exp(e.Sigma * rng.NormFloat64()) // drawn for every job, so that estimates are independent
		wrong := time.Duration(min(float64(exact)*noise, float64(cluster.MaxDuration)))
		return max(wrong, min(exact, 1)) // a known run time never becomes 0, which means no estimate
	case StatedElseExact:
		if stated > 0 {
			return stated
		}
		return exact
	}
	return stated
}

// PerTask says how a trace's GPU count becomes tasks.
type PerTask uint8

// The forms of a gang.
const (
	PerNode PerTask = iota // as few node-sized tasks as possible
	PerGPU                 // one task per GPU, placed anywhere
)

// Prepare fits a workload to a cluster: it groups gangs, draws estimates, and converts shares as a
// machine of the cluster would (cluster.Ways). The entries are copied; the workload is not changed.
func Prepare(wl *trace.Workload, spec *cluster.Spec, est Estimates, form PerTask) []trace.Entry {
	entries := make([]trace.Entry, len(wl.Jobs))
	copy(entries, wl.Jobs)
	perNode := 0
	for i := range spec.Nodes {
		perNode = max(perNode, spec.Nodes[i].GPUs)
	}
	known := map[string]bool{}
	for i := range spec.Queues {
		known[spec.Queues[i].Name] = true
	}
	stated := statesMemory(entries)
	rng := rand.New(rand.NewPCG(est.Seed, 0x65737469))
	for i := range entries {
		e := &entries[i]
		s := &e.Job
		if e.Flexible && form == PerNode && len(s.Tasks) == 1 && perNode > 0 {
			s.Tasks = cluster.GroupTasks(s.Tasks[0].Count, perNode, s.Tasks[0].Request)
		}
		for k := range s.Tasks { // a slice is part of one device, whatever the trace says of whole GPUs
			if r := &s.Tasks[k].Request; r.Profile != "" && r.GPUs == 0 {
				s.Tasks = slices.Clone(s.Tasks)
				s.Tasks[k].Request.GPUs = 1
			}
		}
		choose(spec, s, stated)
		s.Estimate = est.of(s.Estimate, e.Run, rng)
	}
	return entries
}

// statesMemory reports whether any job states how much GPU memory its shares need.
func statesMemory(entries []trace.Entry) bool {
	return slices.ContainsFunc(entries, func(e trace.Entry) bool {
		return slices.ContainsFunc(e.Job.Tasks, func(t cluster.TaskSet) bool {
			return t.Request.Fractional() && t.Request.Memory > 0
		})
	})
}

// choose gives a job's shares the isolation that it requires, as a daemon does at submission. If no
// job states a memory size, shares that add up to one GPU at most are assumed to fit.
func choose(spec *cluster.Spec, s *cluster.Job, stated bool) {
	if !s.Shares() || s.Isolation == cluster.Open && spec.Sharing != cluster.MPS && !stated {
		return // they stay unchanged
	}
	w := spec.Ways(s.GPUTypes)
	s.Tasks = slices.Clone(s.Tasks)
	for k := range s.Tasks {
		r := &s.Tasks[k].Request
		*r, _ = w.Choose(*r, s.Isolation, false)
	}
}

// AutoQueues gives a spec without queues one queue, without guarantee or limit, for each queue in
// the workload, so that policies with fair shares have queues to share between.
func AutoQueues(spec *cluster.Spec, wl *trace.Workload) {
	if len(spec.Queues) > 0 {
		return
	}
	seen := map[string]bool{}
	for i := range wl.Jobs {
		q := wl.Jobs[i].Job.Queue
		if q == "" {
			q = "default"
		}
		if !seen[q] {
			seen[q] = true
			spec.Queues = append(spec.Queues, cluster.Queue{Name: q, Limit: cluster.Unlimited, Lend: cluster.Unlimited})
		}
	}
}

// Setup is one replay: a workload under one policy and placer.
type Setup struct {
	Policy   string
	Placer   string
	Backfill *engine.Backfill
	Traffic  string        // how the network treats jobs' traffic; empty: nothing does
	Config   engine.Config // rules besides policy and placer; Spec is set by Run
	World    Options
	Journal  driver.Journal
	Starts   *Starts // asks for predicted starts and scores the answers; nil: none are asked for
}

// Outcome is the result of a replay.
type Outcome struct {
	Setup Setup
	Label string // the policy with its knobs
	Run   report.Run
	Hash  uint64
	Stats engine.Stats
	Err   error
}

// Run replays the entries on the cluster under one setup.
func Run(ctx context.Context, spec *cluster.Spec, entries []trace.Entry, s Setup) Outcome {
	out := Outcome{Setup: s, Label: s.Policy}
	cfg, err := s.config(spec)
	if err != nil {
		out.Err = err
		return out
	}
	out.Label = cfg.Policy.Name()
	if p, ok := cfg.Policy.(sched.Fitter); ok {
		if out.Err = p.Fits(spec); out.Err != nil {
			return out
		}
	}
	e, err := engine.New(cfg)
	if err != nil {
		out.Err = err
		return out
	}
	if _, out.Err = spec.PowerNodes(); out.Err != nil {
		return out
	}
	world := s.World
	world.Lanes = cfg.Policy.Traits().Lanes
	world.Memory = cfg.Policy.Traits().Memory
	w := NewWorld(spec, entries, world)
	w.book.frag, w.answer = e.Fragmentation, e.DeadlineAnswer
	h := &hashKeeper{next: s.Journal}
	if s.Starts != nil {
		h.seen = s.Starts.Watch(e, s.restorer(spec))
	}
	out.Err = driver.Run(ctx, e, w, h)
	out.Hash, out.Stats = h.hash, e.Stats()
	if s.Starts != nil {
		s.Starts.Close()
	}
	if w.opt.Search != nil {
		w.opt.Search.conclude(w)
	}
	if w.opt.Serving != nil && w.opt.Serving.begun {
		w.opt.Serving.conclude(w)
	}
	out.Run = w.Book().Run(w)
	out.Run.Policy, out.Run.Placer, out.Run.Backfill = out.Label, cfg.Placer.Name(), e.Backfill().String()
	out.Run.Traffic = s.Traffic
	out.Run.Hash, out.Run.Decided, out.Run.Partial = out.Hash, out.Stats.Steps, ctx.Err() != nil
	return out
}

// config returns the engine's configuration for a setup, with a new policy and placer.
func (s *Setup) config(spec *cluster.Spec) (cfg engine.Config, err error) {
	cfg = s.Config
	cfg.Spec, cfg.Backfill = *spec, s.Backfill
	if cfg.Policy, err = policy.New(s.Policy); err != nil {
		return cfg, err
	}
	if cfg.Placer, err = place.New(s.Placer); err != nil {
		return cfg, err
	}
	if s.Traffic != "" {
		if cfg.Traffic, err = traffic.New(s.Traffic); err != nil {
			return cfg, err
		}
	}
	if cfg.Speeds == nil && s.World.Model != nil {
		cfg.Speeds = perf.Belief{Model: s.World.Model}
	}
	return cfg, nil
}

// restorer returns a function that makes further engines for a setup.
func (s *Setup) restorer(spec *cluster.Spec) func(*engine.Snapshot) (*engine.Engine, error) {
	return func(snap *engine.Snapshot) (*engine.Engine, error) {
		cfg, err := s.config(spec)
		if err != nil {
			return nil, err
		}
		return engine.Restore(cfg, snap)
	}
}

// hashKeeper keeps the last hash and forwards every step.
type hashKeeper struct {
	hash uint64
	next driver.Journal
	seen func(*engine.Batch, *engine.Decision) error // nil: not observed
}

func (h *hashKeeper) Record(b *engine.Batch, d *engine.Decision) error {
	h.hash = d.Hash
	if h.seen != nil {
		if err := h.seen(b, d); err != nil {
			return err
		}
	}
	if h.next == nil {
		return nil
	}
	return h.next.Record(b, d)
}

// RunAll replays several setups in parallel, GOMAXPROCS at a time. Results are in the order of the
// setups. clock measures wall time (nil: it is not measured).
func RunAll(ctx context.Context, spec *cluster.Spec, entries []trace.Entry, setups []Setup,
	clock func() time.Duration) []Outcome {
	out := make([]Outcome, len(setups))
	var wg sync.WaitGroup
	slots := make(chan struct{}, runtime.GOMAXPROCS(0))
	for i := range setups {
		wg.Add(1)
		go func() {
			defer wg.Done()
			slots <- struct{}{}
			defer func() { <-slots }()
			var from time.Duration
			if clock != nil {
				from = clock()
			}
			out[i] = Run(ctx, spec, entries, setups[i])
			if clock != nil {
				out[i].Run.Wall = clock() - from
			}
		}()
	}
	wg.Wait()
	return out
}

// SetBackfill chooses a backfill mode by name.
func (s *Setup) SetBackfill(name string) error {
	b, err := engine.ParseBackfill(name)
	s.Backfill = &b
	return err
}
