package policy

import (
	"maps"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/engine"
	"github.com/muster-gpu/muster/engine/sched"
	"github.com/muster-gpu/muster/internal/shared"
)

// flowMemory is a naive twin of elasticflow's memory: each accepted job's size by slot number.
type flowMemory map[cluster.JobID]map[int64]int

// keep records the plans of the jobs slot by slot.
func (m flowMemory) keep(h *horizon, kept []*flow) {
	clear(m)
	for _, f := range kept {
		slots := map[int64]int{}
		for t, s := range f.plan {
			if s > 0 {
				slots[h.number+int64(t)] = s
			}
		}
		m[f.j.Spec().ID] = slots
	}
}

// holds reports whether all jobs are done in time with the remembered plans and no slot is
// overbooked, counted slot by slot.
func (m flowMemory) holds(h *horizon, kept []*flow) bool {
	gpus, rooms := make([]int, len(h.ends)), make([]int, len(h.ends))
	for _, f := range kept {
		left := f.left
		for t := range f.deadline {
			if s := m[f.j.Spec().ID][h.number+int64(t)]; s > 0 {
				gpus[t] += f.gpus[s-1]
				rooms[t] += f.rooms[s-1]
				left -= f.paces[s-1] * h.length(t)
			}
		}
		if left > 1e-6 {
			return false
		}
	}
	return slices.Max(gpus) <= h.gpus && slices.Max(rooms) <= h.gpus
}

// The plans that elasticflow reads back are the ones it made, and it keeps them if, and only if, a
// new plan does not get all accepted jobs done in time and they do.
func TestFlowMemoryTwin(t *testing.T) {
	pol := shared.Must(New("elasticflow"))
	r, planned, memory := &flowRules{slot: time.Minute}, pol.(*drawer).plan, flowMemory{}
	replans, keeps := 0, 0
	check := func(v sched.View, jobs []sched.JobView) sched.Plan {
		list := make([]flow, len(jobs))
		claimAll(v, jobs, func(i int) *claim { return &list[i].claim })
		h, kept, fresh := r.horizon(v, list), []*flow(nil), []*flow(nil)
		for i := range list {
			switch f := &list[i]; {
			case func() bool { r.recall(h, f); return f.accepted && f.deadline > 0 }():
				kept = append(kept, f)
			case !f.accepted && f.deadline > 0 && f.j.Target() == nil:
				fresh = append(fresh, f)
			}
		}
		h.reckonWait(list, kept)
		h.empty()
		for _, f := range kept {
			want := make([]int, f.deadline)
			for n, s := range maps.All(memory[f.j.Spec().ID]) {
				if at := n - h.number; at >= 0 && at < int64(len(want)) {
					want[at] = s
				}
			}
			if got := h.read(f); !slices.Equal(got, want) {
				t.Fatalf("at %v job %d had %v, remembered is %v", v.Now(), f.j.Spec().ID, want, got)
			}
		}
		holds := memory.holds(h, kept)
		if h.satisfy(kept) {
			replans++
		} else {
			before := h.books(kept)
			h.goOn(kept)
			for i, f := range kept {
				want := before[i]
				if holds {
					want = h.read(f)
				}
				if !slices.Equal(f.plan, want) {
					t.Fatalf("at %v job %d goes on with %v, want %v (the old plans hold: %t)", v.Now(), f.j.Spec().ID,
						f.plan, want, holds)
				}
			}
			if holds {
				keeps++
			}
		}
		slices.SortStableFunc(fresh, byDeadline)
		for _, f := range fresh {
			r.admit(h, &kept, f)
		}
		slices.SortStableFunc(kept, byDeadline)
		var late []*flow
		for i := range list {
			if list[i].accepted && list[i].deadline == 0 {
				late = append(late, &list[i])
			}
		}
		h.catchUp(late)
		h.speedUp(kept)
		memory.keep(h, kept)
		return planned(v, jobs)
	}
	for seed := uint64(20); seed < shared.Soak[uint64](35, 60); seed++ {
		clear(memory)
		playDeadlines(t, seed, &planning{pol, check})
	}
	if least := shared.Soak(350, 1000); replans < least || keeps < least/50 {
		t.Errorf("%d new plans, %d kept ones: the test tries too little", replans, keeps)
	}
}

// played is a job of playDeadlines.
type played struct {
	spec  cluster.Job
	left  time.Duration
	rate  int64
	since cluster.Time
}

// advance advances the job's remaining work to now.
func (j *played) advance(now cluster.Time) {
	d, rate := now.Sub(j.since), time.Duration(j.rate)
	j.left -= d/1_000_000*rate + d%1_000_000*rate/1_000_000
	j.since = now
}

// playDeadlines submits jobs with deadlines to two nodes of 8 GPUs; they end when their work is
// done, and nothing else takes time.
func playDeadlines(t *testing.T, seed uint64, pol sched.Policy) {
	e := newEngine("2x8xT4", "best-fit", pol)
	r, jobs, at := rand.New(rand.NewPCG(seed, 15)), make([]played, 40), cluster.Time(0)
	for i := range jobs {
		at = at.Add(time.Duration(r.IntN(240)) * time.Second)
		work := time.Duration(30+r.IntN(3000)) * time.Second
		s := cluster.Job{ID: cluster.JobID(i), Model: "a", Tier: cluster.Standard, Submit: at, Estimate: work,
			Tasks: cluster.GroupTasks(1+r.IntN(8), 8, cluster.Request{})}
		if r.IntN(3) == 0 {
			s.Tasks = []cluster.TaskSet{{Count: 1 + r.IntN(4), Request: cluster.Request{GPUs: 1 + r.IntN(3)}}}
			s.Elastic = cluster.Elastic{Min: 1, Max: 4}
		}
		s.Deadline = at.Add(work * time.Duration(10+r.IntN(60)) / 10)
		jobs[i] = played{spec: s, left: work}
	}
	next, wake, now := 0, cluster.Never, cluster.Time(0)
	for {
		at := wake
		if next < len(jobs) {
			at = min(at, jobs[next].spec.Submit)
		}
		for i := range jobs {
			if j := &jobs[i]; j.rate > 0 {
				at = min(at, j.since.Add((j.left*1_000_000+time.Duration(j.rate)-1)/time.Duration(j.rate)))
			}
		}
		if at == cluster.Never {
			return
		}
		now = max(now, at)
		var events []engine.Event
		for i := range jobs {
			j := &jobs[i]
			if j.advance(now); j.rate > 0 && j.left <= 0 {
				j.rate = 0
				events = append(events,
					engine.Event{Type: engine.Stopped, Job: j.spec.ID, Reason: engine.Completed, Done: j.spec.Estimate})
			}
		}
		for ; next < len(jobs) && jobs[next].spec.Submit <= now; next++ {
			events = append(events,
				engine.Event{Type: engine.Submitted, Job: jobs[next].spec.ID, Spec: &jobs[next].spec})
		}
		for first := true; first || len(events) > 0; first = false {
			d := e.Step(engine.Batch{Now: now, Events: events})
			events, wake = nil, d.WakeAt
			for _, a := range d.Actions {
				events = append(events, jobs[a.Job].carryOut(now, &a)...)
			}
		}
	}
}

// carryOut applies a decision of the engine at once and returns the resulting events.
func (j *played) carryOut(now cluster.Time, a *engine.Action) []engine.Event {
	j.advance(now)
	ev := engine.Event{Type: engine.Started, Job: a.Job}
	switch a.Type {
	case engine.Preempt:
		j.rate = 0
		return []engine.Event{{Type: engine.Stopped, Job: a.Job, Reason: a.Reason, Done: j.spec.Estimate - j.left}}
	case engine.Resize:
		ev.Type = engine.Resized
	case engine.Start:
	default:
		return nil
	}
	tasks := 0
	for i := range a.Allocs {
		tasks += int(a.Allocs[i].Tasks)
	}
	if j.rate = 1_000_000; len(j.spec.Tasks) == 1 {
		j.rate = j.rate * int64(tasks) / int64(j.spec.Tasks[0].Count)
	}
	ev.Rate = j.rate
	return []engine.Event{ev}
}

// A job that turns out to ignore checkpoints after its plan was made keeps running, even if that
// plan has a gap.
func TestFlowKeepsJobWithoutCheckpoints(t *testing.T) {
	pol := shared.Must(New("elasticflow"))
	r, planned, tried := &flowRules{slot: time.Minute}, pol.(*drawer).plan, 0
	playDeadlines(t, 20, &planning{pol, func(v sched.View, jobs []sched.JobView) sched.Plan {
		for _, j := range jobs {
			list := make([]flow, 1)
			claimAll(v, []sched.JobView{j}, func(int) *claim { return &list[0].claim })
			f, h := &list[0], r.horizon(v, list)
			if r.recall(h, f); !f.accepted || f.now == 0 || f.deadline < 2 {
				continue
			}
			f.solid, f.sizes = true, []int{f.now}
			f.gpus, f.rooms, f.classes, f.paces = []int{j.GPUs(f.now)}, []int{0}, f.classes[:1], []float64{1}
			f.left = min(f.left, 30)
			memo := j.Target().Memo
			j.Target().Memo = []int64{1, 0, h.number + 1, h.number + int64(f.deadline), 1}
			h.reckonWait(list, []*flow{f})
			h.empty()
			h.satisfy([]*flow{f})
			h.goOn([]*flow{f})
			if j.Target().Memo = memo; f.plan[0] != 1 {
				t.Fatalf("at %v job %d, which would lose its work, is to stop: %v", v.Now(), j.Spec().ID, f.plan)
			}
			tried++
		}
		return planned(v, jobs)
	}})
	if tried < 10 {
		t.Errorf("%d tried", tried)
	}
}
