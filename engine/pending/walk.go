package pending

import (
	"github.com/muster-gpu/muster/engine/job"
	"github.com/muster-gpu/muster/engine/order"
	"github.com/muster-gpu/muster/internal/heap"
)

// Walk goes through the line once, from the best job to the worst, while jobs leave it and come back. Of each group it
// comes to the first job, and to those behind it that it is told to look at.
type Walk struct {
	line    *Line    // nil: it has ended
	cursors []cursor // by lane
}

// Open reports whether a walk goes on.
func (w *Walk) Open() bool { return w.line != nil }

// End ends a walk.
func (w *Walk) End() { w.line = nil }

// cursor is how far a walk has come in one lane.
type cursor struct {
	last  order.Item
	begun bool
	deep  []order.Item // next jobs of groups that are walked beyond their first
	done  bool         // nothing is left,
	upTo  int          // unless the list has changed more often: a victim came back
	next  order.Cursor // of the next group,
	as    int          // while the list has changed so often
}

// group returns the first job of the lane's next group; nil: there is none. It is the list's own.
func (c *cursor) group(l *lane) *order.Item {
	if c.as != l.groups.Changes() {
		c.next, c.as = order.Cursor{}, l.groups.Changes()
		if c.begun {
			c.next = l.groups.Seek(&c.last)
		}
	}
	return l.groups.Peek(&c.next)
}

// Begin begins a walk.
func (w *Walk) Begin(l *Line) {
	w.line = l
	w.cursors = w.cursors[:min(len(w.cursors), len(l.lanes))] // a new queue tree may have fewer
	for len(w.cursors) < len(l.lanes) {
		w.cursors = append(w.cursors, cursor{})
	}
	for i := range w.cursors {
		w.cursors[i] = cursor{deep: w.cursors[i].deep[:0], done: l.lanes[i].n == 0, upTo: l.lanes[i].groups.Changes(),
			as: -1}
	}
}

// peek returns the next candidate of a lane, nil if there is none, in its list's memory: it is valid until the list
// changes.
func (w *Walk) peek(li int) (it *order.Item, fromDeep bool) {
	c, l := &w.cursors[li], &w.line.lanes[li]
	if c.done && c.upTo == l.groups.Changes() {
		return nil, false
	}
	it = c.group(l)
	if len(c.deep) > 0 && (it == nil || c.deep[0].Before(it)) {
		return &c.deep[0], true
	}
	c.done, c.upTo = it == nil, l.groups.Changes()
	return it, false
}

// Next takes the next candidate; false: there is none.
func (w *Walk) Next() (li int, it order.Item, ok bool) {
	l, best := w.line, -1
	var first *order.Item
	var fromDeep bool
	for len(w.cursors) < len(l.lanes) { // a victim went back to a lane of its own
		w.cursors = append(w.cursors, cursor{as: -1})
	}
	for li := range l.lanes {
		it, deep := w.peek(li)
		if it == nil {
			continue
		}
		if best < 0 || l.before(li, it, best, first) {
			best, first, fromDeep = li, it, deep
		}
	}
	if best < 0 {
		return -1, order.Item{}, false
	}
	c := &w.cursors[best]
	it = *first
	if fromDeep {
		heap.Pop(&c.deep)
	} else {
		c.last, c.begun = it, true
		c.next.Next()
	}
	return best, it, true
}

// Place is where a candidate is in the line, before it leaves it.
type Place struct {
	lane  int
	group int32
	id    int32
	next  order.Item // behind it in its group,
	more  bool       // if there is one
	Leads bool       // it is the first of its group
}

// Place looks at where a candidate of a lane is. Once it starts, its key is its place among running jobs.
func (w *Walk) Place(li int, j *job.State) Place {
	p := Place{lane: li, group: j.Group, id: int32(j.Spec.ID)}
	g := w.line.Group(j)
	var at order.Cursor
	first := g.jobs.Peek(&at)
	p.Leads = first != nil && *first == j.Key
	if at.Next(); !p.Leads {
		at = g.jobs.Seek(&j.Key)
	}
	p.next, p.more = g.jobs.At(&at)
	return p
}

// Left notes that the first job of a group left the line: the group is listed again with its next job, after this one,
// or the walk comes back to it.
func (w *Walk) Left(p *Place) {
	g, c := &w.line.groups[p.group], &w.cursors[p.lane]
	if g.inUse && g.head.Before(&c.last) && g.head.ID != p.id {
		heap.Push(&c.deep, g.head)
	}
}

// Deeper has the walk come to the job behind a candidate, too.
func (w *Walk) Deeper(p *Place) {
	if p.more { // it is compared with the firsts of other groups
		heap.Push(&w.cursors[p.lane].deep, w.line.groupItem(&w.line.groups[p.group], p.next))
	}
}
