package engine

import (
	"container/heap"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/engine/job"
	"github.com/muster-gpu/muster/engine/order"
)

// Waiting is a job in line. Expected is Never beyond the first ones, and where
// no start is in sight.
type Waiting struct {
	Job      cluster.JobID
	Expected cluster.Time
}

// Line lists the jobs that could start if there were room, in the order in
// which a pass considers them, and says when the first most of them (at most as
// many as Why looks ahead) are expected to start. It does not change what the
// engine will decide.
func (e *Engine) Line(most int) []Waiting {
	list := e.inLine()
	out := make([]Waiting, len(list))
	for i, j := range list {
		out[i] = Waiting{j.Spec.ID, cluster.Never}
	}
	for i := range min(most, maxAhead, len(list)) {
		out[i].Expected = e.expectedStart(list[i], list[:i])
	}
	return out
}

// inLine lists the eligible jobs: of each lane the group whose next job is the
// best, and of the lanes the best, as a pass picks them.
func (e *Engine) inLine() (list []*job.State) {
	lanes := make([]laneLine, len(e.lanes))
	for li := range e.lanes {
		l := &lanes[li]
		l.e, l.lane = e, li
		e.lanes[li].groups.Walk(func(gi order.Item) bool {
			n := next{}
			e.groups[e.jobs[gi.ID].Group].jobs.Walk(func(it order.Item) bool {
				n.jobs = append(n.jobs, e.jobs[it.ID])
				return true
			})
			n.rekey(e)
			l.groups = append(l.groups, n)
			return true
		})
		heap.Init(l)
	}
	for {
		best := -1
		for li := range lanes {
			if l := &lanes[li]; len(l.groups) > 0 &&
				(best < 0 || e.laneLess(li, &l.groups[0].head, best, &lanes[best].groups[0].head)) {
				best = li
			}
		}
		if best < 0 {
			return list
		}
		list = append(list, lanes[best].take())
	}
}

// next is what is left of a group, in order, with the key of its first job.
type next struct {
	head order.Item
	jobs []*job.State
}

func (n *next) rekey(e *Engine) {
	j := n.jobs[0]
	n.head = e.groupItem(&e.groups[j.Group], j.Key)
}

// laneLine is a heap of a lane's groups.
type laneLine struct {
	e      *Engine
	lane   int
	groups []next
}

// take removes the first job.
func (l *laneLine) take() *job.State {
	n := &l.groups[0]
	j := n.jobs[0]
	if n.jobs = n.jobs[1:]; len(n.jobs) == 0 {
		heap.Pop(l)
		return j
	}
	n.rekey(l.e)
	heap.Fix(l, 0)
	return j
}

func (l *laneLine) Len() int { return len(l.groups) }
func (l *laneLine) Less(a, b int) bool {
	return l.e.laneLess(l.lane, &l.groups[a].head, l.lane, &l.groups[b].head)
}
func (l *laneLine) Swap(a, b int) { l.groups[a], l.groups[b] = l.groups[b], l.groups[a] }
func (l *laneLine) Push(any)      {} // nothing is added
func (l *laneLine) Pop() any {
	l.groups = l.groups[:len(l.groups)-1]
	return nil
}
