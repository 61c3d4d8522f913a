//go:build linux

// Package shim is the small process that owns a task: its process group, its
// output, its exit code. It is cmd/muster-shim, or muster executed again; it
// outlives the daemon, which finds it again by its lock and its state file.
//
// For task RANK of a run, RUN being the run's folder, the daemon writes
// RUN/RANK.task, takes an exclusive lock on RUN/RANK.lock and starts the shim
// with the lock as file descriptor 3 and one end of a socket pair as 4. Nothing
// runs before the daemon says go; a daemon that dies before that leaves nothing
// behind. RUN/RANK.state, a line for each state, says "starting" before the task
// is executed, "running" with its process number after, and "ended" with its
// exit code at the end; then the shim ends and the lock is free.
//
// Under a daemon of root the shim is root's, and so are these files: the job's
// user can neither signal the shim nor write what the daemon believes. Whatever
// the shim opens for its task it opens with the rights of that user.
package shim

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/muster-gpu/muster/local/cgroup/spawn"
)

// The names of the files in a task's folder, which belongs to the job's user.
const (
	ScriptFile   = "script"
	ProgressFile = "progress.jsonl"
)

// TaskFile is what the daemon writes of the task with this folder.
func TaskFile(dir string) string { return dir + ".task" }

// StateFile is what the shim writes of it.
func StateFile(dir string) string { return dir + ".state" }

// Task is what the shim is asked to run.
type Task struct {
	Argv     []string `json:"argv"`
	Dir      string   `json:"dir"`
	Env      []string `json:"env"`
	Umask    int      `json:"umask"`
	Input    string   `json:"input"`
	TTY      string   `json:"tty,omitempty"` // InputPipe or InputPty: the input comes from an attached client
	Output   string   `json:"output"`
	Error    string   `json:"error"` // empty: where the output goes
	Truncate bool     `json:"truncate,omitempty"`
	LogMax   int64    `json:"log_max,omitempty"` // bytes after which a log is rotated; 0: never
	LogKeep  int      `json:"log_keep,omitempty"`
	LogRoom  int64    `json:"log_room,omitempty"` // bytes of its disk that a log leaves free, at most a tenth of it
	Mark     string   `json:"mark"`               // NAME=VALUE of the environment, by which stray processes are known

	User  *User        `json:"user,omitempty"`  // whom the task runs as; nil: as its shim
	Group *spawn.Place `json:"group,omitempty"` // control group in which the task begins
}

// The phases of a task.
const (
	Starting = "starting"
	Running  = "running"
	Ended    = "ended"
)

// State is what the shim writes down of its task.
type State struct {
	Phase   string        `json:"phase"`
	Shim    int           `json:"shim"`
	Pid     int           `json:"pid,omitempty"`   // of the task, and its process group
	Birth   uint64        `json:"birth,omitempty"` // start time of the process, in clock ticks since boot
	Started time.Time     `json:"started,omitzero"`
	Ended   time.Time     `json:"ended,omitzero"`
	Exit    int           `json:"exit,omitempty"`
	Signal  int           `json:"signal,omitempty"` // that killed it; 0: none
	Error   string        `json:"error,omitempty"`  // why it could not be executed
	User    time.Duration `json:"user,omitempty"`   // CPU time
	System  time.Duration `json:"system,omitempty"`
	MaxRSS  int64         `json:"max_rss,omitempty"` // KiB
	Dropped int64         `json:"dropped,omitempty"` // bytes of output that could not be written
	Strays  int           `json:"strays,omitempty"`  // processes that were left behind and killed
}

// Main runs a shim for the task with this folder and returns its exit code.
func Main(dir string, now func() time.Time) int {
	Seal()
	control := os.NewFile(4, "control")
	w := &stateFile{dir: dir}
	err := run(w, control, now)
	var trouble *launchError
	switch {
	case err == nil:
		return 0
	case errors.Is(err, unix.EMFILE) || errors.Is(err, unix.ENFILE):
		answer(control, "crowded", err)
	case errors.As(err, &trouble): // no fault of the task: it has not come to an end
		answer(control, "cannot", err)
	default:
		_ = w.write(&State{Phase: Ended, Shim: os.Getpid(), Error: err.Error(), Exit: 127, Ended: now()}, durable)
		answer(control, "failed", err)
	}
	return 1
}

func answer(control io.Writer, word string, err error) {
	fmt.Fprintf(control, "%s %s\n", word, strings.ReplaceAll(err.Error(), "\n", " "))
}

func run(w *stateFile, control *os.File, now func() time.Time) error {
	text, err := os.ReadFile(TaskFile(w.dir))
	if err != nil {
		return trouble(err)
	}
	var t Task
	if err := json.Unmarshal(text, &t); err != nil {
		return err
	}
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		return err
	}
	if line, err := bufio.NewReader(control).ReadString('\n'); err != nil || line != "go\n" {
		os.Exit(0) // the daemon went away, or thought better of it: nothing has happened
	}
	signalsOff()
	st := State{Phase: Starting, Shim: os.Getpid(), Started: now()}
	if err := w.write(&st, fleeting); err != nil {
		return trouble(err)
	}
	p, o, err := start(w.dir, &t, now, st.Started)
	if err != nil {
		return err
	}
	st.Phase, st.Pid, st.Birth = Running, p.Pid, Birth(p.Pid)
	_ = w.write(&st, fleeting) // on a full disk the task runs all the same, and is known by its group or mark
	fmt.Fprintf(control, "started %d\n", p.Pid)
	status, usage := waitFor(p.Pid)
	st.Strays = killStrays(&t)
	o.term.finish(now)
	st.Dropped = o.logs.finish()
	st.Phase, st.Ended = Ended, now()
	if st.Exit = status.ExitStatus(); status.Signaled() {
		st.Exit, st.Signal = 128+int(status.Signal()), int(status.Signal())
	}
	st.User, st.System, st.MaxRSS = time.Duration(usage.Utime.Nano()), time.Duration(usage.Stime.Nano()), usage.Maxrss
	for try := 0; ; try++ { // the exit code must not be lost: wait for room
		err := w.write(&st, durable)
		if err == nil || try == 600 {
			return err
		}
		_ = unix.Nanosleep(&unix.Timespec{Nsec: 500_000_000}, nil)
	}
}

// output is where a task's output goes.
type output struct {
	logs *logs
	term *tty // nil: it has none
}

// start starts the task. From here on this process has the rights of the task's user.
func start(dir string, t *Task, now func() time.Time, at time.Time) (*os.Process, *output, error) {
	o := &output{}
	var err error
	if t.TTY != InputFile { // its socket lies where the user cannot replace it
		if o.term, err = listenTTY(dir, t, at); err != nil {
			return nil, nil, blame(err)
		}
	}
	if err := t.User.become(); err != nil {
		return nil, nil, trouble(err)
	}
	syscall.Umask(t.Umask)
	if o.logs, err = openLogs(t, now); err != nil {
		return nil, nil, blame(err)
	}
	if err := o.term.open(o.logs); err != nil {
		return nil, nil, blame(err)
	}
	p, err := execute(t, o)
	o.logs.started()
	if err != nil {
		return nil, nil, blame(err)
	}
	o.term.started()
	return p, o, nil
}

// execute starts the task in a process group of its own.
func execute(t *Task, o *output) (*os.Process, error) {
	files := []*os.File{nil, o.logs.out, o.logs.err}
	switch {
	case o.term == nil:
		in, err := openInput(t.Input)
		if err != nil {
			return nil, fmt.Errorf("standard input: %w", err)
		}
		defer in.started()
		files[0] = in.theirs
	case o.term.pty:
		files = []*os.File{o.term.theirs, o.term.theirs, o.term.theirs}
	default:
		files[0] = o.term.theirs
	}
	if err := enterable(t.Dir); err != nil {
		return nil, err
	}
	path, err := LookPath(t.Argv[0], t.Env, t.Dir)
	if err != nil {
		return nil, err
	}
	attr := o.term.attributes()
	attr.Credential = t.User.credential()
	var p *os.Process
	err = t.User.asRoot(func() error {
		return t.Group.Start(attr, func() error {
			p, err = os.StartProcess(path, t.Argv, &os.ProcAttr{Dir: t.Dir, Env: t.Env, Files: files, Sys: attr})
			return err
		})
	})
	return p, err
}

// LookPath finds a program as a shell in dir would: by the PATH of an environment, of which relative folders are below
// dir, with the effective rights of this process. A name with a slash is a path already.
func LookPath(name string, env []string, dir string) (string, error) {
	if strings.Contains(name, "/") {
		return name, nil
	}
	for _, folder := range filepath.SplitList(value(env, "PATH", "/usr/local/bin:/usr/bin:/bin")) {
		if !filepath.IsAbs(folder) {
			folder = filepath.Join(dir, folder)
		}
		if path := filepath.Join(folder, name); unix.Faccessat(unix.AT_FDCWD, path, unix.X_OK, unix.AT_EACCESS) == nil {
			if fi, err := os.Stat(path); err == nil && !fi.IsDir() {
				return path, nil
			}
		}
	}
	return "", fmt.Errorf("%s: command not found", name)
}

// value returns a variable of an environment; the last one counts.
func value(env []string, name, otherwise string) string {
	for _, kv := range env {
		if v, ok := strings.CutPrefix(kv, name+"="); ok {
			otherwise = v
		}
	}
	return otherwise
}

// waitFor waits for the process, reaping what was orphaned meanwhile. Its own
// number stays taken until the caller has done with the process group.
func waitFor(pid int) (unix.WaitStatus, unix.Rusage) {
	var ru unix.Rusage
	for {
		var info unix.Siginfo
		err := unix.Waitid(unix.P_ALL, 0, &info, unix.WEXITED|unix.WNOWAIT, nil)
		if err != nil && !errors.Is(err, unix.EINTR) {
			return 0, ru
		}
		var status unix.WaitStatus
		if got, err := unix.Wait4(-1, &status, unix.WNOHANG, &ru); err == nil && got == pid {
			return status, ru
		}
	}
}
