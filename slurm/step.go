package slurm

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/muster-gpu/muster/ask"
)

// step runs the tasks of a step and waits for them; its status is the highest of theirs.
func (c *command) step(s *settings, words []string) (int, error) {
	l, err := s.stepLayout(c.env)
	if err != nil {
		return 1, err
	}
	job, _ := lookupEnv(c.env, "SLURM_JOB_ID")
	if _, err = parseRef(job); err != nil {
		return 1, says("SLURM_JOB_ID=%s is not a job", job)
	}
	env, err := export(cmpOr(s.get("export"), "ALL"), c.env)
	if err != nil {
		return 1, err
	}
	for _, e := range c.env { // --export never removes the job's own variables
		if name, _, _ := strings.Cut(e, "="); strings.HasPrefix(name, "SLURM_") || name == "CUDA_VISIBLE_DEVICES" ||
			name == "NVIDIA_VISIBLE_DEVICES" {
			if _, ok := lookupEnv(env, name); !ok {
				env = append(env, e)
			}
		}
	}
	_, nested := lookupEnv(c.env, "SLURM_STEP_ID")
	gpus, number, free, err := claim(job, &l, s.has("overlap") || nested)
	if err != nil {
		return 1, err
	}
	defer free()
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	if s.has("time") {
		limit, err := ParseTime(s.get("time"))
		if err != nil {
			return 1, err
		}
		if limit > 0 {
			ctx, stop = context.WithTimeout(ctx, limit)
			defer stop()
		}
	}
	run := &stepRun{c: c, s: s, l: &l, words: words, env: env, gpus: gpus, number: number, job: job}
	return run.all(ctx)
}

// claim takes the devices of a step. Steps that run at the same time hold different devices, as with srun
// --exact: a lock per device, which the kernel releases with the process. A step waits for the devices that it
// lacks.
func claim(job string, l *layoutOf, overlap bool) (gpus []string, number int, free func(), err error) {
	dir := stepDir(job)
	if err = os.MkdirAll(dir, 0o700); err != nil {
		return nil, 0, nil, err
	}
	if number, err = stepNumber(dir); err != nil {
		return nil, 0, nil, err
	}
	want := l.want
	if want < 0 {
		want = len(l.gpus)
	}
	if overlap || want == 0 {
		return l.gpus[:want], number, func() {}, nil
	}
	door, err := lock(filepath.Join(dir, "door"), syscall.LOCK_EX)
	if err != nil {
		return nil, 0, nil, err
	}
	defer door.Close()
	held, err := lockDevices(dir, l.gpus, want)
	if err != nil {
		return nil, 0, nil, err
	}
	free = func() {
		for _, f := range held {
			if f != nil {
				f.Close()
			}
		}
	}
	for i, f := range held {
		if f != nil {
			gpus = append(gpus, l.gpus[i])
		}
	}
	return gpus, number, free, nil
}

// stepNumber counts the steps of a job.
func stepNumber(dir string) (int, error) {
	f, err := lock(filepath.Join(dir, "steps"), syscall.LOCK_EX)
	if err != nil {
		return 0, err
	}
	defer f.Close()
	text, err := io.ReadAll(f)
	if err != nil {
		return 0, err
	}
	n, _ := strconv.Atoi(string(text)) // the first step: 0
	_, err = f.WriteAt([]byte(strconv.Itoa(n+1)), 0)
	return n, err
}

func lock(file string, how int) (*os.File, error) {
	f, err := os.OpenFile(file, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	for {
		err = syscall.Flock(int(f.Fd()), how)
		if !errors.Is(err, syscall.EINTR) {
			break
		}
	}
	if err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}

// lockDevices locks as many devices as wanted: free ones first, then those that become free. Only one step at a
// time does this, so no two can wait for each other.
func lockDevices(dir string, gpus []string, want int) ([]*os.File, error) {
	held := make([]*os.File, len(gpus))
	name := func(i int) string {
		return filepath.Join(dir, "gpu-"+strings.Map(func(r rune) rune {
			if r == '/' {
				return '_'
			}
			return r
		}, gpus[i]))
	}
	n := 0
	for i := range gpus {
		if n == want {
			return held, nil
		}
		f, err := lock(name(i), syscall.LOCK_EX|syscall.LOCK_NB)
		if err == nil {
			held[i] = f
			n++
		} else if !errors.Is(err, syscall.EWOULDBLOCK) {
			return nil, err
		}
	}
	type got struct {
		i   int
		f   *os.File
		err error
	}
	came := make(chan got, len(gpus))
	for i := range gpus {
		if held[i] == nil {
			go func() {
				f, err := lock(name(i), syscall.LOCK_EX)
				came <- got{i, f, err}
			}()
		}
	}
	waiting := len(gpus) - n
	for ; n < want; n++ {
		g := <-came
		if g.err != nil {
			return nil, g.err
		}
		held[g.i] = g.f
		waiting--
	}
	go func() { // later ones are returned at once
		for ; waiting > 0; waiting-- {
			if g := <-came; g.f != nil {
				g.f.Close()
			}
		}
	}()
	return held, nil
}

// stepRun is a running step.
type stepRun struct {
	c      *command
	s      *settings
	l      *layoutOf
	words  []string
	env    []string
	gpus   []string
	number int
	job    string
	mu     sync.Mutex // guards the output
}

// all starts the tasks, passes signals on to them, and waits.
func (r *stepRun) all(ctx context.Context) (int, error) {
	cmds := make([]*exec.Cmd, r.l.tasks)
	closers := make([]func(), r.l.tasks)
	for i := range cmds {
		var err error
		if cmds[i], closers[i], err = r.task(i); err == nil {
			err = cmds[i].Start()
		}
		if err != nil {
			kill(cmds[:i], syscall.SIGKILL)
			for _, c := range cmds[:i] {
				_ = c.Wait() // killed
			}
			return 1, fmt.Errorf("task %d: %w", i, err)
		}
	}
	stopped := r.forward(ctx, cmds)
	defer stopped()
	type end struct{ task, status int }
	ends := make(chan end, len(cmds))
	for i := range cmds {
		go func() {
			err := cmds[i].Wait()
			closers[i]()
			ends <- end{i, waitStatus(cmds[i], err)}
		}()
	}
	status := 0
	for range cmds {
		e := <-ends
		status = max(status, e.status)
		if e.status != 0 && !r.s.has("quiet") {
			r.c.errorf("srun: error: task %d: %s\n", e.task, statusText(e.status))
		}
		if e.status != 0 && r.s.has("kill-on-bad-exit") && r.s.get("kill-on-bad-exit") != "0" {
			kill(cmds, syscall.SIGKILL)
		}
	}
	return status, nil
}

func statusText(n int) string {
	if n > 128 {
		return syscall.Signal(n - 128).String()
	}
	return fmt.Sprintf("Exited with exit code %d", n)
}

func waitStatus(cmd *exec.Cmd, err error) int {
	if err == nil {
		return 0
	}
	if w, ok := cmd.ProcessState.Sys().(syscall.WaitStatus); ok {
		if w.Signaled() {
			return 128 + int(w.Signal())
		}
		if w.ExitStatus() > 0 {
			return w.ExitStatus()
		}
	}
	return 1
}

func kill(cmds []*exec.Cmd, sig syscall.Signal) {
	for _, c := range cmds {
		if c != nil && c.Process != nil {
			_ = c.Process.Signal(sig) // it may have ended already
		}
	}
}

// forward passes signals on to the tasks, and ends them when ctx does: SIGTERM, then SIGKILL.
func (r *stepRun) forward(ctx context.Context, cmds []*exec.Cmd) (stop func()) {
	sigs := make(chan os.Signal, 8)
	signal.Notify(sigs, syscall.SIGINT, syscall.SIGTERM, syscall.SIGUSR1, syscall.SIGUSR2, syscall.SIGHUP)
	done := make(chan struct{})
	go func() {
		for {
			select {
			case s := <-sigs:
				if n, ok := s.(syscall.Signal); ok {
					kill(cmds, n)
				}
			case <-ctx.Done():
				if errors.Is(ctx.Err(), context.DeadlineExceeded) {
					r.c.errorf("srun: error: step %s.%d: time limit\n", r.job, r.number)
					kill(cmds, syscall.SIGTERM)
					grace := time.NewTimer(2 * time.Second)
					select {
					case <-grace.C:
						kill(cmds, syscall.SIGKILL)
					case <-done:
					}
				}
				return
			case <-done:
				return
			}
		}
	}()
	return func() { signal.Stop(sigs); close(done) }
}

// task prepares one task: its environment and its files.
func (r *stepRun) task(i int) (*exec.Cmd, func(), error) {
	env := r.l.taskEnv(r.env, r.number, i, r.gpus)
	path := r.words[0]
	if !strings.Contains(path, "/") {
		var err error
		if path, err = findProgram(path, r.c.env); err != nil {
			return nil, nil, err
		}
	}
	cmd := exec.Command(path, r.words[1:]...)
	cmd.Args[0] = r.words[0]
	cmd.Env, cmd.Dir = env, r.s.get("chdir")
	var files []*os.File
	closeAll := func() {
		for _, f := range files {
			f.Close()
		}
	}
	open := func(opt string, how int) (*os.File, error) {
		f, err := os.OpenFile(ask.ExpandPattern(r.s.get(opt), r.names(i)), how, 0o666)
		if err == nil {
			files = append(files, f)
		}
		return f, err
	}
	var err error
	cmd.Stdout, cmd.Stderr = r.label(i, r.c.out), r.label(i, r.c.errOut)
	switch in := r.s.get("input"); in {
	case "", "all":
		if i == 0 || r.l.tasks == 1 { // the others would take its input
			cmd.Stdin = r.c.in
		}
	case "none":
	default:
		if cmd.Stdin, err = open("input", os.O_RDONLY); err != nil {
			return nil, nil, err
		}
	}
	how := os.O_WRONLY | os.O_CREATE | os.O_TRUNC
	if strings.HasPrefix(r.s.get("open-mode"), "a") || r.l.tasks > 1 && !strings.Contains(r.s.get("output"), "%t") {
		how = os.O_WRONLY | os.O_CREATE | os.O_APPEND // the tasks share the file
	}
	if o := r.s.get("output"); o != "" && o != "all" && o != "none" {
		f, err := open("output", how)
		if err != nil {
			return nil, nil, err
		}
		if cmd.Stdout = f; r.s.get("error") == "" {
			cmd.Stderr = f
		}
	} else if o == "none" {
		cmd.Stdout = nil
	}
	if e := r.s.get("error"); e != "" && e != "none" {
		if cmd.Stderr, err = open("error", how); err != nil {
			return nil, nil, err
		}
	}
	return cmd, func() { flush(cmd.Stdout); flush(cmd.Stderr); closeAll() }, nil
}

func (r *stepRun) names(task int) ask.FileNames {
	get := func(n string) string { v, _ := lookupEnv(r.env, n); return v }
	num := func(n string) int { v, _ := number(get(n), 1<<31); return int(v) }
	return ask.FileNames{Job: num("SLURM_JOB_ID"), Array: num("SLURM_ARRAY_JOB_ID"), Index: num("SLURM_ARRAY_TASK_ID"),
		User:    get("SLURM_JOB_USER"),
		JobName: get("SLURM_JOB_NAME"), Node: get("SLURMD_NODENAME"), Task: task, Step: strconv.Itoa(r.number),
		Restart: num("SLURM_RESTART_COUNT")}
}

func findProgram(name string, env []string) (string, error) {
	path, _ := lookupEnv(env, "PATH")
	for _, dir := range filepath.SplitList(path) {
		file := filepath.Join(dir, name)
		if st, err := os.Stat(file); err == nil && st.Mode().IsRegular() && st.Mode()&0o111 != 0 {
			return file, nil
		}
	}
	return "", fmt.Errorf("execve(): %s: No such file or directory", name)
}

// labeller prefixes each line with the number of the task.
type labeller struct {
	r      *stepRun
	prefix string
	w      io.Writer
	rest   []byte
}

// shared is a writer that tasks use in turn; a file needs none.
type shared struct {
	r *stepRun
	w io.Writer
}

func (s shared) Write(p []byte) (int, error) {
	s.r.mu.Lock()
	defer s.r.mu.Unlock()
	return s.w.Write(p)
}

// label returns w or, with --label, a labeller for it.
func (r *stepRun) label(task int, w io.Writer) io.Writer {
	if _, isFile := w.(*os.File); !isFile && !r.s.has("label") {
		return shared{r, w}
	}
	if !r.s.has("label") {
		return w
	}
	width := len(strconv.Itoa(r.l.tasks - 1))
	return &labeller{r: r, prefix: fmt.Sprintf("%*d: ", width, task), w: w}
}

func (l *labeller) Write(p []byte) (int, error) {
	l.rest = append(l.rest, p...)
	for {
		n, line, err := bufio.ScanLines(l.rest, false)
		if n == 0 || err != nil {
			return len(p), err
		}
		if err = l.line(line); err != nil {
			return len(p), err
		}
		l.rest = l.rest[n:]
	}
}

func (l *labeller) line(b []byte) error {
	l.r.mu.Lock()
	defer l.r.mu.Unlock()
	_, err := fmt.Fprintf(l.w, "%s%s\n", l.prefix, b)
	return err
}

// flush writes a labeller's unfinished last line.
func flush(w io.Writer) {
	if l, ok := w.(*labeller); ok && len(l.rest) > 0 {
		_ = l.line(l.rest) // the task is over; the error has no reader
	}
}
