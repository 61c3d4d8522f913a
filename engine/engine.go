package engine

import (
	"errors"
	"fmt"
	"time"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/quota"
)

// Config is everything that decisions depend on besides the events.
type Config struct {
	Spec   cluster.Spec
	Policy Policy
	Placer Placer

	Backfill *Backfill // nil: what the policy asks for
	// Depth is how many jobs behind a blocked one backfill looks at (Slurm's
	// bf_max_job_test); 0: 100.
	Depth int
	// Reserve is how many blocked jobs get a reservation under conservative
	// backfill; 0: 16.
	Reserve int
	// MinRuntime protects a job from preemption after each start.
	MinRuntime time.Duration
	// Stop says how jobs of each tier are preempted; nil: DefaultStop. It is a
	// pointer because all zero is a rule, too: suspend everybody, at once.
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
	Speeds Speeds
	// Unshared says that nobody can be put beside another on whole GPUs, whatever
	// plans say: Kubernetes' device plugins hand each out once.
	Unshared bool
	// Launches is how often a job may fail to start before it is given up; 0: 3.
	Launches int
	// Defrag says whether running jobs are moved for waiting ones; nil: never.
	Defrag *Defrag
}

// StopRule says how a job is preempted, and how long it has for it.
type StopRule struct {
	How   How
	Grace time.Duration
}

// DefaultStop is the rule of each tier where Config.Stop is nil
// (B-quotas-tiers): critical jobs are only ever stopped by a lost node.
var DefaultStop = [3]StopRule{
	{Checkpoint, 10 * time.Minute}, {Checkpoint, 2 * time.Minute}, {Kill, 15 * time.Second}}

// Engine decides. It is a deterministic state machine: the same config and the
// same batches give the same decisions, hash by hash.
type Engine struct {
	cfg      Config
	traits   Traits
	keyer    KeyChanger // nil: keys of running jobs change with events only
	heads    HeadKeyer  // nil: Key compares groups, too
	queues   QueueOrder // nil: the policy does not choose among queues
	promoter Promoter   // nil: what a job received counts for ever
	settling bool       // a pass, or a restart, is going on: nobody is promoted
	resuming bool       // a restart is going on: who runs is put where it is
	plans    planState
	loansAt  cluster.Time // when nodes are given back or taken next
	pools    poolState
	mode     Backfill
	now      cluster.Time
	st       nodeStore
	nodeID   map[string]int32 // looked up only
	domains  map[string]int32 // names of racks, fabrics and NVLink domains to ids; looked up only
	parts    []partition
	sets     map[string]*nodeSet // by name; looked up only
	capacity cluster.Milli
	totalCPU cluster.Milli // of nodes that state it
	totalRAM cluster.MiB
	tree     *quota.Tree
	limits   limits

	jobs      []*jobState
	none      tenure // of jobs that were given nothing so far
	live      int    // jobs that are not done
	users     intern
	shapes    []shape
	shapeID   map[string]int32
	lanes     []lane
	laneID    map[laneKey]int32
	groups    []group
	groupID   map[groupKey]int32
	pending   int             // eligible jobs
	homing    int             // ... that are suspended: only where their memory is will do
	greedy    int             // ... of several task sets, which a start can make fit
	wanted    slicesWanted    // ... for slices
	owing     []*jobState     // liftUntilFits: lifted of the job's own queue, and not borrowed
	ready     []cluster.JobID // placed jobs whose devices became free in this step
	running   keptList        // jobs with devices (and not told to leave) by run key
	ends      keptList        // the same jobs by expected end
	holding   [3]int          // jobs in that list, by tier
	beingLeft []int32         // nodes of which stopping jobs still hold something, in order
	placed    []*jobState     // those of them that wait for their devices, in no order
	elastic   int             // jobs seen that can change their size
	empty     *nodeStore      // the cluster empty and healthy, for never
	deps      depState

	freed     int64 // grows when something may have become free that no stopping job still holds
	residues  []residue
	epoch     int64 // grows when devices are released: what failed may fit now
	lent      int64 // grows when jobs get devices, where queues matter
	seenAt    int64 // epoch of the last pass
	fresh     bool  // something arrived since the last pass
	timers    timerHeap
	keyTimes  timerHeap
	resv      []reservation
	held      *holds // what a candidate must leave alone; nil: nothing
	holds     holds
	restoring bool      // being built from a snapshot: nodes are not yet in their states
	straddled bool      // which of a queue's jobs could leave depended on who left first
	sober     bool      // nobody is placed on nodes that are asleep
	possible  bool      // asking what could ever be: bounds of the moment do not count
	blockedBy *classSet // strict order: classes behind a blocked job; nil: none
	thorough  bool      // tests: every candidate is really tried
	shy       shyness
	ps        passState
	advance   []advance
	defrag    defrag
	past      past
	between   between
	paces     paces
	demand    demand

	actions []Action
	touched []cluster.JobID // jobs whose records changed in this step
	hash    uint64
	stats   Stats
	scratch scratch
	tail    tail
	ranking ranking
}

// Stats counts what the engine did, for benchmarks and reports.
type Stats struct {
	Steps, Passes, Plans, Tried, Placed, Preempted int64
}

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
	stop := DefaultStop
	if cfg.Stop != nil {
		stop = *cfg.Stop // a copy: the caller may write to its own
	}
	cfg.Stop = &stop
	e := &Engine{cfg: cfg, traits: cfg.Policy.Traits(),
		nodeID: map[string]int32{}, sets: map[string]*nodeSet{}, domains: map[string]int32{}, shapeID: map[string]int32{},
		laneID: map[laneKey]int32{}, groupID: map[groupKey]int32{}, hash: 14695981039346656037}
	e.keyer, _ = cfg.Policy.(KeyChanger)
	e.heads, _ = cfg.Policy.(HeadKeyer)
	e.queues, _ = cfg.Policy.(QueueOrder)
	e.promoter, _ = cfg.Policy.(Promoter)
	e.plans.planner, _ = cfg.Policy.(Planner)
	e.plans.chooser, _ = cfg.Policy.(Chooser)
	e.plans.next = cluster.Never
	e.between.table, _ = cfg.Speeds.(Pairs)
	if t, ok := cfg.Speeds.(Turns); ok && cfg.Spec.Sharing != cluster.MPS && t.TakesTurns() {
		e.between.turns = t
	}
	e.pools.ids = map[poolKey]int32{}
	e.pools.drawer, _ = cfg.Policy.(Drawer)
	e.mode = e.traits.Backfill
	if cfg.Backfill != nil {
		e.mode = *cfg.Backfill
	}
	if e.deps.init(); cfg.Defrag != nil {
		e.defrag = defrag{Defrag: cfg.Defrag.withDefaults(), on: true}
	}
	var joined []cluster.Node
	if from != nil {
		e.now = from.Now
		e.restoring, joined = true, from.joined(cfg.Spec.Nodes)
	}
	if err := e.initCluster(joined); err != nil {
		return nil, err
	}
	e.restoring = false
	return e, nil
}

// initCluster makes the cluster of the configuration, then the nodes that
// joined it later.
func (e *Engine) initCluster(joined []cluster.Node) error {
	if err := e.initPartitions(e.cfg.Spec.Partitions); err != nil {
		return err
	}
	for i := range e.cfg.Spec.Nodes {
		if err := e.addNode(e.cfg.Spec.Nodes[i]); err != nil {
			return err
		}
	}
	for i := range e.parts {
		for _, name := range e.parts[i].spec.Nodes {
			if _, ok := e.nodeID[name]; !ok {
				return fmt.Errorf("partition %q: no node is named %q", e.parts[i].spec.Name, name)
			}
		}
	}
	if err := e.initAdvance(); err != nil {
		return err
	}
	if err := e.initLoans(); err != nil {
		return err
	}
	for i := range joined {
		if err := e.addNode(joined[i]); err != nil {
			return err
		}
	}
	return e.initQueues(e.cfg.Spec.Queues)
}

// intern numbers names densely in the order in which they are first seen.
type intern struct {
	ids   map[string]int32
	names []string
}

func (in *intern) id(name string) int32 {
	if in.ids == nil {
		in.ids = map[string]int32{}
	}
	id, ok := in.ids[name]
	if !ok {
		id = int32(len(in.names))
		in.ids[name] = id
		in.names = append(in.names, name)
	}
	return id
}

// partition is a partition with its number of nodes resolved.
type partition struct {
	spec   cluster.Partition
	member map[string]bool // looked up only
}

func (e *Engine) initPartitions(parts []cluster.Partition) error {
	if len(parts) > 63 {
		return fmt.Errorf("%d partitions; at most 63 are supported", len(parts))
	}
	seen := map[string]bool{}
	for _, p := range parts {
		if p.Name == "" || seen[p.Name] {
			return fmt.Errorf("partition %q is defined twice or has no name", p.Name)
		}
		seen[p.Name] = true
		m := make(map[string]bool, len(p.Nodes))
		for _, n := range p.Nodes {
			m[n] = true
		}
		e.parts = append(e.parts, partition{p, m})
	}
	return nil
}

// addNode adds a node that was not seen before.
func (e *Engine) addNode(n cluster.Node) error {
	if _, dup := e.nodeID[n.Name]; dup || n.Name == "" {
		return &NodeError{n.Name, "it is defined twice or has no name"}
	}
	if n.GPUs < 0 || n.GPUs > cluster.MaxGPUsPerNode {
		return &NodeError{n.Name, fmt.Sprintf("%d GPUs; between 0 and %d are supported", n.GPUs, cluster.MaxGPUsPerNode)}
	}
	var model cluster.GPUModel
	if n.GPUs > 0 {
		var ok bool
		if model, ok = e.cfg.Spec.Model(n.Model); !ok {
			return &NodeError{n.Name, fmt.Sprintf("unknown GPU model %q; define it under models", n.Model)}
		}
	}
	id := int32(len(e.st.nodes))
	e.totalCPU += n.CPU
	e.totalRAM += n.RAM
	e.nodeID[n.Name] = id
	ns := nodeState{spec: n, cpu: n.CPU, ram: n.RAM, devs: make([]device, n.GPUs), drained: n.State == cluster.Draining}
	if n.CPU == 0 {
		ns.cpu = notModelled
	}
	if n.RAM == 0 {
		ns.ram = notModelled
	}
	var err error
	if ns.fixed, err = fixedOf(&n, &model); err != nil {
		return &NodeError{n.Name, err.Error()}
	}
	for i := range ns.devs {
		ns.devs[i] = device{milli: int32(cluster.Whole), mem: model.Memory}
	}
	ns.healthy = (uint64(1)<<n.GPUs - 1) &^ n.Bad
	ns.free = ns.whole()
	for m := ns.free; m != 0; m &= m - 1 {
		ns.nfree++
	}
	ns.rack, ns.fabric = e.domain("rack", n.Rack), e.domain("fabric", n.Fabric)
	if n.NVLink != "" {
		ns.nvlink = e.domain("nvlink", n.NVLink)
	} else {
		ns.nvlink, ns.split = e.domain("node", n.Name), ns.islands() > 1
	}
	e.st.nodes = append(e.st.nodes, ns)
	if err := e.classify(id, model); err != nil {
		return err
	}
	nodes := &e.st.nodes[id]
	if n.Asleep > 0 {
		e.st.asleep++
	}
	e.st.index(nodes, n.State == cluster.Up)
	if n.State != cluster.Down {
		e.capacity += cluster.Whole * int64(popcount(nodes.healthy))
	}
	e.epoch++
	return nil
}

// domain numbers the named domain; nodes that name none share one domain.
func (e *Engine) domain(level, name string) int32 {
	key := level + "/" + name
	id, ok := e.domains[key]
	if !ok {
		id = int32(len(e.domains))
		e.domains[key] = id
	}
	return id
}

// classify puts the node into the class of its like.
func (e *Engine) classify(id int32, model cluster.GPUModel) error {
	n := &e.st.nodes[id]
	var parts uint64
	for i := range e.parts {
		if e.parts[i].member[n.spec.Name] {
			parts |= 1 << i
		}
	}
	if len(e.parts) == 0 {
		parts = 1
	}
	n.class = -1
	for ci := range e.st.classes {
		c := &e.st.classes[ci]
		if c.model.Name == model.Name && c.gpus == n.spec.GPUs && c.parts == parts {
			n.class = int32(ci)
			break
		}
	}
	if n.class < 0 {
		if len(e.st.classes) == MaxKinds {
			return &NodeError{n.spec.Name, fmt.Sprintf("more than %d kinds of node (GPU model x GPUs per node x partitions)", MaxKinds)}
		}
		n.class = int32(len(e.st.classes))
		c := class{model: model, gpus: n.spec.GPUs, parts: parts, buckets: make([]bitset, n.spec.GPUs+1)}
		if e.cfg.Spec.Sharing == cluster.MPS {
			c.clients = model.MPSClients()
		}
		e.st.classes = append(e.st.classes, c)
		for i := range e.shapes {
			e.shapes[i].stale = true
		}
		e.demand.stale = true
	}
	c := &e.st.classes[n.class]
	n.pos = int32(len(c.nodes))
	c.nodes = append(c.nodes, id)
	c.cpu, c.ram, c.split = max(c.cpu, n.cpu), max(c.ram, n.ram), c.split || n.split
	c.grow(len(c.nodes))
	return nil
}

// MaxKinds bounds the kinds of node (GPU model, GPUs per node, partitions): a set of them is four machine words.
const MaxKinds = 256
