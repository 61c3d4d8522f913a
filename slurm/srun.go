package slurm

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/muster-gpu/muster/cluster"
)

// srunOnly are the options of srun that sbatch does not have.
var srunOnly = []option{
	{name: "compress", arg: optional, use: warned, note: "files are not sent"},
	{name: "cpu-bind", arg: needs, use: warned, note: layout},
	{name: "exact"},
	{name: "immediate", short: 'I', arg: optional, use: refused,
		note: "sbatch --test-only says when a job would start"},
	{name: "jobid", arg: needs, use: refused,
		note: "a step starts inside its job only; muster exec enters one from outside"},
	{name: "kill-on-bad-exit", short: 'K', arg: optional},
	{name: "label", short: 'l'},
	{name: "mpi", arg: needs},
	{name: "multi-prog", use: refused, note: "start the programs one by one, with & and wait"},
	{name: "overlap"},
	{name: "preserve-env", short: 'E', use: warned, note: "SLURM_* of the job stay as they are"},
	{name: "pty", arg: optional},
	{name: "relative", short: 'r', arg: needs, use: warned, note: oneNode},
	{name: "resv-ports", arg: optional, use: warned, note: "ports are not counted"},
	{name: "task-epilog", arg: needs, use: refused, note: "call it from the command"},
	{name: "task-prolog", arg: needs, use: refused, note: "call it from the command"},
	{name: "unbuffered", short: 'u'},
	{name: "whole"},
}

// srunOptions are srun's; some of sbatch's have no meaning for it.
var srunOptions = sync.OnceValue(func() []option {
	var out []option
	for _, o := range batchOptions {
		switch o.name {
		case "array", "wrap", "parsable", "wait", "test-only", "ignore-pbs", "export-file", "get-user-env":
			continue
		}
		if o.env != "" && strings.HasPrefix(o.env, "SBATCH_") {
			o.env = "SLURM_" + strings.TrimPrefix(o.env, "SBATCH_")
		}
		switch o.name {
		case "ntasks":
			o.env = "SLURM_NTASKS"
		case "cpus-per-task":
			o.env = "SLURM_CPUS_PER_TASK"
		case "ntasks-per-gpu":
			o.env = "SLURM_NTASKS_PER_GPU"
		}
		if o.use == warned && o.env != "" {
			o.env = "" // a variable of the job, not an option of srun
		}
		out = append(out, o)
	}
	out = append(out, option{name: "wait", short: 'W', arg: needs, use: warned,
		note: "tasks end by themselves; --kill-on-bad-exit ends the others"},
		option{name: "test-only"})
	return append(out, srunOnly...)
})

// srun runs a command: inside a job as a step, as processes on this machine; outside as a job that it waits for.
func (c *command) srun() (int, error) {
	opts, rest, err := parseArgs(c.args, srunOptions(), true)
	if err != nil {
		return 1, err
	}
	var s settings
	if err = s.apply(opts, fromLine, ""); err != nil {
		return 1, err
	}
	switch {
	case s.has("help") || s.has("usage"):
		c.help("srun [OPTIONS] COMMAND [ARGS]", srunOptions())
		return 0, nil
	case s.has("version"):
		c.printf("%s\n", version)
		return 0, nil
	case len(rest) == 0:
		return 1, fmt.Errorf("no command given to execute")
	}
	if m := s.get("mpi"); m != "" && m != "none" {
		return 1, fmt.Errorf("--mpi=%s is not supported: start the tasks with mpirun or torchrun inside the job", m)
	}
	if !s.has("quiet") {
		c.warn(s.warnings)
	}
	if job, ok := lookupEnv(c.env, "SLURM_JOB_ID"); ok && job != "" {
		return c.step(&s, rest)
	}
	return c.attached(&s, opts, rest)
}

// attached submits a job and waits for it, attached. Several tasks are started by srun inside the job, so that
// both ways mean the same.
func (c *command) attached(s *settings, opts []found, rest []string) (int, error) {
	m, err := c.machine()
	if err != nil {
		return 1, err
	}
	told := len(s.warnings)
	sub, r, err := s.checked(m)
	if !s.has("quiet") {
		c.warn(s.warnings[told:])
	}
	if err != nil {
		return 1, err
	}
	sub.Command, sub.Umask = rest, umask()
	if sub.Name == "" {
		sub.Name = filepath.Base(rest[0])
	}
	switch sub.Input {
	case "", "all":
		sub.Input, sub.Stdin = "", !s.has("pty") && piped(c.in)
	case "none":
		sub.Input = ""
	}
	sub.Attached, sub.Pty, sub.Kind = sub.Output == "", s.has("pty"), cmpOr(sub.Kind, "interactive")
	if max(r.tasks, 1) > 1 || s.has("label") {
		if sub.Pty {
			return 1, fmt.Errorf("--pty is for one task")
		}
		words := slices.Clone(c.svc.Step())
		for _, o := range opts {
			if slices.Contains([]string{"ntasks", "gpus-per-task", "ntasks-per-gpu", "label", "kill-on-bad-exit"},
				o.opt.name) {
				words = append(words, "--"+o.opt.name)
				if o.opt.arg == needs || o.text != "" {
					words[len(words)-1] += "=" + o.text
				}
			}
		}
		sub.Command = append(append(words, "--"), rest...)
	}
	if s.has("test-only") {
		j, err := c.svc.Test(sub)
		if err == nil {
			c.errorf("srun: %s\n", testText(j))
		}
		return 0, err
	}
	j, err := c.svc.Submit(sub)
	if err != nil {
		return 1, says("Unable to allocate resources: %w", err)
	}
	if !s.has("quiet") && j.Started == nil {
		c.errorf("srun: job %d queued and waiting for resources\n", j.ID)
	}
	end, err := c.svc.Attach(j.ID, c.in, c.out, c.errOut)
	if err != nil {
		return 1, err
	}
	if end.Ended == nil {
		return 0, nil // the terminal was detached; the job continues
	}
	if status := exitStatus(&end); status != 0 {
		if st := stateOf(&end); st.name != "FAILED" {
			c.errorf("srun: error: job %d: %s\n", end.ID, st.name)
		}
		return status, nil
	}
	return 0, nil
}

// piped reports whether the input is a file or a pipe: neither a terminal nor empty.
func piped(in io.Reader) bool {
	f, ok := in.(*os.File)
	if !ok {
		return false
	}
	fi, err := f.Stat()
	return err == nil && fi.Mode()&os.ModeCharDevice == 0
}

// layoutOf is how the tasks of a step divide the job's resources.
type layoutOf struct {
	tasks, cpusPerTask int
	gpus               []string // of the step: those of CUDA_VISIBLE_DEVICES
	perTask, tasksPer  int      // GPUs of a task; tasks of a GPU; both 0: every task sees all
	want               int      // GPUs of the step; -1: all of the job's
}

// stepLayout computes a step's layout from srun's options and, with lower precedence, the variables that sbatch
// left.
func (s *settings) stepLayout(env []string) (layoutOf, error) {
	var l layoutOf
	with := &settings{of: map[string]setting{}}
	if err := with.applyEnv(
		onlyEnv(env, "SLURM_NTASKS", "SLURM_CPUS_PER_TASK", "SLURM_GPUS_PER_TASK", "SLURM_NTASKS_PER_GPU"),
		srunOptions()); err != nil {
		return l, err
	}
	if s.has("gpus") || s.has("gres") || s.has("gpus-per-node") {
		delete(with.of, "gpus-per-task")
		delete(with.of, "ntasks-per-gpu")
	}
	for _, o := range srunOptions() { // in the order of the table, to be deterministic
		if v, ok := s.of[o.name]; ok {
			with.of[o.name] = v
		}
	}
	held, _ := lookupEnv(env, "CUDA_VISIBLE_DEVICES")
	if held != "" {
		l.gpus = strings.Split(held, ",")
	}
	r, err := with.resources()
	if err != nil {
		return l, err
	}
	l.tasks, l.cpusPerTask = max(r.tasks, 1), max(r.cpusPerTask, 1)
	l.want = -1
	if r.gpus > 0 || s.has("gpus") || s.has("gres") || s.has("gpus-per-node") {
		l.want = r.gpus
	}
	if l.want > len(l.gpus) {
		return l, says("Unable to create step: More GPUs requested (%d) than the job holds (%d)", l.want, len(l.gpus))
	}
	if total, ok := lookupEnv(env, "SLURM_CPUS_ON_NODE"); ok && !s.has("overcommit") {
		if n, ok := number(total, cluster.MaxTasks); ok && int64(l.tasks*l.cpusPerTask) > n {
			return l, says("Unable to create step: More processors requested than permitted: %d tasks of %d CPUs, and the job has %d", l.tasks, l.cpusPerTask, n)
		}
	}
	l.perTask = r.gpusPerTask
	if l.tasksPer, err = with.count("ntasks-per-gpu"); err != nil {
		return l, err
	}
	return l, nil
}

func onlyEnv(env []string, names ...string) []string {
	var out []string
	for _, n := range names {
		if v, ok := lookupEnv(env, n); ok {
			out = append(out, n+"="+v)
		}
	}
	return out
}

// devicesOf are the GPUs that a task sees, out of the step's.
func (l *layoutOf) devicesOf(task int, gpus []string) []string {
	switch {
	case l.perTask > 0:
		return gpus[min(task*l.perTask, len(gpus)):min((task+1)*l.perTask, len(gpus))]
	case l.tasksPer > 0 && len(gpus) > 0:
		i := min(task/l.tasksPer, len(gpus)-1)
		return gpus[i : i+1]
	}
	return gpus
}

// taskEnv is the environment of a task of a step.
func (l *layoutOf) taskEnv(base []string, step, task int, gpus []string) []string {
	set := map[string]bool{}
	ids := make([]string, l.tasks)
	for i := range ids {
		ids[i] = strconv.Itoa(i)
	}
	n := strconv.Itoa(l.tasks)
	own := []string{
		"SLURM_PROCID=" + ids[task], "SLURM_LOCALID=" + ids[task], "SLURM_NODEID=0",
		"SLURM_GTIDS=" + strings.Join(ids, ","),
		"SLURM_NTASKS=" + n, "SLURM_NPROCS=" + n, "SLURM_TASKS_PER_NODE=" + n,
		"SLURM_STEP_ID=" + strconv.Itoa(step), "SLURM_STEPID=" + strconv.Itoa(step),
		"SLURM_STEP_NUM_TASKS=" + n, "SLURM_STEP_NUM_NODES=1", "SLURM_STEP_TASKS_PER_NODE=" + n,
		"SLURM_LAUNCH_NODE_IPADDR=127.0.0.1",
	}
	if l.cpusPerTask > 1 {
		own = append(own, "SLURM_CPUS_PER_TASK="+strconv.Itoa(l.cpusPerTask))
	}
	if node, ok := lookupEnv(base, "SLURM_JOB_NODELIST"); ok {
		own = append(own, "SLURM_STEP_NODELIST="+node)
	}
	if _, ok := lookupEnv(base, "CUDA_VISIBLE_DEVICES"); ok {
		see := l.devicesOf(task, gpus)
		own = append(own, "SLURM_STEP_GPUS="+strings.Join(gpus, ","), "CUDA_VISIBLE_DEVICES="+strings.Join(see, ","))
		if _, ok := lookupEnv(base, "NVIDIA_VISIBLE_DEVICES"); ok {
			own = append(own, "NVIDIA_VISIBLE_DEVICES="+strings.Join(see, ","))
		}
	}
	for _, e := range own {
		name, _, _ := strings.Cut(e, "=")
		set[name] = true
	}
	out := slices.DeleteFunc(slices.Clone(base), func(e string) bool {
		name, _, _ := strings.Cut(e, "=")
		return set[name]
	})
	return append(out, own...)
}

// stepDir is the folder in which the steps of a job divide its devices.
func stepDir(job string) string {
	return filepath.Join(os.TempDir(), fmt.Sprintf("muster-steps-%d", os.Getuid()), job)
}
