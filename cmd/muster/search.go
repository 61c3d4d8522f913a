package main

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/muster-gpu/muster/api"
	"github.com/muster-gpu/muster/client"
	"github.com/muster-gpu/muster/search"
)

func newSearch() *cobra.Command {
	c := &cobra.Command{Use: "search", Short: "Hyper-parameter search: trials that are compared early, promoted and stopped"}
	c.AddCommand(newSearchRun(), newSearchSubmit(), newSearchPlan(), newSearchShow(), newSearchList(), newSearchCancel(), newSearchMethods())
	return c
}

func newSearchRun() *cobra.Command {
	name := ""
	c := &cobra.Command{
		Use: "run FILE", Short: "Search, attached: what happens is told here, the best trial in the end",
		Long: "Runs a search (docs/howto/search.md describes the file; - is standard input). What was begun goes on: nothing is\n" +
			"submitted twice. Ctrl-C ends the tuner only; the trials that run go on, and so does the search when it is run again.",
		Args: cobra.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			f, err := readSearch(args[0], name, c.InOrStdin())
			if err != nil {
				return usage(err)
			}
			errw := c.ErrOrStderr()
			fmt.Fprint(errw, f.shortfall())
			t, err := newTuner(c.Context(), f, errw)
			if err != nil {
				return err
			}
			unlock, err := lockSearch(f.name)
			if err != nil {
				return err
			}
			defer unlock()
			if err := t.run(c.Context()); errors.Is(err, context.Canceled) {
				fmt.Fprintf(errw, "muster: the tuner ends, trials that run go on: muster search run %s goes on, muster search cancel %s ends them\n", args[0], f.name)
				return exitCode(exitInterrupted)
			} else if err != nil {
				return err
			}
			return t.conclude(c.OutOrStdout())
		},
	}
	c.Flags().StringVar(&name, "name", "", "name of the search, instead of the file's")
	return c
}

// shortfall is a line that says that trials are not promoted up to the budget's end;
// empty: they are.
func (f *searchFile) shortfall() string {
	m := &f.method
	reached := m.Reached()
	if reached >= m.Max {
		return ""
	}
	why := fmt.Sprintf("%d trials are too few for more rungs", m.Trials)
	if next := reached * m.Eta; next > m.Max {
		why = fmt.Sprintf("the next rung would be at %d", next)
	}
	return fmt.Sprintf("muster: no trial is promoted beyond step %d, though budget.max is %d: %s\n", reached, m.Max, why)
}

func newSearchSubmit() *cobra.Command {
	name := ""
	c := &cobra.Command{
		Use: "submit FILE", Short: "Search in the background: the tuner is a job without GPUs",
		Args: cobra.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			f, err := readSearch(args[0], name, c.InOrStdin())
			if err != nil {
				return usage(err)
			}
			fmt.Fprint(c.ErrOrStderr(), f.shortfall())
			t, err := newTuner(c.Context(), f, nil) // what the job would say
			if err != nil {
				return err
			}
			unlock, err := lockSearch(f.name)
			if err != nil {
				return err
			}
			unlock()
			if err := t.try(c.Context()); err != nil {
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
			return tellAccepted(c.OutOrStdout(), &out)
		},
	}
	c.Flags().StringVar(&name, "name", "", "name of the search, instead of the file's")
	return c
}

// lockSearch sees to it that one tuner of a daemon's search runs for a user on this
// machine: two submit nothing twice, but more at once than they should. The lock's file is
// there for as long as somebody has it.
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
			return nil, fmt.Errorf("another tuner of search %s runs on this machine: muster search show %s says how far it is", name, name)
		}
		if isFile(file, path) {
			return func() { // removed first: then nobody else can have locked what is removed
				_ = os.Remove(path)
				_ = file.Close()
			}, nil
		}
		_ = file.Close() // who had it removed it meanwhile
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
func tunerJob(f *searchFile) (*api.Submission, error) {
	exe, err := os.Executable()
	if err != nil {
		return nil, err
	}
	end := "END-OF-SEARCH-" + f.spec // quoted, so that the shell leaves the text as it is
	s := &api.Submission{Name: f.name + ".tuner", Env: os.Environ(), Queue: f.job.Queue, Output: f.name + ".tuner.out", ScriptName: f.name,
		Script: fmt.Sprintf("#!/bin/sh\nexec '%s' search run --name '%s' - <<'%s'\n%s\n%s\n", strings.ReplaceAll(exe, "'", `'\''`), f.name, end, bytes.TrimRight(f.text, "\n"), end),
		Trial:  &api.Trial{Search: f.name, Spec: f.spec, Method: f.method.Name, Metric: f.metric, Maximise: f.maximise, Tuner: true}}
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
			f, err := readSearch(args[0], "", c.InOrStdin())
			if err != nil {
				return usage(err)
			}
			return writePlan(c.OutOrStdout(), f)
		},
	}
}

// writePlan writes the brackets of a search, and its first configurations.
func writePlan(out io.Writer, f *searchFile) error {
	s, err := search.New(f.method)
	if err != nil {
		return usage(err)
	}
	fmt.Fprintf(out, "%s: %s, %d trials, %d at once; %s\n", f.name, f.method.Name, s.Trials(), f.atOnce, f.job.Command)
	w := tabwriter.NewWriter(out, 0, 4, 2, ' ', 0)
	fmt.Fprintln(w, "BRACKET\tRUNG\tTRIALS\tTO STEP\tSTEPS\tPROCESSES")
	paid, anew := int64(0), int64(0)
	for i, b := range s.Brackets() {
		before := int64(0)
		for k, r := range b.Rungs {
			fmt.Fprintf(w, "%d\t%d\t%d\t%d\t%d\t%s\n", i, k, r.Trials, r.Budget, int64(r.Trials)*(r.Budget-before), processes(f, r.Trials, k))
			before = r.Budget
		}
		paid, anew = paid+b.Paid(false), anew+b.Paid(true)
	}
	if err := w.Flush(); err != nil {
		return err
	}
	fmt.Fprint(out, f.shortfall())
	fmt.Fprintf(out, "%d steps at most, as promoted trials go on from their checkpoints (from the beginning it would be %d); every trial to the end: %d\n",
		paid, anew, int64(s.Trials())*f.method.Max)
	if f.method.Scale > 1 {
		fmt.Fprintf(out, "models of 1/%d of the width; when %g of the trials are over, the best begins at full size\n", f.method.Scale, float64(f.method.Eager)/1000)
	}
	for t := range min(5, s.Trials()) {
		fmt.Fprintf(out, "trial %d: %s\n", t, configText(f.config(t, max(1, f.method.Scale))))
	}
	if n := s.Trials(); n > 5 {
		fmt.Fprintf(out, "... and %d more\n", n-5)
	}
	return nil
}

// processes says in how many processes the trials of a rung run. Which trials get
// there is not known before the first rung is over, so of later ones only the most.
func processes(f *searchFile, trials, rung int) string {
	if len(f.method.Fusion) == 0 {
		return fmt.Sprint(trials)
	}
	if len(f.method.Fusion) == 1 {
		return groupText(search.Even(trials, f.method.Fusion[0]))
	}
	if rung > 0 {
		return fmt.Sprintf("by %s", f.fusion.By)
	}
	counts := make([]int, len(f.method.Fusion))
	for t := range trials {
		counts[f.method.Group(t)]++
	}
	var parts []string
	for g, n := range counts {
		if n > 0 {
			parts = append(parts, groupText(search.Even(n, f.method.Fusion[g])))
		}
	}
	return strings.Join(parts, "; ")
}

func groupText(sizes []int) string {
	return fmt.Sprintf("%d (%s)", len(sizes), strings.Join(texts(sizes), ", "))
}

// searchJobs are the runs of searches, the first first; name "": of all.
func searchJobs(ctx context.Context, name string) ([]api.Job, error) {
	q := url.Values{"brief": {"true"}}
	if name != "" {
		q.Set("search", name)
	}
	cl := client.Connect()
	list, err := cl.List(ctx, q)
	if err != nil {
		return nil, err
	}
	list = slices.DeleteFunc(list, func(j api.Job) bool {
		return j.Submission.Trial == nil || name != "" && j.Submission.Trial.Search != name
	})
	slices.Reverse(list)
	if name == "" {
		return list, nil
	}
	if len(list) == 0 {
		return nil, fmt.Errorf("there is no search %s: muster search list lists them", name)
	}
	if user := list[0].User; slices.ContainsFunc(list, func(j api.Job) bool { return j.User != user }) { // several people's: one's own
		var me api.Me
		if err := cl.Do(ctx, http.MethodGet, "/v1/me", nil, &me); err != nil {
			return nil, err
		}
		list = slices.DeleteFunc(list, func(j api.Job) bool { return j.User != me.User })
		if len(list) == 0 {
			return nil, fmt.Errorf("several people have a search %s, and none of them is yours", name)
		}
	}
	return list, nil
}

// trialRow is what is shown of a trial.
type trialRow struct {
	Trial  int            `json:"trial"`
	Job    int            `json:"job"`
	State  string         `json:"state"`
	Reason string         `json:"reason,omitempty"`
	Rung   int            `json:"rung"`
	Step   float64        `json:"step"`
	Metric *float64       `json:"metric"`
	Target bool           `json:"target,omitempty"`
	Config map[string]any `json:"config"`
}

// searchRows are the trials of a search, the best first.
func searchRows(list []api.Job) (rows []trialRow) {
	at := map[[2]int]int{}
	maximise := false
	for i := range list {
		j := &list[i]
		s := j.Submission.Trial
		if s.Tuner {
			continue
		}
		maximise = s.Maximise
		for k, n := range trialsOf(s) {
			row := trialRow{Trial: n, Job: j.ID, State: j.State, Reason: j.Reason, Rung: s.Rung, Target: s.Target, Config: s.Config}
			if len(s.Fused) > 0 {
				row.Config = s.Fused[k].Config
			}
			if m := metricsAt(j, n, 0); m != nil {
				row.Step, row.Metric = m.Step, m.Of[s.Metric]
			}
			pos, again := at[lastKey(n, s.Target)]
			if !again {
				at[lastKey(n, s.Target)] = len(rows)
				rows = append(rows, row)
				continue
			}
			if row.Metric == nil { // it has just begun its next rung
				row.Metric, row.Step = rows[pos].Metric, rows[pos].Step
			}
			rows[pos] = row
		}
	}
	slices.SortStableFunc(rows, func(a, b trialRow) int {
		if a.Target != b.Target {
			return map[bool]int{true: -1, false: 1}[a.Target]
		}
		if (a.Metric == nil) != (b.Metric == nil) {
			return map[bool]int{true: 1, false: -1}[a.Metric == nil]
		}
		if a.Metric == nil {
			return a.Trial - b.Trial
		}
		c := cmp.Compare(*a.Metric, *b.Metric)
		if maximise {
			c = -c
		}
		return cmp.Or(c, a.Trial-b.Trial)
	})
	return rows
}

// begunOf is how many trials have begun. A run at full size is of one that has.
func begunOf(rows []trialRow) (n int) {
	for i := range rows {
		if !rows[i].Target {
			n++
		}
	}
	return n
}

func newSearchShow() *cobra.Command {
	var asJSON bool
	c := &cobra.Command{
		Use: "show NAME", Short: "Show the trials of a search, the best first", Args: cobra.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			list, err := searchJobs(c.Context(), args[0])
			if err != nil {
				return err
			}
			rows := searchRows(list)
			if asJSON {
				return json.NewEncoder(c.OutOrStdout()).Encode(rows)
			}
			return writeRows(c.OutOrStdout(), list, rows)
		},
	}
	c.Flags().BoolVar(&asJSON, "json", false, "JSON")
	return c
}

func writeRows(out io.Writer, list []api.Job, rows []trialRow) error {
	s := list[0].Submission.Trial
	tuner := "no tuner runs as a job"
	for i := range list {
		if t := list[i].Submission.Trial; t.Tuner && !over(&list[i]) {
			tuner = fmt.Sprintf("its tuner is job %d", list[i].ID)
		} else if !t.Tuner {
			s = t
		}
	}
	fmt.Fprintf(out, "%s: %s over %d trials, %d begun; %s\n", s.Search, s.Method, s.Trials, begunOf(rows), tuner)
	w := tabwriter.NewWriter(out, 0, 4, 2, ' ', 0)
	fmt.Fprintf(w, "TRIAL\tRUNG\tSTEP\t%s\tSTATE\tJOB\tCONFIGURATION\n", strings.ToUpper(cmp.Or(s.Metric, "metric")))
	for _, r := range rows {
		metric, trial := "-", fmt.Sprint(r.Trial)
		if r.Metric != nil {
			metric = metricText(r.Metric)
		}
		if r.Target {
			trial += " (full size)"
		}
		fmt.Fprintf(w, "%s\t%d\t%g\t%s\t%s\t%d\t%s\n", trial, r.Rung, r.Step, metric, r.State, r.Job, configText(r.Config))
	}
	return w.Flush()
}

// searchRow is what is shown of a search.
type searchRow struct {
	Name   string   `json:"name"`
	User   string   `json:"user"`
	Method string   `json:"method"`
	Trials int      `json:"trials"`
	Begun  int      `json:"begun"`
	Live   int      `json:"live"`
	Metric string   `json:"metric"`
	Best   *float64 `json:"best"`
	Trial  int      `json:"trial"`
	Tuner  int      `json:"tuner,omitempty"`
}

func newSearchList() *cobra.Command {
	var asJSON bool
	c := &cobra.Command{
		Use: "list", Short: "List the searches", Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			list, err := searchJobs(c.Context(), "")
			if err != nil {
				return err
			}
			rows := listSearches(list)
			if asJSON {
				return json.NewEncoder(c.OutOrStdout()).Encode(rows)
			}
			w := tabwriter.NewWriter(c.OutOrStdout(), 0, 4, 2, ' ', 0)
			fmt.Fprintln(w, "SEARCH\tUSER\tMETHOD\tTRIALS\tBEGUN\tRUNS NOT OVER\tTUNER\tBEST")
			for _, r := range rows {
				best, tuner := "-", "-"
				if r.Best != nil {
					best = fmt.Sprintf("%s %s (trial %d)", r.Metric, metricText(r.Best), r.Trial)
				}
				if r.Tuner > 0 {
					tuner = fmt.Sprintf("job %d", r.Tuner)
				}
				fmt.Fprintf(w, "%s\t%s\t%s\t%d\t%d\t%d\t%s\t%s\n", r.Name, r.User, r.Method, r.Trials, r.Begun, r.Live, tuner, best)
			}
			return w.Flush()
		},
	}
	c.Flags().BoolVar(&asJSON, "json", false, "JSON")
	return c
}

// listSearches adds up the runs of each search, in the order in which they began.
func listSearches(list []api.Job) []searchRow {
	rows := []searchRow{}
	jobs := map[[2]string][]api.Job{}
	for i := range list {
		key := [2]string{list[i].User, list[i].Submission.Trial.Search}
		if jobs[key] == nil {
			rows = append(rows, searchRow{Name: key[1], User: key[0]})
		}
		jobs[key] = append(jobs[key], list[i])
	}
	for k := range rows {
		r := &rows[k]
		own := jobs[[2]string{r.User, r.Name}]
		for i := range own {
			s := own[i].Submission.Trial
			r.Method, r.Metric, r.Trials = s.Method, s.Metric, max(r.Trials, s.Trials)
			switch {
			case over(&own[i]):
			case s.Tuner:
				r.Tuner = own[i].ID
			default:
				r.Live++
			}
		}
		trials := searchRows(own)
		r.Begun = begunOf(trials)
		if i := slices.IndexFunc(trials, func(t trialRow) bool { return t.Metric != nil }); i >= 0 {
			r.Best, r.Trial = trials[i].Metric, trials[i].Trial
		}
	}
	return rows
}

func newSearchCancel() *cobra.Command {
	return &cobra.Command{
		Use: "cancel NAME", Short: "End a search: its tuner, then the trials that run or wait", Args: cobra.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			if err := endTuner(c, args[0]); err != nil { // first: it would start others
				return err
			}
			unlock, err := lockSearch(args[0])
			if err != nil {
				return fmt.Errorf("%w; end it first (Ctrl-C), it would start other trials", err)
			}
			defer unlock()
			list, err := searchJobs(c.Context(), args[0])
			if err != nil {
				return err
			}
			for i := range list {
				if over(&list[i]) {
					continue
				}
				j, err := client.Connect().Act(c.Context(), list[i].ID, "cancel")
				if err != nil {
					return err
				}
				if err := tellJob(c, &j, false); err != nil {
					return err
				}
			}
			return nil
		},
	}
}

// endTuner cancels the job of a search's tuner and waits until it is gone.
func endTuner(c *cobra.Command, name string) error {
	list, err := searchJobs(c.Context(), name)
	if err != nil {
		return err
	}
	cl := client.Connect()
	for i := range list {
		if !list[i].Submission.Trial.Tuner || over(&list[i]) {
			continue
		}
		if _, err := cl.Act(c.Context(), list[i].ID, "cancel"); err != nil {
			return err
		}
		j, err := cl.WaitOn(c.Context(), list[i].ID) // over the daemon's death
		if err != nil {
			return err
		}
		if err := tellJob(c, &j, false); err != nil {
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
				fmt.Fprintf(c.OutOrStdout(), "%-18s %s\n%-18s knobs: %s. Source: %s\n", m.Name, m.What, "", m.Knobs, m.Source)
			}
		},
	}
}
