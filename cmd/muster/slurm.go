package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"os/user"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/muster-gpu/muster/api"
	"github.com/muster-gpu/muster/client"
	"github.com/muster-gpu/muster/slurm"
)

// newSlurm are Slurm's commands on Muster.
func newSlurm() *cobra.Command {
	c := &cobra.Command{
		Use:   "slurm",
		Short: "Slurm's commands: sbatch, srun, squeue, scancel, sinfo, scontrol, sacct",
		Long: "muster slurm install DIR puts links into a folder of your PATH, so that Slurm's scripts and habits work.\n" +
			"What works, what differs and what is refused is in docs/slurm.md.",
	}
	c.AddCommand(newSlurmInstall())
	for _, name := range slurm.Commands {
		c.AddCommand(&cobra.Command{
			Use: name + " [options]", Short: "As Slurm's " + name, DisableFlagParsing: true,
			RunE: func(c *cobra.Command, args []string) error {
				if code := runSlurm(c.Context(), name, args); code != 0 {
					return exitCode(code)
				}
				return nil
			},
		})
	}
	return c
}

func newSlurmInstall() *cobra.Command {
	var force bool
	c := &cobra.Command{
		Use: "install DIR", Short: "Link Slurm's commands to this program in a folder", Args: cobra.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			exe, err := os.Executable()
			if err != nil {
				return err
			}
			if err := os.MkdirAll(args[0], 0o755); err != nil {
				return err
			}
			for _, name := range slurm.Commands {
				if err := linkTo(exe, filepath.Join(args[0], name), force); err != nil {
					return err
				}
			}
			dir, err := filepath.Abs(args[0])
			if err != nil {
				return err
			}
			fmt.Fprintf(c.OutOrStdout(), "%s now has %s\n", dir, strings.Join(slurm.Commands, ", "))
			if !slices.Contains(filepath.SplitList(os.Getenv("PATH")), dir) {
				fmt.Fprintf(c.OutOrStdout(), "put it into your PATH:  export PATH=%s:$PATH\n", dir)
			}
			return nil
		},
	}
	c.Flags().BoolVar(&force, "force", false, "replace what is there already")
	return c
}

// linkTo makes a link, unless something else has the name.
func linkTo(exe, path string, force bool) error {
	have, err := os.Readlink(path)
	switch {
	case err == nil && have == exe:
		return nil
	case errors.Is(err, os.ErrNotExist):
	case force:
		if err := os.Remove(path); err != nil {
			return err
		}
	default:
		return fmt.Errorf("%s exists and is not a link to this program (a real Slurm?): choose another folder, or --force", path)
	}
	return os.Symlink(exe, path)
}

// slurmName is the Slurm command that this process was called as; "": none.
func slurmName() string {
	if name := filepath.Base(os.Args[0]); slices.Contains(slurm.Commands, name) {
		return name
	}
	return ""
}

// runSlurm runs one of Slurm's commands.
func runSlurm(ctx context.Context, name string, args []string) int {
	return slurm.Main(name, args, os.Environ(), os.Stdin, os.Stdout, os.Stderr, &slurmService{ctx: ctx, c: client.Connect()})
}

// slurmService answers Slurm's commands through the daemon.
type slurmService struct {
	ctx context.Context
	c   *client.Client
}

// noJob translates the answer for a job that is not there.
func noJob(err error) error {
	var e *client.Error
	if errors.As(err, &e) && e.Status == http.StatusNotFound {
		return slurm.ErrNoJob
	}
	return err
}

func (s *slurmService) Now() time.Time { return wallTime() }

func (s *slurmService) User() string {
	u, err := user.Current()
	if err != nil {
		return os.Getenv("USER")
	}
	return u.Username
}

func (s *slurmService) Submit(sub api.Submission) (api.Job, error) {
	out, err := s.c.Submit(s.ctx, &sub, "")
	return out.Job, err
}

func (s *slurmService) Test(sub api.Submission) (api.Job, error) {
	out, err := s.c.Test(s.ctx, &sub)
	return out.Job, err
}

func (s *slurmService) Jobs() ([]api.Job, error) {
	list, err := s.c.List(s.ctx, url.Values{"state": {"active"}})
	slices.Reverse(list)
	return list, err
}

func (s *slurmService) Job(id int) (api.Job, error) {
	j, err := s.c.Job(s.ctx, id)
	return j, noJob(err)
}

func (s *slurmService) History(since, until time.Time) ([]api.Job, error) {
	list, err := s.c.List(s.ctx, url.Values{"since": {since.UTC().Format(time.RFC3339)}})
	list = slices.DeleteFunc(list, func(j api.Job) bool { return j.Submitted.After(until) })
	slices.Reverse(list)
	return list, err
}

func (s *slurmService) Wait(id int) (api.Job, error) {
	j, err := s.c.Wait(s.ctx, id)
	return j, noJob(err)
}

func (s *slurmService) Attach(id int, _ io.Reader, stdout, stderr io.Writer) (api.Job, error) {
	alive := context.WithoutCancel(s.ctx)
	stop := context.AfterFunc(s.ctx, func() { _, _ = s.c.Act(alive, id, "cancel") })
	defer stop()
	errs := make(chan error, 2)
	go func() { errs <- s.c.Log(alive, id, 0, "out", true, stdout) }()
	go func() { errs <- s.c.Log(alive, id, 0, "err", true, stderr) }()
	err := errors.Join(<-errs, <-errs)
	j, waitErr := s.c.Wait(alive, id)
	return j, errors.Join(err, waitErr)
}

func (s *slurmService) Step() []string {
	exe, err := os.Executable()
	if err != nil {
		exe = "muster"
	}
	return []string{exe, "slurm", "srun"}
}

func (s *slurmService) act(id int, verb string) error {
	_, err := s.c.Act(s.ctx, id, verb)
	return noJob(err)
}

func (s *slurmService) Cancel(id int) error  { return s.act(id, "cancel") }
func (s *slurmService) Hold(id int) error    { return s.act(id, "hold") }
func (s *slurmService) Release(id int) error { return s.act(id, "release") }
func (s *slurmService) Requeue(id int) error { return s.act(id, "requeue") }
func (s *slurmService) Suspend(id int) error { return s.act(id, "suspend") }
func (s *slurmService) Resume(id int) error  { return s.act(id, "resume") }

func (s *slurmService) Signal(id int, signal string, to slurm.Receivers) error {
	return noJob(s.c.Signal(s.ctx, id, api.SignalRequest{Signal: signal, Shell: to == slurm.Shell}))
}

func (s *slurmService) Update(id int, u slurm.Update) error {
	return noJob(s.c.Do(s.ctx, http.MethodPatch, "/v1/jobs/"+strconv.Itoa(id), &api.Update{Name: u.Name, Queue: u.Queue, Partitions: u.Partitions,
		Reservation: u.Reservation, Tier: u.Tier, Priority: u.Priority, Limit: (*api.Duration)(u.Limit), Begin: u.Begin, Deadline: u.Deadline,
		After: u.After, Cap: u.Cap, NoRequeue: u.NoRequeue, Comment: u.Comment}, nil))
}

func (s *slurmService) Nodes() ([]api.Node, error) { return s.c.Nodes(s.ctx) }

func (s *slurmService) SetNode(name, state, reason string) error {
	verb, ok := map[string]string{"up": "resume", "draining": "drain", "drain": "drain"}[state]
	if !ok {
		return fmt.Errorf("this machine cannot be set %s; it can be drained and resumed", state)
	}
	return s.c.Do(s.ctx, http.MethodPost, "/v1/nodes/"+url.PathEscape(name)+"/"+verb, &api.Drain{Reason: reason}, nil)
}

func (s *slurmService) Partitions() ([]slurm.Partition, error) {
	list, err := s.c.Partitions(s.ctx)
	var out []slurm.Partition
	for _, p := range list {
		out = append(out, slurm.Partition{Name: p.Name, Default: p.Default, Nodes: p.Nodes, MaxTime: time.Duration(p.MaxTime),
			DefaultTime: time.Duration(p.DefaultTime), PriorityTier: int(p.PriorityTier)})
	}
	return out, err
}
