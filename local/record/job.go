//go:build linux

package record

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/muster-gpu/muster/ask"
	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/engine"
	"github.com/muster-gpu/muster/store"
)

// Job is a job that is not over, as it is stored or will be.
type Job struct {
	ID    cluster.JobID
	Index int          // as an element of an array
	Spec  *cluster.Job // as of its record
	// elements of an array share one: what it says of a job, it says by Whole, and it is changed by Own
	Info         *Info
	Sub          *ask.Submission
	Edited       bool         // its submission changed since it was stored
	Said         []string     // for its history, with the next step
	PredictedEnd cluster.Time // stored with the next step; 0: none

	array   *Array // by whose record it is stored, or was
	stored  form
	becomes form   // ... with the present step
	was     string // the state that is stored
}

// Stored reports whether the step in which a job was submitted is stored.
func (j *Job) Stored() bool { return j.stored != unstored }

// InArray reports whether a job is stored by the record of its array only.
func (j *Job) InArray() bool { return j.stored == inArray }

// JoinsArray reports whether the present step stores a new job by the record of its array.
func (j *Job) JoinsArray() bool { return j.stored == unstored && j.becomes == inArray }

// Folder is the job in whose folder a job saves its checkpoints.
func (j *Job) Folder() cluster.JobID { return cmp.Or(j.Info.Folder, j.ID) }

// Load reads the jobs that are not over.
func Load(ctx context.Context, st *store.Store) ([]*Job, error) {
	rows, err := st.Active(ctx)
	if err != nil {
		return nil, err
	}
	var list []*Job
	var subs submissions
	for i := range rows {
		j, err := ofRow(&rows[i])
		if err != nil {
			return nil, err
		}
		if j.Sub, err = subs.read(j.Info.Array, rows[i].Submission); err != nil {
			return nil, fmt.Errorf("stored job %d: %w", j.ID, err)
		}
		list = append(list, j)
	}
	elements, err := storedElements(ctx, st, &subs)
	return append(list, elements...), err
}

// Read is the job of a row.
func Read(row *store.Job) (*Job, error) {
	j, err := ofRow(row)
	if err != nil {
		return nil, err
	}
	if err := json.Unmarshal(row.Submission, &j.Sub); err != nil {
		return nil, fmt.Errorf("stored job %d: %w", row.ID, err)
	}
	j.Spec.Service = j.Sub.Lender()
	return j, nil
}

func ofRow(row *store.Job) (*Job, error) {
	info, err := ReadInfo(row)
	if err != nil {
		return nil, err
	}
	return &Job{ID: cluster.JobID(row.ID), Index: info.Index, Spec: info.Record.Spec, Info: info, stored: byItself,
		becomes: byItself, was: info.State}, nil
}

// ReadInfo is what a row says of a job besides its submission.
func ReadInfo(row *store.Job) (*Info, error) {
	info := &Info{}
	err := json.Unmarshal(row.Data, info)
	if err == nil && info.Record.Spec == nil {
		err = errors.New("it says nothing of what the job asks for")
	}
	if err != nil {
		return nil, fmt.Errorf("stored job %d: %w", row.ID, err)
	}
	return info, nil
}

// AnyHeld reports whether a job holds devices, or will want its own back.
func AnyHeld(ctx context.Context, st *store.Store) (bool, error) {
	rows, err := st.Active(ctx)
	if err != nil {
		return false, err
	}
	for i := range rows {
		info, err := ReadInfo(&rows[i])
		if err != nil || len(info.Record.Allocs) > 0 || len(info.Record.Home) > 0 {
			return err == nil, err
		}
	}
	return false, nil
}

// Put stores a job that the step changed, with the engine's record of it.
func (j *Job) Put(t *store.Tx, rec *engine.JobRecord, now cluster.Time) error {
	info := j.Own()
	info.Record = *rec
	r := &info.Record
	j.Spec, info.State = r.Spec, State(r, info.Frozen)
	info.giveBack(now)
	if r.State == engine.Pending {
		info.Idle = nil // what it computes is seen when it runs again
	}
	data, err := json.Marshal(info)
	if err != nil {
		return err
	}
	row := store.Job{ID: int(j.ID), User: j.Info.User.Name, Name: r.Spec.Name, Queue: r.Spec.Queue, State: j.Info.State,
		Active: r.State != engine.Done, Submitted: int64(r.Spec.Submit), Ended: int64(r.Ended), Data: data}
	if r.FirstStart != cluster.Never {
		row.Started = int64(r.FirstStart)
	}
	if j.becomes = byItself; j.stored != byItself && j.ofArray() {
		row.Submission = []byte{}
	} else if j.stored != byItself || j.Edited {
		if row.Submission, err = json.Marshal(j.Sub); err != nil {
			return err
		}
	}
	if err := t.PutJob(&row); err != nil {
		return err
	}
	if j.PredictedEnd != 0 {
		if err := t.PutEnd(store.Prediction{Job: int(j.ID), At: int64(now),
			Expected: int64(j.PredictedEnd)}); err != nil {
			return err
		}
	}
	said := j.Said
	if j.Info.State != j.was {
		said = append(slices.Clone(said), j.Info.Text)
	}
	for _, text := range said {
		if err := t.PutHistory(int(j.ID), int64(now), j.Info.State, text); err != nil {
			return err
		}
	}
	return nil
}

// Written notes that the step's changes of a job are stored.
func (j *Job) Written() {
	if j.array != nil {
		j.array.members += count(j.becomes == inArray) - count(j.stored == inArray)
	}
	j.stored = j.becomes
	j.Edited, j.was, j.Said, j.PredictedEnd = false, j.Info.State, nil, 0
}

func count(is bool) int {
	if is {
		return 1
	}
	return 0
}

// found reports whether a text is part of what a job is called, or its number.
func (j *Job) found(text string) bool {
	if text == "" || text == strconv.Itoa(int(j.ID)) {
		return true
	}
	text = strings.ToLower(text)
	return slices.ContainsFunc([]string{j.Spec.Name, j.Info.User.Name, j.Spec.Queue}, func(s string) bool {
		return strings.Contains(strings.ToLower(s), text)
	})
}
