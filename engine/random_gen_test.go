package engine_test

import (
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/engine"
	"github.com/muster-gpu/muster/network/traffic"
	"github.com/muster-gpu/muster/place"
)

// scenario is everything that a random run depends on. Reactions of the world
// (latencies, failures) are drawn per job and attempt, so that the run stays
// similar when stimuli are dropped to find the smallest failing one.
type scenario struct {
	seed    uint64
	label   string
	cfg     engine.Config
	instant bool // nothing takes time but the jobs
	facts   bool // drivers find out about running jobs
	stimuli []stimulus
}

// stimulus is something that happens from outside.
type stimulus struct {
	at cluster.Time
	ev engine.Event
}

func chance(r *rand.Rand, percent int) bool { return r.IntN(100) < percent }

func pick[T any](r *rand.Rand, list ...T) T { return list[r.IntN(len(list))] }

func seconds(n int) time.Duration { return time.Duration(n) * time.Second }

// generate makes a scenario for a policy; nil: the random configuration is not
// a valid one.
func generate(seed uint64, pol string, events int) (*scenario, error) {
	h := fnv.New64a()
	h.Write([]byte(pol))
	return generateFrom(rand.New(rand.NewPCG(seed, h.Sum64())), seed, pol, func(n int) bool { return n < events })
}

// generateFrom draws from r as long as more says so.
func generateFrom(r *rand.Rand, seed uint64, pol string, more func(n int) bool) (*scenario, error) {
	sc := &scenario{seed: seed, instant: chance(r, 50)}
	name := pol
	if pol == "las" {
		name = pick(r, "las:base=1m", "las:base=5m,dimension=time", "las:thresholds=30/120/600")
	}
	if pol == "tiresias-l" {
		name = pick(r, "tiresias-l:thresholds=60", "tiresias-l:thresholds=60,promote=1",
			"tiresias-l:thresholds=30/120/600,promote=0.25")
	}
	switch pol {
	case "tiresias-g":
		name = pick(r, "tiresias-g:thresholds=60,learn=2m", "tiresias-g:thresholds=30/120,promote=1,learn=5m,steps=3")
	case "gittins":
		name = pick(r, "gittins:learn=2m,base=10s", "gittins:near=3,prior=0,learn=5m,base=1m",
			"gittins:quantum=1,learn=2m,base=1s")
	case "qssf":
		name = pick(r, "qssf", "qssf:alpha=0.3", "qssf:strict=false")
	case "e-las":
		name = pick(r, "e-las:thresholds=30/120,T0=1m", "e-las:thresholds=60,learn=5m",
			"e-las:thresholds=60/600,learn=2m,index=remaining,promote=0.5,beta=3")
	}
	p, err := newPolicy(name)
	if err != nil {
		return nil, err
	}
	placers := placersAlone()
	sc.cfg = engine.Config{Policy: p, Placer: placers[r.IntN(len(placers))].New(), Depth: pick(r, 0, 0, 3),
		Reserve: pick(r, 0, 0, 2)}
	if chance(r, 75) {
		m := engine.Backfill(r.IntN(4))
		sc.cfg.Backfill = &m
	}
	if chance(r, 30) {
		sc.cfg.MinRuntime = seconds(pick(r, 10, 60, 600))
	}
	if chance(r, 30) {
		sc.cfg.Starvation = seconds(pick(r, 60, 600, 3000))
	}
	if chance(r, 30) {
		sc.cfg.Stop = &[3]engine.StopRule{{How: engine.Kill}, {How: engine.Suspend, Grace: time.Second},
			{How: engine.Kill, Grace: 5 * time.Second}}
	}
	sc.cfg.HoldAfter = sc.cfg.MinRuntime // as long, so that no draw is another
	sc.cfg.Spec = randomSpec(r)
	mode := "own"
	if sc.cfg.Backfill != nil {
		mode = sc.cfg.Backfill.String()
	}
	sc.label = fmt.Sprintf("%s/%s/%s instant=%v", name, sc.cfg.Placer.Name(), mode, sc.instant)
	g := &generator{r: r, spec: &sc.cfg.Spec}
	for n := 0; more(n); n++ {
		if !chance(r, 40) { // often several things at one instant
			g.at = g.at.Add(seconds(r.IntN(60)))
		}
		if ev, ok := g.event(); ok {
			sc.stimuli = append(sc.stimuli, stimulus{g.at, ev})
		}
	}
	if chance(r, 30) {
		sc.cfg.Spec.Sharing = cluster.MPS
	}
	for i := range sc.cfg.Spec.Nodes {
		if n := &sc.cfg.Spec.Nodes[i]; n.MIG != "" && n.GPUs > 0 && chance(r, 50) { // some are cut as needed
			n.MIG = pick(r, "0:*", fmt.Sprintf("%d:*", n.GPUs-1))
		}
	}
	if chance(r, 30) {
		sc.cfg.Defrag = &engine.Defrag{Auto: chance(r, 20), Every: seconds(700)}
	}
	if seed%3 == 0 {
		sc.cfg.Spec.MIG = cluster.DynamicMIG
	}
	sc.cfg.Spec.Loans = randomLoans(r, &sc.cfg.Spec)
	if among, least := randomPairs(seed); seed%2 == 0 {
		sc.cfg.Speeds, sc.cfg.Spec.MinSpeed = among, least
		switch seed % 8 {
		case 0:
			sc.cfg.Speeds = guessed{among}
		case 4:
			sc.cfg.Speeds = turning{among}
		}
		sc.stimuli = withSpeeds(seed, sc.stimuli, len(g.jobs))
	}
	if seed%5 == 3 {
		if err := sc.connect(g.jobs); err != nil {
			return nil, err
		}
	}
	if sc.facts = seed%4 == 1 || seed%8 == 2; sc.facts {
		sc.stimuli = withFacts(seed, sc.stimuli, &sc.cfg.Spec, g.jobs)
	}
	return sc, nil
}

// placersAlone are the placers that need no network.
func placersAlone() []place.Info {
	return slices.DeleteFunc(place.List(), func(p place.Info) bool { return p.Name == "compatible" })
}

// connect joins the nodes by two narrow switches, over which gangs transmit, and has a placer look at that.
func (sc *scenario) connect(jobs []*cluster.Job) (err error) {
	n := &cluster.Network{Classes: 4, Links: []cluster.Link{{A: "left", B: "right", Rate: 8e9}}}
	for i := range sc.cfg.Spec.Nodes {
		n.Links = append(n.Links, cluster.Link{A: sc.cfg.Spec.Nodes[i].Name, B: []string{"left", "right"}[i%2],
			Rate: 8e9})
	}
	sc.cfg.Spec.Network = n
	for _, j := range jobs {
		j.Traffic = cluster.Traffic{Pattern: cluster.Pattern(int(j.ID) % len(cluster.Patterns)),
			Bytes: 1e9 * int64(1+j.ID%3), Compute: seconds(1 + int(j.ID)%2)}
	}
	if sc.cfg.Placer, err = place.New("compatible"); err != nil {
		return err
	}
	sc.label += " on a network"
	if name := []string{"", "cassini", "crux"}[sc.seed/5%3]; name != "" {
		sc.cfg.Traffic, err = traffic.New(name)
	}
	return err
}

// randomLoans lends the first partition's nodes, in some runs, for hours that begin and end within
// minutes.
func randomLoans(r *rand.Rand, spec *cluster.Spec) []cluster.Loan {
	if len(spec.Partitions) == 0 || chance(r, 50) {
		return nil
	}
	_, tod := cluster.Calendar(spec.Epoch)
	l := cluster.Loan{Partition: "p1"}
	for range 1 + r.IntN(4) {
		from := (time.Duration(tod)*time.Second + seconds(r.IntN(3000))) % (24 * time.Hour)
		l.Back = append(l.Back,
			cluster.Back{Hours: cluster.Hours{From: from, To: (from + seconds(30+r.IntN(1500))) % (24 * time.Hour)},
				Nodes: 1 + r.IntN(len(spec.Partitions[0].Nodes))})
	}
	return []cluster.Loan{l}
}

func randomSpec(r *rand.Rand) cluster.Spec {
	spec := cluster.Spec{Epoch: int64(r.IntN(7*86400)) + 1_000_000_000}
	models := []string{"A100-80GB"}
	if chance(r, 50) {
		models = append(models, "T4-16GB", "A30-24GB")
	}
	cpus, racks := chance(r, 50), chance(r, 60)
	for i := range 2 + r.IntN(7) {
		n := cluster.Node{Name: fmt.Sprintf("n%d", i+1), Model: pick(r, models...), GPUs: pick(r, 2, 4, 4, 8)}
		if len(models) == 1 {
			n.GPUs = 4
		}
		if cpus {
			n.CPU, n.RAM = pick[int64](r, 16000, 32000), 131072
		}
		if racks {
			n.Rack, n.Fabric = pick(r, "r1", "r2"), pick(r, "f1", "f2")
			n.NVLink = pick(r, "", "", "x1")
		}
		n.Islands = pick(r, 0, 0, 2)
		if chance(r, 5) {
			n.State = pick(r, cluster.Draining, cluster.Down)
		}
		if chance(r, 5) {
			n.Bad = 1
		}
		if n.Model != "T4-16GB" && chance(r, 25) {
			n.MIG = randomGeometry(r, &n)
		}
		spec.Nodes = append(spec.Nodes, n)
	}
	if chance(r, 20) {
		spec.Nodes = append(spec.Nodes, cluster.Node{Name: "cpu", CPU: 64000, RAM: 131072})
	}
	if chance(r, 35) {
		half := len(spec.Nodes) / 2
		names := make([]string, len(spec.Nodes))
		for i := range names {
			names[i] = spec.Nodes[i].Name
		}
		spec.Partitions = []cluster.Partition{
			{Name: "p1", Nodes: names[:half+1], Default: chance(r, 50), PriorityTier: pick[int64](r, 0, 2),
				MaxTime: pick(r, 0, seconds(3000))},
			{Name: "p2", Nodes: names[half:], DefaultTime: pick(r, 0, seconds(500)), PriorityTier: pick[int64](r, 0, 1),
				MaxGPUs: pick(r, 0, 6)}}
	}
	if chance(r, 65) {
		spec.Queues = randomQueues(r)
	}
	for i := range pick(r, 0, 0, 0, 1, 2) {
		a := cluster.Reservation{Name: fmt.Sprintf("v%d", i), Start: cluster.Time(seconds(r.IntN(2000)))}
		a.End = a.Start.Add(seconds(60 + r.IntN(600)))
		if chance(r, 40) {
			a.Every = seconds(1000)
		}
		if chance(r, 60) {
			a.Users = []string{"u1"}
		}
		if chance(r, 50) {
			a.Nodes = []string{"n1"}
		} else {
			a.GPUs = 1 + r.IntN(4)
		}
		spec.Reservations = append(spec.Reservations, a)
	}
	return spec
}

// randomQueues makes a tree with the leaves a to d, some below a group.
func randomQueues(r *rand.Rand) []cluster.Queue {
	var qs []cluster.Queue
	group := chance(r, 40)
	if group {
		qs = append(qs, cluster.Queue{Name: "org", Limit: pick[int64](r, -1, -1, 8000), Lend: -1})
	}
	plain := chance(r, 25)
	for i, name := range []string{"a", "b", "c", "d"} {
		q := cluster.Queue{Name: name, Limit: cluster.Unlimited, Lend: cluster.Unlimited}
		if group && i < 2 {
			q.Parent = "org"
		}
		if plain {
			qs = append(qs, q)
			continue
		}
		q.Guarantee = pick[int64](r, 0, 0, 1000, 2000, 3000)
		if q.Guarantee > 0 && chance(r, 30) {
			q.Lend = pick[int64](r, 0, 1000)
		}
		if q.Guarantee > 0 && chance(r, 20) {
			q.Reserve = 1000
		}
		if chance(r, 35) {
			q.Limit = q.Guarantee + pick[int64](r, 0, 1500, 4000)
			q.Limit = max(q.Limit, 500)
		}
		q.NoReclaim = chance(r, 15)
		q.UserGPUs = pick[int64](r, 0, 0, 0, 2000, 4000)
		q.MaxJobs, q.UserJobs = pick(r, 0, 0, 0, 3), pick(r, 0, 0, 0, 2)
		q.Weight, q.Shares = pick[int64](r, 0, 1000, 3000), pick[int64](r, 0, 1, 5)
		if chance(r, 10) {
			q.Budget, q.Period = 1, seconds(pick(r, 1200, 3600))
		}
		if chance(r, 20) {
			w := cluster.Window{From: time.Duration(r.IntN(24)) * time.Hour, To: time.Duration(r.IntN(24)) * time.Hour,
				Guarantee: pick(r, -1, q.Guarantee/2000*1000), Limit: pick(r, -1, q.Guarantee+1000)}
			q.Windows = append(q.Windows, w)
		}
		qs = append(qs, q)
	}
	if chance(r, 50) {
		qs = append(qs, cluster.Queue{Name: "default", Limit: cluster.Unlimited, Lend: cluster.Unlimited})
	}
	if chance(r, 15) { // a queue goes away
		qs = slices.DeleteFunc(qs, func(q cluster.Queue) bool { return q.Name == "d" })
	}
	return qs
}

// generator draws stimuli.
type generator struct {
	r    *rand.Rand
	spec *cluster.Spec
	at   cluster.Time
	jobs []*cluster.Job
	more int // nodes added

	elastic bool // some jobs of defragEvent are
	parts   bool // ... ask for shares or slices
}

func (g *generator) event() (engine.Event, bool) {
	r := g.r
	node := g.spec.Nodes[r.IntN(len(g.spec.Nodes))].Name
	switch k := r.IntN(100); {
	case k < 60 || len(g.jobs) == 0:
		j := g.job(cluster.JobID(len(g.jobs)))
		g.jobs = append(g.jobs, j)
		return engine.Event{Type: engine.Submitted, Job: j.ID, Spec: j, Carryover: randomCarryover(j, g.at)}, true
	case k < 66:
		return engine.Event{Type: engine.Cancelled, Job: g.some()}, true
	case k < 70:
		return engine.Event{Type: engine.Held, Job: g.some(), Undo: chance(r, 60)}, true
	case k < 74:
		old := g.jobs[g.some()]
		j := g.job(old.ID)
		j.Submit, j.Array = old.Submit, old.Array
		if j.Array != nil && chance(r, 50) {
			a := *j.Array
			a.Cap = r.IntN(4)
			j.Array = &a
		}
		return engine.Event{Type: engine.Updated, Job: j.ID, Spec: j}, true
	case k < 78:
		return engine.Event{Type: engine.NodeDown, Node: node}, true
	case k < 84:
		return engine.Event{Type: engine.NodeUp, Node: node}, true
	case k < 87:
		if chance(r, 40) {
			return engine.Event{Type: engine.NodeAsleep, Node: node, Wake: seconds(1 + r.IntN(300)),
				Undo: chance(r, 40)}, true
		}
		return engine.Event{Type: engine.NodeDrained, Node: node, Undo: chance(r, 50)}, true
	case k < 92:
		return engine.Event{Type: engine.GPUBad, Node: node, GPUs: uint64(1 + r.IntN(15)), Undo: chance(r, 60)}, true
	case k < 93 && g.more < 2:
		g.more++
		n := g.spec.Nodes[0]
		n.Name, n.State, n.Bad = fmt.Sprintf("new%d", g.more), cluster.Up, 0
		return engine.Event{Type: engine.NodeUp, Node: n.Name, Spare: &n}, true
	case k < 95 && len(g.spec.Queues) > 0:
		return engine.Event{Type: engine.QueueChanged, Queues: randomQueues(r)}, true
	case k < 98:
		id := g.some()
		return engine.Event{Type: engine.Progress, Job: id, Memory: int64(id) % 3 * 9000,
			Switch: engine.SwitchCost{Save: seconds(int(id) % 7), Suspend: seconds(int(id) % 5)},
			Done:   seconds(r.IntN(100)), Saved: seconds(r.IntN(50)), Saves: engine.Saves(int(id) % 3),
			Pace: int64(id) % 5 * 700_000, Unit: engine.PaceUnit(int(id) % 2), Rate: pick[int64](r, 0, 0, 700_000),
			Estimate: seconds(pick(r, 0, 0, 1+r.IntN(600)))}, true
	case k < 99:
		return engine.Event{Type: engine.Demoted, Job: g.some(), Undo: chance(r, 30)}, true
	}
	return engine.Event{Type: engine.Tick}, true
}

// some is a job, more likely a late one.
func (g *generator) some() cluster.JobID {
	n := len(g.jobs)
	return cluster.JobID(max(g.r.IntN(n), g.r.IntN(n)))
}

func (g *generator) request() cluster.Request {
	r := g.r
	q := cluster.Request{GPUs: pick(r, 1, 1, 1, 2, 2, 4, 0)}
	switch {
	case chance(r, 12):
		q.GPUs, q.Share, q.Memory = pick(r, 1, 1, 1, 2), pick[int64](r, 100, 250, 333, 500),
			pick[int64](r, 0, 4096, 9000)
	case chance(r, 12):
		q.GPUs, q.Profile = 1, pick(r, "1g", "2g", "3g", "1g.10gb+me", "1g.20gb", "4g", "1g.6gb")
	case chance(r, 5):
		q.Share = 1000
	case chance(r, 8):
		q.Memory = 20000
	}
	if chance(r, 40) {
		q.CPU, q.RAM = pick[int64](r, 1000, 4000, 9000), pick[int64](r, 0, 8192, 50000)
	}
	if q.GPUs == 0 && q.CPU == 0 && chance(r, 80) {
		q.CPU = 2000
	}
	return q
}

func (g *generator) job(id cluster.JobID) *cluster.Job {
	r := g.r
	j := &cluster.Job{ID: id, Name: pick(r, "x", "y", "z"), User: pick(r, "u1", "u2", "u3"), Submit: g.at,
		Tier: pick(r, cluster.Standard, cluster.Standard, cluster.Standard, cluster.BestEffort, cluster.BestEffort,
			cluster.Critical),
		Kind: pick(r, cluster.Training, cluster.Training, cluster.Batch, cluster.Service), NoRequeue: chance(r, 5)}
	j.Tasks = []cluster.TaskSet{{Count: pick(r, 1, 1, 1, 1, 2, 3, 5), Request: g.request()}}
	if chance(r, 8) {
		j.Tasks = append(j.Tasks, cluster.TaskSet{Count: 1 + r.IntN(2), Request: g.request()})
	}
	if len(g.spec.Queues) > 0 {
		j.Queue = pick(r, "a", "b", "c", "d")
	}
	if chance(r, 20) {
		j.Priority = int64(r.IntN(5))
	}
	if chance(r, 15) {
		j.Elastic.Min = 1 + r.IntN(2)
		j.Elastic.Max = j.Elastic.Min + r.IntN(5)
	}
	if chance(r, 15) {
		j.GPUTypes = pick(r, []string{"A100"}, []string{"T4", "A100"}, []string{"A30-24GB", "T4"})
	}
	if len(g.spec.Partitions) > 0 && chance(r, 50) {
		j.Partitions = pick(r, []string{"p1"}, []string{"p2"}, []string{"p1", "p2"})
	}
	if chance(r, 25) {
		j.Topology = cluster.Topology{Level: cluster.Level(r.IntN(5)), Required: chance(r, 50)}
	}
	boundNodes(r, j, g.spec.Nodes)
	if chance(r, 10) && len(g.spec.Reservations) > 0 {
		j.Reservation = "v0"
	}
	j.Model = []string{"", "m", "n"}[id%3] // what is measured of one counts for the others
	run := 10 + r.IntN(400)
	if chance(r, 80) {
		j.Estimate = seconds(max(1, run*pick(r, 1, 2, 4)/2))
	}
	if chance(r, 40) {
		j.Limit = seconds(run * pick(r, 1, 3) / 2)
	}
	if chance(r, 40) {
		j.Checkpoint = cluster.Checkpoint{Interval: seconds(r.IntN(60)), Cost: seconds(r.IntN(10)),
			Restart: seconds(r.IntN(10)), None: chance(r, 20)}
	}
	if chance(r, 30) {
		j.Deadline = g.at.Add(seconds(run * (1 + r.IntN(5))))
	}
	if chance(r, 10) && id > 0 {
		j.After = append(j.After, someDependency(r, cluster.JobID(r.IntN(int(id))), id))
		for chance(r, 40) {
			j.After = append(j.After, someDependency(r, cluster.JobID(r.IntN(int(id))), id))
		}
		j.AnyOf = chance(r, 30)
	}
	if chance(r, 12) {
		first := max(0, id-cluster.JobID(r.IntN(6)))
		j.Array = &cluster.Array{ID: first, Index: int(id - first), Cap: pick(r, 0, 1, 2)}
		if first != id && g.jobs[first].Array != nil {
			j.Array.ID, j.Array.Cap = g.jobs[first].Array.ID, g.jobs[first].Array.Cap
		}
	}
	if chance(r, 8) {
		j.Begin = g.at.Add(seconds(r.IntN(300)))
	}
	j.Hold = chance(r, 4)
	j.Skew = pick[int64](r, 0, 0, 50, 500)
	randomModel(j)
	return j
}

// someDependency is on a job, perhaps with some of those after it, as of an
// array; all are below the limit.
func someDependency(r *rand.Rand, on, limit cluster.JobID) cluster.Dependency {
	d := cluster.Dependency{Type: cluster.DependencyType(r.IntN(5)), Job: on}
	if chance(r, 30) {
		d.Elements = min(r.IntN(8), int(limit-on))
	}
	if d.Type == cluster.AfterStart && chance(r, 50) {
		d.Delay = seconds(r.IntN(200))
	}
	return d
}

// onGiven reports whether allocations are on a node that is given back.
func (w *randomWorld) onGiven(allocs []engine.Alloc) bool {
	if len(w.sc.cfg.Spec.Loans) == 0 {
		return false
	}
	nodes, given := w.e.Nodes(), w.e.Common().Given
	return slices.ContainsFunc(allocs, func(a engine.Alloc) bool { return slices.Contains(given, nodes[a.Node].Name) })
}

// randomCarryover is what a job was given before it was submitted; nil, as for most: nothing.
func randomCarryover(j *cluster.Job, now cluster.Time) *engine.Carryover {
	r := rand.New(rand.NewPCG(uint64(j.ID), uint64(now)))
	if now == 0 || chance(r, 85) {
		return nil
	}
	work := int64(r.IntN(400_000_000))
	b := &engine.Carryover{Attained: work, Service: work, Ran: seconds(1 + r.IntN(400)), Rate: 1_000_000,
		Preemptions: int32(1 + r.IntN(3)), FirstStart: 1 + cluster.Time(r.Int64N(int64(now)))}
	b.Done = b.Ran * time.Duration(r.IntN(4)) / 4
	return b
}
