//go:build linux

package local

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"hash/fnv"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/muster-gpu/muster/api"
	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/engine"
	"github.com/muster-gpu/muster/local/cgroup"
	"github.com/muster-gpu/muster/local/evidence"
	"github.com/muster-gpu/muster/local/shim"
)

// task is one process of a gang, with its shim.
type task struct {
	rank    int
	dir     string
	spec    *shim.Task
	devices []api.Device
	state   *shim.State
	alive   bool // its shim is there, as far as the runner knows
	heard   bool // it was asked for a checkpoint, and handles that
	lost    bool // its shim ended without saying how the task did
	asked   cluster.Request
	group   *cgroup.Group
	used    cgroup.Usage
}

func (m *Machine) jobDir(id cluster.JobID) string {
	return filepath.Join(m.opt.Dir, "jobs", strconv.Itoa(int(id)))
}

func (m *Machine) taskDir(id cluster.JobID, run, rank int) string {
	return filepath.Join(m.jobDir(id), strconv.Itoa(run), strconv.Itoa(rank))
}

// mark is the environment variable by which processes of a task are known.
func (m *Machine) mark(id cluster.JobID, run, rank int) string {
	h := fnv.New32a()
	_, _ = h.Write([]byte(m.opt.Dir))
	return fmt.Sprintf("MUSTER_TASK_ID=%d.%d.%d.%08x", id, run, rank, h.Sum32())
}

// makeDirs makes the folders of a run. Users may pass through them, and own
// those of their tasks: the task's own folder as soon as the daemon has written
// what it has to. A daemon of root that wrote into a user's folder could be led
// by a link to write anywhere.
func (r *runner) makeDirs(t *task) error {
	j := r.m.jobDir(r.id)
	if err := evidence.Folder(filepath.Dir(j), r.m.store.ID(), int(r.id)); err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(t.dir), 0o711); err != nil {
		return err
	}
	if err := os.Mkdir(t.dir, 0o700); err != nil { // a run's number is given once: what is there is not this run's
		return err
	}
	if r.job.info.Folder != 0 {
		if err := r.m.noteFolder(r.id, &r.job.info); err != nil {
			return err
		}
	}
	saves := r.m.checkpointDir(r.id, &r.job.info)
	if of := filepath.Dir(saves); filepath.Dir(of) == r.m.opt.Checkpoints {
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
		if err := evidence.UserFolder(d, r.job.info.User.UID); err != nil {
			return err
		}
		if err := r.own(d); err != nil {
			return err
		}
	}
	return nil
}

// writeOwn writes a file of the task's folder, which is the daemon's still.
func (r *runner) writeOwn(path string, text []byte, mode os.FileMode) error {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, mode)
	if errors.Is(err, fs.ErrExist) { // of a start that was interrupted
		if err = os.Remove(path); err == nil {
			f, err = os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, mode)
		}
	}
	if err != nil {
		return err
	}
	_, err = f.Write(text)
	return errors.Join(err, f.Close(), r.own(path))
}

// own gives a path to the job's user.
func (r *runner) own(path string) error {
	if os.Getuid() != 0 {
		return nil
	}
	return os.Lchown(path, r.job.info.User.UID, r.job.info.User.GID)
}

// spawn starts a task under a new shim and returns when it runs, or when it is
// known why it cannot. That a program does not exist is the task's own end,
// not an error of the launch.
func (r *runner) spawn(t *task) error {
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
	text, err := json.Marshal(t.spec)
	if err != nil {
		return err
	}
	if err := r.writeOwn(filepath.Join(t.dir, shim.TaskFile), text, 0o600); err != nil {
		return err
	}
	if err := r.own(t.dir); err != nil {
		return err
	}
	lock, err := os.OpenFile(t.dir+".lock", os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return err
	}
	defer lock.Close()
	if err := unix.Flock(int(lock.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		return fmt.Errorf("%s: %w", lock.Name(), err)
	}
	return r.spawnShim(t, lock)
}

func (r *runner) spawnShim(t *task, lock *os.File) error {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
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
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Credential: r.credential()}
	r.m.crash("before-fork")
	err = cmd.Start()
	_ = theirs.Close()
	if err != nil {
		return err
	}
	r.m.crash("after-fork")
	if err := r.confine(t, cmd.Process.Pid); err != nil {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		return err
	}
	answer := make(chan string, 1)
	go func() {
		_ = ours.SetDeadline(r.m.opt.Now().Add(30 * time.Second))
		line := ""
		if _, err := ours.WriteString("go\n"); err == nil {
			line, _ = bufio.NewReader(ours).ReadString('\n')
		}
		answer <- line
	}()
	switch line := <-answer; {
	case strings.HasPrefix(line, "started "), strings.HasPrefix(line, "failed "):
	default:
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		return errors.New("the shim did not answer")
	}
	r.m.crash("after-go")
	t.alive = true
	t.state, _ = shim.ReadState(t.dir)
	ended := r.ended // another run has another
	go func() {
		_ = cmd.Wait()
		ended <- t
	}()
	return nil
}

// devNull is what a shim has for standard input, output and error.
var devNull = sync.OnceValues(func() (*os.File, error) { return os.OpenFile(os.DevNull, os.O_RDWR, 0) })

// credential is the user that the task runs as.
func (r *runner) credential() *syscall.Credential {
	u := &r.job.info.User
	if os.Getuid() != 0 {
		return nil
	}
	c := &syscall.Credential{Uid: uint32(u.UID), Gid: uint32(u.GID)}
	for _, g := range u.Groups {
		c.Groups = append(c.Groups, uint32(g))
	}
	return c
}

// over is called when the shim has ended.
func (t *task) over() {
	s, err := shim.ReadState(t.dir)
	t.alive = false
	if err != nil || s == nil || s.Phase != shim.Ended {
		t.lost = true
		killAll(t.spec.Mark) // the shim was killed: nobody else will
	}
	if s != nil {
		t.state = s
	}
	t.release()
}

// killAll kills the processes that hold the mark, until there is none.
func killAll(mark string) {
	for range 100 {
		pids := shim.Strays(mark)
		if len(pids) == 0 {
			return
		}
		for _, pid := range pids {
			_ = unix.Kill(pid, unix.SIGKILL)
		}
		time.Sleep(5 * time.Millisecond)
	}
}

// there reports whether the task's first process is: its number may be another's by now.
func (t *task) there() bool {
	return t.state != nil && t.state.Pid != 0 && shim.Birth(t.state.Pid) == t.state.Birth
}

// signal sends to the task's process group, or to its first process; what stops
// or continues it does so for all of its group. The process number is the task's own as long as its shim lives: it reaps last.
func (t *task) signal(s unix.Signal, shell bool) {
	if !t.there() {
		return
	}
	if shell {
		_ = unix.Kill(t.state.Pid, s)
		return
	}
	if s == unix.SIGCONT {
		t.group.Freeze(false)
	}
	_ = unix.Kill(-t.state.Pid, s)
	if s == unix.SIGSTOP { // whoever left the process group does not get the signal
		t.group.Freeze(true)
	}
}

// kill kills the process group and whoever left it.
func (t *task) kill() {
	t.signal(unix.SIGKILL, false)
	for _, pid := range shim.Strays(t.spec.Mark) {
		_ = unix.Kill(pid, unix.SIGKILL)
	}
	if t.state != nil { // the shim stays: it says how the task ended
		t.group.Kill(t.state.Shim)
	}
}

// plan makes the tasks of a run from what the engine gave it.
func (r *runner) plan(allocs []engine.Alloc) (tasks []*task) {
	r.port = freePort()
	for i := range allocs {
		a := &allocs[i]
		end := i + 1
		for end < len(allocs) && a.Share > 0 && allocs[end].Tasks == 0 { // a share of another GPU, of the same task
			end++
		}
		devices := r.m.devices(allocs[i:end])
		each := len(devices)
		if a.Tasks > 0 && a.Share == 0 {
			each = len(devices) / int(a.Tasks)
		}
		for k := range int(a.Tasks) {
			own := devices
			if a.Share == 0 {
				own = devices[k*each : (k+1)*each]
			}
			rank := len(tasks)
			t := &task{rank: rank, dir: r.m.taskDir(r.id, r.n, rank), asked: r.job.info.Record.Spec.Tasks[a.Set].Request}
			t.spec = &shim.Task{Mark: r.m.mark(r.id, r.n, rank)}
			t.group = r.m.groupOf(t.spec.Mark)
			r.describe(t, own)
			tasks = append(tasks, t)
		}
	}
	for _, t := range tasks {
		t.spec.Env = r.environment(t, len(tasks))
	}
	return tasks
}
