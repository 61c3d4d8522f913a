package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/muster-gpu/muster/api"
	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/policy"
	"github.com/muster-gpu/muster/report"
	"github.com/muster-gpu/muster/sim"
	"github.com/muster-gpu/muster/trace"
	"github.com/muster-gpu/muster/tune"
)

// tuneFlags are the flags of muster tune: a world as in muster sim, and what
// is wanted.
type tuneFlags struct {
	simFlags
	journals                  []string
	objective, current, block string
	guard                     string
	bound                     float64
	notes                     []string      // of the history
	past                      *tune.History // nil: it is no journal
	costs                     []string      // what is said of stops
	resamples                 int
	holdout, asJSON, apply    bool
	anyway                    bool // --force
	sure                      float64
}

// tuned is what muster tune says, in JSON.
type tuned struct {
	History     string      `json:"history"`
	Jobs        int         `json:"jobs"`
	Cluster     string      `json:"cluster"`
	Placer      string      `json:"placer"`
	Assumptions []string    `json:"assumptions"`
	Left        []tune.Left `json:"left_out,omitempty"`
	Notes       []string    `json:"notes,omitempty"`
	Fit         *tune.Fit   `json:"fit,omitempty"`
	*tune.Result
	Applied *api.PolicyChange `json:"applied,omitempty"` // with the jobs that the dry run said would start and leave
}

func newTune() *cobra.Command {
	f := &tuneFlags{}
	c := &cobra.Command{
		Use:   "tune [flags]",
		Short: "Choose a policy by replaying a cluster's own history under all that fit it",
		Long: "Without --trace, --from-journal or --demo the history is that of the daemon: every segment of its journal that is still kept\n" +
			"(admins may read it), on its nodes and queues, against its policy.\n\n" +
			"Replays a history under the policies and their main knobs, and says which one would have served it best by the objective,\n" +
			"how sure that is (bootstrap over weeks), and what it would have changed for which users. Policies that need what the history\n" +
			"does not hold are left out, with the reason. Objectives (less is better):\n" +
			"  mean-jct   mean time from submission to end\n" +
			"  p95-wait   95th percentile of the time spent waiting\n" +
			"  fairness   95th percentile of the finish-time ratio: JCT / JCT alone on an equal part of the cluster\n" +
			"  deadlines  share of deadlines missed\n" +
			"  weighted:mean-jct=0.7,p95-wait=0.3   each divided by what it is under the policy in force",
		Example: "  muster tune                  # the daemon's own history\n" +
			"  muster tune --demo\n" +
			"  muster tune --trace history.jsonl.zst --cluster cluster.yaml --current multifactor\n" +
			"  muster tune --trace jobs.csv --load 0.9 --objective weighted:mean-jct=0.7,p95-wait=0.3 --holdout\n" +
			"  muster tune --trace jobs.csv --load 0.9 --policies fifo+easy,las,tiresias-l:promote=4 --estimates noise:0.5",
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error { return f.run(c) },
	}
	f.flags(c)
	return c
}

func (f *tuneFlags) flags(c *cobra.Command) {
	f.register(c)
	fl := c.Flags()
	// Preemption must cost something, else the policies that preempt win by it.
	f.registerWorld(fl, "stated", "30s", "1m")
	fl.StringVar(&f.policies, "policies", "",
		"candidates instead of Muster's own list, as POLICY[:knob=value,...][+BACKFILL]; tried whatever they need")
	fl.StringVar(&f.placers, "place", "", "placer: "+placerNames()+" (default: the journal's, else best-fit)")
	fl.StringSliceVar(&f.journals, "from-journal", nil,
		"journals of one daemon in their order (muster journal export --segment N): their jobs, cluster and policy in force")
	fl.StringVar(&f.objective, "objective", "mean-jct",
		"what is to be least: mean-jct, p95-wait, fairness, deadlines or weighted:NAME=WEIGHT,...")
	fl.StringVar(&f.current, "current", "",
		"the policy in force, against which gains are counted, as POLICY[:knob=value,...][+BACKFILL] (default: the journal's, else "+daemonPolicy+", as muster serve has it)")
	fl.StringVar(&f.block, "block", "",
		"length of the stretches that the bootstrap draws (default: 7d, or 1d where there are fewer than four weeks)")
	fl.IntVar(&f.resamples, "resamples", 1000, "how often the bootstrap draws")
	fl.BoolVar(&f.holdout, "holdout", false,
		"also choose by every second week, and score the choice on the others (each week under what all others choose is always said)")
	fl.BoolVar(&f.apply, "apply", false,
		"set what was chosen as the daemon's policy, as muster policy set does, after saying what that does to its jobs")
	fl.Float64Var(&f.sure, "sure", 0.95,
		"with --apply: only if the choice is better than the policy in force in this share of the resamples")
	fl.BoolVar(&f.anyway, "force", false,
		"with --apply: also where there is nothing to compare the choice to, because the replay of the policy in force did not end")
	fl.StringVar(&f.guard, "guard", "7d",
		"with --apply: for so long the policy before continues as a shadow, and comes back if it would have done better; 0s: not")
	fl.Float64Var(&f.bound, "bound", 0.05, "with --guard: by what part it has to be better")
	fl.BoolVar(&f.asJSON, "json", false, "JSON")
}

func (f *tuneFlags) run(c *cobra.Command) error {
	opt, err := f.options()
	if err != nil {
		return usage(err)
	}
	wl, spec, err := f.history(c)
	if err != nil {
		return err
	}
	entries, err := f.prepare(wl, spec)
	if err != nil {
		return err
	}
	if f.past != nil {
		f.costs = f.past.Costs.Fill(entries, c.Flags().Changed)
	}
	base, err := f.baseSetup()
	if err != nil {
		return usage(err)
	}
	facts := tune.Look(entries, spec, tune.TableOf(base.World.Model))
	if opt.Objective.Uses(tune.Deadlines) && facts.Deadlines == 0 {
		return fmt.Errorf("--objective %s: no job of %s has a deadline", opt.Objective, wl.Name)
	}
	try, left, current, err := f.candidates(facts)
	if err != nil {
		return usage(err)
	}
	opt.Horizon = tune.Horizon(entries)
	base.World.Until = opt.Horizon
	setups, names, err := f.tries(base, try)
	if err != nil {
		return usage(err)
	}
	errw := c.ErrOrStderr()
	introduce(errw, wl, spec)
	for _, n := range f.notes {
		fmt.Fprintln(errw, "note: "+n)
	}
	runs, err := f.replay(c, spec, entries, setups)
	if err != nil {
		return err
	}
	r, err := tune.Choose(names, runs, current, opt)
	if err != nil {
		return err
	}
	t := &tuned{History: wl.Name, Jobs: len(entries), Cluster: describe(spec), Placer: f.placers,
		Assumptions: f.assumptions(), Left: left, Notes: f.notes, Result: r, Fit: f.fitOf(&runs[current])}
	if !f.asJSON {
		if err := t.write(c.OutOrStdout()); err != nil {
			return err
		}
	}
	var failed error
	if f.apply {
		failed = f.applyTo(c, t, try)
	}
	if f.asJSON {
		enc := json.NewEncoder(c.OutOrStdout())
		enc.SetIndent("", "  ")
		return errors.Join(failed, enc.Encode(t))
	}
	return failed
}

// options reads the flags that say what is wanted.
func (f *tuneFlags) options() (tune.Options, error) {
	opt := tune.Options{Resamples: f.resamples, Seed: f.seed, Holdout: f.holdout}
	var err error
	if opt.Objective, err = tune.ParseObjective(f.objective); err != nil {
		return opt, err
	}
	if f.resamples < 0 || f.resamples > 100000 {
		return opt, fmt.Errorf("--resamples %d: want 0 (no bootstrap) to 100000", f.resamples)
	}
	if !(f.sure >= 0 && f.sure <= 1) {
		return opt, fmt.Errorf("--sure %g: want a share of resamples between 0 and 1", f.sure)
	}
	if !(f.bound >= 0 && f.bound <= 1) {
		return opt, fmt.Errorf("--bound %g: want a part between 0 and 1", f.bound)
	}
	if _, err := durationFlag("guard", f.guard); err != nil {
		return opt, err
	}
	if f.block != "" {
		if opt.Block, err = durationFlag("block", f.block); err != nil {
			return opt, err
		}
		if opt.Block < time.Hour {
			return opt, fmt.Errorf("--block %s: want an hour at least", f.block)
		}
	}
	return opt, nil
}

// candidates are those to try, the policy in force among them, and where it stands.
func (f *tuneFlags) candidates(facts tune.Facts) (try []tune.Candidate, left []tune.Left, current int, err error) {
	force := tune.Parse(f.current)
	if err := force.Check(); err != nil {
		return nil, nil, 0, fmt.Errorf("--current: %w", err)
	}
	if f.policies == "" {
		try, left = tune.Candidates(facts)
	} else {
		for _, text := range policy.Split(f.policies) {
			try = append(try, tune.Parse(text))
		}
	}
	if try, current, err = tune.With(try, force); err != nil {
		return nil, nil, 0, fmt.Errorf("--policies: %w", err)
	}
	return try, left, current, nil
}

// tries makes a setup of each candidate.
func (f *tuneFlags) tries(base sim.Setup, try []tune.Candidate) (setups []sim.Setup, names []string, err error) {
	for _, c := range try {
		s := base
		s.Policy, s.Placer = c.Policy, f.placers
		if c.Backfill != "" {
			if err := s.SetBackfill(c.Backfill); err != nil {
				return nil, nil, err
			}
		}
		setups, names = append(setups, s), append(names, c.String())
	}
	return setups, names, nil
}

// replay runs the setups side by side.
func (f *tuneFlags) replay(c *cobra.Command, spec *cluster.Spec, entries []trace.Entry,
	setups []sim.Setup) ([]report.Run, error) {
	errw, clock := c.ErrOrStderr(), wallClock()
	bar := report.NewProgress(errw, isTTY(errw), 0, "replaying", clock)
	for i := range setups {
		part := bar.Part(len(entries))
		setups[i].World.Progress = func(done, _ int, _ cluster.Time) { part.Update(done, "") }
	}
	outs := sim.RunAll(c.Context(), spec, entries, setups, clock)
	bar.Done()
	if c.Context().Err() != nil {
		return nil, fmt.Errorf("%w: nothing was chosen, because not every candidate saw the whole history",
			c.Context().Err())
	}
	var runs []report.Run
	for i := range outs {
		if outs[i].Err != nil {
			return nil, fmt.Errorf("%s: %w", outs[i].Label, outs[i].Err)
		}
		runs = append(runs, outs[i].Run)
	}
	printRejected(errw, runs)
	return runs, nil
}

// assumptions are what a replay takes for granted and a reader should know.
func (f *tuneFlags) assumptions() []string {
	return append(slices.Clone(f.costs),
		fmt.Sprintf("where a job states nothing else, writing a checkpoint takes %s, restoring one %s, starting %s",
			f.ckptCost, f.restart, f.startup),
		"run times are known to the scheduler as --estimates "+f.estimates+" says",
		"users would have submitted the same jobs at the same times under every policy",
	)
}

// write says it for people.
func (t *tuned) write(w io.Writer) error {
	t.table(w)
	t.leftOut(w)
	if t.Fit != nil {
		writeFit(w, t.Fit, t.Rows[t.Current].Policy)
	}
	t.verdict(w)
	t.heldBack(w)
	t.changes(w)
	for _, h := range t.Holdout {
		t.held(w, &h)
	}
	fmt.Fprintln(w, "assumed:")
	for _, a := range t.Assumptions {
		fmt.Fprintln(w, "  "+a)
	}
	return nil
}

func (t *tuned) table(w io.Writer) {
	tw := tabwriter.NewWriter(w, 0, 4, 2, ' ', 0)
	fmt.Fprintln(tw, "POLICY\tMEAN JCT\tP95 WAIT\tP95 RATIO\tMISSED\tPREEMPTED\tGAIN\t95 % INTERVAL\tBEST IN\tBETTER IN")
	for i := range t.Rows {
		r := &t.Rows[i]
		if r.Out != "" {
			continue
		}
		mark := ""
		if i == t.Current {
			mark = " (in force)"
		}
		interval := "-"
		if r.Low != nil && r.High != nil {
			interval = percent(r.Low) + " .. " + percent(r.High)
		}
		fmt.Fprintf(tw, "%s%s\t%s\t%s\t%s\t%s\t%d\t%s\t%s\t%s\t%s\n", r.Policy, mark, lasted(r.MeanJCT),
			lasted(r.P95Wait), known(r.Fairness, "%.2f"),
			percent(r.Missed), r.Preempted, percent(r.Gain), interval, percent(r.Best), percent(r.Better))
	}
	tw.Flush()
	for i := range t.Rows {
		if r := &t.Rows[i]; r.Out != "" {
			fmt.Fprintf(w, "not comparable: %s: %s\n", r.Policy, r.Out)
		}
	}
}

// leftOut says once for each reason which policies were left out for it.
func (t *tuned) leftOut(w io.Writer) {
	var whys []string
	names := map[string][]string{}
	for _, l := range t.Left {
		if names[l.Why] == nil {
			whys = append(whys, l.Why)
		}
		names[l.Why] = append(names[l.Why], l.Policy)
	}
	for _, why := range whys {
		fmt.Fprintf(w, "left out: %s: %s\n", strings.Join(names[why], ", "), why)
	}
	fmt.Fprintln(w)
}

// fitOf compares the replay of the policy in force with the history, if that is what was replayed.
func (f *tuneFlags) fitOf(run *report.Run) *tune.Fit {
	if f.past == nil || f.cluster != "" || f.load != 0 {
		return nil
	}
	h := &f.past.Header
	if f.current != tuneName(h.Policy, h.Backfill) || f.placers != h.Placer {
		return nil // it is another one that it is weighed against
	}
	return f.past.Fit(run)
}

// writeFit says how far the replay of the policy in force is from what happened.
func writeFit(w io.Writer, m *tune.Fit, policy string) {
	by := fmt.Sprintf("%.0f %% longer", 100*m.Off)
	if m.Off < 0 {
		by = fmt.Sprintf("%.0f %% shorter", -100*m.Off)
	}
	warning := ""
	if m.Far() {
		warning = "warning: the recommendation rests on a model that does not fit what happened: "
	}
	fmt.Fprintf(w, "%smean JCT of the %d jobs that came and ended under %s: recorded %s, in its replay %s, %s\n",
		warning, m.Jobs, policy, precisely(m.Recorded), precisely(m.Replayed), by)
	if warning != "" {
		fmt.Fprintf(w, "  (a replay knows no nodes that were away, no slower GPUs and neighbours than --perf says, and no costs but those below)\n\n")
	}
}

// precisely prints seconds, short ones to a tenth.
func precisely(s float64) string {
	if s < 60 {
		return fmt.Sprintf("%.1f s", s)
	}
	return lasted(&s)
}

// verdict says what was chosen and how sure it is.
func (t *tuned) verdict(w io.Writer) {
	win, force := &t.Rows[t.Winner], &t.Rows[t.Current]
	switch {
	case t.Alone != "":
		fmt.Fprintf(w, "choose %s: by %s nothing whose replay ends is better; by how much it is better than %s cannot be said, there is nothing to compare to: in the replay of the policy in force %s",
			win.Policy, t.Objective, force.Policy, t.Alone)
	case t.Winner != t.Current:
		fmt.Fprintf(w, "choose %s: by %s it is %s better than %s", win.Policy, t.Objective, percent(win.Gain),
			force.Policy)
	case t.Least != t.Current:
		fmt.Fprintf(w, "keep %s: by %s nothing that was tried is surely better over this history", force.Policy,
			t.Objective)
	default:
		fmt.Fprintf(w, "keep %s: by %s nothing that was tried is better over this history", force.Policy, t.Objective)
	}
	if t.Least != t.Winner {
		why := "taken one by one, it is farther behind in the " + blockName(t.Block)
		if t.Others {
			why = win.Policy + " was less behind over other histories (docs/howto/choose-a-policy.md), and this one is too short to say otherwise"
		}
		better := percent(t.Rows[t.Least].Gain) + " better"
		if t.Alone != "" {
			better = "better"
		}
		fmt.Fprintf(w, "; %s would be %s over all of it, which may be chance: %s", t.Rows[t.Least].Policy, better, why)
	}
	if win.Best == nil {
		fmt.Fprintln(w, "; how sure that is cannot be said: the history is one block (a few weeks, or days, would say)")
		return
	}
	fmt.Fprintf(w, "\n%d resamples of %d %s: it is the best in %s of them", t.Resamples, t.Blocks, blockName(t.Block),
		percent(win.Best))
	if t.Winner != t.Current && win.Low != nil {
		fmt.Fprintf(w, " and better than %s in %s; its gain lies between %s and %s in 95 %% of them", force.Policy,
			percent(win.Better), percent(win.Low), percent(win.High))
	}
	fmt.Fprintln(w)
	if t.Block < 7*24*time.Hour {
		fmt.Fprintln(w, "the stretches are shorter than a week, and a backlog goes over from one to the next: be less sure than these numbers")
	}
}

// mostChanged is how many of the users or queues that gain most, and of those that lose most, are shown.
const mostChanged = 5

// changes says what would have changed for users or queues.
func (t *tuned) changes(w io.Writer) {
	if t.Winner == t.Current || len(t.Changes) == 0 {
		return
	}
	n, worse := len(t.Changes), 0
	for i := range t.Changes {
		if t.Changes[i].JCTNow > t.Changes[i].JCTThen {
			worse++
		}
	}
	fmt.Fprintf(w, "\nwhat it would have changed: %d of %d %ss would have had a longer mean JCT\n", worse, n, t.By)
	tw := tabwriter.NewWriter(w, 0, 4, 2, ' ', 0)
	fmt.Fprintf(tw, "%s\tJOBS\tMEAN WAIT\t\tMEAN JCT\t\t\n", t.By)
	for i := range t.Changes {
		if i >= mostChanged && i < n-mostChanged {
			if i == mostChanged {
				fmt.Fprintf(tw, "... and %d between (--json lists them)\n", n-2*mostChanged)
			}
			continue
		}
		c := &t.Changes[i]
		who := c.Who
		if who == "" {
			who = "(none)"
		}
		fmt.Fprintf(tw, "%s\t%d\t%s\t-> %s\t%s\t-> %s\t\n", who, c.Jobs, lasted(&c.WaitThen), lasted(&c.WaitNow),
			lasted(&c.JCTThen), lasted(&c.JCTNow))
	}
	tw.Flush()
	fmt.Fprintln(w)
}

// heldBack says how choosing did on parts of the history that it did not choose on.
func (t *tuned) heldBack(w io.Writer) {
	l := t.LeftOut
	if l == nil {
		fmt.Fprintln(w, "held back: nothing could be; how the choice does on jobs that it was not chosen by is not known")
		return
	}
	fmt.Fprintf(w, "held back: each of the %d %s in turn, under what the others choose: ", l.Blocks, blockName(t.Block))
	if force := t.Rows[t.Current].Policy; t.Alone == "" {
		gain := 100 * (1 - l.Cost/max(l.Current, 1e-9))
		word := "better"
		if gain < 0 {
			gain, word = -gain, "worse"
		}
		fmt.Fprintf(w, "%.1f %% %s than %s over them all, better in %d of them, worse in %d; ", gain, word, force,
			l.Better, l.Worse)
	}
	fmt.Fprintf(w, "%.1f %% behind %s, in hindsight the best one for all\n", 100*l.Behind, l.Best)
}

// held says what a choice by half of the history was worth on the other half.
func (t *tuned) held(w io.Writer, h *tune.Holdout) {
	if h.Chosen == "" {
		fmt.Fprintf(w, "holdout: the %s %s hold nothing to judge by\n", h.Tuned, blockName(t.Block))
		return
	}
	fmt.Fprintf(w, "holdout: tuned on the %s %s: %s; on the others it is %.1f %% behind the best there (%s)%s\n",
		h.Tuned, blockName(t.Block), h.Chosen, 100*h.Behind, h.Best, t.than(h.Cost, h.Current))
}

// than compares a cost with that of the policy in force, if that is a measure.
func (t *tuned) than(cost, force float64) string {
	if t.Alone != "" {
		return ""
	}
	return fmt.Sprintf(", and %.1f %% better than the policy in force", 100*(1-cost/force))
}

// blockName says what the history was cut into.
func blockName(d time.Duration) string {
	switch d {
	case 7 * 24 * time.Hour:
		return "weeks"
	case 24 * time.Hour:
		return "days"
	}
	return "stretches of " + cluster.FormatDuration(d)
}

// lasted prints seconds as a duration of sensible length; a dash if unknown.
func lasted(s *float64) string {
	if s == nil {
		return "-"
	}
	d := time.Duration(*s * float64(time.Second))
	if d >= time.Hour {
		return cluster.FormatDuration(d.Round(time.Minute))
	}
	return cluster.FormatDuration(d.Round(time.Second))
}

// percent prints a share; a dash if unknown.
func percent(v *float64) string {
	if v == nil {
		return "-"
	}
	if p := 100 * *v; math.Abs(p) < 10 {
		return fmt.Sprintf("%.1f %%", p)
	}
	return fmt.Sprintf("%.0f %%", 100**v)
}
