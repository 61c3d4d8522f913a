//go:build linux

package local

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"strconv"

	"github.com/muster-gpu/muster/ask"
	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/local/evidence"
	"github.com/muster-gpu/muster/local/run"
)

// The trials of a hyper-parameter search are jobs like others. The daemon keeps
// the metrics that they report, gives their processes their configuration and
// their budget, and lets a job continue in the checkpoint folder of an earlier one.

// goesOn finds the job in whose checkpoint folder a submission goes on; 0: its own. Two
// jobs never have one folder at the same time.
func (m *Machine) goesOn(s *ask.Submission, u *User) (cluster.JobID, error) {
	if err := m.mayFuse(s, u); err != nil {
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
	if m.jobs[cluster.JobID(s.CheckpointOf)] != nil {
		return wrong("job %d is not over: two jobs would write into one folder", s.CheckpointOf)
	}
	before, err := m.infoOf(s.CheckpointOf)
	switch {
	case err != nil:
		return wrong("%v", err)
	case before.User.Name != u.Name:
		return wrong("job %d is %s's", s.CheckpointOf, before.User.Name)
	}
	folder := before.Folder
	if folder == 0 {
		folder = cluster.JobID(s.CheckpointOf)
	}
	for _, j := range m.sorted() {
		if j.Info.Folder == folder {
			return wrong("job %d, which is not over, goes on in its folder", j.ID)
		}
	}
	if !evidence.Exists(m.keeper.CheckpointDir(folder)) {
		return wrong("job %d has no checkpoint folder: it never ran, or the folder was removed", s.CheckpointOf)
	}
	return folder, nil
}

// mayFuse checks that a fused group goes on from jobs of the same user.
func (m *Machine) mayFuse(s *ask.Submission, u *User) error {
	if s.Trial == nil {
		return nil
	}
	for i, f := range s.Trial.Fused {
		if f.From == 0 {
			continue
		}
		info, err := m.infoOf(f.From)
		switch {
		case err != nil:
		case info.User.Name != u.Name:
			err = fmt.Errorf("job %d is %s's", f.From, info.User.Name)
		case !evidence.Exists(m.keeper.TrialDir(cluster.JobID(f.From), f.Number)):
			err = fmt.Errorf("job %d has no checkpoint folder of trial %d: it made none, or the folder was removed",
				f.From, f.Number)
		}
		if err != nil {
			return &ask.FieldError{Field: fmt.Sprintf("trial.fused[%d].from", i), Text: err.Error()}
		}
	}
	return nil
}

// folderNeeded reports whether another job needs the folder of one that is over:
// it is not over itself, or ended after the time from which folders are kept.
func (m *Machine) folderNeeded(id cluster.JobID, before cluster.Time) bool {
	m.mu.RLock()
	for _, j := range m.jobs {
		if j.Info.Folder == id ||
			j.Sub.Trial != nil &&
				slices.ContainsFunc(j.Sub.Trial.Fused, func(f ask.FusedTrial) bool { return f.From == int(id) }) {
			m.mu.RUnlock()
			return true
		}
	}
	m.mu.RUnlock()
	last, err := m.keeper.LastIn(id)
	if errors.Is(err, fs.ErrNotExist) {
		return false
	}
	if err != nil {
		return true // it is not known
	}
	row, err := m.store.Job(m.running, last)
	return err != nil || row.Active || row.Ended >= int64(before)
}

// trialsFile has the trials of a fused group, in a task's folder.
const trialsFile = "trials.json"

// fusedTrial is what the program of a fused group reads of a trial.
type fusedTrial struct {
	Trial  int            `json:"trial"`
	Config map[string]any `json:"config"`
	Budget int64          `json:"budget"`
	Dir    string         `json:"checkpoint_dir"` // its own
	From   string         `json:"from,omitempty"` // where its last run wrote
}

// trialVariables say what the processes of a trial are to try.
func (r *runner) trialVariables(t *run.Task) []string {
	s := r.job.Sub.Trial
	if s == nil || s.Tuner {
		return nil
	}
	config, err := json.Marshal(s.Config)
	if err != nil || s.Config == nil {
		config = []byte("{}")
	}
	env := []string{"MUSTER_SEARCH=" + s.Search, "MUSTER_TRIAL=" + strconv.Itoa(s.Number),
		"MUSTER_TRIAL_RUNG=" + strconv.Itoa(s.Rung),
		"MUSTER_TRIAL_BUDGET=" + strconv.FormatInt(s.Budget, 10), "MUSTER_TRIAL_CONFIG=" + string(config),
		"MUSTER_TRIAL_METRIC=" + s.Metric,
		"MUSTER_TRIAL_SCALE=" + strconv.Itoa(max(1, s.Scale))}
	var marks bytes.Buffer
	for i, v := range s.Marks {
		if i > 0 {
			marks.WriteByte(',')
		}
		marks.WriteString(strconv.FormatInt(v, 10))
	}
	env = append(env, "MUSTER_TRIAL_MARKS="+marks.String())
	if len(s.Fused) > 0 {
		env = append(env, "MUSTER_TRIALS="+filepath.Join(t.Dir, trialsFile))
	}
	return env
}

// writeTrials writes the trials of a fused group into the folder of a task.
func (r *runner) writeTrials(t *run.Task) error {
	s := r.job.Sub.Trial
	if s == nil || len(s.Fused) == 0 {
		return nil
	}
	list := []fusedTrial{}
	for _, f := range s.Fused {
		v := fusedTrial{Trial: f.Number, Config: f.Config, Budget: s.Budget,
			Dir: r.m.keeper.TrialDir(r.job.Folder(), f.Number)}
		if f.From != 0 {
			v.From = r.m.keeper.TrialDir(cluster.JobID(f.From), f.Number)
		}
		list = append(list, v)
	}
	text, err := json.MarshalIndent(list, "", " ")
	if err != nil {
		return err
	}
	return r.writeOwn(filepath.Join(t.Dir, trialsFile), text, 0o600)
}
