package engine

import (
	"fmt"
	"math"
	"time"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/quota"
)

// limits is who may hold how much: the queue tree's quotas, caps of users and
// queues, GPU-hour budgets. The arithmetic of the tree is in package quota.
type limits struct {
	byQueue bool // a queue has a guarantee, limit or cap: queues matter
	byUser  bool // a queue caps its users
	windows bool
	next    cluster.Time // when the windows change next
	rekeyed cluster.Time // Now / Rekey when keys were last evaluated
	rerun   cluster.Time // likewise for running jobs
	queues  []queueUse   // by index in the tree
	userID  map[[2]int32]int32
	users   []use // by userID: one for each (queue, user) that ran
}

// use is what somebody holds now and has held.
type use struct {
	milli cluster.Milli
	jobs  int32
	meter meter
}

type queueUse struct {
	use
	period cluster.Time  // end of the budget's period
	base   int64         // meter at its beginning
	cpu    cluster.Milli // held
	ram    cluster.MiB
}

// meter integrates a held amount over time, as it is and decaying with a
// half-life; both in milli-GPU-milliseconds.
type meter struct {
	total   int64
	decayed int64
	at      cluster.Time
	steps   int64 // decay periods applied
}

// decayStep is the period in which usage decays, as Slurm's
// PriorityCalcPeriod (five minutes).
const decayStep = 5 * time.Minute

// decayFactor is 2^(-decayStep/halfLife) in 2^-32ths, for a week's half-life.
var decayFactor = func() uint64 {
	return uint64(math.Round(math.Exp2(-float64(decayStep)/float64(7*24*time.Hour)) * (1 << 32)))
}()

// advance brings the meter to now, at the rate held since.
func (m *meter) advance(now cluster.Time, milli cluster.Milli) {
	for m.at < now {
		end := cluster.Time((m.steps + 1) * int64(decayStep))
		to := min(now, end)
		got := milli * (int64(to-m.at) / int64(time.Millisecond))
		if milli == 0 && m.decayed == 0 { // nothing to decay: jump
			m.steps = int64(now) / int64(decayStep)
			m.at = now
			return
		}
		m.total += got
		m.decayed += got
		m.at = to
		if to == end {
			m.steps++
			m.decayed = mulShift(m.decayed, decayFactor)
		}
	}
}

func mulShift(v int64, f uint64) int64 {
	hi, lo := v>>32, v&(1<<32-1)
	return hi*int64(f) + lo*int64(f)>>32
}

func (e *Engine) initQueues(queues []cluster.Queue) error {
	tree, err := quota.New(queues, e.capacity)
	if err != nil {
		return err
	}
	e.tree = tree
	l := &e.limits
	l.queues = make([]queueUse, tree.Len())
	l.userID = map[[2]int32]int32{}
	l.users = nil
	l.byQueue, l.byUser, l.windows, l.next = false, false, false, cluster.Never
	for i := range queues {
		q := &queues[i]
		l.byQueue = l.byQueue || q.Guarantee > 0 || q.Limit >= 0 || q.MaxJobs > 0 || q.Budget > 0 || len(q.Windows) > 0
		l.byUser = l.byUser || q.UserGPUs > 0 || q.UserJobs > 0
		l.windows = l.windows || len(q.Windows) > 0
	}
	l.byQueue = l.byQueue || l.byUser
	l.tick(e)
	return nil
}

// wall is the local time in seconds, for windows.
func (e *Engine) wall() int64 {
	return e.cfg.Spec.Epoch + int64(e.now)/int64(time.Second) + int64(e.cfg.Spec.Zone)
}

// tick applies windows that begin or end now.
func (l *limits) tick(e *Engine) {
	for q := range l.queues {
		if e.tree.Spec(q).Budget > 0 && e.now >= l.queues[q].period {
			e.budget(q) // a new period begins
			e.epoch++
			e.fresh = true
		}
	}
	if !l.windows || e.now < l.next && l.next != cluster.Never {
		return
	}
	next := e.tree.Apply(e.wall())
	l.next = cluster.Never
	if next != math.MaxInt64 {
		l.next = e.now.Add(time.Duration(next-e.wall()) * time.Second)
	}
	e.epoch++
	e.fresh = true
	e.limitsChanged()
}

func (l *limits) nextChange(e *Engine) cluster.Time {
	next := l.next
	for q := range l.queues {
		if e.tree.Spec(q).Budget > 0 && l.queues[q].period > 0 {
			next = min(next, l.queues[q].period)
		}
	}
	return next
}

func (e *Engine) replaceQueues(queues []cluster.Queue) {
	if _, err := quota.New(queues, e.capacity); err != nil {
		return // the driver checks the tree before it asks for a change
	}
	e.rebuildQueues(queues)
}

// rebuildQueues replaces the tree and books again what jobs hold.
func (e *Engine) rebuildQueues(queues []cluster.Queue) {
	for _, j := range e.jobs {
		if j != nil {
			e.dequeue(j)
		}
	}
	e.lanes, e.groups = nil, nil
	e.laneID, e.groupID = map[laneKey]int32{}, map[groupKey]int32{}
	if err := e.initQueues(queues); err != nil {
		panic("engine: a checked queue tree is refused: " + err.Error())
	}
	for _, j := range e.jobs {
		if j == nil || j.state == Done {
			continue
		}
		q, err := e.tree.Submit(e.queueName(j.spec))
		if err != nil {
			e.orphan(j, err)
			continue
		}
		j.queue = int32(q)
		switch {
		case j.state == Pending && j.parked == NotParked:
			e.enqueue(j)
		case j.state == Placed || j.state == Starting || j.state == Running:
			e.charge(j, 1)
		}
	}
	e.epoch++
	e.fresh = true
}

// orphan handles a job whose queue is gone: pending jobs are rejected, others
// stay where they are and count for the root's first leaf.
func (e *Engine) orphan(j *jobState, err error) {
	if j.state == Pending {
		e.reject(j, Impossible, err.Error())
		return
	}
	j.queue = int32(e.tree.Len() - 1)
	if j.state != Stopping {
		e.charge(j, 1)
	}
}

func (e *Engine) queueName(s *cluster.Job) string {
	if len(e.cfg.Spec.Queues) == 0 && e.tree.Len() == 2 && !e.limits.byQueue {
		return "" // no queues are configured: names are the trace's own
	}
	return s.Queue
}

// charge books a job's share in its queue and user (sign 1) or takes it back (-1).
func (e *Engine) charge(j *jobState, sign int64) {
	m := sign * j.milli
	e.tree.Charge(int(j.queue), m, j.spec.Tier == cluster.Critical)
	cpu, ram := j.cpuRAM()
	for _, q := range e.tree.Path(int(j.queue)) {
		u := &e.limits.queues[q].use
		u.meter.advance(e.now, u.milli)
		u.milli += m
		u.jobs += int32(sign)
		e.limits.queues[q].cpu += sign * cpu
		e.limits.queues[q].ram += sign * ram
		if e.limits.byUser || e.traits.ByUser {
			w := e.userUse(int32(q), j.user)
			w.meter.advance(e.now, w.milli)
			w.milli += m
			w.jobs += int32(sign)
		}
	}
}

func (e *Engine) userUse(q, user int32) *use {
	k := [2]int32{q, user}
	id, ok := e.limits.userID[k]
	if !ok {
		id = int32(len(e.limits.users))
		e.limits.users = append(e.limits.users, use{meter: meter{at: e.now, steps: int64(e.now) / int64(decayStep)}})
		e.limits.userID[k] = id
	}
	return &e.limits.users[id]
}

// overQuota says what forbids the job to hold m, if anything does.
func (e *Engine) overQuota(j *jobState, m cluster.Milli) refusal {
	if !e.limits.byQueue {
		return refusal{}
	}
	if r := e.tree.Check(int(j.queue), m, j.spec.Tier); !r.OK() {
		return refusal{code: refusedQuota, quota: r}
	}
	for _, q := range e.tree.Path(int(j.queue)) {
		s := e.tree.Spec(q)
		u := &e.limits.queues[q]
		if s.MaxJobs > 0 && int(u.jobs) >= s.MaxJobs {
			return refusal{code: refusedQueueJobs, queue: int32(q), limit: int64(s.MaxJobs), used: int64(u.jobs)}
		}
		if r := e.overUser(j, q, s, m); r.code != 0 {
			return r
		}
		if s.Budget > 0 {
			if spent, end := e.budget(q); spent >= s.Budget*hourMilliMs {
				return refusal{code: refusedBudget, queue: int32(q), limit: s.Budget, used: spent / hourMilliMs, until: end}
			}
		}
	}
	return refusal{}
}

// hourMilliMs is a GPU-hour in milli-GPU-milliseconds.
const hourMilliMs = 1000 * 3600 * 1000

func (e *Engine) overUser(j *jobState, q int, s *cluster.Queue, m cluster.Milli) refusal {
	if s.UserGPUs == 0 && s.UserJobs == 0 {
		return refusal{}
	}
	u := e.userUse(int32(q), j.user)
	if s.UserGPUs > 0 && u.milli+m > s.UserGPUs {
		return refusal{code: refusedUserGPUs, queue: int32(q), limit: s.UserGPUs, used: u.milli}
	}
	if s.UserJobs > 0 && int(u.jobs) >= s.UserJobs {
		return refusal{code: refusedUserJobs, queue: int32(q), limit: int64(s.UserJobs), used: int64(u.jobs)}
	}
	return refusal{}
}

// budget returns what the queue spent in the present period, and its end.
func (e *Engine) budget(q int) (spent int64, end cluster.Time) {
	u := &e.limits.queues[q]
	u.meter.advance(e.now, u.milli)
	period := e.tree.Spec(q).Period
	if period == 0 {
		period = 30 * 24 * time.Hour
	}
	if start := e.now - e.now%cluster.Time(period); u.period != start.Add(period) {
		u.period = start.Add(period)
		u.base = u.meter.total
	}
	return u.meter.total - u.base, u.period
}

// refusal is why a job could not start, in a form that costs nothing to keep.
type refusal struct {
	code  refusalCode
	queue int32
	limit int64
	used  int64
	until cluster.Time
	quota quota.Refusal
}

type refusalCode uint8

const (
	notRefused       refusalCode = iota
	refusedOrder                 // the pass stopped before it came to this job
	refusedRoom                  // no placement now
	refusedBackfill              // it would delay a reservation
	refusedQuota                 // the queue tree
	refusedQueueJobs             // running jobs of the queue
	refusedUserGPUs
	refusedUserJobs
	refusedBudget
)

// text says the refusal in words, for those that are about quotas.
func (e *Engine) refusalText(r *refusal) string {
	name := ""
	if e.tree.Len() > int(r.queue) {
		name = e.tree.Name(int(r.queue))
	}
	switch r.code {
	case refusedQuota:
		return r.quota.String()
	case refusedQueueJobs:
		return fmt.Sprintf("queue %s runs %d jobs, at most %d", name, r.used, r.limit)
	case refusedUserGPUs:
		return fmt.Sprintf("the user holds %s GPUs in queue %s, at most %s", quota.FormatGPUs(r.used), name, quota.FormatGPUs(r.limit))
	case refusedUserJobs:
		return fmt.Sprintf("the user runs %d jobs in queue %s, at most %d", r.used, name, r.limit)
	case refusedBudget:
		return fmt.Sprintf("queue %s has spent its budget of %d GPU-hours; the next period begins at %v", name, r.limit, r.until)
	}
	return ""
}
