//go:build linux

package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/muster-gpu/muster/api"
	"github.com/muster-gpu/muster/local/devices"
)

// play lets simulated GPUs report what the text says.
func (d *daemon) play(use string) {
	d.t.Helper()
	dir := filepath.Join(d.dir, "state")
	tmp := filepath.Join(dir, "use.new")
	for _, err := range []error{os.MkdirAll(dir, 0o711), os.WriteFile(tmp, []byte(use), 0o600),
		os.Rename(tmp, filepath.Join(dir, devices.UseFile))} {
		if err != nil {
			d.t.Fatal(err)
		}
	}
}

// rules restarts the daemon, as a power cut would, with a configuration.
func (d *daemon) rules(text string) {
	d.t.Helper()
	d.kill()
	d.configure(text)
	d.args = append(d.args, "--sample-every", "50ms")
	d.start()
}

func (d *daemon) job(id string) (j api.Job) {
	d.t.Helper()
	if err := json.Unmarshal([]byte(d.shown(id)), &j); err != nil {
		d.t.Fatal(err)
	}
	return j
}

// untilJob waits for a job to be as wanted.
func (d *daemon) untilJob(id, what string, ok func(j *api.Job) bool) (j api.Job) {
	d.t.Helper()
	d.eventually("job "+id+" "+what, func() bool { j = d.job(id); return ok(&j) })
	return j
}

func atStage(stage string) func(j *api.Job) bool {
	return func(j *api.Job) bool { return j.Idle != nil && j.Idle.Stage == stage }
}

// A job that does not use its GPUs is warned, then counts as best-effort; a daemon that
// is killed meanwhile goes on where it was. One that computes again is what it was;
// a job that is still idle makes room for its equals, with a checkpoint.
func TestIdleHolders(t *testing.T) {
	t.Parallel()
	d := prepareDaemon(t, "2xH100-80GB")
	d.play("0 90 40000\n1 0 2000\n")
	d.rules("idle: {below: 10%, warn: 100ms, demote: 1h}")
	d.must("submit", "--gpus", "1", "--name", "busy", "--", "sleep", "1000")
	d.must("submit", "--gpus", "1", "--name", "idler", "--", "sh", "-c",
		`trap 'echo saved > $MUSTER_CHECKPOINT_DIR/it; exit 75' USR1; echo > `+d.dir+
			`/ready; while :; do sleep 0.2; done`)
	d.eventually("it can be asked", func() bool { return d.read("ready") != "" })
	j := d.untilJob("2", "is warned", atStage(api.IdleWarned))
	d.want(j.Reason, "idle since", "compute less than 10 %", "after 1h of that it counts as best-effort")
	d.want(d.must("queue"), "GPU 1; idle since")
	d.want(d.must("why", "2"), "idle since")
	d.want(d.must("history", "2"), "idle since")
	d.rules("idle: {below: 10%, warn: 100ms, demote: 300ms}")
	d.untilJob("2", "is demoted", atStage(api.IdleDemoted))
	d.rules("idle: {below: 10%, warn: 100ms, demote: 300ms, except: {kinds: [service]}}")
	if j := d.job("2"); !atStage(api.IdleDemoted)(&j) {
		t.Errorf("after a restart: %+v", j.Idle)
	}
	d.want(d.metrics(), `muster_idle_jobs{stage="demoted"} 1`)
	d.play("0 90 40000\n1 50 2000\n")
	d.untilJob("2", "computes again", func(j *api.Job) bool { return j.Idle == nil })
	d.want(d.must("history", "2"), "no longer idle")
	// which is excepted
	d.want(d.must("submit", "--gpus", "1", "--time", "1m", "--kind", "service", "--", "sleep", "1000"), "waiting")
	d.play("0 90 40000\n1 0 2000\n")
	d.untilJob("3", "has the idle one's GPU", func(j *api.Job) bool { return j.State == api.StateRunning })
	if j := d.job("2"); j.State != api.StatePending || j.Idle != nil || j.Preemptions != 1 || j.LostGPUHours != 0 {
		t.Errorf("the idle job is %s, idle %v, preempted %d times, lost %v", j.State, j.Idle, j.Preemptions,
			j.LostGPUHours)
	}
	if j := d.job("1"); j.Idle != nil {
		t.Errorf("the busy job is idle: %v", j.Idle)
	}
}

// An idle job is stopped in the end, with time to save, also when the daemon
// dies meanwhile; it is cancelled, or waits again where that is wanted.
func TestIdleStopped(t *testing.T) {
	t.Parallel()
	d := prepareDaemon(t, "1xH100-80GB")
	d.play("0 90\n")
	d.rules("idle: {stop: 100ms}")
	saves := `trap 'echo asked >> ` + d.dir + `/$0; while [ ! -e ` + d.dir +
		`/go ]; do sleep 0.2; done; echo saved >> ` + d.dir + `/$0; exit 75' USR1; echo ready > ` + d.dir +
		`/$0.ready; while :; do sleep 0.2; done`
	d.must("submit", "--gpus", "1", "--", "sh", "-c", saves, "one")
	d.eventually("the job can be asked", func() bool { return d.read("one.ready") != "" })
	d.play("0 0\n")
	d.eventually("the job is asked for a checkpoint", func() bool { return d.read("one") == "asked\n" })
	d.untilJob("1", "is stopped", atStage(api.IdleStopped))
	d.kill()
	d.start()
	if err := os.WriteFile(filepath.Join(d.dir, "go"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	j := d.untilJob("1", "is over", func(j *api.Job) bool { return j.Ended != nil })
	if j.State != api.StateCancelled ||
		!strings.Contains(j.Reason, "stopped as idle: its GPUs computed less than 5 % for 100ms") ||
		d.read("one") != "asked\nsaved\n" {
		t.Errorf("%s, %q; it noted %q", j.State, j.Reason, d.read("one"))
	}
	d.rules("idle: {stop: 100ms, requeue: true}")
	d.must("submit", "--gpus", "1", "--", "sh", "-c", saves, "two")
	d.untilJob("2", "was started again", func(j *api.Job) bool { return j.Restarts > 0 })
	d.rules("kill_wait: 1s") // off: no job is stopped
	d.untilJob("2", "goes on", func(j *api.Job) bool { return j.State == api.StateRunning && j.Idle == nil })
	d.must("cancel", "2")
}

// The expected end of a job comes from its progress, as soon as its speed can be
// told: what was stated counts no more, who waits is told accordingly, and it is
// scored. A job that goes back to its checkpoint, and a daemon that is killed,
// change nothing about it.
func TestExpectedEnd(t *testing.T) {
	t.Parallel()
	d := startDaemon(t, "1xH100-80GB")
	script := `s=$MUSTER_CHECKPOINT_DIR/step; i=0; [ -f $s ] && i=$(cat $s)
trap 'echo $i > $s; exit 75' USR1
until [ $i -ge 3000 ]; do
  [ -e ` + d.dir + `/go ] && i=2999 || sleep 0.1
  i=$((i+1)); echo "{\"step\": $i, \"steps\": 3000, \"samples_per_s\": 100}" >> $MUSTER_PROGRESS
done`
	d.must("submit", "--gpus", "1", "--time", "10h", "--estimate", "5h", "--", "sh", "-c", script)
	byProgress := func(j *api.Job) bool { return j.EndBy == api.EndByProgress && j.ExpectedEnd != nil }
	if j := d.job("1"); byProgress(&j) {
		t.Errorf("before it told anything, its end is expected by its progress")
	}
	out := d.must("submit", "--gpus", "1", "--time", "1m", "--", "true")
	d.want(out, "expected to start")
	j := d.untilJob("1", "tells by its progress when it ends", byProgress)
	if left := j.ExpectedEnd.Sub(*j.Started); left.Hours() > 1 {
		t.Errorf("it is expected to take %v", left)
	}
	var w api.Why
	if err := json.Unmarshal([]byte(d.must("why", "2", "--json")), &w); err != nil {
		t.Fatal(err)
	}
	if w.Job.State == api.StatePending && (w.Job.Expected == nil || w.Job.Expected.Sub(*j.Started).Hours() > 1) {
		t.Errorf("the next one is expected to start at %v", w.Job.Expected)
	}
	d.want(d.must("why", "1"), "expected to end", "by its progress")
	d.must("requeue", "1")
	d.kill()
	d.start()
	d.write("go", "")
	d.must("wait", "1", "2")
	j = d.job("1")
	if j.StepRate == nil || j.SampleRate == nil || *j.StepRate <= 0 || j.ExpectedEnd != nil {
		t.Errorf("when it is over: %v steps and %v samples per GPU-hour, expected end %v", j.StepRate, j.SampleRate,
			j.ExpectedEnd)
	}
	d.want(d.must("usage", "--predictions"),
		"1 jobs said by their progress when they would end; 1 of them have completed",
		"of the time that was first expected")
	d.want(d.must("usage", "--by", "model"), "none stated", "SAMPLES/GPU-H")
}

// GPUs that an elastic job was told to give back are its own, and are counted,
// until it has left them, also by another daemon.
func TestGivingBackCounts(t *testing.T) {
	t.Parallel()
	d := startDaemon(t, "4xH100-80GB")
	script := `trap 'echo asked >> ` + d.dir + `/asked; until [ -e ` + d.dir + `/go ]; do sleep 0.2; done; exit 75' USR1
echo $MUSTER_WORLD_SIZE >> ` + d.dir + `/sizes; while :; do sleep 0.2; done`
	d.must("submit", "--gpus", "1", "--min-tasks", "1", "--max-tasks", "4", "--", "sh", "-c", script)
	d.eventually("the job is there", func() bool { return strings.Count(d.read("sizes"), "4\n") == 4 })
	d.must("submit", "--gpus", "3", "--", "true")
	d.eventually("all tasks are asked to shrink", func() bool { return strings.Count(d.read("asked"), "asked") == 4 })
	held := func(a, b *api.Job) float64 {
		return (b.GPUHours - a.GPUHours) / (time.Duration(b.Ran) - time.Duration(a.Ran)).Hours()
	}
	a := d.job("1")
	time.Sleep(100 * time.Millisecond)
	b := d.job("1")
	if n := held(&a, &b); n < 3.5 || n > 4.5 {
		t.Errorf("while it gives three of four GPUs back it counts for %v", n)
	}
	d.kill()
	d.start()
	c := d.job("1")
	if n := held(&b, &c); n < 3.5 || n > 4.5 {
		t.Errorf("over a restart of the daemon it counts for %v", n)
	}
	if err := os.WriteFile(filepath.Join(d.dir, "go"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	d.must("wait", "2")
	if e := d.job("1"); e.GPUHours < c.GPUHours {
		t.Errorf("%v GPU-hours, %v when it had given back", c.GPUHours, e.GPUHours)
	}
	d.must("cancel", "1")
	d.untilSays(`"state": "cancelled"`, "show", "1")
}

// Whoever is attached to an idle job is told.
func TestIdleNotice(t *testing.T) {
	t.Parallel()
	d := prepareDaemon(t, "1xH100-80GB")
	d.play("0 0\n")
	d.rules("idle: {warn: 100ms}")
	out, err := os.Create(filepath.Join(d.dir, "shown"))
	if err != nil {
		t.Fatal(err)
	}
	defer out.Close()
	cmd := patient(d.bin, "run", "--gpus", "1", "--", "sh", "-c",
		"until [ -e "+d.dir+"/go ]; do sleep 0.2; done; exit 3")
	cmd.Dir, cmd.Stdout, cmd.Stderr = d.dir, out, out
	cmd.Env = append(os.Environ(), "MUSTER_SOCKET="+d.socket)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	d.eventually("it is told", func() bool { return strings.Contains(d.read("shown"), "muster: job 1: idle since") })
	if err := os.WriteFile(filepath.Join(d.dir, "go"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); cmd.ProcessState.ExitCode() != 3 {
		t.Errorf("the exit code is not the job's: %v\n%s", err, d.read("shown"))
	}
	if n := strings.Count(d.read("shown"), "idle since"); n != 1 {
		t.Errorf("told %d times:\n%s", n, d.read("shown"))
	}
}
