package main

import (
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/engine"
	"github.com/muster-gpu/muster/journal"
	"github.com/muster-gpu/muster/sim"
)

// openJournal opens a journal, compressed or not.
func openJournal(path string) (*journal.Reader, func(), error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, nil, err
	}
	var r io.Reader = f
	if strings.HasSuffix(path, ".gz") {
		if r, err = gzip.NewReader(f); err != nil {
			f.Close()
			return nil, nil, fmt.Errorf("%s: %w", path, err)
		}
	}
	j, err := journal.NewReader(path, r)
	if err != nil {
		f.Close()
		return nil, nil, err
	}
	return j, func() { f.Close() }, nil
}

func newReplay() *cobra.Command {
	return &cobra.Command{
		Use:   "replay JOURNAL",
		Short: "Take the decisions of a journal again and compare them, hash by hash",
		Args:  cobra.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			j, done, err := openJournal(args[0])
			if err != nil {
				return err
			}
			defer done()
			_, steps, err := journal.Replay(j, cluster.Never)
			if errors.Is(err, journal.ErrDiffers) {
				return fmt.Errorf("%w: %w", errDiffers, err)
			}
			if err != nil {
				return err
			}
			fmt.Fprintf(c.OutOrStdout(), "%s: %d steps, every decision the same\n", args[0], steps)
			return nil
		},
	}
}

func newExplain() *cobra.Command {
	var job, at string
	var score bool
	every := 20
	c := &cobra.Command{
		Use:   "explain JOURNAL {--job X | --score} [--at T]",
		Short: "Say why a job waits (or where it runs) at an instant of a journal; or how good expected starts are in it",
		Long: "With --score it is asked, as muster sim --score-starts does, when jobs will start: at the submission of each\n" +
			"Nth that has to wait (--every) and of some others, and the answers are compared with what happens. See docs/design/expected-starts.md.",
		Example: "  muster explain las.journal --job 4711 --at 2h30m\n  muster explain incident.journal --score --every 5",
		Args:    cobra.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			if every < 1 {
				return usage(fmt.Errorf("--every %d: want a number from 1", every))
			}
			if c.Flags().Changed("every") && !score {
				return usage(errors.New("--every is for --score"))
			}
			if score {
				return scoreJournal(c.OutOrStdout(), args[0], at, every)
			}
			e, err := replayTo(args[0], at)
			if err != nil {
				return err
			}
			id, ok := e.FindJob(job)
			if !ok {
				return fmt.Errorf("%s: no job has the number or name %q by then", args[0], job)
			}
			writeWhy(c.OutOrStdout(), e.Why(id))
			return nil
		},
	}
	c.Flags().StringVar(&job, "job", "", "the job's number or name")
	c.Flags().StringVar(&at, "at", "", "the instant, since the start (default: the end of the journal)")
	c.Flags().BoolVar(&score, "score", false, "ask in the journal when waiting jobs will start, and score the answers")
	c.Flags().IntVar(&every, "every", every, "with --score: ask at the submission of each Nth job that has to wait")
	c.MarkFlagsOneRequired("job", "score")
	c.MarkFlagsMutuallyExclusive("job", "score")
	return c
}

// scoreJournal asks in a journal, until an instant, when jobs will start, and scores the answers.
func scoreJournal(w io.Writer, file, at string, every int) error {
	until, err := instantFlag(at)
	if err != nil {
		return err
	}
	j, done, err := openJournal(file)
	if err != nil {
		return err
	}
	defer done()
	s := &sim.Starts{Every: every}
	if _, _, err := journal.Watch(j, until, func(e *engine.Engine) journal.Watcher {
		return s.Watch(e, j.Header.Restore)
	}); err != nil {
		return err
	}
	s.Close()
	if s.Asked == 0 {
		fmt.Fprintf(w, "%s: no job had to wait: nothing is asked\n", file)
		return nil
	}
	return writeStartScores(w, []scoredStarts{{label: j.Header.Policy, starts: s}})
}

// instantFlag reads an instant since the start; Never: none is given.
func instantFlag(at string) (cluster.Time, error) {
	if at == "" {
		return cluster.Never, nil
	}
	d, err := durationFlag("at", at)
	return cluster.Time(d), usage(err)
}

// replayTo is the engine of a journal as it was at an instant since the start; "": at the
// journal's end.
func replayTo(file, at string) (*engine.Engine, error) {
	j, done, err := openJournal(file)
	if err != nil {
		return nil, err
	}
	defer done()
	until, err := instantFlag(at)
	if err != nil {
		return nil, err
	}
	e, _, err := journal.Replay(j, until)
	if err == nil && until != cluster.Never {
		e.Look(until)
	}
	return e, err
}

// writeWhy prints an explanation for people.
func writeWhy(w io.Writer, y engine.Why) {
	fmt.Fprintf(w, "job %d", y.Job)
	if y.Name != "" {
		fmt.Fprintf(w, " %s", y.Name)
	}
	fmt.Fprintf(w, ": %s", y.State)
	if y.State == "pending" {
		fmt.Fprintf(w, " for %s", cluster.FormatDuration(y.Waiting.Round(time.Second)))
		if y.Ahead >= 0 {
			fmt.Fprintf(w, ", %d jobs ahead", y.Ahead)
		}
	}
	fmt.Fprintln(w)
	for _, b := range y.Blockers {
		fmt.Fprintf(w, "  blocked: %s\n", b)
	}
	for _, h := range y.Holders {
		fmt.Fprintf(w, "  held by: %s\n", h)
	}
	if y.Text != "" {
		fmt.Fprintf(w, "  %s\n", y.Text)
	}
	if y.State == "pending" {
		if y.Expected == cluster.Never {
			fmt.Fprintln(w, "  expected start: unknown (run times ahead of it are not known)")
		} else if y.Rough {
			fmt.Fprintf(w, "  expected start: at the earliest about %v (from the work ahead of it)\n", y.Expected)
		} else {
			fmt.Fprintf(w, "  expected start: at the earliest %v (if the jobs ahead run as they state)\n", y.Expected)
		}
	}
}
