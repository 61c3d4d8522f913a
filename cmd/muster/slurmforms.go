package main

import (
	"fmt"
	"regexp"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/muster-gpu/muster/api"
	"github.com/muster-gpu/muster/slurm"
)

// clockTime is a time as Slurm writes it, except for plain minutes: 1-02, 1-02:00, 2:30:00, 90:00.
var clockTime = regexp.MustCompile(`^[0-9]+(-[0-9]*(:[0-9]+){0,2}|(:[0-9]+){1,2})$`)

var digits = regexp.MustCompile(`^[0-9]+$`)

// parseSpan reads a span of time in Muster's form (2h30m) or in Slurm's (1-02:00). A plain number is
// refused: Slurm takes it for minutes, other programs for seconds.
func parseSpan(text string) (d api.Duration, err error) {
	switch {
	case clockTime.MatchString(text):
		var span time.Duration
		span, err = slurm.ParseTime(text)
		return api.Duration(span), err
	case digits.MatchString(text) && strings.Trim(text, "0") != "":
		return 0, fmt.Errorf("%q has no unit: write %sm for minutes, as Slurm would take it, or %ss for seconds", text,
			text, text)
	}
	err = d.UnmarshalText([]byte(text))
	return d, err
}

// typedGPUs is a number of GPUs of a model, as Slurm writes it: a100:2.
var typedGPUs = regexp.MustCompile(`^(?:gpu:)?([A-Za-z][A-Za-z0-9._-]*):([0-9]+)$`)

// slurmFlags says for flags of sbatch and srun what they are here.
var slurmFlags = map[string]string{
	"gres": "--gpus 2 (or a100:2) asks for the GPUs of each task", "gpus-per-node": "--gpus is of each task",
	"gpus-per-task": "--gpus is of each task",
	"nodes":         "--tasks N asks for N tasks, which go where they fit", "ntasks": "--tasks N",
	"ntasks-per-node": "--tasks N",
	"cpus-per-task":   "--cpus N", "cpus-per-gpu": "--cpus is of each task", "mem-per-cpu": "--mem is of each task",
	"mem-per-gpu": "--mem is of each task",
	"job-name":    "--name", "account": "--queue: teams have their GPUs by queue",
	"constraint": "--gpu-type names acceptable GPU models",
	"time-min":   "--time", "begin": "in a file: begin: 2026-12-24T12:00:00Z, or sbatch --begin", "wrap": "-- COMMAND",
	"chdir":  "--chdir",
	"export": "-e NAME=VALUE; the environment is taken along", "requeue": "it is the default; --no-requeue",
	"mail-type": "muster wait says when a job is over",
	"exclusive": "GPUs are never shared by jobs that ask for whole ones", "licenses": "there are no licenses here",
}

// slurmHint says what a flag of Slurm's is called here; "": it is none.
func slurmHint(c *cobra.Command, flag string) string {
	if c.Name() != "run" && c.Name() != "submit" || slurmFlags[flag] == "" {
		return ""
	}
	return fmt.Sprintf("it is Slurm's; here: %s. muster slurm has sbatch and srun, which take it", slurmFlags[flag])
}
