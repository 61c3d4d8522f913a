//go:build linux

package local

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"

	"github.com/muster-gpu/muster/ask"
	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/engine"
	"github.com/muster-gpu/muster/local/segment"
	"github.com/muster-gpu/muster/show"
	"github.com/muster-gpu/muster/store"
)

// An array of 50,000 elements is stored as one record. An element gets a row of its own with the first thing that
// happens to it, in the step in which it happens; until then it is, at a restart too, what the record says with its
// own number and index.

// form is how a job is stored.
type form uint8

const (
	unstored form = iota
	inArray       // by the record of its array
	byItself      // in a row of its own
)

// jobArray is an array with elements that are stored by its record.
type jobArray struct {
	first   cluster.JobID
	indices []int
	sub     *ask.Submission
	common  *Info // of elements to which nothing happened, without what each has of its own: its spec and its index
	leader  *job  // while it is new: an element of which the record says what all of them are
	alike   engine.Untouched
	members int // elements that are stored by the record

	recorded bool // there is a record
}

// shares reports whether what is stored of a job is that of its array.
func (j *job) shares() bool { return j.array != nil && j.info == j.array.common }

// whole is what is stored of a job, with what each element of an array has of its own.
func (j *job) whole() Info {
	info := *j.info
	if j.shares() {
		info.Record.Spec, info.Index = j.spec, j.index
	}
	return info
}

// own is what is stored of a job, for a change: an element no longer shares it with its array.
func (j *job) own() *Info {
	if j.shares() {
		info := j.whole()
		j.info = &info
	}
	return j.info
}

// arrayData is what a record says of elements that have no rows.
type arrayData struct {
	Indices string `json:"indices"`
	Info    Info   `json:"info"` // of one of them
}

// writeArrays stores the arrays that were submitted in this step, and finds out which of their elements need rows.
func (m *Machine) writeArrays(t *store.Tx) error {
	for _, a := range m.step.arrived {
		if a.recorded = m.gather(a); !a.recorded {
			continue
		}
		data, err := json.Marshal(arrayData{ask.Ranges(a.indices), a.leader.whole()})
		if err != nil {
			return err
		}
		sub, err := json.Marshal(a.sub)
		if err != nil {
			return err
		}
		if err := t.PutArray(
			&store.Array{First: int(a.first), Count: len(a.indices), At: int64(m.eng.Now()), What: a.common.State,
				Data: data, Submission: sub}); err != nil {
			return err
		}
	}
	return nil
}

// gather finds the elements of a new array that differ in their numbers only; false: there are not several.
func (m *Machine) gather(a *jobArray) bool {
	a.leader = nil
	n := 0
	for k := range a.indices {
		j := m.jobs[a.first+cluster.JobID(k)]
		rec := m.eng.Record(j.id)
		u, ok := rec.Untouched()
		if !ok || !j.plain(a) {
			continue
		}
		if a.leader == nil {
			a.leader, a.alike = j, u
			a.common.Record, a.common.State = *rec, stateOf(rec, false)
			a.common.Record.Spec = nil
		}
		if u != a.alike || !slices.Equal(rec.Spec.After, a.leader.spec.After) {
			continue
		}
		j.spec, j.becomes = rec.Spec, inArray
		n++
	}
	if n == 1 {
		a.leader.becomes = byItself
	}
	return n > 1
}

// plain reports whether nothing is known of a new element that another one does not have in common with it.
func (j *job) plain(a *jobArray) bool {
	return j.info == a.common && j.sub == a.sub && !j.edited && len(j.said) == 0 && j.predictedEnd == 0
}

// ofArray reports whether the record of its array has a job's submission.
func (j *job) ofArray() bool { return j.array != nil && j.array.recorded && j.sub == j.array.sub }

// closeArrays notes which arrays have no elements without rows any more when this step is stored.
func (m *Machine) closeArrays(t *store.Tx) error {
	left := map[*jobArray]int{}
	var order []*jobArray
	for _, id := range m.eng.Changed() {
		if j := m.jobs[id]; j != nil && j.stored == inArray {
			if left[j.array]++; left[j.array] == j.array.members {
				order = append(order, j.array)
			}
		}
	}
	for _, a := range order {
		if err := t.CloseArray(int(a.first)); err != nil {
			return err
		}
	}
	return nil
}

// formStored notes how a job is stored now.
func (j *job) formStored() {
	if j.array != nil {
		j.array.members += count(j.becomes == inArray) - count(j.stored == inArray)
	}
	j.stored = j.becomes
}

func count(is bool) int {
	if is {
		return 1
	}
	return 0
}

// storedElements are the elements of arrays that have no rows of their own.
func (m *Machine) storedElements(ctx context.Context, subs *submissions) (list []*job, err error) {
	records, err := m.store.Arrays(ctx)
	if err != nil {
		return nil, err
	}
	for i := range records {
		r := &records[i]
		elements, err := m.elementsOf(ctx, r, subs)
		if err != nil {
			return nil, fmt.Errorf("stored array %d: %w", r.First, err)
		}
		list = append(list, elements...)
	}
	return list, nil
}

func (m *Machine) elementsOf(ctx context.Context, r *store.Array, subs *submissions) (list []*job, err error) {
	var data arrayData
	if err := json.Unmarshal(r.Data, &data); err != nil {
		return nil, err
	}
	indices, err := ask.ParseArray(data.Indices)
	if err != nil {
		return nil, err
	}
	like := data.Info.Record.Spec
	if len(indices.Indices) != r.Count || like == nil || like.Array == nil {
		return nil, fmt.Errorf("it has %d elements, and %d numbers", len(indices.Indices), r.Count)
	}
	sub, err := subs.read(r.First, r.Submission)
	if err != nil {
		return nil, err
	}
	apart, err := m.store.Rows(ctx, r.First, r.First+r.Count-1)
	if err != nil {
		return nil, err
	}
	a := &jobArray{first: cluster.JobID(r.First), indices: indices.Indices, sub: sub, common: &data.Info,
		recorded: true}
	a.common.Record.Spec, a.common.Index = nil, 0
	for k, index := range a.indices {
		id := a.first + cluster.JobID(k)
		if len(apart) > 0 && apart[0] == int(id) {
			apart = apart[1:]
			continue
		}
		list = append(list, &job{id: id, index: index, spec: segment.Element(like, id, index), sub: sub, array: a,
			stored: inArray, becomes: inArray, info: a.common})
		a.members++
	}
	return list, nil
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
		if j.stored == inArray && chooses(&own, j) {
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
