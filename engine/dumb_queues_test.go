package engine_test

import (
	"math"
	"math/bits"
	"slices"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/quota"
)

// byQueue: a queue says how much its jobs may hold.
func (d *dumb) byQueue() bool {
	return slices.ContainsFunc(d.queues, func(q cluster.Queue) bool {
		return q.Guarantee > 0 || q.Limit >= 0 || q.MaxJobs > 0 || q.UserGPUs > 0 || q.UserJobs > 0
	})
}

// byUser: ... or how much one user may.
func (d *dumb) byUser() bool {
	return slices.ContainsFunc(d.queues, func(q cluster.Queue) bool { return q.UserGPUs > 0 || q.UserJobs > 0 })
}

// ordersQueues: the policy chooses among queues before it chooses a job.
func (d *dumb) ordersQueues() bool {
	return slices.Contains([]string{"yarn-cs", "drf", "proportional"}, d.policy)
}

func (d *dumb) queued() bool { return d.byQueue() || d.ordersQueues() }

func (d *dumb) capacity() (m int64) {
	for _, n := range d.nodes {
		if n.State != cluster.Down {
			m += 1000 * int64(n.GPUs-bits.OnesCount64(n.Bad))
		}
	}
	return m
}

// ledger is the queues with what their jobs hold, added up from scratch.
type ledger struct {
	*quota.Tree
	caps     *quota.Caps
	cpu, ram []int64 // by queue, those below included
	charged  []charge
}

type charge struct {
	queue, user int
	milli       int64
	critical    bool
}

// add charges, or with a sign of -1 takes back.
func (l *ledger) add(c charge, sign int64) {
	l.Charge(c.queue, sign*c.milli, c.critical)
	l.caps.Charge(c.queue, c.user, sign*c.milli, int(sign))
}

// ledger adds up again what each queue holds, without some jobs. It is good until as many more were asked for as
// d.ledgers has room for: their trees are used again, as it takes longer to build them than all else here.
func (d *dumb) ledger(without []*dumbJob) *ledger {
	d.ledgersAsked++
	l := &d.ledgers[d.ledgersAsked%len(d.ledgers)]
	if l.Tree == nil {
		t, err := quota.New(d.queues, cluster.Unlimited)
		if err != nil {
			panic(err)
		}
		*l = ledger{t, quota.NewCaps(t), make([]int64, t.Len()), make([]int64, t.Len()), nil}
	}
	for i := len(l.charged) - 1; i >= 0; i-- {
		l.add(l.charged[i], -1)
	}
	l.charged = l.charged[:0]
	clear(l.cpu)
	clear(l.ram)
	l.SetCapacity(d.capacity())
	for _, j := range d.jobs {
		if !j.inBooks() || slices.Contains(without, j) {
			continue
		}
		q := l.of(j)
		c := charge{q, userNumber(j), d.milli(j), j.Tier == cluster.Critical}
		l.add(c, 1)
		l.charged = append(l.charged, c)
		for _, p := range l.Path(q) {
			for _, a := range j.allocs {
				l.cpu[p] += a.CPU
				l.ram[p] += a.RAM
			}
		}
	}
	return l
}

func (l *ledger) of(j *dumbJob) int {
	if l.Len() == 2 {
		return 1
	}
	q, err := l.Submit(j.Queue)
	if err != nil {
		panic(err)
	}
	return q
}

func userNumber(j *dumbJob) int { return int(j.User[len(j.User)-1] - '0') }

// refused: there is no such queue, or it will never allow so much.
func (d *dumb) refused(j *dumbJob) bool {
	if len(d.queues) == 0 {
		return false
	}
	l := d.ledger(nil)
	q, err := l.Submit(j.Queue)
	return err != nil || d.byQueue() && (j.Tier == cluster.Critical && d.milli(j) > l.Guarantee(q) ||
		l.Limit(q) >= 0 && d.milli(j) > l.Limit(q))
}

// noQueue: there is no such queue.
func (d *dumb) noQueue(spec *cluster.Job) bool {
	if len(d.queues) == 0 {
		return false
	}
	_, err := d.ledger(nil).Submit(spec.Queue)
	return err != nil
}

// over: limits, guarantees of others, caps forbid that the job starts.
func (d *dumb) over(j *dumbJob, without []*dumbJob) bool {
	return d.overBy(j, d.milli(j), without)
}

// overBy is over for a job that would hold so much.
func (d *dumb) overBy(j *dumbJob, m int64, without []*dumbJob) bool {
	if !d.byQueue() {
		return false
	}
	l := d.ledger(without)
	return !l.Check(l.of(j), m, j.Tier).OK() || !l.caps.Check(l.of(j), userNumber(j), m, 1).OK()
}

// owed: with the job its queue is still within what it is guaranteed.
func (d *dumb) owed(j *dumbJob) bool {
	l := d.ledger(nil)
	return d.byQueue() && d.milli(j) > 0 && l.Entitled(l.of(j), d.milli(j), j.Tier)
}

// within is owed when others are gone.
func (d *dumb) within(j *dumbJob, without []*dumbJob) bool {
	l := d.ledger(without)
	return l.Entitled(l.of(j), d.milli(j), j.Tier)
}

func (d *dumb) reclaimable(j, v *dumbJob, without []*dumbJob) bool {
	l := d.ledger(without)
	return d.owed(j) && l.Reclaimable(l.of(v), l.of(j), d.milli(v), d.milli(j), j.Tier)
}

// straddles: the victim's queue is above its guarantee now and may be below it
// afterwards, by part of this one job.
func (d *dumb) straddles(j, v *dumbJob, without []*dumbJob) bool {
	l := d.ledger(without)
	return d.owed(j) && l.ReclaimableWhole(l.of(v), l.of(j), d.milli(j), j.Tier)
}

// lends: the victim's queue, and those above it up to where the job's are, hold
// as much as the victim beyond their guarantees.
func (d *dumb) lends(j, v *dumbJob, without []*dumbJob) bool {
	l := d.ledger(without)
	return d.milli(v) > 0 && d.lendsUpTo(v, l.LCA(l.of(v), l.of(j)), without)
}

func (d *dumb) lendsUpTo(v *dumbJob, top int, without []*dumbJob) bool {
	l := d.ledger(without)
	for q := l.of(v); q != top; q = l.Parent(q) {
		if l.Borrowed(q) < d.milli(v) {
			return false
		}
	}
	return true
}

// best of the heads of lanes: the tier; jobs within their queue's guarantee
// before borrowers; the policy's order of queues, level by level; the key.
func (d *dumb) best(heads []*dumbJob) *dumbJob {
	for _, less := range []func(j *dumbJob) int{
		func(j *dumbJob) int { return int(j.Tier) },
		func(j *dumbJob) int { return yes(!d.entitled(j)) },
	} {
		least := math.MaxInt
		for _, j := range heads {
			least = min(least, less(j))
		}
		heads = slices.DeleteFunc(heads, func(j *dumbJob) bool { return less(j) > least })
	}
	return d.bestOf(heads, 1)
}

// entitled is owed, but jobs without any GPU are, too: no job has to give them any.
func (d *dumb) entitled(j *dumbJob) bool {
	l := d.ledger(nil)
	return d.byQueue() && l.Entitled(l.of(j), d.milli(j), j.Tier)
}

// bestOf chooses among queues at a depth of the tree: the lowest key first. Equal
// leaves, and queues where the policy does not choose, serve the job that comes
// first; where groups are among the siblings, equal ones come as they are listed.
func (d *dumb) bestOf(heads []*dumbJob, depth int) (best *dumbJob) {
	l := d.ledger(nil)
	child := func(j *dumbJob) int { return l.Path(l.of(j))[depth] }
	least := int64(math.MaxInt64)
	for _, j := range heads {
		least = min(least, d.queueKey(l, child(j)))
	}
	heads = slices.DeleteFunc(heads, func(j *dumbJob) bool { return d.queueKey(l, child(j)) > least })
	if len(heads) > 0 && d.ordersQueues() {
		siblings := l.Children(l.Parent(child(heads[0])))
		if slices.ContainsFunc(siblings, func(q int) bool { return !l.Leaf(q) }) {
			q := l.Len()
			for _, j := range heads {
				q = min(q, child(j))
			}
			heads = slices.DeleteFunc(heads, func(j *dumbJob) bool { return child(j) != q })
			if !l.Leaf(q) {
				return d.bestOf(heads, depth+1)
			}
		}
	}
	for _, j := range heads {
		if best == nil || d.before(j, best) < 0 {
			best = j
		}
	}
	return best
}

// queueKey is the policy's key of a queue.
func (d *dumb) queueKey(l *ledger, q int) int64 {
	switch d.policy {
	case "proportional":
		return millionths(l.Used(q), l.Weight(q))
	case "yarn-cs":
		siblings := slices.ContainsFunc(l.Children(l.Parent(q)), func(s int) bool { return l.Guarantee(s) > 0 })
		switch {
		case l.Guarantee(q) > 0:
			return millionths(l.Used(q), l.Guarantee(q))
		case siblings:
			return millionths(l.Used(q), 1)
		}
		return millionths(l.Used(q), l.Weight(q))
	case "drf":
		var cpu, ram int64
		for _, n := range d.nodes {
			cpu += n.CPU
			ram += n.RAM
		}
		share := max(millionths(l.Used(q), d.capacity()), millionths(l.cpu[q], cpu), millionths(l.ram[q], ram))
		return share * 1000 / l.Weight(q)
	}
	return 0
}

func millionths(num, den int64) int64 {
	switch {
	case num == 0:
		return 0
	case den == 0:
		return math.MaxInt64 / 1_000_000
	}
	return num * 1_000_000 / den
}
