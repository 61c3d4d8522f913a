package slurm

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/muster-gpu/muster/api"
	"github.com/muster-gpu/muster/cluster"
)

// state is one of Slurm's job states. Their order is Slurm's own, which its
// listings sort by.
type state struct {
	name, code string
	over       bool
}

var states = []state{
	{"PENDING", "PD", false}, {"RUNNING", "R", false}, {"SUSPENDED", "S", false}, {"COMPLETED", "CD", true},
	{"CANCELLED", "CA", true},
	{"FAILED", "F", true}, {"TIMEOUT", "TO", true}, {"NODE_FAIL", "NF", true}, {"PREEMPTED", "PR", true},
	{"BOOT_FAIL", "BF", true},
	{"DEADLINE", "DL", true}, {"OUT_OF_MEMORY", "OOM", true}, {"CONFIGURING", "CF", false}, {"COMPLETING", "CG", false},
	// These never occur here, but are valid in filters.
	{"RESIZING", "RS", false}, {"REQUEUED", "RQ", false}, {"REQUEUE_FED", "RF", false}, {"REQUEUE_HOLD", "RH", false},
	{"REVOKED", "RV", true},
	{"SIGNALING", "SI", false}, {"SPECIAL_EXIT", "SE", false}, {"STAGE_OUT", "SO", false}, {"STOPPED", "ST", false},
	{"RESV_DEL_HOLD", "RD", false},
}

// slurmState is Slurm's name of a state.
func slurmState(state string) string {
	switch state {
	case api.StatePending:
		return "PENDING"
	case api.StateStarting:
		return "CONFIGURING"
	case api.StateRunning:
		return "RUNNING"
	case api.StateSuspended:
		return "SUSPENDED"
	case api.StateStopping:
		return "COMPLETING"
	case api.StateCompleted:
		return "COMPLETED"
	case api.StateFailed:
		return "FAILED"
	case api.StateCancelled, api.StateRejected:
		return "CANCELLED"
	case api.StateTimeout:
		return "TIMEOUT"
	case api.StatePreempted:
		return "PREEMPTED"
	case api.StateLost:
		return "NODE_FAIL"
	}
	return ""
}

// stateOf is the job's state in Slurm's words.
func stateOf(j *api.Job) *state {
	name := slurmState(j.State)
	switch {
	case j.Code == "OutOfMemory" && name == "FAILED":
		name = "OUT_OF_MEMORY"
	case j.Code == "DeadLine" && name == "CANCELLED":
		name = "DEADLINE"
	}
	for i := range states {
		if states[i].name == name {
			return &states[i]
		}
	}
	return &states[0]
}

// parseStates reads a list of states by name or code; ALL is nil.
func parseStates(s string) ([]string, error) {
	var out []string
	for _, w := range strings.Split(strings.ToUpper(s), ",") {
		if w == "ALL" {
			return nil, nil
		}
		i := slices.IndexFunc(states, func(k state) bool { return k.name == w || k.code == w })
		if i < 0 {
			names := make([]string, len(states))
			for k := range states {
				names[k] = states[k].name
			}
			return nil, fmt.Errorf("invalid job state specified: %w", cluster.Unknown("state", w, names))
		}
		out = append(out, states[i].name)
	}
	return out, nil
}

// reason is why a job waits, or how it ended, as one of Slurm's codes.
func reason(j *api.Job) string {
	if j.Code != "" {
		return j.Code
	}
	switch j.State {
	case api.StateFailed:
		return "NonZeroExitCode"
	case api.StateTimeout:
		return "TimeLimit"
	case api.StateLost:
		return "NodeDown"
	case api.StateRejected:
		return "BadConstraints"
	}
	return "None"
}

// The figures that several commands show.

func cpus(j *api.Job) int64 { return (j.Submission.CPU*int64(max(j.Submission.Tasks, 1)) + 999) / 1000 }

func gpus(j *api.Job) int { return j.Submission.GPUs * max(j.Submission.Tasks, 1) }

func memory(j *api.Job) cluster.MiB { return j.Submission.RAM * int64(max(j.Submission.Tasks, 1)) }

// ranFor is the time of the present or last run, without the time for which the job was suspended, which is in
// Ran.
func ranFor(j *api.Job, now time.Time) time.Duration {
	if j.Started == nil || j.State == api.StatePending {
		return 0
	}
	if j.Ended != nil {
		now = *j.Ended
	}
	return max(now.Sub(*j.Started), 0)
}

// expectedStart is when a waiting job is expected to start; nil: unknown. Slurm's formats have room for a date
// only, and the earliest possible start is not one.
func expectedStart(j *api.Job) *time.Time {
	if j.AtEarliest {
		return nil
	}
	return j.Expected
}

// endOf is when the job ended, or will end at its limit.
func endOf(j *api.Job) *time.Time {
	if j.Ended != nil {
		return j.Ended
	}
	start := j.Started
	if j.State == api.StatePending {
		start = expectedStart(j)
	}
	if start == nil || limit(&j.Submission) == 0 {
		return nil
	}
	t := start.Add(limit(&j.Submission))
	return &t
}

// limit is the time limit; 0: none, which is submitted as a hundred years.
func limit(s *api.Submission) time.Duration {
	if d := time.Duration(s.Limit); d < cluster.MaxDuration {
		return d
	}
	return 0
}

func limitText(d time.Duration) string {
	if d == 0 {
		return "UNLIMITED"
	}
	return clockText(d)
}

// sizeText is an amount of memory as Slurm prints it.
func sizeText(m cluster.MiB) string {
	switch {
	case m >= 1<<20 && m%(1<<20) == 0:
		return fmt.Sprintf("%dT", m>>20)
	case m >= 1<<10 && m%(1<<10) == 0:
		return fmt.Sprintf("%dG", m>>10)
	}
	return fmt.Sprintf("%dM", m)
}

// gresText is the job's request for devices, in the form of TRES_PER_NODE.
func gresText(j *api.Job) string {
	n := gpus(j)
	switch {
	case n == 0:
		return "N/A"
	case j.Submission.Share > 0 && j.Submission.Share < 1000:
		return fmt.Sprintf("gres:mps:%d", j.Submission.Share/10)
	case j.Submission.Profile != "":
		return fmt.Sprintf("gres:gpu:%s:%d", j.Submission.Profile, n)
	}
	return fmt.Sprintf("gres:gpu:%d", n)
}

func tresText(j *api.Job) string {
	s := fmt.Sprintf("cpu=%d", cpus(j))
	if m := memory(j); m > 0 {
		s += ",mem=" + sizeText(m)
	}
	s += fmt.Sprintf(",node=1,billing=%d", cpus(j))
	if n := gpus(j); n > 0 {
		s += fmt.Sprintf(",gres/gpu=%d", n)
	}
	return s
}

// dependencyText is the condition in the form of --dependency.
func dependencyText(j *api.Job) string {
	var out []string
	for _, a := range j.Submission.After {
		t := a.Type
		if a.Job != 0 {
			t += fmt.Sprintf(":%d", a.Job)
		}
		if a.Delay > 0 {
			t += fmt.Sprintf("+%d", time.Duration(a.Delay)/time.Minute)
		}
		out = append(out, t)
	}
	if j.Submission.AnyOf {
		return orNull(strings.Join(out, "?"))
	}
	return orNull(strings.Join(out, ","))
}

func orNull(s string) string {
	if s == "" {
		return "(null)"
	}
	return s
}

// commandText is what the job runs.
func commandText(j *api.Job) string {
	s := &j.Submission
	switch {
	case len(s.Command) > 0:
		return strings.Join(s.Command, " ")
	case s.ScriptName == "" || s.ScriptName == "wrap" || s.ScriptName == "sbatch":
		return "(null)"
	}
	return strings.Join(append([]string{s.ScriptName}, s.Args...), " ")
}

// priority maps to Slurm's numbers, which are positive, with 0 for a held job.
func priority(j *api.Job) int64 {
	if j.Submission.Hold && j.State == api.StatePending {
		return 0
	}
	return max(j.Submission.Priority, 1)
}

func nice(j *api.Job) int64 { return max(-j.Submission.Priority, 0) }

// partitionText is the partition that a job waits for or runs in.
func (v *view) partitionText(j *api.Job) string {
	if p := j.Submission.Partitions; len(p) > 0 {
		return strings.Join(p, ",")
	}
	var out []string
	for _, p := range v.parts {
		if p.Default {
			out = append(out, p.Name)
		}
	}
	return orNull(strings.Join(out, ","))
}
