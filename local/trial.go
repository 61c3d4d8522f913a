//go:build linux

package local

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"path/filepath"
	"slices"
	"strconv"
	"time"

	"github.com/muster-gpu/muster/ask"
	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/local/evidence"
	"github.com/muster-gpu/muster/local/run"
	"github.com/muster-gpu/muster/progress"
	"github.com/muster-gpu/muster/show"
)

// The trials of a hyper-parameter search are jobs like others. The daemon keeps
// the metrics that they report, tells their processes their configuration and
// their budget, and lets a job continue in the checkpoint folder of an earlier one.

// goesOn finds whose checkpoint folder a submission goes on in; 0: its own. Two
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
		if j.info.Folder == folder {
			return wrong("job %d, which is not over, goes on in its folder", j.id)
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

// folder is the job in whose folder a job saves its checkpoints.
func (j *job) folder() cluster.JobID { return cmp.Or(j.info.Folder, j.id) }

// folderNeeded reports whether another job needs the folder of one that is over:
// it is not over itself, or ended after the time from which folders are kept.
func (m *Machine) folderNeeded(id cluster.JobID, before cluster.Time) bool {
	m.mu.RLock()
	for _, j := range m.jobs {
		if j.info.Folder == id ||
			j.sub.Trial != nil &&
				slices.ContainsFunc(j.sub.Trial.Fused, func(f ask.FusedTrial) bool { return f.From == int(id) }) {
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

// trialVariables tell the processes of a trial what they are to try.
func (r *runner) trialVariables(t *run.Task) []string {
	s := r.job.sub.Trial
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
	s := r.job.sub.Trial
	if s == nil || len(s.Fused) == 0 {
		return nil
	}
	list := []fusedTrial{}
	for _, f := range s.Fused {
		v := fusedTrial{Trial: f.Number, Config: f.Config, Budget: s.Budget,
			Dir: r.m.keeper.TrialDir(r.job.folder(), f.Number)}
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

// measured keeps the metrics that a job reported: the last, and the first at or
// after each mark that have the metric by which trials are compared. What a run that
// went back to a checkpoint repeats changes no mark.
func (i *Info) measured(s *ask.Trial, said []progress.Measure, now time.Time) {
	for _, n := range said {
		of := bounded(s, n.Of)
		if s == nil || !slices.ContainsFunc(s.Fused, func(f ask.FusedTrial) bool { return f.Number == n.Trial }) {
			if n.Trial = 0; s != nil && len(s.Fused) > 0 {
				continue // of a trial that is not of the group
			}
		}
		_, counts := of[metricOf(s)]
		last := of
		if old := i.lastOf(n.Trial); !counts && metricOf(s) != "" && old != nil {
			if v, ok := old.Of[s.Metric]; ok { // it stands on a line of its own
				last = maps.Clone(of)
				last[s.Metric] = v
			}
		}
		i.keep(show.Metrics{Trial: n.Trial, Step: n.Step, At: now, Of: last})
		if s == nil || !counts && s.Metric != "" {
			continue
		}
		for _, mark := range s.Marks {
			if n.Step >= float64(mark) {
				i.keep(show.Metrics{Trial: n.Trial, Mark: mark, Step: n.Step, At: now, Of: of})
			}
		}
	}
}

// metricOf is the metric by which a search compares trials; "": none.
func metricOf(s *ask.Trial) string {
	if s == nil {
		return ""
	}
	return s.Metric
}

// bounded are the first metrics by name, no more than are kept; the one by which
// trials are compared is always among them.
func bounded(s *ask.Trial, of map[string]*float64) map[string]*float64 {
	kept, most := map[string]*float64{}, show.MaxMetrics
	if v, ok := of[metricOf(s)]; ok && len(metricOf(s)) <= show.MaxMetric {
		kept[s.Metric] = v
	} else if metricOf(s) != "" {
		most-- // its place is kept: it may stand on a line of its own
	}
	for _, name := range slices.Sorted(maps.Keys(of)) {
		if len(kept) < most && len(name) <= show.MaxMetric {
			kept[name] = of[name]
		}
	}
	return kept
}

// lastOf are the last metrics of a trial; nil: there are none.
func (i *Info) lastOf(trial int) *show.Metrics {
	k := slices.IndexFunc(i.Metrics, func(o show.Metrics) bool { return o.Trial == trial && o.Mark == 0 })
	if k < 0 {
		return nil
	}
	return &i.Metrics[k]
}

// keep adds metrics, over the last ones of the trial; those of a mark stay.
func (i *Info) keep(v show.Metrics) {
	k := slices.IndexFunc(i.Metrics, func(o show.Metrics) bool { return o.Trial == v.Trial && o.Mark == v.Mark })
	switch {
	case k < 0:
		i.Metrics = append(slices.Clip(i.Metrics), v)
	case v.Mark == 0:
		i.Metrics = slices.Clone(i.Metrics) // whoever was shown the old ones keeps them
		i.Metrics[k] = v
	}
}
