//go:build linux

package local

import (
	"encoding/json"
	"maps"
	"slices"

	"github.com/muster-gpu/muster/ask"
	"github.com/muster-gpu/muster/engine"
	"github.com/muster-gpu/muster/show"
	"github.com/muster-gpu/muster/store"
)

// An array of a thousand waiting elements is a thousand jobs that are alike but
// for their numbers. They share their submission in memory, and are listed as
// one entry on request.

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
		if j := m.jobs[id]; chooses(f, j) {
			chosen = append(chosen, j)
			if j.info.State == show.StatePending {
				waiting++
			}
		}
	}
	list := []show.Job{}
	var last *job
	for _, j := range chosen {
		if j.info.State == show.StatePending {
			waiting--
		}
		// those that are explained stand alone
		if f.Arrays && last != nil && waiting >= mostExplained && alike(last, j) {
			v := &list[len(list)-1]
			v.Elements = append(v.Elements, show.Element{int(j.id), j.index})
			continue
		}
		list, last = append(list, m.view(j)), j
	}
	return list
}

// chooses reports whether a filter chooses a job that is not over.
func chooses(f *store.Filter, j *job) bool {
	spec := j.spec
	return j.stored != unstored && (f.Before == 0 || int(j.id) < f.Before) &&
		(f.User == "" || f.User == j.info.User.Name) && (f.Queue == "" || f.Queue == spec.Queue) &&
		(f.Name == "" || f.Name == spec.Name) && found(f.Search, j) && slices.Contains(f.States, j.info.State)
}

// alike reports whether two jobs are waiting elements of an array of which a
// list says the same, but for their numbers.
func alike(a, b *job) bool {
	x, y := a.whole(), b.whole()
	r, s := &x.Record, &y.Record
	return x.Array > 0 && x.Array == y.Array && a.sub == b.sub && x.State == show.StatePending &&
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
