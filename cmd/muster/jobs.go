package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/muster-gpu/muster/api"
	"github.com/muster-gpu/muster/ask"
	"github.com/muster-gpu/muster/client"
	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/config"
	"github.com/muster-gpu/muster/slurm"
	"github.com/muster-gpu/muster/slurm/remote"
)

// jobFlags are the options of muster run and muster submit.
type jobFlags struct {
	s                                   api.Submission
	limit, estimate, memory             string
	cpus                                float64
	gpus, gpuMem, gpuResident, gpuCores string
	dependency, deadline                string
	traffic, trafficHosts               string
	env                                 []string
}

func (f *jobFlags) add(c *cobra.Command) {
	fl := c.Flags()
	fl.StringVarP(&f.s.Name, "name", "J", "", "name of the job")
	fl.StringVarP(&f.s.Queue, "queue", "q", "", "queue that it counts for")
	fl.StringSliceVarP(&f.s.Partitions, "partition", "p", nil, "acceptable partitions, where some are configured")
	fl.StringVar(&f.s.Tier, "tier", "", "critical, standard or best-effort")
	fl.StringVar(&f.s.Tier, "qos", "", "the same as --tier")
	_ = fl.MarkHidden("qos") // defined above
	fl.StringVar(&f.s.Model, "model", "",
		"what it computes: its name in the performance table (docs/reference/speeds.md)")
	fl.StringVar(&f.s.Kind, "kind", "", "training, batch, service, interactive or trial")
	fl.Int64Var(&f.s.Priority, "priority", 0, "higher first")
	fl.StringVarP(&f.gpus, "gpus", "G", "0",
		"GPUs of each task, such as 2 or a100:2, a fraction such as 0.5, or a MIG profile such as 3g.40gb")
	fl.StringVar(&f.gpuMem, "gpu-mem", "",
		"GPU memory needed on each GPU, such as 8GiB; without --gpus a share of one GPU that has so much")
	fl.StringVar(&f.gpuResident, "gpu-mem-resident", "",
		"of --gpu-mem, what is needed between iterations, too: the rest is for one iteration at a time (policy salus)")
	fl.StringVar(&f.gpuCores, "gpu-cores", "",
		"part of a GPU's compute, such as 30%: the same as --gpus 0.3; with --gpus 2, of each of two GPUs of a node")
	fl.StringVar(&f.s.Isolation, "isolation", "",
		"what must be kept apart on a shared GPU: none, memory, or full (docs/howto/share-a-gpu.md)")
	fl.BoolVar(&f.s.Prompt, "latency-sensitive", false, "it cannot wait while others have their turns on a shared GPU")
	fl.Float64Var(&f.s.MinSpeed, "min-speed", 0,
		"least part of its speed alone that it accepts beside others in a share of a GPU, such as 0.8 (docs/howto/share-a-gpu.md)")
	fl.StringVar(&f.traffic, "traffic", "",
		"what it transmits in an iteration, such as '{pattern: ring, bytes: 102MB, compute: 150ms}' (docs/howto/network.md)")
	fl.StringVar(&f.trafficHosts, "traffic-hosts", "", "between which hosts of the network, such as node[1-2], with --traffic")
	fl.IntVarP(&f.s.Tasks, "tasks", "n", 1, "tasks of the gang")
	fl.IntVar(&f.s.MinTasks, "min-tasks", 0, "elastic: the fewest tasks to run with")
	fl.IntVar(&f.s.MaxTasks, "max-tasks", 0, "elastic: the most tasks to run with")
	fl.Float64VarP(&f.cpus, "cpus", "c", 0, "CPU cores of each task")
	fl.StringVar(&f.memory, "mem", "", "host memory of each task, such as 16GiB")
	fl.StringSliceVar(&f.s.GPUTypes, "gpu-type", nil, "acceptable GPU models, best first")
	fl.StringVarP(&f.limit, "time", "t", "", "time limit, such as 2h30m or 1-02:00")
	fl.StringVar(&f.estimate, "estimate", "", "expected run time, such as 1h")
	fl.StringVar(&f.s.Converge, "converge", "",
		"when it will be done, by a metric that it reports: loss:0.01:3, when that falls by less than 0.01 of itself between two reports, three times in a row")
	fl.StringVar(&f.deadline, "deadline", "", "to be done by then: 18:00, 2026-12-24T12:00, now+2hours")
	fl.StringArrayVarP(&f.env, "env", "e", nil, "environment in addition, NAME=VALUE; may be repeated")
	fl.StringVarP(&f.s.Dir, "chdir", "D", "", "working directory; the present one if not given")
	fl.StringVar(&f.s.Signal, "signal", "", "signal that asks for a checkpoint; USR1 if not given")
	fl.BoolVar(&f.s.NoRequeue, "no-requeue", false, "end instead of waiting again after a preemption")
	fl.IntVar(&f.s.CheckpointOf, "checkpoint-of", 0, "continue in the checkpoint folder of this job, which is over")
	fl.BoolVarP(&f.s.Hold, "hold", "H", false, "wait until it is released")
	fl.BoolVar(&f.s.Pty, "pty", false,
		"run the first task on a terminal of its own, such as a shell (see muster attach)")
	fl.StringVarP(&f.dependency, "dependency", "d", "",
		"other jobs to wait for, such as afterok:12 (all of a list with commas, one of a list with ?)")
}

// submission is what the flags say.
func (f *jobFlags) submission(ctx context.Context) (*api.Submission, error) {
	s := f.s
	for _, d := range []struct {
		name, text string
		to         *api.Duration
	}{{"time", f.limit, &s.Limit}, {"estimate", f.estimate, &s.Estimate}} {
		if d.text != "" {
			var err error
			if *d.to, err = parseSpan(d.text); err != nil {
				return nil, fmt.Errorf("--%s: %w", d.name, err)
			}
		}
	}
	if f.deadline != "" {
		at, err := slurm.ParseWhen(f.deadline, wallTime()) // one grammar, Slurm's
		if err != nil {
			return nil, fmt.Errorf("--deadline: %w", err)
		}
		s.Deadline = &at
	}
	if err := f.resources(&s); err != nil {
		return nil, err
	}
	if err := f.transmits(&s); err != nil {
		return nil, err
	}
	if f.dependency != "" {
		svc := remote.New(ctx, client.Connect(), nil, wallTime) // one grammar, Slurm's
		var err error
		if s.After, s.AnyOf, err = slurm.Dependencies(f.dependency, svc.Jobs, svc.Job); err != nil {
			return nil, err
		}
	}
	var err error
	if s.Dir == "" {
		if s.Dir, err = os.Getwd(); err != nil {
			return nil, err
		}
	} else if s.Dir, err = filepath.Abs(s.Dir); err != nil {
		return nil, err
	}
	s.Env = append(os.Environ(), f.env...)
	s.Umask = fmt.Sprintf("%04o", umask())
	return &s, nil
}

// transmits reads what the job transmits, and between which hosts.
func (f *jobFlags) transmits(s *api.Submission) error {
	if f.traffic == "" {
		if f.trafficHosts != "" {
			return errors.New("--traffic-hosts: it says between which hosts; state what the job transmits, too (--traffic)")
		}
		return nil
	}
	t, err := config.ParseTraffic(f.traffic)
	if err != nil {
		return fmt.Errorf("--traffic: %w", err)
	}
	s.Traffic = &ask.Traffic{Pattern: t.Pattern.String(), Bytes: t.Bytes, Compute: ask.Duration(t.Compute),
		Overlap: float64(t.Overlap) / float64(cluster.Whole)}
	if s.Traffic.Hosts, err = config.Expand(f.trafficHosts); err != nil {
		return fmt.Errorf("--traffic-hosts: %w", err)
	}
	return nil
}

// profile is the name of a MIG profile.
var profile = regexp.MustCompile(`^[1-9]g(\.[0-9]+gb(\+me)?)?$`)

func (f *jobFlags) resources(s *api.Submission) error {
	count := f.gpus
	if m := typedGPUs.FindStringSubmatch(f.gpus); m != nil && m[1] != "gpu" {
		if len(s.GPUTypes) > 0 {
			return fmt.Errorf("--gpus %s names a GPU model, and --gpu-type does: give one of them", f.gpus)
		}
		s.GPUTypes, count = []string{m[1]}, m[2]
	} else if m != nil {
		count = m[2] // gpu:2, of any model
	}
	g, err := strconv.ParseFloat(count, 64)
	switch {
	case profile.MatchString(f.gpus):
		s.GPUs, s.Profile = 1, f.gpus
	case err != nil || g < 0 || g > cluster.MaxGPUsPerNode || g > 0 && g < 0.001:
		return fmt.Errorf("--gpus %s: give a number of GPUs such as 2 or a100:2, a fraction such as 0.5, or a MIG profile such as 3g.40gb", f.gpus)
	case g > 0 && g < 1:
		s.GPUs, s.Share = 1, int64(math.Round(g*1000))
	case g != float64(int(g)):
		return fmt.Errorf("--gpus %s: whole GPUs, or a fraction below one", f.gpus)
	default:
		s.GPUs = int(g)
	}
	if err := f.part(s); err != nil {
		return err
	}
	if !(f.cpus >= 0) || f.cpus > 1<<20 || f.cpus > 0 && f.cpus < 0.001 {
		return fmt.Errorf("--cpus %g: give 0, or between 0.001 and %d", f.cpus, 1<<20)
	}
	s.CPU = int64(math.Round(f.cpus * 1000))
	if f.memory != "" {
		if s.RAM, err = config.ParseMemory(f.memory); err != nil {
			return fmt.Errorf("--mem: %w", err)
		}
	}
	return nil
}

// part reads the other ways to ask for a part of a GPU.
func (f *jobFlags) part(s *api.Submission) (err error) {
	if f.gpuCores != "" {
		var p config.Percent
		if err := p.UnmarshalText([]byte(f.gpuCores)); err != nil || p <= 0 {
			return fmt.Errorf("--gpu-cores %s: give a part of a GPU's compute, such as 30%%", f.gpuCores)
		}
		if s.Share > 0 || s.Profile != "" {
			return fmt.Errorf("--gpu-cores %s: is of whole GPUs; --gpus %s says something else", f.gpuCores, f.gpus)
		}
		s.GPUs, s.Share = max(1, s.GPUs), int64(p*10)
		if s.Share == cluster.Whole {
			s.Share = 0
		}
	}
	if f.gpuMem != "" {
		if s.Memory, err = config.ParseMemory(f.gpuMem); err != nil {
			return fmt.Errorf("--gpu-mem: %w", err)
		}
	}
	if f.gpuResident != "" {
		if s.Resident, err = config.ParseMemory(f.gpuResident); err != nil {
			return fmt.Errorf("--gpu-mem-resident: %w", err)
		}
		if s.Resident > s.Memory {
			return fmt.Errorf("--gpu-mem-resident %s: it is a part of --gpu-mem, which is %s", f.gpuResident,
				cmp.Or(f.gpuMem, "not given"))
		}
	}
	return nil
}

func newSubmit() *cobra.Command {
	f := &jobFlags{}
	var array, output, errFile string
	var asJSON, parsable bool
	c := &cobra.Command{
		Use:   "submit [flags] SCRIPT [ARG...] | FILE.yaml | -- COMMAND [ARG...]",
		Short: "Submit a job and go on",
		Long: "Submits a command, a script with #SBATCH or #MUSTER lines, or a YAML file with the fields of a submission\n" +
			"(the names of the HTTP interface: command, gpus, tasks, limit, queue, ...). What the command line says counts more.",
		Example: "  muster submit --gpus 2 -- python train.py\n" +
			"  muster submit --time 4h train.sh",
		Args: cobra.MinimumNArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			s, err := f.submission(c.Context())
			if err != nil {
				return usage(err)
			}
			s.Array, s.Output, s.Error = array, output, errFile
			if s, err = f.program(c, s, args); err != nil {
				return usage(err)
			}
			out, err := client.Connect().Submit(c.Context(), s, "")
			if err != nil {
				return err
			}
			switch {
			case asJSON:
				return json.NewEncoder(c.OutOrStdout()).Encode(out)
			case parsable:
				_, err = fmt.Fprintln(c.OutOrStdout(), out.Job.ID)
				return err
			}
			return printAccepted(c.OutOrStdout(), &out)
		},
	}
	f.add(c)
	c.Flags().StringVarP(&array, "array", "a", "", "indices of an array and its cap, such as 0-15%4")
	c.Flags().StringVarP(&output, "output", "o", "", "file for the output; muster-%j.out if not given")
	c.Flags().StringVar(&errFile, "error", "", "file for standard error; with the output if not given")
	c.Flags().BoolVar(&asJSON, "json", false, "answer in JSON")
	c.Flags().BoolVar(&parsable, "parsable", false, "answer with the number only")
	return c
}

// answerText says whether a job's deadline is accepted, where a policy answers that.
func answerText(j *api.Job) string {
	switch j.Promise {
	case "accepted":
		return ", its deadline is accepted"
	case "declined":
		return ", its deadline cannot be promised: it runs when it can"
	}
	return ""
}

// sharingText says how a job shares a GPU, and what enforces that.
func sharingText(j *api.Job) string {
	if j.Sharing == "" {
		return ""
	}
	return "; gets " + j.Sharing
}

// program completes a submission: a command stands after --, a script or a
// description in a file; what the command line says counts more than the file.
func (f *jobFlags) program(c *cobra.Command, s *api.Submission, args []string) (*api.Submission, error) {
	if c.ArgsLenAtDash() == 0 {
		s.Command = args
		return s, nil
	}
	file, err := fromFile(c.Context(), c, args)
	if err != nil {
		return nil, err
	}
	overlay(c, file, s)
	file.Env = append(file.Env, f.env...)
	return file, nil
}

// printAccepted says what became of a submission: it runs, or it waits, for
// what, where in the line, and until when.
func printAccepted(w io.Writer, out *client.Submitted) error {
	j := &out.Job
	name := fmt.Sprintf("job %d (%s)", j.ID, j.Submission.Name)
	if n := len(out.Jobs); n > 1 {
		name = fmt.Sprintf("array %d (%s, %d elements)", j.ID, j.Submission.Name, n)
	}
	if q := j.Submission.Queue; q != "" {
		name += " in queue " + q
	}
	var b strings.Builder
	if j.State != api.StatePending && !waitsAsleep(j) {
		fmt.Fprintf(&b, "%s: %s", name, j.State)
		if len(j.Devices) > 0 {
			fmt.Fprintf(&b, " on %s", deviceText(j))
		}
		b.WriteString(withoutGPUs(&j.Submission))
		b.WriteString(answerText(j) + sharingText(j))
		_, err := fmt.Fprintln(w, b.String())
		return err
	}
	does, to := "waiting", "start"
	if waitsAsleep(j) {
		does, to = out.Why.Text+"; it waits", "go on"
	}
	fmt.Fprintf(&b, "%s: %s", name, does)
	if j.Position > 0 {
		fmt.Fprintf(&b, ", number %d in the line", j.Position)
	}
	b.WriteString(startText(&out.Why.Job, to))
	b.WriteString(withoutGPUs(&j.Submission) + answerText(j) + sharingText(j) + "\n")
	for _, t := range out.Why.Blockers {
		fmt.Fprintf(&b, "  %s\n", t)
	}
	for _, t := range out.Why.Holders {
		fmt.Fprintf(&b, "  %s\n", t)
	}
	if out.Why.Moves != "" {
		fmt.Fprintf(&b, "  others could be moved (muster defrag %d): %s\n", out.Jobs[0], out.Why.Moves)
	}
	if len(out.Why.Changes) > 0 {
		fmt.Fprintf(&b, "  would start now with: %s\n", strings.Join(out.Why.Changes, "; "))
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// startText says when a waiting job is expected to start or go on, with an interval where there is one: "at the
// earliest" where no date can be given.
func startText(j *api.Job, to string) string {
	if j.Expected == nil {
		return ""
	}
	day := func(t *time.Time) string { return t.Local().Format("15:04:05 Mon 2 Jan") }
	switch {
	case j.AtEarliest && j.Scored:
		return fmt.Sprintf(", expected to %s at the earliest %s; four of five do by %s", to, day(j.Earliest),
			day(j.Latest))
	case j.AtEarliest:
		return fmt.Sprintf(", expected to %s at the earliest %s", to, day(j.Expected))
	case j.ByLimits:
		return fmt.Sprintf(", expected to %s at %s if those ahead run to their time limits, sooner if they end sooner",
			to, day(j.Expected))
	case j.Earliest != nil && j.Latest != nil && j.Scored:
		return fmt.Sprintf(", expected to %s %s, four of five do between %s and %s", to, day(j.Expected),
			j.Earliest.Local().Format("15:04:05"), day(j.Latest))
	case j.Earliest != nil && j.Latest != nil:
		return fmt.Sprintf(", expected to %s %s, between %s and %s as earlier runs suggest", to, day(j.Expected),
			j.Earliest.Local().Format("15:04:05"), day(j.Latest))
	}
	// of a service that says nothing of what the expectation rests on
	return fmt.Sprintf(", expected to %s about %s", to, day(j.Expected))
}

// withoutGPUs says that a job asked for no GPU, which is seldom what its owner wants here.
func withoutGPUs(s *api.Submission) string {
	if s.GPUs > 0 || s.Profile != "" || s.Memory > 0 {
		return ""
	}
	return ", without a GPU (--gpus 1 asks for one)"
}

// waitsAsleep reports whether a job was suspended for others and waits to go on.
func waitsAsleep(j *api.Job) bool { return j.State == api.StateSuspended && j.Position > 0 }

func deviceText(j *api.Job) string {
	var names []string
	for _, d := range j.Devices {
		if name := strconv.Itoa(d.Index); !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	if len(names) == 0 {
		return j.Node
	}
	return "GPU " + strings.Join(names, ",")
}

func newRun() *cobra.Command {
	f := &jobFlags{}
	c := &cobra.Command{
		Use:   "run [flags] [--] COMMAND [ARG...]",
		Short: "Run a command on GPUs, attached: its output comes here, its exit code is ours",
		Example: "  muster run --gpus 2 -- python train.py\n" +
			"  muster run --gpus 1 nvidia-smi\n" +
			"  muster run --gpus 1 --pty bash",
		Args: cobra.MinimumNArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			s, err := f.submission(c.Context())
			if err != nil {
				return usage(err)
			}
			s.Command, s.Attached = args, true
			return runAttached(c.Context(), c, s)
		},
	}
	c.Flags().SetInterspersed(false)
	f.add(c)
	return c
}

// exitCode is an error that only carries an exit code.
type exitCode int

func (e exitCode) Error() string { return fmt.Sprintf("exit code %d", int(e)) }

// gpuCount is what a job asks for of GPUs; where that is a part of one, or it has a
// part, what it has, or had last.
func gpuCount(j *api.Job) string {
	s := &j.Submission
	part := s.Profile != "" || s.Share > 0 && s.Share < cluster.Whole || s.GPUs == 0
	milli, counts, profiles := int64(0), map[string]int{}, []string{}
	for i := range j.Devices {
		d := &j.Devices[i]
		part = part || d.Profile != "" || d.Share > 0
		switch {
		case d.Profile != "":
			if counts[d.Profile]++; counts[d.Profile] == 1 {
				profiles = append(profiles, d.Profile)
			}
		case d.Share > 0:
			milli += d.Share
		default:
			milli += cluster.Whole
		}
	}
	if !part || j.State == "pending" || len(j.Devices) == 0 {
		return requestText(s)
	}
	var list []string
	if milli > 0 {
		list = append(list, milliText(milli))
	}
	for _, p := range profiles {
		list = append(list, countText(counts[p], p))
	}
	return strings.Join(list, "+")
}

func milliText(milli int64) string { return strconv.FormatFloat(float64(milli)/1000, 'g', 4, 64) }

func memoryText(mib int64) string {
	if mib < 1024 {
		return fmt.Sprintf("%dMiB", mib)
	}
	return strconv.FormatFloat(float64(mib)/1024, 'g', 3, 64) + "GiB"
}

func countText(n int, what string) string {
	return strings.TrimPrefix(fmt.Sprintf("%dx%s", n, what), "1x")
}

// requestText is what a submission asks for: GPUs, parts of them, slices or memory.
func requestText(s *api.Submission) string {
	tasks := max(1, s.Tasks)
	n := tasks * s.GPUs
	switch {
	case s.Share > 0 && s.Share < cluster.Whole:
		return milliText(int64(n) * s.Share)
	case s.Profile != "":
		return countText(max(n, tasks), s.Profile)
	case n == 0 && s.Memory > 0:
		return countText(tasks, memoryText(s.Memory))
	}
	return strconv.Itoa(n)
}
