//go:build linux

package main

import (
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"strconv"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/muster-gpu/muster/api"
	"github.com/muster-gpu/muster/client"
	"github.com/muster-gpu/muster/local/shim"
)

func newExec() *cobra.Command {
	var task int
	c := &cobra.Command{
		Use:   "exec JOB [--] COMMAND [ARG...]",
		Short: "Run a command inside a running job: its GPUs, limits, environment and user",
		Long: "Runs a command inside a running job, beside what the job runs: on its GPUs, within its limits, with its\n" +
			"environment, in its folder, as its user. The command ends when the job does. It runs on this terminal, so\n" +
			"the service has to be this machine's own.",
		Example: "  muster exec 12 nvidia-smi\n  muster exec train -- bash",
		Args:    cobra.MinimumNArgs(2), ValidArgsFunction: completeJobs(api.StateRunning),
		RunE: func(c *cobra.Command, args []string) error {
			if kubeCluster.given() {
				return usage(errors.New("on a cluster it is kubectl exec"))
			}
			cl := client.Connect()
			id, err := cl.FindJob(c.Context(), args[0])
			if err != nil {
				return err
			}
			argv := args[1:]
			if argv[0] == "--" { // behind the job it is no flag's end any more
				argv = argv[1:]
			}
			if len(argv) == 0 {
				return usage(errors.New("exec: which command? (see muster exec --help)"))
			}
			client.OnTerminal(false) // what comes now is data
			var in api.Joined
			q := url.Values{"task": {strconv.Itoa(task)}}
			if err := cl.Do(c.Context(), http.MethodPost, "/v1/jobs/"+strconv.Itoa(id)+"/join?"+q.Encode(), nil,
				&in); err != nil {
				return err
			}
			return become(&in, argv)
		},
	}
	c.Flags().SetInterspersed(false)
	c.Flags().IntVar(&task, "task", 0, "in this task of a gang")
	return c
}

// become makes this process the command, with what the job that it has joined has. It returns only if that fails.
func become(in *api.Joined, argv []string) error {
	if os.Getuid() == 0 && in.UID != 0 {
		if err := errors.Join(syscall.Setgroups(in.Groups), syscall.Setresgid(in.GID, in.GID, in.GID),
			syscall.Setresuid(in.UID, in.UID, in.UID)); err != nil {
			return err
		}
	}
	if err := os.Chdir(in.Dir); err != nil {
		return fmt.Errorf("the job's folder: %w", err)
	}
	path, err := shim.LookPath(argv[0], in.Env, in.Dir)
	if err != nil {
		fmt.Fprintln(os.Stderr, "muster:", err)
		return exitCode(127)
	}
	err = syscall.Exec(path, argv, in.Env)
	fmt.Fprintf(os.Stderr, "muster: %s: %v\n", path, err)
	return exitCode(126)
}
