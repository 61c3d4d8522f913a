//go:build linux

package local

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sort"
	"time"

	"github.com/muster-gpu/muster/ask"
	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/engine"
	"github.com/muster-gpu/muster/show"
	"github.com/muster-gpu/muster/store"
)

// notElement is the index of a job that belongs to no array.
const notElement = -1

// dependencies translates what a submission waits for; index is the one of the
// element of an array that it is for. The number of an array stands for all its
// elements. What is decided already, by jobs that were done before the daemon
// started, is left out.
func (m *Machine) dependencies(s *ask.Submission, index int) (list []cluster.Dependency, err error) {
	lost := 0
	for i := range s.After {
		wrong := func(err error) error { return &ask.FieldError{Field: fmt.Sprintf("after[%d]", i), Text: err.Error()} }
		d, decided, err := m.dependency(&s.After[i], index)
		switch {
		case errors.Is(err, errNever):
			if lost++; !s.AnyOf || lost == len(s.After) {
				return nil, wrong(err)
			}
		case err != nil:
			return nil, wrong(err)
		case decided && s.AnyOf:
			return nil, nil
		case !decided:
			list = append(list, d)
		}
	}
	return list, nil
}

// errNever is wrapped by what says that a condition can no longer hold.
var errNever = errors.New("the condition can never hold")

// dependency translates one condition; decided: it holds.
func (m *Machine) dependency(a *ask.After, index int) (d cluster.Dependency, decided bool, err error) {
	typ := a.Type
	if typ == "aftercorr" {
		typ = "afterok"
	}
	if d.Type, err = cluster.ParseDependencyType(typ); err != nil || d.Type == cluster.Singleton {
		return d, false, err
	}
	d.Delay = time.Duration(a.Delay)
	first, err := m.infoOf(a.Job)
	if err != nil {
		return d, false, err
	}
	d.Job = cluster.JobID(a.Job)
	if first.Array == a.Job && first.Indices != nil {
		d.Elements = first.Indices.Count
	}
	if a.Type == "aftercorr" && d.Elements > 0 && index != notElement {
		d, decided, err = m.sameIndex(d, index)
		if decided || err != nil {
			return d, decided, err
		}
	}
	unknown := 0
	for id := d.Job; id <= d.Last(); id++ {
		if !m.eng.Knows(id) {
			unknown++
		}
	}
	if unknown == 0 {
		return d, false, nil
	}
	return d, true, m.decided(&d)
}

// sameIndex narrows a condition on an array to its element with an index. If
// there is none, nothing is waited for.
func (m *Machine) sameIndex(d cluster.Dependency, index int) (cluster.Dependency, bool, error) {
	var failed error
	k, found := sort.Find(d.Elements, func(k int) int { // elements are numbered in the order of their indices
		of, err := m.indexOf(d.Job + cluster.JobID(k))
		failed = errors.Join(failed, err)
		return cmp.Compare(index, of)
	})
	if failed != nil {
		return d, false, failed
	}
	if found {
		d.Job, d.Elements = d.Job+cluster.JobID(k), 0
	}
	return d, !found, nil
}

// indexOf is the index of an element of an array, done or not.
func (m *Machine) indexOf(id cluster.JobID) (int, error) {
	if j := m.jobs[id]; j != nil {
		return j.index, nil
	}
	info, err := m.infoOf(int(id))
	if err != nil {
		return 0, err
	}
	return info.Index, nil
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

// decided checks a condition on jobs of which some were done before the daemon
// started, and so all were: it would know the others of an array. nil: it holds.
func (m *Machine) decided(d *cluster.Dependency) error {
	failed := 0
	for id := d.Job; id <= d.Last(); id++ {
		info, err := m.infoOf(int(id))
		if err != nil {
			return err
		}
		if info.State != show.StateCompleted {
			failed++
		}
		if d.Type == cluster.AfterOK && failed > 0 {
			return fmt.Errorf("job %d is %s: %w", id, info.State, errNever)
		}
		begun := info.Record.FirstStart
		if at := begun.Add(d.Delay); d.Delay > 0 && begun != cluster.Never && at > m.eng.Now() {
			return fmt.Errorf("job %d is %s since before the daemon started; instead of waiting for it, begin at %s",
				id, info.State,
				time.Unix(0, int64(at)).UTC().Format(time.RFC3339))
		}
	}
	if d.Type == cluster.AfterNotOK && failed == 0 {
		return fmt.Errorf("job %d is %s: %w", d.Job, show.StateCompleted, errNever)
	}
	return nil
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
