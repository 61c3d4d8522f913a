package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/config"
	"github.com/muster-gpu/muster/search"
	"github.com/muster-gpu/muster/search/play"
	"github.com/muster-gpu/muster/search/tuner"
	"github.com/muster-gpu/muster/sim"
	"github.com/muster-gpu/muster/trace"
)

// simSearch plays a search in the simulator, beside a workload or alone.
func simSearch(c *cobra.Command, f *simFlags) error {
	if f.until != "" || f.tile > 1 {
		return usage(errors.New("--search: runs to its end; --until and --tile are not for it"))
	}
	if f.json != "" && f.json != "-" || f.csv != "" || f.html != "" || f.jobs != "" || f.journal != "" {
		return usage(errors.New("--search: writes its table, or with --json - that as JSON; --csv, --html, --jobs-csv and --journal are not for it"))
	}
	file, err := tuner.Read(f.search, "", c.InOrStdin())
	if err != nil {
		return usage(err)
	}
	wl, spec, err := f.besideOrAlone("--search")
	if err != nil {
		return err
	}
	job, err := f.searchJob(file, wl, spec)
	if err != nil {
		return err
	}
	entries, setups, err := f.prepareAll(wl, spec)
	if err != nil {
		return err
	}
	plays, err := f.searches(file, job, setups)
	if err != nil {
		return usage(err)
	}
	setups = nil
	for i := range plays {
		setups = append(setups, plays[i].Setup)
	}
	outs := sim.RunAll(c.Context(), spec, entries, setups, wallClock())
	rows := []play.Row{}
	for i := range outs {
		r, err := play.RowOf(file, &plays[i], &outs[i])
		if err != nil {
			return err
		}
		rows = append(rows, r)
	}
	return writeSearches(c.OutOrStdout(), rows, f.json == "-", len(entries) > 0)
}

// besideOrAlone is the workload beside what a flag plays, if there is one, and the cluster.
func (f *simFlags) besideOrAlone(flag string) (*trace.Workload, *cluster.Spec, error) {
	if f.demo || f.trace != "" {
		return f.load1()
	}
	if f.cluster == "" {
		return nil, nil, usage(
			fmt.Errorf("%s: say on which --cluster, such as 1x8xH100-80GB, or beside which --trace", flag))
	}
	spec, err := config.Load(f.cluster)
	return &trace.Workload{Name: "nothing else"}, spec, usage(err)
}

// searchJob is the job of a run of the search's trials, fitted to the cluster like
// those of the workload.
func (f *simFlags) searchJob(file *tuner.File, wl *trace.Workload, spec *cluster.Spec) (cluster.Job, error) {
	sub := file.Job
	if sub.Kind == "" {
		sub.Kind = "trial"
	}
	job, err := sub.Job()
	if err != nil {
		return job, fmt.Errorf("%s: job: %w", file.Path, err)
	}
	job.User = play.User
	both := *wl
	both.Jobs = append(slices.Clone(wl.Jobs), trace.Entry{Job: job})
	if f.queues == "auto" {
		sim.AutoQueues(spec, &both)
	}
	est, form, err := f.knowledge()
	if err != nil {
		return job, usage(err)
	}
	one := &trace.Workload{Jobs: []trace.Entry{{Job: job}}}
	prepared := sim.Prepare(one, spec, est, form)
	return prepared[0].Job, usage(f.checkpoints(prepared))
}

// searches makes of each setup one for each method and number of runs at once.
func (f *simFlags) searches(file *tuner.File, job cluster.Job, setups []sim.Setup) ([]play.Play, error) {
	o := play.Options{Job: job, Seed: f.seed, Unknown: f.estimates == "none"}
	for _, name := range strings.Split(f.methods, ",") {
		o.Methods = append(o.Methods, strings.TrimSpace(name))
	}
	if f.atOnce != "" {
		for _, part := range strings.Split(f.atOnce, ",") {
			n, err := strconv.Atoi(strings.TrimSpace(part))
			if err != nil || n < 1 || n > search.MaxTrials {
				return nil, fmt.Errorf("--at-once %s: give numbers from 1 to %d, with commas", f.atOnce,
					search.MaxTrials)
			}
			o.AtOnce = append(o.AtOnce, n)
		}
	}
	return play.Plays(file, o, setups)
}

// writeSearches writes what came of the searches.
func writeSearches(w io.Writer, rows []play.Row, asJSON, others bool) error {
	if asJSON {
		return json.NewEncoder(w).Encode(map[string]any{"searches": rows})
	}
	t := tabwriter.NewWriter(w, 0, 4, 2, ' ', 0)
	head := "METHOD\tAT ONCE\tPOLICY\tTRIALS\tRUNS\tSTEPS\tGPU-HOURS\tMAKESPAN\tBEST\tLEAST\tHASH"
	if others {
		head = strings.Replace(head, "\tHASH", "\tOTHERS' MEAN JCT\tHASH", 1)
	}
	fmt.Fprintln(t, head)
	for i := range rows {
		r := &rows[i]
		mark := ""
		if r.Partial {
			mark = " (partial)"
		}
		fmt.Fprintf(t, "%s%s\t%d\t%s\t%d\t%d\t%d\t%.1f\t%s\t%.3f\t%.3f\t", r.Method, mark, r.AtOnce, r.Policy, r.Trials,
			r.Runs, r.Steps, r.GPUHours, secondsText(r.Makespan), r.Loss, r.Optimum)
		if others {
			fmt.Fprintf(t, "%s\t", secondsText(r.Others))
		}
		fmt.Fprintln(t, r.Hash)
	}
	return t.Flush()
}

func secondsText(s float64) string { return fmt.Sprintf("%.2fh", s/3600) }
