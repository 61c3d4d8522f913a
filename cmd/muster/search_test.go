//go:build linux

package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"net/http/httputil"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/muster-gpu/muster/search/tuner"
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
func (d *daemon) trialRows(name string) (rows []tuner.TrialRow) {
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
	t.Parallel()
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
		d.eventually(fmt.Sprintf("%d runs", 2*k+2), func() bool {
			return len(d.begun("parts")) >= 2*k+2 || cmd.Process.Signal(syscall.Signal(0)) != nil
		})
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
	if rows := d.trialRows("parts"); len(rows) != 9 || fmt.Sprint(rows[0].Trial) != m[1] || rows[0].Rung != 2 ||
		rows[0].Step != 18 {
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
	t.Parallel()
	d := startDaemon(t, "3xH100-80GB")
	file := d.write("back.yaml",
		searchText("back", "method: successive-halving\ntrials: 4\neta: 2\nbudget: {min: 1, max: 4}"))
	d.want(d.must("search", "submit", file), "job 1 (back.tuner)")
	if err := os.Remove(file); err != nil { // the job has a copy
		t.Fatal(err)
	}
	d.must("wait", "1")
	d.want(d.read("back.tuner.out"), "best: trial", "at step 4")
	d.want(d.must("search", "list"), "back", "successive-halving", "loss")
	d.want(d.must("search", "show", "back"), "TRIAL", "LOSS", "completed")
	d.want(d.must("show", "6"), `"checkpoint_of": `) // four trials, then the first that is promoted
	d.want(d.must("show", "2"), `"search": "back"`, `"metrics"`, `"loss"`)
	flow, err := json.Marshal(
		map[string]any{"name": "other", "method": "random", "trials": 1, "budget": map[string]int{"max": 1},
			"parameters": map[string]any{"x": map[string]any{"uniform": []int{0, 1}}},
			"metric":     "loss", "job": map[string]any{
				"command": []string{"sh", "-c", fmt.Sprintf(searched, "flow"), "{x}"}}})
	if err != nil {
		t.Fatal(err)
	}
	for i, text := range []string{string(flow), "---\n# it's $HOME\n" + string(flow),
		strings.Replace(searchText("x", "method: random\ntrials: 1\nbudget: {max: 1}"), "name: x", "\"name\":\n  'x'",
			1)} {
		name := fmt.Sprintf("flow-%d", i)
		if out, code := d.try("search", "submit", "--name", name, d.write(name+".yaml", text)); code != 0 {
			t.Fatalf("%s: %s", text, out)
		}
		d.eventually(name, func() bool { return strings.Contains(d.read(name+".tuner.out"), "best: trial 0") })
	}
	if out, code := d.try("search", "submit",
		d.write("wide.yaml",
			strings.Replace(searchText("wide", "method: random\ntrials: 1\nbudget: {max: 1}"), "gpus: 1", "gpus: 16",
				1))); code == 0 {
		t.Errorf("a tuner whose trials can never run is accepted: %s", out)
	}
	other := d.write("other.yaml",
		strings.Replace(searchText("back", "method: random\ntrials: 2\nbudget: {max: 1}"), "loss", "accuracy", 1))
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
	t.Parallel()
	d := startDaemon(t, "2xH100-80GB")
	d.must("search", "submit",
		d.write("long.yaml", searchText("long", "method: random\ntrials: 40\nbudget: {max: 100000}")))
	d.eventually("two runs", func() bool { return len(d.begun("long")) >= 2 })
	d.must("search", "cancel", "long")
	d.eventually("the end", func() bool { return strings.Count(d.must("queue"), "long.") == 0 })
	n := len(d.trialRows("long"))
	time.Sleep(300 * time.Millisecond)
	if m := len(d.trialRows("long")); m != n || m > 4 {
		t.Errorf("%d trials, later %d", n, m)
	}
}

// TestSearchCancelledOverRestart: the daemon dies while the cancellation waits for the tuner's end. The one that comes
// after it is asked again, and the trials are cancelled.
func TestSearchCancelledOverRestart(t *testing.T) {
	t.Parallel()
	d := startDaemon(t, "2xH100-80GB")
	text := searchText("long", "method: random\ntrials: 40\nbudget: {max: 100000}")
	d.must("search", "submit", d.write("long.yaml", text))
	d.eventually("two runs", func() bool { return len(d.begun("long")) >= 2 })
	asked := 0
	between := d.between(func(w http.ResponseWriter, r *http.Request) bool {
		if !strings.HasSuffix(r.URL.Path, "/wait") {
			return true
		}
		if asked++; asked > 1 {
			return true
		}
		d.kill()
		d.start()
		c, _, err := w.(http.Hijacker).Hijack()
		if err != nil {
			t.Error(err)
			return false
		}
		_ = c.Close() // as the death of the daemon that was asked would
		return false
	})
	cancel := patient(d.bin, "search", "cancel", "long")
	cancel.Dir, cancel.Env = d.dir, append(os.Environ(), "MUSTER_SOCKET="+between)
	if out, err := cancel.CombinedOutput(); err != nil || asked < 2 {
		t.Fatalf("%v, asked %d times\n%s", err, asked, out)
	}
	d.eventually("the end", func() bool { return strings.Count(d.must("queue"), "long.") == 0 })
	n := len(d.trialRows("long"))
	time.Sleep(300 * time.Millisecond)
	if m := len(d.trialRows("long")); m != n {
		t.Errorf("%d trials, later %d", n, m)
	}
}

// between is a socket whose requests go on to the daemon, one after the other, if pass agrees; else it has answered.
func (d *daemon) between(pass func(http.ResponseWriter, *http.Request) bool) string {
	d.t.Helper()
	path := filepath.Join(d.t.TempDir(), "s")
	l, err := net.Listen("unix", path)
	if err != nil {
		d.t.Fatal(err)
	}
	proxy := &httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) { r.Out.URL.Scheme, r.Out.URL.Host = "http", "muster" },
		Transport: &http.Transport{
			DisableKeepAlives: true,
			DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
				return (&net.Dialer{}).DialContext(ctx, "unix", d.socket)
			},
		},
	}
	var turn sync.Mutex
	s := &http.Server{
		ReadHeaderTimeout: time.Minute,
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			turn.Lock()
			defer turn.Unlock()
			if pass(w, r) {
				proxy.ServeHTTP(w, r)
			}
		}),
	}
	go func() { _ = s.Serve(l) }()
	d.t.Cleanup(func() { _ = s.Close() })
	return path
}

// The examples work, as the documentation calls them: asha, and Hydro with fused
// groups, which are formed again at the next rung from checkpoints of several jobs.
func TestSearchExamples(t *testing.T) {
	t.Parallel()
	exe, client, examples := python(t)
	d := startDaemon(t, "3xH100-80GB")
	for name, dir := range map[string]string{"examples": examples, "clients": filepath.Dir(client)} {
		if err := os.Symlink(dir, filepath.Join(d.dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	bin := filepath.Join(d.dir, "bin")
	if err := os.Mkdir(bin, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(exe, filepath.Join(bin, "python3")); err != nil {
		t.Fatal(err)
	}
	d.env = []string{"PATH=" + bin + ":" + os.Getenv("PATH"), "PYTHONDONTWRITEBYTECODE=1"}
	if m := bestTrial.FindStringSubmatch(d.must("search", "run", "examples/search/asha.yaml")); m == nil ||
		m[1] != "12" {
		t.Errorf("asha: %v", m)
	}
	d.want(d.must("search", "plan", "examples/search/hydro.yaml"), "3 (3, 3, 3)", "1 (3)")
	out := d.must("search", "run", "examples/search/hydro.yaml")
	d.want(out, "3 configurations", "trials 0, 1, 2 in one process", "at full size")
	m := bestTrial.FindStringSubmatch(out)
	if m == nil {
		t.Fatal(out)
	}
	rows := d.trialRows("line-hydro")
	if len(rows) < 10 || !rows[0].Target || fmt.Sprint(rows[0].Trial) != m[1] || rows[0].Metric == nil {
		t.Fatalf("%d rows, %+v", len(rows), rows[0])
	}
	second := 0
	for _, r := range rows {
		if r.Rung == 1 && !r.Target {
			second = r.Job
		}
	}
	var j struct {
		Submission struct {
			Trial struct {
				Fused []struct{ Number, From int }
			}
		}
		Metrics []struct{ Trial, Mark int }
	}
	if err := json.Unmarshal([]byte(d.must("show", fmt.Sprint(second))), &j); err != nil {
		t.Fatal(err)
	}
	if len(j.Submission.Trial.Fused) != 3 || len(j.Metrics) != 6 {
		t.Errorf("the group of the second rung: %+v", j)
	}
	d.want(d.must("logs", fmt.Sprint(second)), fmt.Sprintf("trials %d at 3, ", j.Submission.Trial.Fused[0].Number))
}

// Trials that run on are stopped at a rung where others are better, also by a
// tuner that did not see them begin; the best runs to the end.
func TestSearchStopping(t *testing.T) {
	t.Parallel()
	d := startDaemon(t, "3xH100-80GB")
	text := searchText("stop", "method: asha\nstopping: true\ntrials: 9\nbudget: {min: 5, max: 45}")
	file := d.write("stop.yaml", strings.Replace(text, "sleep 0.02", "sleep 0.1", 1)) // reports are read once a second
	cmd := exec.Command(d.bin, "search", "run", file)
	cmd.Dir, cmd.Env = d.dir, append(os.Environ(), "MUSTER_SOCKET="+d.socket)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	d.eventually("trials", func() bool { return len(d.begun("stop")) >= 4 })
	_ = cmd.Process.Signal(syscall.SIGKILL)
	_ = cmd.Wait()
	m := bestTrial.FindStringSubmatch(d.must("search", "run", file))
	rows := d.trialRows("stop")
	cancelled := 0
	for _, r := range rows {
		if r.State == "cancelled" {
			cancelled++
		}
	}
	if m == nil || m[3] != "45" || len(rows) != 9 || cancelled == 0 {
		t.Errorf("best %v; %d of %d trials were stopped", m, cancelled, len(rows))
	}
	for run, n := range d.begun("stop") {
		if n != 1 || !strings.HasSuffix(run, " from 0 to 45") {
			t.Errorf("%q began %d times", run, n)
		}
	}
}

// Trials may be preempted: they come back by themselves and go on; one that fails
// is passed over, one that reports no number is the worst; more may be better.
func TestSearchHurt(t *testing.T) {
	t.Parallel()
	d := startDaemon(t, "1xH100-80GB")
	// reports are read once a second
	slower := strings.Replace(fmt.Sprintf(searched, "hurt"), "sleep 0.02", "sleep 0.1; "+
		// trial 2 waits until it is stopped
		"while [ $MUSTER_TRIAL = 2 ] && [ $MUSTER_RESTART_COUNT = 0 ] && [ $step = 39 ]; do sleep 0.1; done", 1)
	script := strings.Replace(slower, "while",
		`case $MUSTER_TRIAL in 0) exit 3;; 1) echo '{"step": 40, "metric": {"loss": NaN}}' >> $MUSTER_PROGRESS; exit 0;; esac; while`, 1)
	text := fmt.Sprintf("name: hurt\nmethod: random\ntrials: 4\nbudget: {max: 40}\nparameters: {x: {uniform: [0, 1]}}\nmetric: loss\ngoal: maximise\nat_once: 4\njob: {command: [sh, -c, %q, \"{x}\"], gpus: 1, tier: best-effort}\n", script)
	d.must("search", "submit", d.write("hurt.yaml", text))
	d.eventually("trial 2", func() bool { return d.begun("hurt")["2 from 0 to 40"] == 1 })
	d.untilSays(`"step": `, "show", "4") // the tuner is job 1: it has saved, and said so
	d.must("run", "--gpus", "1", "--tier", "critical", "--", "true")
	d.must("wait", "1")
	rows := d.trialRows("hurt")
	state := map[int]tuner.TrialRow{}
	worst := 0.0
	for _, r := range rows {
		if state[r.Trial] = r; r.Metric != nil && (worst == 0 || *r.Metric < worst) {
			worst = *r.Metric
		}
	}
	if len(rows) != 4 || state[0].State != "failed" || state[0].Metric != nil || state[1].State != "completed" ||
		state[1].Metric != nil || state[2].Metric == nil || state[3].Metric == nil {
		t.Fatalf("%+v", rows)
	}
	if *rows[0].Metric == worst {
		t.Errorf("the best is the one with the least, though the goal is the most: %+v", rows)
	}
	d.want(d.must("show", fmt.Sprint(state[2].Job)), `"restarts": 1`)
	d.want(d.read("hurt.tuner.out"), fmt.Sprintf("best: trial %d", rows[0].Trial))
	runs := 0
	for run := range d.begun("hurt") {
		if strings.HasPrefix(run, "2 from ") {
			runs++
		}
	}
	if runs != 2 {
		t.Errorf("trial 2 did not go on from its checkpoint: %v", d.begun("hurt"))
	}
}

// Where several trials in one process are too much, each runs alone; nothing is
// lost but the time.
func TestSearchFusedTooMuch(t *testing.T) {
	t.Parallel()
	d := startDaemon(t, "2xH100-80GB")
	script := `n=$(grep -c '"trial"' $MUSTER_TRIALS); echo "$MUSTER_TRIAL of $n" >> much.log; test $n = 1 || exit 3
echo "{\"trial\": $MUSTER_TRIAL, \"step\": $MUSTER_TRIAL_BUDGET, \"metric\": {\"loss\": $0}}" >> $MUSTER_PROGRESS`
	text := fmt.Sprintf("name: much\nmethod: hydro\nscale: 1\ntrials: 4\neta: 2\nbudget: {min: 1, max: 2}\nfusion: {memory: 4GiB, one: 1GiB, two: 2GiB}\n"+
		"parameters: {x: {uniform: [0, 1]}}\nmetric: loss\nat_once: 2\njob: {command: [sh, -c, %q, \"{x}\"], gpus: 1}\n", script)
	file := d.write("much.yaml", text)
	out := d.must("search", "run", file)
	if m := bestTrial.FindStringSubmatch(out); m == nil || m[3] != "2" {
		t.Errorf("%s", out)
	}
	runs := d.begun("much")
	for _, want := range []string{"0 of 2", "3 of 1", "0 of 1", "1 of 1", "2 of 1"} {
		if runs[want] < 1 {
			t.Errorf("no run %q: %v", want, runs)
		}
	}
	before := fmt.Sprint(runs)
	if d.must("search", "run", file); fmt.Sprint(d.begun("much")) != before {
		t.Errorf("a tuner that goes on ran trials again: %s, then %v", before, d.begun("much"))
	}
}
