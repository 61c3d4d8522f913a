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
	"github.com/muster-gpu/muster/engine/sched"
	"github.com/muster-gpu/muster/internal/shared"
	"github.com/muster-gpu/muster/policy"
)

// TestRandomDefrag throws random events at an engine that moves jobs, where it often
// can: whole GPUs, and for other seeds also shares and slices, on small clusters that are not full. Everything
// is checked that TestRandom checks; every other scenario's second engine is restarted now and then, also while
// jobs are on their way. No job is on a node, or goes to one, that was emptied just now, but one that grows into it.
func TestRandomDefrag(t *testing.T) {
	t.Parallel()
	made, emptied, planned, chained, parted, wide := 0, 0, 0, 0, 0, 0
	policies := []string{"fifo", "multifactor", "srtf", "las", "scatter", "scatter:round", "scatter:gated",
		"scatter:some", "scatter:packs"}
	var own []string // all under whose plans jobs are moved
	for _, pol := range policy.Names() {
		if p, err := policy.New(pol); err == nil && p.Traits().Anywhere {
			own = append(own, pol)
		}
	}
	policies = append(policies, own...)
	for i, pol := range policies {
		few := []uint64{5, 8} // with whole GPUs, and with parts
		switch {
		case slices.Contains(own, pol): // what is done with a plan does not depend on which policy made it
			few = []uint64{3, 8}[i%2 : i%2+1]
		case pol == "scatter" || pol == "scatter:round":
			few = []uint64{5}
		case strings.HasPrefix(pol, "scatter"):
			few = []uint64{8}
		}
		seeds := shared.Soak(few, []uint64{0, 1, 2, 3, 4, 5, 6, 7, 8})
		if pol == "scatter:packs" {
			// plans that want a guest beside a job, and alone; that want it where its limits do not let it be
			seeds = append(seeds, 15, 28)
		}
		for _, seed := range seeds {
			sc := defragScenario(t, seed, pol, seed >= 5)
			w, err := play(sc, false)
			if err != nil {
				small, last := shrink(sc, err)
				w, _ = play(small, true)
				t.Fatalf("%s, seed %d: %v\nsmallest: %v\n%+v\n%s", sc.label, seed, err, last, small.cfg.Defrag,
					join(w.log))
			}
			made, emptied, chained, parted, wide = made+w.moves, emptied+w.emptied, chained+w.chained,
				parted+w.parted, wide+w.wide
			if sc.planner() {
				planned += w.moves + w.emptied
			}
		}
	}
	if t.Logf("%d moves, %d of them of shares and slices, %d to where another was, for %d jobs with shares of several GPUs; %d nodes emptied, %d under plans", made, parted, chained, wide, emptied, planned); made < 25 || wide < 8 || parted < 25 || emptied < 25 || planned < 25 {
		t.Error("jobs are seldom moved")
	}
}

// planner reports whether the policy plans.
func (sc *scenario) planner() bool {
	_, ok := sc.cfg.Policy.(sched.Planner)
	return ok
}

// checkEmptied looks at the moves of the last step.
func (w *randomWorld) checkEmptied() error {
	for _, m := range w.e.Moved() {
		switch {
		case !m.Made:
			continue
		case w.sc.cfg.Defrag.Protected.Says(w.sc.cfg.Spec.Epoch+int64(w.now/cluster.Time(time.Second))) != "":
			return fmt.Errorf("a move begins in a protected time: %+v", m)
		case m.Empties == "":
			w.moves += len(m.Moves)
			if r := w.e.Record(m.Job).Spec.Tasks[0].Request; r.Fractional() && r.GPUs > 1 {
				w.wide++
			}
			for i := range m.Moves {
				w.chained += min(1, len(m.Moves[i].After))
				w.parted += min(1, len(m.Moves[i].Part))
			}
			continue
		}
		w.emptied++
		node := int32(w.nodes[m.Empties])
		for id := range w.jobs {
			r := w.e.Record(cluster.JobID(id))
			if r == nil || r.Spec.Elastic.Max > 0 {
				continue
			}
			list := r.Dest
			if r.State != engine.Stopping {
				list = r.Allocs
			}
			if slices.ContainsFunc(list, func(a engine.Alloc) bool { return a.Node == node }) {
				return fmt.Errorf("%s was emptied, and job %d is on it: %+v", m.Empties, id, list)
			}
		}
	}
	return nil
}

func join(lines []string) (text string) {
	for _, l := range lines {
		text += l + "\n"
	}
	return text
}

func defragScenario(t *testing.T, seed uint64, pol string, parts bool) *scenario {
	r := rand.New(rand.NewPCG(seed, 7))
	p, err := newPolicy(pol)
	if err != nil {
		t.Fatal(err)
	}
	placers := placersAlone()
	sc := &scenario{seed: seed, instant: chance(r, 30), label: pol}
	mode := engine.Backfill(r.IntN(4))
	sc.cfg = engine.Config{Policy: p, Placer: placers[r.IntN(len(placers))].New(), Backfill: &mode,
		Defrag: &engine.Defrag{Auto: chance(r, 50), Every: seconds(pick(r, 100, 300)), Moves: pick(r, 0, 1, 8),
			Chain: pick(r, 0, 1, 5), PerHour: pick(r, 0, 30), Horizon: seconds(pick(r, 0, 600))}}
	if chance(r, 40) { // of every half an hour some minutes
		sc.cfg.Defrag.Protected = &cluster.Weekly{Zone: "UTC"}
		for i := range 12 {
			from := time.Duration(i) * 30 * time.Minute
			sc.cfg.Defrag.Protected.Hours = append(sc.cfg.Defrag.Protected.Hours,
				cluster.Hours{From: from, To: from + time.Duration(5+r.IntN(15))*time.Minute})
		}
	}
	sc.cfg.Defrag.Compact = pick(r, engine.NoCompact, engine.UsableGPUs, engine.EmptyNodes)
	if chance(r, 30) {
		sc.cfg.MinRuntime = seconds(pick(r, 10, 60))
	}
	if chance(r, 30) {
		sc.cfg.Starvation = seconds(pick(r, 60, 600))
	}
	if parts {
		sc.cfg.Speeds, _ = randomPairs(seed)
	}
	nodes := 3 + r.IntN(4)
	if parts {
		nodes -= 2
	}
	for i := range nodes {
		n := cluster.Node{Name: fmt.Sprintf("n%d", i+1), Model: pick(r, "A100-80GB", "A100-80GB", "V100-32GB"), GPUs: 4,
			Rack: pick(r, "r1", "r2"), Islands: pick(r, 0, 0, 2)}
		if parts { // so that they are often full
			n.GPUs = pick(r, 1, 2, 2, 3)
		}
		if parts && n.Model[0] == 'A' && chance(r, 30) {
			n.MIG = pick(r, "0:*", "0:3g.40gb@0,1g.10gb@4,1g.10gb@5")
		}
		if chance(r, 30) {
			n.CPU, n.RAM = 32000, 65536
		}
		sc.cfg.Spec.Nodes = append(sc.cfg.Spec.Nodes, n)
	}
	if chance(r, 30) {
		sc.cfg.Spec.Queues = randomQueues(r)
	}
	if _, err := engine.New(sc.cfg); err != nil {
		sc.cfg.Spec.Queues = nil // more is guaranteed than there is
	}
	g := &generator{r: r, spec: &sc.cfg.Spec, elastic: sc.planner() && !strings.HasPrefix(pol, "scatter"), parts: parts}
	if parts && chance(r, 30) {
		sc.cfg.Spec.Sharing = cluster.MPS
	}
	if parts && seed%2 == 0 {
		sc.cfg.Spec.MIG, sc.cfg.Stop = cluster.DynamicMIG,
			&[3]engine.StopRule{{How: engine.Suspend}, {How: engine.Suspend, Grace: time.Second}, {How: engine.Suspend}}
	}
	for range 150 {
		g.at = g.at.Add(seconds(r.IntN(80)))
		if ev, ok := g.defragEvent(); ok {
			sc.stimuli = append(sc.stimuli, stimulus{g.at, ev})
		}
	}
	for i := range sc.cfg.Spec.Nodes { // so that all come to an end
		for _, typ := range []engine.EventType{engine.NodeDrained, engine.GPUBad, engine.NodeUp} {
			sc.stimuli = append(sc.stimuli,
				stimulus{g.at, engine.Event{Type: typ, Node: sc.cfg.Spec.Nodes[i].Name, GPUs: 15, Undo: true}})
		}
	}
	return sc
}

// divide has a job mostly ask for slices, or shares of a GPU.
func (g *generator) divide(j *cluster.Job) {
	switch q := &j.Tasks[0].Request; {
	case chance(g.r, 45):
		q.GPUs, q.Profile = 1, pick(g.r, "1g", "1g", "1g", "2g", "3g", "4g", "7g", "1g.20gb")
	case chance(g.r, 50):
		q.GPUs, q.Share = pick(g.r, 1, 1, 2, 2), pick[int64](g.r, 100, 250, 250, 500, 750)
		j.Model, j.MinSpeed = pick(g.r, "", "a", "b"), pick[int64](g.r, 0, 0, 600_000)
	}
}

// defragEvent is mostly a job of whole GPUs, or the wish for moves.
func (g *generator) defragEvent() (engine.Event, bool) {
	r := g.r
	switch k := r.IntN(100); {
	case k < 50 || len(g.jobs) == 0:
		j := &cluster.Job{ID: cluster.JobID(len(g.jobs)), User: pick(r, "u1", "u2"), Submit: g.at,
			Estimate: seconds(200 + r.IntN(400)), Limit: seconds(700),
			Tier: pick(r, cluster.Standard, cluster.Standard, cluster.Standard, cluster.Standard,
				cluster.BestEffort),
			Tasks: []cluster.TaskSet{
				{Count: pick(r, 1, 1, 1, 1, 1, 2), Request: cluster.Request{GPUs: pick(r, 1, 1, 1, 1, 2, 4, 4)}}},
			Checkpoint: cluster.Checkpoint{Cost: seconds(r.IntN(3)), Restart: seconds(r.IntN(3)), None: chance(r, 10)},
			NoRequeue:  chance(r, 5)}
		if g.parts {
			g.divide(j)
		}
		if len(g.spec.Queues) > 0 {
			j.Queue = pick(r, "a", "b", "c", "d")
		}
		if chance(r, 15) {
			j.Topology = cluster.Topology{Level: pick(r, cluster.LevelNVLink, cluster.LevelNode, cluster.LevelRack),
				Required: chance(r, 70)}
		}
		if g.elastic && chance(r, 15) && j.Topology.Level == cluster.LevelAny {
			j.Tasks[0].Count, j.Elastic = 2, cluster.Elastic{Min: 1, Max: 3}
		}
		if chance(r, 20) {
			j.Tasks[0].Request.CPU = 4000
		}
		g.jobs = append(g.jobs, j)
		return engine.Event{Type: engine.Submitted, Job: j.ID, Spec: j}, true
	case k < 98:
		return engine.Event{Type: engine.Defragment, Job: pick(r, cluster.NoJob, cluster.NoJob, g.some()),
			Compact: pick(r, engine.NoCompact, engine.NoCompact, engine.UsableGPUs, engine.EmptyNodes)}, true
	default:
		ev, ok := g.event()
		return ev, ok && ev.Type != engine.Submitted && ev.Type != engine.Updated
	}
}
