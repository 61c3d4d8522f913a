package policy

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/engine/sched"
	"github.com/muster-gpu/muster/learn"
)

var sched2 = Info{
	Name: "sched2",
	About: "learned: a network chooses which waiting job starts next and how near together its tasks are, or to wait; " +
		"no preemption",
	Source: "SCHED^2 (GLOBECOM'19), reconstructed; weights are trained by muster learn sched2",
	Needs:  "nothing; run times or names that come back, and what distance costs (performance table, else the job's skew), make it better",
	Trials: []Trial{{}},
	Knobs: []Knob{
		{"weights", "", "file of weights (muster learn sched2 --out FILE); none: those that come with Muster"},
		{"digest", "", "refuse weights with another digest: the journal records it"},
		{"check", "1m", "time after which a job that was chosen and did not start, and the jobs waiting with it, are considered again"},
	},
	New: newSched2,
}

type sched2Rules struct {
	agent *learn.Agent
	check time.Duration
}

func newSched2(k *Knobs) sched.Policy {
	agent, err := learn.Load(learn.SystemSched2, k.text("weights"), k.text("digest"), ReadFile)
	if err != nil {
		k.check(err)
		return nil
	}
	if k.text("weights") != "" {
		k.set["digest"] = agent.Digest()
	}
	r := &sched2Rules{agent: agent, check: k.duration("check", time.Second)}
	name := k.label()
	k.set["digest"] = agent.Digest()
	return &sched2Policy{&drawer{
		planner: planner{name: name,
			traits: sched.Traits{Backfill: sched.Skip, Gated: true, Anywhere: true, Predicts: true}, plan: r.plan,
			words: sched2Words},
		pool: sched2Pool, nothing: always(sched.Target{Idle: true}),
	}, k.label()}
}

// sched2Policy is a drawer with weights.
type sched2Policy struct {
	*drawer
	pinned string
}

// Pinned is the policy's name with the digest of its weights, including the built-in ones.
func (p *sched2Policy) Pinned() string { return p.pinned }

// weighed reports whether the network decides on a waiting job: a batch job of fixed size on whole
// GPUs. Other jobs queue by submission, ahead of all that the network chooses.
func weighed(j sched.JobView) bool {
	s := j.Spec()
	_, least, most := j.Tasks()
	r := &s.Tasks[0].Request
	return s.Tier != cluster.Critical && s.Kind != cluster.Service && s.Kind != cluster.Interactive &&
		len(s.Tasks) == 1 && least == most && r.GPUs > 0 && !r.Fractional() && r.Profile == ""
}

// sched2Pool keeps jobs in pools by queue and user, the shortest first: among jobs that differ only
// in length this order gives the best mean JCT, so the network weighs only the first of each.
func sched2Pool(_ sched.View, j sched.JobView) (class int64, at sched.Key, ok bool) {
	return int64(j.Queue())<<32 | int64(j.User()), sched.Key{int64(j.Spec().Estimate)}, weighed(j)
}

// sooner is the order within a pool.
func sooner(a, b sched.JobView) int {
	x, y := a.Spec(), b.Spec()
	return cmp.Or(cmp.Compare(x.Estimate, y.Estimate), cmp.Compare(x.Submit, y.Submit), cmp.Compare(x.ID, y.ID))
}

// stand is waiting jobs that are alike: a pool, and the jobs outside it that are suspended or have
// waited too long.
type stand struct {
	shape int32
	class int64
	pool  int   // -1: none
	left  int   // in the pool
	shown []int // indices into the plan's jobs, in order
	tried bool  // a single job that was chosen before and did not start
	head  sched.JobView
	gang  learn.Gang // the head's features
	of    int        // index of the head in the plan's jobs; -1: it is the pool's
}

// next finds the first job that is left; false: none.
func (s *stand) next(v sched.View, jobs []sched.JobView, pools []sched.Pool) (ok bool) {
	if s.pool >= 0 {
		s.head, ok = pools[s.pool].Head()
		s.of = -1
	}
	if len(s.shown) > 0 && (!ok || sooner(jobs[s.shown[0]], s.head) < 0) {
		s.head, s.of, ok = jobs[s.shown[0]], s.shown[0], true
	}
	if ok { // constant during a plan
		s.gang = gangOf(v, s.head)
	}
	return ok
}

// sched2Memory is reused from plan to plan.
type sched2Memory struct {
	moment learn.Moment
	net    *learn.Sched2
	rooms  []sched.NodeRoom
	stands []stand
	from   []int // by slot: index of the stand
}

func (r *sched2Rules) plan(v sched.View, jobs []sched.JobView) sched.Plan {
	w := sched.Memory[sched2Memory](v)
	if w.net == nil {
		w.net = learn.NewSched2(r.agent)
	}
	targets := v.Targets(len(jobs))
	p := sched.Plan{Next: cluster.Never, Targets: targets}
	shown := sched2Others(jobs, targets)
	pools := append([]sched.Pool(nil), v.Pools()...)
	if len(shown) == 0 && len(pools) == 0 || !w.observe(v, jobs) {
		return p
	}
	w.stand(v, jobs, pools, shown)
	var drawn []sched.Target
	for rank := int64(1); ; rank++ {
		w.line()
		pick, ok := w.net.Next(&w.moment)
		if !ok {
			break
		}
		if pick.Wait {
			p.Memo = []int64{ppm(pick.Prob), int64(pick.Open - 1)}
			break
		}
		p.Next = v.Now().Add(r.check)
		t := sched.Target{Rank: rank, Within: within(pick.Near),
			Memo: []int64{ppm(pick.Prob), ppm(pick.Pause), int64(pick.Open)}}
		at := w.from[pick.Slot]
		s := &w.stands[at]
		if s.of < 0 {
			pools[s.pool].Draw()
			s.left--
			drawn = append(drawn, t)
		} else {
			targets[s.of] = t
			s.shown = s.shown[1:]
		}
		if !s.next(v, jobs, pools) {
			w.stands = slices.Delete(w.stands, at, at+1)
		}
	}
	p.Targets = append(targets, drawn...)
	return p
}

// stand groups the waiting jobs that are alike, in the order of their first jobs.
func (w *sched2Memory) stand(v sched.View, jobs []sched.JobView, pools []sched.Pool, shown []int) {
	w.stands = w.stands[:0]
	for i := range pools {
		if j, ok := pools[i].Head(); ok {
			class, _, _ := sched2Pool(v, j)
			w.stands = append(w.stands, stand{shape: j.Shape(), class: class, pool: i, left: pools[i].Len()})
		}
	}
	for _, at := range shown {
		j := jobs[at]
		class, _, _ := sched2Pool(v, j)
		tried := j.Target() != nil && !j.Target().Idle
		k := -1
		if !tried {
			k = slices.IndexFunc(w.stands, func(s stand) bool {
				return !s.tried && s.shape == j.Shape() && s.class == class
			})
		}
		if k < 0 {
			k = len(w.stands)
			w.stands = append(w.stands, stand{shape: j.Shape(), class: class, pool: -1, tried: tried})
		}
		w.stands[k].shown = append(w.stands[k].shown, at)
	}
	for i := range w.stands {
		s := &w.stands[i]
		slices.SortFunc(s.shown, func(a, b int) int { return sooner(jobs[a], jobs[b]) })
		s.next(v, jobs, pools)
	}
	slices.SortFunc(w.stands, func(a, b stand) int {
		x, y := a.head.Spec(), b.head.Spec()
		return cmp.Or(cmp.Compare(x.Submit, y.Submit), cmp.Compare(x.ID, y.ID))
	})
}

// ppm is a probability in millionths, as in memos.
func ppm(p float64) int64 { return int64(p*1e6 + 0.5) }

// within is the level that a locality stands for.
func within(n learn.Near) cluster.Level {
	return [...]cluster.Level{cluster.LevelNode, cluster.LevelRack, cluster.LevelAny}[n]
}

// sched2Others keeps the targets of the jobs on which the network does not decide, and lists the
// waiting jobs on which it does, as idle until it chooses them.
func sched2Others(jobs []sched.JobView, targets []sched.Target) (shown []int) {
	for i, j := range jobs {
		if !j.Running() && weighed(j) {
			shown = append(shown, i)
			targets[i].Idle = true
		} else if t := j.Target(); t != nil && !t.Idle {
			targets[i] = *t
		}
	}
	return shown
}

// observe fills the moment with the free GPUs and the remaining times of running jobs. It reports
// whether any GPU is free.
func (w *sched2Memory) observe(v sched.View, jobs []sched.JobView) (any bool) {
	m := &w.moment
	w.rooms = v.NodeRooms(w.rooms[:0])
	m.Rooms, m.Running = m.Rooms[:0], m.Running[:0]
	for i := range w.rooms {
		n := &w.rooms[i]
		any = any || n.Free > 0
		m.Rooms = append(m.Rooms, learn.Room{GPUs: n.GPUs, Free: n.Free, Kind: n.Kind, Class: n.Class, Rack: n.Rack})
	}
	if !any {
		return false
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
	return true
}

// line fills the moment's line with the head of each stand.
func (w *sched2Memory) line() {
	m := &w.moment
	m.Line, m.Waiting, w.from = m.Line[:0], 0, w.from[:0]
	for i := range w.stands {
		s := &w.stands[i]
		g := s.gang
		g.Tried, g.Behind = s.tried, s.left+len(s.shown)-1
		m.Waiting += s.left + len(s.shown)
		m.Line, w.from = append(m.Line, g), append(w.from, i)
	}
	m.Shorten(func(i, k int) { w.from[i] = w.from[k] })
}

// gangOf returns the features of a waiting job.
func gangOf(v sched.View, j sched.JobView) learn.Gang {
	s := j.Spec()
	set := &s.Tasks[0]
	g := learn.Gang{Tasks: int32(set.Count), Each: int32(set.Request.GPUs), Classes: j.Classes(),
		Age: j.Waiting().Seconds()}
	length := s.Estimate
	if length > 0 {
		length = max(length-j.Done(), time.Second/1000)
	} else {
		length = j.Predicted()
	}
	g.Length = length.Seconds()
	if set.Count > 1 {
		g.Loss = v.Losses(j, modelFor(v, nil, j))
	}
	return g
}

// sched2Words explains a target: the probability of a start that the network chose, or, for a
// waiting job, that of its choice to wait.
func sched2Words(t *sched.Target, plan []int64) string {
	switch {
	case !t.Idle && len(t.Memo) == 3:
		return fmt.Sprintf("the network chose it among %d things that could be done, with probability %.3f (to wait: %.3f)",
			t.Memo[2], float64(t.Memo[0])/1e6, float64(t.Memo[1])/1e6)
	case t.Idle && len(plan) == 2:
		return fmt.Sprintf("the network chose to wait, with probability %.3f, though %d starts were possible",
			float64(plan[0])/1e6, plan[1])
	}
	return ""
}
