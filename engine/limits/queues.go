package limits

import (
	"slices"
	"strings"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/engine/job"
	"github.com/muster-gpu/muster/quota"
)

// A queue that is removed while jobs of it run is closed: it is owed nothing and takes no job until they are gone.

// Of finds the queue that a job goes to.
func (b *Book) Of(s *cluster.Job) (int, error) {
	name := b.nameOf(s)
	q, err := b.tree.Submit(name)
	if b.removed == 0 || err == nil && !b.Closed(q) {
		return q, err
	}
	if _, ok := b.tree.Index(name); ok && err != nil {
		return 0, err // it only groups others
	}
	open := b.tree.Leaves()
	return 0, cluster.Unknown("queue", name, open[:len(open)-b.removed])
}

func (b *Book) nameOf(s *cluster.Job) string {
	if b.madeUp() {
		return "" // no queues are configured: names are the trace's own
	}
	return s.Queue
}

// madeUp reports whether the only queue is the one that the tree makes up.
func (b *Book) madeUp() bool {
	return len(b.spec.Queues) == 0 && b.tree.Len() == 2 && !b.world.QueuesMatter
}

// Index finds a queue by name; "" is the one where jobs go that name none.
func (b *Book) Index(name string) (int, bool) {
	if name == "" {
		name = "default"
	}
	return b.tree.Index(name)
}

// Closed reports whether jobs of a queue run, but none are taken any more.
func (b *Book) Closed(q int) bool { return q >= b.tree.Len()-b.removed }

// Last is the number of the last queue: where a job is booked whose queue is gone, until it is rejected.
func (b *Book) Last() int { return b.tree.Len() - 1 }

// Removed lists the queues that the tree does not have any more and whose jobs hold devices, in the order of the jobs.
func (b *Book) Removed(jobs []*job.State) (closed []cluster.Queue) {
	for _, j := range jobs {
		if j == nil || j.State == job.Done || j.State == job.Pending {
			continue
		}
		if _, err := b.Of(j.Spec); err == nil {
			continue
		}
		q := cluster.Queue{Name: b.closedName(j.Spec.Queue), Limit: cluster.Unlimited, Lend: cluster.Unlimited}
		if !slices.ContainsFunc(closed, func(c cluster.Queue) bool { return c.Name == q.Name }) {
			closed = append(closed, q)
		}
	}
	return closed
}

// Remains is the closed queue of jobs whose queue was removed.
func (b *Book) Remains(name string) int {
	q, _ := b.tree.Index(b.closedName(name))
	return q
}

// closedName is the name of a removed queue: another than any that there is.
func (b *Book) closedName(name string) string {
	name += " (removed)"
	for slices.ContainsFunc(b.open, func(q cluster.Queue) bool { return q.Name == name }) {
		name += "*"
	}
	return name
}

// Specs lists the queues as they were last set, parents first, and those that are closed.
func (b *Book) Specs() (open, closed []cluster.Queue) {
	if b.madeUp() {
		return nil, nil
	}
	for q := 1; q < b.tree.Len(); q++ {
		open = append(open, *b.tree.Spec(q))
	}
	n := len(open) - b.removed
	return open[:n:n], open[n:]
}

// QueueUse is a queue and what its jobs hold, in milli-GPU.
type QueueUse struct {
	Spec cluster.Queue
	Used cluster.Milli
}

// QueueUse lists the queues, parents first.
func (b *Book) QueueUse() (list []QueueUse) {
	for q := 1; q < b.tree.Len(); q++ {
		list = append(list, QueueUse{*b.tree.Spec(q), b.tree.Used(q)})
	}
	return list
}

// History is what queues and users have used, by path of names: spent budgets
// and decayed usage.
type History struct {
	at      map[string]int // path to index in budgets; looked up only
	budgets []quota.Budget
	users   []assoc
	leaf    []string // by user: the path of the queue
}

// History is what the queues have used up to now, for a tree that replaces this one.
func (b *Book) History() History {
	h := History{at: map[string]int{}, budgets: b.budgets, users: b.users}
	b.SpendAll()
	for q := range b.budgets {
		h.at[b.pathOf(q)] = q
	}
	for i := range b.users {
		b.users[i].accrue(b.decay, b.world.Now)
		h.leaf = append(h.leaf, b.pathOf(int(b.users[i].queue)))
	}
	return h
}

// pathOf is the queue's name with those above it.
func (b *Book) pathOf(q int) string {
	var names []string
	for _, p := range b.tree.Path(q) {
		names = append(names, b.tree.Name(p))
	}
	return strings.Join(names, "\x00")
}

// GoOn gives a new tree the history of the queues that it still has. A
// budget whose period changed starts from zero.
func (b *Book) GoOn(h History) {
	leaf := map[string]int{} // looked up only
	for q := range b.budgets {
		path := b.pathOf(q)
		if b.tree.Leaf(q) {
			leaf[path] = q
		}
		g := &b.budgets[q]
		if old, ok := h.at[path]; ok && g.Limit > 0 && h.budgets[old].Limit > 0 && h.budgets[old].Period == g.Period {
			g.Spent, g.Index = h.budgets[old].Spent, h.budgets[old].Index
		}
	}
	for i := range h.users {
		if q, ok := leaf[h.leaf[i]]; ok {
			b.association(int32(q), h.users[i].user).usage = h.users[i].usage
		}
	}
}
