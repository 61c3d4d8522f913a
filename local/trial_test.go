//go:build linux

package local

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/muster-gpu/muster/ask"
	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/engine"
	"github.com/muster-gpu/muster/show"
)

// When a job ends, its progress file is read to its end, and a last line counts
// without its own; before, it may be incomplete.
func TestProgressToTheEnd(t *testing.T) {
	m := alive(t)
	id := submit(t, m, `i=0; while [ $i -lt 40000 ]; do i=$((i+1)); printf '{"step": %d, "metric": {"loss": 3, "filler": 12345678901234567890}}\n' $i; done > $MUSTER_PROGRESS
printf '{"step": 40001, "metric": {"loss": 0.25}}' >> $MUSTER_PROGRESS`, func(s *ask.Submission) { s.Trial = &ask.Trial{Search: "s", Metric: "loss", Marks: []int64{40001}} })
	j := until(t, m, id, show.StateCompleted)
	k := slices.IndexFunc(j.Metrics, func(v show.Metrics) bool { return v.Mark == 40001 })
	if k < 0 || *j.Metrics[k].Of["loss"] != 0.25 {
		t.Errorf("%+v", j.Metrics)
	}
}

// Of a variable that is there twice the last value counts, whoever reads it.
func TestLastOnes(t *testing.T) {
	got := lastOnes([]string{"A=1", "RANK=7", "B=x=y", "A=2", "RANK=0"})
	if want := []string{"B=x=y", "A=2", "RANK=0"}; !slices.Equal(got, want) {
		t.Errorf("%q", got)
	}
}

// A job goes on in the folder of one that is over, and so does the next; never
// two at once. The folder is kept as long as the last of them needs it.
func TestCheckpointOf(t *testing.T) {
	m := alive(t, func(o *Options) { o.Keep = time.Millisecond })
	write := `cat $MUSTER_CHECKPOINT_DIR/log 2>/dev/null; echo $MUSTER_JOB_ID >> $MUSTER_CHECKPOINT_DIR/log`
	first := submit(t, m, write)
	refused := func(want string, change func(*ask.Submission)) {
		t.Helper()
		s := &ask.Submission{Command: []string{"true"}}
		change(s)
		var wrong *ask.FieldError
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		if _, err := m.Submit(ctx, self(t), s, ""); !errors.As(err, &wrong) || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %s", err, want)
		}
	}
	until(t, m, first, show.StateCompleted)
	goOn := func(of int) func(*ask.Submission) { return func(s *ask.Submission) { s.CheckpointOf = of } }
	gate := filepath.Join(t.TempDir(), "gate")
	second := submit(t, m, write+"; test $(wc -l < $MUSTER_CHECKPOINT_DIR/log) = 2 && while ! test -e "+gate+
		"; do sleep 0.2; done", goOn(first))
	refused("goes on in its folder", goOn(first))
	refused("is not over", goOn(second))
	refused("there is no job 99", goOn(99))
	refused("the elements of an array", func(s *ask.Submission) { s.CheckpointOf, s.Array = first, "0-1" })
	refused("there is no job 99", func(s *ask.Submission) {
		s.Trial = &ask.Trial{Search: "a", Fused: []ask.FusedTrial{{From: 99}}}
	})
	refused("has no checkpoint folder of trial 4", func(s *ask.Submission) {
		s.Trial = &ask.Trial{Search: "a", Fused: []ask.FusedTrial{{Number: 4, From: first}}}
	})
	never := submit(t, m, "true", func(s *ask.Submission) { s.Hold = true })
	if err := m.commit(t.Context(), func(cluster.Time) ([]engine.Event, error) {
		return []engine.Event{{Type: engine.Cancelled, Job: cluster.JobID(never)}}, nil
	}); err != nil {
		t.Fatal(err)
	}
	refused("has no checkpoint folder", goOn(never))
	time.Sleep(5 * time.Millisecond)
	m.removeFolders(m.clock.Now())
	log := filepath.Join(m.keeper.JobDir(cluster.JobID(first)), "checkpoint", "log")
	if _, err := os.Stat(log); err != nil {
		t.Errorf("the folder went, though job %d needs it: %v", second, err)
	}
	if err := os.WriteFile(gate, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	until(t, m, second, show.StateCompleted)
	third := submit(t, m, write+"; test $(wc -l < $MUSTER_CHECKPOINT_DIR/log) = 3", goOn(second))
	until(t, m, third, show.StateCompleted)
	j := until(t, m, third, show.StateCompleted)
	m.removeFolders(cluster.Time(j.Ended.UnixNano())) // all before the third's end
	if text, err := os.ReadFile(log); err != nil || len(strings.Fields(string(text))) != 3 {
		t.Errorf("%q, %v", text, err)
	}
	m.removeFolders(cluster.Time(j.Ended.UnixNano()) + 1)
	if _, err := os.Stat(log); !os.IsNotExist(err) {
		t.Errorf("the folder is still there: %v", err)
	}
}

// The processes of a trial are told what they are to try, those of a group in a
// file.
func TestTrialVariables(t *testing.T) {
	m := alive(t)
	trial := &ask.Trial{Search: "s", Number: 3, Rung: 1, Budget: 9, Marks: []int64{3, 9}, Scale: 8, Metric: "loss",
		Config: map[string]any{"lr": 0.5, "opt": "sgd"},
		Fused:  []ask.FusedTrial{{Number: 3, Config: map[string]any{"lr": 0.5}}}}
	out := filepath.Join(t.TempDir(), "out")
	id := submit(t, m, `env | grep ^MUSTER_TRIAL | grep -v TRIALS | sort > `+out+`; tr -d ' \n' < $MUSTER_TRIALS >> `+
		out, func(s *ask.Submission) { s.Trial = trial })
	until(t, m, id, show.StateCompleted)
	text, err := os.ReadFile(out)
	if err != nil {
		t.Fatal(err)
	}
	got := strings.Split(string(text), "\n")
	want := []string{"MUSTER_TRIAL=3", "MUSTER_TRIAL_BUDGET=9", `MUSTER_TRIAL_CONFIG={"lr":0.5,"opt":"sgd"}`,
		"MUSTER_TRIAL_MARKS=3,9", "MUSTER_TRIAL_METRIC=loss", "MUSTER_TRIAL_RUNG=1", "MUSTER_TRIAL_SCALE=8",
		`[{"trial":3,"config":{"lr":0.5},"budget":9,"checkpoint_dir":"` +
			m.keeper.TrialDir(cluster.JobID(id), 3) + `"}]`}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("%q\nwant %q", got, want)
	}
}
