package engine

import (
	"github.com/muster-gpu/muster/engine/job"
	"github.com/muster-gpu/muster/engine/order"
	"github.com/muster-gpu/muster/engine/pending"
	"github.com/muster-gpu/muster/engine/placement"
	"github.com/muster-gpu/muster/engine/sched"
	"github.com/muster-gpu/muster/engine/shape"
)

// A pass considers pending jobs in order, once, from the best to the worst.
// It never looks at a job twice and never at one whose shape has just failed;
// so its cost follows the number of shapes and of jobs that start, not the
// backlog.

// verdict is what became of one candidate.
type verdict uint8

const (
	started verdict = iota
	closed          // no other job of its group can start now either
	deeper          // the next of its group may still start (it is shorter)
)

// obstacle is what keeps a job from starting that was tried.
type obstacle uint8

const (
	noObstacle  obstacle = iota
	notItsTurn           // jobs before it wait for what it could have
	noRoom               // no placement now
	delaysOther          // it would delay a reservation
	overLimit            // quotas, or what services lend, are not for it
)

// passState is where a pass is.
type passState struct {
	walk   pending.Walk
	depth  int          // backfill candidates left
	closed shape.Closed // strict order: nodes behind jobs that are blocked
	stop   bool
	short  bool // a job waits for room
}

func (e *Engine) pass() {
	e.stats.Passes++
	e.seenAt, e.fresh = e.epoch, false
	e.resv.Clear()
	e.victims.Begin()
	e.running.DropUnread()
	if e.mode >= sched.EASY || e.cfg.Starvation > 0 {
		e.running.RefreshEnds()
	}
	p := &e.current
	if p.short = false; e.line.Len() == 0 {
		e.compact(false)
		e.grow()
		return
	}
	p.walk.Begin(&e.line)
	p.depth, p.stop = e.cfg.Depth, false
	p.closed.Clear()
	for !p.stop {
		li, it, ok := p.walk.Next()
		if !ok {
			break
		}
		e.consider(p, li, &it)
	}
	p.walk.End()
	e.compact(p.short)
	e.grow()
}

// consider tries one candidate and draws the consequences for the rest.
func (e *Engine) consider(p *passState, li int, it *order.Item) {
	if p.depth < 0 {
		p.stop = true
		return
	}
	if e.hopeless(e.line.GroupOf(it)) {
		p.short = true
		if len(e.resv.Windows()) > 0 {
			p.depth--
		}
		return
	}
	j := e.jobs[it.ID]
	at := p.walk.Place(li, j)
	v, o := e.try(p, j)
	p.short = p.short || o == noRoom || o == delaysOther || o == notItsTurn
	if len(e.resv.Windows()) > 0 || v == deeper { // behind a reservation only so many are looked at
		p.depth--
	}
	switch {
	case v == started && at.Leads:
		p.walk.Left(&at)
		return
	case v == started:
		v = deeper // its first job still waits for a reservation: the next may pass, too
	case o == noRoom, o == delaysOther && e.mode == sched.Conservative,
		// what one of its task sets waits for is taken before it; no job passes it to where the others run
		o == notItsTurn:
		made := len(e.resv.Windows())
		if e.block(p, j); e.mode == sched.Conservative && len(e.resv.Windows()) > made {
			v = deeper // each blocked job has a promise of its own, also one of the same shape
		}
	}
	if v == deeper {
		p.walk.Deeper(&at)
	}
}

// hopeless reports whether to try a job of the group would find what is known:
// its shape failed since devices were last released, it may take none from
// others, and its being blocked has no consequence that is not drawn already.
// Most of those that backfill looks at are; the rest of try costs more than this.
func (e *Engine) hopeless(g *pending.Group) bool {
	id, ok := g.Shape()
	if !ok || e.w.QueuesMatter || e.lending.Any() || e.elastic > 0 || e.thorough || e.rounds.Due {
		return false
	}
	s := e.shapes.Get(id)
	if s.Failed != e.epoch || s.Stale || g.Stuck != e.claims() && e.victims.Outranks(e.line.Tier(g)) {
		return false
	}
	switch e.mode {
	case sched.Skip:
		return !e.line.Promoted(g)
	case sched.EASY:
		return e.resv.Meets(s) && !e.mayHold(s, g)
	case sched.Conservative:
		return len(e.resv.Windows()) >= e.cfg.Reserve
	case sched.Strict:
	}
	return false
}

// mayHold reports whether nodes are to be held for the first job of a group.
func (e *Engine) mayHold(s *shape.Shape, g *pending.Group) bool {
	id, ok := g.First()
	return ok && e.resv.HoldDue(e.jobs[id]) && e.resv.OpenEnded(s)
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
		p.stop = p.closed.Close(&e.st, s)
	case sched.EASY:
		if !e.resv.Meets(s) || e.resv.HoldDue(j) && e.resv.OpenEnded(s) {
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
func (e *Engine) try(p *passState, j *job.State) (verdict, obstacle) {
	g := e.line.Group(j)
	s := e.shapes.At(j.Shape)
	least := e.w.LeastMilli(j)
	o := overLimit
	ask := e.candidate(p, j)
	anywhere := !e.lending.Bars(j)
	free := ask.Reserved == nil && !p.closed.Any && anywhere // nothing keeps it from what there is
	deep := closed
	if e.limits.Allows(j, least) {
		switch {
		case s.Failed == e.epoch && j.Home == nil:
			o = noRoom
		case p.closed.Shuts(&e.st, s):
			return closed, notItsTurn
		default:
			allocs, tasks, ok := e.tryPlace(ask, j)
			if ok {
				e.book(j, allocs, tasks)
				e.resv.Take(j, j.Allocs, 1)
				return started, noObstacle
			}
			o = noRoom
			if ask.Reserved != nil && e.fitsUnreserved(ask, j, s) {
				deep, o = deeper, delaysOther
			} else if !p.closed.Any && anywhere && j.Home == nil && !s.Several() {
				// what is lent is open to others of the shape; of several sets, where the first goes decides
				// whether the next fits: that may change without a release
				s.Failed = e.epoch
			}
		}
	}
	if o == noRoom && e.shrinkFor(ask, j) {
		e.resv.Take(j, j.Allocs, 1)
		return started, noObstacle
	}
	if o == noRoom && e.clearHome(ask, j) { // before it stops a job that could go elsewhere
		e.resv.Take(j, j.Allocs, 1)
		return started, noObstacle
	}
	if g.Stuck != e.claims() && o != delaysOther && e.victims.May(j) {
		done, straddled := e.preemptFor(ask, j)
		if done {
			e.resv.Take(j, j.Allocs, 1)
			return started, noObstacle
		}
		// else it might, were it first, or others first to leave, or where its first set goes taken
		if free && !straddled && !s.Several() && g.Leads(j) {
			g.Stuck = e.claims()
		}
	}
	if o == noRoom && (e.leaveHome(ask, j) || e.moveFor(ask, j)) {
		e.resv.Take(j, j.Allocs, 1)
		return started, noObstacle
	}
	return deep, o
}

// claims grows whenever a job that could not even preempt may be able to now:
// when devices are released, and where queues matter also when a job gets some,
// because its queue may then be one that borrows, or it may hold what services lend.
func (e *Engine) claims() int64 { return e.epoch + e.gains }

// gotMore notes that a job got devices.
func (e *Engine) gotMore() {
	e.fresh = e.fresh || e.line.Several() > 0
	if e.w.QueuesMatter || e.lending.Any() {
		e.gains++
		e.fresh = e.fresh || e.line.Len() > 0
	}
	if e.line.Queues != nil && e.mode != sched.Skip {
		e.fresh = e.fresh || e.line.Len() > 0 // its queue holds more now: another may be the first in line
	}
}

// candidate is the search for a job that a pass considers.
func (e *Engine) candidate(p *passState, j *job.State) placement.Request {
	r := e.anywhere()
	r.Reserved = e.resv.Limits(j, placement.Candidate)
	if p.closed.Any {
		r.Blocked, r.Shut = &p.closed.Classes, p.closed.Nodes
	}
	return r
}

// fitsUnreserved reports whether only a reservation keeps the job waiting.
func (e *Engine) fitsUnreserved(r placement.Request, j *job.State, s *shape.Shape) bool {
	r.Reserved = nil
	_, ok := e.placeTrial(r, j, s, s.Min)
	return ok
}
