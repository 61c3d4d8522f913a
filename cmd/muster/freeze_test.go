//go:build linux

package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/muster-gpu/muster/local/shim"
)

// TestNobodyIsFrozen: where GPUs are partitioned by demand, and under MPS, no job is suspended in
// place, though the rules say so: who has to stop is asked for a checkpoint, and jobs that
// save nothing keep their GPUs and end. A control daemon of MPS comes to a GPU when no job
// else is there.
func TestNobodyIsFrozen(t *testing.T) {
	t.Parallel()
	rules := "policy: 'gandiva:round=1s,pack=false'\nstop: {standard: {how: suspend}}\nsharing: "
	for name, c := range map[string]struct {
		sharing string
		gpus    [2]string
	}{
		"dynamic":   {"{mig: dynamic}", [2]string{"1", "1"}},
		"slices":    {"{mig: dynamic}", [2]string{"7g.80gb", "7g.80gb"}},
		"mps":       {"{shares: mps, mps_program: " + stand(t, "mps-control") + "}", [2]string{"0.6", "0.6"}},
		"mps-whole": {"{shares: mps, mps_program: " + stand(t, "mps-control") + "}", [2]string{"1", "0.5"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d, _ := configured(t, "1xH100-80GB", rules+c.sharing+"\n")
			d.endMPS(1)
			there, seen := filepath.Join(d.dir, "state", "mps", "GPU-simulated-0"), filepath.Join(d.dir, "seen")
			for i, gpus := range c.gpus {
				// longer than turns, and than the looks at it
				work := "for i in 1 2 3 4 5 6 7 8 9 10; do sleep 0.5; done"
				if i == 0 {
					work += "; until [ -e " + seen + " ]; do sleep 0.5; done"
				}
				if gpus == "1" { // no control daemon comes while it is there
					work = strings.ReplaceAll(work, "; done", "; [ -e "+there+" ] && exit 3; done")
				}
				d.must("submit", "-o", "/dev/null", "--gpus", gpus, "--", "sh", "-c", work+"; :")
			}
			d.untilSays("no process of it handles SIGUSR1", "show", "1")
			d.write("seen", "")
			_, _ = d.try("wait", "1", "2")
			for _, id := range []string{"1", "2"} {
				j := d.must("show", id)
				if !strings.Contains(j, `"state": "completed"`) ||
					!strings.Contains(j, `"preemptions": 0`) && !strings.Contains(j, `"preemptions": 1`) {
					t.Errorf("job %s did not end, or was stopped more often than it takes to learn about it: %s", id, j)
				}
				if text := d.must("history", id); strings.Contains(text, "suspended") {
					t.Errorf("job %s was suspended: %s", id, text)
				}
			}
			d.want(d.log.String(), "no job is suspended")
			d.replays()
		})
	}
}

// TestSharedOtherwiseLive: who was suspended when the service begins to share GPUs by MPS is not
// kept in memory: the job begins again, and only once. Nothing is left of its first run, also
// where its shim was killed meanwhile.
func TestSharedOtherwiseLive(t *testing.T) {
	t.Parallel()
	for _, killed := range []bool{false, true} {
		t.Run(map[bool]string{false: "all there", true: "shim killed"}[killed], func(t *testing.T) {
			sharedOtherwise(t, killed)
		})
	}
}

func sharedOtherwise(t *testing.T, killed bool) {
	t.Parallel()
	rules := "policy: srtf\nstop: {standard: {how: suspend}}\n"
	d, write := configured(t, "1xH100-80GB", rules)
	runs := filepath.Join(d.dir, "runs")
	d.must("submit", "-o", "/dev/null", "--gpus", "1", "--estimate", "1h", "--", "sh", "-c",
		"sleep 999 & echo $$ $! >>"+runs+"; exec sleep 1000")
	d.eventually("it runs", func() bool { return strings.HasSuffix(d.read("runs"), "\n") })
	d.must("submit", "-o", "/dev/null", "--gpus", "1", "--estimate", "1m", "--", "sleep", "1000")
	d.untilSays(`"state": "suspended"`, "show", "1")
	d.kill()
	write(rules + "sharing: {shares: mps, mps_program: " + stand(t, "mps-control") + "}\n")
	d.endMPS(1)
	s, err := shim.ReadState(filepath.Join(d.dir, "state", "jobs", "1", "1", "0"))
	if err != nil || s.Phase != shim.Running {
		t.Fatalf("the suspended run: %+v, %v", s, err)
	}
	left := append(strings.Fields(d.read("runs")), strconv.Itoa(s.Shim))
	if killed {
		_ = syscall.Kill(s.Shim, syscall.SIGKILL)
	}
	d.start()
	d.untilSays(`"state": "pending"`, "show", "1")
	d.want(d.must("history", "1"), "what it had in memory is given up: GPUs are shared in another way")
	for _, pid := range left {
		d.eventually("process "+pid+" of its first run is gone", func() bool {
			_, err := os.Stat("/proc/" + pid)
			return errors.Is(err, fs.ErrNotExist)
		})
	}
	d.must("cancel", "2")
	d.eventually("it runs again", func() bool { return strings.Count(d.read("runs"), "\n") == 2 })
	d.must("cancel", "1")
	d.replays()
}

// TestNobodyIsFrozenSimulated: as live, so in the simulator: to suspend is to ask for a checkpoint
// where GPUs are partitioned by demand, or shared under MPS, decision by decision.
func TestNobodyIsFrozenSimulated(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "c.yaml")
	hash := func(head, preempt string) string {
		if err := os.WriteFile(file, []byte(head+"nodes: [{name: 'n[1-2]', model: A100-80GB, gpus: 4}]\n"),
			0o600); err != nil {
			t.Fatal(err)
		}
		_, text, found := strings.Cut(
			ok(t, "sim", "--demo", "--until", "2d", "--cluster", file, "--policies", "srtf", "--preempt", preempt,
				"--json", "-"), `"hash":`)
		if !found {
			t.Fatal("no hash")
		}
		return strings.Fields(text)[0]
	}
	if hash("", "suspend") == hash("", "checkpoint") {
		t.Error("no job is suspended where nothing is in the way")
	}
	for _, head := range []string{"mig: dynamic\n", "sharing: mps\n"} {
		if a, b := hash(head, "suspend"), hash(head, "checkpoint"); a != b {
			t.Errorf("%s: suspending decides %s, asking for checkpoints %s", head, a, b)
		}
	}
}

// TestWhySuspended: of a suspended job it is said for whom it was suspended, or by whom, where its
// memory is, who has its GPUs, and when it is expected to go on.
func TestWhySuspended(t *testing.T) {
	t.Parallel()
	d, _ := configured(t, "2xH100-80GB", "policy: srtf\nstop: {standard: {how: suspend}}\n")
	run := func(name, gpus, takes string) {
		d.must("submit", "-o", "/dev/null", "--name", name, "--gpus", gpus, "--estimate", takes, "--", "sleep", "1000")
	}
	run("long", "2", "1h")
	d.untilSays(`"state": "running"`, "show", "1")
	run("short", "1", "20m")
	d.untilSays("job 1 (long): suspended for job 2 short; its memory is on GPUs 0,1 of ", "why", "1")
	d.want(d.must("why", "1"), "it waits, number 1 in the line, expected to go on ",
		"\n  suspended: its memory is on GPUs 0,1 of ", "; job 2 short has GPU 0\n", "\n  job 2 short: 1 GPU on ")
	if text := d.must("why", "1"); strings.Contains(text, "would start now with") { // as it could with one GPU
		t.Errorf("what cannot be changed would help:\n%s", text)
	}
	if text, code := d.try("update", "1", "--gpus", "1"); code == 0 ||
		!strings.Contains(text, "only a waiting job can be changed") {
		t.Errorf("a suspended job is changed: %d %s", code, text)
	}
	run("other", "1", "10m")
	d.untilSays("job 2 short has GPU 0, job 3 other has GPU 1\n", "why", "1")
	d.untilSays(`"state": "running"`, "show", "3")
	d.must("suspend", "3")
	u, err := user.Current()
	if err != nil {
		t.Fatal(err)
	}
	said := "job 3 (other): suspended by " + u.Username + ", on its GPUs, until muster resume 3; 1 GPU on "
	d.want(d.must("why", "3"), said)
	d.kill()
	d.start()
	d.want(d.must("why", "3"), said)
	d.want(d.must("why", "1"), "suspended for job 2 short; its memory is on GPUs 0,1 of ")
	d.must("resume", "3")
	if text := d.must("why", "3"); strings.Contains(text, "suspended") {
		t.Error(text)
	}
	d.must("cancel", "2", "3")
	d.untilSays("job 1 (long): running 2 GPUs on ", "why", "1")
	d.must("cancel", "1")
}

// TestNobodyIsFrozenIsSaid: where the rules suspend jobs and GPUs are shared so that they cannot,
// it is said at the start and whenever the configuration is read again.
func TestNobodyIsFrozenIsSaid(t *testing.T) {
	t.Parallel()
	how := "stop: {standard: {how: suspend}}\n"
	for sharing, want := range map[string]string{
		"{mig: instances}": "no job is suspended on a MIG instance, but asked for a checkpoint, because sharing.mig is instances",
		"{mig: dynamic}":   "no job is suspended on a GPU, but asked for a checkpoint, because sharing.mig is dynamic",
	} {
		sharing = "sharing: " + sharing + "\n"
		d, write := configured(t, "1xH100-80GB/0:*", how+sharing)
		d.want(d.log.String(), want)
		write(how + sharing + "min_runtime: 1s\n")
		d.want(d.must("config", "reload"), want)
		write(sharing)
		if text := d.must("config", "reload"); strings.Contains(text, "no job is suspended") {
			t.Errorf("without the rule: %s", text)
		}
		write(how + sharing)
		d.want(d.must("config", "reload"), want)
	}
}

// TestTurnsInPlace: who is suspended for another goes on in the same processes when it has
// its GPUs back, in the service that suspended it.
func TestTurnsInPlace(t *testing.T) {
	t.Parallel()
	d, _ := configured(t, "1xH100-80GB", "policy: srtf\nstop: {standard: {how: suspend}}\n")
	runs, steps := filepath.Join(d.dir, "runs"), filepath.Join(d.dir, "steps")
	d.must("submit", "-o", "/dev/null", "--gpus", "1", "--estimate", "1h", "--", "sh", "-c",
		"echo $$ >>"+runs+"; while [ ! -e "+filepath.Join(d.dir, "go")+" ]; do echo >>"+steps+"; sleep 0.05; done")
	grows := func(from int) int {
		t.Helper()
		d.eventually("job 1 goes on", func() bool { return len(d.read("steps")) > from })
		return len(d.read("steps"))
	}
	n := grows(0)
	for i := range 2 {
		other := strconv.Itoa(i + 2)
		d.must("submit", "-o", "/dev/null", "--gpus", "1", "--estimate", "1s", "--", "sleep", "0.5")
		d.must("wait", other)
		d.untilSays(`"state": "running"`, "show", "1")
		n = grows(n + 1)
	}
	if err := os.WriteFile(filepath.Join(d.dir, "go"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	d.must("wait", "1")
	d.want(d.must("show", "1"), `"state": "completed"`, `"preemptions": 2`)
	if b, err := os.ReadFile(runs); err != nil || strings.Count(string(b), "\n") != 1 {
		t.Errorf("job 1 was started as processes %q, %v; want once", b, err)
	}
	d.replays()
}

// TestHomeCleared: who holds the GPU on which a suspended job has its memory goes to one that is idle, by
// a checkpoint, and the suspended job goes on in its processes. Where no job can be moved, it is started
// again on the idle GPU after a while, and nothing of its old processes stays.
func TestHomeCleared(t *testing.T) {
	t.Parallel()
	d, _ := configured(t, "6xH100-80GB", "policy: srtf\nstop: {standard: {how: suspend}}\n")
	file := func(name string) string { return filepath.Join(d.dir, name) }
	pids := func(id string) []string {
		b, err := os.ReadFile(file("pids" + id))
		if err != nil {
			t.Fatal(err)
		}
		return strings.Fields(string(b))
	}
	jobs := 0
	submit := func(gpus, estimate, more string) string { // it saves when it is asked, and ends when it is told
		jobs++
		id := strconv.Itoa(jobs)
		script := "trap 'echo >" + file("saved"+id) + "; exit 75' USR1; echo $$ >>" + file("pids"+id) +
			"; while [ ! -e " + file("go"+id) + " ]; do sleep 0.2; done"
		yaml := fmt.Sprintf("command: [sh, -c, %q]\noutput: /dev/null\ngpus: %s\nestimate: %s\n%s", script, gpus,
			estimate, more)
		if err := os.WriteFile(file(id+".yaml"), []byte(yaml), 0o600); err != nil {
			t.Fatal(err)
		}
		d.must("submit", file(id+".yaml"))
		d.untilSays(`"state": "running"`, "show", id)
		return id
	}
	one, two := submit("1", "1h", ""), submit("2", "1h", "")
	stays, leaves := submit("1", "90h", "restart_cost: 5h\n"), submit("2", "91h", "")
	critical := submit("2", "3h", "tier: critical\n")
	d.untilSays(`"state": "suspended"`, "show", leaves)
	moves := submit("1", "2h", "")
	d.untilSays(`"state": "suspended"`, "show", stays)
	for _, id := range []string{one, two} {
		if err := os.WriteFile(file("go"+id), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for id, want := range map[string]int{stays: 1, critical: 1, moves: 2, leaves: 2} {
		d.eventually("job "+id+" runs", func() bool { return len(pids(id)) == want })
		d.untilSays(`"state": "running"`, "show", id)
	}
	if _, err := os.Stat(file("saved" + moves)); err != nil {
		t.Errorf("who was moved was not asked to save: %v", err)
	}
	old := pids(leaves)[0]
	d.eventually("its first run is gone", func() bool {
		b, _ := os.ReadFile("/proc/" + old + "/cmdline")
		return len(b) == 0
	})
	d.replays()
}
