package slurm

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/muster-gpu/muster/api"
)

const sbatchUsage = "sbatch [OPTIONS] SCRIPT [ARGS]   or   sbatch [OPTIONS] --wrap=COMMAND"

// batch is a parsed submission: what Submit gets, and what sbatch does in addition.
type batch struct {
	sub      api.Submission
	warnings []string
	set      settings
	res      resources
	on       machine
}

func (c *command) sbatch() (int, error) {
	opts, rest, err := parseArgs(c.args, batchOptions, true)
	if err != nil {
		return 1, err
	}
	for _, o := range opts {
		switch o.opt.name {
		case "help", "usage":
			c.help(sbatchUsage, batchOptions)
			return 0, nil
		case "version":
			c.printf("%s\n", version)
			return 0, nil
		}
	}
	b, err := c.readBatch(opts, rest)
	if b.set.has("quiet") {
		b.warnings = nil
	}
	c.warn(b.warnings)
	if err != nil {
		return 1, err
	}
	if b.set.has("test-only") {
		j, err := c.svc.Test(b.sub)
		if err != nil {
			if known := b.on.refusal(&b.sub, &b.res); known != nil {
				return 1, known
			}
			return 1, fmt.Errorf("allocation failure: %w", err)
		}
		c.errorf("sbatch: %s\n", testText(j))
		return 0, nil
	}
	id, err := c.svc.SubmitBatch(b.sub)
	if err != nil {
		if known := b.on.refusal(&b.sub, &b.res); known != nil {
			return 1, known
		}
		return 1, says("Batch job submission failed: %w", err)
	}
	switch {
	case b.set.has("parsable"):
		c.printf("%d\n", id)
	case !b.set.has("quiet"):
		c.printf("Submitted batch job %d\n", id)
	}
	if b.set.has("wait") {
		return c.waitFor(id, b.sub.Array != "")
	}
	return 0, nil
}

func testText(j api.Job) string {
	parts := "the default"
	if p := j.Submission.Partitions; len(p) > 0 {
		parts = strings.Join(p, ",")
	}
	node := j.Node
	if node == "" {
		node = "the machine"
	}
	at := "at"
	if j.AtEarliest {
		at = "at the earliest at"
	}
	return fmt.Sprintf("Job %d to start %s %s using %d processors on nodes %s in partition %s", j.ID, at,
		stamp(j.Expected, "an unknown time"), cpus(&j), node, parts)
}

// waitFor waits for a job, or all elements of its array, and returns the
// highest exit status among them, as sbatch --wait does.
func (c *command) waitFor(job int, array bool) (int, error) {
	ids := []int{job}
	if array {
		all, err := c.recent()
		if err != nil {
			return 1, err
		}
		ids = nil
		for _, e := range all {
			if e.Array == job {
				ids = append(ids, e.ID)
			}
		}
	}
	code := 0
	for _, id := range ids {
		end, err := c.svc.Wait(id)
		if err != nil {
			return 1, err
		}
		code = max(code, exitStatus(&end))
	}
	return code, nil
}

// exitStatus is the status that a shell would report for the job.
func exitStatus(j *api.Job) int {
	switch {
	case j.ExitSignal != 0:
		return 128 + j.ExitSignal
	case j.ExitCode == 0 && j.State != api.StateCompleted:
		return 1 // cancelled, lost, timed out: not a success
	}
	return j.ExitCode
}

// readBatch reads script, environment and command line into a submission.
func (c *command) readBatch(line []found, rest []string) (batch, error) {
	var b batch
	var top settings // the command line alone, for --wrap
	if err := top.apply(line, fromLine, ""); err != nil {
		return b, err
	}
	name, text, args, err := c.script(&top, rest)
	if err != nil {
		return b, err
	}
	if err = b.set.layers(name, text, c.env, line); err != nil {
		b.warnings = b.set.warnings
		return b, err
	}
	if b.on, err = c.machine(); err != nil {
		return b, err
	}
	b.sub, b.res, err = b.set.submission(b.on)
	b.warnings = b.set.warnings
	if err != nil {
		return b, err
	}
	b.sub.Script, b.sub.ScriptName, b.sub.Args, b.sub.Umask = text, name, args, umask()
	if b.sub.Name == "" {
		b.sub.Name = filepath.Base(name)
	}
	if b.sub.Output == "" {
		if b.sub.Output = "slurm-%j.out"; b.sub.Array != "" {
			b.sub.Output = "slurm-%A_%a.out"
		}
	}
	b.sub.Env = append(b.sub.Env, "SLURM_JOB_NAME="+b.sub.Name)
	return b, nil
}

// layers applies Slurm's precedence: script, then environment, then command line. #MUSTER lines come after
// #SBATCH lines, so that one script can say something different to each scheduler.
func (s *settings) layers(name, text string, env []string, line []found) error {
	d, err := parseDirectives(name, text)
	if err != nil {
		return err
	}
	for _, part := range []struct {
		words []string
		where string
	}{{d.sbatch, name + ": #SBATCH "}, {d.muster, name + ": #MUSTER "}} {
		opts, rest, err := parseArgs(part.words, batchOptions, true)
		if err != nil {
			return fmt.Errorf("%s%w", part.where, err)
		}
		if len(rest) > 0 {
			return fmt.Errorf("%sInvalid argument: %s", part.where, rest[0])
		}
		if err = s.apply(opts, fromScript, part.where); err != nil {
			return err
		}
	}
	if err = s.applyEnv(env, batchOptions); err != nil {
		return err
	}
	return s.apply(line, fromLine, "")
}

// script finds the text to run: --wrap, a file, or standard input.
func (c *command) script(top *settings, rest []string) (name, text string, args []string, err error) {
	if top.has("wrap") {
		if len(rest) > 0 {
			return "", "", nil, says("Script arguments not permitted with --wrap option")
		}
		return "wrap", "#!/bin/sh\n# This script was created by sbatch --wrap.\n\n" + top.get("wrap") + "\n", nil, nil
	}
	var body []byte
	if len(rest) == 0 {
		name = "sbatch"
		body, err = io.ReadAll(io.LimitReader(c.in, maxScript+1))
	} else {
		name, args = rest[0], rest[1:]
		if body, name, err = c.readScript(name); err != nil {
			return "", "", nil, says("Unable to open file %s", rest[0])
		}
	}
	if err == nil {
		err = checkScript(body)
	}
	return name, string(body), args, err
}

// readScript searches for a script in the working directory and, if its name has no slash, along PATH.
func (c *command) readScript(name string) ([]byte, string, error) {
	body, err := os.ReadFile(name)
	if err == nil || strings.Contains(name, "/") {
		return body, name, err
	}
	path, _ := lookupEnv(c.env, "PATH")
	for _, dir := range filepath.SplitList(path) {
		if body, err2 := os.ReadFile(filepath.Join(dir, name)); err2 == nil {
			return body, filepath.Join(dir, name), nil
		}
	}
	return nil, name, err
}

// ReadScript reads a batch script with its #SBATCH and #MUSTER lines as sbatch does, for a command with options
// of its own: args are the file and the script's arguments. It returns the submission and warnings.
func ReadScript(args, env []string, svc Service) (api.Submission, []string, error) {
	c := &command{name: "sbatch", env: env, in: strings.NewReader(""), out: io.Discard, errOut: io.Discard, svc: svc}
	b, err := c.readBatch(nil, args)
	if err == nil {
		err = b.on.refusal(&b.sub, &b.res)
	}
	if !b.set.has("output") {
		b.sub.Output = "" // Muster's own default applies
	}
	return b.sub, b.warnings, err
}
