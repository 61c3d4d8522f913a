//go:build linux

package local

import (
	"context"
	"errors"
	"fmt"

	"github.com/muster-gpu/muster/ask"
	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/engine"
	"github.com/muster-gpu/muster/local/after"
	"github.com/muster-gpu/muster/local/record"
	"github.com/muster-gpu/muster/local/run"
	"github.com/muster-gpu/muster/store"
)

// dependencies translates what a submission waits for; index is the one of the element of an array that it is for.
func (m *Machine) dependencies(s *ask.Submission, index int) ([]cluster.Dependency, error) {
	return after.Dependencies(known{m, m.eng, m.keeper.Places}, s, index)
}

// known are the jobs, for those that refer to others (after.Jobs, record.Earlier) and for arrays (record.Jobs).
type known struct {
	m *Machine
	*engine.Engine
	run.Places
}

func (k known) Stored(id cluster.JobID) *record.Job {
	if j := k.m.jobs[id]; j != nil {
		return &j.Job
	}
	return nil
}

func (k known) Live() (list []*record.Job) {
	for _, j := range k.m.sorted() {
		list = append(list, &j.Job)
	}
	return list
}

func (k known) Known(id int) (*record.Info, error) { return k.m.infoOf(id) }

func (k known) Job(id int) (after.Job, error) {
	if j := k.m.jobs[cluster.JobID(id)]; j != nil {
		return after.Job{Array: j.Info.Array, Elements: j.Info.Indices.Elements(), Index: j.Index,
			State: j.Info.State, FirstStart: j.Info.Record.FirstStart}, nil
	}
	info, err := k.m.infoOf(id)
	if err != nil {
		return after.Job{}, err
	}
	return after.Job{Array: info.Array, Elements: info.Indices.Elements(), Index: info.Index, State: info.State,
		FirstStart: info.Record.FirstStart}, nil
}

// infoOf is what is known of a job, done or not.
func (m *Machine) infoOf(id int) (*record.Info, error) {
	if j := m.jobs[cluster.JobID(id)]; j != nil {
		info := j.Whole()
		return &info, nil
	}
	row, err := m.store.Job(m.running, id)
	if errors.Is(err, store.ErrNotFound) {
		return nil, fmt.Errorf("there is no job %d", id)
	}
	if err != nil {
		return nil, err
	}
	return record.ReadInfo(row)
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
		if j := m.jobs[spec.ID]; spec.Array != nil && j.Info.Indices != nil {
			want(several{spec.Array.ID, spec.Array.ID + cluster.JobID(j.Info.Indices.Count) - 1})
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
			info, err := record.ReadInfo(&rows[i])
			if err != nil {
				return err
			}
			known[id] = true
			snap.Jobs = append(snap.Jobs, info.Record)
		}
	}
	sortJobs(snap)
	return nil
}
