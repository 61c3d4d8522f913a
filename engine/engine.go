package engine

import (
	"errors"
	"fmt"
	"math/bits"
	"time"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/engine/admission"
	"github.com/muster-gpu/muster/engine/defrag"
	"github.com/muster-gpu/muster/engine/explain"
	"github.com/muster-gpu/muster/engine/found"
	"github.com/muster-gpu/muster/engine/inventory"
	"github.com/muster-gpu/muster/engine/job"
	"github.com/muster-gpu/muster/engine/lending"
	"github.com/muster-gpu/muster/engine/limits"
	"github.com/muster-gpu/muster/engine/links"
	"github.com/muster-gpu/muster/engine/loans"
	"github.com/muster-gpu/muster/engine/past"
	"github.com/muster-gpu/muster/engine/pending"
	"github.com/muster-gpu/muster/engine/placement"
	"github.com/muster-gpu/muster/engine/plan"
	"github.com/muster-gpu/muster/engine/preempt"
	"github.com/muster-gpu/muster/engine/reserve"
	"github.com/muster-gpu/muster/engine/running"
	"github.com/muster-gpu/muster/engine/sched"
	"github.com/muster-gpu/muster/engine/shape"
	"github.com/muster-gpu/muster/engine/speed"
	"github.com/muster-gpu/muster/network/traffic"
	"github.com/muster-gpu/muster/quota"
)

// Config is everything that decisions depend on besides the events.
type Config struct {
	Spec   cluster.Spec
	Policy sched.Policy
	Placer placement.Placer

	Backfill *sched.Backfill // nil: what the policy asks for
	// Depth is how many jobs behind a blocked one backfill looks at (Slurm's
	// bf_max_job_test); 0: 100.
	Depth int
	// Reserve is how many blocked jobs get a reservation under conservative
	// backfill; 0: 16.
	Reserve int
	// MinRuntime protects a job from preemption after each start.
	MinRuntime time.Duration
	// Stop says how jobs of each tier are preempted; nil: DefaultStop. It is a
	// pointer because the zero value is a rule, too: suspend jobs of every tier, at once.
	Stop *[3]StopRule
	// Starvation bounds how long a job waits before it goes to the front and
	// gets a reservation; 0: never.
	Starvation time.Duration
	// HoldAfter bounds how long others pass a blocked job whose start is not in sight because the run
	// times of others are not known, under easy and conservative backfill: then nodes are held for
	// it. 0: never.
	HoldAfter time.Duration
	// HalfLife is that of decayed usage, which fair shares count; 0: a week.
	HalfLife time.Duration
	// Clock writes an instant in explanations (never in decisions); nil: as the
	// time since the origin, as in the simulator.
	Clock func(cluster.Time) string
	// Speeds is what a policy that plans is told of speeds; nil: a job is as
	// fast as it has tasks, on every GPU.
	Speeds sched.Speeds
	// Unshared says that no job can be put beside another on whole GPUs, whatever
	// plans say: Kubernetes' device plugins hand each out once.
	Unshared bool
	// Launches is how often a job may fail to start before it is given up; 0: 3.
	Launches int
	// Defrag says whether running jobs are moved for waiting ones; nil: never.
	Defrag *Defrag
	// Traffic decides how the network (Spec.Network) treats the traffic of running jobs; nil: nothing does.
	Traffic traffic.Policy
}

// StopRule says how a job is preempted, and how long it has for it.
type StopRule = preempt.StopRule

// DefaultStop is the rule of each tier where Config.Stop is nil.
var DefaultStop = preempt.DefaultStop

// Engine decides. It is a deterministic state machine: the same config and the
// same batches give the same decisions, hash by hash.
type Engine struct {
	cfg      Config
	mode     sched.Backfill // in force
	promoter sched.Promoter // nil: what a job received counts for ever, or a restart goes on

	w        sched.World      // the time, and what policies are shown
	nodeID   map[string]int32 // looked up only
	jobs     []*job.State     // by number; nil where there is none
	noTenure job.Tenure       // of all jobs that have only waited so far
	live     int              // jobs that are not done
	elastic  int              // jobs seen that can change their size
	ready    []cluster.JobID  // placed jobs whose devices became free in this step

	// The rooms, from the bottom: each but the first few is made of those before it.
	st        inventory.Store
	shapes    shape.Table
	past      past.Book        // what completed jobs tell
	lending   *lending.Book    // what services lend
	limits    limits.Book      // what queues and users may hold
	loans     loans.Book       // which nodes are given back to their lenders
	speeds    speed.Book       // how fast jobs are where they are
	links     links.Book       // how the network treats their traffic
	find      placement.Finder // where jobs go
	resv      reserve.Book     // room for later
	admission admission.Checker
	line      pending.Line // what waits
	deps      pending.Deps
	leavers   pending.Leavers
	timers    pending.Timers
	victims   preempt.Finder // which jobs leave for which
	stops     preempt.Stops  // and how
	running   running.Jobs   // jobs that hold devices
	plan      plan.Book      // the plan in force
	moving    defrag.Finder  // which jobs could go elsewhere
	moves     defrag.Rules   // which may
	rounds    defrag.Rounds  // when they are looked for
	found     found.Books    // whether what drivers find fits
	explain   *explain.Explainer

	epoch    int64        // grows when devices are released: what failed may fit now
	gains    int64        // grows when jobs get devices, where queues matter
	seenAt   int64        // epoch of the last pass
	fresh    bool         // something arrived since the last pass
	thorough bool         // tests: every candidate is really tried
	rekeyed  cluster.Time // Now / Rekey when keys of the line were last evaluated
	rerunAt  cluster.Time // Now / Rerun when keys of running jobs were
	current  passState    // of the pass that goes on

	actions []Action
	touched []cluster.JobID // jobs whose records changed in this step
	hash    uint64
	stats   Stats
	ids     []int32 // memory of lists of jobs
}

// Stats counts what the engine did, for benchmarks and reports.
type Stats struct {
	Steps, Passes, Plans, Tried, Placed, Preempted int64
}

// Stats returns what the engine did so far.
func (e *Engine) Stats() Stats { return e.stats }

// Backfill returns the backfill mode in force.
func (e *Engine) Backfill() sched.Backfill { return e.mode }

// New checks the configuration and builds an engine at time 0 with the nodes
// of the spec.
func New(cfg Config) (*Engine, error) { return build(cfg, nil) }

// build is New for an engine that goes on from a snapshot, if there is one.
func build(cfg Config, from *Snapshot) (*Engine, error) {
	if cfg.Policy == nil || cfg.Placer == nil {
		return nil, errors.New("engine: a policy and a placer are needed")
	}
	if cfg.Depth == 0 {
		cfg.Depth = 100
	}
	if cfg.Reserve == 0 {
		cfg.Reserve = 16
	}
	if cfg.HalfLife == 0 {
		cfg.HalfLife = quota.DefaultHalfLife
	}
	if cfg.Launches == 0 {
		cfg.Launches = 3
	}
	e := &Engine{cfg: cfg,
		nodeID: map[string]int32{}, hash: 14695981039346656037}
	e.stops = preempt.Stops{Rules: DefaultStop, Spec: &e.cfg.Spec, Store: &e.st}
	if cfg.Stop != nil {
		e.stops.Rules = *cfg.Stop
	}
	e.shapes = shape.NewTable(&e.st, e.nodeID, cfg.Spec.Sharing == cluster.MPS)
	e.st.BillWith(func(job int32, sign int64) { e.limits.Bill(e.jobs[job], sign) })
	e.w = sched.World{Traits: cfg.Policy.Traits(), Store: &e.st, Shapes: &e.shapes, Speeds: cfg.Speeds,
		Past: e.past.Known(), Plan: &e.plan.PlanMemory, Pools: &e.plan.Pools, Oracle: (*oracle)(e)}
	e.past = past.New(&e.w)
	e.lending = lending.New(&e.st, &e.shapes)
	var err error
	lead := e.stops.Rules[cluster.Standard].Grace
	if e.limits, err = limits.New(&e.w, &e.cfg.Spec, e.lending, cfg.HalfLife, lead); err != nil {
		return nil, err
	}
	e.find = placement.Finder{World: &e.w, Sharing: cfg.Spec.Sharing, Around: (*oracle)(e), Speeds: &e.speeds,
		Lending: e.lending}
	rules := preempt.Rules{MinRuntime: cfg.MinRuntime, Suspends: e.stops.Suspends()}
	e.victims = preempt.New(rules, &e.find, &e.limits, &e.running)
	e.running = running.New(&e.w, cfg.Policy, &e.victims, &e.jobs, e.touch)
	e.moving = defrag.New(&e.find, cfg.Placer, &e.resv)
	e.moves = defrag.NewRules(&defrag.Rooms{Spec: &e.cfg.Spec, Finder: &e.moving, Reserved: &e.resv,
		Running: &e.running, Limits: &e.limits, Victims: &e.victims, Plan: &e.plan, Unshared: cfg.Unshared})
	e.resv = reserve.Book{World: &e.w, Find: &e.find, Around: (*oracle)(e), Placer: cfg.Placer,
		HoldAfter: cfg.HoldAfter}
	e.admission = admission.New(&e.find, &e.cfg.Spec, cfg.Placer, &e.limits, &e.resv, e.nodeID, cfg.Unshared)
	e.leavers = pending.Leavers{Store: &e.st, Jobs: (*oracle)(e).Jobs, Touch: e.touch}
	e.line = pending.Line{World: &e.w, Policy: cfg.Policy, Jobs: (*oracle)(e).Jobs, Touch: e.touch}
	e.line.Heads, _ = cfg.Policy.(sched.HeadKeyer)
	e.line.Queues, _ = cfg.Policy.(sched.QueueOrder)
	if from == nil {
		e.promoter, _ = cfg.Policy.(sched.Promoter)
	}
	e.plan = plan.New(&e.w, cfg.Policy, &e.admission, (*oracle)(e).Jobs, e.touch)
	e.found = found.Books{Spec: &e.cfg.Spec, World: &e.w, Jobs: (*oracle)(e).Jobs, Nodes: e.nodeID,
		Admission: &e.admission, Leavers: &e.leavers, Running: &e.running, Plan: &e.plan}
	e.speeds = speed.New(&e.w, &e.cfg.Spec, cfg.Unshared, (*oracle)(e).Jobs)
	e.links = links.New(e.cfg.Spec.Network, cfg.Traffic)
	e.mode = e.w.Traits.Backfill
	if cfg.Backfill != nil {
		e.mode = *cfg.Backfill
	}
	e.timers.Holds = e.timerHolds
	e.explain = explain.New(&explain.Rooms{Places: &e.find, Placer: cfg.Placer, Speeds: &e.speeds,
		Links: &e.links, Running: &e.running, Limits: &e.limits, Loans: &e.loans, Plan: &e.plan, Victims: &e.victims,
		Reserved: &e.resv, Line: &e.line, Deps: &e.deps, Strict: e.mode == sched.Strict, Clock: e.clock})
	e.rounds = defrag.NewRounds(&e.moves, e.explain.Earliest)
	e.deps = pending.NewDeps((*oracle)(e).Jobs, e.admit, e.touch)
	if cfg.Defrag != nil {
		e.rounds.Start(*cfg.Defrag)
	}
	if from != nil {
		e.w.Now = from.Now
	}
	if err := e.initCluster(from); err != nil {
		return nil, err
	}
	return e, nil
}

// initCluster makes the cluster of the configuration; where it goes on from a snapshot, then the nodes that joined it
// later.
func (e *Engine) initCluster(from *Snapshot) error {
	if err := e.shapes.SetPartitions(e.cfg.Spec.Partitions); err != nil {
		return err
	}
	for i := range e.cfg.Spec.Nodes {
		if err := e.addNode(e.cfg.Spec.Nodes[i]); err != nil {
			return err
		}
	}
	if err := e.shapes.CheckPartitions(); err != nil {
		return err
	}
	for _, r := range e.cfg.Spec.Reservations {
		if err := e.resv.AddAdvance(r, e.nodeID); err != nil {
			return err
		}
	}
	var err error
	if e.loans, err = loans.New(&e.w, &e.cfg.Spec, e.nodeID); err != nil {
		return err
	}
	if from == nil {
		return e.initQueues(e.cfg.Spec.Queues, nil, e.w.Capacity)
	}
	joined := from.joined(e.cfg.Spec.Nodes)
	for i := range joined {
		if err := e.addNode(joined[i]); err != nil {
			return err
		}
	}
	// Nodes are not in their states yet, and guarantees were compared with what there is when they were made.
	return e.initQueues(e.cfg.Spec.Queues, nil, inventory.Whole(&e.st))
}

// addNode adds a node that was not seen before.
func (e *Engine) addNode(n cluster.Node) error {
	if _, dup := e.nodeID[n.Name]; dup || n.Name == "" {
		return &NodeError{n.Name, "it is defined twice or has no name"}
	}
	if n.GPUs < 0 || n.GPUs > cluster.MaxGPUsPerNode {
		return &NodeError{n.Name,
			fmt.Sprintf("%d GPUs; between 0 and %d are supported", n.GPUs, cluster.MaxGPUsPerNode)}
	}
	model, ok := e.found.Model(&n)
	if !ok {
		return &NodeError{n.Name, fmt.Sprintf("unknown GPU model %q; define it under models", n.Model)}
	}
	first, err := e.st.Add(n, model, e.shapes.PartitionsOf(n.Name), e.found.Clients(&model))
	if err != nil {
		return &NodeError{n.Name, err.Error()}
	}
	if first {
		e.shapes.Recompute()
		e.find.Recount()
	}
	id := int32(len(e.st.Nodes())) - 1
	e.nodeID[n.Name] = id
	e.w.CPU += n.CPU
	e.w.RAM += n.RAM
	if n.State != cluster.Down {
		e.w.Capacity += cluster.Whole * int64(bits.OnesCount64(e.st.Nodes()[id].Healthy()))
	}
	e.epoch++
	return nil
}
