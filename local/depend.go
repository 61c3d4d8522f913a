//go:build linux

package local

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/muster-gpu/muster/ask"
	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/engine"
	"github.com/muster-gpu/muster/local/after"
	"github.com/muster-gpu/muster/store"
)

// dependencies translates what a submission waits for; index is the one of the element of an array that it is for.
func (m *Machine) dependencies(s *ask.Submission, index int) ([]cluster.Dependency, error) {
	return after.Dependencies(referred{m, m.eng}, s, index)
}

// referred are the jobs that others refer to (after.Jobs).
type referred struct {
	m *Machine
	*engine.Engine
}

func (r referred) Job(id int) (after.Job, error) {
	if j := r.m.jobs[cluster.JobID(id)]; j != nil {
		return after.Job{Array: j.info.Array, Elements: j.info.Indices.elements(), Index: j.index,
			State: j.info.State, FirstStart: j.info.Record.FirstStart}, nil
	}
	info, err := r.m.infoOf(id)
	if err != nil {
		return after.Job{}, err
	}
	return after.Job{Array: info.Array, Elements: info.Indices.elements(), Index: info.Index, State: info.State,
		FirstStart: info.Record.FirstStart}, nil
}

// elements is how many there are; 0: it is no array.
func (r *ArrayRange) elements() int {
	if r == nil {
		return 0
	}
	return r.Count
}

// infoOf is what is known of a job, done or not.
func (m *Machine) infoOf(id int) (*Info, error) {
	if j := m.jobs[cluster.JobID(id)]; j != nil {
		info := j.whole()
		return &info, nil
	}
	row, err := m.store.Job(m.running, id)
	if errors.Is(err, store.ErrNotFound) {
		return nil, fmt.Errorf("there is no job %d", id)
	}
	if err != nil {
		return nil, err
	}
	var info Info
	if err := json.Unmarshal(row.Data, &info); err != nil {
		return nil, fmt.Errorf("stored job %d: %w", id, err)
	}
	return &info, nil
}

// doneBefore adds the jobs that are done and that others refer to still: those
// that they wait for, and the other elements of their arrays.
func (m *Machine) doneBefore(ctx context.Context, snap *engine.Snapshot, known map[cluster.JobID]bool) error {
	type several struct{ first, last cluster.JobID }
	var wanted []several
	asked := map[several]bool{}
	want := func(w several) {
		if !asked[w] {
			asked[w] = true
			wanted = append(wanted, w)
		}
	}
	for i := range snap.Jobs {
		spec := snap.Jobs[i].Spec
		for k := range spec.After {
			if d := &spec.After[k]; d.Type != cluster.Singleton {
				want(several{d.Job, d.Last()})
			}
		}
		if j := m.jobs[spec.ID]; spec.Array != nil && j.info.Indices != nil {
			want(several{spec.Array.ID, spec.Array.ID + cluster.JobID(j.info.Indices.Count) - 1})
		}
	}
	for _, w := range wanted {
		rows, err := m.store.Between(ctx, int(w.first), int(w.last))
		if err != nil {
			return fmt.Errorf("jobs %d to %d, which others refer to: %w", w.first, w.last, err)
		}
		for i := range rows {
			id := cluster.JobID(rows[i].ID)
			if known[id] {
				continue
			}
			var info Info
			if err := json.Unmarshal(rows[i].Data, &info); err != nil {
				return fmt.Errorf("stored job %d: %w", id, err)
			}
			known[id] = true
			snap.Jobs = append(snap.Jobs, info.Record)
		}
	}
	sortJobs(snap)
	return nil
}
