//go:build linux

package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/muster-gpu/muster/api"
	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/engine"
	"github.com/muster-gpu/muster/journal"
)

// costly is a job of twenty steps a second that takes so many seconds to save and as many to start.
func costly(seconds int) string {
	return fmt.Sprintf(`cd "$MUSTER_CHECKPOINT_DIR"
n=$(cat step 2>/dev/null || echo 0)
trap 'sleep %[1]d; echo $n > new; mv new step; exit 0' USR1
[ $n = 0 ] || sleep %[1]d
while :; do
  sleep 0.05; n=$((n+1)); echo "{\"step\": $n, \"steps\": 100000}" >> "$MUSTER_PROGRESS"
done`, seconds)
}

// TestSwitchCost: what a stop and the start after it took is measured, shown, and
// charged to who used it.
func TestSwitchCost(t *testing.T) {
	t.Parallel()
	d, _ := configured(t, "4xH100-80GB", "policy: fifo\n")
	d.must("submit", "-o", "/dev/null", "--gpus", "2", "--", "sh", "-c", costly(8))
	d.untilJob("1", "is at a known speed", func(j *api.Job) bool { return j.EndBy == api.EndByProgress })
	d.must("requeue", "1")
	j := d.untilJob("1", "is where it was", func(j *api.Job) bool { return j.SwitchCost > 0 })
	// less what was computed meanwhile, at a speed that a busy machine makes uncertain by seconds
	if c := time.Duration(j.SwitchCost); c < 10*time.Second {
		t.Errorf("a switch took %v; saving and starting alone are 16 seconds", c)
	}
	var u api.Usage
	if err := json.Unmarshal([]byte(d.must("usage", "--json")), &u); err != nil {
		t.Fatal(err)
	}
	if want := 2 * time.Duration(j.SwitchCost).Hours(); u.Total.SwitchHours < want*0.99 {
		t.Errorf("%v GPU-hours of switches are charged; want %v", u.Total.SwitchHours, want)
	}
	d.must("cancel", "1")
	d.untilSays(`"state": "cancelled"`, "show", "1")
	d.must("run", "--gpus", "1", "--", "true")
	d.want(d.must("tune", "--policies", "fifo,las"), "costs of a stop: measured, 1 stops of 1 jobs, median ",
		" to write a checkpoint", " to be back where it was",
		"mean JCT of the 1 jobs that came and ended under fifo: recorded ")
}

// TestTurnsLive: under gandiva with overhead=0.5, turns of a second are long enough that
// stopping and starting takes no more than that part of them, as soon as it was measured
// what that takes.
func TestTurnsLive(t *testing.T) {
	t.Parallel()
	d, _ := configured(t, "4xH100-80GB", "policy: 'gandiva:round=1s,pack=false,overhead=0.5'\n")
	d.must("submit", "-o", "/dev/null", "--gpus", "4", "--", "sh", "-c", costly(1))
	d.must("submit", "-o", "/dev/null", "--gpus", "4", "--", "sh", "-c", costly(1))
	file := filepath.Join(d.dir, "journal")
	checked := 0
	if !until(func() bool {
		d.must("journal", "export", "-o", file)
		checked = turnsChecked(t, file, 0.5)
		return checked >= 2 || t.Failed()
	}) {
		t.Errorf("%d turns ended of which it is known what stopping and starting takes", checked)
	}
	d.must("cancel", "1", "2")
	d.untilSays(`"state": "cancelled"`, "show", "1")
	d.untilSays(`"state": "cancelled"`, "show", "2")
	d.replays()
}

// turnsChecked replays a journal, and looks at each turn that the policy ends: by what the
// engine knew then of stopping and starting the job, before the step or after it, which may
// have learnt more.
func turnsChecked(t *testing.T, file string, part float64) (checked int) {
	t.Helper()
	f, err := os.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	r, err := journal.NewReader(file, f)
	if err != nil {
		t.Fatal(err)
	}
	e, err := r.Header.NewEngine()
	if err != nil {
		t.Fatal(err)
	}
	started := map[cluster.JobID]bool{}
	ignores := map[cluster.JobID]bool{} // it was stopped before its shell had got to its trap: it does not save
	for {
		b, _, err := r.Next()
		if errors.Is(err, io.EOF) {
			return checked
		}
		if err != nil {
			t.Fatal(err)
		}
		for i := range b.Events {
			if b.Events[i].Type == engine.Started {
				started[b.Events[i].Job] = true
			}
			if s := b.Events[i].Saves; s != engine.SavesUnknown {
				ignores[b.Events[i].Job] = s == engine.SavesNothing
			}
		}
		knew := map[cluster.JobID]time.Duration{}
		for id := range started {
			if j := e.Spec(id); j != nil && j.Checkpoint.Restart > 0 {
				knew[id] = j.Checkpoint.Cost + j.Checkpoint.Restart
			}
		}
		for _, a := range e.Step(b).Actions {
			c := e.Spec(a.Job).Checkpoint
			if a.Type != engine.Preempt || c.Restart == 0 || ignores[a.Job] {
				continue // or nobody knows yet
			}
			// from when it was given GPUs: on a busy machine that is well before the event that it has started
			takes, turn := c.Cost+c.Restart, b.Now.Sub(e.Record(a.Job).Started)
			if before, ok := knew[a.Job]; ok {
				takes = min(takes, before)
			}
			if checked++; float64(turn)*part < float64(takes)*0.999 || takes < time.Second {
				t.Errorf("a turn of job %d takes %v where stopping and starting takes %v", a.Job, turn, takes)
			}
		}
	}
}
