package slurm

import (
	"time"

	"github.com/muster-gpu/muster/api"
)

// Verdict says how a condition of a job stands.
type Verdict uint8

// The verdicts.
const (
	Waits Verdict = iota // it may hold later
	Holds
	Never // it can no longer hold: the job will not run
)

func (v Verdict) String() string { return [...]string{"waits", "holds", "never"}[v] }

// Judge says how a condition of job j stands, as Slurm judges it. others are
// the jobs that the condition names: one, or all elements of an array; for
// singleton all jobs of the user. A job that nobody knows any more holds
// nothing up.
func Judge(a api.After, j *api.Job, others []api.Job, now time.Time) Verdict {
	if a.Type == "singleton" {
		for i := range others {
			o := &others[i]
			if o.ID < j.ID && o.User == j.User && o.Submission.Name == j.Submission.Name && !stateOf(o).over {
				return Waits
			}
		}
		return Holds
	}
	if a.Type == "aftercorr" && j.Array != 0 {
		var same []api.Job
		for _, o := range others {
			if o.Array == 0 || o.Index == j.Index {
				same = append(same, o)
			}
		}
		others = same
	}
	left, failed := 0, 0
	for i := range others {
		o := &others[i]
		over := stateOf(o).over
		switch {
		case a.Type == "after":
			over = over && o.Started == nil || o.Started != nil && !now.Before(o.Started.Add(time.Duration(a.Delay)))
		case over && o.State != api.StateCompleted:
			failed++
		}
		if !over {
			left++
		}
	}
	switch {
	case (a.Type == "afterok" || a.Type == "aftercorr") && failed > 0:
		return Never
	case left > 0:
		return Waits
	case a.Type == "afternotok" && failed == 0 && len(others) > 0:
		return Never
	}
	return Holds
}
