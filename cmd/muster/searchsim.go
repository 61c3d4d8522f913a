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
	wl, spec, err := f.searchWorld()
	if err != nil {
		return err
	}
	job, err := f.searchJob(file, wl, spec)
	if err != nil {
		return err
	}
	entries, err := f.prepare(wl, spec)
	if err != nil {
		return err
	}
	setups, err := f.setups()
	if err != nil {
		return usage(err)
	}
	setups, labels, err := f.searches(file, job, setups)
	if err != nil {
		return usage(err)
	}
	outs := sim.RunAll(c.Context(), spec, entries, setups, wallClock())
	for i := range outs {
		if outs[i].Err != nil {
			return fmt.Errorf("%s: %w", outs[i].Label, outs[i].Err)
		}
		if s := outs[i].Setup.World.Search; !s.Found.Known {
			why := "they wait for ever"
			if s.Found.Refused > 0 {
				why = fmt.Sprintf("the cluster cannot run what the job of %s asks for", file.Path)
			}
			return fmt.Errorf("%s, %s: no trial ran to a report: %s", labels[i].method, outs[i].Label, why)
		}
	}
	return writeSearches(c.OutOrStdout(), outs, labels, f.json == "-", len(entries) > 0)
}

// searchWorld is the workload beside the search, if there is one, and the cluster.
func (f *simFlags) searchWorld() (*trace.Workload, *cluster.Spec, error) {
	if f.demo || f.trace != "" {
		return f.load1()
	}
	if f.cluster == "" {
		return nil, nil, usage(
			errors.New("--search: say on which --cluster, such as 1x8xH100-80GB, or beside which --trace"))
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
	job.User = "search"
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

// searchLabel is what a run of a table differs in.
type searchLabel struct {
	method string
	atOnce int
}

// searches makes of each setup one for each method and number of runs at once.
func (f *simFlags) searches(file *tuner.File, job cluster.Job, setups []sim.Setup) (all []sim.Setup,
	labels []searchLabel, err error) {
	step, err := cluster.ParseDuration(file.Model.Step)
	if err != nil || step <= 0 {
		return nil, nil, fmt.Errorf("%s: simulate.step: %q is not a time such as 30s", file.Path, file.Model.Step)
	}
	begin, err := cluster.ParseDuration(file.Model.Begin)
	if err != nil || begin < 0 {
		return nil, nil, fmt.Errorf("%s: simulate.begin: %q is not a time such as 1d", file.Path, file.Model.Begin)
	}
	if m := &file.Model; !(m.Spread >= 0 && m.Spread < 5 && m.Noise >= 0 && m.Noise < 5 && m.Scaled > 0 &&
		m.Scaled <= 1 && m.Fused >= 0 && m.Fused <= 100) {
		return nil, nil, fmt.Errorf(
			"%s: simulate: spread and noise are 0 or more, scaled is above 0 and at most 1, fused 0 or more", file.Path)
	}
	atOnce := []int{file.AtOnce}
	if f.atOnce != "" {
		atOnce = nil
		for _, part := range strings.Split(f.atOnce, ",") {
			n, err := strconv.Atoi(strings.TrimSpace(part))
			if err != nil || n < 1 || n > search.MaxTrials {
				return nil, nil, fmt.Errorf("--at-once %s: give numbers from 1 to %d, with commas", f.atOnce,
					search.MaxTrials)
			}
			atOnce = append(atOnce, n)
		}
	}
	for _, set := range setups {
		for _, name := range strings.Split(f.methods, ",") {
			m, err := file.As(strings.TrimSpace(name))
			if err != nil {
				return nil, nil, err
			}
			for _, n := range atOnce {
				s, err := search.New(m)
				if err != nil {
					return nil, nil, err
				}
				one := set
				one.World.Search = &sim.Searching{Search: s, Scale: m.Scale, AtOnce: n, Job: job, After: begin,
					Unknown: f.estimates == "none", Curves: sim.Curves{Params: file.Params,
						Seed: f.seed, Unit: file.Method.Min, Step: step, Spread: file.Model.Spread,
						Noise:  file.Model.Noise,
						Scaled: file.Model.Scaled, Fused: file.Model.Fused}}
				all = append(all, one)
				labels = append(labels, searchLabel{tuner.MethodText(&m), n})
			}
		}
	}
	return all, labels, nil
}

// simSearchRow is a line of the table.
type simSearchRow struct {
	Method   string  `json:"method"`
	AtOnce   int     `json:"at_once"`
	Policy   string  `json:"policy"`
	Placer   string  `json:"placer"`
	Trials   int     `json:"trials"`
	Runs     int     `json:"runs"`
	Steps    int64   `json:"steps"`
	GPUHours float64 `json:"gpu_hours"`
	Makespan float64 `json:"makespan_s"`
	Reported float64 `json:"best_reported"`
	Loss     float64 `json:"best_loss"`
	Optimum  float64 `json:"least_loss"`
	Others   float64 `json:"others_mean_jct_s,omitempty"`
	Partial  bool    `json:"partial,omitempty"`
	Hash     string  `json:"hash"`
}

// writeSearches writes what came of the searches. BEST is what the best trial is
// worth at full size after the whole budget, LEAST what the best of all
// configurations would be.
func writeSearches(w io.Writer, outs []sim.Outcome, labels []searchLabel, asJSON, others bool) error {
	rows := []simSearchRow{}
	for i := range outs {
		s := outs[i].Setup.World.Search
		r := simSearchRow{Method: labels[i].method, AtOnce: labels[i].atOnce, Policy: outs[i].Label,
			Placer: outs[i].Setup.Placer, Trials: s.Search.Trials(), Runs: s.Found.Runs,
			Steps: s.Found.Steps, GPUHours: s.Found.GPUHours, Makespan: s.Found.End.Sub(s.Found.Begin).Seconds(),
			Reported: s.Found.Best.Metric, Loss: s.Found.Loss,
			Optimum: s.Found.Optimum, Partial: !s.Found.Done, Hash: fmt.Sprintf("%016x", outs[i].Hash)}
		r.Others = othersJCT(&outs[i])
		rows = append(rows, r)
	}
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

// othersJCT is the mean time from submission to end of the jobs besides the search.
func othersJCT(out *sim.Outcome) float64 {
	sum, n := 0.0, 0
	for i, j := range out.Run.Jobs {
		if r := &out.Run.Records[i]; j.User != "search" && r.End != cluster.Never {
			sum, n = sum+r.End.Sub(r.Submit).Seconds(), n+1
		}
	}
	return sum / float64(max(1, n))
}

func secondsText(s float64) string { return fmt.Sprintf("%.2fh", s/3600) }
