package policy

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strconv"
	"time"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/engine"
	"github.com/muster-gpu/muster/internal/heap"
	"github.com/muster-gpu/muster/quota"
)

var themis = Info{
	Name: "themis",
	About: "finish-time fairness: the jobs that do worst against a private share of the cluster bid for the free GPUs; " +
		"what they win is leased",
	Source: "C-themis: Themis (NSDI'20); each job is an app of its own",
	Needs:  "run times (else twice what was done, an hour at least), speeds by size for elastic jobs",
	Knobs: []Knob{
		{"lease", "20m", "how long what was won is kept"},
		{"fairness", "0.8", "of the jobs without a lease, so many stay out of an auction: more is fairer, less lets bids match better"},
	},
	New: newThemis,
}

type themisRules struct {
	lease time.Duration
	f     float64
}

func newThemis(k *Knobs) (engine.Policy, error) {
	r := &themisRules{}
	var err error
	if r.lease, err = k.duration("lease"); err != nil {
		return nil, err
	}
	if r.lease < time.Second {
		return nil, fmt.Errorf("lease=%s: at least 1s", k.text("lease"))
	}
	if r.f, err = strconv.ParseFloat(k.text("fairness"), 64); err != nil || !(r.f >= 0 && r.f <= 1) {
		return nil, fmt.Errorf("fairness=%q: want a number between 0 and 1", k.text("fairness"))
	}
	return &planner{name: k.label(), traits: engine.Traits{Backfill: engine.Skip, Gated: true, Anywhere: true}, plan: r.plan}, nil
}

// app is a job without a lease while an auction is held.
type app struct {
	claim
	at       int     // of it among all jobs
	activity int64   // the number of active apps, integrated from the origin of time to its first plan, in ms
	elapsed  float64 // seconds since its submission
	ideal    float64 // seconds that it would take with a private share
	rho      float64 // as things are: without GPUs until the next lease
	won      tenure
}

// tenure is what a job has on lease.
type tenure struct {
	tasks, least int          // an elastic job may be made as small as least
	until        cluster.Time // 0: it has none
}

// offer is a size that an app could get, and what that is worth to it.
type offer struct {
	tasks, gpus int
	value       float64 // 1/rho
}

func (r *themisRules) plan(v engine.View, jobs []engine.JobView) engine.Plan {
	now, activity, free := v.Now(), int64(0), totalGPUs(v)
	if m := v.Memo(); len(m) == 3 { // between two plans the number of apps is what it was at the first
		activity = m[2] + quota.Work(m[1], cluster.Time(m[0]), now)
	}
	p := engine.Plan{Next: cluster.Never, Memo: []int64{int64(now), int64(len(jobs)), activity}, Targets: v.Targets(len(jobs))}
	apps := engine.Scratch[app](v, len(jobs))[:0]
	for i, j := range jobs {
		l := leased(j, now)
		if l.until == 0 {
			apps = append(apps, app{at: i, claim: claim{j: j}})
			continue
		}
		p.Targets[i] = engine.Target{Tasks: l.tasks, Least: l.least, Memo: leaseMemo(j, l.until, activity)}
		p.Next = min(p.Next, l.until)
		free -= j.GPUs(l.tasks)
	}
	r.recall(v, len(jobs), apps, activity, free > 0)
	if free > 0 {
		r.sell(v, apps, free)
	}
	for i := range apps {
		a := &apps[i]
		p.Targets[a.at] = engine.Target{Tasks: a.won.tasks, Least: a.least, Idle: a.won.until == 0, Memo: leaseMemo(a.j, a.won.until, a.activity)}
		if a.won.until > 0 {
			p.Next = min(p.Next, a.won.until)
		}
	}
	return p
}

// leased is what a job has on lease.
func leased(j engine.JobView, now cluster.Time) tenure {
	running, least, _ := j.Tasks()
	switch t := j.Target(); {
	case running == 0:
	case j.Spec().Tier == cluster.Critical:
		return tenure{running, running, cluster.Never}
	case t != nil && len(t.Memo) == 2 && cluster.Time(t.Memo[0]) > now:
		return tenure{running, least, cluster.Time(t.Memo[0])}
	}
	return tenure{}
}

// leaseMemo is what is remembered of a job: when its lease ends, and the activity at
// its first plan, which now is this one if there was none. It is the old one as long
// as nothing changes.
func leaseMemo(j engine.JobView, until cluster.Time, activity int64) []int64 {
	if t := j.Target(); t != nil && len(t.Memo) == 2 {
		if activity = t.Memo[1]; t.Memo[0] == int64(until) {
			return t.Memo
		}
	}
	return []int64{int64(until), activity}
}

// bidder is an app in the order of the auction: worst off first.
type bidder struct {
	rho    float64
	submit cluster.Time
	app    *app
}

// Before implements heap.Ordered.
func (b *bidder) Before(o *bidder) bool {
	if c := cmp.Compare(b.rho, o.rho); c != 0 {
		return c > 0
	}
	if b.submit != o.submit {
		return b.submit < o.submit
	}
	return b.app.at < o.app.at
}

// sell leases the free GPUs: by auction among those who are worst off, then to
// whoever they are enough for.
func (r *themisRules) sell(v engine.View, apps []app, free int) {
	bare := make([]bidder, 0, len(apps))
	for i := range apps {
		bare = append(bare, bidder{apps[i].rho, apps[i].j.Spec().Submit, &apps[i]})
	}
	heap.Init(bare)
	asked := make([]bidder, r.bidders(len(bare)))
	for i := range asked {
		asked[i] = heap.Pop(&bare)
	}
	bids, offers := make([][]offer, len(asked)), make([]offer, 0, 2*len(asked))
	for i := range bids {
		n := len(offers)
		offers = r.bid(v, asked[i].app, offers)
		bids[i] = offers[n:len(offers):len(offers)]
	}
	won := auction(bids, free)
	for i, w := range won {
		free -= r.grant(v, asked[i].app, bids[i][w.offer], w.kept)
	}
	for _, part := range [][]bidder{bare, asked} { // nothing stays idle: who was not asked, then the others
		free = r.leave(v, part, free)
	}
}

// leave leases what is left to those of a list for whom it is enough, worst off first.
// It returns what is left then.
func (r *themisRules) leave(v engine.View, list []bidder, free int) int {
	var line []bidder
	for _, b := range list {
		if _, g := b.app.next(); b.app.won.until == 0 && g <= free {
			line = append(line, b)
		}
	}
	heap.Init(line)
	for len(line) > 0 {
		b := heap.Pop(&line)
		if n, g := b.app.next(); g <= free {
			free -= r.grant(v, b.app, offer{tasks: n, gpus: g}, 1)
		}
	}
	return free
}

// bidders is how many of so many jobs without a lease an auction is among: the share
// 1 - fairness, at least one.
func (r *themisRules) bidders(n int) int {
	share := (1 - r.f) * float64(n)
	if near := math.Round(share); math.Abs(share-near) < 1e-6 {
		share = near // what doubles are off by is no bidder
	}
	return min(n, max(1, int(math.Ceil(share))))
}

// recall brings the accounts of the jobs without a lease up to now, of so many that are
// active; rated: how they do is asked for, too.
func (r *themisRules) recall(v engine.View, active int, apps []app, activity int64, rated bool) {
	kinds := v.Kinds()
	for i := range apps {
		a := &apps[i]
		a.activity = activity
		if t := a.j.Target(); t != nil && len(t.Memo) == 2 {
			a.activity = t.Memo[1]
		}
		if a.claim = claimOf(kinds, a.j); rated {
			r.rate(v, a, active, activity)
		}
	}
}

// rate finds out how an app does: what it would take with a private share of
// the cluster, and what it will with nothing until the next lease.
func (r *themisRules) rate(v engine.View, a *app, active int, activity int64) {
	spec := a.j.Spec()
	done := a.j.Done().Seconds()
	if spec.Estimate == 0 {
		a.left = max(done, equalWork-done)
	}
	age := v.Now().Sub(spec.Submit)
	a.elapsed = age.Seconds()
	n := float64(active)
	if ms := age.Milliseconds(); ms > 0 && activity > a.activity {
		n = max(1, float64(activity-a.activity)/float64(ms))
	}
	a.ideal = max(finishAlone(a.left+done, a.speed(v, a.most), n), 1e-3)
	a.rho = (a.elapsed + r.lease.Seconds() + a.left/a.speed(v, a.most)) / a.ideal
}

// finishAlone is T_id: the run time of the whole work on all that the job can
// use, times the apps among which the cluster is divided.
func finishAlone(work, speed, apps float64) float64 { return work / speed * apps }

// bid adds the table of an app to a list: each size that it can have, the empty one first.
func (r *themisRules) bid(v engine.View, a *app, list []offer) []offer {
	list = append(list, offer{value: 1 / a.rho})
	for n := a.least; n <= a.most; n++ {
		rho := (a.elapsed + a.left/a.speed(v, n)) / a.ideal
		list = append(list, offer{n, a.j.GPUs(n), 1 / max(rho, 1e-9)})
	}
	return list
}

// grant leases what an app won. It keeps only so much of it: an elastic job as
// many tasks, a gang, which cannot be divided, for as long. It returns the GPUs.
func (r *themisRules) grant(v engine.View, a *app, o offer, kept float64) int {
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
	return a.j.GPUs(o.tasks)
}

// win is an app's part of a proportionally fair allocation, and what it keeps of
// it after the hidden payment.
type win struct {
	offer int
	kept  float64 // 0 < kept <= 1
}

// auction is the partial allocation mechanism: the product of the values is
// made as large as possible, and each winner keeps as much as the others lose
// by its presence: prod V_j(pf) / prod V_j(pf without i), over j other than i.
func auction(bids [][]offer, free int) []win {
	combinations := 1
	for i := range bids {
		if combinations <= exactly {
			combinations *= len(bids[i])
		}
	}
	choose := func(but int) []int { return fairest(bids, free, but) }
	if combinations > exactly {
		steps := stepsOf(bids, free)
		choose = func(but int) []int { return greedily(steps, len(bids), free, but) }
	}
	pf := choose(-1)
	won := make([]win, len(bids))
	for i := range bids {
		won[i] = win{pf[i], 1}
		if pf[i] == 0 {
			continue
		}
		without, log := choose(i), 0.0
		for j := range bids {
			if j != i && pf[j] != without[j] {
				log += math.Log(bids[j][pf[j]].value) - math.Log(bids[j][without[j]].value)
			}
		}
		won[i].kept = min(1, math.Exp(log))
	}
	return won
}

// exactly is up to how many combinations of offers are looked at one by one.
const exactly = 4096

// fairest chooses an offer of each bid but one (-1: of each) so that the product
// of their values is largest.
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
				break // larger ones cost more
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

// step is from one offer of a bid to the next.
type step struct {
	bid, to, gpus int
	gain          float64 // in the logarithm of the value, per GPU
}

// stepsOf lists the steps that so many GPUs are enough for, by what they bring.
func stepsOf(bids [][]offer, free int) []step {
	steps := make([]step, 0, len(bids))
	for i, list := range bids {
		for k := 1; k < len(list); k++ {
			g := list[k].gpus - list[k-1].gpus
			if g > free {
				break // nor is any after it made
			}
			steps = append(steps, step{i, k, g, (math.Log(list[k].value) - math.Log(list[k-1].value)) / float64(max(1, g))})
		}
	}
	slices.SortStableFunc(steps, func(a, b step) int { return cmp.Compare(b.gain, a.gain) })
	return steps
}

// greedily is fairest for many combinations: each GPU goes where it raises a
// value by the largest factor. It is exact where offers are concave, as they are
// where speeds are.
func greedily(steps []step, bids, free, but int) []int {
	at := make([]int, bids)
	for _, s := range steps {
		if s.bid != but && s.to == at[s.bid]+1 && s.gpus <= free && s.gain > 0 {
			at[s.bid] = s.to
			free -= s.gpus
		}
	}
	return at
}
