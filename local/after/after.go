// Package after is what jobs wait for: conditions on other jobs, of which some are over, and unknown to the engine.
package after

import (
	"cmp"
	"errors"
	"fmt"
	"sort"
	"time"

	"github.com/muster-gpu/muster/ask"
	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/show"
)

// NotElement is the index of a job that belongs to no array.
const NotElement = -1

// Job is what is known of a job, over or not.
type Job struct {
	Array, Elements int // the array that it is an element of, and how many there are; 0: none
	Index           int
	State           string
	FirstStart      cluster.Time // Never: it did not start
}

// Jobs knows jobs.
type Jobs interface {
	Job(id int) (Job, error)
	Knows(id cluster.JobID) bool // whether the engine does
	Now() cluster.Time
}

// Dependencies translates what a submission waits for; index is the one of the
// element of an array that it is for. The number of an array stands for all its
// elements. What is decided already, by jobs that were done before the daemon
// started, is left out.
func Dependencies(jobs Jobs, s *ask.Submission, index int) (list []cluster.Dependency, err error) {
	lost := 0
	for i := range s.After {
		wrong := func(err error) error { return &ask.FieldError{Field: fmt.Sprintf("after[%d]", i), Text: err.Error()} }
		d, decided, err := dependency(jobs, &s.After[i], index)
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
func dependency(jobs Jobs, a *ask.After, index int) (d cluster.Dependency, decided bool, err error) {
	typ := a.Type
	if typ == "aftercorr" {
		typ = "afterok"
	}
	if d.Type, err = cluster.ParseDependencyType(typ); err != nil || d.Type == cluster.Singleton {
		return d, false, err
	}
	d.Delay = time.Duration(a.Delay)
	first, err := jobs.Job(a.Job)
	if err != nil {
		return d, false, err
	}
	d.Job = cluster.JobID(a.Job)
	if first.Array == a.Job {
		d.Elements = first.Elements
	}
	if a.Type == "aftercorr" && d.Elements > 0 && index != NotElement {
		d, decided, err = sameIndex(jobs, d, index)
		if decided || err != nil {
			return d, decided, err
		}
	}
	unknown := 0
	for id := d.Job; id <= d.Last(); id++ {
		if !jobs.Knows(id) {
			unknown++
		}
	}
	if unknown == 0 {
		return d, false, nil
	}
	return d, true, holds(jobs, &d)
}

// sameIndex narrows a condition on an array to its element with an index. If
// there is none, nothing is waited for.
func sameIndex(jobs Jobs, d cluster.Dependency, index int) (cluster.Dependency, bool, error) {
	var failed error
	k, found := sort.Find(d.Elements, func(k int) int { // elements are numbered in the order of their indices
		j, err := jobs.Job(int(d.Job) + k)
		failed = errors.Join(failed, err)
		return cmp.Compare(index, j.Index)
	})
	if failed != nil {
		return d, false, failed
	}
	if found {
		d.Job, d.Elements = d.Job+cluster.JobID(k), 0
	}
	return d, !found, nil
}

// holds checks a condition on jobs of which some were done before the daemon
// started, and so all were: it would know the others of an array. nil: it holds.
func holds(jobs Jobs, d *cluster.Dependency) error {
	failed := 0
	for id := d.Job; id <= d.Last(); id++ {
		j, err := jobs.Job(int(id))
		if err != nil {
			return err
		}
		if j.State != show.StateCompleted {
			failed++
		}
		if d.Type == cluster.AfterOK && failed > 0 {
			return fmt.Errorf("job %d is %s: %w", id, j.State, errNever)
		}
		begun := j.FirstStart
		if at := begun.Add(d.Delay); d.Delay > 0 && begun != cluster.Never && at > jobs.Now() {
			return fmt.Errorf("job %d is %s since before the daemon started; instead of waiting for it, begin at %s",
				id, j.State,
				time.Unix(0, int64(at)).UTC().Format(time.RFC3339))
		}
	}
	if d.Type == cluster.AfterNotOK && failed == 0 {
		return fmt.Errorf("job %d is %s: %w", d.Job, show.StateCompleted, errNever)
	}
	return nil
}
