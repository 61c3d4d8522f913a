// Package limits keeps what queues and users may hold, and what they held: the queue tree's quotas, caps of users and
// queues, budgets of GPU-hours, and decayed usage, of which fair shares are made. The arithmetic is in package quota.
package limits

import (
	"fmt"
	"math"
	"time"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/engine/job"
	"github.com/muster-gpu/muster/engine/lending"
	"github.com/muster-gpu/muster/engine/order"
	"github.com/muster-gpu/muster/engine/sched"
	"github.com/muster-gpu/muster/quota"
)

// Book is what queues and users may hold, and what they held. It makes the queue tree of the world, and says there
// whether queues matter.
type Book struct {
	world   *sched.World
	spec    *cluster.Spec // its calendar, and whether it has queues
	lending *lending.Book
	lead    time.Duration // so long before a window's change jobs have to leave

	tree     *quota.Tree
	windows  bool
	budgeted bool         // a queue has a budget
	next     cluster.Time // when the windows change next
	ahead    bool         // so soon that the coming amounts hold already, too
	caps     *quota.Caps
	budgets  []quota.Budget // by index in the tree
	queues   []queueUse     // likewise
	open     []cluster.Queue
	removed  int // queues at the end of the tree that are removed, but jobs of theirs still run

	decay  quota.Decay
	userID map[string]int32
	names  []string           // of users, in the order in which they were first seen
	assocs map[[2]int32]int32 // (leaf, user) to association; looked up only
	users  []assoc
	ranks  []int // Fair Tree, by association; nil: to be computed
	ranked int   // associations that were ranked
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

// New makes a book of which Init makes the queues. Usage is halved every halfLife; jobs that have to leave when a
// window's amounts change are told so long before as they have to stop (lead).
func New(w *sched.World, spec *cluster.Spec, lent *lending.Book, halfLife, lead time.Duration) (Book, error) {
	decay, err := quota.NewDecay(quota.DefaultDecayPeriod, halfLife)
	return Book{world: w, spec: spec, lending: lent, lead: lead, decay: decay, userID: map[string]int32{}}, err
}

// Init makes the tree of queues, to which so many milli-GPU may be guaranteed, and of those that were removed, but
// have jobs that run. It reports whether limits differ by user. Nothing is charged yet, and the amounts of windows are
// not in force before Tick.
func (b *Book) Init(queues, removed []cluster.Queue, most cluster.Milli) (byUser bool, err error) {
	all := queues
	if len(removed) > 0 {
		if len(queues) == 0 { // what the tree means by no queues
			queues = []cluster.Queue{{Name: "default", Limit: cluster.Unlimited, Lend: cluster.Unlimited}}
		}
		all = append(queues[:len(queues):len(queues)], removed...)
	}
	tree, err := quota.New(all, most)
	if err != nil {
		return false, err
	}
	b.world.Tree, b.tree, b.open, b.removed = tree, tree, queues, len(removed)
	b.queues, b.caps, b.budgets, b.budgeted = make([]queueUse, tree.Len()), quota.NewCaps(tree), nil, false
	for q := range b.queues {
		b.queues[q].since = b.world.Now
		b.budgets = append(b.budgets, quota.NewBudget(tree.Spec(q), 0))
		b.budgeted = b.budgeted || b.budgets[q].Limit > 0
	}
	b.assocs, b.users, b.ranks = map[[2]int32]int32{}, nil, nil
	b.windows, b.ahead, b.next = false, false, cluster.Never
	matter := false
	for i := range all {
		q := &all[i]
		matter = matter || q.Guarantee > 0 || q.Limit >= 0 || q.MaxJobs > 0 || q.Budget > 0 || len(q.Windows) > 0
		byUser = byUser || q.UserGPUs > 0 || q.UserJobs > 0
		b.windows = b.windows || len(q.Windows) > 0
	}
	b.world.QueuesMatter = matter || byUser
	return byUser || b.world.Traits.ByUser, nil
}

// wall is the local time in seconds, for windows.
func (b *Book) wall() int64 { return b.wallAt(b.world.Now) }

func (b *Book) wallAt(t cluster.Time) int64 {
	return b.spec.Epoch + int64(t)/int64(time.Second) + int64(b.spec.Zone)
}

// Tick begins the periods of budgets, and the windows, whose time has come, and reports whether what may start is
// another. Where the amounts of a window change, or will soon, leave is called to have jobs leave that hold more than
// the tree allows at that moment.
func (b *Book) Tick(leave func()) (changed bool) {
	now := b.world.Now
	for q := range b.budgets {
		if b.budgets[q].Limit > 0 && b.budgets[q].Renews(b.queues[q].since) <= now {
			b.spend(q) // a new period begins
			changed = true
		}
	}
	if b.windows && !b.ahead && now >= b.leads() && now < b.next {
		b.ahead = true
		wall := b.wall()
		b.tree.Apply(b.wallAt(b.next))
		leave()
		b.tree.Apply(wall)
		changed = true
	}
	if !b.windows || now < b.next && b.next != cluster.Never {
		return changed
	}
	b.ahead = false
	next := b.tree.Apply(b.wall())
	b.next = cluster.Never
	if next != math.MaxInt64 {
		b.next = cluster.Time((next - b.wallAt(0)) * int64(time.Second)) // of now the wall shows whole seconds only
	}
	leave()
	return true
}

// leads is when the next change of a window casts its shadow: a grace before
// it, so that what is given back is free by then. Until the change, what the
// present and the coming amounts both allow may start.
func (b *Book) leads() cluster.Time {
	if b.next == cluster.Never {
		return cluster.Never
	}
	return max(0, b.next-cluster.Time(b.lead))
}

// NextChange is when time alone changes what may start next.
func (b *Book) NextChange() cluster.Time {
	next := b.next
	if at := b.leads(); !b.ahead && at > b.world.Now {
		next = at
	}
	for q := range b.budgets {
		if b.budgets[q].Limit > 0 {
			next = min(next, b.budgets[q].Renews(b.world.Now))
		}
	}
	return next
}

// Charge books a job's share in its queue and user (sign 1) or takes it back (-1), until the inventory commits that or
// undoes it.
func (b *Book) Charge(j *job.State, sign int64) {
	b.world.Store.Note(j.Spec.ID, sign)
	b.Bill(j, sign)
}

// Bill is Charge for good.
func (b *Book) Bill(j *job.State, sign int64) {
	m := sign * j.Milli
	q := int(j.Queue)
	if cpu, ram := j.HeldCPUAndRAM(); cpu != 0 || ram != 0 || b.budgeted {
		for _, p := range b.tree.Path(q) {
			b.spend(p)
			b.queues[p].cpu += sign * cpu
			b.queues[p].ram += sign * ram
		}
	}
	b.tree.Charge(q, m, j.Spec.Tier == cluster.Critical)
	b.lending.Charge(j, sign)
	if b.world.QueuesMatter {
		b.caps.Charge(q, int(j.User), m, int(sign))
	}
	if b.world.Traits.ByUser {
		a := b.association(j.Queue, j.User)
		a.accrue(b.decay, b.world.Now)
		a.milli += m * j.Weight / cluster.Whole
	}
}

// forget takes a job out of the quotas, or puts it back (sign -1), for looking: nothing is spent or used by that.
func (b *Book) forget(j *job.State, sign int64) {
	b.tree.Charge(int(j.Queue), -sign*j.Milli, j.Spec.Tier == cluster.Critical)
	b.caps.Charge(int(j.Queue), int(j.User), -sign*j.Milli, int(-sign))
	b.lending.Charge(j, -sign)
}

// Forget takes a job that holds devices out of the quotas, until Remember, for looking.
func (b *Book) Forget(j *job.State) { b.forget(j, 1) }

// Remember puts a job back that Forget took out.
func (b *Book) Remember(j *job.State) { b.forget(j, -1) }

// SpendAll brings all budgets up to now, so that looking spends nothing.
func (b *Book) SpendAll() {
	for q := range b.budgets {
		b.spend(q)
	}
}

// spend brings a queue's budget up to now, if it has one.
func (b *Book) spend(q int) {
	if b.budgets[q].Limit <= 0 {
		return
	}
	u := &b.queues[q]
	b.budgets[q].Spend(b.tree.Used(q), u.since, b.world.Now)
	u.since = b.world.Now
}

// Refusal is why a job may not hold what it asks for, in a form that costs nothing to keep. The zero value: it may.
type Refusal struct {
	until cluster.Time // a spent budget: when it renews
	quota quota.Refusal
	lent  bool // services may have back what it would take
}

// OK reports whether nothing forbids it.
func (r *Refusal) OK() bool { return !r.lent && r.quota.OK() }

// Lent reports whether the job would take what services may have back.
func (r *Refusal) Lent() bool { return r.lent }

// Text says in words what a quota refused a job, or why what services lend is not for it. An instant is written by
// clock.
func (b *Book) Text(r *Refusal, j *job.State, clock func(cluster.Time) string) string {
	switch {
	case r.lent:
		return b.lending.Text(j)
	case r.until > 0:
		return r.quota.String() + "; the next period begins at " + clock(r.until)
	}
	return r.quota.String()
}

// Check says what forbids the job to hold so many milli-GPU, or so many more if it holds some, if anything does.
func (b *Book) Check(j *job.State, m cluster.Milli) Refusal {
	if b.lending.Any() && !j.Booked() && b.lending.ShutsAll(j) {
		return Refusal{lent: true}
	}
	if !b.world.QueuesMatter {
		return Refusal{}
	}
	q := int(j.Queue)
	if r := b.tree.Check(q, m, j.Spec.Tier); !r.OK() {
		return Refusal{quota: r}
	}
	if b.ahead {
		now := b.wall()
		b.tree.Apply(b.wallAt(b.next))
		r := b.tree.Check(q, m, j.Spec.Tier)
		b.tree.Apply(now)
		if !r.OK() {
			return Refusal{quota: r}
		}
	}
	jobs := 1
	if j.Booked() {
		jobs = 0 // it grows
	}
	if r := b.caps.Check(q, int(j.User), m, jobs); !r.OK() {
		return Refusal{quota: r}
	}
	for _, p := range b.tree.Path(q) {
		b.spend(p)
	}
	if r := b.tree.CheckBudget(q, b.budgets, b.world.Now); !r.OK() {
		return Refusal{quota: r, until: b.budgets[r.Queue].Renews(b.world.Now)}
	}
	return Refusal{}
}

// Allows reports whether nothing forbids the job to hold so many milli-GPU more.
func (b *Book) Allows(j *job.State, m cluster.Milli) bool {
	r := b.Check(j, m)
	return r.OK()
}

// Lacks reports whether quotas keep a job from starting at its smallest size: then the departure of others helps
// wherever they are.
func (b *Book) Lacks(j *job.State) bool {
	return (b.world.QueuesMatter || b.lending.Any()) && !b.Allows(j, b.world.LeastMilli(j))
}

// Beyond says that a job is larger than its queue may ever be; "": it is not. That is the queue's matter, not the
// shape's.
func (b *Book) Beyond(j *job.State) string {
	q, s := int(j.Queue), b.world.Shapes.At(j.Shape)
	if !b.world.QueuesMatter || len(b.tree.Spec(q).Windows) > 0 {
		return ""
	}
	least := b.world.Shapes.MilliOf(s, int(s.Min))
	if owed := b.tree.Guarantee(q); j.Spec.Tier == cluster.Critical && least > owed {
		return fmt.Sprintf("asks for %d GPUs; a critical job must fit the guarantee of queue %s, %g", s.GPUs,
			b.tree.Name(q), float64(owed)/1000)
	}
	limit := b.tree.Limit(q)
	if limit < 0 || least <= limit {
		return ""
	}
	return fmt.Sprintf("asks for %d GPUs; queue %s is limited to %g", s.GPUs, b.tree.Name(q), float64(limit)/1000)
}

// FreeAt is when the quotas allow the job to start, as others are expected to end: now, if they do already; Never, if
// that is not in sight. Ends lists the jobs that hold devices by their expected ends, endOf is when one ends that is
// overdue there. Quotas are as before when it returns.
func (b *Book) FreeAt(j *job.State, jobs []*job.State, ends *order.List,
	endOf func(*job.State) cluster.Time) cluster.Time {
	least := b.world.LeastMilli(j)
	r := b.Check(j, least)
	if r.OK() {
		return b.world.Now
	}
	b.SpendAll()
	var gone []*job.State
	at := cluster.Never
	ends.Walk(func(it order.Item) bool {
		v := jobs[it.ID]
		b.Forget(v)
		gone = append(gone, v)
		if r = b.Check(j, least); r.OK() {
			if at = cluster.Time(it.Key[0]); at <= b.world.Now {
				at = endOf(v)
			}
			return false
		}
		return true
	})
	switch {
	case r.until > 0:
		at = r.until // a spent budget
	case !r.OK() && b.windows:
		at = b.windowFree(j, least)
	}
	for _, v := range gone {
		b.Remember(v)
	}
	return at
}

// maxEdges is how many openings and ends of windows are looked at ahead.
const maxEdges = 64

// windowFree is when a window of the queues first allows the job. The tree is
// as before when it returns.
func (b *Book) windowFree(j *job.State, least cluster.Milli) cluster.Time {
	now, ahead := b.wall(), b.ahead
	b.ahead = false
	defer func() {
		b.tree.Apply(now)
		b.ahead = ahead
	}()
	wall := now
	for range maxEdges {
		next := b.tree.Apply(wall)
		if b.Allows(j, least) {
			return b.world.Now.Add(time.Duration(wall-now) * time.Second)
		}
		if next == math.MaxInt64 {
			break
		}
		wall = next
	}
	return cluster.Never
}

// Holds is the CPU and RAM that jobs of a queue hold.
func (b *Book) Holds(q int) (cpu cluster.Milli, ram cluster.MiB) {
	return b.queues[q].cpu, b.queues[q].ram
}

// CheckUse compares what queues hold with the sum over the jobs.
func (b *Book) CheckUse(all []*job.State) error {
	n := b.tree.Len()
	used, crit, jobs := make([]cluster.Milli, n), make([]cluster.Milli, n), make([]int, n)
	cpu, ram := make([]cluster.Milli, n), make([]cluster.MiB, n)
	for _, j := range all {
		if j == nil || !j.Booked() && j.Dest == nil {
			continue
		}
		for _, q := range b.tree.Path(int(j.Queue)) {
			used[q] += j.Milli
			jobs[q]++
			c, r := j.HeldCPUAndRAM()
			cpu[q], ram[q] = cpu[q]+c, ram[q]+r
			if j.Spec.Tier == cluster.Critical {
				crit[q] += j.Milli
			}
		}
	}
	for q := range used {
		u := &b.queues[q]
		switch {
		case used[q] != b.tree.Used(q) || crit[q] != b.tree.Critical(q):
			return fmt.Errorf("queue %s uses %d (critical %d), recomputed %d (%d)", b.tree.Name(q), b.tree.Used(q),
				b.tree.Critical(q), used[q], crit[q])
		case cpu[q] != u.cpu || ram[q] != u.ram:
			return fmt.Errorf("queue %s uses %d CPU and %d RAM, recomputed %d and %d", b.tree.Name(q), u.cpu, u.ram,
				cpu[q], ram[q])
		case b.world.QueuesMatter && q > 0 && jobs[q] != b.caps.Jobs(q):
			return fmt.Errorf("queue %s runs %d jobs, recomputed %d", b.tree.Name(q), b.caps.Jobs(q), jobs[q])
		}
	}
	return nil
}
