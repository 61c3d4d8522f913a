//go:build linux

package local

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/muster-gpu/muster/engine"
	"github.com/muster-gpu/muster/local/evidence"
	"github.com/muster-gpu/muster/local/shim"
)

// answerWait is how long a shim may take to say that its task runs.
const answerWait = 30 * time.Second

// recallWait is how long a start that is called off may take to become a run,
// which is stopped as any other.
const recallWait = 500 * time.Millisecond

// Why a start did not happen, besides what the system says.
var (
	errNoAnswer  = errors.New("the shim did not answer")
	errCalledOff = errors.New("it was stopped before it had started")
	errLeaving   = errors.New("the daemon is ending")
	errCrowded   = errors.New("too many open files on this machine")
)

// crowded reports that a start failed for want of file descriptors, which is no fault of the job.
func crowded(err error) bool {
	return errors.Is(err, unix.EMFILE) || errors.Is(err, unix.ENFILE) || errors.Is(err, errCrowded)
}

// prepare makes the folders of a task and what the daemon writes into them.
// Users may pass through the folder of a run, which is the daemon's, and own
// those of their tasks: a task's own folder as soon as the daemon has written
// what it has to. A daemon of root that wrote into a user's folder could be led
// by a link to write anywhere.
func (r *runner) prepare(t *task) error {
	if err := r.makeDirs(t); err != nil {
		return err
	}
	if s := r.job.sub.Script; s != "" && t.rank == 0 {
		if err := r.writeOwn(filepath.Join(t.dir, shim.ScriptFile), []byte(s), 0o700); err != nil {
			return err
		}
	}
	if err := r.writeTrials(t); err != nil {
		return err
	}
	if err := r.confine(t); err != nil {
		return err
	}
	text, err := json.Marshal(t.spec)
	if err != nil {
		return err
	}
	if err := os.WriteFile(shim.TaskFile(t.dir), text, 0o600); err != nil {
		return err
	}
	if err := evidence.Own(t.dir, r.job.info.User.UID, r.job.info.User.GID); err != nil {
		return err
	}
	t.prepared = true
	return nil
}

// makeDirs makes the folders of a task, in the folder of its job, which is this state's.
func (r *runner) makeDirs(t *task) error {
	j := r.m.jobDir(r.id)
	if err := evidence.Folder(filepath.Dir(j), r.m.store.ID(), int(r.id)); err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(t.dir), 0o711); err != nil {
		return err
	}
	if r.job.info.Folder != 0 {
		if err := r.m.noteFolder(r.id, r.job.info.Folder); err != nil {
			return err
		}
	}
	if err := evidence.UserFolder(t.dir, os.Getuid(), os.Getgid()); err != nil { // the daemon's until it is prepared
		return err
	}
	saves := r.m.checkpointDir(r.job)
	if of := filepath.Dir(saves); filepath.Dir(of) == r.m.opt.Checkpoints { // on a file system of its own, signed like the job's folder
		id, err := strconv.Atoi(filepath.Base(of))
		if err := errors.Join(err, evidence.Folder(r.m.opt.Checkpoints, r.m.store.ID(), id)); err != nil {
			return err
		}
	}
	dirs := []string{saves}
	if r.job.sub.Attached {
		dirs = append(dirs, filepath.Join(j, "log"))
	}
	for _, d := range dirs {
		if err := evidence.UserFolder(d, r.job.info.User.UID, r.job.info.User.GID); err != nil {
			return err
		}
	}
	return nil
}

// spawn starts a task under a new shim and returns when it runs, or when it is
// known why it cannot. That a program does not exist is the task's own end,
// not an error of the launch. Descriptors that are kept back for starts are
// used where there are no others.
func (r *runner) spawn(t *task) error {
	err := r.spawnOnce(t)
	if crowded(err) && !t.alive {
		err = r.m.reserve.lend(func() error { return r.spawnOnce(t) })
	}
	if err != nil && !t.alive {
		t.group.Remove()
	}
	return err
}

func (r *runner) spawnOnce(t *task) error {
	if !t.prepared {
		if err := r.prepare(t); err != nil {
			return err
		}
	}
	lock, err := os.OpenFile(t.dir+".lock", os.O_CREATE|os.O_RDWR, 0o600)
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
	cmd := exec.Command(r.m.opt.Shim[0], append(r.m.opt.Shim[1:len(r.m.opt.Shim):len(r.m.opt.Shim)], t.dir)...)
	cmd.Dir = "/"
	cmd.Env = []string{"PATH=/usr/bin:/bin", "GOMAXPROCS=1"}
	if null, err := devNull(); err == nil { // else it is opened three times for each start
		cmd.Stdin, cmd.Stdout, cmd.Stderr = null, null, null
	}
	cmd.ExtraFiles = []*os.File{lock, theirs}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	r.m.crash("before-fork")
	err = r.m.groups.Shims().Start(cmd.SysProcAttr, cmd.Start)
	_ = theirs.Close()
	if err != nil {
		return err
	}
	r.m.crash("after-fork")
	t.alive, t.shim, t.child = true, cmd.Process.Pid, cmd.Process
	r.live++
	r.gone(t, func() { _ = cmd.Wait() })
	return r.awaitStart(t, ours)
}

// awaitStart has a shim start its task and waits for its answer.
func (r *runner) awaitStart(t *task, ours *os.File) error {
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
			r.m.crash("after-go")
			return r.answered(t, line)
		case <-late.C:
			return why
		case <-r.m.running.Done():
			return errLeaving // the next daemon finds the shim, and what became of its task
		case o := <-r.orders:
			r.later = append(r.later, o)
			if o.ends() && o.how == engine.Kill {
				why = errCalledOff
				late.Reset(recallWait)
			}
		}
	}
}

// answered takes a shim's answer.
func (r *runner) answered(t *task, line string) error {
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
	if _ = t.read(); t.state != nil && t.state.Phase != shim.Starting {
		return nil // it was killed after its task had begun
	}
	return errNoAnswer
}

// devNull is what a shim has for standard input, output and error.
var devNull = sync.OnceValues(func() (*os.File, error) { return os.OpenFile(os.DevNull, os.O_RDWR, 0) })

// shimUser is the user that the task runs as; nil: the daemon's.
func (r *runner) shimUser() *shim.User {
	u := r.job.info.User
	if os.Getuid() != 0 {
		return nil
	}
	return &shim.User{UID: u.UID, GID: u.GID, Groups: u.Groups}
}
