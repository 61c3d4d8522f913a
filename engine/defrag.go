package engine

import (
	"fmt"
	"slices"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/engine/defrag"
	"github.com/muster-gpu/muster/engine/job"
	"github.com/muster-gpu/muster/engine/placement"
	"github.com/muster-gpu/muster/engine/reserve"
)

// Defragmentation: enough GPUs are free for a waiting gang, but not
// together. Running jobs are moved, so that they are. A move is a preemption
// whose victim has its next devices before it is told to leave: they are in the
// books for it (State.dest), so that nothing can come between. The gang has
// its own likewise, and starts when the movers have left them.

// defragState is where the engine is in looking for moves.
type defragState struct {
	on         bool
	round      cluster.Time // the last one, of Every, in which moves were looked for
	due        bool         // this pass looks for moves
	look       bool         // ... and makes none
	only       cluster.JobID
	compacting Compact // this pass empties nodes
	tried      int
	seen       []Moves // what the last pass that looked found
}

// mostGangs bounds for how many waiting jobs moves are looked for in one pass.
const mostGangs = 16

// defragDue says whether the pass of this step looks for moves.
func (e *Engine) defragDue() {
	d, s := &e.defrag, &e.moves.Settings
	if p := cluster.Time(s.Every); e.defragRounds() && e.w.Now/p != d.round && e.moves.Protected() == "" {
		d.round, d.due, d.only, d.compacting = e.w.Now/p, true, cluster.NoJob, s.Compact
	}
	if d.due || d.compacting != NoCompact {
		d.tried, d.seen, e.fresh = 0, nil, true
	}
}

// defragRounds reports whether moves are looked for again and again: while a job waits, or runs on a node that could be
// emptied.
func (e *Engine) defragRounds() bool {
	d, s := &e.defrag, &e.moves.Settings
	return d.on && s.Auto && (e.line.Len() > 0 || s.Compact != NoCompact && e.live > 0)
}

// defragWake is when the engine wants to be called to look for moves.
func (e *Engine) defragWake() cluster.Time {
	p := cluster.Time(e.moves.Settings.Every)
	switch {
	case !e.defragRounds():
		return cluster.Never
	case e.moves.Protected() != "":
		return e.moves.Unprotected(e.w.Now) // not only in the round after
	}
	return e.moves.Unprotected((e.w.Now/p + 1) * p)
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
		e.moves.Settings, d.on = e.moves.Settings.WithDefaults(), true
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
		e.moves.Settings, d.on = e.moves.Settings.WithDefaults(), true
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
	s := e.shapes.At(j.Shape)
	m := e.moving.Moves(j, s)
	if m.Text = e.moves.WhyNot(j, s); m.Text != "" {
		return m, nil
	}
	left := e.moves.Left()
	if left <= 0 {
		m.Text = e.moves.Full()
		return m, nil
	}
	movers, kept := e.moves.Movable(j.Spec.Tier)
	if len(movers) == 0 {
		m.Text = "no running job may be moved" + kept
		return m, nil
	}
	links := 0
	if e.moves.Settings.Moves > 1 {
		links = e.moves.Settings.Chain - 1
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
	e.moving.Weigh(&m, way, without, e.moves.Settings.Horizon)
	e.moves.Postpone(&m)
	return m, way
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
	text := e.moves.WhyNone()
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
		e.moves.Postpone(&m)
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
	left := e.moves.Left()
	if left <= 0 {
		m.Text = e.moves.Full()
		return m, nil
	}
	movers, kept := e.moves.Movable(cluster.Critical)
	// they would grow back onto the node
	movers = slices.DeleteFunc(movers, func(m defrag.Mover) bool { return e.w.Elastic(m.Job) })
	way := e.moving.Empty(&m, e.moves.Placements(e.defrag.compacting), movers, left)
	if way == nil {
		m.Text = fmt.Sprintf("no node can be emptied by up to %g moves to others in use",
			float64(left)/float64(cluster.Whole)) + kept
	}
	return m, way
}
