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
	About: "learned: of the jobs that wait, a network chooses who starts next and how near together, or that nobody does yet; " +
		"nothing that runs is preempted",
	Source: "SCHED^2 (GLOBECOM'19), reconstructed; weights are trained by muster learn sched2",
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

func newSched2(k *Knobs) (sched.Policy, error) {
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
	name := k.label()
	k.set["digest"] = agent.Digest()
	return &sched2Policy{&drawer{
		planner: planner{name: name, traits: sched.Traits{Backfill: sched.Skip, Gated: true, Anywhere: true, Predicts: true}, plan: r.plan, words: sched2Words},
		pool:    sched2Pool, nothing: always(sched.Target{Idle: true}),
	}, k.label()}, nil
}

// sched2Policy is a drawer with weights.
type sched2Policy struct {
	*drawer
	pinned string
}

// Pinned is the policy's name with the digest of its weights, also of those that are shipped.
func (p *sched2Policy) Pinned() string { return p.pinned }

// weighed reports whether the network has something to say of a job that waits: a batch
// job of one size on whole GPUs. The others stand in line as they come, before all that it chooses.
func weighed(j sched.JobView) bool {
	s := j.Spec()
	_, least, most := j.Tasks()
	r := &s.Tasks[0].Request
	return s.Tier != cluster.Critical && s.Kind != cluster.Service && s.Kind != cluster.Interactive && len(s.Tasks) == 1 && least == most && r.GPUs > 0 && !r.Fractional() && r.Profile == ""
}

// sched2Pool has jobs stand in pools by queue and user, the shortest first: among jobs that are
// alike in all but their length that is the best order for the mean JCT, so that the
// network weighs only the first of each.
func sched2Pool(_ sched.View, j sched.JobView) (class int64, at sched.Key, ok bool) {
	return int64(j.Queue())<<32 | int64(j.User()), sched.Key{int64(j.Spec().Estimate)}, weighed(j)
}

// sooner is the order in a pool.
func sooner(a, b sched.JobView) int {
	x, y := a.Spec(), b.Spec()
	return cmp.Or(cmp.Compare(x.Estimate, y.Estimate), cmp.Compare(x.Submit, y.Submit), cmp.Compare(x.ID, y.ID))
}

// stand is jobs that wait and are alike: a pool, and those beside it that the plan is shown, as they
// are suspended or have waited too long.
type stand struct {
	shape int32
	class int64
	pool  int   // -1: none
	left  int   // in the pool
	shown []int // of the jobs of the plan, the first is the next
	tried bool  // it is one job, that was chosen before and did not start
	head  sched.JobView
	gang  learn.Gang // the head as the network sees it
	of    int        // which of the jobs the head is; -1: it is the pool's
}

// next finds the first of those that are left; false: nobody is.
func (s *stand) next(v sched.View, jobs []sched.JobView, pools []sched.Pool) (ok bool) {
	if s.pool >= 0 {
		s.head, ok = pools[s.pool].Head()
		s.of = -1
	}
	if len(s.shown) > 0 && (!ok || sooner(jobs[s.shown[0]], s.head) < 0) {
		s.head, s.of, ok = jobs[s.shown[0]], s.shown[0], true
	}
	if ok { // during a plan it does not change
		s.gang = gangOf(v, s.head)
	}
	return ok
}

// sched2Memory is used again from plan to plan.
type sched2Memory struct {
	moment learn.Moment
	net    *learn.Sched2
	rooms  []sched.NodeRoom
	stands []stand
	from   []int // by slot: the stand
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
	if len(shown) == 0 && len(pools) == 0 || !w.look(v, jobs) {
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
		t := sched.Target{Rank: rank, Within: within(pick.Near), Memo: []int64{ppm(pick.Prob), ppm(pick.Pause), int64(pick.Open)}}
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

// stand lists those who wait, by what is alike of them: first come those whose first came first.
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
			k = slices.IndexFunc(w.stands, func(s stand) bool { return !s.tried && s.shape == j.Shape() && s.class == class })
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

// ppm is a probability as the engine keeps it.
func ppm(p float64) int64 { return int64(p*1e6 + 0.5) }

// within is the level that stands for a locality.
func within(n learn.Near) cluster.Level {
	return [...]cluster.Level{cluster.LevelNode, cluster.LevelRack, cluster.LevelAny}[n]
}

// sched2Others leaves those where they are that are no matter for the network now, and lists the others
// that wait: they get nothing unless it chooses them.
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

// look begins the moment: what is free, and who runs for how long. It reports whether anything
// is free at all.
func (w *sched2Memory) look(v sched.View, jobs []sched.JobView) (any bool) {
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

// line fills the moment's line with the first of each stand.
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

// gangOf is a job that waits as the network sees it.
func gangOf(v sched.View, j sched.JobView) learn.Gang {
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
	if set.Count > 1 {
		g.Loss = v.Losses(j, modelFor(v, nil, j))
	}
	return g
}

// sched2Words says what the network made of a job: of one that it started, how probable that was, of one that
// waits, whether it chose to wait.
func sched2Words(t *sched.Target, plan []int64) string {
	switch {
	case !t.Idle && len(t.Memo) == 3:
		return fmt.Sprintf("the network chose it among %d things that could be done, with probability %.3f (to wait: %.3f)",
			t.Memo[2], float64(t.Memo[0])/1e6, float64(t.Memo[1])/1e6)
	case t.Idle && len(plan) == 2:
		return fmt.Sprintf("the network chose to wait, with probability %.3f, though %d starts were possible", float64(plan[0])/1e6, plan[1])
	}
	return ""
}
