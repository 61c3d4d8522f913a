//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/muster-gpu/muster/api"
	"github.com/muster-gpu/muster/client"
)

// detachKey is Ctrl-\, which leaves a terminal without ending what runs there.
const detachKey = 0x1c

// errDetached says that the terminal was left.
var errDetached = errors.New("detached")

func newAttach() *cobra.Command {
	var watch bool
	c := &cobra.Command{
		Use: "attach JOB", Short: "Use the terminal of a job that was submitted with --pty", Args: cobra.ExactArgs(1),
		Long: "Ties this terminal to that of the job's first task, until the job is over or Ctrl-\\ is pressed; the job goes\n" +
			"on then. Several may be attached at once: all see the same, all may type, and the window is as large as\n" +
			"that of the last one who changed theirs. The exit code is the job's.",
		RunE: func(c *cobra.Command, args []string) error {
			ids, err := jobIDs(args)
			if err != nil {
				return err
			}
			cl := client.Connect()
			err = useTerminal(c.Context(), c, cl, ids[0], watch)
			if errors.Is(err, errDetached) {
				return nil
			}
			if err != nil {
				return err
			}
			j, err := cl.WaitOn(c.Context(), ids[0])
			if err != nil {
				return err
			}
			fmt.Fprintf(c.ErrOrStderr(), "muster: job %d: %s\n", j.ID, j.State)
			return endLike(c.ErrOrStderr(), &j)
		},
	}
	c.Flags().BoolVar(&watch, "read-only", false, "look on: nothing that is typed reaches the job, except Ctrl-\\ to leave")
	return c
}

// useTerminal ties this terminal to a job's. It is as it was when it returns,
// whatever happened.
func useTerminal(ctx context.Context, c *cobra.Command, cl *client.Client, id int, watch bool) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	hangup := make(chan os.Signal, 1)
	signal.Notify(hangup, syscall.SIGHUP) // the window was closed: the job goes on
	defer signal.Stop(hangup)
	size := make(chan client.Window, 1)
	if fd := int(os.Stdin.Fd()); term.IsTerminal(fd) {
		old, err := term.MakeRaw(fd)
		if err != nil {
			return fmt.Errorf("this terminal: %w", err)
		}
		defer func() { _ = term.Restore(fd, old) }()
		changed := make(chan os.Signal, 1)
		signal.Notify(changed, syscall.SIGWINCH)
		defer signal.Stop(changed)
		changed <- syscall.SIGWINCH // what it is now
		go tellSize(ctx, fd, changed, size)
	}
	typed := make(chan []byte)
	go readKeys(ctx, os.Stdin, typed, watch, func() { cancel(errDetached) })
	go func() {
		select {
		case <-hangup:
			cancel(errDetached)
		case <-ctx.Done():
		}
	}()
	err := cl.Screen(ctx, id, typed, size, c.OutOrStdout())
	if ctx.Err() == nil {
		return err
	}
	fmt.Fprintf(c.ErrOrStderr(), "\r\nmuster: job %d goes on; muster attach %d comes back to it, muster cancel %d ends it\r\n", id, id, id)
	return errDetached
}

// tellSize passes on how large the window is whenever that changes.
func tellSize(ctx context.Context, fd int, changed <-chan os.Signal, size chan<- client.Window) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-changed:
		}
		if columns, rows, err := term.GetSize(fd); err == nil {
			select {
			case size <- client.Window{Rows: rows, Columns: columns}:
			case <-ctx.Done():
				return
			}
		}
	}
}

// readKeys passes on what is typed, up to the key that leaves.
func readKeys(ctx context.Context, in io.Reader, typed chan<- []byte, watch bool, leave func()) {
	for {
		b := make([]byte, 4096)
		n, err := in.Read(b)
		if err != nil {
			return // what it shows may still be of interest
		}
		for i, k := range b[:n] {
			if k == detachKey {
				n, err = i, io.EOF
				break
			}
		}
		if n > 0 && !watch {
			select {
			case typed <- b[:n]:
			case <-ctx.Done():
				return
			}
		}
		if err != nil {
			leave()
			return
		}
	}
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
	if out.Job.State == api.StatePending {
		if err := tellAccepted(c.ErrOrStderr(), &out); err != nil {
			return err
		}
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	if s.Pty {
		if err := useTerminal(ctx, c, cl, id, false); errors.Is(err, errDetached) {
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
