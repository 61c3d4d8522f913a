//go:build linux

package record

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"

	"github.com/muster-gpu/muster/ask"
	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/engine"
	"github.com/muster-gpu/muster/engine/job"
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

// Array is an array with elements that are stored by its record.
type Array struct {
	first   cluster.JobID
	indices []int
	sub     *ask.Submission
	common  *Info // of elements to which nothing happened, without what each has of its own: its spec and its index
	leader  *Job  // while it is new: an element of which the record says what all of them are
	alike   job.Untouched
	members int // elements that are stored by the record

	recorded bool // there is a record
}

// shares reports whether what is stored of a job is that of its array.
func (j *Job) shares() bool { return j.array != nil && j.Info == j.array.common }

// Whole is what is stored of a job, with what each element of an array has of its own.
func (j *Job) Whole() Info {
	info := *j.Info
	if j.shares() {
		info.Record.Spec, info.Index = j.Spec, j.Index
	}
	return info
}

// Own is what is stored of a job, for a change: an element no longer shares it with its array.
func (j *Job) Own() *Info {
	if j.shares() {
		info := j.Whole()
		j.Info = &info
	}
	return j.Info
}

// arrayData is what a record says of elements that have no rows.
type arrayData struct {
	Indices string `json:"indices"`
	Like    Info   `json:"info"` // of one of them
}

// NewArray makes the array of a submission, of which the first job has a number; common is what its elements share.
func NewArray(first cluster.JobID, indices []int, sub *ask.Submission, common *Info) *Array {
	common.Array = int(first)
	return &Array{first: first, indices: indices, sub: sub, common: common}
}

// Add makes a new job an element, of an array of which so many run at once; 0: any number.
func (a *Array) Add(j *Job, index, atOnce int) {
	j.array, j.Index = a, index
	j.Spec.Array = &cluster.Array{ID: a.first, Index: index, Cap: atOnce}
}

// Segment is an array as the journal has it.
func (a *Array) Segment() segment.Array { return segment.Array{First: a.first, Indices: a.indices} }

// Jobs gives the jobs that are not over, with what the engine knows of them.
type Jobs interface {
	Stored(id cluster.JobID) *Job // nil: there is none, or it is over
	Record(id cluster.JobID) *engine.JobRecord
}

// Put stores an array that was submitted in this step, and finds out which of its elements need rows.
func (a *Array) Put(t *store.Tx, jobs Jobs, now cluster.Time) error {
	if a.recorded = a.gather(jobs); !a.recorded {
		return nil
	}
	data, err := json.Marshal(arrayData{ask.Ranges(a.indices), a.leader.Whole()})
	if err != nil {
		return err
	}
	sub, err := json.Marshal(a.sub)
	if err != nil {
		return err
	}
	return t.PutArray(&store.Array{First: int(a.first), Count: len(a.indices), At: int64(now), What: a.common.State,
		Data: data, Submission: sub})
}

// gather finds the elements of a new array that differ in their numbers only; false: there are not several.
func (a *Array) gather(jobs Jobs) bool {
	a.leader = nil
	n := 0
	for k := range a.indices {
		j := jobs.Stored(a.first + cluster.JobID(k))
		rec := jobs.Record(j.ID)
		u, ok := rec.Untouched()
		if !ok || !j.plain(a) {
			continue
		}
		if a.leader == nil {
			a.leader, a.alike = j, u
			a.common.Record, a.common.State = *rec, State(rec, false)
			a.common.Record.Spec = nil
		}
		if u != a.alike || !slices.Equal(rec.Spec.After, a.leader.Spec.After) {
			continue
		}
		j.Spec, j.becomes = rec.Spec, inArray
		n++
	}
	if n == 1 {
		a.leader.becomes = byItself
	}
	return n > 1
}

// plain reports whether nothing is known of a new element that another one does not have in common with it.
func (j *Job) plain(a *Array) bool {
	return j.Info == a.common && j.Sub == a.sub && !j.Edited && len(j.Said) == 0 && j.PredictedEnd == 0
}

// ofArray reports whether the record of its array has a job's submission.
func (j *Job) ofArray() bool { return j.array != nil && j.array.recorded && j.Sub == j.array.sub }

// CloseArrays notes which arrays have no elements without rows any more when these jobs have rows.
func CloseArrays(t *store.Tx, changed []*Job) error {
	left := map[*Array]int{}
	var order []*Array
	for _, j := range changed {
		if j.stored == inArray {
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

// storedElements are the elements of arrays that have no rows of their own.
func storedElements(ctx context.Context, st *store.Store, subs *submissions) (list []*Job, err error) {
	records, err := st.Arrays(ctx)
	if err != nil {
		return nil, err
	}
	for i := range records {
		r := &records[i]
		elements, err := elementsOf(ctx, st, r, subs)
		if err != nil {
			return nil, fmt.Errorf("stored array %d: %w", r.First, err)
		}
		list = append(list, elements...)
	}
	return list, nil
}

func elementsOf(ctx context.Context, st *store.Store, r *store.Array, subs *submissions) (list []*Job, err error) {
	var data arrayData
	if err := json.Unmarshal(r.Data, &data); err != nil {
		return nil, err
	}
	indices, err := ask.ParseArray(data.Indices)
	if err != nil {
		return nil, err
	}
	like := data.Like.Record.Spec
	if len(indices.Indices) != r.Count || like == nil || like.Array == nil {
		return nil, fmt.Errorf("it has %d elements, and %d numbers", len(indices.Indices), r.Count)
	}
	sub, err := subs.read(r.First, r.Submission)
	if err != nil {
		return nil, err
	}
	apart, err := st.Rows(ctx, r.First, r.First+r.Count-1)
	if err != nil {
		return nil, err
	}
	a := &Array{first: cluster.JobID(r.First), indices: indices.Indices, sub: sub, common: &data.Like,
		recorded: true}
	a.common.Record.Spec, a.common.Index = nil, 0
	for k, index := range a.indices {
		id := a.first + cluster.JobID(k)
		if len(apart) > 0 && apart[0] == int(id) {
			apart = apart[1:]
			continue
		}
		list = append(list, &Job{ID: id, Index: index, Spec: segment.Element(like, id, index), Sub: sub, array: a,
			stored: inArray, becomes: inArray, was: a.common.State, Info: a.common})
		a.members++
	}
	return list, nil
}

// Chosen reports whether a filter chooses a job that is not over.
func (j *Job) Chosen(f *store.Filter) bool {
	spec := j.Spec
	return j.Stored() && (f.Before == 0 || int(j.ID) < f.Before) &&
		(f.User == "" || f.User == j.Info.User.Name) && (f.Queue == "" || f.Queue == spec.Queue) &&
		(f.Name == "" || f.Name == spec.Name) && j.found(f.Search) && slices.Contains(f.States, j.Info.State)
}

// Alike reports whether two jobs are waiting elements of an array of which a
// list says the same, but for their numbers.
func Alike(a, b *Job) bool {
	x, y := a.Whole(), b.Whole()
	r, s := &x.Record, &y.Record
	return x.Array > 0 && x.Array == y.Array && a.Sub == b.Sub && x.State == show.StatePending &&
		y.State == show.StatePending &&
		x.Run == 0 && y.Run == 0 && x.Text == y.Text && x.Waited == y.Waited && x.Progress == nil &&
		y.Progress == nil &&
		r.State == engine.Pending && s.State == engine.Pending && r.Home == nil && s.Home == nil &&
		r.Parked == s.Parked &&
		r.Since == s.Since && r.EligibleSince == s.EligibleSince && r.Spec.Submit == s.Spec.Submit &&
		r.Ran == s.Ran && r.Attained == s.Attained
}

// submissions reads stored submissions. The elements of an array that say the
// same share one, as they did when they were submitted.
type submissions struct {
	last map[int]submission // by array
}

type submission struct {
	text string
	sub  *ask.Submission
}

// read reads the submission of a job, or of an array.
func (s *submissions) read(array int, text []byte) (*ask.Submission, error) {
	if last, ok := s.last[array]; ok && string(text) == last.text {
		return last.sub, nil
	}
	sub := &ask.Submission{}
	if err := json.Unmarshal(text, sub); err != nil {
		return nil, err
	}
	if array > 0 {
		if s.last == nil {
			s.last = map[int]submission{}
		}
		s.last[array] = submission{string(text), sub}
	}
	return sub, nil
}
