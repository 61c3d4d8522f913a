package engine

import (
	"fmt"
	"slices"
	"strings"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/engine/job"
	"github.com/muster-gpu/muster/quota"
)

// A live change of the queue tree. Nothing that runs is touched: what is above
// a lowered limit runs on, and nothing starts there until it is below. What
// queues have used so far is kept by path; a queue that is removed while jobs
// of it run is closed: it is owed nothing and takes no job until they are gone.

func (e *Engine) replaceQueues(queues []cluster.Queue) {
	if _, err := quota.New(queues, e.w.Capacity); err != nil {
		return // the driver checks the tree before it asks for a change
	}
	e.rebuildQueues(queues)
}

// rebuildQueues replaces the tree and books again what jobs hold.
func (e *Engine) rebuildQueues(queues []cluster.Queue) {
	e.dropDests(-1, 0) // limits may be others now; the old tree is charged for them
	for _, j := range e.jobs {
		if j != nil {
			e.dequeue(j)
			e.leavePool(j) // of a queue that has another number now
		}
	}
	history := e.history()
	e.mustInitQueues(queues)
	queues = e.keepClosed(queues, e.closedQueues(queues))
	history.restore(e)
	var orphans []*job.State
	for _, j := range e.jobs {
		if j == nil || j.State == job.Done {
			continue
		}
		q, err := e.queueOf(j.Spec)
		switch {
		case err == nil:
			j.Queue = int32(q)
		case j.State == job.Pending: // last: a rejection may wake others, which must be in their queues by then
			j.Queue = int32(e.w.Tree.Len() - 1)
			orphans = append(orphans, j)
			continue
		default:
			q, _ = e.w.Tree.Index(closedName(j.Spec.Queue, queues))
			j.Queue = int32(q)
		}
		if j.State == job.Pending && j.Parked == job.NotParked {
			e.lineUp(j)
		} else if j.Booked() || j.Dest != nil {
			e.charge(j, 1)
			e.st.Commit()
		}
	}
	e.lending.Recount(e.jobs) // all that jobs hold was charged again
	for _, j := range orphans {
		if _, err := e.queueOf(j.Spec); j.State == job.Pending { // else it was rejected with another
			e.reject(j, job.Impossible, err.Error())
		}
	}
	e.epoch++
	e.fresh = true
}

// keepClosed adds closed queues to the tree and returns the others.
func (e *Engine) keepClosed(queues, closed []cluster.Queue) []cluster.Queue {
	if len(closed) == 0 {
		return queues
	}
	if len(queues) == 0 { // what the tree means by no queues
		queues = []cluster.Queue{{Name: "default", Limit: cluster.Unlimited, Lend: cluster.Unlimited}}
	}
	e.mustInitQueues(append(slices.Clone(queues), closed...))
	e.limits.closed = len(closed)
	return queues
}

func (e *Engine) mustInitQueues(queues []cluster.Queue) {
	if err := e.initQueues(queues, e.w.Capacity); err != nil {
		panic("engine: a checked queue tree is refused: " + err.Error())
	}
}

// closedQueues are those that the tree does not have any more and whose jobs
// hold devices, in the order of the jobs.
func (e *Engine) closedQueues(queues []cluster.Queue) (closed []cluster.Queue) {
	for _, j := range e.jobs {
		if j == nil || j.State == job.Done || j.State == job.Pending {
			continue
		}
		if _, err := e.queueOf(j.Spec); err == nil {
			continue
		}
		q := cluster.Queue{Name: closedName(j.Spec.Queue, queues), Limit: cluster.Unlimited, Lend: cluster.Unlimited}
		if !slices.ContainsFunc(closed, func(c cluster.Queue) bool { return c.Name == q.Name }) {
			closed = append(closed, q)
		}
	}
	return closed
}

// closedName is the name of a removed queue: another than any that there is.
func closedName(name string, queues []cluster.Queue) string {
	name += " (removed)"
	for slices.ContainsFunc(queues, func(q cluster.Queue) bool { return q.Name == name }) {
		name += "*"
	}
	return name
}

// isClosed reports whether jobs of a queue run, but none are taken any more.
func (e *Engine) isClosed(q int) bool { return q >= e.w.Tree.Len()-e.limits.closed }

// queueOf finds the queue that the job goes to.
func (e *Engine) queueOf(s *cluster.Job) (int, error) {
	name := e.queueName(s)
	q, err := e.w.Tree.Submit(name)
	if e.limits.closed == 0 || err == nil && !e.isClosed(q) {
		return q, err
	}
	if _, ok := e.w.Tree.Index(name); ok && err != nil {
		return 0, err // it only groups others
	}
	open := e.w.Tree.Leaves()
	return 0, cluster.Unknown("queue", name, open[:len(open)-e.limits.closed])
}

func (e *Engine) queueName(s *cluster.Job) string {
	if len(e.cfg.Spec.Queues) == 0 && e.w.Tree.Len() == 2 && !e.w.QueuesMatter {
		return "" // no queues are configured: names are the trace's own
	}
	return s.Queue
}

// refuseClosed ends a job that would wait again in a queue that is gone.
func (e *Engine) refuseClosed(j *job.State) {
	e.reject(j, job.Impossible, fmt.Sprintf("queue %q was removed while the job ran", j.Spec.Queue))
}

// history is what queues and users have used, by path of names: spent budgets
// and decayed usage.
type history struct {
	at      map[string]int // path to index in budgets; looked up only
	budgets []quota.Budget
	users   []assoc
	leaf    []string // by user: the path of the queue
}

// history brings everything up to now.
func (e *Engine) history() history {
	l := &e.limits
	h := history{at: map[string]int{}, budgets: l.budgets, users: l.users}
	for q := range l.budgets {
		if l.budgets[q].Limit > 0 {
			e.spend(q)
		}
		h.at[e.pathOf(q)] = q
	}
	for i := range l.users {
		l.users[i].accrue(l.decay, e.w.Now)
		h.leaf = append(h.leaf, e.pathOf(int(l.users[i].queue)))
	}
	return h
}

// pathOf is the queue's name with those above it.
func (e *Engine) pathOf(q int) string {
	var names []string
	for _, p := range e.w.Tree.Path(q) {
		names = append(names, e.w.Tree.Name(p))
	}
	return strings.Join(names, "\x00")
}

// restore gives a new tree the history of the queues that it still has. A
// budget whose period changed starts from zero.
func (h *history) restore(e *Engine) {
	l := &e.limits
	leaf := map[string]int{} // looked up only
	for q := range l.budgets {
		path := e.pathOf(q)
		if e.w.Tree.Leaf(q) {
			leaf[path] = q
		}
		b := &l.budgets[q]
		if old, ok := h.at[path]; ok && b.Limit > 0 && h.budgets[old].Limit > 0 && h.budgets[old].Period == b.Period {
			b.Spent, b.Index = h.budgets[old].Spent, h.budgets[old].Index
		}
	}
	for i := range h.users {
		if q, ok := leaf[h.leaf[i]]; ok {
			e.association(int32(q), h.users[i].user).usage = h.users[i].usage
		}
	}
}
