package main

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/muster-gpu/muster/api"
	"github.com/muster-gpu/muster/client"
	"github.com/muster-gpu/muster/search"
	"github.com/muster-gpu/muster/search/tuner"
)

func newSearch() *cobra.Command {
	c := &cobra.Command{Use: "search",
		Short: "Hyper-parameter search: trials that are compared early, promoted and stopped"}
	c.AddCommand(newSearchRun(), newSearchSubmit(), newSearchPlan(), newSearchShow(), newSearchList(),
		newSearchCancel(), newSearchMethods())
	return c
}

func newSearchRun() *cobra.Command {
	name := ""
	c := &cobra.Command{
		Use: "run FILE", Short: "Search, attached: prints what happens, and the best trial in the end",
		Long: "Runs a search (docs/howto/search.md describes the file; - is standard input). What was begun goes on: nothing is\n" +
			"submitted twice. Ctrl-C ends the tuner only; the trials that run go on, and so does the search when it is run again.",
		Args: cobra.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			f, err := readSearch(args[0], name, c)
			if err != nil {
				return usage(err)
			}
			errw := c.ErrOrStderr()
			say, progress := narrator(errw)
			t, err := tuner.New(c.Context(), client.Connect(), f, say, progress)
			if err != nil {
				return err
			}
			unlock, err := lockSearch(f.Name)
			if err != nil {
				return err
			}
			defer unlock()
			if err := t.Run(c.Context()); errors.Is(err, context.Canceled) {
				fmt.Fprintf(errw, "muster: the tuner ends, running trials continue: muster search run %s continues the search, muster search cancel %s ends them\n", args[0], f.Name)
				return exitCode(exitInterrupted)
			} else if err != nil {
				return err
			}
			return t.Conclude(c.OutOrStdout())
		},
	}
	c.Flags().StringVar(&name, "name", "", "name of the search, instead of the file's")
	return c
}

// readSearch reads a search whose trials run with this process's folder and file mode mask, unless the file says
// otherwise, and warns if trials are not promoted up to the budget's end.
func readSearch(path, name string, c *cobra.Command) (*tuner.File, error) {
	f, err := tuner.Read(path, name, c.InOrStdin())
	if err != nil {
		return nil, err
	}
	if f.Job.Dir, err = filepath.Abs(f.Job.Dir); err != nil {
		return nil, err
	}
	if f.Job.Umask == "" {
		f.Job.Umask = fmt.Sprintf("%04o", umask())
	}
	if text := f.Shortfall(); text != "" {
		fmt.Fprintln(c.ErrOrStderr(), "muster:", text)
	}
	return f, nil
}

// narrator prints what happens, line by line; on a terminal how far it is stays below that.
func narrator(w io.Writer) (say, progress func(text string)) {
	if !isTTY(w) {
		return func(text string) { fmt.Fprintln(w, text) }, func(string) {}
	}
	return func(text string) { fmt.Fprintf(w, "\r\x1b[K%s\n", text) },
		func(text string) { fmt.Fprintf(w, "\r\x1b[K%.*s", width(w)-1, text) }
}

func newSearchSubmit() *cobra.Command {
	name := ""
	c := &cobra.Command{
		Use: "submit FILE", Short: "Search in the background: the tuner is a job without GPUs",
		Args: cobra.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			f, err := readSearch(args[0], name, c)
			if err != nil {
				return usage(err)
			}
			silent := func(string) {} // what happens, the job says
			t, err := tuner.New(c.Context(), client.Connect(), f, silent, silent)
			if err != nil {
				return err
			}
			unlock, err := lockSearch(f.Name)
			if err != nil {
				return err
			}
			unlock()
			if err := t.Try(c.Context()); err != nil {
				return err
			}
			s, err := tunerJob(f)
			if err != nil {
				return err
			}
			out, err := client.Connect().Submit(c.Context(), s, "")
			if err != nil {
				return err
			}
			return printAccepted(c.OutOrStdout(), &out)
		},
	}
	c.Flags().StringVar(&name, "name", "", "name of the search, instead of the file's")
	return c
}

// lockSearch sees to it that one tuner of a daemon's search runs for a user on this
// machine: two submit nothing twice, but more at once than they should. The lock's file is
// there for as long as it is held.
func lockSearch(name string) (unlock func(), err error) {
	nothing := func() {}
	dir, err := os.UserCacheDir()
	if err != nil {
		return nothing, nil // without a home there is no lock
	}
	dir = filepath.Join(dir, "muster")
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nothing, nil
	}
	path := filepath.Join(dir, "search-"+name+"-"+client.Connect().Server()+".lock")
	for {
		file, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
		if err != nil {
			return nothing, nil
		}
		if err := syscall.Flock(int(file.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); errors.Is(err, syscall.EWOULDBLOCK) {
			_ = file.Close()
			return nil, fmt.Errorf(
				"another tuner of search %s runs on this machine: muster search show %s says how far it is", name, name)
		}
		if isFile(file, path) {
			return func() { // removed first: then no other process can have locked what is removed
				_ = os.Remove(path)
				_ = file.Close()
			}, nil
		}
		_ = file.Close() // its holder removed it meanwhile
	}
}

// isFile reports whether an open file is still the one with this name.
func isFile(file *os.File, path string) bool {
	open, err := file.Stat()
	if err != nil {
		return false
	}
	named, err := os.Stat(path)
	return err == nil && os.SameFile(open, named)
}

// tunerJob is the job of a search's tuner: a script that holds the file as it is
// now, whatever becomes of it.
func tunerJob(f *tuner.File) (*api.Submission, error) {
	exe, err := os.Executable()
	if err != nil {
		return nil, err
	}
	end := "END-OF-SEARCH-" + f.Spec // quoted, so that the shell leaves the text as it is
	s := &api.Submission{Name: f.Name + ".tuner", Env: os.Environ(), Queue: f.Job.Queue, Output: f.Name + ".tuner.out",
		ScriptName: f.Name,
		Script: fmt.Sprintf("#!/bin/sh\nexec '%s' search run --name '%s' - <<'%s'\n%s\n%s\n",
			strings.ReplaceAll(exe, "'", `'\''`), f.Name, end, bytes.TrimRight(f.Text, "\n"), end),
		Trial: &api.Trial{Search: f.Name, Spec: f.Spec, Method: f.Method.Name, Metric: f.Metric, Maximise: f.Maximise,
			Tuner: true}}
	if os.Getenv("MUSTER_HOST") == "" {
		s.Env = append(s.Env, "MUSTER_SOCKET="+client.Socket())
	}
	s.Umask = fmt.Sprintf("%04o", umask())
	s.Dir, err = os.Getwd()
	return s, err
}

func newSearchPlan() *cobra.Command {
	return &cobra.Command{
		Use: "plan FILE", Short: "Say what a search would do: brackets, rungs, budgets, fused groups; nothing is submitted",
		Args: cobra.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			f, err := tuner.Read(args[0], "", c.InOrStdin())
			if err != nil {
				return usage(err)
			}
			return writePlan(c.OutOrStdout(), f)
		},
	}
}

// writePlan writes the brackets of a search, and its first configurations.
func writePlan(out io.Writer, f *tuner.File) error {
	s, err := search.New(f.Method)
	if err != nil {
		return usage(err)
	}
	fmt.Fprintf(out, "%s: %s, %d trials, %d at once; %s\n", f.Name, f.Method.Name, s.Trials(), f.AtOnce, f.Job.Command)
	w := tabwriter.NewWriter(out, 0, 4, 2, ' ', 0)
	fmt.Fprintln(w, "BRACKET\tRUNG\tTRIALS\tTO STEP\tSTEPS\tPROCESSES")
	paid, again := int64(0), int64(0)
	for i, b := range s.Brackets() {
		before := int64(0)
		for k, r := range b.Rungs {
			fmt.Fprintf(w, "%d\t%d\t%d\t%d\t%d\t%s\n", i, k, r.Trials, r.Budget, int64(r.Trials)*(r.Budget-before),
				f.Processes(r.Trials, k))
			before = r.Budget
		}
		paid, again = paid+b.Paid(false), again+b.Paid(true)
	}
	if err := w.Flush(); err != nil {
		return err
	}
	if text := f.Shortfall(); text != "" {
		fmt.Fprintln(out, "muster:", text)
	}
	fmt.Fprintf(out, "%d steps at most, as promoted trials go on from their checkpoints (from the beginning it would be %d); every trial to the end: %d\n",
		paid, again, int64(s.Trials())*f.Method.Max)
	if f.Method.Scale > 1 {
		fmt.Fprintf(out, "models of 1/%d of the width; when %g of the trials are over, the best begins at full size\n",
			f.Method.Scale, float64(f.Method.Eager)/1000)
	}
	for t := range min(5, s.Trials()) {
		fmt.Fprintf(out, "trial %d: %s\n", t, tuner.ConfigText(f.Config(t, max(1, f.Method.Scale))))
	}
	if n := s.Trials(); n > 5 {
		fmt.Fprintf(out, "... and %d more\n", n-5)
	}
	return nil
}

func newSearchShow() *cobra.Command {
	var asJSON bool
	c := &cobra.Command{
		Use: "show NAME", Short: "Show the trials of a search, the best first", Args: cobra.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			list, err := tuner.Jobs(c.Context(), client.Connect(), args[0])
			if err != nil {
				return err
			}
			rows := tuner.Trials(list)
			if asJSON {
				return json.NewEncoder(c.OutOrStdout()).Encode(rows)
			}
			return writeRows(c.OutOrStdout(), list, rows)
		},
	}
	c.Flags().BoolVar(&asJSON, "json", false, "JSON")
	return c
}

func writeRows(out io.Writer, list []api.Job, rows []tuner.TrialRow) error {
	s := list[0].Submission.Trial
	by := "no tuner runs as a job"
	for i := range list {
		if t := list[i].Submission.Trial; t.Tuner && !tuner.Over(&list[i]) {
			by = fmt.Sprintf("its tuner is job %d", list[i].ID)
		} else if !t.Tuner {
			s = t
		}
	}
	fmt.Fprintf(out, "%s: %s over %d trials, %d begun; %s\n", s.Search, s.Method, s.Trials, tuner.Begun(rows), by)
	w := tabwriter.NewWriter(out, 0, 4, 2, ' ', 0)
	fmt.Fprintf(w, "TRIAL\tRUNG\tSTEP\t%s\tSTATE\tJOB\tCONFIGURATION\n", strings.ToUpper(cmp.Or(s.Metric, "metric")))
	for _, r := range rows {
		metric, trial := "-", fmt.Sprint(r.Trial)
		if r.Metric != nil {
			metric = tuner.MetricText(r.Metric)
		}
		if r.Target {
			trial += " (full size)"
		}
		fmt.Fprintf(w, "%s\t%d\t%g\t%s\t%s\t%d\t%s\n", trial, r.Rung, r.Step, metric, r.State, r.Job,
			tuner.ConfigText(r.Config))
	}
	return w.Flush()
}

func newSearchList() *cobra.Command {
	var asJSON bool
	c := &cobra.Command{
		Use: "list", Short: "List the searches", Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			list, err := tuner.Jobs(c.Context(), client.Connect(), "")
			if err != nil {
				return err
			}
			rows := tuner.Searches(list)
			if asJSON {
				return json.NewEncoder(c.OutOrStdout()).Encode(rows)
			}
			w := tabwriter.NewWriter(c.OutOrStdout(), 0, 4, 2, ' ', 0)
			fmt.Fprintln(w, "SEARCH\tUSER\tMETHOD\tTRIALS\tBEGUN\tRUNS NOT OVER\tTUNER\tBEST")
			for _, r := range rows {
				best, job := "-", "-"
				if r.Best != nil {
					best = fmt.Sprintf("%s %s (trial %d)", r.Metric, tuner.MetricText(r.Best), r.Trial)
				}
				if r.Tuner > 0 {
					job = fmt.Sprintf("job %d", r.Tuner)
				}
				fmt.Fprintf(w, "%s\t%s\t%s\t%d\t%d\t%d\t%s\t%s\n", r.Name, r.User, r.Method, r.Trials, r.Begun, r.Live,
					job, best)
			}
			return w.Flush()
		},
	}
	c.Flags().BoolVar(&asJSON, "json", false, "JSON")
	return c
}

func newSearchCancel() *cobra.Command {
	return &cobra.Command{
		Use: "cancel NAME", Short: "End a search: its tuner, then the trials that run or wait",
		Args: cobra.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			if err := endTuner(c, args[0]); err != nil { // first: it would start others
				return err
			}
			unlock, err := lockSearch(args[0])
			if err != nil {
				return fmt.Errorf("%w; end it first (Ctrl-C), it would start other trials", err)
			}
			defer unlock()
			list, err := tuner.Jobs(c.Context(), client.Connect(), args[0])
			if err != nil {
				return err
			}
			for i := range list {
				if tuner.Over(&list[i]) {
					continue
				}
				j, err := client.Connect().Act(c.Context(), list[i].ID, "cancel")
				if err != nil {
					return err
				}
				if err := printJob(c, &j, false); err != nil {
					return err
				}
			}
			return nil
		},
	}
}

// endTuner cancels the job of a search's tuner and waits until it is gone.
func endTuner(c *cobra.Command, name string) error {
	list, err := tuner.Jobs(c.Context(), client.Connect(), name)
	if err != nil {
		return err
	}
	cl := client.Connect()
	for i := range list {
		if !list[i].Submission.Trial.Tuner || tuner.Over(&list[i]) {
			continue
		}
		if _, err := cl.Act(c.Context(), list[i].ID, "cancel"); err != nil {
			return err
		}
		j, err := cl.WaitOn(c.Context(), list[i].ID) // over the daemon's death
		if err != nil {
			return err
		}
		if err := printJob(c, &j, false); err != nil {
			return err
		}
	}
	return nil
}

func newSearchMethods() *cobra.Command {
	return &cobra.Command{
		Use: "methods", Short: "Every method and its knobs", Args: cobra.NoArgs,
		Run: func(c *cobra.Command, _ []string) {
			for _, m := range search.Methods {
				fmt.Fprintf(c.OutOrStdout(), "%-18s %s\n%-18s knobs: %s. Source: %s\n", m.Name, m.What, "", m.Knobs,
					m.Source)
			}
		},
	}
}
