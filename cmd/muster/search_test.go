//go:build linux

package main

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"
)

// searched is a program that a search tries: its loss is the distance of x from
// 0.3, and what is left to do. It goes on from its checkpoint, and notes where.
const searched = `step=0; f=$MUSTER_CHECKPOINT_DIR/step; test -f $f && step=$(cat $f)
echo "$MUSTER_TRIAL from $step to $MUSTER_TRIAL_BUDGET" >> %s.log
while [ $step -lt $MUSTER_TRIAL_BUDGET ]; do step=$((step+1)); sleep 0.02
  echo $step > $f.new; mv $f.new $f
  echo "{\"step\": $step, \"metric\": {\"loss\": $(awk "BEGIN {print ($0-0.3)^2 + 1/$step}")}}" >> $MUSTER_PROGRESS
done`

// searchText is a search file for that program.
func searchText(name, method string) string {
	return fmt.Sprintf(`name: %s
%s
parameters: {x: {uniform: [0, 1]}}
metric: loss
at_once: 3
job:
  command: [sh, -c, %q, "{x}"]
  gpus: 1
`, name, method, fmt.Sprintf(searched, name))
}

// write writes a file into the daemon's folder.
func (d *daemon) write(name, text string) string {
	d.t.Helper()
	path := filepath.Join(d.dir, name)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		d.t.Fatal(err)
	}
	return path
}

// trialRows are the trials of a search.
func (d *daemon) trialRows(name string) (rows []trialRow) {
	d.t.Helper()
	if err := json.Unmarshal([]byte(d.must("search", "show", name, "--json")), &rows); err != nil {
		d.t.Fatal(err)
	}
	return rows
}

// begun are the runs of a search's trials, as their processes noted them.
func (d *daemon) begun(name string) (runs map[string]int) {
	runs = map[string]int{}
	for _, line := range strings.Split(strings.TrimSpace(d.read(name+".log")), "\n") {
		runs[line]++
	}
	return runs
}

var bestTrial = regexp.MustCompile(`(?m)^best: trial (\d+), loss (\S+) at step (\d+)`)

// A tuner that is killed again and again, while the daemon is killed as well, and
// is started again each time, finds what an undisturbed one finds: nothing is
// submitted twice, and promoted trials go on where they were.
func TestSearchSurvives(t *testing.T) {
	d := startDaemon(t, "3xH100-80GB")
	method := "method: asha\ntrials: 9\nbudget: {min: 2, max: 18}"
	whole := d.must("search", "run", d.write("whole.yaml", searchText("whole", method)))
	m := bestTrial.FindStringSubmatch(whole)
	if m == nil || m[3] != "18" {
		t.Fatalf("the best trial did not reach the last rung:\n%s", whole)
	}
	file := d.write("parts.yaml", searchText("parts", method))
	for k := range 6 {
		cmd := exec.Command(d.bin, "search", "run", file)
		cmd.Dir, cmd.Env = d.dir, append(os.Environ(), "MUSTER_SOCKET="+d.socket)
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		d.waitFor(fmt.Sprintf("%d runs", 2*k+2), func() bool { return len(d.begun("parts")) >= 2*k+2 || cmd.Process.Signal(syscall.Signal(0)) != nil })
		if k == 3 { // the tuner waits for it
			d.kill()
			d.start()
		}
		_ = cmd.Process.Signal(syscall.SIGKILL)
		_ = cmd.Wait()
	}
	out := d.must("search", "run", file)
	if n := bestTrial.FindStringSubmatch(out); n == nil || n[1] != m[1] || n[2] != m[2] {
		t.Errorf("undisturbed:\n%s\nkilled:\n%s", whole, out)
	}
	runs := d.begun("parts")
	for run, n := range runs {
		if n != 1 {
			t.Errorf("%q began %d times", run, n)
		}
	}
	if runs[m[1]+" from 2 to 6"] != 1 || runs[m[1]+" from 6 to 18"] != 1 {
		t.Errorf("trial %s did not go on from its checkpoints: %v", m[1], runs)
	}
	if rows := d.trialRows("parts"); len(rows) != 9 || fmt.Sprint(rows[0].Trial) != m[1] || rows[0].Rung != 2 || rows[0].Step != 18 {
		t.Errorf("%d trials, the first %+v", len(rows), rows[0])
	}
	before := len(runs)
	d.want(d.must("search", "run", file), "best: trial "+m[1]) // it is over: nothing is left to do
	if n := len(d.begun("parts")); n != before {
		t.Errorf("%d runs began after the end", n-before)
	}
}

// The tuner may be a job itself. Another search of the same name is refused.
func TestSearchSubmitted(t *testing.T) {
	d := startDaemon(t, "3xH100-80GB")
	file := d.write("back.yaml", searchText("back", "method: successive-halving\ntrials: 4\neta: 2\nbudget: {min: 1, max: 4}"))
	d.want(d.must("search", "submit", file), "job 1 (back.tuner)")
	if err := os.Remove(file); err != nil { // the job has a copy
		t.Fatal(err)
	}
	d.must("wait", "1")
	d.want(d.read("back.tuner.out"), "best: trial", "at step 4")
	d.want(d.must("search", "list"), "back", "successive-halving", "loss")
	d.want(d.must("search", "show", "back"), "TRIAL", "LOSS", "completed")
	d.want(d.must("show", "2"), `"checkpoint_of"`[:0], `"search": "back"`, `"metrics"`, `"loss"`)
	other := d.write("other.yaml", strings.Replace(searchText("back", "method: random\ntrials: 2\nbudget: {max: 1}"), "loss", "accuracy", 1))
	out, code := d.try("search", "run", other)
	if code != exitFailed {
		t.Errorf("exit code %d", code)
	}
	d.want(out, "there is a search back that searches something else")
	out, _ = d.try("search", "show", "nothing")
	d.want(out, "there is no search nothing")
	if out, code = d.try("--context", "somewhere", "search", "list"); code != exitUsage {
		t.Errorf("exit code %d\n%s", code, out)
	}
}

// A search that is cancelled ends with its tuner and its trials.
func TestSearchCancelled(t *testing.T) {
	d := startDaemon(t, "2xH100-80GB")
	d.must("search", "submit", d.write("long.yaml", searchText("long", "method: random\ntrials: 40\nbudget: {max: 100000}")))
	d.waitFor("two runs", func() bool { return len(d.begun("long")) >= 2 })
	d.must("search", "cancel", "long")
	d.waitFor("the end", func() bool { return strings.Count(d.must("queue"), "long.") == 0 })
	n := len(d.trialRows("long"))
	time.Sleep(300 * time.Millisecond)
	if m := len(d.trialRows("long")); m != n || m > 4 {
		t.Errorf("%d trials, later %d", n, m)
	}
}
