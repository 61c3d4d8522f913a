package ask

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/internal/plain"
	"github.com/muster-gpu/muster/perf"
)

// FieldError says which field of a submission is wrong, and what would be right.
type FieldError struct{ Field, Text string }

// Error names the field.
func (e *FieldError) Error() string { return e.Field + ": " + e.Text }

func bad(field, format string, args ...any) error {
	return &FieldError{field, fmt.Sprintf(format, args...)}
}

// Job converts the submission for the engine, without number, user, submit time and dependencies. Every error is
// a FieldError.
func (s *Submission) Job() (cluster.Job, error) {
	j := cluster.Job{Name: s.Name, Queue: s.Queue, Partitions: s.Partitions, Reservation: s.Reservation,
		Priority: s.Priority,
		Tier:     cluster.Standard, GPUTypes: s.GPUTypes, Limit: time.Duration(s.Limit),
		Estimate: time.Duration(s.Estimate),
		Hold:     s.Hold, NoRequeue: s.NoRequeue, Model: s.Model, AnyOf: s.AnyOf,
		Checkpoint: cluster.Checkpoint{Interval: time.Duration(s.CheckpointInterval),
			Cost:    time.Duration(s.CheckpointCost),
			Restart: time.Duration(s.RestartCost), None: s.NoCheckpoint},
		Topology: cluster.Topology{Required: s.Required}, Service: s.Lender()}
	j.Replace, j.Replaces = s.place()
	if err := s.names(&j); err != nil {
		return j, err
	}
	if err := s.program(); err != nil {
		return j, err
	}
	if err := s.tasks(&j); err != nil {
		return j, err
	}
	if s.Converge != "" {
		if _, err := perf.ParseConvergence(s.Converge); err != nil {
			return j, bad("converge", "%v", err)
		}
	}
	if err := s.traffic(&j); err != nil {
		return j, err
	}
	for _, t := range []struct {
		field string
		at    *time.Time
		to    *cluster.Time
	}{{"begin", s.Begin, &j.Begin}, {"deadline", s.Deadline, &j.Deadline}} {
		if t.at != nil {
			if y := t.at.Year(); y < 1970 || y > 2200 {
				return j, bad(t.field, "%s lies out of range", t.at.Format(time.RFC3339))
			}
			*t.to = cluster.Time(t.at.UnixNano())
		}
	}
	return j, nil
}

// CheckTexts refuses characters that must not be in texts shown to other users.
func (s *Submission) CheckTexts() error {
	if r, ok := plain.Acts(s.Name); ok {
		return bad("name", "the character %+q, at which a terminal would do something, may not be in a name", r)
	}
	if r, ok := plain.Acts(strings.NewReplacer("\n", "", "\t", "").Replace(s.Comment)); ok {
		return bad("comment", "the character %+q, at which a terminal would do something, may not be in a comment", r)
	}
	return nil
}

// names reads the fields that hold names.
func (s *Submission) names(j *cluster.Job) (err error) {
	if s.Tier != "" {
		if j.Tier, err = cluster.ParseTier(s.Tier); err != nil {
			return bad("tier", "%v", err)
		}
	}
	if s.Kind != "" {
		if j.Kind, err = cluster.ParseKind(s.Kind); err != nil {
			return bad("kind", "%v", err)
		}
	}
	if j.Isolation, err = cluster.ParseIsolation(s.Isolation); err != nil {
		return bad("isolation", "%v", err)
	}
	if !(s.MinSpeed >= 0 && s.MinSpeed <= 1) {
		return bad("min_speed", "%g is not a part of its speed, between 0 and 1", s.MinSpeed)
	}
	j.MinSpeed = int64(math.Round(s.MinSpeed * 1_000_000))
	if s.Level != "" {
		if j.Topology.Level, err = cluster.ParseLevel(s.Level); err != nil {
			return bad("level", "%v", err)
		}
	}
	return nil
}

// program checks the program to execute.
func (s *Submission) program() error {
	switch {
	case len(s.Command) == 0 && s.Script == "":
		return bad("command", "nothing to run: give a command or a script")
	case len(s.Command) > 0 && s.Script != "":
		return bad("script", "give a command or a script, not both")
	case s.Script != "" && !strings.HasPrefix(s.Script, "#!"):
		return bad("script", "the first line must name the interpreter, such as #!/bin/sh")
	case len(s.Command) > 0 && s.Command[0] == "":
		return bad("command", "the program's name is empty")
	}
	switch {
	case s.Pty && s.Stdin:
		return bad("stdin", "a job on a terminal has no other standard input")
	case (s.Pty || s.Stdin) && s.Input != "":
		return bad("input", "standard input is either a file or comes from the attached client")
	case s.Pty && s.Error != "":
		return bad("error", "a terminal has one output only")
	}
	for _, kv := range s.Env {
		if k, _, ok := strings.Cut(kv, "="); !ok || k == "" || strings.ContainsRune(kv, 0) {
			return bad("env", "%q is not NAME=VALUE", kv)
		}
	}
	for _, p := range slices.Concat(s.Command, s.Args, []string{s.Dir, s.Input, s.Output, s.Error, s.Script}) {
		if strings.ContainsRune(p, 0) {
			return bad("command", "texts must not contain NUL")
		}
	}
	if s.Signal != "" {
		if _, _, err := ParseSignal(s.Signal); err != nil {
			return bad("signal", "%v", err)
		}
	}
	if _, err := s.Mask(); err != nil {
		return bad("umask", "%q is not a mask in octal, such as 0022", s.Umask)
	}
	return nil
}

// Mask is the file mode mask; default 0022.
func (s *Submission) Mask() (int, error) {
	if s.Umask == "" {
		return 0o022, nil
	}
	m, err := strconv.ParseUint(s.Umask, 8, 9)
	return int(m), err
}

// tasks makes the gang.
func (s *Submission) tasks(j *cluster.Job) error {
	n := max(1, s.Tasks)
	for _, f := range []struct {
		field    string
		v, limit int64
	}{{"tasks", int64(s.Tasks), cluster.MaxTasks}, {"gpus", int64(s.GPUs), cluster.MaxGPUsPerNode},
		{"share", s.Share, cluster.Whole},
		{"gpu_memory", s.Memory, cluster.MaxMiB}, {"gpu_memory_resident", s.Resident, cluster.MaxMiB},
		{"cpu", s.CPU, cluster.MaxMilli}, {"ram", s.RAM, cluster.MaxMiB},
		{"min_tasks", int64(s.MinTasks), cluster.MaxTasks}, {"max_tasks", int64(s.MaxTasks), cluster.MaxTasks}} {
		if f.v < 0 || f.v > f.limit {
			return bad(f.field, "%d is out of range: between 0 and %d", f.v, f.limit)
		}
	}
	if s.Resident > s.Memory {
		return bad("gpu_memory_resident", "%d MiB of %d: it is a part of gpu_memory", s.Resident, s.Memory)
	}
	r := cluster.Request{GPUs: s.GPUs, Share: s.Share, Memory: s.Memory, Resident: s.Resident, Profile: s.Profile,
		CPU: s.CPU, RAM: s.RAM}
	if r.Profile != "" && r.GPUs == 0 {
		r.GPUs = 1
	}
	if s.Once && n > 1 { // one process has all GPUs, so they must be on one node
		if r.Fractional() || r.Profile != "" {
			return bad("tasks", "a script over %d tasks cannot share GPUs or hold slices; ask for them per task", n)
		}
		if n*r.GPUs > cluster.MaxGPUsPerNode {
			return bad("gpus", "%d GPUs in one process: at most %d are on one node", n*r.GPUs, cluster.MaxGPUsPerNode)
		}
		r.GPUs, r.CPU, r.RAM, n = n*r.GPUs, int64(n)*r.CPU, int64(n)*r.RAM, 1
	}
	if s.MinTasks > 0 || s.MaxTasks > 0 {
		if s.Once {
			return bad("min_tasks", "a script that is run once is not elastic")
		}
		j.Elastic = cluster.Elastic{Min: max(1, s.MinTasks), Max: max(s.MaxTasks, n, s.MinTasks)}
		n = j.Elastic.Max
	}
	j.Tasks = []cluster.TaskSet{{Count: n, Request: r}}
	return nil
}

// Corresponds reports whether each element of an array waits for its own counterparts.
func (s *Submission) Corresponds() bool {
	return slices.ContainsFunc(s.After, func(a After) bool { return a.Type == "aftercorr" })
}
