package policy

import (
	"cmp"
	"math"
	"slices"
	"time"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/engine/sched"
)

var hypersched = Info{
	Name: "hypersched",
	About: "trials of a search that ends at a deadline: first each runs until it can be judged, then the best, by priority, " +
		"get the number of GPUs with which they get furthest by then",
	Source: "HyperSched (SoCC'19), reconstructed",
	Needs:  "deadlines, priorities (how good a trial is: higher is better), elastic jobs, speeds by size (else linear)",
	Trials: []Trial{{Given: Deadlines | Elastic | Short}},
	Knobs: []Knob{
		{"rung", "10m", "work after which a trial can be judged; 0s: from the start"},
		{"explore", "0.5", "fraction of the time from submission to deadline in which new trials may start"},
		{"overhead", "20s", "assumed cost of a start or a change of size"},
		{"hold", "1m", "how long a trial is left alone after a start or a change of size"},
		{"check", "1m", "interval between plans; there is also one when jobs come or end"},
	},
	New: newHyperSched,
}

type hyperRules struct {
	rung, overhead, hold, check time.Duration
	explore                     float64
}

func newHyperSched(k *Knobs) sched.Policy {
	r := &hyperRules{rung: k.duration("rung", 0), overhead: k.duration("overhead", 0), hold: k.duration("hold", 0),
		check: k.duration("check", time.Second), explore: k.float("explore", 0, 1)}
	return &drawer{
		planner: planner{name: k.label(), plan: r.plan,
			traits: sched.Traits{Preempts: true, Backfill: sched.Skip, Gated: true, Anywhere: true}},
		pool: hyperPool, nothing: always(sched.Target{Rank: 1, Idle: true, Memo: []int64{0, 0}}),
	}
}

// trial is a job during a plan.
type trial struct {
	claim
	since cluster.Time  // start of its present size
	time  time.Duration // until its deadline; 0: it has none, or it has passed
}

func (r *hyperRules) plan(v sched.View, jobs []sched.JobView) sched.Plan {
	list := sched.Scratch[trial](v, len(jobs))
	claimAll(v, jobs, func(i int) *claim { return &list[i].claim })
	free := totalGPUs(v)
	var young, judged []*trial
	var others []*claim
	for i := range list {
		t := &list[i]
		switch r.recall(v, t); {
		case t.now > 0 && (stays(t.j) || v.Now().Sub(t.since) < r.hold):
			t.tasks = t.now
			free -= t.j.GPUs(t.now)
		case t.time <= 0:
			others = append(others, &t.claim)
		case t.j.Done() >= r.rung:
			judged = append(judged, t)
		case r.enters(v, t):
			young = append(young, t)
		default:
			others = append(others, &t.claim)
		}
	}
	slices.SortStableFunc(young, func(a, b *trial) int {
		return otherTrials(&a.claim, &b.claim)
	})
	for _, t := range young {
		if g := t.j.GPUs(t.least); g <= free {
			t.tasks = t.least
			free -= g
		}
	}
	slices.SortStableFunc(judged, func(a, b *trial) int { return better(&a.claim, &b.claim) })
	for _, t := range judged {
		t.tasks = r.furthest(v, t, free)
		free -= t.j.GPUs(t.tasks)
	}
	for _, c := range handOut(v, others, free, func(*claim, int) bool { return true }, otherTrials) {
		list = append(list, trial{claim: *c})
	}
	return r.targets(v, list)
}

// better orders trials by priority, then by progress.
func better(a, b *claim) int {
	return cmp.Or(cmp.Compare(b.j.Spec().Priority, a.j.Spec().Priority), cmp.Compare(b.j.Done(), a.j.Done()),
		cmp.Compare(a.j.Spec().Submit, b.j.Spec().Submit))
}

// recall sets how long a trial has had its size, and the time to its deadline.
func (r *hyperRules) recall(v sched.View, t *trial) {
	t.since = v.Now()
	if old := t.j.Target(); old == nil || len(old.Memo) != 2 {
		t.since = t.j.Started()
	} else if int(old.Memo[0]) == t.now {
		t.since = cluster.Time(old.Memo[1])
	}
	if d := t.j.Spec().Deadline; d > v.Now() {
		t.time = d.Sub(v.Now())
	}
}

// enters reports whether a trial that cannot be judged yet may start or stay: it must be able to
// reach the rung by its deadline.
func (r *hyperRules) enters(v sched.View, t *trial) bool {
	spec := t.j.Spec()
	if t.now == 0 && t.j.Done() == 0 &&
		float64(v.Now().Sub(spec.Submit)) > r.explore*float64(spec.Deadline.Sub(spec.Submit)) {
		return false
	}
	missing := r.rung - t.j.Done()
	if spec.Estimate > 0 {
		missing = min(missing, spec.Estimate-t.j.Done())
	}
	return r.reach(v, t, t.least) >= missing.Seconds()
}

// reach is the work that a trial can do by its deadline with so many tasks, in seconds at the
// reference speed: thr(k) * (D - now - overhead), without the overhead at its present size.
func (r *hyperRules) reach(v sched.View, t *trial, tasks int) float64 {
	left := t.time
	if tasks != t.now {
		left -= r.overhead
	}
	return max(0, left.Seconds()) * t.speed(v, tasks)
}

// furthest is the size, among those that fit, with which a trial gets the most work done by its
// deadline; with equal work the smallest. 0: none fits, or none makes progress.
func (r *hyperRules) furthest(v sched.View, t *trial, free int) (best int) {
	most := 0.0
	for n := t.least; n <= t.most && t.j.GPUs(n) <= free; n++ {
		work := r.reach(v, t, n)
		if t.j.Spec().Estimate > 0 {
			// No gain beyond the end of the job; at least 1 ms, since it may exceed its estimate.
			work = min(work, max(t.left, 1e-3))
		}
		if work > most*(1+1e-9) {
			best, most = n, work
		}
	}
	return best
}

// otherTrials orders the trials that get what is left, each its least, then more: running ones
// first, then by submission.
func otherTrials(a, b *claim) int {
	return cmp.Or(-compareBool(a.now > 0, b.now > 0), cmp.Compare(a.j.Spec().Submit, b.j.Spec().Submit), better(a, b),
		cmp.Compare(a.left, b.left))
}

// hyperPool keeps waiting jobs without a deadline in pools by priority.
func hyperPool(_ sched.View, j sched.JobView) (class int64, at sched.Key, ok bool) {
	s := j.Spec()
	return s.Priority, sched.Key{int64(s.Submit), -int64(j.Done()), int64(math.Float64bits(workLeft(j)))},
		s.Deadline == 0
}

// targets makes targets of trials. No deadline is promised: what counts is the progress at the
// deadline.
func (r *hyperRules) targets(v sched.View, list []trial) sched.Plan {
	p := sched.Plan{Next: cluster.Never, Targets: v.Targets(len(list))}
	memos := make([]int64, 2*len(list))
	for i := range list {
		t := &list[i]
		if t.tasks != t.now {
			t.since = v.Now()
		}
		memo := memos[2*i : 2*i+2 : 2*i+2]
		memo[0], memo[1] = int64(t.tasks), int64(t.since)
		goal := sched.Target{Rank: 1, Tasks: t.tasks, Least: t.tasks, Idle: t.tasks == 0, Memo: memo}
		if t.time > 0 {
			goal.Rank = 0
			p.Next = v.Now().Add(r.check)
		}
		if stays(t.j) {
			goal.Rank = -1 // trials cannot take its GPUs
		}
		if t.j.Spec().Deadline > 0 {
			goal.Deadline = sched.DeadlineDeclined
		}
		p.Targets[i] = goal
	}
	return p
}
