//go:build linux

package local

import (
	"context"
	"maps"
	"slices"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/local/record"
	"github.com/muster-gpu/muster/show"
	"github.com/muster-gpu/muster/store"
)

// Jobs lists jobs, the latest first, without what is long and seldom wanted:
// environments and scripts.
func (m *Machine) Jobs(ctx context.Context, f store.Filter) ([]show.Job, error) {
	list, err := m.list(ctx, f)
	if err != nil {
		return nil, err
	}
	for i := range list {
		list[i].Submission.Env, list[i].Submission.Script = nil, ""
	}
	m.explain(list)
	return list, nil
}

// list finds the jobs that a filter chooses.
func (m *Machine) list(ctx context.Context, f store.Filter) ([]show.Job, error) {
	if len(f.States) > 0 &&
		!slices.ContainsFunc(f.States, func(s string) bool { return !slices.Contains(liveStates, s) }) {
		return m.live(&f), nil
	}
	elements := m.elements(&f)
	rows, err := m.store.List(ctx, f)
	if err != nil {
		return nil, err
	}
	list := make([]show.Job, 0, len(rows))
	m.mu.RLock()
	for i := range rows {
		if j := m.jobs[cluster.JobID(rows[i].ID)]; j != nil {
			list = append(list, m.view(j))
			continue
		}
		v, err := m.stored(&rows[i])
		if err != nil {
			m.mu.RUnlock()
			return nil, err
		}
		list = append(list, v)
	}
	m.mu.RUnlock()
	return together(list, elements, f.Limit), nil
}

// live lists jobs that are not over from memory.
func (m *Machine) live(f *store.Filter) []show.Job {
	m.mu.RLock()
	defer m.mu.RUnlock()
	ids := slices.Sorted(maps.Keys(m.jobs))
	slices.Reverse(ids)
	chosen := make([]*job, 0, len(ids))
	waiting := 0
	for _, id := range ids {
		if f.Limit > 0 && len(chosen) == f.Limit {
			break
		}
		if j := m.jobs[id]; j.Chosen(f) {
			chosen = append(chosen, j)
			if j.Info.State == show.StatePending {
				waiting++
			}
		}
	}
	room := len(chosen)
	if f.Arrays { // most come as elements of others
		room = min(room, 2*mostExplained)
	}
	list := make([]show.Job, 0, room)
	var last *job
	for _, j := range chosen {
		if j.Info.State == show.StatePending {
			waiting--
		}
		// those that are explained stand alone
		if f.Arrays && last != nil && waiting >= mostExplained && record.Alike(&last.Job, &j.Job) {
			v := &list[len(list)-1]
			v.Elements = append(v.Elements, show.Element{int(j.ID), j.Index})
			continue
		}
		list, last = append(list, m.view(j)), j
	}
	return list
}

// elements are the elements without rows that a filter chooses, as the store would list them.
func (m *Machine) elements(f *store.Filter) map[int]show.Job {
	if len(f.States) > 0 && !slices.Contains(f.States, show.StatePending) {
		return nil
	}
	own := *f
	own.States = []string{show.StatePending}
	m.mu.RLock()
	defer m.mu.RUnlock()
	list := map[int]show.Job{}
	for id, j := range m.jobs {
		if j.InArray() && j.Chosen(&own) {
			list[int(id)] = m.view(j)
		}
	}
	return list
}

// asStored are the jobs that a filter chooses as they were when something happened to them last.
func (m *Machine) asStored(ctx context.Context, f store.Filter) ([]show.Job, error) {
	elements := m.elements(&f)
	rows, err := m.store.List(ctx, f)
	if err != nil {
		return nil, err
	}
	list := make([]show.Job, 0, len(rows))
	for i := range rows {
		v, err := m.stored(&rows[i])
		if err != nil {
			return nil, err
		}
		list = append(list, v)
	}
	return together(list, elements, f.Limit), nil
}

// together merges jobs that have rows with elements that have none, the latest first. What has both got its row
// meanwhile.
func together(rows []show.Job, elements map[int]show.Job, most int) []show.Job {
	for i := range rows {
		delete(elements, rows[i].ID)
	}
	if len(elements) == 0 {
		return rows
	}
	for _, v := range elements {
		rows = append(rows, v)
	}
	slices.SortFunc(rows, func(a, b show.Job) int { return b.ID - a.ID })
	if most > 0 && len(rows) > most {
		rows = rows[:most]
	}
	return rows
}

var liveStates = []string{show.StatePending, show.StateStarting, show.StateRunning, show.StateSuspended,
	show.StateStopping}
