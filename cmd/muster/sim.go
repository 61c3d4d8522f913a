package main

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"golang.org/x/term"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/config"
	"github.com/muster-gpu/muster/engine"
	"github.com/muster-gpu/muster/journal"
	"github.com/muster-gpu/muster/network/traffic"
	"github.com/muster-gpu/muster/perf"
	"github.com/muster-gpu/muster/place"
	"github.com/muster-gpu/muster/policy"
	"github.com/muster-gpu/muster/report"
	"github.com/muster-gpu/muster/sim"
	"github.com/muster-gpu/muster/trace"
	"github.com/muster-gpu/muster/tune"
)

// simFlags are the flags of muster sim.
type simFlags struct {
	traceFlags
	demo                           bool
	cluster                        string
	load                           float64
	tile                           int
	policies, placers, backfill    string
	traffic                        string
	depth, reserve                 int
	estimates, gang, queues, perf  string
	believed                       string
	measured                       bool
	startup, minRuntime, starve    string
	holdAfter                      string
	defrag, zone                   string
	protected                      []string
	nodeMTBF, gpuMTBF, repair      string
	faults                         float64
	ckptEvery, ckptCost, restart   string
	ckptMin, ckptMax, preemptEvery string
	suspendCost                    string
	saves                          string // what --checkpoint-every auto came to
	preempt                        string
	until                          string
	seed                           uint64
	html, json, csv, jobs, journal string
	search, methods, atOnce        string
	services, requests, scaling    string
	serviceWeights                 string
	starts                         int
	profiles                       runProfiles
}

// traceFlags are the flags of everything that reads a trace.
type traceFlags struct {
	trace, format, nodes, throughputs, profiles string
	rate                                        float64
	skipBad, partitions                         bool
	limit                                       int
}

func (f *traceFlags) register(c *cobra.Command) {
	fl := c.Flags()
	fl.StringVar(&f.trace, "trace", "",
		"recorded workload, in any format that muster trace formats lists (.gz, .zst are read as they are)")
	fl.StringVar(&f.format, "format", "", "format of the trace (default: found out from its content)")
	fl.BoolVar(&f.skipBad, "skip-bad", false, "count malformed rows and go on, instead of stopping at the first")
	fl.IntVar(&f.limit, "limit", 0, "take only the first N jobs")
	fl.StringVar(&f.nodes, "nodes", "", "node list that belongs to the trace (openb)")
	fl.Float64Var(&f.rate, "rate", 0, "jobs per hour, for traces that leave it open (gavel)")
	fl.StringVar(&f.throughputs, "throughputs", "", "throughput table, for traces in steps (gavel)")
	fl.StringVar(&f.profiles, "profiles", "", "directory of measured step times (pollux)")
	fl.BoolVar(&f.partitions, "partitions", false, "keep partitions of a Slurm export as constraints")
}

func (f *traceFlags) open() (*trace.Workload, error) {
	if of := f.requests(); of != "" {
		return nil, usage(fmt.Errorf("%s: holds requests (%s), no jobs; muster sim --services plays them: "+
			"name the file as trace: in that of --requests", f.trace, of))
	}
	return trace.Open(f.trace, trace.Options{Format: f.format, SkipBad: f.skipBad, Limit: f.limit, Nodes: f.nodes,
		Rate: f.rate, Throughputs: f.throughputs, Profiles: f.profiles, Partitions: f.partitions})
}

func newSim() *cobra.Command {
	f := &simFlags{}
	c := &cobra.Command{
		Use:   "sim [flags]",
		Short: "Replay a workload under one or more policies and compare them",
		Example: "  muster sim --demo --html report.html\n" +
			"  muster sim --trace philly.csv --cluster 48x8xV100-32GB --policies fifo,las,srtf --backfill easy\n" +
			"  muster sim --trace jobs.jsonl --load 0.9 --policies all --place topology --backfill easy",
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			return f.profiles.during(func() error { return runSim(c, f) })
		},
	}
	f.register(c)
	f.profiles.register(c.Flags())
	fl := c.Flags()
	f.registerWorld(fl, "auto", "0s", "0s")
	fl.StringVar(&f.policies, "policies", "fifo+easy,"+daemonPolicy+",las+easy",
		"policies to compare, as POLICY[:knob=value,...][+BACKFILL]; all for every one (muster policy list)")
	fl.StringVar(&f.placers, "place", "best-fit", "placers to combine them with: "+placerNames())
	fl.StringVar(&f.backfill, "backfill", "", "none, skip, easy or conservative (default: the policy's own)")
	fl.StringVar(&f.traffic, "traffic", "",
		"with a network in the cluster file: how jobs' traffic is treated, several to compare, or all: "+
			strings.Join(traffic.Names(), ", ")+" (default: none)")
	fl.StringVar(&f.until, "until", "", "end the simulation at this time after its start")
	fl.StringVar(&f.html, "html", "", "write a report page to this file")
	fl.StringVar(&f.json, "json", "", "write the figures as JSON to this file (- for the terminal)")
	fl.StringVar(&f.csv, "csv", "", "write the figures as CSV to this file (- for the terminal)")
	fl.StringVar(&f.jobs, "jobs-csv", "",
		"write one line per job to this file (several policies: their names are added)")
	fl.StringVar(&f.search, "search", "",
		"play a hyper-parameter search beside the workload, or alone on --cluster (docs/howto/search.md)")
	fl.StringVar(&f.methods, "methods", "",
		"methods to compare with --search (default: the file's): muster search methods, asha:stopping, hydro:fused, hydro:narrow")
	fl.StringVar(&f.atOnce, "at-once", "",
		"with --search: how many runs at once, several with commas (default: the file's)")
	fl.StringVar(&f.services, "services", "",
		"play online services beside the workload, or alone on --cluster: a file of services, one for each YAML document")
	fl.StringVar(&f.requests, "requests", "", "with --services: the file that says which requests come, recorded or drawn")
	fl.StringVar(&f.scaling, "scaling", "",
		"with --services: policies that add and remove replicas, to compare (default: the services' own)")
	fl.StringVar(&f.serviceWeights, "service-weights", "",
		"with --services: file of weights of those under inss-rl that name none, as services.weights of muster serve has it")
	fl.IntVar(&f.starts, "score-starts", 0,
		"ask when jobs will start, at the submission of each Nth that has to wait and later of others, and score the answers (docs/design/expected-starts.md)")
	fl.StringVar(&f.journal, "journal", "", "write a journal to this file (several policies: their names are added)")
	return c
}

// registerWorld adds the flags of the world that is replayed, policies apart.
func (f *simFlags) registerWorld(fl *pflag.FlagSet, estimates, ckptCost, restart string) {
	fl.BoolVar(&f.demo, "demo", false, "a made-up week of a small team's jobs on 4 nodes of 8 GPUs")
	fl.StringVar(&f.cluster, "cluster", "",
		"cluster file, or a short form such as 64x8xA100-80GB (default: the trace's own machines)")
	fl.Float64Var(&f.load, "load", 0,
		"offered load: without --cluster it sizes 8-GPU nodes for it, with one it stretches the arrivals")
	fl.IntVar(&f.tile, "tile", 1, "repeat the trace N times, one after the other")
	fl.IntVar(&f.depth, "backfill-depth", 100, "how many jobs behind a blocked one backfill considers")
	fl.IntVar(&f.reserve, "backfill-reserve", 16, "how many blocked jobs conservative backfill promises a start")
	fl.StringVar(&f.estimates, "estimates", estimates,
		"what the scheduler knows of run times: auto (what a job states, exact where it states none), exact, stated (no more than that), none, or noise:SIGMA (log-normal); exact and noise replace what jobs state")
	fl.StringVar(&f.gang, "gang", "node", "what \"n GPUs\" means: node (as few nodes as possible) or gpu (anywhere)")
	fl.StringVar(&f.queues, "queues", "auto",
		"without queues in the cluster file: auto (one for each name in the trace) or none")
	fl.StringVar(&f.perf, "perf", "",
		"performance table: speeds by GPU model, placement and co-location (docs/reference/speeds.md)")
	fl.StringVar(&f.believed, "believed", "",
		"performance table that the scheduler goes by instead of --perf, to see what its errors do")
	fl.BoolVar(&f.measured, "measured", false,
		"the scheduler knows how fast jobs go on what they hold, as by their progress under muster serve; what it knows before is --believed, or nothing")
	fl.StringVar(&f.startup, "startup", "0s", "time from a start until the job computes")
	fl.StringVar(&f.defrag, "defragment", "off",
		"running jobs are moved where that gains more than it costs: so that waiting ones fit (auto), and so that nodes are empty (compact: for usable GPUs; compact-nodes); off")
	fl.StringArrayVar(&f.protected, "protected", nil,
		"no job is moved in these times of the week, such as \"mon-fri 08:00-18:00\"; several times: in none of them")
	fl.StringVar(&f.zone, "zone", "",
		"the clock of --protected: Europe/Berlin, +01:00 (default: UTC); the trace or the cluster file says when the workload begins (epoch)")
	fl.StringVar(&f.minRuntime, "min-runtime", "0s", "a started job is not preempted before")
	fl.StringVar(&f.holdAfter, "hold-after", cluster.FormatDuration(engine.DefaultHoldAfter),
		"nodes are held for a blocked job that waited so long and can be promised no start, because run times are not known; 0: never")
	fl.StringVar(&f.starve, "starvation", "0s", "a job that waited so long goes first, with a reservation; 0: never")
	fl.StringVar(&f.ckptEvery, "checkpoint-every", "0s",
		"periodic checkpoints of jobs that state none; auto: as often as loses least to them, to failures and to preemptions (Daly)")
	fl.StringVar(&f.ckptMin, "checkpoint-min", "", "with --checkpoint-every auto: at least so far apart")
	fl.StringVar(&f.ckptMax, "checkpoint-max", "",
		"standard and critical jobs write a checkpoint at least so often, whatever they state")
	fl.StringVar(&f.preemptEvery, "preemption-every", "",
		"with --checkpoint-every auto: mean time between preemptions of a running job, counted where they leave it no time to write a checkpoint")
	fl.StringVar(&f.ckptCost, "checkpoint-cost", ckptCost, "time to write a checkpoint, for jobs that state none")
	fl.StringVar(&f.restart, "restart-cost", restart, "time to restore a checkpoint, for jobs that state none")
	fl.StringVar(&f.suspendCost, "suspend-cost", "0s",
		"time to be frozen and to go on in place (--preempt suspend), for jobs that state none")
	fl.StringVar(&f.preempt, "preempt", "", "how standard jobs are preempted: checkpoint (default), suspend or kill")
	fl.StringVar(&f.nodeMTBF, "node-mtbf", "0s", "mean time between failures of a node; 0: none fail")
	fl.StringVar(&f.gpuMTBF, "gpu-mtbf", "0s", "mean time between failures of a GPU; 0: none fail")
	fl.Float64Var(&f.faults, "mps-faults", 0,
		"part of the jobs that fail in shares under MPS whose failure ends all others on their GPU, 0 to 1")
	fl.StringVar(&f.repair, "repair", "4h", "until a failed node or GPU is back")
	fl.Uint64Var(&f.seed, "seed", 1, "seed of everything that is random")
}

func runSim(c *cobra.Command, f *simFlags) error {
	if f.search != "" {
		return simSearch(c, f)
	}
	if f.services != "" {
		return simServices(c, f)
	}
	if f.requests != "" || f.scaling != "" || f.serviceWeights != "" {
		return usage(errors.New("--requests, --scaling and --service-weights need --services"))
	}
	if f.methods != "" || f.atOnce != "" {
		return usage(errors.New("--methods and --at-once need --search"))
	}
	wl, spec, err := f.load1()
	if err != nil {
		return err
	}
	entries, setups, err := f.prepareAll(wl, spec)
	if err != nil {
		return err
	}
	return f.compare(c, wl, spec, entries, setups)
}

// prepareAll fits the workload to the cluster, and combines policies and placers.
func (f *simFlags) prepareAll(wl *trace.Workload, spec *cluster.Spec) ([]trace.Entry, []sim.Setup, error) {
	entries, err := f.prepare(wl, spec)
	if err != nil {
		return nil, nil, err
	}
	setups, err := f.setups(spec)
	return entries, setups, usage(err)
}

// prepare fits the workload to the cluster, as the flags say.
func (f *simFlags) prepare(wl *trace.Workload, spec *cluster.Spec) ([]trace.Entry, error) {
	est, form, err := f.knowledge()
	if err != nil {
		return nil, usage(err)
	}
	if f.queues == "auto" {
		sim.AutoQueues(spec, wl)
	} else if f.queues != "none" {
		return nil, usage(cluster.Unknown("--queues", f.queues, []string{"auto", "none"}))
	}
	entries := sim.Prepare(wl, spec, est, form)
	return entries, usage(f.checkpoints(entries))
}

// compare runs the setups and writes the results.
func (f *simFlags) compare(c *cobra.Command, wl *trace.Workload, spec *cluster.Spec, entries []trace.Entry,
	setups []sim.Setup) error {
	out, errw := c.OutOrStdout(), c.ErrOrStderr()
	if t, ok := setups[0].World.Model.(*perf.Table); ok && t.Speeds.Filled+t.Beside.Filled > 0 {
		fmt.Fprintf(errw, "performance: %s\n", config.PerfText(t))
	}
	introduce(errw, wl, spec)
	fmt.Fprint(errw, f.saves)
	clock := wallClock()
	bar := report.NewProgress(errw, isTTY(errw), 0, "replaying", clock)
	var closers []func() error
	for i := range setups {
		part := bar.Part(len(entries))
		if f.starts > 0 {
			setups[i].Starts = &sim.Starts{Every: f.starts}
		}
		setups[i].World.Progress = func(done, _ int, _ cluster.Time) { part.Update(done, "") }
		if f.journal != "" {
			closeIt, err := f.openJournal(&setups[i], spec, len(setups) > 1)
			if err != nil {
				return err
			}
			closers = append(closers, closeIt)
		}
	}
	outs := sim.RunAll(c.Context(), spec, entries, setups, clock)
	bar.Done()
	for _, cl := range closers {
		if err := cl(); err != nil {
			return err
		}
	}
	var runs []report.Run
	var sums []report.Summary
	for i := range outs {
		if outs[i].Err != nil {
			return fmt.Errorf("%s: %w", outs[i].Label, outs[i].Err)
		}
		outs[i].Run.Trace, outs[i].Run.Cluster = wl.Name, describe(spec)
		if wl.Epoch != 0 {
			outs[i].Run.Epoch = wl.Epoch
		}
		runs = append(runs, outs[i].Run)
		sums = append(sums, outs[i].Run.Summarise())
	}
	if err := f.write(out, errw, runs, sums); err != nil {
		return err
	}
	if f.starts > 0 {
		var list []scoredStarts
		for i := range outs {
			list = append(list, scoredStarts{label: outs[i].Label, starts: outs[i].Setup.Starts})
		}
		if err := writeStartScores(out, list); err != nil {
			return err
		}
	}
	printRejected(errw, runs)
	if c.Context().Err() != nil {
		return errInterrupted
	}
	return nil
}

// introduce says what is replayed on what.
func introduce(w io.Writer, wl *trace.Workload, spec *cluster.Spec) {
	all, span := sim.Demand(wl)
	work, _, tooLarge := sim.DemandOn(wl, spec)
	load := "all at once"
	if span > 0 {
		load = fmt.Sprintf("offered load %.2f", work/span/float64(max(1, spec.GPUs())))
	}
	if tooLarge > 0 {
		load += fmt.Sprintf(", not counting %d that ask for more than it has", tooLarge)
	}
	fmt.Fprintf(w, "%s: %d jobs, %.0f GPU-hours over %s; %s: %d GPUs on %d nodes, %s\n",
		wl.Name, len(wl.Jobs), all/3600, cluster.FormatDuration((time.Duration(span) * time.Second).Round(time.Minute)),
		describe(spec), spec.GPUs(), len(spec.Nodes), load)
	if n := len(wl.Bad); n > 0 {
		fmt.Fprintf(w, "%d malformed rows skipped, the first: %s:%d: %s\n", n, wl.Bad[0].File, wl.Bad[0].Line,
			wl.Bad[0].Reason)
	}
}

// printRejected says why jobs were rejected: the first of them, and how many.
func printRejected(w io.Writer, runs []report.Run) {
	for i := range runs {
		if first, n := runs[i].Rejected(); n > 0 {
			j := runs[i].Jobs[first]
			fmt.Fprintf(w, "%s: %d jobs rejected, the first: job %d %s: %s\n", runs[i].Policy, n, j.ID, j.Name,
				runs[i].Records[first].Why)
			return // the same jobs under every policy
		}
	}
}

func describe(s *cluster.Spec) string {
	if s.Name != "" {
		return s.Name
	}
	return fmt.Sprintf("%d nodes", len(s.Nodes))
}

// load1 reads the trace and the cluster, and fits one to the other.
func (f *simFlags) load1() (*trace.Workload, *cluster.Spec, error) {
	var wl *trace.Workload
	var err error
	switch {
	case f.demo && f.trace != "":
		return nil, nil, usage(fmt.Errorf("--demo and --trace exclude each other"))
	case f.demo:
		s, err := trace.SynthPreset("small-team")
		if err != nil {
			return nil, nil, err
		}
		if wl, err = trace.Synth(s); err != nil {
			return nil, nil, err
		}
		if f.limit > 0 {
			wl.Jobs = wl.Jobs[:min(f.limit, len(wl.Jobs))]
		}
		if f.cluster == "" && f.load == 0 {
			f.cluster = "4x8xH100-80GB"
		}
	case f.trace == "":
		return nil, nil, usage(fmt.Errorf("--trace FILE or --demo is needed"))
	default:
		if wl, err = f.open(); err != nil {
			return nil, nil, err
		}
	}
	if len(wl.Jobs) == 0 {
		return nil, nil, fmt.Errorf("%s: no jobs", wl.Name)
	}
	if f.tile > 1 {
		sim.Tile(wl, f.tile)
	}
	spec, err := f.clusterFor(wl)
	if err != nil {
		return nil, nil, err
	}
	if wl.Epoch != 0 && spec.Epoch == 0 {
		spec.Epoch = wl.Epoch
	}
	if len(spec.Loans) > 0 && spec.Epoch == 0 {
		return nil, nil, usage(
			errors.New("loans: neither the trace nor the cluster file says when the workload begins (epoch: 2026-11-16T00:00:00Z)"))
	}
	if len(f.protected) > 0 && spec.Epoch == 0 {
		return nil, nil, usage(
			errors.New("--protected: neither the trace nor the cluster file says when the workload begins (epoch: 2026-11-16T00:00:00Z)"))
	}
	return wl, spec, nil
}

func (f *simFlags) clusterFor(wl *trace.Workload) (*cluster.Spec, error) {
	if f.load < 0 || f.load > 100 {
		return nil, usage(fmt.Errorf(
			"--load %g: between 0 and 100 are possible (1: as much work as the cluster can do)", f.load))
	}
	if f.cluster != "" {
		spec, err := config.Load(f.cluster)
		if err != nil {
			return nil, usage(err)
		}
		if f.load > 0 {
			err = sim.Stretch(wl, spec, f.load)
		}
		return spec, err
	}
	if f.load > 0 {
		n, err := sim.SizeFor(wl, f.load, 8)
		if err != nil {
			return nil, err
		}
		return cluster.ParseShort(strconv.Itoa(n) + "x8")
	}
	if len(wl.Nodes) > 0 {
		return &cluster.Spec{Name: wl.Name + "'s own nodes", Nodes: wl.Nodes, Queues: wl.Queues,
			Models: sim.UnknownModels(wl.Nodes)}, nil
	}
	return nil, usage(fmt.Errorf(
		"the trace has no machines of its own: give --cluster (for example 48x8xV100-32GB) or --load 0.9"))
}

func (f *simFlags) knowledge() (sim.Estimates, sim.PerTask, error) {
	est, err := sim.ParseEstimates(f.estimates)
	if err != nil {
		return est, 0, fmt.Errorf("--estimates %w", err)
	}
	est.Seed = f.seed
	switch f.gang {
	case "node":
		return est, sim.PerNode, nil
	case "gpu":
		return est, sim.PerGPU, nil
	}
	return est, 0, cluster.Unknown("--gang", f.gang, []string{"node", "gpu"})
}

// durationFlag reads a flag's value; its name stands in the error.
func durationFlag(name, value string) (time.Duration, error) {
	d, err := cluster.ParseDuration(value)
	if err != nil {
		return 0, fmt.Errorf("--%s: %w", name, err)
	}
	return d, nil
}

// setups combines policies and placers.
func (f *simFlags) setups(spec *cluster.Spec) ([]sim.Setup, error) {
	base, err := f.baseSetup()
	if err != nil {
		return nil, err
	}
	treatments, err := f.treatments(spec)
	if err != nil {
		return nil, err
	}
	var setups []sim.Setup
	for _, pl := range strings.Split(f.placers, ",") {
		if err := place.Fits(strings.TrimSpace(pl), spec); err != nil {
			return nil, fmt.Errorf("--place: %w", err)
		}
		for _, po := range policy.Split(f.policies) {
			try := tune.Parse(po)
			if _, err := policy.New(try.Policy); err != nil {
				return nil, err
			}
			s := base
			s.Policy, s.Placer = try.Policy, strings.TrimSpace(pl)
			if try.Backfill != "" {
				if f.backfill != "" {
					return nil, fmt.Errorf("--policies %s names a backfill, and --backfill %s another: one of them", po,
						f.backfill)
				}
				if err := s.SetBackfill(try.Backfill); err != nil {
					return nil, fmt.Errorf("--policies %s: %w", po, err)
				}
			}
			for _, t := range treatments {
				s.Traffic = t
				setups = append(setups, s)
			}
		}
	}
	return setups, nil
}

// treatments lists the traffic policies to compare; without a network there is one, which is none.
func (f *simFlags) treatments(spec *cluster.Spec) ([]string, error) {
	switch {
	case spec.Network == nil && f.traffic != "":
		return nil, errors.New("--traffic: the cluster file describes no network (docs/reference/network.md)")
	case spec.Network == nil:
		return []string{""}, nil
	case f.traffic == "all":
		return traffic.Names(), nil
	}
	names := strings.Split(cmp.Or(f.traffic, "none"), ",")
	for _, name := range names {
		if _, err := traffic.New(name); err != nil {
			return nil, fmt.Errorf("--traffic: %w", err)
		}
	}
	return names, nil
}

func faultsPart(v float64) error {
	if v >= 0 && v <= 1 {
		return nil
	}
	return fmt.Errorf("--mps-faults %g: a part of all failures is between 0 and 1", v)
}

func (f *simFlags) baseSetup() (sim.Setup, error) {
	var s sim.Setup
	defrag, err := engine.ParseDefrag(f.defrag)
	if err != nil {
		return s, fmt.Errorf("--defragment: %w", err)
	}
	if err := errors.Join(f.protect(defrag), faultsPart(f.faults)); err != nil {
		return s, err
	}
	dur := func(name, value string) (d time.Duration) {
		if err == nil {
			d, err = durationFlag(name, value)
		}
		return d
	}
	s.Config = engine.Config{Defrag: defrag, Depth: f.depth, Reserve: f.reserve,
		MinRuntime: dur("min-runtime", f.minRuntime),
		Starvation: dur("starvation", f.starve), HoldAfter: dur("hold-after", f.holdAfter)}
	s.World = sim.Options{Startup: dur("startup", f.startup), NodeMTBF: dur("node-mtbf", f.nodeMTBF),
		GPUMTBF: dur("gpu-mtbf", f.gpuMTBF), Repair: dur("repair", f.repair), Seed: f.seed, Faults: f.faults}
	if f.until != "" {
		s.World.Until = cluster.Time(dur("until", f.until))
	}
	if err != nil {
		return s, err
	}
	if f.depth < 1 || f.reserve < 1 {
		return s, fmt.Errorf("--backfill-depth and --backfill-reserve must be at least 1")
	}
	if f.preempt != "" {
		how, err := engine.ParseHow(f.preempt)
		if err != nil {
			return s, err
		}
		stop := engine.DefaultStop
		stop[cluster.Standard].How = how
		s.Config.Stop = &stop
	}
	if f.backfill != "" {
		b, err := engine.ParseBackfill(f.backfill)
		if err != nil {
			return s, err
		}
		s.Backfill = &b
	}
	if f.perf != "" {
		m, err := config.LoadPerf(f.perf)
		if err != nil {
			return s, err
		}
		s.World.Model, s.Config.Speeds = m, perf.Belief{Model: m}
	}
	if f.believed != "" {
		m, err := config.LoadPerf(f.believed)
		if err != nil {
			return s, err
		}
		s.Config.Speeds = perf.Belief{Model: m}
	}
	if f.measured {
		if f.perf == "" {
			return s, usage(errors.New("--measured needs --perf: without it jobs are everywhere as fast as recorded"))
		}
		if s.World.Paces = true; f.believed == "" {
			s.Config.Speeds = perf.Belief{Model: &perf.Table{}}
		}
	}
	return s, nil
}

// protect notes the times in which no job is moved.
func (f *simFlags) protect(d *engine.Defrag) error {
	zone := f.zone
	if len(f.protected) > 0 {
		zone = cmp.Or(zone, "UTC") // on every machine the same
	}
	w, err := config.ParseWeekly(f.protected, zone)
	switch {
	case err != nil:
		return usage(fmt.Errorf("--%w", err))
	case w == nil:
		return nil
	case d == nil:
		return usage(errors.New("--protected: without --defragment no job is moved at any time"))
	}
	d.Protected = w
	return nil
}

func (f *simFlags) openJournal(s *sim.Setup, spec *cluster.Spec, several bool) (func() error, error) {
	path := variant(f.journal, s.Policy+"-"+s.Placer, several)
	file, err := os.Create(path)
	if err != nil {
		return nil, err
	}
	h := journal.Header{Rules: config.Rules{Spec: *spec, Policy: s.Policy, Placer: s.Placer, Depth: s.Config.Depth,
		Reserve: s.Config.Reserve, MinRuntime: s.Config.MinRuntime, Starvation: s.Config.Starvation,
		HoldAfter: s.Config.HoldAfter, Stop: s.Config.Stop, Defrag: s.Config.Defrag, Traffic: s.Traffic}}
	if b, ok := s.Config.Speeds.(perf.Belief); ok {
		h.Perf, _ = b.Model.(*perf.Table)
	}
	if s.Backfill != nil {
		h.Backfill = s.Backfill.String()
	}
	w, err := journal.NewWriter(file, h)
	if err != nil {
		return nil, err
	}
	s.Journal = w
	return func() error {
		if err := w.Flush(); err != nil {
			return fmt.Errorf("%s: %w", path, err)
		}
		return file.Close()
	}, nil
}

// variant adds a name to a path before its extension.
func variant(path, name string, several bool) string {
	if !several {
		return path
	}
	ext := filepath.Ext(path)
	clean := strings.NewReplacer(":", "-", "=", "-", ",", "-", "/", "-").Replace(name)
	return strings.TrimSuffix(path, ext) + "-" + clean + ext
}

// write sends the results where the flags want them.
func (f *simFlags) write(out, errw io.Writer, runs []report.Run, sums []report.Summary) error {
	if f.json != "-" && f.csv != "-" {
		if err := report.WriteTable(out, sums, report.TableOptions{Width: width(out), Color: isTTY(out)}); err != nil {
			return err
		}
	}
	files := []output{
		{f.json, func(w io.Writer) error { return report.WriteJSON(w, runs, sums) }},
		{f.csv, func(w io.Writer) error { return report.WriteCSV(w, sums) }},
		{f.html, func(w io.Writer) error { return report.WriteHTML(w, "Muster: "+runs[0].Trace, runs, sums) }},
	}
	if f.jobs != "" {
		for i := range runs {
			files = append(files, output{variant(f.jobs, runs[i].Policy+"-"+runs[i].Placer, len(runs) > 1),
				func(w io.Writer) error { return report.WriteJobsCSV(w, &runs[i]) }})
		}
	}
	return writeAll(out, errw, files)
}

// output is what goes to a file; "-": to standard output; "": nowhere.
type output struct {
	path string
	emit func(io.Writer) error
}

// writeAll writes files, and says which.
func writeAll(out, errw io.Writer, files []output) error {
	for _, x := range files {
		if x.path == "" {
			continue
		}
		if x.path == "-" {
			if err := x.emit(out); err != nil {
				return err
			}
			continue
		}
		if err := writeFile(x.path, x.emit); err != nil {
			return err
		}
		fmt.Fprintf(errw, "wrote %s\n", x.path)
	}
	return nil
}

// writeFile writes beside the file and renames: never half a file.
func writeFile(path string, emit func(io.Writer) error) error {
	tmp, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+".*")
	if err != nil {
		return err
	}
	defer os.Remove(tmp.Name())
	if err := emit(tmp); err != nil {
		tmp.Close()
		return fmt.Errorf("%s: %w", path, err)
	}
	if err := tmp.Chmod(0o644); err != nil {
		return err
	}
	if err := tmp.Close(); err != nil {
		return err
	}
	return os.Rename(tmp.Name(), path)
}

func isTTY(w any) bool {
	f, ok := w.(*os.File)
	return ok && term.IsTerminal(int(f.Fd()))
}

func width(w any) int {
	if f, ok := w.(*os.File); ok {
		if n, _, err := term.GetSize(int(f.Fd())); err == nil && n > 0 {
			return n
		}
	}
	return 120
}
