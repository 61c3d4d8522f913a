package policy

import (
	"cmp"
	"math"
	"slices"
	"time"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/engine/sched"
	"github.com/muster-gpu/muster/quota"
	"github.com/muster-gpu/muster/solve"
)

var themis = Info{
	Name: "themis",
	About: "finish-time fairness: the jobs that do worst against a private share of the cluster bid for the free GPUs; " +
		"what they win is leased",
	Source: "Themis (NSDI'20); each job is an app of its own",
	Needs:  "run times (else twice what was done, an hour at least), speeds by size for elastic jobs",
	Trials: []Trial{
		{Given: Estimates | Short},
		{Knobs: "fairness=0.5", Given: Estimates | Short},
	},
	Knobs: []Knob{
		{"lease", "20m", "how long a job keeps what it won"},
		{"fairness", "0.8", "fraction of the jobs without a lease that stay out of an auction: more is fairer, less lets bids match better"},
	},
	New: newThemis,
}

type themisRules struct {
	lease time.Duration
	f     float64
}

func newThemis(k *Knobs) sched.Policy {
	r := &themisRules{lease: k.duration("lease", time.Second), f: k.float("fairness", 0, 1)}
	return &planner{name: k.label(), traits: sched.Traits{Backfill: sched.Skip, Gated: true, Anywhere: true},
		plan: r.plan}
}

// app is a job without a lease during an auction. It has no pointers, so that the garbage collector
// need not scan the many apps.
type app struct {
	at          int          // index into the plan's jobs
	least, most int          // tasks
	gpus        int          // GPUs of its least
	submit      cluster.Time // submission
	left        float64      // work, in seconds at the reference speed
	fast        float64      // speed at its most
	elapsed     float64      // seconds since its submission
	ideal       float64      // run time with a private share, in seconds
	rho         float64      // without GPUs until the next lease; NaN: unknown
	won         tenure
}

// market is memory reused from plan to plan.
type market struct {
	apps   []app
	line   []solve.Want // the apps, by rho
	memos  []int64
	offers []offer
	bids   [][]offer
	steps  []step
	at     [2][]int // chosen offers: with all bids, and without one
	won    []win
}

// tenure is what a job holds on lease.
type tenure struct {
	tasks, least int          // an elastic job may shrink to least
	until        cluster.Time // 0: no lease
}

// offer is a possible size of an app and its value to it.
type offer struct {
	tasks, gpus int
	value       float64 // 1/rho
}

func (r *themisRules) plan(v sched.View, jobs []sched.JobView) sched.Plan {
	now, activity, kinds := v.Now(), int64(0), v.Kinds()
	free := allGPUs(kinds)
	if m := v.Memo(); len(m) == 3 { // the number of apps is constant between two plans
		activity = m[2] + quota.Work(m[1], cluster.Time(m[0]), now)
	}
	p := sched.Plan{Next: cluster.Never, Memo: []int64{int64(now), int64(len(jobs)), activity},
		Targets: v.Targets(len(jobs))}
	m := sched.Memory[market](v)
	m.apps, m.memos = m.apps[:0], m.memos[:0]
	for i, j := range jobs {
		l := leased(j, now)
		if l.until == 0 {
			m.apps = append(m.apps, app{at: i})
			continue
		}
		t := &p.Targets[i]
		t.Tasks, t.Least, t.Memo = l.tasks, l.least, m.memo(j, l.until, activity)
		p.Next = min(p.Next, l.until)
		free -= j.GPUs(l.tasks)
	}
	if free > 0 {
		for i := range m.apps {
			r.rate(v, kinds, &m.apps[i], jobs, activity)
		}
		r.sell(v, kinds, m, jobs, free)
	}
	for i := range m.apps {
		a := &m.apps[i]
		t, j := &p.Targets[a.at], jobs[a.at]
		_, t.Least, _ = j.Tasks()
		t.Tasks, t.Idle, t.Memo = a.won.tasks, a.won.until == 0, m.memo(j, a.won.until, activity)
		if a.won.until > 0 {
			p.Next = min(p.Next, a.won.until)
		}
	}
	return p
}

// leased is what a job holds on lease.
func leased(j sched.JobView, now cluster.Time) tenure {
	running, least, _ := j.Tasks()
	switch t := j.Target(); {
	case running == 0:
	case stays(j):
		return tenure{running, running, cluster.Never}
	case t != nil && len(t.Memo) == 2 && cluster.Time(t.Memo[0]) > now:
		return tenure{running, least, cluster.Time(t.Memo[0])}
	}
	return tenure{}
}

// memo is a job's memo: the end of its lease, and the activity at its first plan (this one if there
// was none). While nothing changes the old memo is returned.
func (m *market) memo(j sched.JobView, until cluster.Time, activity int64) []int64 {
	if t := j.Target(); t != nil && len(t.Memo) == 2 {
		if activity = t.Memo[1]; t.Memo[0] == int64(until) {
			return t.Memo
		}
	}
	from := len(m.memos)
	m.memos = append(m.memos, int64(until), activity)
	return m.memos[from:]
}

// sell leases the free GPUs: by auction among the jobs that are worst off, then to jobs for which
// the rest suffices.
func (r *themisRules) sell(v sched.View, kinds []sched.Kind, m *market, jobs []sched.JobView, free int) {
	m.line = m.line[:0]
	for i := range m.apps {
		a := &m.apps[i]
		m.line = append(m.line, solve.Want{Worth: a.rho, Since: int64(a.submit), At: int32(i), GPUs: int32(a.gpus)})
		if math.IsNaN(a.rho) {
			m.line[i].Worth = -1 // unknown rho: it comes last
		}
	}
	n := r.bidders(len(m.line))
	solve.Line(m.line, n)
	asked, bare := m.line[:n], m.line[n:]
	m.offers, m.bids = m.offers[:0], m.bids[:0]
	for i := range asked {
		n, a := len(m.offers), &m.apps[asked[i].At]
		m.offers = a.bid(v, kinds, jobs[a.at], m.offers)
		m.bids = append(m.bids, m.offers[n:len(m.offers):len(m.offers)])
	}
	for i, w := range m.auction(m.bids, free) {
		a := &m.apps[asked[i].At]
		free -= r.grant(v, jobs[a.at], a, m.bids[i][w.offer], w.kept)
	}
	// Work-conserving: first the jobs outside the auction, then the others.
	for _, part := range [][]solve.Want{bare, asked} {
		free = r.leave(v, m, jobs, part, free)
	}
}

// leave leases the rest to jobs of a list for which it suffices, worst off first, and returns what
// is left.
func (r *themisRules) leave(v sched.View, m *market, jobs []sched.JobView, list []solve.Want, free int) int {
	open := list[:0]
	for _, w := range list {
		if a := &m.apps[w.At]; a.won.until == 0 && a.least > 0 {
			open = append(open, w)
		}
	}
	served, left := solve.Serve(open, free)
	for _, w := range open[:served] {
		a := &m.apps[w.At]
		r.grant(v, jobs[a.at], a, offer{tasks: a.least, gpus: a.gpus}, 1)
	}
	return left
}

// bidders is the number of n jobs without a lease that take part in the auction: the share 1 -
// fairness, at least one.
func (r *themisRules) bidders(n int) int {
	share := (1 - r.f) * float64(n)
	if near := math.Round(share); math.Abs(share-near) < 1e-6 {
		share = near // ignore rounding errors
	}
	return min(n, max(1, int(math.Ceil(share))))
}

// rate computes an app's rho: its run time with nothing until the next lease over that with a
// private share of the cluster. activity is the number of active apps, integrated from time 0 until
// now, in ms.
func (r *themisRules) rate(v sched.View, kinds []sched.Kind, a *app, jobs []sched.JobView, activity int64) {
	j := jobs[a.at]
	spec, done := j.Spec(), j.Done().Seconds()
	if a.left = workLeft(j); spec.Estimate == 0 {
		a.left = max(done, equalWork-done)
	}
	_, a.least, a.most = j.Tasks()
	a.gpus, a.submit = j.GPUs(a.least), spec.Submit
	a.fast = a.speed(v, kinds, j, a.most)
	age := v.Now().Sub(spec.Submit)
	a.elapsed = age.Seconds()
	n, since := float64(len(jobs)), activity
	if t := j.Target(); t != nil && len(t.Memo) == 2 {
		since = t.Memo[1] // the activity at its first plan
	}
	if ms := age.Milliseconds(); ms > 0 && activity > since {
		n = max(1, float64(activity-since)/float64(ms))
	}
	a.ideal = max(finishAlone(a.left+done, a.fast, n), 1e-3)
	a.rho = (a.elapsed + r.lease.Seconds() + a.left/a.fast) / a.ideal
}

// speed is an app's speed with so many tasks, like claim.speed.
func (a *app) speed(v sched.View, kinds []sched.Kind, j sched.JobView, tasks int) float64 {
	if tasks == 0 {
		return 0
	}
	return float64(v.Speed(j, modelFor(v, kinds, j), tasks)) / 1e6
}

// finishAlone is T_id: the run time of the whole work on all GPUs that the job can use, times the
// number of apps that share the cluster.
func finishAlone(work, speed, apps float64) float64 { return work / speed * apps }

// bid appends an app's table to a list: each possible size, the empty one first.
func (a *app) bid(v sched.View, kinds []sched.Kind, j sched.JobView, list []offer) []offer {
	list = append(list, offer{value: 1 / a.rho})
	for n := a.least; n <= a.most; n++ {
		speed := a.fast
		if n < a.most {
			speed = a.speed(v, kinds, j, n)
		}
		rho := (a.elapsed + a.left/speed) / a.ideal
		list = append(list, offer{n, j.GPUs(n), 1 / max(rho, 1e-9)})
	}
	return list
}

// grant leases an app what it won, reduced to the part that it keeps: an elastic job keeps that
// part of its tasks, a gang, which cannot be divided, that part of the time. It returns the GPUs.
func (r *themisRules) grant(v sched.View, j sched.JobView, a *app, o offer, kept float64) int {
	if o.tasks == 0 {
		return 0
	}
	lease := r.lease
	if n := int(kept*float64(o.tasks) + 1e-9); n >= a.least && a.least < a.most {
		o.tasks = n
	} else {
		lease = max(lease/8, time.Duration(kept*float64(lease)))
	}
	a.won = tenure{o.tasks, a.least, leaseEnd(v.Now(), lease, r.lease)}
	return j.GPUs(o.tasks)
}

// win is an app's part of a proportionally fair allocation, and the share of it that is kept after
// the hidden payment.
type win struct {
	offer int
	kept  float64 // 0 < kept <= 1
}

// auction is the partial allocation mechanism: it maximises the product of the values, and each
// winner keeps the fraction that the others retain in its presence: prod V_j(pf) / prod V_j(pf
// without i), over j other than i.
func (m *market) auction(bids [][]offer, free int) []win {
	combinations := 1
	for i := range bids {
		if combinations <= exactly {
			combinations *= len(bids[i])
		}
	}
	choose := func(but int, _ []int) []int { return fairest(bids, free, but) }
	if combinations > exactly {
		m.steps = stepsOf(m.steps[:0], bids, free)
		choose = func(but int, at []int) []int { return greedily(m.steps, len(bids), free, but, at) }
	}
	m.at[0] = choose(-1, m.at[0])
	m.won = m.won[:0]
	pf := m.at[0]
	for i := range bids {
		w := win{pf[i], 1}
		if pf[i] > 0 {
			m.at[1] = choose(i, m.at[1])
			without, log := m.at[1], 0.0
			for j := range bids {
				if j != i && pf[j] != without[j] {
					log += math.Log(bids[j][pf[j]].value) - math.Log(bids[j][without[j]].value)
				}
			}
			w.kept = min(1, math.Exp(log))
		}
		m.won = append(m.won, w)
	}
	return m.won
}

// exactly is the largest number of combinations of offers that are enumerated.
const exactly = 4096

// fairest chooses an offer of each bid except one (-1: of each) so that the product of their values
// is largest.
func fairest(bids [][]offer, free, but int) []int {
	now, best, most := make([]int, len(bids)), make([]int, len(bids)), math.Inf(-1)
	logs := make([][]float64, len(bids))
	for i := range bids {
		for _, o := range bids[i] {
			logs[i] = append(logs[i], math.Log(o.value))
		}
	}
	var try func(i, left int, log float64)
	try = func(i, left int, log float64) {
		if i == len(bids) {
			if log > most+1e-12 {
				most = log
				copy(best, now)
			}
			return
		}
		for k, o := range bids[i] {
			if o.gpus > left || i == but && k > 0 {
				break // later offers are larger
			}
			now[i] = k
			l := log
			if i != but {
				l += logs[i][k]
			}
			try(i+1, left-o.gpus, l)
		}
		now[i] = 0
	}
	try(0, free, 0)
	return best
}

// step leads from one offer of a bid to the next.
type step struct {
	bid, to, gpus int
	gain          float64 // of the logarithm of the value, per GPU
}

// stepsOf appends the steps that take no more than free GPUs, in order of descending gain.
func stepsOf(steps []step, bids [][]offer, free int) []step {
	for i, list := range bids {
		for k := 1; k < len(list); k++ {
			g := list[k].gpus - list[k-1].gpus
			if g > free {
				break // later steps of this bid are unreachable
			}
			steps = append(steps,
				step{i, k, g, (math.Log(list[k].value) - math.Log(list[k-1].value)) / float64(max(1, g))})
		}
	}
	slices.SortStableFunc(steps, func(a, b step) int { return cmp.Compare(b.gain, a.gain) })
	return steps
}

// greedily is fairest for many combinations: each GPU goes where it raises a value by the largest
// factor. It is exact if offers are concave, as they are if speeds are. at is memory for the
// result.
func greedily(steps []step, bids, free, but int, at []int) []int {
	at = append(at[:0], make([]int, bids)...)
	for _, s := range steps {
		if s.bid != but && s.to == at[s.bid]+1 && s.gpus <= free && s.gain > 0 {
			at[s.bid] = s.to
			free -= s.gpus
		}
	}
	return at
}
