package engine_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/engine"
	"github.com/muster-gpu/muster/internal/shared"
	"github.com/muster-gpu/muster/place"
)

// TestTwin feeds the same batches to the engine and to its dumb twin. Their
// starts (with nodes and devices) must be the same in the same order; their
// preemptions and rejections the same, in any order within a step.
func TestTwin(t *testing.T) {
	for i, pol := range []string{"fifo", "sjf", "ssf", "sjf-gpu", "srtf", "srsf", "las:base=1m", twoLevels, byIndex,
		byPace, byRest, "qssf", "edf", "sjf-gpu:preempt=true", "multifactor", weighted, "scatter", "scatter:round",
		"scatter:gated", "scatter:slices", "scatter:divides", "scatter:parts", "scatter:some"} {
		for k, placer := range []string{"best-fit", "first-fit", "worst-fit"} {
			for _, mode := range []engine.Backfill{engine.Strict, engine.Skip} {
				if shared.Soak((i+k+int(mode))%3 > 0 || i%2 != int(mode), false) {
					continue // each policy with one of them; TestTwinFacts has all policies under both
				}
				t.Run(fmt.Sprintf("%s/%s/%s", pol, placer, mode), func(t *testing.T) {
					t.Parallel()
					for seed, n := uint64(1), 0; n < twinEvents(t); seed++ {
						n += twins(t, pol, placer, mode, seed, nil)
					}
				})
			}
		}
	}
}

// TestTwinQueues is TestTwin with queues, which limit, guarantee and lend.
func TestTwinQueues(t *testing.T) {
	for i, pol := range []string{"fifo", "yarn-cs", "drf", "proportional", "sjf", "srtf", "srsf", "las:base=1m",
		twoLevels, byIndex, byPace, byRest, "qssf", "edf", "multifactor", weighted, "scatter", "scatter:round",
		"scatter:gated", "scatter:slices", "scatter:divides", "scatter:parts", "scatter:some"} {
		for _, mode := range []engine.Backfill{engine.Strict, engine.Skip} {
			if shared.Soak(i%2 != int(mode), false) {
				continue
			}
			t.Run(fmt.Sprintf("%s/%s", pol, mode), func(t *testing.T) {
				t.Parallel()
				for seed, n := uint64(1), 0; n < twinEvents(t); seed++ {
					n += twins(t, pol, []string{"best-fit", "first-fit", "worst-fit"}[seed%3], mode, seed, twinQueues)
				}
			})
		}
	}
}

// TestTwinBackfill is TestTwin with promises to blocked jobs, and others around them.
func TestTwinBackfill(t *testing.T) {
	for i, pol := range []string{"fifo", "sjf", "sjf-gpu", "srtf", "edf", "multifactor", weighted} {
		for k, mode := range []engine.Backfill{engine.EASY, engine.Conservative} {
			if shared.Soak(i%2 != k, false) {
				continue // each policy under one of them
			}
			t.Run(fmt.Sprintf("%s/%s", pol, mode), func(t *testing.T) {
				t.Parallel()
				for seed, n := uint64(1), 0; n < shared.Soak(1, 4)*twinEvents(t); seed++ {
					n += twins(t, pol, []string{"best-fit", "first-fit", "worst-fit"}[seed%3], mode, seed, nil)
				}
			})
		}
	}
}

// TestTwinFound replays what the soak found, once mended.
func TestTwinFound(t *testing.T) {
	for _, c := range []struct {
		policy, placer string
		mode           engine.Backfill
		seed           uint64
		queues         func(r *rand.Rand) []cluster.Queue
	}{
		// a start sends another gang's first set elsewhere: now it may preempt
		{"las:base=1m", "worst-fit", engine.Skip, 299, nil},
		// a job that loses a place in a pass is not promoted before its end
		{byRest, "first-fit", engine.Skip, 7, nil},
		// a job that has more left than it seemed, though less than when it was listed
		{"srsf", "worst-fit", engine.Skip, 401, twinQueues},
		// its time limit and the end of its minimum run time at one instant
		{"scatter:gated", "worst-fit", engine.Strict, 131, nil},
		{"scatter", "best-fit", engine.Skip, 126, twinQueues}, // nothing changed but what victims would lose
		// progress changes the run time of a job of which no other is known
		{"qssf", "worst-fit", engine.Strict, 22, nil},
		// a job that is overdue keeps its place until something is heard of it
		{"srtf", "first-fit", engine.Conservative, 213, nil},
		{byIndex, "worst-fit", engine.Skip, 98, twinQueues},     // as under scatter: what victims would lose
		{"scatter:slices", "worst-fit", engine.Strict, 8, nil},  // a target with an instance, and nothing at all
		{byPace, "worst-fit", engine.Strict, 26 + oneUser, nil}, // what can never run is refused, whichever nodes sleep
		// instances are promised on a GPU that as many clients of MPS leave as there may be
		{"scatter:slices", "worst-fit", engine.Skip, 2 + factual, nil},
	} {
		twins(t, c.policy, c.placer, c.mode, c.seed, c.queues)
	}
}

// TestTwinUsers plays where the shares of one GPU are of one user, with many shares.
func TestTwinUsers(t *testing.T) {
	for pol, mode := range map[string]engine.Backfill{"fifo": engine.Conservative, "srtf": engine.EASY,
		"scatter": engine.Skip, "las:base=1m": engine.Strict, twoLevels: engine.Skip, byIndex: engine.Skip,
		byPace: engine.Strict, "multifactor": engine.Skip} {
		t.Run(fmt.Sprintf("%s/%s", pol, mode), func(t *testing.T) {
			t.Parallel()
			for seed, n := uint64(1), 0; n < 2*twinEvents(t); seed++ {
				n += twins(t, pol, []string{"best-fit", "first-fit", "worst-fit"}[seed%3], mode, seed+oneUser, nil)
			}
		})
	}
}

// oneUser is a seed beyond which the shares of one GPU are of one user.
const oneUser = 1 << 32

// twinQueues are queues without what the twin does not know: budgets and windows.
func twinQueues(r *rand.Rand) []cluster.Queue {
	qs := randomQueues(r)
	for i := range qs {
		qs[i].Budget, qs[i].Windows = 0, nil
	}
	return qs
}

// twinEvents is how many events a twin goes through.
func twinEvents(t *testing.T) int {
	return shared.Soaking(t, 2000) / 10
}

// pair is the engine, its twin, and a world that answers both.
type pair struct {
	r      *rand.Rand
	more   *rand.Rand        // for what running jobs tell
	third  *rand.Rand        // for sets of nodes, and sizes; nil: there are none
	facts  *rand.Rand        // for what is found out about running jobs; nil: nothing
	sizes  []engine.NodeSize // of the nodes, as of the last event
	base   []cluster.Node    // the nodes as configured
	e      *engine.Engine
	d      *dumb
	now    cluster.Time
	queue  []stimulus
	jobs   []*cluster.Job
	events int
	log    []string
}

// twins plays one seed; it returns the number of events.
func twins(t *testing.T, pol, placer string, mode engine.Backfill, seed uint64,
	queues func(r *rand.Rand) []cluster.Queue) int {
	t.Helper()
	w := newPair(t, pol, placer, mode, seed, queues)
	if w == nil {
		return 0
	}
	return w.mustPlay(t, seed)
}

func (w *pair) mustPlay(t *testing.T, seed uint64) int {
	t.Helper()
	if err := w.play(); err != nil {
		t.Fatalf("seed %d: %v\nnodes %+v\nqueues %+v\n%s", seed, err, w.base, w.d.queues, strings.Join(w.log, "\n"))
	}
	return w.events
}

// newPair is engine and twin with all that will happen from outside; nil: its queues guarantee more than there is.
func newPair(t *testing.T, pol, placer string, mode engine.Backfill, seed uint64,
	queues func(r *rand.Rand) []cluster.Queue) *pair {
	t.Helper()
	r := rand.New(rand.NewPCG(seed, 0x7477696e))
	spec := cluster.Spec{}
	slices8 := chance(r, 30) || pol == "scatter:slices" // GPUs that can be partitioned
	for i := range 2 + r.IntN(5) {
		n := cluster.Node{Name: fmt.Sprintf("n%d", i+1), Model: pick(r, "T4-16GB", "T4-16GB", "V100-16GB"),
			GPUs: pick(r, 2, 4, 4, 8), CPU: pick[int64](r, 16000, 32000), RAM: pick[int64](r, 0, 65536),
			Islands: pick(r, 0, 0, 2)}
		if pol == "scatter:divides" { // some nodes only
			slices8 = chance(r, 50)
		}
		if slices8 {
			n.Model, n.GPUs = pick(r, "A100-80GB", "A30-24GB"), pick(r, 1, 2, 4)
		}
		if slices8 {
			n.MIG = randomGeometry(r, &n)
		}
		if slices8 && singleUser(seed) {
			n.MIG = pick(r, "0:*", cluster.Unpartitioned, n.MIG)
		}
		spec.Nodes = append(spec.Nodes, n)
	}
	if pol == "scatter:parts" {
		names := make([]string, len(spec.Nodes))
		for i := range names {
			names[i] = spec.Nodes[i].Name
		}
		cut := 1 + r.IntN(len(names)-1)
		spec.Partitions = []cluster.Partition{{Name: "p1", Nodes: names[:cut], Default: chance(r, 70)},
			{Name: "p2", Nodes: names[cut-r.IntN(2):], MaxGPUs: pick(r, 0, 3)}}
	}
	weights, clients := map[string]int64{}, map[string]int{}
	if singleUser(seed) {
		spec.Sharing = cluster.MPS
		for _, name := range []string{"T4-16GB", "A30-24GB"} {
			m, _ := cluster.FindModel(name)
			m.Weight, m.Clients = 250, 2+int(seed%3)
			clients[name] = m.Clients
			spec.Models, weights[name] = append(spec.Models, m), m.Weight
		}
	}
	p, err := newPolicy(pol)
	if err != nil {
		t.Fatal(err)
	}
	pl, err := place.New(placer)
	if err != nil {
		t.Fatal(err)
	}
	if queues != nil {
		spec.Queues = queues(r)
	}
	among, least := randomPairs(seed)
	w := &pair{r: r, more: rand.New(rand.NewPCG(seed, 0x6d6f7265)),
		d: &dumb{policy: pol, parts: spec.Partitions, placer: placer, mode: mode, queues: spec.Queues,
			mps: spec.Sharing == cluster.MPS, clients: clients, weights: weights, drained: map[int]bool{},
			sets: map[string][]string{}, nodes: slices.Clone(spec.Nodes), minRuntime: pick(r, 0, 0, time.Minute),
			mf: newMultifactor(pol, 20*time.Minute)}}
	w.d.pairs, w.d.minSpeed, spec.MinSpeed = among, least, least
	w.d.holdAfter = holdAfter(seed)
	if w.e, err = engine.New(
		engine.Config{Spec: spec, Policy: p, Placer: pl, Backfill: &mode, Launches: 1 << 20, MinRuntime: w.d.minRuntime,
			HoldAfter: w.d.holdAfter, HalfLife: 20 * time.Minute, Speeds: w.d.pairs}); err != nil {
		if queues != nil {
			return nil
		}
		t.Fatal(err)
	}
	w.d.resized()
	w.base = slices.Clone(spec.Nodes)
	if seed > factual {
		w.facts = rand.New(rand.NewPCG(seed, 0x6661637473))
	}
	if seed%5 == 0 {
		w.third = rand.New(rand.NewPCG(seed, 0x73657473))
		for i := range spec.Nodes {
			w.sizes = append(w.sizes, engine.NodeSize{CPU: spec.Nodes[i].CPU, RAM: spec.Nodes[i].RAM})
		}
	}
	for at := cluster.Time(0); len(w.jobs) < 60; at = at.Add(seconds(r.IntN(40))) {
		w.draw(at, spec.Nodes)
	}
	return w
}

// randomGeometry has others partition some of the GPUs that can be.
func randomGeometry(r *rand.Rand, n *cluster.Node) string {
	if chance(r, 50) {
		return ""
	}
	m := modelOf(n)
	geometry := make([][]cluster.Instance, n.GPUs)
	for i := range geometry {
		if chance(r, 40) {
			continue
		}
		geometry[i] = []cluster.Instance{}
		for range 8 {
			p := &m.Profiles[r.IntN(len(m.Profiles))]
			with := append(slices.Clone(geometry[i]),
				cluster.Instance{Profile: p.Name, Start: p.Starts[r.IntN(len(p.Starts))]})
			one := *n
			one.GPUs, one.MIG = 1, cluster.GeometryText([][]cluster.Instance{with})
			if _, _, err := one.Geometry(m); err == nil {
				geometry[i] = with
			}
		}
	}
	return cluster.GeometryText(geometry)
}

// draw adds something that happens from outside.
func (w *pair) draw(at cluster.Time, nodes []cluster.Node) {
	r := w.r
	node := nodes[r.IntN(len(nodes))].Name
	switch k := r.IntN(24); {
	case k < 16 || len(w.jobs) == 0:
		j := w.job(at)
		w.jobs = append(w.jobs, j)
		if w.facts != nil && chance(w.facts, 20) { // found running, or else submitted
			w.add(at, engine.Event{Type: engine.Adopted, Job: j.ID, Spec: j})
		}
		w.add(at, engine.Event{Type: engine.Submitted, Job: j.ID, Spec: j, Carryover: randomCarryover(j, at)})
	case k < 18:
		w.add(at, engine.Event{Type: engine.Cancelled, Job: w.some()})
	case k < 20:
		w.add(at, engine.Event{Type: engine.Held, Job: w.some(), Undo: chance(r, 65)})
	case k < 21:
		w.add(at, engine.Event{Type: engine.NodeDown, Node: node})
	case k < 22:
		w.add(at, pick(r, engine.Event{Type: engine.GPUBad, Node: node, GPUs: uint64(1 + r.IntN(15)),
			Undo: chance(r, 70)},
			engine.Event{Type: engine.NodeDrained, Node: node, Undo: chance(r, 60)}))
	default:
		w.add(at, engine.Event{Type: engine.NodeUp, Node: node})
	}
	n := len(w.jobs) // late ones are more likely to run
	if w.more.IntN(20) == 0 {
		w.add(at, engine.Event{Type: engine.NodeAsleep, Node: node, Wake: seconds(60), Undo: chance(w.more, 40)})
	}
	switch id := cluster.JobID(max(w.more.IntN(n), w.more.IntN(n), w.more.IntN(n))); w.more.IntN(12) {
	case 0:
		w.add(at, engine.Event{Type: engine.Demoted, Job: id, Undo: chance(w.more, 30)})
	case 1:
		w.add(at, engine.Event{Type: engine.Progress, Job: id, Estimate: seconds(1 + w.more.IntN(400))})
	case 3, 4:
		w.add(at, engine.Event{Type: engine.Progress, Job: id, Saves: engine.Saves(w.more.IntN(3))})
	case 2:
		w.add(at, engine.Event{Type: engine.Progress, Job: id,
			Switch: engine.SwitchCost{Save: seconds(w.more.IntN(20)), Restart: seconds(w.more.IntN(20))}})
	}
}

func (w *pair) some() cluster.JobID { return cluster.JobID(w.r.IntN(len(w.jobs))) }

func (w *pair) job(at cluster.Time) *cluster.Job {
	r := w.r
	j := &cluster.Job{ID: cluster.JobID(len(w.jobs)), User: pick(r, "u1", "u2"), Queue: pick(r, "a", "b", "c", "d"),
		Submit: at, Priority: int64(r.IntN(3)), Estimate: seconds(r.IntN(400)),
		Tier:  pick(r, cluster.Standard, cluster.Standard, cluster.BestEffort, cluster.Critical),
		Tasks: []cluster.TaskSet{{Count: pick(r, 1, 1, 1, 2, 3, 5), Request: w.request()}}}
	if chance(r, 8) {
		j.Tasks = append(j.Tasks, cluster.TaskSet{Count: pick(r, 1, 2), Request: w.request()})
	}
	if chance(r, 20) {
		j.GPUTypes = pick(r, []string{"T4", "A100"}, []string{"V100-16GB", "T4-16GB", "A30", "A100-80GB"})
	}
	j.Checkpoint = cluster.Checkpoint{None: chance(r, 30), Interval: seconds(pick(r, 0, 0, 45)),
		Cost: seconds(pick(r, 0, 10)), Restart: seconds(pick(r, 0, 5))}
	if w.d.holdAfter > 0 && chance(w.more, 80) {
		j.Estimate = 0
	}
	j.NoRequeue, j.Hold, j.Name = chance(r, 5), chance(r, 5), pick(r, "x", "y", "z")
	if chance(r, 25) {
		j.Limit = seconds(20 + r.IntN(400))
	}
	if chance(r, 30) {
		j.Deadline = at.Add(seconds(r.IntN(1000)))
	}
	if chance(r, 10) {
		j.Begin = at.Add(seconds(r.IntN(300)))
	}
	for chance(r, 12) && len(w.jobs) > 0 {
		j.After = append(j.After, someDependency(r, w.some(), j.ID))
	}
	j.AnyOf = len(j.After) > 1 && chance(r, 30)
	boundNodes(w.more, j, w.d.nodes)
	w.confine(at, j)
	w.change(at)
	randomModel(j)
	if chance(r, 40) { // arrays are seven jobs with consecutive numbers, or the last of them
		first := j.ID / 7 * 7
		j.Array = &cluster.Array{ID: first, Index: int(j.ID - first), Cap: 1 + int(first)%3}
	}
	return j
}

// confine has a job run on a set of nodes only, which is named before; and now and then a node grows.
func (w *pair) confine(at cluster.Time, j *cluster.Job) {
	r := w.third
	if r == nil {
		return
	}
	if chance(r, 40) {
		k := r.IntN(4)
		set := &cluster.NodeSet{Name: fmt.Sprint("set", k)}
		for i := range w.d.nodes {
			if i%2 == k || i/2 == k-2 {
				set.Nodes = append(set.Nodes, w.d.nodes[i].Name)
			}
		}
		w.add(at, engine.Event{Type: engine.NodesNamed, Set: set})
		j.Nodes = set.Name
	}
	if chance(r, 10) {
		i := r.IntN(len(w.d.nodes))
		w.sizes[i].CPU += 4000
		if w.sizes[i].RAM > 0 {
			w.sizes[i].RAM += 8192
		}
		size := w.sizes[i]
		w.add(at, engine.Event{Type: engine.NodeResized, Node: w.d.nodes[i].Name, Size: &size})
	}
}

// change has a node be somewhere else in the network, whatever runs there.
func (w *pair) change(at cluster.Time) {
	r := w.third
	if r == nil || !chance(r, 15) {
		return
	}
	i := r.IntN(len(w.base))
	n := w.base[i]
	n.CPU, n.RAM, n.Bad = w.sizes[i].CPU, w.sizes[i].RAM, 0
	if n.Rack != "" {
		n.Rack, n.Fabric = pick(r, "r1", "r2"), pick(r, "f1", "f2")
	}
	w.add(at, engine.Event{Type: engine.NodeChanged, Node: n.Name, Spare: &n})
}

// boundNodes has some nodes take only so many of a job's tasks.
func boundNodes(r *rand.Rand, j *cluster.Job, nodes []cluster.Node) {
	if chance(r, 12) {
		j.PerNode = 1 + r.IntN(2)
	}
	for chance(r, 15) && len(j.NodeLimits) < 3 {
		l := cluster.NodeLimit{Tasks: r.IntN(3)}
		for i := range nodes {
			if i%3 == len(j.NodeLimits) || chance(r, 20) {
				l.Nodes = append(l.Nodes, nodes[i].Name)
			}
		}
		if len(l.Nodes) > 0 {
			j.NodeLimits = append(j.NodeLimits, l)
		}
	}
	j.NoPreempt = chance(r, 5)
}

func (w *pair) request() cluster.Request {
	r := w.r
	q := cluster.Request{GPUs: pick(r, 1, 1, 2, 4), CPU: pick[int64](r, 0, 0, 1000, 5000),
		RAM: pick[int64](r, 0, 0, 0, 9000)}
	switch k := r.IntN(100); {
	case k < 20 || w.d.mps && k >= 50:
		q.GPUs, q.Share, q.Memory = pick(r, 1, 1, 1, 2), pick[int64](r, 100, 250, 333, 500),
			pick[int64](r, 0, 4096, 9000)
	case k < 35:
		q.GPUs, q.Profile = 1, pick(r, "1g", "2g", "3g", "1g.10gb+me", "1g.20gb", "4g", "1g.6gb", "2g.12gb+me")
	case k < 40:
		q.Memory = 15000
	case k < 45:
		q.GPUs = 0
	}
	return q
}

func (w *pair) add(at cluster.Time, ev engine.Event) {
	i := len(w.queue)
	for i > 0 && w.queue[i-1].at > at {
		i--
	}
	w.queue = slices.Insert(w.queue, i, stimulus{at, ev})
}

// later is a latency: often none.
func (w *pair) later() cluster.Time {
	return w.now.Add(seconds(pick(w.r, 0, 0, 5, 20)))
}

func (w *pair) play() error {
	wake := cluster.Never
	attempt := map[cluster.JobID]int{} // starts; looked up only
	for w.events < 3000 {
		at := wake
		if len(w.queue) > 0 {
			at = min(at, w.queue[0].at)
		}
		if at == cluster.Never || len(w.queue) == 0 {
			return nil
		}
		w.now = at
		b := engine.Batch{Now: at}
		for len(w.queue) > 0 && w.queue[0].at == at && (len(b.Events) == 0 || chance(w.r, 60)) {
			ev := w.queue[0].ev
			w.queue = w.queue[1:]
			if ev.Saved != 0 { // an answer to one attempt: void if it was overtaken
				if int(ev.Saved) != attempt[ev.Job] {
					continue
				}
				ev.Saved = 0
				if ev.Type == engine.Stopped || ev.Type == engine.StartFailed {
					attempt[ev.Job]++
				}
			}
			if ev.Type == engine.Adopted {
				ev = w.found(ev.Spec)
			}
			b.Events = append(b.Events, ev)
		}
		w.observe(&b)
		w.events += max(1, len(b.Events))
		before := w.e.Stats()
		dec := w.e.Step(b)
		wake = dec.WakeAt
		if err := w.e.CheckInvariants(); err != nil {
			return err
		}
		if err := w.e.CheckSpeeds(); err != nil && w.facts == nil {
			return err
		}
		others, preempts := w.d.step(b, w.e.Stats().Passes > before.Passes, w.e.Stats().Plans > before.Plans)
		var got, stops []string
		for i := range dec.Actions {
			switch a := &dec.Actions[i]; a.Type {
			case engine.Start:
				got = append(got, fmt.Sprintf("start %d %+v", a.Job, a.Allocs))
			case engine.Reject:
				stops = append(stops, fmt.Sprintf("reject %d %s", a.Job, a.Reason))
			case engine.Preempt:
				stops = append(stops, fmt.Sprintf("preempt %d %s for %d", a.Job, a.Reason, a.For))
			}
		}
		slices.Sort(stops)
		w.log = append(w.log, describe(&b, &dec))
		if !slices.Equal(got, others) || !slices.Equal(stops, preempts) {
			return fmt.Errorf("at %v the engine decides\n%q %q, its twin\n%q %q", at, got, stops, others, preempts)
		}
		if err := w.compare(); err != nil {
			return fmt.Errorf("at %v %w", at, err)
		}
		w.answer(&dec, attempt)
		w.answerAdopted(&b, attempt)
	}
	return nil
}

// answer is what the world will say to a decision.
func (w *pair) answer(dec *engine.Decision, attempt map[cluster.JobID]int) {
	for i := range dec.Actions {
		a := &dec.Actions[i]
		tell := func(at cluster.Time, ev engine.Event) {
			ev.Job, ev.Saved = a.Job, time.Duration(attempt[a.Job])
			w.add(at, ev)
		}
		switch a.Type {
		case engine.Start:
			attempt[a.Job] += 1000
			at := w.later()
			if chance(w.r, 5) {
				tell(at, engine.Event{Type: engine.StartFailed})
				continue
			}
			tell(at, engine.Event{Type: engine.Started})
			run := seconds(1 + w.r.IntN(400))
			tell(at.Add(run), engine.Event{Type: engine.Stopped,
				Reason: pick(w.r, engine.Completed, engine.Completed, engine.Failed), Done: run})
		case engine.Preempt:
			attempt[a.Job]++
			tell(w.later(), engine.Event{Type: engine.Stopped, Reason: a.Reason, Done: seconds(w.r.IntN(60))})
		}
	}
}
