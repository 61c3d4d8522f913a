//go:build linux

package main

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/muster-gpu/muster/internal/shared"
)

// seat is a command on a real terminal.
type seat struct {
	t    testing.TB
	ptmx *os.File
	cmd  *exec.Cmd
	text shared.Text // of the terminal
	tty  *os.File
}

// sit starts a muster command on a terminal of 30 rows and 100 columns.
func (d *daemon) sit(args ...string) *seat {
	d.t.Helper()
	return d.sitAt(d.bin, args...)
}

// sitAt is sit for any program.
func (d *daemon) sitAt(program string, args ...string) *seat {
	d.t.Helper()
	fd, err := unix.Open("/dev/ptmx", unix.O_RDWR|unix.O_NOCTTY|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
	if err != nil {
		d.t.Fatal(err)
	}
	s := &seat{t: d.t, ptmx: os.NewFile(uintptr(fd), "ptmx")}
	n, err := unix.IoctlGetInt(fd, unix.TIOCGPTN)
	if err == nil {
		err = unix.IoctlSetPointerInt(fd, unix.TIOCSPTLCK, 0)
	}
	if err == nil {
		s.tty, err = os.OpenFile("/dev/pts/"+strconv.Itoa(n), os.O_RDWR|unix.O_NOCTTY, 0)
	}
	if err != nil {
		d.t.Fatal(err)
	}
	s.resize(30, 100)
	s.cmd = exec.Command(program, args...)
	s.cmd.Dir, s.cmd.Env = d.dir, append(os.Environ(), "MUSTER_SOCKET="+d.socket, "TERM=xterm", "PS1=$ ", "ENV=")
	s.cmd.Env = append(s.cmd.Env, d.env...)
	s.cmd.Stdin, s.cmd.Stdout, s.cmd.Stderr = s.tty, s.tty, s.tty
	s.cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	if err := s.cmd.Start(); err != nil {
		d.t.Fatal(err)
	}
	go func() { _, _ = io.Copy(&s.text, s.ptmx) }()
	d.t.Cleanup(func() {
		if s.cmd.ProcessState == nil {
			_ = s.cmd.Process.Kill()
			_ = s.cmd.Wait()
		}
		_ = s.tty.Close()
		_ = s.ptmx.Close()
	})
	return s
}

func (s *seat) resize(rows, columns uint16) {
	s.t.Helper()
	raw, err := s.ptmx.SyscallConn()
	if err != nil {
		s.t.Fatal(err)
	}
	if err := raw.Control(func(fd uintptr) {
		err = unix.IoctlSetWinsize(int(fd), unix.TIOCSWINSZ, &unix.Winsize{Row: rows, Col: columns})
	}); err != nil {
		s.t.Fatal(err)
	}
}

func (s *seat) write(text string) {
	s.t.Helper()
	if _, err := io.WriteString(s.ptmx, text); err != nil {
		s.t.Fatal(err)
	}
}

// see waits until the terminal shows a text.
func (s *seat) see(text string) {
	s.t.Helper()
	if !until(func() bool { return strings.Contains(s.text.String(), text) }) {
		s.t.Fatalf("%q is not shown:\n%s", text, s.text.String())
	}
}

// leaves waits for the end and says with which code; the terminal must be as it was.
func (s *seat) leaves() int {
	s.t.Helper()
	over := make(chan struct{})
	go func() { _ = s.cmd.Wait(); close(over) }()
	select {
	case <-over:
	case <-time.After(time.Minute): // the grace of a job is two
		s.t.Fatalf("it does not end:\n%s", s.text.String())
	}
	tio, err := unix.IoctlGetTermios(int(s.tty.Fd()), unix.TCGETS)
	if err != nil {
		s.t.Fatal(err)
	}
	if tio.Lflag&unix.ECHO == 0 || tio.Lflag&unix.ICANON == 0 {
		s.t.Error("the terminal was not restored")
	}
	return s.cmd.ProcessState.ExitCode()
}

// A shell on a GPU: what is typed is echoed, the window has our size, Ctrl-C
// reaches what runs in it, and the exit code comes back.
func TestRunOnTerminal(t *testing.T) {
	t.Parallel()
	d := startDaemon(t, "1xH100-80GB")
	s := d.sit("run", "--gpus", "1", "--pty", "--", "sh", "-i")
	s.write("stty size; echo on:$CUDA_VISIBLE_DEVICES; tty\n")
	s.see("30 100")
	s.see("on:GPU-simulated-0")
	s.see("/dev/pts/")
	s.resize(40, 120)
	s.write("while test \"$(stty size)\" != '40 120'; do :; done; echo re''sized\n")
	s.see("resized")
	s.write("sh -c 'echo as\"\"leep; exec sleep 100'\n")
	s.see("asleep") // it must run before it can be interrupted
	s.write("\x03")
	s.write("echo inter''rupted\n")
	s.see("interrupted")
	s.write("exit 7\n")
	if code := s.leaves(); code != 7 {
		t.Errorf("exit code %d, not the shell's 7:\n%s", code, s.text.String())
	}
	d.want(d.must("logs", "1"), "30 100", "resized", "interrupted")
}

// Who leaves comes back to the same shell; two see the same; a daemon that is
// killed meanwhile makes no difference, and nothing is shown twice.
func TestAttach(t *testing.T) {
	t.Parallel()
	d := startDaemon(t, "1xH100-80GB")
	d.must("submit", "--gpus", "1", "--pty", "--", "sh", "-i")
	a := d.sit("attach", "1")
	a.write("X=kept; echo fir''st\n")
	a.see("first")
	a.write("\x1c")
	if code := a.leaves(); code != 0 {
		t.Errorf("detached with exit code %d", code)
	}
	a.see("muster attach 1")
	b, looker := d.sit("attach", "1"), d.sit("attach", "--read-only", "1")
	b.see("first") // what was shown before
	looker.see("first")
	looker.write("echo must not ar''rive\n")
	d.kill()
	time.Sleep(300 * time.Millisecond)
	d.start()
	b.write("echo $X-$((40+2))\n")
	b.see("kept-42")
	looker.see("kept-42")
	if n := strings.Count(b.text.String(), "first\r\n"); n != 1 {
		t.Errorf("shown %d times after the daemon's death, not once:\n%s", n, b.text.String())
	}
	if strings.Contains(looker.text.String(), "not arrive") {
		t.Errorf("somebody who only looks on has typed:\n%s", looker.text.String())
	}
	b.write("exit 3\n")
	if code := b.leaves(); code != 3 {
		t.Errorf("exit code %d, not 3:\n%s", code, b.text.String())
	}
	if code := looker.leaves(); code != 3 {
		t.Errorf("whoever looked on leaves with %d, not 3", code)
	}
	out, code := d.try("run", "--pty", "--", "true")
	if code != exitUsage {
		t.Errorf("--pty without a terminal: exit code %d", code)
	}
	d.want(out, "not a terminal")
	d.must("submit", "--", "sleep", "1000")
	out, _ = d.try("attach", "2")
	d.want(out, "job 2 has no terminal", "muster logs -f 2")
	d.must("cancel", "2")
}

// A cancelled shell goes at once: its terminal hangs up.
func TestCancelTerminal(t *testing.T) {
	t.Parallel()
	d := startDaemon(t, "1xH100-80GB")
	s := d.sit("run", "--gpus", "1", "--pty", "--", "bash", "--norc", "-i")
	s.write("echo he''re\n")
	s.see("here")
	d.must("cancel", "1") // a grace is two minutes, more than leaves waits
	if code := s.leaves(); code == 0 {
		t.Error("cancelled with exit code 0")
	}
}

// A pipe goes through whole and in order, over the daemon's death.
func TestPipeThrough(t *testing.T) {
	t.Parallel()
	d := startDaemon(t, "1xH100-80GB")
	var in bytes.Buffer
	for i := range 200_000 {
		fmt.Fprintf(&in, "line %d of what goes in\n", i)
	}
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	cmd := patient(d.bin, "run", "--gpus", "1", "--", "sh", "-c", "cat; echo end; exit 5")
	cmd.Env = append(os.Environ(), "MUSTER_SOCKET="+d.socket)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = r, &out, os.Stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	_ = r.Close()
	text, half := in.Bytes(), in.Len()/2
	if _, err := w.Write(text[:half]); err != nil {
		t.Fatal(err)
	}
	d.kill()
	d.start()
	if _, err := w.Write(text[half:]); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait()
	if code := cmd.ProcessState.ExitCode(); code != 5 {
		t.Errorf("exit code %d, not 5", code)
	}
	if want := in.String() + "end\n"; out.String() != want {
		t.Errorf("%d bytes came out of %d that went in", out.Len(), len(want))
	}
}

// The first Ctrl-C is the job's, the second cancels it.
func TestSignalsOfRun(t *testing.T) {
	t.Parallel()
	d := startDaemon(t, "1xH100-80GB")
	s := d.sit("run", "--gpus", "1", "--", "sh", "-c",
		"trap 'echo caught' INT; echo ready; while :; do sleep 0.2; done")
	s.see("ready")
	s.write("\x03")
	s.see("SIGINT to job 1; once more cancels it")
	s.see("caught")
	s.write("\x03")
	s.see("cancelling job 1")
	if code := s.leaves(); code == 0 {
		t.Error("cancelled with exit code 0")
	}
	d.want(d.must("show", "1"), `"state": "cancelled"`)
}

// A folder whose path is too long for a socket has one all the same.
func TestTerminalInLongFolder(t *testing.T) {
	t.Parallel()
	d := startDaemon(t, "1xH100-80GB")
	d.kill()
	d.dir = filepath.Join(d.dir, strings.Repeat("long", 40))
	if err := os.Mkdir(d.dir, 0o755); err != nil {
		t.Fatal(err)
	}
	d.start()
	s := d.sit("run", "--pty", "--", "sh", "-c", "read x; echo got $x")
	s.write("it\n")
	s.see("got it")
	if code := s.leaves(); code != 0 {
		t.Errorf("exit code %d", code)
	}
}
