//go:build linux

package run

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/muster-gpu/muster/engine"
	"github.com/muster-gpu/muster/local/shim"
)

// answerWait is how long a shim may take to say that its task runs.
const answerWait = 30 * time.Second

// recallWait is how long a start that is called off may take to become a run,
// which is stopped as any other.
const recallWait = 500 * time.Millisecond

// Why a start did not happen, besides what the system says.
var (
	ErrCalledOff = errors.New("it was stopped before it had started")
	ErrLeaving   = errors.New("the daemon is ending")
)

var (
	errNoAnswer = errors.New("the shim did not answer")
	errCrowded  = errors.New("too many open files on this machine")
)

// Crowded reports that a start failed for want of file descriptors, which is no fault of the job.
func Crowded(err error) bool {
	return errors.Is(err, unix.EMFILE) || errors.Is(err, unix.ENFILE) || errors.Is(err, errCrowded)
}

// spawn starts a task under a new shim and returns when it runs, or when it is
// known why it cannot. That a program does not exist is the task's own end,
// not an error of the launch. Descriptors that are kept back for starts are
// used where there are no others.
func (r *Run) spawn(t *Task) error {
	err := r.spawnOnce(t)
	if Crowded(err) && !t.alive {
		err = r.k.Reserve.lend(func() error { return r.spawnOnce(t) })
	}
	if err != nil && !t.alive {
		t.Group.Remove()
	}
	return err
}

func (r *Run) spawnOnce(t *Task) error {
	if !t.prepared {
		if err := r.owner.Prepare(t); err != nil {
			return err
		}
		t.prepared = true
	}
	lock, err := os.OpenFile(t.lock(), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return err
	}
	defer lock.Close()
	if err := unix.Flock(int(lock.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		return fmt.Errorf("%s: %w", lock.Name(), err)
	}
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	if err := unix.SetNonblock(fds[0], true); err != nil { // a read of it ends when it is closed
		return errors.Join(err, unix.Close(fds[0]), unix.Close(fds[1]))
	}
	ours, theirs := os.NewFile(uintptr(fds[0]), "control"), os.NewFile(uintptr(fds[1]), "control")
	defer ours.Close()
	cmd := exec.Command(r.k.Shim[0], append(r.k.Shim[1:len(r.k.Shim):len(r.k.Shim)], t.Dir)...)
	cmd.Dir = "/"
	cmd.Env = []string{"PATH=/usr/bin:/bin", "GOMAXPROCS=1"}
	if null, err := devNull(); err == nil { // else it is opened three times for each start
		cmd.Stdin, cmd.Stdout, cmd.Stderr = null, null, null
	}
	cmd.ExtraFiles = []*os.File{lock, theirs}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	r.k.crash("before-fork")
	err = r.k.Groups.Shims().Start(cmd.SysProcAttr, cmd.Start)
	_ = theirs.Close()
	if err != nil {
		return err
	}
	r.k.crash("after-fork")
	t.alive, t.shim, t.child = true, cmd.Process.Pid, cmd.Process
	r.live++
	r.gone(t, func() { _ = cmd.Wait() })
	return r.awaitStart(t, ours)
}

// awaitStart has a shim start its task and waits for its answer.
func (r *Run) awaitStart(t *Task, ours *os.File) error {
	answer := make(chan string, 1)
	go func() {
		line := ""
		if _, err := ours.WriteString("go\n"); err == nil {
			line, _ = bufio.NewReader(ours).ReadString('\n')
		}
		answer <- line
	}()
	late := time.NewTimer(answerWait)
	defer late.Stop()
	why := errNoAnswer
	for {
		select {
		case line := <-answer:
			r.k.crash("after-go")
			return r.answered(t, line)
		case <-late.C:
			return why
		case <-r.k.Running.Done():
			return ErrLeaving // the next daemon finds the shim, and what became of its task
		case o := <-r.orders:
			r.later = append(r.later, o)
			if o.ends() && o.How == engine.Kill {
				why = ErrCalledOff
				late.Reset(recallWait)
			}
		}
	}
}

// answered takes a shim's answer.
func (r *Run) answered(t *Task, line string) error {
	word, text, _ := strings.Cut(strings.TrimSuffix(line, "\n"), " ")
	switch word {
	case "started", "failed":
		t.read()
		return nil
	case "cannot":
		return errors.New(text)
	case "crowded":
		return fmt.Errorf("%w: %s", errCrowded, text)
	}
	if _ = t.read(); t.State != nil && t.State.Phase != shim.Starting {
		return nil // it was killed after its task had begun
	}
	return errNoAnswer
}

// devNull is what a shim has for standard input, output and error.
var devNull = sync.OnceValues(func() (*os.File, error) { return os.OpenFile(os.DevNull, os.O_RDWR, 0) })
