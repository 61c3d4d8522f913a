package slurm

import (
	"cmp"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"

	"golang.org/x/term"

	"github.com/muster-gpu/muster/api"
)

const sallocUsage = "salloc [OPTIONS] [COMMAND [ARGS]]"

// sallocOptions are sbatch's options that make sense for a command at a terminal, and salloc's own.
var sallocOptions = sync.OnceValue(func() []option {
	var out []option
	for _, o := range batchOptions {
		switch o.name {
		case "array", "wrap", "parsable", "wait", "test-only", "ignore-pbs", "export", "export-file", "input", "output",
			"error", "open-mode", "requeue", "no-requeue":
			continue
		}
		if rest, ok := strings.CutPrefix(o.env, "SBATCH_"); ok {
			o.env = "SALLOC_" + rest
		}
		out = append(out, o)
	}
	return append(out,
		option{name: "bell", use: warned, note: "no bell is rung"},
		option{name: "immediate", short: 'I', arg: optional, use: refused,
			note: "sbatch --test-only says when a job would start"},
		option{name: "kill-command", short: 'K', arg: optional, use: warned,
			note: "what runs in an allocation ends with it"},
		option{name: "no-bell"},
		option{name: "no-shell"},
		option{name: "x11", arg: optional, use: refused, note: "ssh -X to this machine, and start salloc there"})
})

// salloc waits for resources and runs a command with them, by default a shell: inside the job, on this terminal.
// The allocation ends with the command.
func (c *command) salloc() (int, error) {
	opts, rest, err := parseArgs(c.args, sallocOptions(), true)
	if err != nil {
		return 1, err
	}
	var s settings
	if err = s.applyEnv(c.env, sallocOptions()); err == nil {
		err = s.apply(opts, fromLine, "")
	}
	switch {
	case err != nil:
		return 1, err
	case s.has("help") || s.has("usage"):
		c.help(sallocUsage, sallocOptions())
		return 0, nil
	case s.has("version"):
		c.printf("%s\n", version)
		return 0, nil
	}
	sub, err := c.allocation(&s, rest)
	if err != nil {
		return 1, err
	}
	say := func(format string, args ...any) {
		if !s.has("quiet") {
			c.errorf("salloc: "+format+"\n", args...)
		}
	}
	if !s.has("quiet") {
		c.warn(s.warnings)
	}
	j, err := c.svc.Submit(sub)
	if err != nil {
		return 1, says("Job submit/allocate failed: %w", err)
	}
	return c.granted(j, s.has("no-shell"), say)
}

// allocation is the job that holds the resources and runs the command.
func (c *command) allocation(s *settings, rest []string) (api.Submission, error) {
	m, err := c.machine()
	if err != nil {
		return api.Submission{}, err
	}
	sub, _, err := s.checked(m)
	if err != nil {
		return sub, err
	}
	sub.NoRequeue, sub.Umask, sub.Kind = true, umask(), cmp.Or(sub.Kind, "interactive")
	if s.has("no-shell") {
		if len(rest) > 0 {
			return sub, fmt.Errorf("--no-shell and a command exclude each other: without a shell nothing is run")
		}
		sub.Command, sub.Output, sub.Name = []string{"sleep", "infinity"}, os.DevNull, cmp.Or(sub.Name, "no-shell")
		return sub, nil
	}
	sub.Attached, sub.Command = true, rest
	if len(rest) == 0 {
		shell, _ := lookupEnv(c.env, "SHELL")
		sub.Command, sub.Name = []string{cmp.Or(shell, "/bin/sh")}, cmp.Or(sub.Name, "interactive")
	}
	sub.Name = cmp.Or(sub.Name, filepath.Base(sub.Command[0]))
	if sub.Pty = isTerminal(c.in) && isTerminal(c.out); !sub.Pty {
		sub.Stdin = piped(c.in)
	}
	return sub, nil
}

func isTerminal(stream any) bool {
	f, ok := stream.(*os.File)
	return ok && term.IsTerminal(int(f.Fd()))
}

// granted waits for the allocation and attaches to its command.
func (c *command) granted(j api.Job, noShell bool, say func(string, ...any)) (int, error) {
	if j.State == api.StatePending {
		say("Pending job allocation %d", j.ID)
		say("job %d queued and waiting for resources", j.ID)
	}
	id := j.ID
	j, err := c.svc.Started(id)
	switch {
	case err != nil: // the caller has left or cannot be answered: the allocation would be unused
		if again := c.svc.Cancel(id); again != nil {
			c.errorf("salloc: error: job %d may continue: %v\n", id, again)
		}
		why, _, _ := strings.Cut(err.Error(), "\n")
		return 1, says("Job allocation %d has been revoked: %s", id, why)
	case j.Started == nil:
		return 1, says("Job allocation %d has been revoked: %s", j.ID, cmp.Or(j.Reason, stateOf(&j).name))
	}
	say("Granted job allocation %d", j.ID)
	if noShell {
		say("muster exec %d COMMAND runs something in it, scancel %d gives it back", j.ID, j.ID)
		return 0, nil
	}
	end, err := c.svc.Attach(j.ID, c.in, c.out, c.errOut)
	if err != nil {
		return 1, err
	}
	if end.Ended == nil {
		return 0, nil // the terminal was detached, and the way back printed
	}
	if st := stateOf(&end); st.name != "FAILED" && st.name != "COMPLETED" {
		c.errorf("salloc: error: Job allocation %d has been revoked: %s\n", end.ID, st.name)
	}
	say("Relinquishing job allocation %d", end.ID)
	return exitStatus(&end), nil
}
