//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/muster-gpu/muster/api"
	"github.com/muster-gpu/muster/client"
	"github.com/muster-gpu/muster/client/terminal"
)

func newAttach() *cobra.Command {
	var watch bool
	c := &cobra.Command{
		Use: "attach JOB", Short: "Use the terminal of a job that was submitted with --pty", Args: cobra.ExactArgs(1),
		Long: "Ties this terminal to that of the job's first task, until the job is over or Ctrl-\\ is pressed; the job goes\n" +
			"on then. Several may be attached at once: all see the same, all may type, and the window is as large as\n" +
			"that of the last one who changed theirs. The exit code is the job's.",
		RunE: func(c *cobra.Command, args []string) error {
			cl := client.Connect()
			id, err := cl.FindJob(c.Context(), args[0])
			if err != nil {
				return err
			}
			err = terminal.Use(c.Context(), cl, id, os.Stdin, c.OutOrStdout(), c.ErrOrStderr(), watch)
			if errors.Is(err, terminal.ErrDetached) {
				return nil
			}
			if err != nil {
				return err
			}
			j, err := cl.WaitOn(c.Context(), id)
			if err != nil {
				return err
			}
			fmt.Fprintf(c.ErrOrStderr(), "muster: job %d: %s\n", j.ID, j.State)
			return endLike(c.ErrOrStderr(), &j)
		},
	}
	c.Flags().BoolVar(&watch, "read-only", false,
		"look on: nothing that is typed reaches the job, except Ctrl-\\ to leave")
	return c
}

// runAttached submits, shows the output, and ends as the job does.
func runAttached(ctx context.Context, c *cobra.Command, s *api.Submission) error {
	piped := false
	if s.Pty {
		if !term.IsTerminal(int(os.Stdin.Fd())) {
			return usage(errors.New("--pty: standard input is not a terminal; leave it out, or use muster submit --pty and muster attach"))
		}
	} else if fi, err := os.Stdin.Stat(); err == nil && fi.Mode()&os.ModeCharDevice == 0 {
		piped, s.Stdin = true, true
	}
	cl := client.Connect()
	out, err := cl.Submit(ctx, s, "")
	if err != nil {
		return err
	}
	id := out.Job.ID
	if ctx.Err() != nil { // Ctrl-C came before the answer
		if _, err := cl.Act(context.WithoutCancel(ctx), id, "cancel"); err != nil {
			return fmt.Errorf("job %d may go on running: %w", id, err)
		}
		return fmt.Errorf("%w: job %d is cancelled", errInterrupted, id)
	}
	if out.Job.State == api.StatePending {
		if err := printAccepted(c.ErrOrStderr(), &out); err != nil {
			return err
		}
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	eol := "\n"
	if s.Pty {
		eol = "\r\n" // the terminal is raw
	}
	go printIdle(ctx, cl, id, c.ErrOrStderr(), eol)
	if s.Pty {
		if err := terminal.Use(ctx, cl, id, os.Stdin, c.OutOrStdout(), c.ErrOrStderr(), false); errors.Is(err,
			terminal.ErrDetached) {
			return nil
		} else if err != nil {
			return err
		}
		j, err := cl.WaitOn(ctx, id)
		if err != nil {
			return err
		}
		return endLike(c.ErrOrStderr(), &j)
	}
	stop := forwardSignals(ctx, c.ErrOrStderr(), cl, id)
	defer stop()
	if piped {
		go func() {
			if err := cl.Feed(ctx, id, os.Stdin); err != nil && ctx.Err() == nil {
				fmt.Fprintf(c.ErrOrStderr(), "muster: standard input of job %d: %v; it is cancelled\n", id, err)
				_, _ = cl.Act(ctx, id, "cancel")
			}
		}()
	}
	errs := make(chan error, 2*max(1, s.Tasks))
	for task := range max(1, s.Tasks) {
		go func() { errs <- cl.FollowLog(ctx, id, task, "out", c.OutOrStdout()) }()
		go func() { errs <- cl.FollowLog(ctx, id, task, "err", c.ErrOrStderr()) }()
	}
	j, err := cl.WaitOn(ctx, id)
	for range cap(errs) {
		err = errors.Join(err, <-errs)
	}
	if err != nil {
		return err
	}
	return endLike(c.ErrOrStderr(), &j)
}

// idleNews is how often an attached client asks whether the job counts as idle.
const idleNews = 5 * time.Second

// printIdle says to an attached client that the job does not use its GPUs, and what
// follows from it, until the context ends.
func printIdle(ctx context.Context, cl *client.Client, id int, w io.Writer, eol string) {
	again := time.NewTicker(idleNews)
	defer again.Stop()
	last := ""
	for {
		select {
		case <-ctx.Done():
			return
		case <-again.C:
		}
		j, err := cl.Job(ctx, id)
		if err != nil {
			continue // the daemon may come back
		}
		if j.Idle != nil && j.Idle.Text != last {
			last = j.Idle.Text
			fmt.Fprintf(w, "%smuster: job %d: %s%s", strings.TrimSuffix(eol, "\n"), id, last, eol)
		} else if j.Idle == nil {
			last = ""
		}
	}
}

// endLike says how a job ended, if its output does not, and carries its exit code.
func endLike(w io.Writer, j *api.Job) error {
	if j.State != api.StateCompleted && j.State != api.StateFailed || j.ExitCode == 127 {
		fmt.Fprintf(w, "muster: job %d: %s: %s\n", j.ID, j.State, j.Reason)
	}
	switch {
	case j.ExitCode != 0:
		return exitCode(j.ExitCode)
	case j.State != api.StateCompleted:
		return exitCode(exitFailed)
	}
	return nil
}

// forwardSignals gives the job the first signal that we get and cancels it at
// the second; a job that does not run yet is cancelled at the first.
func forwardSignals(ctx context.Context, w io.Writer, cl *client.Client, id int) (stop func()) {
	got := make(chan os.Signal, 4)
	signal.Notify(got, syscall.SIGINT, syscall.SIGTERM)
	go func() {
		for first := true; ; first = false {
			var name string
			select {
			case <-ctx.Done():
				return
			case s := <-got:
				if name = "TERM"; s == syscall.SIGINT {
					name = "INT"
				}
			}
			if first && cl.Signal(ctx, id, api.SignalRequest{Signal: name}) == nil {
				fmt.Fprintf(w, "muster: SIG%s to job %d; once more cancels it\n", name, id)
				continue
			}
			fmt.Fprintf(w, "muster: cancelling job %d\n", id)
			if _, err := cl.Act(ctx, id, "cancel"); err != nil && ctx.Err() == nil {
				fmt.Fprintf(w, "muster: %v\n", err)
			}
		}
	}()
	return func() { signal.Stop(got) }
}
