//go:build linux

package local

import (
	"context"
	"errors"
	"slices"

	"github.com/muster-gpu/muster/api"
	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/engine"
)

// movesFor is the job that is meant by a number of the interface; 0: all.
func movesFor(job int) cluster.JobID {
	if job == 0 {
		return cluster.NoJob
	}
	return cluster.JobID(job)
}

// PlanMoves says which moves of running jobs would let waiting ones start (job 0:
// whichever it helps). Nothing is changed: a second engine is asked.
func (m *Machine) PlanMoves(job int) ([]api.Moves, error) {
	m.mu.Lock()
	if job != 0 && m.jobs[cluster.JobID(job)] == nil {
		m.mu.Unlock()
		return nil, ErrNoJob
	}
	snap, now, rules := m.eng.Snapshot(), m.clock.now(m.opt.Now()), m.rules()
	m.mu.Unlock()
	e, err := m.restored(&rules, &snap)
	if err != nil {
		return nil, err
	}
	e.Look(now)
	return movesView(e.LookForMoves(movesFor(job))), nil
}

// MakeMoves makes the moves that are worth it, and returns what was found.
func (m *Machine) MakeMoves(ctx context.Context, job int) ([]api.Moves, error) {
	if rules := m.rules(); rules.Defrag == nil {
		return nil, errors.New("the configuration says that nobody is moved (defragment: {mode: off})")
	}
	err := m.commit(ctx, func(cluster.Time) ([]engine.Event, error) {
		if job != 0 && m.jobs[cluster.JobID(job)] == nil {
			return nil, ErrNoJob
		}
		m.moved = nil
		return []engine.Event{{Type: engine.Defragment, Job: movesFor(job)}}, nil
	})
	if err != nil {
		return nil, err
	}
	m.mu.RLock()
	defer m.mu.RUnlock()
	return slices.Clone(m.moved), nil
}

// movesView is what the engine says of moves, for people and programs.
func movesView(list []engine.Moves) []api.Moves {
	out := make([]api.Moves, 0, len(list))
	for i := range list {
		p := &list[i]
		v := api.Moves{Job: int(p.Job), GPUs: p.GPUs, On: p.On, Cost: p.Cost.Seconds(), Without: instant(p.Without), Start: instant(p.Start), Saved: api.Duration(p.Saved),
			Weight: float64(p.Weight) / 1000, Benefit: p.Benefit.Seconds(), Worth: p.Worth, Made: p.Made, Text: p.Text}
		for k := range p.Moves {
			x := &p.Moves[k]
			v.Moves = append(v.Moves, api.Move{Job: int(x.Job), GPUs: x.GPUs, From: x.From, To: x.To, Stop: api.Duration(x.Stop), Restart: api.Duration(x.Restart),
				Lost: api.Duration(x.Lost), Cost: x.Cost.Seconds()})
		}
		out = append(out, v)
	}
	return out
}

// tryMoves says which moves would be worth it for a job; "": none.
func (m *Machine) tryMoves(id cluster.JobID, snap *engine.Snapshot) (string, error) {
	e, err := m.fork(snap)
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
