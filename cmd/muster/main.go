// Command muster is a GPU scheduler: it replays recorded clusters (sim), and
// checks, explains and compares what its engine decides.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/internal/plain"
	"github.com/muster-gpu/muster/internal/version"
)

// Exit codes, documented in docs/reference/cli.md.
const (
	exitOK          = 0
	exitFailed      = 1   // the command did not do what was asked
	exitUsage       = 2   // unknown flags, bad values
	exitDiffers     = 3   // a replay or a scenario differs from its recording
	exitInterrupted = 130 // by Ctrl-C or SIGTERM; partial results were written
)

// errUsage marks mistakes of the caller.
var errUsage = errors.New("usage")

// errDiffers marks a comparison that failed.
var errDiffers = errors.New("differs")

// errInterrupted marks a run that was ended by a signal.
var errInterrupted = errors.New("interrupted: what was computed so far is shown, marked partial")

func main() {
	os.Exit(run(os.Args[1:]))
}

func run(args []string) int {
	if code, ok := runShim(args); ok {
		return code
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if name := slurmName(); name != "" {
		return runSlurm(ctx, name, args)
	}
	root := newRoot()
	root.SetArgs(args)
	err := root.ExecuteContext(ctx)
	say := func(err error) {
		fmt.Fprintln(os.Stderr, "muster:", plain.Lines(strings.TrimPrefix(err.Error(), "usage: ")))
	}
	var code exitCode
	switch {
	case err == nil:
		return exitOK
	case errors.As(err, &code):
		return int(code) // a job's own
	case ctx.Err() != nil && errors.Is(err, context.Canceled): // by a signal: it had nothing left to say
		return exitInterrupted
	case errors.Is(err, errInterrupted):
		say(err)
		return exitInterrupted
	case errors.Is(err, errDiffers):
		say(err)
		return exitDiffers
	case errors.Is(err, errUsage) || strings.HasPrefix(err.Error(), "unknown command"):
		say(err)
		return exitUsage
	}
	say(err)
	return exitFailed
}

func newRoot() *cobra.Command {
	root := &cobra.Command{
		Use:   "muster",
		Short: "A GPU scheduler: every GPU present and accounted for",
		Long: "Muster decides which job gets which GPU, when, for how long and next to which others.\n" +
			"One engine, tried on recorded workloads (muster sim) before it runs your machines.",
		Version:       version.Read().String(),
		SilenceErrors: true,
		SilenceUsage:  true,
	}
	root.SetFlagErrorFunc(flagError)
	kubeCluster.add(root)
	cobra.EnableCommandSorting = false // within a group they stand as people need them
	for _, g := range groups {
		root.AddGroup(&cobra.Group{ID: g.id, Title: g.title})
	}
	for _, s := range subcommands() {
		c := s.make()
		c.GroupID = s.group
		completeJobFlags(c)
		root.AddCommand(c)
	}
	root.SetHelpCommandGroupID("develop")
	root.SetCompletionCommandGroupID("develop")
	argumentsAreUsage(root)
	return root
}

// argumentsAreUsage makes a wrong number of arguments a mistake of usage, for a command and those below it.
func argumentsAreUsage(c *cobra.Command) {
	if check := c.Args; check != nil {
		c.Args = func(c *cobra.Command, args []string) error {
			if err := check(c, args); err != nil {
				return usage(fmt.Errorf("%s: %w (see muster %s --help)", c.Name(), err, c.Name()))
			}
			return nil
		}
	}
	for _, sub := range c.Commands() {
		argumentsAreUsage(sub)
	}
}

// flagError names the nearest flag when one is unknown.
func flagError(c *cobra.Command, err error) error {
	var unknown *pflag.NotExistError
	if !errors.As(err, &unknown) {
		return fmt.Errorf("%w: %s: %w (see muster %s --help)", errUsage, c.Name(), err, c.Name())
	}
	if hint := slurmHint(c, unknown.GetSpecifiedName()); hint != "" {
		return fmt.Errorf("%w: %s: unknown flag --%s: %s", errUsage, c.Name(), unknown.GetSpecifiedName(), hint)
	}
	var names []string
	c.Flags().VisitAll(func(f *pflag.Flag) { names = append(names, f.Name) })
	near := cluster.Nearest(unknown.GetSpecifiedName(), names)
	if near == "" {
		return fmt.Errorf("%w: %s: %w (see muster %s --help)", errUsage, c.Name(), err, c.Name())
	}
	return fmt.Errorf("%w: %s: unknown flag --%s: did you mean --%s?", errUsage, c.Name(), unknown.GetSpecifiedName(),
		near)
}

// usage marks an error as the caller's.
func usage(err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%w: %w", errUsage, err)
}

// wallTime is what time it is, for commands that speak of days and hours.
func wallTime() time.Time { return time.Now() }

// wallClock measures how long things take, for progress bars and reports; no
// decision depends on it.
func wallClock() func() time.Duration {
	start := time.Now()
	return func() time.Duration { return time.Since(start) }
}
