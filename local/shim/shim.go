//go:build linux

// Package shim is the small process that owns a task: its process group, its
// output, its exit code. It is cmd/muster-shim, or muster executed again; it
// outlives the daemon, which finds it again by its lock and its state file.
//
// The daemon makes a folder for the task with task.json in it, takes an
// exclusive lock on the lock file and starts the shim with the lock as file
// descriptor 3 and one end of a socket pair as 4. Nothing runs before the
// daemon says go; a daemon that dies before that leaves nothing behind.
// state.json, a line for each state, says "starting" before the task is
// executed, "running" with its process number after, and "ended" with its exit
// code at the end; then the shim ends and the lock is free.
package shim

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// The names of the files in a task's folder.
const (
	TaskFile     = "task.json"
	StateFile    = "state.json"
	ScriptFile   = "script"
	ProgressFile = "progress.jsonl"
)

// Task is what the shim is asked to run.
type Task struct {
	Argv     []string `json:"argv"`
	Dir      string   `json:"dir"`
	Env      []string `json:"env"`
	Umask    int      `json:"umask"`
	Input    string   `json:"input"`
	TTY      string   `json:"tty,omitempty"` // InputPipe or InputPty: the input comes from whoever is attached
	Output   string   `json:"output"`
	Error    string   `json:"error"` // empty: where the output goes
	Truncate bool     `json:"truncate,omitempty"`
	LogMax   int64    `json:"log_max,omitempty"` // bytes after which a log is rotated; 0: never
	LogKeep  int      `json:"log_keep,omitempty"`
	LogRoom  int64    `json:"log_room,omitempty"` // bytes of its disk that a log leaves free, at most a tenth of it
	Mark     string   `json:"mark"`               // NAME=VALUE of the environment, by which stray processes are known
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

// Main runs a shim in the folder and returns its exit code.
func Main(dir string, now func() time.Time) int {
	unix.CloseOnExec(3)
	unix.CloseOnExec(4)
	control := os.NewFile(4, "control")
	w := &stateFile{dir: dir}
	err := run(w, control, now)
	if err != nil {
		_ = w.write(&State{Phase: Ended, Shim: os.Getpid(), Error: err.Error(), Exit: 127, Ended: now()}, durable)
		fmt.Fprintf(control, "failed %s\n", strings.ReplaceAll(err.Error(), "\n", " "))
		return 1
	}
	return 0
}

func run(w *stateFile, control *os.File, now func() time.Time) error {
	dir := w.dir
	text, err := os.ReadFile(filepath.Join(dir, TaskFile))
	if err != nil {
		return err
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
		return err
	}
	syscall.Umask(t.Umask)
	logs, err := openLogs(&t, now)
	if err != nil {
		return err
	}
	var term *tty
	if t.TTY != InputFile {
		if term, err = openTTY(dir, &t, logs, st.Started); err != nil {
			return err
		}
	}
	p, err := execute(&t, logs, term)
	logs.started()
	if err != nil {
		return err
	}
	term.started()
	st.Phase, st.Pid, st.Birth = Running, p.Pid, Birth(p.Pid)
	_ = w.write(&st, fleeting) // on a full disk the task runs all the same, and is known by its mark
	fmt.Fprintf(control, "started %d\n", p.Pid)
	status, usage := waitFor(p.Pid)
	st.Strays = killStrays(t.Mark)
	term.finish(now)
	st.Dropped = logs.finish()
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

// execute starts the task in a process group of its own.
func execute(t *Task, logs *logs, term *tty) (*os.Process, error) {
	files := []*os.File{nil, logs.out, logs.err}
	switch {
	case term == nil:
		in, err := os.Open(t.Input)
		if err != nil {
			return nil, fmt.Errorf("standard input: %w", err)
		}
		defer in.Close()
		files[0] = in
	case term.pty:
		files = []*os.File{term.theirs, term.theirs, term.theirs}
	default:
		files[0] = term.theirs
	}
	path, err := lookPath(t)
	if err != nil {
		return nil, err
	}
	return os.StartProcess(path, t.Argv, &os.ProcAttr{Dir: t.Dir, Env: t.Env,
		Files: files, Sys: term.attributes()})
}

// lookPath finds the program as a shell in the task's folder and environment would.
func lookPath(t *Task) (string, error) {
	name := t.Argv[0]
	if strings.Contains(name, "/") {
		return name, nil
	}
	for _, dir := range filepath.SplitList(value(t.Env, "PATH", "/usr/local/bin:/usr/bin:/bin")) {
		if !filepath.IsAbs(dir) {
			dir = filepath.Join(t.Dir, dir)
		}
		if path := filepath.Join(dir, name); unix.Access(path, unix.X_OK) == nil {
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

// Whether what is written must survive a power cut. That a task was running need
// not: it is not any more.
const (
	fleeting = false
	durable  = true
)

// stateFile is the file in which a shim keeps its task's state. It grows by a
// line for each state: the last line that is complete counts. Its first block
// has room for all of them, so that what is said first finds room for the rest.
type stateFile struct {
	dir  string
	f    *os.File
	size int64 // of the lines that are complete
}

// write adds a state; a line that could not be written is overwritten by the next.
func (w *stateFile) write(s *State, sync bool) error {
	text, err := json.Marshal(s)
	if err != nil {
		return err
	}
	if w.f == nil {
		if w.f, err = os.OpenFile(filepath.Join(w.dir, StateFile), os.O_CREATE|os.O_WRONLY|os.O_TRUNC, 0o600); err != nil {
			w.f = nil
			return err
		}
	}
	text = append(text, '\n')
	if _, err := w.f.WriteAt(text, w.size); err != nil {
		return err
	}
	if sync {
		if err := errors.Join(w.f.Sync(), syncDir(w.dir)); err != nil {
			return err
		}
	}
	w.size += int64(len(text))
	return nil
}

func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}

// ReadState reads what the shim in the folder wrote; nil: nothing yet. The
// folder is the user's, so the file may be anything: it is read with care.
func ReadState(dir string) (*State, error) {
	fd, err := unix.Open(filepath.Join(dir, StateFile), unix.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, &fs.PathError{Op: "open", Path: filepath.Join(dir, StateFile), Err: err}
	}
	f := os.NewFile(uintptr(fd), StateFile)
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, 1<<16))
	if err != nil {
		return nil, err
	}
	lines := bytes.Split(text, []byte{'\n'})
	for i := len(lines) - 2; i >= 0; i-- { // behind the last newline stands what is being written
		var s State
		if err = json.Unmarshal(lines[i], &s); err == nil {
			return &s, nil
		}
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", filepath.Join(dir, StateFile), err)
	}
	return nil, nil
}
