//go:build linux

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/muster-gpu/muster/api"
	"github.com/muster-gpu/muster/local/shim"
)

// Jobs that try to lie to the daemon, to outlive it, or to keep what is not theirs any more.

// quick are rules under which a job that is told to stop has seconds.
const quick = "stop: {standard: {how: checkpoint, grace: 1s}}\nkill_wait: 1s\n"

// attacker and victim are users that every Linux has.
const attacker, victim = "nobody", "daemon"

// needsRoot skips a test of several users where there can be none.
func needsRoot(t *testing.T) {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("NOT TESTED: only root runs jobs of several users")
	}
}

// home makes a folder of a user's.
func (d *daemon) home(name string) string {
	d.t.Helper()
	dir := filepath.Join(d.dir, "home-"+name)
	u, err := user.Lookup(name)
	if err != nil {
		d.t.Fatal(err)
	}
	uid, _ := strconv.Atoi(u.Uid)
	if err := errors.Join(os.MkdirAll(dir, 0o755), os.Chown(dir, uid, -1)); err != nil {
		d.t.Fatal(err)
	}
	return dir
}

// bystander starts a process of another user, and returns what ends the test if it is not there.
func bystander(t *testing.T) (pid int, lives func(when string)) {
	t.Helper()
	c := exec.Command("setpriv", "--reuid", victim, "--regid", "nogroup", "--clear-groups", "sleep", "1000")
	c.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	over := make(chan struct{})
	go func() { _ = c.Wait(); close(over) }()
	t.Cleanup(func() { _ = c.Process.Kill(); <-over })
	if !until(func() bool { return shim.Owner(c.Process.Pid) != 0 }) { // setpriv has done its work
		t.Fatal("the bystander is still root's")
	}
	return c.Process.Pid, func(when string) {
		t.Helper()
		select {
		case <-over:
			t.Fatalf("%s the process of another user was killed", when)
		case <-time.After(200 * time.Millisecond):
		}
	}
}

// forged is a state that names somebody else's process.
func forged(t *testing.T, pid int) string {
	t.Helper()
	text, err := json.Marshal(
		&shim.State{Phase: shim.Running, Shim: pid, Pid: pid, Birth: shim.Birth(pid), Started: time.Now()})
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// A job's user writes of a task what it likes, stops, kills or traces the process that started it: it changes
// nothing of what the daemon believes, and no other's process is touched, with and without a
// restart of the daemon.
func TestForgedState(t *testing.T) {
	t.Parallel()
	needsRoot(t)
	for _, restart := range []bool{false, true} {
		t.Run(map[bool]string{false: "one daemon", true: "restart"}[restart], func(t *testing.T) {
			t.Parallel()
			d, _ := configured(t, "1xH100-80GB", quick)
			as := d.others()
			home := d.home(attacker)
			pid, lives := bystander(t)
			script := `f='` + forged(t, pid) + `'; dir=$(dirname "$MUSTER_PROGRESS")
kill -STOP $PPID
for i in 1 2 3 4 5; do
  for p in "$dir/state.json" "$dir/task.json" "$dir.state" "$dir.task" "$dir/../0.state"; do echo "$f" > "$p"; done 2>/dev/null
  sleep 0.1
done
kill -CONT $PPID; kill -9 $PPID; cat /proc/$PPID/environ >/dev/null && echo traced
echo ready; trap '' TERM USR1; while :; do sleep 0.2; done`
			if out, err := as(attacker, "submit", "--gpus", "1", "-o", filepath.Join(home, "out"), "--", "sh", "-c",
				script); err != nil {
				t.Fatal(err, out)
			}
			d.eventually("the job has done its worst", func() bool {
				return strings.Contains(d.read("home-"+attacker+"/out"), "ready")
			})
			if restart {
				d.kill()
				d.start()
			}
			lives("after the forgery")
			d.must("suspend", "1")
			d.must("resume", "1")
			lives("after the job was suspended")
			d.must("cancel", "1")
			d.untilSays(`"state": "cancelled"`, "show", "1")
			lives("after the job was cancelled")
			if out := d.read("home-" + attacker + "/out"); strings.Contains(out, "traced") {
				t.Errorf("the job sees into the process that watches over it: %s", out)
			}
			d.want(d.must("show", "1"), `"restarts": 0`)
			d.nothingOf(1)
		})
	}
}

// processesOf are the numbers of a job's processes.
func (d *daemon) processesOf(id int) (pids []int) {
	mark := []byte(fmt.Sprintf("MUSTER_TASK_ID=%d.", id))
	files, _ := filepath.Glob("/proc/[0-9]*/environ")
	for _, f := range files {
		text, _ := os.ReadFile(f)
		if bytes.Contains(text, mark) && bytes.Contains(text, []byte(d.dir)) {
			pid, _ := strconv.Atoi(filepath.Base(filepath.Dir(f))) // it is one
			pids = append(pids, pid)
		}
	}
	return pids
}

// nothingOf ends the test if a process of a job is there.
func (d *daemon) nothingOf(id int) {
	d.t.Helper()
	for _, pid := range d.processesOf(id) {
		command, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
		d.t.Errorf("left of job %d: process %d, %q", id, pid, command)
	}
}

// A task that a daemon of an earlier version began has its state in its user's folder. It goes on
// after an upgrade; a state that names others' processes harms nothing, and the job ends all the same.
func TestForgedEarlierState(t *testing.T) {
	t.Parallel()
	needsRoot(t)
	d, _ := configured(t, "2xH100-80GB", quick)
	as := d.others()
	home := d.home(attacker)
	pid, lives := bystander(t)
	for i, name := range []string{"forged", "honest"} {
		script := `trap 'echo told; exit 0' TERM; echo $$ > ` + filepath.Join(home, name) +
			`; while :; do sleep 0.2; done`
		if out, err := as(attacker, "submit", "--gpus", "1", "-o", filepath.Join(home, name+".out"), "--", "sh", "-c",
			script); err != nil {
			t.Fatal(err, out)
		}
		d.untilSays(`"state": "running"`, "show", strconv.Itoa(i+1))
		d.eventually("it runs", func() bool { return strings.HasSuffix(d.read("home-"+attacker+"/"+name), "\n") })
	}
	d.kill()
	for id := 1; id <= 2; id++ { // as it lay in the folder of the task then
		dir := filepath.Join(d.dir, "state", "jobs", strconv.Itoa(id), "1", "0")
		state, err := os.ReadFile(shim.StateFile(dir))
		if err != nil {
			t.Fatal(err)
		}
		if id == 1 {
			state = []byte(forged(t, pid) + "\n")
		}
		if err := errors.Join(os.Rename(shim.TaskFile(dir), filepath.Join(dir, "task.json")),
			os.WriteFile(filepath.Join(dir, "state.json"), state, 0o644)); err != nil {
			t.Fatal(err)
		}
	}
	d.start()
	lives("after the restart")
	for id := 1; id <= 2; id++ {
		d.must("cancel", strconv.Itoa(id))
		d.untilSays(`"state": "cancelled"`, "show", strconv.Itoa(id))
		d.nothingOf(id)
	}
	lives("after the jobs were cancelled")
	d.want(d.read("home-"+attacker+"/honest.out"), "told")
}

// Files that wait for somebody keep no GPU and no daemon: a fifo as output or input. What its reader
// or writer sees is what the job wrote or is to read.
func TestFifos(t *testing.T) {
	t.Parallel()
	d, _ := configured(t, "4xH100-80GB", quick)
	for _, name := range []string{"out", "never", "in", "none"} {
		if err := unix.Mkfifo(filepath.Join(d.dir, name), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	d.must("submit", "--gpus", "1", "-o", "out", "--", "sh", "-c",
		"echo written; touch wrote; while [ ! -e read ]; do sleep 0.2; done")
	d.must("submit", "--gpus", "1", "-o", "never", "--", "sh", "-c", "echo lost; touch ran; exec sleep 1000")
	for name, command := range map[string]string{"in": "[cat]", "none": `[sh, -c, "touch began; cat"]`} {
		text := "command: " + command + "\ngpus: 1\ninput: " + name + "\noutput: " + name + ".out\nname: " + name + "\n"
		if err := os.WriteFile(filepath.Join(d.dir, name+".yaml"), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	d.must("submit", "in.yaml")
	d.must("submit", "none.yaml")
	for i, file := range []string{"wrote", "ran", "began"} {
		d.eventually("job "+strconv.Itoa(i+1)+" runs: "+file, func() bool {
			_, err := os.Stat(filepath.Join(d.dir, file))
			return err == nil
		})
	}
	f, err := os.Open(filepath.Join(d.dir, "out"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	buf := make([]byte, 100)
	n, err := f.Read(buf)
	if string(buf[:n]) != "written\n" {
		t.Errorf("the reader of the output reads %q, %v", buf[:n], err)
	}
	if err := errors.Join(os.WriteFile(filepath.Join(d.dir, "read"), nil, 0o600),
		os.WriteFile(filepath.Join(d.dir, "in"), []byte("typed\n"), 0)); err != nil {
		t.Fatal(err)
	}
	d.must("wait", "1", "3")
	if got := d.read("in.out"); got != "typed\n" {
		t.Errorf("a job whose input is a fifo read %q", got)
	}
	d.must("cancel", "2")
	d.must("cancel", "4")
	d.untilSays(`"state": "cancelled"`, "show", "2")
	d.untilSays(`"state": "cancelled"`, "show", "4")
	d.nothingOf(2)
	d.nothingOf(4)
}

// A job that stops the process that watches over it, where it can, keeps its GPU no longer than it
// has to stop.
func TestStoppedShim(t *testing.T) {
	t.Parallel()
	d, _ := configured(t, "1xH100-80GB", quick)
	d.must("submit", "--gpus", "1", "-o", "out", "--", "sh", "-c",
		"setsid sleep 1000 & kill -STOP $PPID; touch stopped; sleep 1000")
	d.eventually("it has stopped it", func() bool {
		_, err := os.Stat(filepath.Join(d.dir, "stopped"))
		return err == nil
	})
	d.must("cancel", "1")
	d.untilSays(`"state": "cancelled"`, "show", "1")
	d.nothingOf(1)
	d.must("run", "--gpus", "1", "--", "true")
	d.must("submit", "--gpus", "1", "-o", "/dev/null", "--time", "2s", "--", "sh", "-c", "kill -STOP $PPID; sleep 1000")
	d.untilSays(`"state": "timeout"`, "show", "3")
	d.nothingOf(3)
}

// A job that kills the process that watches over it, where it can, leaves nothing behind, is not
// started again at once, and not for ever.
func TestKilledShim(t *testing.T) {
	t.Parallel()
	d, _ := configured(t, "1xH100-80GB", quick)
	script := `date +%s%N >> starts; env -i setsid sh -c 'exec sleep 1234567' & setsid sleep 1234567 & kill -9 $PPID; sleep 1234567`
	if os.Getuid() != 0 {
		// without control groups what hides its environment and its session is not found
		script = strings.ReplaceAll(script, "env -i ", "")
	}
	d.must("submit", "--gpus", "1", "-o", "/dev/null", "--", "sh", "-c", script)
	d.untilSays(`"state": "failed"`, "show", "1")
	if out := d.must("show", "1"); !strings.Contains(out, "was killed in 5 runs in a row") &&
		!strings.Contains(out, "it could not be started") {
		t.Errorf("it does not say why it failed: %s", out)
	}
	starts := strings.Fields(d.read("starts"))
	if n := len(starts); n < 3 || n > 15 { // three in a row that are killed before they are known to run count as well
		t.Fatalf("it was started %d times", n)
	}
	for i := range starts[1:] {
		a, _ := strconv.ParseInt(starts[i], 10, 64)
		b, _ := strconv.ParseInt(starts[i+1], 10, 64)
		if gap := time.Duration(b - a); gap < 900*time.Millisecond {
			t.Errorf("run %d began %v after the one before", i+2, gap)
		}
	}
	if out, err := exec.Command("sh", "-c",
		`grep -lz '^sleep' /proc/[0-9]*/cmdline 2>/dev/null | while read f; do tr '\0' ' ' < $f; echo; done | grep 1234567`).Output(); err == nil {
		t.Errorf("these are left:\n%s", out)
	}
	d.must("run", "--gpus", "1", "--", "true")
}

// What a daemon inherits reaches no job, and a job has no more open files than that one
// may have.
func TestInheritedFiles(t *testing.T) {
	t.Parallel()
	d := prepareDaemon(t, "1xH100-80GB")
	secret := filepath.Join(d.dir, "secret")
	if err := os.WriteFile(secret, []byte("key"), 0o600); err != nil {
		t.Fatal(err)
	}
	old := d.bin
	d.bin = filepath.Join(d.dir, "daemon")
	if err := os.WriteFile(d.bin,
		[]byte("#!/bin/bash\nulimit -Sn 300\nexec 7<"+secret+" 55</etc/passwd\nexec "+old+" \"$@\"\n"),
		0o755); err != nil {
		t.Fatal(err)
	}
	d.start()
	d.bin = old
	out := d.must("run", "--gpus", "1", "--", "sh", "-c", "ls -l /proc/$$/fd; ulimit -Sn")
	for _, name := range []string{"secret", "passwd", ".lock", ".state", "socket:"} {
		if strings.Contains(out, name) {
			t.Errorf("the job has %s open:\n%s", name, out)
		}
	}
	if f := strings.Fields(out); f[len(f)-1] != "300" {
		t.Errorf("the job may have %s files open; the daemon was started with 300", f[len(f)-1])
	}
}

// A log is read with the rights of its job's user, whatever stands there by then, and who may not read it is told why.
func TestLogElsewhere(t *testing.T) {
	t.Parallel()
	needsRoot(t)
	d, _ := configured(t, "1xH100-80GB", quick)
	as := d.others()
	home := d.home(attacker)
	out := filepath.Join(home, "out")
	if text, err := as(attacker, "submit", "--gpus", "1", "-o", out, "--", "echo", "mine"); err != nil {
		t.Fatal(err, text)
	}
	d.must("wait", "1")
	if text, err := as(attacker, "logs", "1"); err != nil || text != "mine\n" {
		t.Fatalf("%v, %q", err, text)
	}
	private := filepath.Join(d.dir, "private")
	if err := errors.Join(os.Mkdir(private, 0o700),
		os.WriteFile(filepath.Join(private, "there"), []byte("secret"), 0o644),
		unix.Mkfifo(filepath.Join(home, "fifo"), 0o666)); err != nil {
		t.Fatal(err)
	}
	for target, want := range map[string]string{
		filepath.Join(private, "there"):              "permission denied",
		filepath.Join(private, "not"):                "permission denied",
		filepath.Join(d.dir, "state", "daemon.lock"): "permission denied",
		"/etc/passwd":               "not a regular file of " + attacker,
		"/dev/zero":                 "not a regular file of " + attacker,
		filepath.Join(home, "fifo"): "not a regular file of " + attacker,
	} {
		if err := errors.Join(os.Remove(out), os.Symlink(target, out)); err != nil {
			t.Fatal(err)
		}
		for _, args := range [][]string{{"logs", "1"}, {"logs", "-f", "1"}} {
			if text, err := as(attacker, args...); err == nil || !strings.Contains(text, want) ||
				strings.Contains(text, "secret") {
				t.Errorf("%v of a link to %s: %v, %q, not %q", args, target, err, text, want)
			}
		}
	}
}

// What is wrong is named: the folder in which a job is to begin, not its program.
func TestWorkingDirectory(t *testing.T) {
	t.Parallel()
	d, _ := configured(t, "1xH100-80GB", quick)
	d.must("submit", "--gpus", "1", "-o", filepath.Join(d.dir, "out"), "--chdir", filepath.Join(d.dir, "nowhere"), "--",
		"true")
	_, _ = d.try("wait", "1")
	d.want(d.must("show", "1"), "the working directory "+filepath.Join(d.dir, "nowhere")+" does not exist")
}

// background starts a command whose output goes to a file of its name (output).
func (d *daemon) background(args ...string) *exec.Cmd {
	d.t.Helper()
	c := exec.Command(d.bin, args...)
	f, err := os.Create(filepath.Join(d.dir, args[0]+".out"))
	if err != nil {
		d.t.Fatal(err)
	}
	defer f.Close()
	c.Stdout, c.Stderr, c.Env = f, f, append(os.Environ(), "MUSTER_SOCKET="+d.socket)
	if err := c.Start(); err != nil {
		d.t.Fatal(err)
	}
	d.t.Cleanup(func() { _ = c.Process.Kill() })
	return c
}

// wiretap is a socket whose connections go on to the daemon's, and that waits for a daemon while there is none. said
// reports whether a client has said the text.
func (d *daemon) wiretap(text string) (socket string, said func() bool) {
	d.t.Helper()
	socket, to := d.socket+"-through", d.socket
	l, err := net.Listen("unix", socket)
	if err != nil {
		d.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	d.t.Cleanup(func() { cancel(); _ = l.Close() })
	var heard atomic.Bool
	carry := func(client net.Conn) {
		defer client.Close()
		daemon, err := net.Dial("unix", to)
		for ; err != nil; daemon, err = net.Dial("unix", to) {
			if ctx.Err() != nil {
				return
			}
			time.Sleep(10 * time.Millisecond)
		}
		go func() {
			defer daemon.Close()
			buf, all := make([]byte, 4096), ""
			for {
				n, err := client.Read(buf)
				if all += string(buf[:n]); strings.Contains(all, text) {
					heard.Store(true)
				}
				if _, failed := daemon.Write(buf[:n]); err != nil || failed != nil {
					return
				}
			}
		}()
		_, _ = io.Copy(client, daemon)
	}
	go func() {
		for {
			client, err := l.Accept()
			if err != nil {
				return
			}
			go carry(client)
		}
	}()
	return socket, heard.Load
}

// Whoever waits for a job, or follows its output, does so over a restart of the daemon.
func TestWaitOverRestart(t *testing.T) {
	t.Parallel()
	d, _ := configured(t, "1xH100-80GB", quick)
	d.must("submit", "--gpus", "1", "-o", "out", "--", "sh", "-c",
		"echo first; while [ ! -e go ]; do sleep 0.2; done; echo last; exit 7")
	d.untilSays(`"state": "running"`, "show", "1")
	logs := d.background("logs", "-f", "1")
	d.eventually("the output is followed", func() bool { return d.read("logs.out") == "first\n" })
	own := d.socket
	through, asked := d.wiretap("/wait")
	d.socket = through
	waits := d.background("wait", "1")
	d.socket = own
	d.eventually("the daemon was asked to wait", asked)
	if err := d.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	_ = d.cmd.Wait()
	d.start()
	if err := os.WriteFile(filepath.Join(d.dir, "go"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := waits.Wait(); waits.ProcessState.ExitCode() != 7 {
		t.Errorf("wait: %v: %s", err, d.read("wait.out"))
	}
	if err := logs.Wait(); err != nil || d.read("logs.out") != "first\nlast\n" {
		t.Errorf("logs: %v: %q", err, d.read("logs.out"))
	}
}

// SIGTERM ends a daemon whatever it is about: nothing can be stored, or a start hangs.
func TestEndsAnyway(t *testing.T) {
	t.Parallel()
	ends := func(t *testing.T, d *daemon) {
		t.Helper()
		if err := d.cmd.Process.Signal(syscall.SIGTERM); err != nil {
			t.Fatal(err)
		}
		over := make(chan struct{})
		go func() { _ = d.cmd.Wait(); close(over) }()
		select {
		case <-over:
		case <-time.After(patience):
			_ = d.cmd.Process.Kill()
			<-over
			t.Errorf("it did not end within %v", patience)
		}
	}
	t.Run("full disk", func(t *testing.T) {
		t.Parallel()
		d := prepareDaemon(t, "2xH100-80GB")
		state := smallDisk(t, d, "8m")
		d.start()
		fill, err := os.Create(filepath.Join(state, "fill"))
		if err != nil {
			t.Fatal(err)
		}
		defer fill.Close()
		for buf := make([]byte, 4096); err == nil; {
			_, err = fill.Write(buf)
		}
		for range 200 {
			if _, code := d.try("submit", "--gpus", "1", "-o", "/dev/null", "--", "true"); code != 0 {
				break
			}
		}
		ends(t, d)
	})
	t.Run("hanging start", func(t *testing.T) {
		t.Parallel()
		d := prepareDaemon(t, "1xH100-80GB")
		dir := filepath.Join(d.dir, "programs") // with a shim that says nothing
		if err := os.Mkdir(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		bin := filepath.Join(dir, "muster")
		if err := errors.Join(os.Link(d.bin, bin), os.WriteFile(filepath.Join(dir, shimProgram),
			[]byte("#!/bin/sh\n[ \"$1\" = "+shim.BuildVerb+" ] && { echo "+shim.Build()+"; exit; }\ntouch "+d.dir+
				"/hangs; exec sleep 1000\n"), 0o755)); err != nil {
			if text, copied := exec.Command("cp", d.bin, bin).CombinedOutput(); copied != nil {
				t.Fatal(err, copied, string(text))
			}
		}
		d.bin = bin
		d.start()
		d.must("submit", "--gpus", "1", "-o", "/dev/null", "--", "true")
		d.eventually("a start hangs", func() bool {
			_, err := os.Stat(filepath.Join(d.dir, "hangs"))
			return err == nil
		})
		begin := time.Now()
		d.must("cancel", "1")
		d.untilSays(`"state": "`+api.StateCancelled+`"`, "show", "1")
		if took := time.Since(begin); took > time.Minute {
			t.Errorf("the cancellation of a job whose start hangs took %v", took)
		}
		if err := os.Remove(filepath.Join(d.dir, "hangs")); err != nil {
			t.Fatal(err)
		}
		d.must("submit", "--gpus", "1", "-o", "/dev/null", "--", "true")
		d.eventually("a start hangs", func() bool {
			_, err := os.Stat(filepath.Join(d.dir, "hangs"))
			return err == nil
		})
		ends(t, d)
	})
}

// A user's own daemon runs jobs on a machine where root's has made its control groups.
func TestOwnDaemonBesideRoots(t *testing.T) {
	t.Parallel()
	needsRoot(t)
	d, _ := configured(t, "1xH100-80GB", quick)
	as := d.others()
	home := d.home(attacker)
	d.must("run", "--gpus", "1", "--", "true")
	socket := filepath.Join(home, "s")
	c := exec.Command("setpriv", "--reuid", attacker, "--regid", "nogroup", "--clear-groups", d.bin, "serve", "--gpus",
		"sim:1xH100-80GB",
		"--state", filepath.Join(home, "state"), "--socket", socket, "--listen", "none")
	var log bytes.Buffer
	c.Dir, c.Stderr, c.Env = home, &log, append(os.Environ(), "HOME="+home)
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Process.Kill(); _ = c.Wait() })
	d.eventually("it listens", func() bool { _, err := os.Stat(socket); return err == nil })
	d.socket = socket
	if out, err := as(attacker, "run", "--gpus", "1", "--", "sh", "-c", "id -un; exit 0"); err != nil ||
		!strings.Contains(out, attacker) {
		t.Errorf("%v: %s\n%s", err, out, log.String())
	}
}

// The GPU of a process that does not die of SIGKILL is not given to another job until it does, and the job's
// history names it. A freezer of version 1, in which the dead wait, stands for a device.
func TestUnkillable(t *testing.T) {
	t.Parallel()
	needsRoot(t)
	freezer := fmt.Sprintf("/sys/fs/cgroup/freezer/muster-test-%d", os.Getpid())
	if err := os.Mkdir(freezer, 0o755); err != nil {
		t.Skip("NOT TESTED: there is no freezer of version 1: ", err)
	}
	put := func(file, value string) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(freezer, file), []byte(value), 0); err != nil {
			t.Error(err)
		}
	}
	d, _ := configured(t, "1xH100-80GB", quick)
	t.Cleanup(func() {
		put("freezer.state", "THAWED")
		until(func() bool { return os.Remove(freezer) == nil })
	})
	d.must("submit", "--gpus", "1", "-o", "/dev/null", "--", "sh", "-c",
		"echo $$ > pid.new; mv pid.new pid; exec sleep 1000")
	d.eventually("it says who it is", func() bool { return d.read("pid") != "" })
	d.must("submit", "--gpus", "1", "-o", "/dev/null", "--", "true")
	put("cgroup.procs", strings.TrimSpace(d.read("pid")))
	put("freezer.state", "FROZEN")
	d.must("cancel", "1")
	d.untilSays("process "+strings.TrimSpace(d.read("pid"))+` ("`, "history", "1")
	d.want(d.must("history", "1"), "was killed and has not ended")
	d.want(d.must("show", "2"), `"state": "pending"`)
	put("freezer.state", "THAWED")
	d.untilSays(`"state": "cancelled"`, "show", "1")
	d.must("wait", "2")
}
