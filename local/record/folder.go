//go:build linux

package record

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/muster-gpu/muster/ask"
	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/local/account"
	"github.com/muster-gpu/muster/local/evidence"
)

// Earlier gives the jobs in whose folders others may go on.
type Earlier interface {
	Live() []*Job                 // those that are not over
	Known(job int) (*Info, error) // of one that is over or not
	CheckpointDir(cluster.JobID) string
	TrialDir(id cluster.JobID, trial int) string
}

// GoesOn finds the job in whose checkpoint folder a submission goes on; 0: its own. Two jobs never have one folder at
// the same time.
func GoesOn(s *ask.Submission, u *account.User, jobs Earlier) (cluster.JobID, error) {
	if err := mayFuse(s, u, jobs); err != nil {
		return 0, err
	}
	if s.CheckpointOf == 0 {
		return 0, nil
	}
	wrong := func(format string, args ...any) (cluster.JobID, error) {
		return 0, &ask.FieldError{Field: "checkpoint_of", Text: fmt.Sprintf(format, args...)}
	}
	if s.Array != "" {
		return wrong("the elements of an array cannot share a folder")
	}
	live := jobs.Live()
	if slices.ContainsFunc(live, func(j *Job) bool { return int(j.ID) == s.CheckpointOf }) {
		return wrong("job %d is not over: two jobs would write into one folder", s.CheckpointOf)
	}
	before, err := jobs.Known(s.CheckpointOf)
	switch {
	case err != nil:
		return wrong("%v", err)
	case before.User.Name != u.Name:
		return wrong("job %d is %s's", s.CheckpointOf, before.User.Name)
	}
	folder := cmp.Or(before.Folder, cluster.JobID(s.CheckpointOf))
	for _, j := range live {
		if j.Info.Folder == folder {
			return wrong("job %d, which is not over, goes on in its folder", j.ID)
		}
	}
	if !evidence.Exists(jobs.CheckpointDir(folder)) {
		return wrong("job %d has no checkpoint folder: it never ran, or the folder was removed", s.CheckpointOf)
	}
	return folder, nil
}

// mayFuse checks that a fused group goes on from jobs of the same user.
func mayFuse(s *ask.Submission, u *account.User, jobs Earlier) error {
	if s.Trial == nil {
		return nil
	}
	for i, f := range s.Trial.Fused {
		if f.From == 0 {
			continue
		}
		info, err := jobs.Known(f.From)
		switch {
		case err != nil:
		case info.User.Name != u.Name:
			err = fmt.Errorf("job %d is %s's", f.From, info.User.Name)
		case !evidence.Exists(jobs.TrialDir(cluster.JobID(f.From), f.Number)):
			err = fmt.Errorf("job %d has no checkpoint folder of trial %d: it made none, or the folder was removed",
				f.From, f.Number)
		}
		if err != nil {
			return &ask.FieldError{Field: fmt.Sprintf("trial.fused[%d].from", i), Text: err.Error()}
		}
	}
	return nil
}

// Needs reports whether a job saves in the folder of another, or goes on from what it saved.
func (j *Job) Needs(folder cluster.JobID) bool {
	from := func(f ask.FusedTrial) bool { return f.From == int(folder) }
	return j.Info.Folder == folder || j.Sub.Trial != nil && slices.ContainsFunc(j.Sub.Trial.Fused, from)
}
