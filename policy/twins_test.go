package policy

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/engine"
	"github.com/muster-gpu/muster/engine/sched"
	"github.com/muster-gpu/muster/internal/shared"
	placing "github.com/muster-gpu/muster/place"
)

// pairSpeeds is a test's model of speeds: linear in size, and given for pairs of models.
type pairSpeeds struct{}

func (pairSpeeds) Speed(j *cluster.Job, _ string, tasks int) int64 {
	return 1_000_000 * int64(tasks) / int64(j.Tasks[0].Count)
}

func (pairSpeeds) Slice(*cluster.Job, string, string, int64) int64 { return 1_000_000 }

func (pairSpeeds) Beside(j *cluster.Job, _ string, others []*cluster.Job) int64 {
	left := int64(1_000_000)
	for _, o := range others {
		left = left * (1000 - 20*int64(j.Model[0]-'a') - 15*int64(o.Model[0]-'a')) / 1000
	}
	return left
}

func newEngine(size, placer string, pol sched.Policy) *engine.Engine {
	return shared.Must(engine.New(engine.Config{Spec: *shared.Must(cluster.ParseShort(size)), Policy: pol,
		Placer: shared.Must(placing.New(placer)), Speeds: pairSpeeds{}}))
}

// playPlans submits jobs to a cluster of 40 GPUs and ends them again, under a policy that plans.
func playPlans(t *testing.T, plan func(v sched.View, jobs []sched.JobView) sched.Plan, p sched.Policy,
	job func(r *rand.Rand, now cluster.Time) cluster.Job) {
	e := newEngine("5x8xA100-80GB", "first-fit", &planning{p, plan})
	r, now, running := rand.New(rand.NewPCG(8, 9)), cluster.Time(0), []cluster.JobID(nil)
	for id := range cluster.JobID(250) {
		j := job(r, now)
		j.ID, j.Submit = id, now
		events := []engine.Event{{Type: engine.Submitted, Job: id, Spec: &j}}
		if len(running) > 12 {
			i := r.IntN(len(running))
			events = append(events, engine.Event{Type: engine.Stopped, Job: running[i], Reason: engine.Completed})
			running = slices.Delete(running, i, i+1)
		}
		for len(events) > 0 {
			d := e.Step(engine.Batch{Now: now, Events: events})
			events = nil
			for _, a := range d.Actions {
				switch a.Type {
				case engine.Start:
					events, running = append(events, engine.Event{Type: engine.Started, Job: a.Job}),
						append(running, a.Job)
				case engine.Preempt:
					running = slices.DeleteFunc(running, func(id cluster.JobID) bool { return id == a.Job })
					events = append(events, engine.Event{Type: engine.Stopped, Job: a.Job, Reason: engine.Preempted})
				case engine.Resize:
					events = append(events, engine.Event{Type: engine.Resized, Job: a.Job})
				case engine.Reject:
				}
			}
		}
		now = now.Add(time.Duration(r.IntN(200)) * time.Second)
	}
}

// planning is a policy whose plans are made by a test.
type planning struct {
	sched.Policy
	plan func(v sched.View, jobs []sched.JobView) sched.Plan
}

func (p *planning) Plan(v sched.View, jobs []sched.JobView) sched.Plan { return p.plan(v, jobs) }

// antPlain is antman's host without its caches.
func antPlain(p *antPlan, i int) int {
	best, most := -1, int64(0)
	j := p.jobs[i]
	for k := range p.hosts {
		h := &p.hosts[k]
		if h.gpus != j.Spec().GPUs() || int64(len(h.guests)) >= p.guests ||
			h.memory < j.Spec().Tasks[0].Request.Memory {
			continue
		}
		if left := p.judge(h, j); left != forbidden && (best < 0 || left > most) {
			best, most = k, left
		}
	}
	return best
}

// Antman finds the same hosts as without its caches per kind, with many guests and few, throttled
// or not.
func TestAntmanTwin(t *testing.T) {
	found, vain := 0, 0
	for _, spec := range []string{"antman", "antman:guests=7,eps=0.3", "antman:throttle=true,eps=0.1"} {
		pol := shared.Must(New(spec))
		a := pol.(*antmanRules)
		playPlans(t, func(v sched.View, jobs []sched.JobView) sched.Plan {
			b, line := a.board(v, jobs, make([]sched.Target, len(jobs)))
			for _, i := range line {
				k, want := b.host(i), antPlain(b, i)
				if k != want {
					t.Fatalf("%s: job %d is put beside %d, want %d", spec, i, k, want)
				}
				if k < 0 {
					vain++
					continue
				}
				found++
				b.join(&b.hosts[k], jobs[i])
				b.taken = append(b.taken, k)
			}
			return a.plan(v, jobs)
		}, pol, func(r *rand.Rand, _ cluster.Time) cluster.Job {
			return cluster.Job{Name: "j", Model: string(rune('a' + r.IntN(4))),
				Tier: []cluster.Tier{cluster.Standard, cluster.BestEffort, cluster.BestEffort}[r.IntN(3)],
				Tasks: []cluster.TaskSet{
					{Count: 1, Request: cluster.Request{GPUs: 1 << r.IntN(3), Memory: cluster.MiB(1024 * r.IntN(20))}}},
				Estimate: time.Hour}
		})
	}
	if found < 200 || vain < 50 {
		t.Errorf("%d found a host, %d none: the test tries too little", found, vain)
	}
}

// Elasticflow speeds up the jobs that it would if all candidates were computed again at each step.
func TestSpeedUpTwin(t *testing.T) {
	pol := shared.Must(New("elasticflow"))
	r := &flowRules{slot: time.Minute}
	planned := pol.(*drawer).plan
	more := 0
	playPlans(t, func(v sched.View, jobs []sched.JobView) sched.Plan {
		kept := func() (*horizon, []*flow) {
			list := make([]flow, len(jobs))
			claimAll(v, jobs, func(i int) *claim { return &list[i].claim })
			h, some := r.horizon(v, list), []*flow(nil)
			for i := range list {
				if r.recall(h, &list[i]); list[i].accepted {
					some = append(some, &list[i])
				}
			}
			h.reckonWait(list, some)
			h.empty()
			h.satisfy(some)
			return h, some
		}
		h, got := kept()
		h.speedUp(got)
		h, want := kept()
		for {
			var best *flow
			var plan []int
			most := math.Inf(-1)
			for _, f := range want {
				if larger, gain, ok := h.larger(f); ok && gain > most {
					best, plan, most = f, larger, gain
				}
			}
			if best == nil {
				break
			}
			h.take(best, best.plan, -1)
			best.plan = plan
			h.take(best, best.plan, 1)
			more++
		}
		for i := range want {
			if !slices.Equal(got[i].plan, want[i].plan) {
				t.Fatalf("at %v job %d is to have %v, want %v", v.Now(), want[i].j.Spec().ID, got[i].plan, want[i].plan)
			}
		}
		return planned(v, jobs)
	}, pol, func(r *rand.Rand, now cluster.Time) cluster.Job {
		n, work := 1+r.IntN(4), time.Duration(1+r.IntN(60))*time.Minute
		return cluster.Job{Name: "j", Model: "a",
			Tasks:   []cluster.TaskSet{{Count: n, Request: cluster.Request{GPUs: 1 + r.IntN(2)}}},
			Elastic: cluster.Elastic{Min: 1, Max: 2 * n}, Estimate: work,
			Deadline: now.Add(work + time.Duration(r.Int64N(int64(3*work))))}
	})
	if more < 100 {
		t.Errorf("%d steps: this tries little", more)
	}
}

// Afs gives each step to the job that is left when all are compared again.
func TestAFSTwin(t *testing.T) {
	pol := shared.Must(New("afs"))
	steps := 0
	playPlans(t, func(v sched.View, jobs []sched.JobView) sched.Plan {
		got, want := slices.Clone(claims(v, jobs)), claims(v, jobs)
		afsSizes(v, got, totalGPUs(v))
		free := totalGPUs(v)
		idle, served := shortestFirst(want), []*claim(nil)
		for free > 0 {
			for len(idle) > 0 && idle[0].stepGPUs() > free {
				idle = idle[1:]
			}
			var best *claim
			if len(idle) > 0 {
				best = idle[0]
			}
			for _, c := range served {
				if n, g := c.next(); n > 0 && g <= free && (best == nil || afsPrefers(v, c, best)) {
					best = c
				}
			}
			if best == nil {
				break
			}
			n, g := best.next()
			if best.tasks == 0 {
				idle, served = idle[1:], append(served, best)
			} else {
				steps++
			}
			best.tasks = n
			free -= g
		}
		for i := range want {
			if got[i].tasks != want[i].tasks {
				t.Fatalf("at %v job %d is to have %d tasks, want %d", v.Now(), want[i].j.Spec().ID, got[i].tasks,
					want[i].tasks)
			}
		}
		return pol.(*planner).plan(v, jobs)
	}, pol, func(r *rand.Rand, _ cluster.Time) cluster.Job {
		n := 1 + r.IntN(3)
		return cluster.Job{Name: "j", Model: "a", Tier: cluster.Standard,
			Tasks:    []cluster.TaskSet{{Count: n, Request: cluster.Request{GPUs: 1}}},
			Elastic:  cluster.Elastic{Min: 1 + r.IntN(n), Max: 8 * n},
			Estimate: time.Duration(1+r.IntN(60)) * time.Minute}
	})
	if steps < 500 {
		t.Errorf("%d steps: this tries little", steps)
	}
}

// afsPrefers reports whether y gets the next GPUs rather than x, as the paper has it.
func afsPrefers(v sched.View, y, x *claim) bool {
	if x.tasks == 0 && y.tasks == 0 {
		return y.left < x.left
	}
	short, long := x, y
	if y.length(v) < x.length(v) {
		short, long = y, x
	}
	if short.tasks == 0 {
		return y == short // only an idle job never ends: both are idle
	}
	after, gainLong := long.gain(v)
	_, gainShort := short.gain(v)
	if gainLong/after > gainShort/short.speed(v, short.tasks) {
		return y == long
	}
	return y == short
}
