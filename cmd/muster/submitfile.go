package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"
	"gopkg.in/yaml.v3"

	"github.com/muster-gpu/muster/api"
	"github.com/muster-gpu/muster/client"
	"github.com/muster-gpu/muster/config"
	"github.com/muster-gpu/muster/slurm"
	"github.com/muster-gpu/muster/slurm/remote"
)

// fromFile reads what a file asks for: a YAML or JSON file with the fields of a
// submission, or a script with #SBATCH and #MUSTER lines.
func fromFile(ctx context.Context, c *cobra.Command, args []string) (*api.Submission, error) {
	if _, err := os.Stat(args[0]); err != nil {
		return nil, fmt.Errorf("%w (a command is given after --)", err)
	}
	switch ext := filepath.Ext(args[0]); ext {
	case ".yaml", ".yml", ".json":
		if len(args) > 1 {
			return nil, fmt.Errorf("%s is a description of a job and takes no arguments", args[0])
		}
		return readSubmission(args[0])
	}
	s, warnings, err := slurm.ReadScript(args, os.Environ(), remote.New(ctx, client.Connect(), srunAgain(), wallTime))
	for _, w := range warnings {
		fmt.Fprintf(c.ErrOrStderr(), "muster: %s: warning: %s\n", args[0], w)
	}
	return &s, err
}

// readSubmission reads the fields of a submission. Unknown keys are errors that
// name the line and the nearest one.
func readSubmission(path string) (*api.Submission, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	var doc yaml.Node // JSON is YAML, too
	if err := yaml.Unmarshal(text, &doc); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	if len(doc.Content) != 1 || doc.Content[0].Kind != yaml.MappingNode {
		return nil, fmt.Errorf("%s: a job is described by fields such as command: [python, train.py]", path)
	}
	s := &api.Submission{}
	return s, config.Submission(path, doc.Content[0], s)
}

// overlay puts what was given on the command line over what the file says.
func overlay(c *cobra.Command, file, line *api.Submission) {
	for flag, set := range overlays(file, line) {
		if c.Flags().Changed(flag) {
			set() // each sets fields of its own: their order does not matter
		}
	}
	if file.Dir == "" {
		file.Dir = line.Dir
	}
	if file.Umask == "" {
		file.Umask = line.Umask
	}
}

// overlays is what each flag of a job puts into a submission that a file describes.
func overlays(file, line *api.Submission) map[string]func() {
	return map[string]func(){
		"name": func() { file.Name = line.Name }, "queue": func() { file.Queue = line.Queue },
		"tier": func() { file.Tier = line.Tier },
		"kind": func() { file.Kind = line.Kind }, "priority": func() { file.Priority = line.Priority },
		"model": func() { file.Model = line.Model }, "converge": func() { file.Converge = line.Converge },
		"gpus": func() {
			file.GPUs, file.Share, file.Profile = line.GPUs, line.Share, line.Profile
			if len(line.GPUTypes) > 0 { // a100:2
				file.GPUTypes = line.GPUTypes
			}
		},
		"gpu-cores": func() { // of as many GPUs as the file says, or --gpus
			file.Share, file.Profile = line.Share, line.Profile
			if file.GPUs == 0 {
				file.GPUs = line.GPUs
			}
		},
		"gpu-mem": func() { file.Memory = line.Memory }, "gpu-mem-resident": func() { file.Resident = line.Resident },
		"isolation": func() { file.Isolation = line.Isolation },
		"latency-sensitive": func() {
			file.Prompt = line.Prompt
		}, "min-speed": func() { file.MinSpeed = line.MinSpeed },
		"tasks": func() { file.Tasks = line.Tasks }, "cpus": func() { file.CPU = line.CPU },
		"mem":      func() { file.RAM = line.RAM },
		"gpu-type": func() { file.GPUTypes = line.GPUTypes }, "partition": func() { file.Partitions = line.Partitions },
		"qos": func() { file.Tier = line.Tier }, "deadline": func() { file.Deadline = line.Deadline },
		"pty":  func() { file.Pty = line.Pty },
		"time": func() { file.Limit = line.Limit },
		"estimate": func() {
			file.Estimate = line.Estimate
		}, "chdir": func() { file.Dir = line.Dir }, "signal": func() { file.Signal = line.Signal },
		"no-requeue": func() { file.NoRequeue = line.NoRequeue }, "hold": func() { file.Hold = line.Hold },
		"dependency": func() {
			file.After, file.AnyOf = line.After, line.AnyOf
		}, "array": func() { file.Array = line.Array },
		"output": func() { file.Output = line.Output }, "error": func() { file.Error = line.Error },
		"checkpoint-of": func() { file.CheckpointOf = line.CheckpointOf },
		"min-tasks": func() {
			file.MinTasks = line.MinTasks
		}, "max-tasks": func() { file.MaxTasks = line.MaxTasks },
		"traffic": func() {
			if was := file.Traffic; was != nil && len(line.Traffic.Hosts) == 0 {
				line.Traffic.Hosts = was.Hosts
			}
			file.Traffic = line.Traffic
		},
		"traffic-hosts": func() {}, // they are in what --traffic says, without which they are refused
	}
}
