//go:build linux

package run

import (
	"bytes"
	"encoding/json"
	"path/filepath"
	"strconv"

	"github.com/muster-gpu/muster/ask"
	"github.com/muster-gpu/muster/cluster"
)

// The trials of a hyper-parameter search are jobs like others. The daemon keeps
// the metrics that they report, gives their processes their configuration and
// their budget, and lets a job continue in the checkpoint folder of an earlier one.

// TrialsFile has the trials of a fused group, in a task's folder.
const TrialsFile = "trials.json"

// fusedTrial is what the program of a fused group reads of a trial.
type fusedTrial struct {
	Trial  int            `json:"trial"`
	Config map[string]any `json:"config"`
	Budget int64          `json:"budget"`
	Dir    string         `json:"checkpoint_dir"` // its own
	From   string         `json:"from,omitempty"` // where its last run wrote
}

// TrialVariables say what the processes of a trial are to try; dir is the folder of their task.
func TrialVariables(s *ask.Trial, dir string) []string {
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
		env = append(env, "MUSTER_TRIALS="+filepath.Join(dir, TrialsFile))
	}
	return env
}

// Trials is what the file of a fused group says, which saves in the folder of a job; nil: there is no group.
func (p Places) Trials(s *ask.Trial, folder cluster.JobID) ([]byte, error) {
	if s == nil || len(s.Fused) == 0 {
		return nil, nil
	}
	list := []fusedTrial{}
	for _, f := range s.Fused {
		v := fusedTrial{Trial: f.Number, Config: f.Config, Budget: s.Budget, Dir: p.TrialDir(folder, f.Number)}
		if f.From != 0 {
			v.From = p.TrialDir(cluster.JobID(f.From), f.Number)
		}
		list = append(list, v)
	}
	return json.MarshalIndent(list, "", " ")
}
