package policy

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/engine"
	"github.com/muster-gpu/muster/engine/sched"
	"github.com/muster-gpu/muster/internal/shared"
	"github.com/muster-gpu/muster/quota"
)

// Astraea, TPDS'22, vector 1: quota 4, two jobs of 4 and 2 GPUs: each deserves two, the only job of
// the other tenant all four.
func TestDeserves(t *testing.T) {
	a, b := record{quota: 4, active: 2}, record{quota: 4, active: 1}
	for _, c := range []struct {
		t    record
		gpus int
		want int64
	}{{a, 4, 2000}, {a, 2, 2000}, {a, 1, 1000}, {b, 4, 4000}, {record{}, 4, 0}} {
		if got := c.t.deserves(c.gpus); got != c.want {
			t.Errorf("%+v, %d GPUs: %d, want %d", c.t, c.gpus, got, c.want)
		}
	}
	if got := quota.Work(a.deserves(4), 0, cluster.Time(10*time.Second)); got != 20*1000*1000 {
		t.Errorf("in ten seconds %d milli-GPU-milliseconds, want 20 GPU-seconds", got)
	}
}

// Astraea, TPDS'22, vector 1, to its end: two tenants of equal weight on eight GPUs, so a quota of
// four each. A has waiting jobs of four and two GPUs, B a running one of four. After ten seconds
// each of A's jobs has deserved 20 GPU-seconds and received none, F = 0; B's has deserved and
// received 40, F = 1.
func TestLongTermFairness(t *testing.T) {
	pol := shared.Must(New("astraea:tenant=user"))
	// With a delay F is computed for all jobs.
	rules := &astraeaRules{lease: 30 * time.Minute, window: 24 * time.Hour, starving: 4 * time.Hour, tenant: "user",
		delay: time.Nanosecond}
	looked := false
	plan := func(v sched.View, jobs []sched.JobView) sched.Plan {
		p := rules.plan(v, jobs)
		for i, j := range jobs {
			if j.Spec().User == "A" { // kept waiting by the test
				p.Targets[i].Idle, p.Targets[i].Memo = true, append([]int64{0, 0}, p.Targets[i].Memo[2:]...)
			}
		}
		if v.Now() == 0 {
			return p
		}
		looked = true
		list := make([]lessee, len(jobs))
		tenants := rules.recall(v, &astraeaRoom{}, v.Kinds(), jobs, list, nil, nil)
		rules.await(v, &astraeaRoom{}, tenants, list, 4, float64(meanWeight(v.Kinds())))
		for i, want := range []struct {
			deserved int64
			f        float64
		}{{20, 0}, {20, 0}, {40, 1}, {0, 0}} {
			l := &list[i]
			if d := tenants[l.tenant].deserved(l); d != want.deserved*gpuSecond || l.f != want.f {
				t.Errorf("job %d of %s: deserved %d, F %g, want %d GPU-seconds and %g", i, jobs[i].Spec().User, d, l.f,
					want.deserved, want.f)
			}
		}
		return p
	}
	e := newEngine("1x8xT4", "first-fit", &planning{pol, plan})
	submit := func(id cluster.JobID, now cluster.Time, user string, gpus int) engine.Event {
		return engine.Event{Type: engine.Submitted, Job: id,
			Spec: &cluster.Job{ID: id, Submit: now, User: user, Tier: cluster.Standard,
				Tasks: []cluster.TaskSet{{Count: 1, Request: cluster.Request{GPUs: gpus}}}}}
	}
	e.Step(engine.Batch{Events: []engine.Event{submit(0, 0, "A", 4), submit(1, 0, "A", 2), submit(2, 0, "B", 4)}})
	now := cluster.Time(10 * time.Second)
	e.Step(engine.Batch{Now: now, Events: []engine.Event{submit(3, now, "C", 1)}}) // a submission triggers a plan
	if !looked {
		t.Error("there was no second plan")
	}
}

// Astraea, TPDS'22, an invariant: a job that asks for more than its part is entitled to no more,
// and comes after, not before, one that ran as long and asks for less.
func TestAskingForMore(t *testing.T) {
	r, capped := rand.New(rand.NewPCG(2, 7)), 0
	for range 5000 {
		x := record{quota: r.IntN(20), active: 1 + r.IntN(6)}
		small := 1 + r.IntN(12)
		large, ran := small+1+r.IntN(12), int64(r.IntN(1000))
		f := func(gpus int) float64 {
			return longTerm(int64(gpus)*ran*gpuSecond, quota.Work(x.deserves(gpus), 0, cluster.Time(1000*time.Second)),
				1000)
		}
		a, b := lessee{id: 1, f: f(small)}, lessee{id: 0, f: f(large)}
		if most := int64(x.quota) * 1000 / int64(x.active); x.deserves(large) > most ||
			x.deserves(large) < x.deserves(small) {
			t.Fatalf("%+v: %d GPUs deserve %d, %d deserve %d", x, large, x.deserves(large), small, x.deserves(small))
		} else if int64(small)*1000 >= most && most > 0 && ran > 0 {
			if capped++; x.deserves(small) != x.deserves(large) || !a.Before(&b) || b.Before(&a) {
				t.Fatalf("%+v: F is %g of %d GPUs and %g of %d", x, a.f, small, b.f, large)
			}
		}
		if b.f < a.f*(1-1e-9) {
			t.Fatalf("%+v: F falls from %g to %g with %d GPUs instead of %d", x, a.f, b.f, large, small)
		}
	}
	if capped < 1000 {
		t.Errorf("%d of these ask for more than their part", capped)
	}
}

// Astraea, TPDS'22, vector 2: four GPUs are free, A holds nothing of its quota of four, which is
// less than a fifth: so it comes first, although it had more than B in the window, and its first
// job takes them all.
func TestStarvationGuard(t *testing.T) {
	tenants := func(held int) []*tenant {
		return []*tenant{
			{record: record{quota: 4}, held: 4, w: 100, u: 1, waiting: waitingFor(1)},
			{record: record{quota: 4}, held: held, w: 100, u: 99, waiting: waitingFor(4, 2)},
		}
	}
	if got, _ := (&astraeaRules{lease: time.Minute}).parts(tenants(0), 4); !slices.Equal(got, []int{0, 4}) {
		t.Errorf("parts %v, want 0 and 4", got)
	}
	// A quarter: past service decides.
	if got, _ := (&astraeaRules{lease: time.Minute}).parts(tenants(1), 4); !slices.Equal(got, []int{1, 2}) {
		t.Errorf("parts %v, want 1 and, where four do not fit any more, 2", got)
	}
}

// waitingFor is a line of jobs that wait for that many GPUs each.
func waitingFor(gpus ...int) (list []waitingLessee) {
	for i, g := range gpus {
		list = append(list, waitingLessee{&lessee{id: cluster.JobID(i), gpus: g}})
	}
	return list
}

// Astraea, TPDS'22, vector 3: a tenant that holds eight GPUs of a quota of four had twice its
// entitlement; only the last 24 hours count.
func TestWindow(t *testing.T) {
	const hour = cluster.Time(time.Hour)
	x := tenant{record: record{quota: 4}, each: 1000}
	x.pass(4000, 8000, 0, 3*hour, hour)
	x.startLease(3*hour, hour, 0)
	if got := x.had(); got != 2 {
		t.Errorf("%g, want 2", got)
	}
	x.pass(4000, 0, 3*hour, 25*hour+hour/2, hour)
	x.startLease(25*hour+hour/2, hour, 0)
	if got, want := x.had(), 2/23.5; len(x.parts) != 24 || got < want-1e-9 || got > want+1e-9 {
		t.Errorf("%d parts, %g, want %g", len(x.parts), got, want)
	}
	if x.startLease(26*hour, hour, 0); x.had() != 0 {
		t.Errorf("%g of what was more than a day ago", x.had())
	}
	x.accounts = []account{{1, 100}, {8, 300}}
	memo := memoOf(nil, 5,
		[]tenant{x, {record: record{key: 7, quota: 1, active: 2, service: 3000, accounts: []account{{2, 50}}}}})
	then, list := tenantsOf(&astraeaRoom{}, memo)
	if then != 5 || len(list) != 2 || !slices.Equal(list[0].parts, x.parts) || list[1].key != 7 ||
		list[1].service != 3000 || list[1].active != 2 || list[1].quota != 1 ||
		!slices.Equal(list[0].accounts, x.accounts) || !slices.Equal(list[1].accounts, []account{{2, 50}}) {
		t.Errorf("%v %+v", then, list)
	}
}

func TestFairnessClass(t *testing.T) {
	for _, c := range []struct {
		x    float64
		want int
	}{{0, 0}, {0.1, 1}, {0.5, 2}, {0.8, 2}, {0.95, 3}, {1.2, 3}, {2, 4}, {10, 5}} {
		if got := fairnessClass(c.x, 5); got != c.want {
			t.Errorf("%g: class %d, want %d", c.x, got, c.want)
		}
	}
}

// The phase ends: whatever tenants hold and are entitled to, each job is charged once, no more is
// given than is free, and what is left is too small for all waiting jobs.
func TestPartsEnd(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 3))
	for range 2000 {
		tenants := make([]*tenant, 1+r.IntN(4))
		for i := range tenants {
			tenants[i] = &tenant{record: record{quota: r.IntN(5)}, held: r.IntN(9), w: float64(r.IntN(3)),
				u: float64(r.IntN(3))}
			for k := range r.IntN(5) {
				tenants[i].waiting = append(tenants[i].waiting,
					waitingLessee{&lessee{id: cluster.JobID(k), gpus: 1 + r.IntN(6)}})
			}
		}
		free := r.IntN(12)
		left := free
		parts, _ := (&astraeaRules{lease: time.Minute}).parts(tenants, free)
		for _, p := range parts {
			left -= p
		}
		if left < 0 {
			t.Fatalf("%d are free, %d too many are given", free, -left)
		}
		for i := range tenants {
			for _, l := range tenants[i].waiting {
				if l.gpus <= left {
					t.Fatalf("%d GPUs are left, and %d are asked for", left, l.gpus)
				}
			}
		}
	}
}

// newQuotas is Astraea's first phase (TPDS'22) as published: what each tenant holds, plus one more
// job at a time of the tenant that has least, by a search among all.
func newQuotas(tenants []tenant, free int, lease time.Duration) []int {
	list, queues := make([]int, len(tenants)), make([][]*lessee, len(tenants))
	for i := range tenants {
		t := &tenants[i]
		list[i] = t.held
		for _, w := range t.waiting {
			queues[i] = append(queues[i], w.lessee)
		}
		slices.SortFunc(queues[i], func(a, b *lessee) int {
			if a.Before(b) {
				return -1
			}
			return 1
		})
	}
	for {
		now, ever := -1, -1
		for _, t := range inLine(&astraeaRoom{}, tenants) {
			i := slices.IndexFunc(tenants, func(o tenant) bool { return o.key == t.key })
			if !slices.ContainsFunc(queues[i], func(l *lessee) bool { return l.gpus <= free }) {
				continue
			}
			over := func(k int) float64 { return float64(list[k]) / float64(tenants[k].quota) }
			if now < 0 || over(i) < over(now) {
				now = i
			}
			if ever < 0 || t.had() < tenants[ever].had() {
				ever = i
			}
		}
		if now < 0 {
			return list
		}
		i := ever
		if float64(list[now])/float64(tenants[now].quota) < 0.2 {
			i = now
		}
		at := slices.IndexFunc(queues[i], func(l *lessee) bool { return l.gpus <= free })
		g := queues[i][at].gpus
		queues[i] = slices.Delete(queues[i], at, at+1)
		list[i], free = list[i]+g, free-g
		tenants[i].u += float64(quota.Work(int64(g)*tenants[i].each, 0, cluster.Time(lease)))
	}
}

// Astraea's invariants (TPDS'22): quotas sum up to no more than the cluster; what a tenant has on
// lease never exceeds its part of the round (newq) at launch, and what it then runs does not exceed
// that either.
func TestUsedWithinQuota(t *testing.T) {
	pol := shared.Must(New("astraea:lease=10m,starving=20m,tenant=user"))
	rules := &astraeaRules{lease: 10 * time.Minute, window: 24 * time.Hour, starving: 20 * time.Minute, tenant: "user"}
	const gpus = 40 // of playPlans
	last, launches, full := map[string]int{}, 0, 0
	playPlans(t, func(v sched.View, jobs []sched.JobView) sched.Plan {
		runs := map[string]int{}
		for _, j := range jobs {
			if n, _, _ := j.Tasks(); j.Running() {
				runs[j.Spec().User] += j.GPUs(n)
			}
		}
		for user, n := range runs {
			if n > last[user] {
				t.Errorf("%v: %s runs on %d GPUs, its part of the last round was %d", v.Now(), user, n, last[user])
			}
		}
		list := make([]lessee, len(jobs))
		tenants := rules.recall(v, &astraeaRoom{}, v.Kinds(), jobs, list, nil, nil)
		quotas, free := 0, gpus
		for i := range tenants {
			quotas += tenants[i].quota
		}
		for i := range list {
			if l := &list[i]; l.until > 0 {
				tenants[l.tenant].held += l.gpus
				free -= l.gpus
			}
		}
		rules.await(v, &astraeaRoom{}, tenants, list, free, 1000)
		newq := newQuotas(tenants, free, rules.lease)
		p := rules.plan(v, jobs)
		used, sum := make([]int, len(tenants)), 0
		for i := range p.Targets {
			if l := &list[i]; !p.Targets[i].Idle {
				used[l.tenant] += l.gpus
				sum += l.gpus
				if l.until == 0 {
					launches++
				}
			}
		}
		if quotas > gpus || sum > gpus {
			t.Errorf("%v: quotas of %d GPUs, %d on lease; there are %d", v.Now(), quotas, sum, gpus)
		}
		for i := range list {
			last[jobs[i].Spec().User] = newq[list[i].tenant]
		}
		for k := range used {
			if used[k] != newq[k] { // without block every part is also used
				t.Errorf("%v: tenant %d has %d GPUs on lease, its part is %d", v.Now(), k, used[k], newq[k])
			}
		}
		if sum == gpus {
			full++
		}
		return p
	}, pol, func(r *rand.Rand, _ cluster.Time) cluster.Job {
		return cluster.Job{Name: "j", Tier: cluster.Standard, User: string(rune('a' + r.IntN(4)*r.IntN(2))),
			Tasks: []cluster.TaskSet{{Count: 1, Request: cluster.Request{GPUs: 1 + r.IntN(5)}}}}
	})
	if launches < 200 || full < 50 {
		t.Errorf("%d launches, all on lease after %d plans: this tries little", launches, full)
	}
}

// A job that moves to another tenant keeps its lease and what it has deserved; from then on it
// deserves what that tenant's jobs do.
func TestMovedToAnotherTenant(t *testing.T) {
	pol := shared.Must(New("astraea:lease=10m,tenant=user"))
	rules, moved := &astraeaRules{lease: 10 * time.Minute, window: 24 * time.Hour, tenant: "user"}, 0
	playPlans(t, func(v sched.View, jobs []sched.JobView) sched.Plan {
		for _, j := range jobs {
			if was := j.Target(); was != nil && was.Memo[2] > 0 && moved < 100 {
				moved++
				to := tenant{record: record{key: 1}}
				to.account(j.GPUs(1)).sum = 500
				l := lessee{j: j}
				to.recall(&l)
				to.account(j.GPUs(1)).sum += 7
				if int64(l.until) != was.Memo[0] || int64(l.began) != was.Memo[1] || to.deserved(&l) != was.Memo[2]+7 {
					t.Errorf("lease %v to %v and %d deserved of %v", l.began, l.until, to.deserved(&l), was.Memo)
				}
			}
		}
		return rules.plan(v, jobs)
	}, pol, func(r *rand.Rand, _ cluster.Time) cluster.Job {
		return cluster.Job{Name: "j", Tier: cluster.Standard, User: "u",
			Tasks: []cluster.TaskSet{{Count: 1, Request: cluster.Request{GPUs: 1 + r.IntN(5)}}}}
	})
	if moved < 100 {
		t.Errorf("only %d jobs moved", moved)
	}
}
