//go:build linux

package local

import (
	"context"
	"errors"
	"slices"

	"github.com/muster-gpu/muster/ask"
	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/driver"
	"github.com/muster-gpu/muster/engine"
	"github.com/muster-gpu/muster/show"
)

// sameNumber is the number of a job for people: the engine's.
func sameNumber(id cluster.JobID) int { return int(id) }

// movesEvent is the event by which moves are asked for, if there is the job.
func (m *Machine) movesEvent(r *ask.MovesRequest) (engine.Event, error) {
	ev := engine.Event{Type: engine.Defragment, Job: cluster.NoJob}
	by, err := driver.Asked(r)
	if ev.Compact = by; err == nil && r.Job != 0 {
		if ev.Job = cluster.JobID(r.Job); m.jobs[ev.Job] == nil {
			err = ErrNoJob
		}
	}
	return ev, err
}

// PlanMoves says which moves of running jobs would let waiting ones start, or empty
// nodes. Nothing is changed: a second engine is asked.
func (m *Machine) PlanMoves(r *ask.MovesRequest) ([]show.Moves, error) {
	m.mu.Lock()
	ev, err := m.movesEvent(r)
	if err != nil {
		m.mu.Unlock()
		return nil, err
	}
	snap, now, rules := m.eng.Snapshot(), m.clock.Now(), m.rules()
	m.mu.Unlock()
	e, err := m.restored(&rules, &snap)
	if err != nil {
		return nil, err
	}
	e.Look(now)
	if ev.Compact != engine.NoCompact {
		return driver.Moves(e.LookForEmptying(ev.Compact), sameNumber), nil
	}
	return driver.Moves(e.LookForMoves(ev.Job), sameNumber), nil
}

// MakeMoves makes the moves that are worth it, and returns what was found.
func (m *Machine) MakeMoves(ctx context.Context, r *ask.MovesRequest) ([]show.Moves, error) {
	if rules := m.rules(); rules.Defrag == nil {
		return nil, errors.New("the configuration says that no job is moved (defragment: {mode: off})")
	} else if err := driver.MayMove(rules.Defrag, m.clock.Now()); err != nil {
		return nil, err
	}
	err := m.commit(ctx, func(cluster.Time) ([]engine.Event, error) {
		ev, err := m.movesEvent(r)
		if err != nil {
			return nil, err
		}
		m.moved = nil
		return []engine.Event{ev}, nil
	})
	if err != nil {
		return nil, err
	}
	m.mu.RLock()
	defer m.mu.RUnlock()
	return slices.Clone(m.moved), nil
}

// worthMoves says which moves would be worth it for a job; "": none.
func worthMoves(id cluster.JobID, fork func() (*engine.Engine, error)) (string, error) {
	e, err := fork()
	if err != nil {
		return "", err
	}
	for _, p := range e.LookForMoves(id) {
		if p.Worth {
			return p.String(), nil
		}
	}
	return "", nil
}
