package engine

import (
	"cmp"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/engine/inventory"
	"github.com/muster-gpu/muster/engine/job"
	"github.com/muster-gpu/muster/engine/order"
	"github.com/muster-gpu/muster/engine/placement"
	"github.com/muster-gpu/muster/engine/sched"
	"github.com/muster-gpu/muster/engine/shape"
	"github.com/muster-gpu/muster/internal/heap"
)

// A pass considers pending jobs in order, once, from the best to the worst.
// It never looks at a job twice and never at one whose shape has just failed;
// so its cost follows the number of shapes and of jobs that start, not the
// backlog.

// verdict is what became of one candidate.
type verdict uint8

const (
	started verdict = iota
	closed          // nobody else of its group can start now either
	deeper          // the next of its group may still start (it is shorter)
)

// laneCursor is how far a pass has come in one lane.
type laneCursor struct {
	last  order.Item
	begun bool
	deep  []order.Item // next jobs of groups that are walked beyond their first
	done  bool         // nobody is left,
	upTo  int          // unless the list has changed more often: a victim came back
	next  order.Cursor // of the next group,
	as    int          // while the list has changed so often
}

// group returns the first job of the lane's next group; nil: there is none. It is the list's own.
func (c *laneCursor) group(l *lane) *order.Item {
	if c.as != l.groups.Changes() {
		c.next, c.as = order.Cursor{}, l.groups.Changes()
		if c.begun {
			c.next = l.groups.Seek(&c.last)
		}
	}
	return l.groups.Peek(&c.next)
}

type passState struct {
	cursors []laneCursor
	depth   int                // backfill candidates left
	strict  bool               // a job is blocked, and none that comes after it may pass it
	blocked inventory.ClassSet // classes behind such jobs
	shut    shape.NodeBits     // nodes behind such a job that names a set of nodes
	stop    bool
	short   bool // somebody waits for room
}

func (e *Engine) pass() {
	e.stats.Passes++
	e.seenAt, e.fresh = e.epoch, false
	e.resv.Clear()
	e.tail.drop()
	e.rankIfWorthIt()
	e.dropUnread()
	e.refreshEnds()
	p := &e.ps
	if p.short = false; e.pending == 0 {
		e.compact(false)
		e.grow()
		return
	}
	p.cursors = p.cursors[:min(len(p.cursors), len(e.lanes))] // a new queue tree may have fewer
	for len(p.cursors) < len(e.lanes) {
		p.cursors = append(p.cursors, laneCursor{})
	}
	for i := range p.cursors {
		p.cursors[i] = laneCursor{deep: p.cursors[i].deep[:0], done: e.lanes[i].n == 0,
			upTo: e.lanes[i].groups.Changes(), as: -1}
	}
	p.depth, p.stop = e.cfg.Depth, false
	p.strict, p.blocked, p.shut = false, inventory.ClassSet{}, p.shut[:0]
	e.settling = true
	for !p.stop {
		li, it := e.pickLane(p)
		if li < 0 {
			break
		}
		e.consider(p, li, it)
	}
	e.settling = false
	e.compact(p.short)
	e.grow()
}

// peekLane returns the next candidate of a lane, nil if there is none, in its list's memory: it is
// good until the list changes.
func (e *Engine) peekLane(p *passState, li int) (it *order.Item, fromDeep bool) {
	c, l := &p.cursors[li], &e.lanes[li]
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

// pickLane chooses the lane to look at next, and takes its next candidate.
func (e *Engine) pickLane(p *passState) (int, order.Item) {
	best := -1
	var first *order.Item
	var bestDeep bool
	for len(p.cursors) < len(e.lanes) { // a victim went back to a lane of its own
		p.cursors = append(p.cursors, laneCursor{as: -1})
	}
	for li := range e.lanes {
		it, deep := e.peekLane(p, li)
		if it == nil {
			continue
		}
		if best < 0 || e.laneLess(li, it, best, first) {
			best, first, bestDeep = li, it, deep
		}
	}
	if best < 0 {
		return -1, order.Item{}
	}
	c, bestItem := &p.cursors[best], *first
	if bestDeep {
		heap.Pop(&c.deep)
	} else {
		c.last, c.begun = bestItem, true
		c.next.Next()
	}
	return best, bestItem
}

// laneLess orders the next candidates of two lanes: starving jobs, then tiers,
// then partitions; then jobs within their queue's guarantee before borrowers;
// then the policy's order of queues; then the jobs' own.
func (e *Engine) laneLess(a int, ai *order.Item, b int, bi *order.Item) bool {
	la, lb := &e.lanes[a], &e.lanes[b]
	switch {
	case la.tier != lb.tier && (la.tier == cluster.Critical || lb.tier == cluster.Critical):
		return la.tier < lb.tier
	case la.rank != lb.rank:
		return la.rank < lb.rank
	case la.tier != lb.tier:
		return la.tier < lb.tier
	case la.part != lb.part:
		return la.part < lb.part
	}
	if la.queue != lb.queue {
		if e.limits.byQueue {
			ea, eb := e.entitled(e.jobs[ai.ID]), e.entitled(e.jobs[bi.ID])
			if ea != eb {
				return ea
			}
		}
		if e.queues != nil {
			if c := e.compareQueues(int(la.queue), int(lb.queue)); c != 0 {
				return c < 0
			}
		}
	}
	if *ai == *bi {
		return a < b
	}
	return ai.Before(bi)
}

func (e *Engine) entitled(j *job.State) bool {
	return e.w.Tree.Entitled(int(j.Queue), j.Milli, j.Spec.Tier)
}

// compareQueues compares two queues where their paths part.
func (e *Engine) compareQueues(a, b int) int {
	pa, pb := e.w.Tree.Path(a), e.w.Tree.Path(b)
	i := 0
	for i < len(pa) && i < len(pb) && pa[i] == pb[i] {
		i++
	}
	if i == len(pa) || i == len(pb) {
		return 0
	}
	ka, kb := e.queues.QueueKey(e.w.View(), pa[i]), e.queues.QueueKey(e.w.View(), pb[i])
	switch {
	case ka < kb:
		return -1
	case ka > kb:
		return 1
	case e.limits.nested[pa[i-1]]: // jobs of leaves in turn of age and whole subtrees by key would be no order at all
		return cmp.Compare(pa[i], pb[i])
	}
	return 0 // equal leaves: the jobs' own order decides
}

// consider tries one candidate and draws the consequences for the rest.
func (e *Engine) consider(p *passState, li int, it order.Item) {
	if p.depth < 0 {
		p.stop = true
		return
	}
	if e.hopeless(&e.groups[it.Group]) {
		p.short = true
		if len(e.resv.Windows()) > 0 {
			p.depth--
		}
		return
	}
	j := e.jobs[it.ID]
	g := &e.groups[j.Group]
	gi := j.Group
	var at order.Cursor
	first := g.jobs.Peek(&at)
	head := first != nil && *first == j.Key // asked now: j.key is its place among running jobs once it starts
	if at.Next(); !head {
		at = g.jobs.Seek(&j.Key)
	}
	next, more := g.jobs.At(&at)
	v, r := e.try(p, j)
	p.short = p.short || r.code == refusedRoom || r.code == refusedBackfill || r.code == refusedOrder
	g = &e.groups[gi]                             // try may have added groups
	if len(e.resv.Windows()) > 0 || v == deeper { // behind a reservation only so many are looked at
		p.depth--
	}
	switch {
	case v == started && head:
		if c := &p.cursors[li]; g.inUse && g.head.Before(&c.last) && g.head.ID != it.ID {
			heap.Push(&c.deep, g.head) // its next job comes before where the pass is
		}
		return // else the group is listed again with its next job, after this one
	case v == started:
		v = deeper // its first job still waits for a reservation: the next may pass, too
	case r.code == refusedRoom, r.code == refusedBackfill && e.mode == sched.Conservative,
		// what one of its task sets waits for is taken before it; nobody passes it to where the others run
		r.code == refusedOrder:
		made := len(e.resv.Windows())
		if e.block(p, j); e.mode == sched.Conservative && len(e.resv.Windows()) > made {
			v = deeper // each blocked job has a promise of its own, also one of the same shape
		}
	}
	if v == deeper && more {
		heap.Push(&p.cursors[li].deep, e.groupItem(g, next)) // which compares with the firsts of other groups
	}
}

// hopeless reports whether to try a job of the group would find what is known:
// its shape failed since devices were last released, it may take none from
// anybody, and its being blocked has no consequence that is not drawn already.
// Most of those that backfill looks at are; the rest of try costs more than this.
func (e *Engine) hopeless(g *group) bool {
	if g.shape < 0 || e.limits.byQueue || e.elastic > 0 || e.thorough || e.defrag.due {
		return false
	}
	s, l := e.shapes.Get(g.shape), &e.lanes[g.lane]
	if s.Failed != e.epoch || s.Stale || g.stuck != e.claims() && e.outranks(l.tier) {
		return false
	}
	switch e.mode {
	case sched.Skip:
		return l.rank > 0
	case sched.EASY:
		return e.resv.Meets(s) && !e.mayHold(s, g)
	case sched.Conservative:
		return len(e.resv.Windows()) >= e.cfg.Reserve
	case sched.Strict:
	}
	return false
}

// mayHold reports whether nodes are to be held for the first job of a group.
func (e *Engine) mayHold(s *shape.Shape, g *group) bool {
	it, ok := g.jobs.First()
	return ok && e.holdDue(e.jobs[it.ID]) && e.resv.OpenEnded(s)
}

// block draws the consequences of a job that cannot start for lack of room.
func (e *Engine) block(p *passState, j *job.State) {
	mode := e.mode
	if j.Promoted && mode == sched.Skip {
		mode = sched.EASY
	}
	s := e.shapes.At(j.Shape)
	switch mode {
	case sched.Strict:
		p.strict = true
		if s.Most.Within != nil {
			e.blockNodes(p, s)
			return
		}
		p.blocked.Union(&s.Any)
		all := true
		for ci := range e.st.Classes() {
			all = all && p.blocked.Has(int32(ci))
		}
		p.stop = all
	case sched.EASY:
		if !e.resv.Meets(s) || e.holdDue(j) && e.resv.OpenEnded(s) {
			e.promise(j)
		}
	case sched.Conservative:
		if len(e.resv.Windows()) < e.cfg.Reserve {
			e.promise(j)
		}
	}
}

// try starts the job if it can, with devices that are free or, if it may,
// with those of jobs that it preempts.
func (e *Engine) try(p *passState, j *job.State) (verdict, refusal) {
	g := &e.groups[j.Group]
	s := e.shapes.At(j.Shape)
	least := e.leastMilli(j)
	r := e.overQuota(j, least)
	ask := e.candidate(p, j)
	free := ask.Reserved == nil && !p.strict // nothing keeps it from what there is
	deep := closed
	if r.code == notRefused {
		switch {
		case s.Failed == e.epoch && j.Home == nil:
			r.code = refusedRoom
		case p.strict && (s.Shut(&p.blocked) || e.shutOut(p, s)):
			return closed, refusal{code: refusedOrder}
		default:
			allocs, tasks, ok := e.tryPlace(ask, j)
			if ok {
				e.book(j, allocs, tasks)
				e.resv.Take(j, j.Allocs, 1)
				return started, refusal{}
			}
			r.code = refusedRoom
			if ask.Reserved != nil && e.fitsUnreserved(ask, j, s) {
				deep, r.code = deeper, refusedBackfill
			} else if !p.strict && j.Home == nil && !s.Several() {
				// of several sets, where the first goes decides whether the next fits: that may change without
				// a release
				s.Failed = e.epoch
			}
		}
	}
	if r.code == refusedRoom && e.shrinkFor(ask, j) {
		e.resv.Take(j, j.Allocs, 1)
		return started, refusal{}
	}
	if r.code == refusedRoom && e.clearHome(ask, j) { // before it stops anybody who could go elsewhere
		e.resv.Take(j, j.Allocs, 1)
		return started, refusal{}
	}
	if g.stuck != e.claims() && r.code != refusedBackfill && e.mayPreempt(j) {
		done, straddled := e.preemptFor(ask, j)
		if done {
			e.resv.Take(j, j.Allocs, 1)
			return started, refusal{}
		}
		// else it might, were it first, or others first to leave, or where its first set goes taken
		if free && !straddled && !s.Several() && g.first(j) {
			g.stuck = e.claims()
		}
	}
	if r.code == refusedRoom && (e.leaveHome(ask, j) || e.moveFor(ask, j)) {
		e.resv.Take(j, j.Allocs, 1)
		return started, refusal{}
	}
	return deep, r
}

// claims grows whenever a job that could not even preempt may be able to now:
// when devices are released, and where queues matter also when a job gets some,
// because its queue may then be one that borrows.
func (e *Engine) claims() int64 { return e.epoch + e.lent }

// gotMore notes that a job got devices.
func (e *Engine) gotMore() {
	e.fresh = e.fresh || e.severalSets > 0
	if e.limits.byQueue {
		e.lent++
		e.fresh = e.fresh || e.pending > 0
	}
	if e.queues != nil && e.mode != sched.Skip {
		e.fresh = e.fresh || e.pending > 0 // its queue holds more now: another may be the first in line
	}
}

// candidate is the search for a job that a pass considers.
func (e *Engine) candidate(p *passState, j *job.State) placement.Request {
	r := e.anywhere()
	r.Reserved = e.resv.Limits(j, placement.Candidate)
	if p.strict {
		r.Blocked, r.Shut = &p.blocked, p.shut
	}
	return r
}

// fitsUnreserved reports whether only a reservation keeps the job waiting.
func (e *Engine) fitsUnreserved(r placement.Request, j *job.State, s *shape.Shape) bool {
	r.Reserved = nil
	_, ok := e.placeTrial(r, j, s, s.Min)
	return ok
}
