package defrag

import (
	"fmt"
	"slices"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/engine/job"
	"github.com/muster-gpu/muster/engine/placement"
	"github.com/muster-gpu/muster/engine/reserve"
)

// Rounds is where the engine is in looking for moves. They are looked for in passes, for waiting jobs, or to empty
// nodes. The engine makes those that are worth it; all are noted.
type Rounds struct {
	On         bool
	Last       cluster.Time // the last round, of Every, in which moves were looked for
	Due        bool         // this pass looks for moves
	Compacting Compact      // this pass empties nodes

	rules    *Rules
	finder   *Finder
	earliest func(j *job.State) (reserve.Window, bool)
	look     bool // moves are looked for and none are made
	only     cluster.JobID
	tried    int
	seen     []Moves // what the last pass that looked found
}

// NewRounds makes the rounds of these rules: there is none before settings are given. Earliest is when a job starts
// without moves.
func NewRounds(rules *Rules, earliest func(j *job.State) (reserve.Window, bool)) Rounds {
	return Rounds{rules: rules, finder: rules.finder, earliest: earliest}
}

// Start has moves be looked for as settings say.
func (d *Rounds) Start(s Settings) { d.rules.Settings, d.On = s.WithDefaults(), true }

// mostGangs bounds for how many waiting jobs moves are looked for in one pass.
const mostGangs = 16

// Begin says whether the pass of this step looks for moves, where so many jobs wait in line and are not done.
func (d *Rounds) Begin(waiting, live int) bool {
	s, now := &d.rules.Settings, d.rules.world.Now
	if p := cluster.Time(s.Every); d.again(waiting, live) && now/p != d.Last && d.rules.Protected() == "" {
		d.Last, d.Due, d.only, d.Compacting = now/p, true, cluster.NoJob, s.Compact
	}
	if !d.Due && d.Compacting == NoCompact {
		return false
	}
	d.tried, d.seen = 0, nil
	return true
}

// End is the end of the pass.
func (d *Rounds) End() { d.Due, d.Compacting = false, NoCompact }

// again reports whether moves are looked for again and again: while a job waits, or runs on a node that could be
// emptied.
func (d *Rounds) again(waiting, live int) bool {
	s := &d.rules.Settings
	return d.On && s.Auto && (waiting > 0 || s.Compact != NoCompact && live > 0)
}

// Wake is when moves are to be looked for.
func (d *Rounds) Wake(waiting, live int) cluster.Time {
	p, now := cluster.Time(d.rules.Settings.Every), d.rules.world.Now
	switch {
	case !d.again(waiting, live):
		return cluster.Never
	case d.rules.Protected() != "":
		return d.rules.Unprotected(now) // not only in the round after
	}
	return d.rules.Unprotected((now/p + 1) * p)
}

// Ask has the pass of this step look for moves for one job, or for all, or for such as empty nodes.
func (d *Rounds) Ask(id cluster.JobID, by Compact) {
	switch {
	case !d.On:
	case by != NoCompact:
		d.Compacting = by
	default:
		d.Due, d.only = true, id
	}
}

// Seen is what the last pass that looked for moves found, in the order of the line.
func (d *Rounds) Seen() []Moves { return d.seen }

// Forget forgets that.
func (d *Rounds) Forget() { d.seen = nil }

// Look returns what a pass finds that looks for moves for one job, or with NoJob for all, and makes none.
func (d *Rounds) Look(id cluster.JobID, pass func()) []Moves {
	d.lookWithDefaults()
	d.Due, d.only, d.tried, d.seen = true, id, 0, nil
	pass()
	d.Due, d.look = false, false
	return d.seen
}

// LookForEmptying is Look for moves that empty nodes.
func (d *Rounds) LookForEmptying(by Compact, pass func()) []Moves {
	d.lookWithDefaults()
	d.Compacting, d.seen = by, nil
	pass()
	d.look, d.Compacting = false, NoCompact
	return d.seen
}

func (d *Rounds) lookWithDefaults() {
	if d.look = true; !d.On {
		d.Start(d.rules.Settings)
	}
}

// For looks for moves that let a job start that has no room; nil: none are to be made.
func (d *Rounds) For(r placement.Request, j *job.State) *Relocation {
	if !d.Due || d.only != cluster.NoJob && d.only != j.Spec.ID || d.tried >= mostGangs {
		return nil
	}
	d.tried++
	m, way := d.Plan(r, j)
	m.Made = way != nil && m.Worth && !d.look
	d.seen = append(d.seen, m)
	if !m.Made {
		return nil
	}
	return way
}

// Plan finds the cheapest moves for a job, and whether they are worth it.
func (d *Rounds) Plan(r placement.Request, j *job.State) (Moves, *Relocation) {
	s := d.rules.world.Shapes.At(j.Shape)
	m := d.finder.Moves(j, s)
	if m.Text = d.rules.WhyNot(j, s); m.Text != "" {
		return m, nil
	}
	left := d.rules.Left()
	if left <= 0 {
		m.Text = d.rules.Full()
		return m, nil
	}
	movers, kept := d.rules.Movable(j.Spec.Tier)
	if len(movers) == 0 {
		m.Text = "no running job may be moved" + kept
		return m, nil
	}
	links := 0
	if d.rules.Settings.Moves > 1 {
		links = d.rules.Settings.Chain - 1
	}
	way := d.finder.Find(r, j, s, movers, left, links)
	if way == nil {
		m.Text = "no moves make room: the jobs that could leave find no room elsewhere, or are too few" + kept
		return m, nil
	}
	without := cluster.Never
	if start, ok := d.earliest(j); ok && !reserve.OutOfSight(d.rules.world.Now, start.At) {
		without = start.At
	}
	d.finder.Weigh(&m, way, without, d.rules.Settings.Horizon)
	d.rules.Postpone(&m)
	return m, way
}

// Compaction: while no job waits for room, jobs are moved off nodes that
// others have room for, so that whole nodes are empty: for gangs to come, to be
// switched off or partitioned again. Nodes that are empty stay so: the number of nodes
// in use falls with each one that is emptied.

// Empty finds the moves that empty a node, if that is wanted in this pass and no job waits for room; nil: none are
// made. It is called again when these have begun, so that nodes are emptied one by one (made: this is not the first).
func (d *Rounds) Empty(short, made bool) *Relocation {
	if d.Compacting == NoCompact {
		return nil
	}
	text := d.rules.WhyNone()
	if short {
		text = "no node is emptied while a job waits for room"
	}
	m := Moves{Job: cluster.NoJob, Without: cluster.Never, Start: cluster.Never, Weight: 1000, Text: text}
	var way *Relocation
	if text == "" {
		m, way = d.PlanEmptying(m)
	}
	if way == nil && made {
		return nil
	}
	goes := way != nil && m.Worth
	d.rules.Postpone(&m)
	// also where moves are only looked for they begin: the next node is seen as it is then
	goes = goes && (m.Worth || d.look)
	m.Made = goes && !d.look
	if d.seen = append(d.seen, m); !goes {
		return nil
	}
	return way
}

// PlanEmptying finds the node whose emptying gains most above its cost, or says why
// there is none.
func (d *Rounds) PlanEmptying(m Moves) (Moves, *Relocation) {
	left := d.rules.Left()
	if left <= 0 {
		m.Text = d.rules.Full()
		return m, nil
	}
	movers, kept := d.rules.Movable(cluster.Critical)
	// they would grow back onto the node
	movers = slices.DeleteFunc(movers, func(m Mover) bool { return d.rules.world.Elastic(m.Job) })
	way := d.finder.Empty(&m, d.rules.Placements(d.Compacting), movers, left)
	if way == nil {
		m.Text = fmt.Sprintf("no node can be emptied by up to %g moves to others in use",
			float64(left)/float64(cluster.Whole)) + kept
	}
	return m, way
}
