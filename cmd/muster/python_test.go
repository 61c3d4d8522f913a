//go:build linux

package main

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// python is the interpreter and the folders of the client and the examples.
func python(t *testing.T) (exe, client, examples string) {
	t.Helper()
	// What is on the path may be a script that looks for the interpreter, which takes longer than most programs here.
	out, err := exec.Command("python3", "-c", "import sys; print(sys.executable)").Output()
	if errors.Is(err, exec.ErrNotFound) && os.Getenv("CI") == "" {
		t.Skip("NOT TESTED: there is no python3 here")
	}
	if err != nil {
		t.Fatal("python3: ", err)
	}
	root, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(string(out)), filepath.Join(root, "clients", "python"), filepath.Join(root, "examples")
}

// read is what a file in the daemon's folder holds; there need not be one.
func (d *daemon) read(name string) string {
	text, err := os.ReadFile(filepath.Join(d.dir, name))
	if err != nil && !os.IsNotExist(err) {
		d.t.Fatal(err)
	}
	return string(text)
}

// What muster.py promises is tested in Python, with a daemon to talk to.
func TestPythonClient(t *testing.T) {
	t.Parallel()
	exe, dir, _ := python(t)
	d := startDaemon(t, "2xH100-80GB")
	cmd := patient(exe, "-m", "unittest", "-v", "test_muster")
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "MUSTER_SOCKET="+d.socket, "PYTHONDONTWRITEBYTECODE=1")
	out, err := cmd.CombinedOutput()
	if err != nil || bytes.Contains(out, []byte("skipped")) {
		t.Errorf("%v\n%s", err, out)
	}
}

// The PyTorch example is only parsed: PyTorch is not here.
func TestExamplesAreParsed(t *testing.T) {
	exe, _, examples := python(t)
	for _, name := range []string{"plain", "pytorch"} {
		out, err := exec.Command(exe, "-c", "import ast, sys; ast.parse(open(sys.argv[1]).read())",
			filepath.Join(examples, name, "train.py")).CombinedOutput()
		if err != nil {
			t.Errorf("%s: %v\n%s", name, err, out)
		}
	}
}

// A training that is preempted twice, while the daemon is killed as well, ends
// with the same weights, bit for bit, as one that was never interrupted.
func TestTrainingSurvivesBitForBit(t *testing.T) {
	t.Parallel()
	exe, client, examples := python(t)
	d := startDaemon(t, "1xH100-80GB")
	train := func(out, pause string) []string {
		return []string{"--gpus", "1", "-e", "PYTHONPATH=" + client, "-e", "PYTHONDONTWRITEBYTECODE=1", "--", exe,
			filepath.Join(examples, "plain", "train.py"), "--steps", "400", "--every", "50", "--pause", pause, "--out",
			out}
	}
	d.want(d.must(append([]string{"run"}, train("whole.json", "0")...)...), "begins at step 0, start 1",
		"finished at step 400")
	d.must(append([]string{"submit", "-o", "parts.out"}, train("parts.json", "0.03")...)...) // job 2
	for k := range 2 {
		d.eventually(fmt.Sprintf("start %d", k+1), func() bool {
			_, later, ok := strings.Cut(d.read("parts.out"), fmt.Sprintf("start %d\n", k+1))
			return ok && strings.Contains(later, "loss")
		})
		if k == 1 {
			d.kill()
			d.start()
		}
		out, code := d.try("run", "--gpus", "1", "--tier", "critical", "--", "echo", "urgent")
		if code != 0 {
			t.Fatalf("the critical job: exit code %d\n%s", code, out)
		}
	}
	d.must("wait", "2")
	whole, parts := d.read("whole.json"), d.read("parts.json")
	if whole == "" || whole != parts {
		t.Errorf("the weights differ:\n%s%s%s", whole, parts, d.read("parts.out"))
	}
	if n := strings.Count(d.read("parts.out"), "begins at step"); n != 3 {
		t.Errorf("it began %d times, not 3:\n%s", n, d.read("parts.out"))
	}
	d.want(d.must("show", "2"), `"state": "completed"`, `"preemptions": 2`, `"restarts": 2`, "training.json")
}

// A job that has said that it has finished, and is about to end well when it is to be asked
// for a checkpoint, cannot hear that any more: it is complete, and does not begin again.
func TestFinishedBeforeItIsAsked(t *testing.T) {
	t.Parallel()
	d := startDaemon(t, "1xH100-80GB")
	// a shell that forks blocks signals for a moment
	script := `trap 'exit 0' TERM; mkfifo never; echo '{"finished": true}' >> $MUSTER_PROGRESS; : > said; read x <> never`
	d.must("submit", "--gpus", "1", "--", "sh", "-c", script)
	d.eventually("job 1", func() bool { _, err := os.Stat(filepath.Join(d.dir, "said")); return err == nil })
	d.must("run", "--gpus", "1", "--tier", "critical", "--", "true")
	d.untilSays(`"state": "completed"`, "show", "1")
	d.want(d.must("show", "1"), `"preemptions": 0`)
}

// A job that says it has finished, and ends well within its grace, is complete;
// one that says nothing waits again.
func TestFinishedWithinTheGrace(t *testing.T) {
	t.Parallel()
	d := startDaemon(t, "1xH100-80GB")
	script := `trap 'test $MUSTER_JOB_ID = 1 && echo "{\"finished\": true}" >> $MUSTER_PROGRESS; exit 0' USR1
test $MUSTER_RESTART_COUNT = 0 || exit 0; touch started.$MUSTER_JOB_ID; while :; do sleep 0.2; done`
	for id, want := range []string{`"preemptions": 0`, `"preemptions": 1`} {
		job := fmt.Sprint(2*id + 1)
		d.must("submit", "--gpus", "1", "--", "sh", "-c", script)
		d.eventually("job "+job, func() bool {
			_, err := os.Stat(filepath.Join(d.dir, "started."+job))
			return err == nil
		})
		if out, code := d.try("run", "--gpus", "1", "--tier", "critical", "--", "true"); code != 0 {
			t.Fatalf("exit code %d\n%s", code, out)
		}
		d.must("wait", job)
		d.want(d.must("show", job), `"state": "completed"`, want)
	}
}
