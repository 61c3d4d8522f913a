package engine

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/engine/defrag"
	"github.com/muster-gpu/muster/engine/job"
	"github.com/muster-gpu/muster/engine/order"
	"github.com/muster-gpu/muster/engine/placement"
	"github.com/muster-gpu/muster/engine/reserve"
	"github.com/muster-gpu/muster/engine/shape"
	"github.com/muster-gpu/muster/engine/words"
)

// Defragmentation: enough GPUs are free for a waiting gang, but not
// together. Running jobs are moved, so that they are. A move is a preemption
// whose victim has its next devices before it is told to leave: they are in the
// books for it (State.dest), so that nothing can come between. The gang has
// its own likewise, and starts when the movers have left them.

// defragState is where the engine is in looking for moves.
type defragState struct {
	defrag.Settings
	on         bool
	round      cluster.Time // the last one, of Every, in which moves were looked for
	due        bool         // this pass looks for moves
	look       bool         // ... and makes none
	only       cluster.JobID
	compacting Compact // this pass empties nodes
	tried      int
	seen       []Moves         // what the last pass that looked found
	movers     []cluster.JobID // jobs that leave for devices that are booked for them, by number
}

// keepMoves is how long it is remembered that a job was moved.
const keepMoves = time.Hour

// mostGangs bounds for how many waiting jobs moves are looked for in one pass.
const mostGangs = 16

// defragDue says whether the pass of this step looks for moves.
func (e *Engine) defragDue() {
	d := &e.defrag
	if p := cluster.Time(d.Every); e.defragRounds() && e.w.Now/p != d.round && e.protectedNow() == "" {
		d.round, d.due, d.only, d.compacting = e.w.Now/p, true, cluster.NoJob, d.Compact
	}
	if d.due || d.compacting != NoCompact {
		d.tried, d.seen, e.fresh = 0, nil, true
	}
}

// defragRounds reports whether moves are looked for again and again: while a job waits, or runs on a node that could be
// emptied.
func (e *Engine) defragRounds() bool {
	d := &e.defrag
	return d.on && d.Auto && (e.line.Len() > 0 || d.Compact != NoCompact && e.live > 0)
}

// defragWake is when the engine wants to be called to look for moves.
func (e *Engine) defragWake() cluster.Time {
	p := cluster.Time(e.defrag.Every)
	switch {
	case !e.defragRounds():
		return cluster.Never
	case e.protectedNow() != "":
		return e.unprotectedFrom(e.w.Now) // not only in the round after
	}
	return e.unprotectedFrom((e.w.Now/p + 1) * p)
}

// askMoves has the pass of this step look for moves for one job, or for all, or for
// such as empty nodes.
func (e *Engine) askMoves(ev *Event) {
	switch d := &e.defrag; {
	case !d.on:
	case ev.Compact != NoCompact:
		d.compacting = ev.Compact
	default:
		d.due, d.only = true, ev.Job
	}
}

// Moved is what the last step that looked for moves found, in the order of the
// line. It is valid until the next step.
func (e *Engine) Moved() []Moves { return e.defrag.seen }

// LookForMoves says which moves would let waiting jobs start, the one, or with NoJob
// those that a pass looks at. The engine is another when it returns: the caller
// restored it for this.
func (e *Engine) LookForMoves(job cluster.JobID) []Moves {
	d := &e.defrag
	if !d.on {
		d.Settings, d.on = d.WithDefaults(), true
	}
	d.due, d.look, d.only, d.tried, d.seen = true, true, job, 0, nil
	e.pass()
	d.due, d.look = false, false
	if job != cluster.NoJob && len(d.seen) == 0 {
		d.seen = []Moves{e.notLooked(job)}
	}
	return d.seen
}

// LookForEmptying says which moves would empty nodes, as LookForMoves does for waiting
// jobs.
func (e *Engine) LookForEmptying(by Compact) []Moves {
	d := &e.defrag
	if !d.on {
		d.Settings, d.on = d.WithDefaults(), true
	}
	d.look, d.compacting, d.seen = true, by, nil
	e.pass()
	d.look, d.compacting = false, NoCompact
	return d.seen
}

// notLooked says why no moves were looked for.
func (e *Engine) notLooked(id cluster.JobID) Moves {
	m := Moves{Job: id, Without: cluster.Never, Start: cluster.Never, Text: "there is no such job"}
	j := e.job(id)
	if j == nil {
		return m
	}
	m.Name, m.GPUs, m.Text = j.Spec.Name, int(j.Devices), "no moves are looked for: it is "+j.State.String()
	switch {
	case j.State != job.Pending:
	case !j.Eligible:
		m.Text = "no move would help: " + e.explain.Parked(j)
	case !e.limits.Allows(j, e.w.LeastMilli(j)):
		r := e.limits.Check(j, e.w.LeastMilli(j))
		m.Text = "no move would help: " + e.limits.Text(&r, j, e.clock)
	default:
		m.Text = "no moves are looked for: others come before it, or it waits for more than room"
	}
	return m
}

// moveFor looks for moves that let a job start that has no room, and makes them
// if they are worth it.
func (e *Engine) moveFor(r placement.Request, j *job.State) bool {
	d := &e.defrag
	if !d.due || d.only != cluster.NoJob && d.only != j.Spec.ID || d.tried >= mostGangs {
		return false
	}
	d.tried++
	m, way := e.planMoves(r, j)
	made := way != nil && m.Worth && !d.look
	if made {
		m.Made = true
		e.relocate(j, way)
	}
	d.seen = append(d.seen, m)
	return made
}

// planMoves finds the cheapest moves for a job, and whether they are worth it.
func (e *Engine) planMoves(r placement.Request, j *job.State) (Moves, *defrag.Relocation) {
	d, s := &e.defrag, e.shapes.At(j.Shape)
	m := e.moving.Moves(j, s)
	if m.Text = e.whyNotMoved(j, s); m.Text != "" {
		return m, nil
	}
	left := e.movesLeft()
	if left <= 0 {
		m.Text = e.onTheWay()
		return m, nil
	}
	movers, kept := e.movable(j.Spec.Tier)
	if len(movers) == 0 {
		m.Text = "no running job may be moved" + kept
		return m, nil
	}
	links := 0
	if d.Moves > 1 {
		links = d.Chain - 1
	}
	way := e.moving.Find(r, j, s, movers, left, links)
	if way == nil {
		m.Text = "no moves make room: the jobs that could leave find no room elsewhere, or are too few" + kept
		return m, nil
	}
	without := cluster.Never
	if start, ok := e.explain.Earliest(j); ok && !reserve.OutOfSight(e.w.Now, start.At) {
		without = start.At
	}
	e.moving.Weigh(&m, way, without, d.Horizon)
	e.postpone(&m)
	return m, way
}

// whyNotMoved says why moves cannot help the job; "": they may.
func (e *Engine) whyNotMoved(j *job.State, s *shape.Shape) string {
	r := &s.Sets[0].Request
	if text := e.whyNoneMoves(); text != "" {
		return text
	}
	switch {
	case len(s.Sets) != 1 || r.GPUs == 0:
		return "jobs are moved for gangs of one kind of task with GPUs only"
	case shape.IsPart(r) && e.cfg.Unshared:
		return "jobs are moved for whole GPUs only: here Muster does not choose the GPU of shares and slices"
	case s.NoPreempt:
		return "it asks that no job is stopped for it"
	case j.Home != nil:
		return "it is suspended, and goes on only where its memory is"
	}
	if shape.IsPart(r) {
		return ""
	}
	if have, parted := e.freeFor(s); have+parted < s.GPUs {
		text := fmt.Sprintf("no move would help: it needs %s, %d suitable ones are free", words.GPUs(s.GPUs), have)
		if parted > 0 {
			text += fmt.Sprintf(", and on %d are only shares and slices", parted)
		}
		return text
	}
	return ""
}

// whyNoneMoves says why no job is moved at all; "": jobs may be.
func (e *Engine) whyNoneMoves() string {
	switch {
	case e.plan.Active() && !e.w.Traits.Anywhere:
		return "policy " + e.cfg.Policy.Name() + " plans where jobs run: only its plans move them"
	case e.resv.HasAdvance():
		return "there are advance reservations: jobs are not moved around them yet"
	}
	return ""
}

// freeFor is the free GPUs, and those on which only shares and slices are, of the model of
// which there are most of both. Where the engine does not choose the GPUs of these, none count.
func (e *Engine) freeFor(s *shape.Shape) (free, parted int) {
	for _, g := range s.StagesOf() {
		f, p := 0, 0
		for _, ci := range g.Classes {
			f += e.st.Classes()[ci].Free()
			if !e.cfg.Unshared {
				p += e.st.Parted(ci)
			}
		}
		if f+p > free+parted {
			free, parted = f, p
		}
	}
	return free, parted
}

// movable lists the running jobs of a tier or a lower one that may be moved, by number,
// and says what keeps others where they are.
func (e *Engine) movable(tier cluster.Tier) (list []defrag.Mover, kept string) {
	young, often := 0, 0
	e.running.ByKey().Walk(func(it order.Item) bool {
		v := e.jobs[it.ID]
		switch {
		case !e.mayMove(v) || v.Tier() < tier:
		case !e.mayStop(v):
			young++
		case v.MovedSince(e.w.Now.Add(-keepMoves)) >= e.defrag.PerHour:
			often++
		default:
			list = append(list, e.moving.Mover(v))
		}
		return true
	})
	slices.SortFunc(list, func(a, b defrag.Mover) int { return cmp.Compare(a.Job.Spec.ID, b.Job.Spec.ID) })
	if young > 0 {
		kept += fmt.Sprintf("; %s within the minimum run time", words.Jobs(young))
	}
	if often > 0 {
		kept += fmt.Sprintf("; %s moved %d times within the hour", words.Jobs(often), e.defrag.PerHour)
	}
	return list, kept
}

// mayMove reports whether a job may be moved at all: it runs on whole GPUs of its
// own, or on shares or slices that it asked for where the engine chooses their GPUs; one kind of
// task, at a size that it may keep, no plan says in which partition, and it comes back when it is stopped.
func (e *Engine) mayMove(v *job.State) bool {
	s := e.shapes.At(v.Base)
	r := &s.Sets[0].Request
	return v.State == job.Running && e.plan.Stays(v) && v.Spec.Tier != cluster.Critical && !v.Spec.NoRequeue &&
		!v.Spec.Hold && len(s.Sets) == 1 &&
		r.GPUs > 0 && (!shape.IsPart(r) || !e.cfg.Unshared) && !e.shapes.Get(v.Base).OnInstance(v.Allocs) &&
		(v.Target == nil || v.Target.Partition == "") && !v.Hosted() && len(v.Guests) == 0 && !v.Packed &&
		!v.Resizing && !e.limits.Closed(int(v.Queue))
}

// movesLeft is how many more moves there may be at once, in thousandths.
func (e *Engine) movesLeft() cluster.Milli {
	left := cluster.Milli(e.defrag.Moves) * cluster.Whole
	for _, id := range e.defrag.movers {
		left -= defrag.Toll(e.jobs[id])
	}
	return left
}

// onTheWay says that no more jobs are moved at once.
func (e *Engine) onTheWay() string {
	return fmt.Sprintf("%s on the way already: no more are moved at once", words.Jobs(len(e.defrag.movers)))
}

// Compaction: while no job waits for room, jobs are moved off nodes that
// others have room for, so that whole nodes are empty: for gangs to come, to be
// switched off or partitioned again. Nodes that are empty stay so: the number of nodes
// in use falls with each one that is emptied.

// compact empties nodes, if that is wanted in this pass and no job waits for room.
func (e *Engine) compact(short bool) {
	d := &e.defrag
	if d.compacting == NoCompact {
		return
	}
	text := e.whyNoneMoves()
	if short {
		text = "no node is emptied while a job waits for room"
	}
	for made := false; ; made = true {
		m := Moves{Job: cluster.NoJob, Without: cluster.Never, Start: cluster.Never, Weight: 1000, Text: text}
		var way *defrag.Relocation
		if text == "" {
			m, way = e.planEmptying(m)
		}
		if way == nil && made {
			return
		}
		goes := way != nil && m.Worth
		e.postpone(&m)
		if goes = goes && (m.Worth || d.look); goes {
			// also where moves are only looked for: the next node is seen as it is then
			e.startMoves(way.Movers, nil, cluster.NoJob)
		}
		m.Made = goes && !d.look
		if d.seen = append(d.seen, m); !goes {
			return
		}
	}
}

// planEmptying finds the node whose emptying gains most above its cost, or says why
// there is none.
func (e *Engine) planEmptying(m Moves) (Moves, *defrag.Relocation) {
	left := e.movesLeft()
	if left <= 0 {
		m.Text = e.onTheWay()
		return m, nil
	}
	movers, kept := e.movable(cluster.Critical)
	// they would grow back onto the node
	movers = slices.DeleteFunc(movers, func(m defrag.Mover) bool { return e.stretches(m.Job) })
	way := e.moving.Empty(&m, e.placements(e.defrag.compacting), movers, left)
	if way == nil {
		m.Text = fmt.Sprintf("no node can be emptied by up to %g moves to others in use",
			float64(left)/float64(cluster.Whole)) + kept
	}
	return m, way
}

// placements collects which jobs are where.
func (e *Engine) placements(by Compact) *defrag.Compaction {
	c := e.moving.Compaction(by, e.w.Now.Add(e.defrag.Horizon))
	e.running.ByKey().Walk(func(it order.Item) bool {
		v := e.jobs[it.ID]
		c.Add(v.Spec.ID, v.Allocs, e.w.EndOf(v))
		return true
	})
	for _, id := range e.defrag.movers {
		v := e.jobs[id]
		c.Add(id, v.Dest, e.w.Now.Add(v.ExpectedRun(e.w.LimitOf(v))))
	}
	return c
}
