package policy

import (
	"fmt"
	"slices"
	"time"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/engine"
	"github.com/muster-gpu/muster/learn"
)

var sched2 = Info{
	Name: "sched2",
	About: "learned: of the jobs that wait, a network chooses who starts next and how near together, or that nobody does yet; " +
		"nothing that runs is preempted",
	Source: "C-rl: SCHED^2 (GLOBECOM'19), reconstructed; weights are trained by muster learn sched2",
	Needs:  "nothing; run times or names that come back, and what distance costs (performance table, else the job's skew), make it better",
	Knobs: []Knob{
		{"weights", "", "file of weights (muster learn sched2 --out FILE); none: those that come with Muster"},
		{"digest", "", "refuse weights other than these: the journal says which they were"},
		{"check", "1m", "who was chosen and did not start is looked at again so much later, and so is who waits beside it"},
	},
	New: newSched2,
}

type sched2Rules struct {
	agent *learn.Agent
	check time.Duration
}

func newSched2(k *Knobs) (engine.Policy, error) {
	agent, err := learn.Load(learn.SystemSched2, k.text("weights"), k.text("digest"), ReadFile)
	if err != nil {
		return nil, err
	}
	if k.text("weights") != "" {
		k.set["digest"] = agent.Digest()
	}
	r := &sched2Rules{agent: agent}
	if r.check, err = k.period("check"); err != nil {
		return nil, err
	}
	return &drawer{
		planner: planner{name: k.label(), traits: engine.Traits{Backfill: engine.Skip, Gated: true, Anywhere: true, Predicts: true}, plan: r.plan},
		pool:    sched2Pool, nothing: always(engine.Target{Idle: true}),
	}, nil
}

// weighed reports whether the network has something to say of a job that waits: a batch
// job of one size on whole GPUs. The others stand in line as they come, before all that it chooses.
func weighed(j engine.JobView) bool {
	s := j.Spec()
	_, least, most := j.Tasks()
	r := &s.Tasks[0].Request
	return s.Tier != cluster.Critical && s.Kind != cluster.Service && s.Kind != cluster.Interactive && len(s.Tasks) == 1 && least == most && r.GPUs > 0 && !r.Fractional() && r.Profile == ""
}

// sched2Pool has jobs stand in pools by queue and user, the shortest first: among jobs that are
// alike in all but their length that is the best order for the mean JCT, so that the
// network weighs only the first of each.
func sched2Pool(_ engine.View, j engine.JobView) (class int64, at engine.Key, ok bool) {
	return int64(j.Queue())<<32 | int64(j.User()), engine.Key{int64(j.Spec().Estimate)}, weighed(j)
}

// sched2Memory is used again from plan to plan.
type sched2Memory struct {
	moment learn.Moment
	net    *learn.Sched2
	rooms  []engine.NodeRoom
	from   []source
	drawn  []int // by pool
}

// source says who stands in a slot: the head of a pool, or a job of the plan that was chosen
// before and did not start.
type source struct{ pool, job int }

func (r *sched2Rules) plan(v engine.View, jobs []engine.JobView) engine.Plan {
	w := engine.Memory[sched2Memory](v)
	if w.net == nil {
		w.net = learn.NewSched2(r.agent)
	}
	pools := v.Pools()
	pools = append([]engine.Pool(nil), pools...)
	targets := v.Targets(len(jobs))
	tried := r.others(jobs, targets)
	p := engine.Plan{Next: cluster.Never}
	if len(tried) == 0 && len(pools) == 0 {
		p.Targets = targets
		return p
	}
	w.look(v, jobs)
	w.drawn = append(w.drawn[:0], make([]int, len(pools))...)
	var drawn []engine.Target
	rank := int64(0)
	for {
		w.line(v, jobs, pools, tried)
		pick, ok := w.net.Next(&w.moment)
		if !ok || pick.Wait {
			break
		}
		rank++
		t := engine.Target{Rank: rank, Within: within(pick.Near), Memo: []int64{ppm(pick.Prob), ppm(pick.Pause), int64(pick.Open)}}
		if from := w.from[pick.Slot]; from.pool >= 0 {
			pools[from.pool].Draw()
			w.drawn[from.pool]++
			drawn = append(drawn, t)
		} else {
			targets[from.job] = t
			tried = slices.DeleteFunc(tried, func(at int) bool { return at == from.job })
		}
	}
	if rank > 0 {
		p.Next = v.Now().Add(r.check)
	}
	p.Targets = append(targets, drawn...)
	return p
}

// ppm is a probability as the engine keeps it.
func ppm(p float64) int64 { return int64(p*1e6 + 0.5) }

// within is the level that stands for a locality.
func within(n learn.Near) cluster.Level {
	return [...]cluster.Level{cluster.LevelNode, cluster.LevelRack, cluster.LevelAny}[n]
}

// others gives targets to all that are no matter for the network now, and lists those that it
// chose before and that did not start: they get nothing unless it chooses them again.
func (r *sched2Rules) others(jobs []engine.JobView, targets []engine.Target) (tried []int) {
	for i, j := range jobs {
		switch t := j.Target(); {
		case j.Running() || !weighed(j):
			if t != nil && !t.Idle {
				targets[i] = *t
			}
		default: // or it is suspended, or has waited too long, and stands in no pool for that
			tried = append(tried, i)
			targets[i].Idle = true
		}
	}
	return tried
}

// look begins the moment: what is free, and who runs for how long.
func (w *sched2Memory) look(v engine.View, jobs []engine.JobView) {
	m := &w.moment
	w.rooms = v.NodeRooms(w.rooms[:0])
	m.Rooms, m.Running = m.Rooms[:0], m.Running[:0]
	for i := range w.rooms {
		n := &w.rooms[i]
		m.Rooms = append(m.Rooms, learn.Room{GPUs: n.GPUs, Free: n.Free, Kind: n.Kind, Class: n.Class, Rack: n.Rack})
	}
	for _, j := range jobs {
		if !j.Running() {
			continue
		}
		left := -1.0
		if j.Spec().Estimate > 0 {
			left = j.Remaining().Seconds()
		}
		m.Running = append(m.Running, left)
	}
	m.Begin()
}

// line fills the moment's line: the heads of the pools, then those that were tried.
func (w *sched2Memory) line(v engine.View, jobs []engine.JobView, pools []engine.Pool, tried []int) {
	m := &w.moment
	m.Line, m.Waiting, w.from = m.Line[:0], len(tried), w.from[:0]
	for i := range pools {
		j, ok := pools[i].Head()
		if !ok {
			continue
		}
		left := pools[i].Len() - w.drawn[i]
		m.Waiting += left
		g := gangOf(v, j)
		g.Behind = left - 1
		m.Line, w.from = append(m.Line, g), append(w.from, source{i, -1})
	}
	for _, at := range tried {
		g := gangOf(v, jobs[at])
		g.Tried = true
		m.Line, w.from = append(m.Line, g), append(w.from, source{-1, at})
	}
	m.Shorten(func(i, k int) { w.from[i] = w.from[k] })
}

// skewed is the part of their speed that jobs are taken to lose on several nodes, of which nobody knows
// more than that their largest message is more than a tenth of the model (Tiresias).
const skewed = 0.3

// gangOf is a job that waits as the network sees it.
func gangOf(v engine.View, j engine.JobView) learn.Gang {
	s := j.Spec()
	set := &s.Tasks[0]
	g := learn.Gang{Tasks: int32(set.Count), Each: int32(set.Request.GPUs), Classes: j.Classes(), Age: j.Waiting().Seconds()}
	length := s.Estimate
	if length > 0 {
		length = max(length-j.Done(), time.Second/1000)
	} else {
		length = j.Predicted()
	}
	g.Length = length.Seconds()
	if set.Count == 1 {
		return g
	}
	for i, l := range []cluster.Level{cluster.LevelRack, cluster.LevelFabric} {
		switch ppm, known := v.Apart(j, modelFor(v, nil, j), l); {
		case known:
			g.Loss[i] = min(max(1-float64(ppm)/1e6, 0), 1)
		case s.Skew > 100:
			g.Loss[i] = skewed
		}
	}
	return g
}

// Explain implements engine.Explainer.
func (r *sched2Rules) explain(t *engine.Target) string {
	if len(t.Memo) != 3 {
		return ""
	}
	return fmt.Sprintf("of %d things that could be done the network chose to start it with probability %.3f (to wait: %.3f)",
		t.Memo[2], float64(t.Memo[0])/1e6, float64(t.Memo[1])/1e6)
}
