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

// asked is the event by which moves are asked for, if there is the job.
func (m *Machine) asked(r *api.MovesRequest) (engine.Event, error) {
	ev := engine.Event{Type: engine.Defragment, Job: cluster.NoJob}
	switch {
	case r.Job != 0 && r.Compact != "":
		return ev, &api.FieldError{Field: "compact", Text: "a job and compact do not go together: nodes are emptied for nobody in particular"}
	case r.Job != 0:
		ev.Job = cluster.JobID(r.Job)
		if m.jobs[ev.Job] == nil {
			return ev, ErrNoJob
		}
	case r.Compact != "":
		var err error
		if ev.Compact, err = engine.ParseCompact(r.Compact); err != nil {
			return ev, &api.FieldError{Field: "compact", Text: err.Error()}
		}
	}
	return ev, nil
}

// PlanMoves says which moves of running jobs would let waiting ones start, or empty
// nodes. Nothing is changed: a second engine is asked.
func (m *Machine) PlanMoves(r *api.MovesRequest) ([]api.Moves, error) {
	m.mu.Lock()
	ev, err := m.asked(r)
	if err != nil {
		m.mu.Unlock()
		return nil, err
	}
	snap, now, rules := m.eng.Snapshot(), m.clock.now(m.opt.Now()), m.rules()
	m.mu.Unlock()
	e, err := m.restored(&rules, &snap)
	if err != nil {
		return nil, err
	}
	e.Look(now)
	if ev.Compact != engine.NoCompact {
		return movesView(e.LookForEmptying(ev.Compact)), nil
	}
	return movesView(e.LookForMoves(ev.Job)), nil
}

// MakeMoves makes the moves that are worth it, and returns what was found.
func (m *Machine) MakeMoves(ctx context.Context, r *api.MovesRequest) ([]api.Moves, error) {
	if rules := m.rules(); rules.Defrag == nil {
		return nil, errors.New("the configuration says that nobody is moved (defragment: {mode: off})")
	}
	err := m.commit(ctx, func(cluster.Time) ([]engine.Event, error) {
		ev, err := m.asked(r)
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

// movesView is what the engine says of moves, for people and programs.
func movesView(list []engine.Moves) []api.Moves {
	out := make([]api.Moves, 0, len(list))
	for i := range list {
		p := &list[i]
		v := api.Moves{Job: max(0, int(p.Job)), Empties: p.Empties, GPUs: p.GPUs, On: p.On, Cost: p.Cost.Seconds(), Without: instant(p.Without), Start: instant(p.Start), Saved: api.Duration(p.Saved),
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
