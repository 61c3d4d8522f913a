package engine

import (
	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/engine/job"
	"github.com/muster-gpu/muster/engine/placement"
)

// Defragmentation: enough GPUs are free for a waiting gang, but not
// together. Running jobs are moved, so that they are. A move is a preemption
// whose victim has its next devices before it is told to leave: they are in the
// books for it (State.dest), so that nothing can come between. The gang has
// its own likewise, and starts when the movers have left them.

// Moved is what the last step that looked for moves found, in the order of the
// line. It is valid until the next step.
func (e *Engine) Moved() []Moves { return e.rounds.Seen() }

// LookForMoves says which moves would let waiting jobs start, the one, or with NoJob
// those that a pass looks at. The engine is another when it returns: the caller
// restored it for this.
func (e *Engine) LookForMoves(id cluster.JobID) []Moves {
	seen := e.rounds.Look(id, e.pass)
	if id != cluster.NoJob && len(seen) == 0 {
		return []Moves{e.notLooked(id)}
	}
	return seen
}

// LookForEmptying says which moves would empty nodes, as LookForMoves does for waiting
// jobs.
func (e *Engine) LookForEmptying(by Compact) []Moves { return e.rounds.LookForEmptying(by, e.pass) }

// notLooked says why no moves were looked for.
func (e *Engine) notLooked(id cluster.JobID) Moves {
	m := Moves{Job: id, Without: cluster.Never, Start: cluster.Never, Text: "there is no such job"}
	if j := e.job(id); j != nil {
		m.Name, m.GPUs, m.Text = j.Spec.Name, int(j.Devices), e.explain.NoMoves(j)
	}
	return m
}

// moveFor looks for moves that let a job start that has no room, and makes them
// if they are worth it.
func (e *Engine) moveFor(r placement.Request, j *job.State) bool {
	way := e.rounds.For(r, j)
	if way != nil {
		e.relocate(j, way)
	}
	return way != nil
}

// compact empties nodes, if that is wanted in this pass and no job waits for room.
func (e *Engine) compact(short bool) {
	for way := e.rounds.Empty(short, false); way != nil; way = e.rounds.Empty(short, true) {
		e.startMoves(way.Movers, nil, cluster.NoJob)
	}
}
