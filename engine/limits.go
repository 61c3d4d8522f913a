package engine

import (
	"math"
	"time"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/engine/job"
	"github.com/muster-gpu/muster/quota"
)

// limits is how much queues and users may hold: the queue tree's quotas, caps of users and
// queues, GPU-hour budgets; and how much they held, for fair shares. The
// arithmetic is in package quota.
type limits struct {
	windows  bool
	budgeted bool         // a queue has a budget
	next     cluster.Time // when the windows change next
	ahead    bool         // so soon that the coming amounts hold already, too
	rekeyed  cluster.Time // Now / Rekey when keys were last evaluated
	rerun    cluster.Time // likewise for running jobs
	caps     *quota.Caps
	budgets  []quota.Budget // by index in the tree
	queues   []queueUse     // likewise
	decay    quota.Decay
	userID   map[[2]int32]int32 // (leaf, user) to association; looked up only
	users    []assoc
	closed   int   // queues at the end of the tree that are removed, but jobs of theirs still run
	ranks    []int // Fair Tree, by association; nil: to be computed
	ranked   int   // associations that were ranked
}

// queueUse is what a queue holds now, besides the GPUs in the tree.
type queueUse struct {
	since cluster.Time // budget spent up to here
	cpu   cluster.Milli
	ram   cluster.MiB
}

// assoc is a user in a queue, with decayed usage.
type assoc struct {
	queue, user int32
	milli       cluster.Milli // held since, by the weight of the GPU models
	since       cluster.Time
	usage       quota.Usage
}

// accrue counts what the association held up to now, period by period: work is
// decayed from the period on in which it was done.
func (a *assoc) accrue(d quota.Decay, now cluster.Time) {
	for from := a.since; from < now && a.milli > 0; {
		to := min(now, d.NextPeriod(from))
		d.Add(&a.usage, quota.Work(a.milli, from, to), from)
		from = to
	}
	a.since = now
	d.Advance(&a.usage, now)
}

// initQueues makes the tree of queues, to which so many milli-GPU may be guaranteed.
func (e *Engine) initQueues(queues []cluster.Queue, most cluster.Milli) error {
	tree, err := quota.New(queues, most)
	if err != nil {
		return err
	}
	e.w.Tree = tree
	l := &e.limits
	l.queues, l.caps, l.budgets, l.budgeted = make([]queueUse, tree.Len()), quota.NewCaps(tree), nil, false
	for q := range l.queues {
		l.queues[q].since = e.w.Now
		l.budgets = append(l.budgets, quota.NewBudget(tree.Spec(q), 0))
		l.budgeted = l.budgeted || l.budgets[q].Limit > 0
	}
	l.userID, l.users, l.ranks, l.closed = map[[2]int32]int32{}, nil, nil, 0
	if l.decay, err = quota.NewDecay(quota.DefaultDecayPeriod, e.cfg.HalfLife); err != nil {
		return err
	}
	l.windows, l.ahead, l.next = false, false, cluster.Never
	matter, byUser := false, false
	for i := range queues {
		q := &queues[i]
		matter = matter || q.Guarantee > 0 || q.Limit >= 0 || q.MaxJobs > 0 || q.Budget > 0 || len(q.Windows) > 0
		byUser = byUser || q.UserGPUs > 0 || q.UserJobs > 0
		l.windows = l.windows || len(q.Windows) > 0
	}
	e.w.QueuesMatter = matter || byUser
	e.line.SetQueues(byUser || e.w.Traits.ByUser)
	l.tick(e)
	return nil
}

// whole is the milli-GPU of all nodes, in whatever state they are.
func (e *Engine) whole() (m cluster.Milli) {
	for i := range e.st.Nodes() {
		m += cluster.Whole * cluster.Milli(e.st.Nodes()[i].Spec().GPUs)
	}
	return m
}

// wall is the local time in seconds, for windows.
func (e *Engine) wall() int64 { return e.wallAt(e.w.Now) }

func (e *Engine) wallAt(t cluster.Time) int64 {
	return e.cfg.Spec.Epoch + int64(t)/int64(time.Second) + int64(e.cfg.Spec.Zone)
}

// tick applies windows that begin or end now.
func (l *limits) tick(e *Engine) {
	for q := range l.budgets {
		if l.budgets[q].Limit > 0 && l.budgets[q].Renews(l.queues[q].since) <= e.w.Now {
			e.spend(q) // a new period begins
			e.epoch++
			e.fresh = true
		}
	}
	if l.windows && !l.ahead && e.w.Now >= l.leads(e) && e.w.Now < l.next {
		l.ahead = true
		now := e.wall()
		e.w.Tree.Apply(l.nextWall(e))
		e.limitsChanged()
		e.w.Tree.Apply(now)
		e.epoch++
		e.fresh = true
	}
	if !l.windows || e.w.Now < l.next && l.next != cluster.Never {
		return
	}
	l.ahead = false
	next := e.w.Tree.Apply(e.wall())
	l.next = cluster.Never
	if next != math.MaxInt64 {
		l.next = cluster.Time((next - e.wallAt(0)) * int64(time.Second)) // of now the wall shows whole seconds only
	}
	e.epoch++
	e.fresh = true
	e.limitsChanged()
}

// leads is when the next change of a window casts its shadow: a grace before
// it, so that what is given back is free by then. Until the change, what the
// present and the coming amounts both allow may start.
func (l *limits) leads(e *Engine) cluster.Time {
	if l.next == cluster.Never {
		return cluster.Never
	}
	return max(0, l.next-cluster.Time(e.cfg.Stop[cluster.Standard].Grace))
}

// nextWall is the local time of the next change, in seconds.
func (l *limits) nextWall(e *Engine) int64 { return e.wallAt(l.next) }

func (l *limits) nextChange(e *Engine) cluster.Time {
	next := l.next
	if at := l.leads(e); !l.ahead && at > e.w.Now {
		next = at
	}
	for q := range l.budgets {
		if l.budgets[q].Limit > 0 {
			next = min(next, l.budgets[q].Renews(e.w.Now))
		}
	}
	return next
}

// charge books a job's share in its queue and user (sign 1) or takes it back (-1), until that is committed or undone.
func (e *Engine) charge(j *job.State, sign int64) {
	e.st.Note(j.Spec.ID, sign)
	e.bill(j, sign)
}

// bill is charge for good.
func (e *Engine) bill(j *job.State, sign int64) {
	m := sign * j.Milli
	q := int(j.Queue)
	if cpu, ram := j.HeldCPUAndRAM(); cpu != 0 || ram != 0 || e.limits.budgeted {
		for _, p := range e.w.Tree.Path(q) {
			if e.limits.budgets[p].Limit > 0 {
				e.spend(p)
			}
			e.limits.queues[p].cpu += sign * cpu
			e.limits.queues[p].ram += sign * ram
		}
	}
	e.w.Tree.Charge(q, m, j.Spec.Tier == cluster.Critical)
	e.lending.Charge(j, sign)
	if e.w.QueuesMatter {
		e.limits.caps.Charge(q, int(j.User), m, int(sign))
	}
	if e.w.Traits.ByUser {
		a := e.association(j.Queue, j.User)
		a.accrue(e.limits.decay, e.w.Now)
		a.milli += m * j.Weight / cluster.Whole
	}
}

// spend brings a queue's budget up to now.
func (e *Engine) spend(q int) {
	u := &e.limits.queues[q]
	e.limits.budgets[q].Spend(e.w.Tree.Used(q), u.since, e.w.Now)
	u.since = e.w.Now
}

// association returns the user's association with a leaf queue.
func (e *Engine) association(q, user int32) *assoc {
	k := [2]int32{q, user}
	id, ok := e.limits.userID[k]
	if !ok {
		id = int32(len(e.limits.users))
		e.limits.users = append(e.limits.users, assoc{queue: q, user: user, since: e.w.Now})
		e.limits.userID[k] = id
	}
	return &e.limits.users[id]
}

// fairShare is the Fair Tree factor of a job's owner in its queue, in ppm.
func (e *Engine) fairShare(j *job.State) int64 {
	e.association(j.Queue, j.User)
	id := e.limits.userID[[2]int32{j.Queue, j.User}]
	if int(id) >= len(e.limits.ranks) {
		e.fairRanks()
		e.limits.rekeyed = -1 // any rank may have changed: compare all again
	}
	return int64(e.limits.ranks[id]) * job.Million / int64(max(1, e.limits.ranked))
}

// fairRanks computes Slurm's Fair Tree over queues (accounts, with their
// shares) and users (one share each).
func (e *Engine) fairRanks() {
	l := &e.limits
	for i := range l.users {
		l.users[i].accrue(l.decay, e.w.Now)
	}
	_, ranks, users := e.fairTree()
	l.ranks, l.ranked = ranks[e.w.Tree.Len():], users
}

// overQuota says what forbids the job to hold m, if anything does.
func (e *Engine) overQuota(j *job.State, m cluster.Milli) refusal {
	if e.lending.Any() && !j.Booked() && e.lending.ShutsAll(j) {
		return refusal{code: refusedLoan}
	}
	if !e.w.QueuesMatter {
		return refusal{}
	}
	q := int(j.Queue)
	if r := e.w.Tree.Check(q, m, j.Spec.Tier); !r.OK() {
		return refusal{code: refusedQuota, quota: r}
	}
	if e.limits.ahead {
		now := e.wall()
		e.w.Tree.Apply(e.limits.nextWall(e))
		r := e.w.Tree.Check(q, m, j.Spec.Tier)
		e.w.Tree.Apply(now)
		if !r.OK() {
			return refusal{code: refusedQuota, quota: r}
		}
	}
	jobs := 1
	if j.Booked() {
		jobs = 0 // it grows
	}
	if r := e.limits.caps.Check(q, int(j.User), m, jobs); !r.OK() {
		return refusal{code: refusedQuota, quota: r}
	}
	for _, p := range e.w.Tree.Path(q) {
		if e.limits.budgets[p].Limit > 0 {
			e.spend(p)
		}
	}
	if r := e.w.Tree.CheckBudget(q, e.limits.budgets, e.w.Now); !r.OK() {
		return refusal{code: refusedQuota, quota: r, until: e.limits.budgets[r.Queue].Renews(e.w.Now)}
	}
	return refusal{}
}

// lacksQuota reports whether quotas keep a job from starting at its smallest size: then the departure of others helps
// wherever they are.
func (e *Engine) lacksQuota(j *job.State) bool {
	return (e.w.QueuesMatter || e.lending.Any()) && e.overQuota(j, e.leastMilli(j)).code != notRefused
}

// refusal is why a job could not start, in a form that costs nothing to keep.
type refusal struct {
	code  refusalCode
	until cluster.Time // a spent budget: when it renews
	quota quota.Refusal
}

type refusalCode uint8

const (
	notRefused      refusalCode = iota
	refusedOrder                // the pass stopped before it came to this job
	refusedRoom                 // no placement now
	refusedBackfill             // it would delay a reservation
	refusedQuota                // the queue tree, a cap or a budget
	refusedLoan                 // services may have back what it would take
)

// text says in words what a quota refused a job, or why what services lend is not for it.
func (r *refusal) text(e *Engine, j *job.State) string {
	switch {
	case r.code == refusedLoan:
		return e.lending.Text(j)
	case r.until > 0:
		return r.quota.String() + "; the next period begins at " + e.clock(r.until)
	}
	return r.quota.String()
}
