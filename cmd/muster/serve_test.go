//go:build linux

package main

import (
	"bytes"
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/spf13/cobra"

	"github.com/muster-gpu/muster/client"
	"github.com/muster-gpu/muster/config"
	"github.com/muster-gpu/muster/internal/browser"
	"github.com/muster-gpu/muster/internal/shared"
)

// daemon is a real muster serve with a state of its own; devices are simulated.
type daemon struct {
	t                 testing.TB
	bin, dir, socket  string
	cmd               *exec.Cmd
	log               bytes.Buffer
	simulated, policy string
	args, env         []string // more of the daemon's; of the commands'

	client *client.Client // at the socket asked
	asked  string
}

// startDaemon builds the program once and starts it.
func startDaemon(t testing.TB, gpus string) *daemon {
	t.Helper()
	d := prepareDaemon(t, gpus)
	d.start()
	return d
}

// prepareDaemon is startDaemon without the start.
func prepareDaemon(t testing.TB, gpus string) *daemon {
	t.Helper()
	d := &daemon{t: t, bin: buildMuster(t), simulated: gpus, policy: "multifactor"}
	d.dir, d.socket = daemonHome(t, func() {
		d.kill()
		if t.Failed() {
			t.Log(d.log.String())
		}
	})
	return d
}

// daemonHome makes a folder and a path for the socket of a daemon. At the test's end kill is called, and what is left
// of the daemon's processes and files goes.
func daemonHome(t testing.TB, kill func()) (dir, socket string) {
	t.Helper()
	dir = t.TempDir()
	sock, err := os.MkdirTemp("", "m") // a socket's path is short
	if err != nil {
		t.Fatal(err)
	}
	leaves(filepath.Dir(dir))
	leaves(sock)
	t.Cleanup(func() {
		kill()
		killAbout(dir)
		removeGroups(filepath.Join(dir, "state"))
		_ = os.RemoveAll(sock)
	})
	return dir, filepath.Join(sock, "s")
}

// TestMain removes the programs that tests built, and ends what tests left behind that were
// killed, if it is started for that.
func TestMain(m *testing.M) {
	if len(os.Args) == 2 && os.Args[1] == reapWord {
		os.Exit(reap())
	}
	cache := privateCache()
	leaves(cache)
	var err error
	if programs.Dir, err = os.MkdirTemp("", "muster"); err != nil {
		panic(err)
	}
	leaves(programs.Dir)
	shared.Beside(6)
	code := m.Run()
	browser.Close()
	_ = os.RemoveAll(cache)
	programs.Remove()
	os.Exit(code)
}

// programs are built as make build does, but for the gateway: without C, everything that it needs would be compiled a
// second time.
var programs = shared.Programs{Plain: []string{"muster", gatewayProgram}, Static: []string{shimProgram, slurmProgram}}

// buildMuster builds the programs and returns the path of the first.
func buildMuster(t testing.TB) string {
	t.Helper()
	return programs.Path(t, "muster")
}

func (d *daemon) start() {
	d.t.Helper()
	d.cmd = exec.Command("sh",
		append([]string{"-c", `umask 077; exec "$@"`, "sh", d.bin, "serve", "--gpus", "sim:" + d.simulated, "--state",
			filepath.Join(d.dir, "state"),
			"--socket", d.socket}, d.flags()...)...)
	d.cmd.Stderr = &d.log
	if err := d.cmd.Start(); err != nil {
		d.t.Fatal(err)
	}
	answers := func() bool {
		_, err := d.api().Nodes(d.t.Context())
		return err == nil
	}
	if !until(func() bool { return d.over() || answers() }) || !answers() {
		d.t.Fatalf("the daemon does not answer:\n%s", d.log.String())
	}
}

// over reports whether the daemon has ended by itself.
func (d *daemon) over() bool {
	stat, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(d.cmd.Process.Pid), "stat"))
	return err != nil || bytes.Contains(stat, []byte(") Z "))
}

// flags are the daemon's besides those that every daemon has.
func (d *daemon) flags() []string {
	if d.policy == "" {
		return d.args
	}
	return append([]string{"--policy", d.policy}, d.args...)
}

// kill ends the daemon as a power cut would.
func (d *daemon) kill() {
	if d.cmd != nil && d.cmd.ProcessState == nil {
		_ = d.cmd.Process.Signal(syscall.SIGKILL)
		_ = d.cmd.Wait()
	}
}

// try runs a command and returns its output and exit code.
func (d *daemon) try(args ...string) (string, int) {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	cmd := exec.CommandContext(ctx, d.bin, args...)
	cmd.Dir = d.dir
	cmd.Env = append(append(os.Environ(), "MUSTER_SOCKET="+d.socket), d.env...)
	out, err := cmd.CombinedOutput()
	var exit *exec.ExitError
	switch {
	case err == nil:
		return string(out), 0
	case errors.As(err, &exit):
		return string(out), exit.ExitCode()
	}
	d.t.Fatal(err)
	return "", 0
}

// must is try for what has to succeed.
func (d *daemon) must(args ...string) string {
	d.t.Helper()
	out, code := d.try(args...)
	if code != 0 {
		d.t.Fatalf("muster %s: exit code %d\n%s", strings.Join(args, " "), code, out)
	}
	return out
}

func (d *daemon) want(out string, parts ...string) {
	d.t.Helper()
	for _, p := range parts {
		if !strings.Contains(out, p) {
			d.t.Errorf("%q is missing in\n%s", p, out)
		}
	}
}

// A job's output, errors and exit code come to whoever runs it.
func TestRunAttached(t *testing.T) {
	t.Parallel()
	d := startDaemon(t, "4xH100-80GB")
	out, code := d.try("run", "--gpus", "2", "--", "sh", "-c", `echo "on $CUDA_VISIBLE_DEVICES"; echo oops >&2; exit 3`)
	if code != 3 {
		t.Errorf("exit code %d, not the job's 3", code)
	}
	d.want(out, "on GPU-simulated-0,GPU-simulated-1", "oops")
	out, code = d.try("run", "--", "no-such-program")
	if code != 127 {
		t.Errorf("exit code %d for a program that does not exist", code)
	}
	d.want(out, "no-such-program: command not found")
	out, code = d.try("submit", "--gpus", "5", "--", "true")
	if code != exitFailed {
		t.Errorf("a job that can never run: exit code %d", code)
	}
	d.want(out, "5 GPUs")
}

// A daemon that is killed loses nothing: running jobs continue, their exit codes
// are found, waiting jobs start, and none runs twice.
func TestKillDaemon(t *testing.T) {
	t.Parallel()
	d := startDaemon(t, "2xH100-80GB")
	once := `echo "$MUSTER_JOB_ID $MUSTER_RESTART_COUNT" >> ` + d.dir + `/runs; `
	d.want(d.must("submit", "--gpus", "1", "--", "sh", "-c",
		once+"until [ -e "+d.dir+"/one ]; do sleep 0.2; done; exit 7"), "job 1")
	d.want(d.must("submit", "--gpus", "1", "--", "sh", "-c",
		"echo $$ > "+d.dir+"/pid; "+once+"until [ -e "+d.dir+"/two ]; do sleep 0.2; done; exit 5"), "job 2")
	d.want(d.must("submit", "--gpus", "2", "--", "sh", "-c", once+"true"), "job 3", "waiting, number 1 in the line",
		"needs 2 GPUs")
	d.eventually("two jobs run", func() bool { return strings.Count(d.read("runs"), "\n") == 2 })
	second := d.running(d.dir + "/pid")
	d.kill()
	d.write("two", "")
	d.eventually("job 2 ends", func() bool { return !second() })
	d.start()
	d.write("one", "")
	if out, code := d.try("wait", "1"); code != 7 {
		t.Errorf("job 1 ended with %d: %s", code, out)
	}
	if out, code := d.try("wait", "2"); code != 5 {
		t.Errorf("job 2 ended with %d: %s", code, out)
	}
	d.must("wait", "3")
	text, err := os.ReadFile(d.dir + "/runs")
	if err != nil {
		t.Fatal(err)
	}
	if got := strings.Fields(strings.ReplaceAll(string(text), " ", ":")); len(got) != 3 {
		t.Errorf("runs (job:restarts): %v; each of three jobs must run once", got)
	}
}

// A standard job that is preempted is asked for a checkpoint, waits, and starts
// again under its number.
func TestPreemptResume(t *testing.T) {
	t.Parallel()
	d := startDaemon(t, "1xH100-80GB")
	script := `trap 'echo saved > $MUSTER_CHECKPOINT_DIR/x; exit 0' USR1
if [ -e $MUSTER_CHECKPOINT_DIR/x ]; then echo "resumed $MUSTER_RESTART_COUNT"; exit 0; fi
echo started; while :; do sleep 0.2; done`
	d.must("submit", "--gpus", "1", "--name", "train", "-o", "train.out", "--", "sh", "-c", script)
	d.eventually("the job can be asked", func() bool { return d.read("train.out") != "" })
	out, code := d.try("run", "--gpus", "1", "--tier", "critical", "--", "echo", "urgent")
	if code != 0 {
		t.Fatalf("the critical job: exit code %d\n%s", code, out)
	}
	d.want(out, "urgent")
	d.must("wait", "1")
	text, err := os.ReadFile(d.dir + "/train.out")
	if err != nil {
		t.Fatal(err)
	}
	d.want(string(text), "started", "resumed 1")
	d.want(d.must("show", "1"), `"restarts": 1`, `"preemptions": 1`, `"state": "completed"`)
}

// A waiting job is told everything: what blocks it, who holds it, until when,
// and what single change would start it now.
func TestWhy(t *testing.T) {
	t.Parallel()
	d := startDaemon(t, "4xH100-80GB")
	d.must("submit", "--gpus", "3", "--time", "1h", "--name", "big", "--", "sleep", "1000")
	d.must("submit", "--gpus", "2", "--name", "next", "--", "true")
	out := d.must("why", "2")
	d.want(out, "needs 2 GPUs on one node; best", "job 1 big: 3 GPUs", "ends at the latest at", ", its time limit",
		"would start now with: ", "1 GPUs per task instead of 2", "tier critical")
	if strings.Contains(out, "20777d") {
		t.Errorf("an instant is shown as a time since 1970:\n%s", out)
	}
	d.must("cancel", "1")
	d.must("wait", "2")
}

// The signal that asks for a checkpoint goes to the process that handles it: a shell
// around the program does not die of it, and a program that handles nothing is
// not waited for.
func TestCheckpointSignal(t *testing.T) {
	t.Parallel()
	d := startDaemon(t, "1xH100-80GB")
	program := `trap 'echo saved > $MUSTER_CHECKPOINT_DIR/x; exit 0' USR1
if [ -e $MUSTER_CHECKPOINT_DIR/x ]; then echo resumed; exit 0; fi
echo started; while :; do sleep 0.2; done`
	if err := os.WriteFile(filepath.Join(d.dir, "program"), []byte(program), 0o755); err != nil {
		t.Fatal(err)
	}
	d.must("submit", "--gpus", "1", "-o", "wrapped.out", "--", "sh", "-c", "sh program; echo left with $?")
	d.eventually("the program can be asked", func() bool { return d.read("wrapped.out") != "" })
	d.must("run", "--gpus", "1", "--tier", "critical", "--", "true")
	d.must("wait", "1")
	text, err := os.ReadFile(d.dir + "/wrapped.out")
	if err != nil {
		t.Fatal(err)
	}
	d.want(string(text), "started", "resumed", "left with 0")
	if strings.Count(string(text), "started") != 1 {
		t.Errorf("the program did not find its checkpoint:\n%s", text)
	}
	d.must("submit", "--gpus", "1", "--name", "deaf", "--", "sleep", "1000")
	start := time.Now()
	d.must("run", "--gpus", "1", "--tier", "critical", "--", "true")
	if took := time.Since(start); took > 60*time.Second {
		t.Errorf("a program that handles no signal was waited for, %v of the two minutes' grace", took)
	}
	d.must("cancel", "3")
}

// others lets other users reach the daemon, and returns how to run a command as one.
func (d *daemon) others() func(user string, args ...string) (string, error) {
	d.t.Helper()
	for p := d.dir; p != "/tmp" && p != "/"; p = filepath.Dir(p) {
		if err := os.Chmod(p, 0o755); err != nil {
			d.t.Fatal(err)
		}
	}
	for _, p := range []string{filepath.Dir(d.bin), filepath.Dir(d.socket)} {
		if err := os.Chmod(p, 0o755); err != nil {
			d.t.Fatal(err)
		}
	}
	return func(user string, args ...string) (string, error) {
		cmd := patient("setpriv",
			append([]string{"--reuid", user, "--regid", "nogroup", "--clear-groups", d.bin}, args...)...)
		cmd.Dir, cmd.Env = "/tmp", append(os.Environ(), "MUSTER_SOCKET="+d.socket, "HOME=/tmp")
		out, err := cmd.CombinedOutput()
		return string(out), err
	}
}

// users runs commands as other users; one that fails ends the test.
func (d *daemon) users() func(user string, args ...string) string {
	d.t.Helper()
	as := d.others()
	return func(user string, args ...string) string {
		d.t.Helper()
		out, err := as(user, args...)
		if err != nil {
			d.t.Fatalf("%s: muster %s: %v, %s", user, args, err, out)
		}
		return out
	}
}

// Jobs run as the user who submitted them, with that user's groups and rights,
// also under a daemon that was started with a strict umask; others can neither
// see into their folders nor end them.
func TestOtherUser(t *testing.T) {
	t.Parallel()
	needsRoot(t)
	d := startDaemon(t, "1xH100-80GB")
	as := d.others()
	out, err := as("nobody", "run", "--gpus", "1", "--", "sh", "-c",
		"id -un; id -gn; touch $MUSTER_CHECKPOINT_DIR/mine && echo can write; cat "+d.dir+
			"/state/muster.db || echo cannot read")
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	d.want(out, "nobody\n", "nogroup\n", "can write", "cannot read")
	d.must("submit", "--gpus", "1", "--name", "roots", "-o", "/dev/null", "--", "sleep", "1000")
	if out, err := as("nobody", "cancel", "2"); err == nil || !strings.Contains(out, "root") {
		t.Errorf("nobody cancels root's job: %v, %s", err, out)
	}
	if out, err := as("nobody", "show", "2"); err != nil || strings.Contains(out, "sleep") &&
		strings.Contains(out, `"1000"`) {
		t.Errorf("nobody sees what root runs: %v, %s", err, out)
	}
	d.must("cancel", "2")
}

// A job is submitted as a script with directives, or as a file; the command line
// counts more than either, and mistakes are named with their line.
func TestSubmitFile(t *testing.T) {
	t.Parallel()
	d := startDaemon(t, "8xH100-80GB")
	write := func(name, text string) {
		if err := os.WriteFile(filepath.Join(d.dir, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	write("job.sh", "#!/bin/sh\n#SBATCH --gres=gpu:2 -J fromscript\n#MUSTER --time=00:30:00\necho $MUSTER_GPUS $1\n")
	write("job.yaml", "name: fromyaml\ncommand: [sh, -c, \"echo $MUSTER_GPUS $WHO\"]\ngpus: 3\nlimit: 1h30m\nenv: [WHO=yaml]\noutput: yaml.out\n")
	write("bad.yaml", "name: x\ncomand: [true]\n")
	write("worse.yaml", "command: [sh]\ngpus: many\n")
	d.must("submit", "-o", "script.out", "job.sh", "argument")
	d.must("submit", "job.yaml")
	d.must("submit", "--gpus", "1", "--name", "mine", "-o", "mine.out", "job.sh")
	d.must("wait", "1", "2", "3")
	for file, want := range map[string]string{"script.out": "0,1 argument\n", "yaml.out": " yaml\n", "mine.out": "\n"} {
		if text, err := os.ReadFile(filepath.Join(d.dir, file)); err != nil || !strings.HasSuffix(string(text), want) {
			t.Errorf("%s holds %q (%v), not %q", file, text, err, want)
		}
	}
	d.want(d.must("show", "1"), `"name": "fromscript"`, `"limit": "30m"`, `"gpus": 2`)
	d.want(d.must("show", "2"), `"name": "fromyaml"`, `"limit": "1h30m"`, `"gpus": 3`)
	d.want(d.must("show", "3"), `"name": "mine"`, `"limit": "30m"`, `"gpus": 1`)
	out, code := d.try("submit", "bad.yaml")
	d.want(out, "bad.yaml:2:", "did you mean \"command\"")
	if code != exitUsage {
		t.Errorf("exit code %d for an unknown field", code)
	}
	out, _ = d.try("submit", "worse.yaml")
	d.want(out, "worse.yaml:2: gpus:", "int")
	out, _ = d.try("submit", "nowhere.sh")
	d.want(out, "nowhere.sh", "after --")
}

// A daemon says where it writes and why there, and when it ends by Ctrl-C what goes on without it and how to end that.
func TestServeSays(t *testing.T) {
	t.Parallel()
	d := startDaemon(t, "2xH100-80GB")
	d.want(d.log.String(), "msg=writes state="+filepath.Join(d.dir, "state"),
		"as flags, environment and configuration say")
	interrupt := func() string {
		t.Helper()
		if err := d.cmd.Process.Signal(syscall.SIGINT); err != nil {
			t.Fatal(err)
		}
		_ = d.cmd.Wait()
		return d.log.String()
	}
	d.want(interrupt(), "msg=ended left=\"nothing runs or waits\"")
	d.start()
	d.must("submit", "--gpus", "2", "--", "sleep", "300")
	d.must("submit", "--gpus", "2", "--", "sleep", "300")
	d.untilSays(`"state": "running"`, "show", "1")
	d.want(interrupt(), "1 job goes on running on the same GPUs; 1 waiting job is kept. To end them: start muster serve again, which takes them over, and muster cancel --all")
	d.start()
	d.want(d.must("show", "1"), `"state": "running"`, `"restarts": 0`)
	d.must("cancel", "--all")
}

// TestWhyThere: root is told that its default places are those of the whole machine.
func TestWhyThere(t *testing.T) {
	f, c := &serveFlags{}, &cobra.Command{}
	f.add(c)
	conf := &configFile{Serve: &config.Serve{}}
	conf.State, conf.Socket = defaultPlaces()
	want := "it runs for one user"
	if os.Getuid() == 0 {
		want = "it runs as root, so as the scheduler of the whole machine"
	}
	if got := f.whyThere(c, conf); !strings.HasPrefix(got, want) || !strings.Contains(got, "--state DIR") {
		t.Errorf("%s", got)
	}
	conf.State = "/elsewhere"
	if got := f.whyThere(c, conf); got != "as flags, environment and configuration say" {
		t.Errorf("%s", got)
	}
}

// A daemon listens where its clients look: at the socket of MUSTER_SOCKET, unless a flag names another.
func TestServeSocket(t *testing.T) {
	t.Setenv("MUSTER_SOCKET", "/run/of/environment")
	for _, flag := range []string{"", "/run/of/flag"} {
		f, c, conf := &serveFlags{}, &cobra.Command{}, &config.Serve{Socket: "/run/of/file"}
		f.add(c)
		want := "/run/of/environment"
		if flag != "" {
			want = flag
			if err := c.Flags().Set("socket", flag); err != nil {
				t.Fatal(err)
			}
		}
		if err := f.over(c, conf); err != nil || conf.Socket != want {
			t.Errorf("--socket %q: it listens at %s, not %s: %v", flag, conf.Socket, want, err)
		}
	}
}

// Whoever stops following a job's output is not told how that ended.
func TestLogsInterrupted(t *testing.T) {
	t.Parallel()
	d := startDaemon(t, "1xH100-80GB")
	d.must("submit", "-o", "out", "--", "sh", "-c", "echo first; exec sleep 1000")
	logs := d.background("logs", "-f", "1")
	d.eventually("the output is followed", func() bool { return d.read("logs.out") == "first\n" })
	if err := logs.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	err := logs.Wait()
	if logs.ProcessState.ExitCode() != exitInterrupted || d.read("logs.out") != "first\n" {
		t.Errorf("it ended with %v: %q", err, d.read("logs.out"))
	}
	d.must("cancel", "1")
}
