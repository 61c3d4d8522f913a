package main

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/config"
	"github.com/muster-gpu/muster/policy"
	"github.com/muster-gpu/muster/report"
	"github.com/muster-gpu/muster/service"
	"github.com/muster-gpu/muster/serving/scale"
	"github.com/muster-gpu/muster/sim"
	"github.com/muster-gpu/muster/trace"
)

// simServices plays services in the simulator, beside a workload or alone.
func simServices(c *cobra.Command, f *simFlags) error {
	if f.tile > 1 || f.search != "" || f.starts > 0 || f.csv != "" || f.jobs != "" {
		return usage(errors.New("--services: --tile, --search, --score-starts, --csv and --jobs-csv are not for it; --json and --html have all figures"))
	}
	if f.requests == "" {
		return usage(errors.New("--services: say with --requests which requests come"))
	}
	scale.ReadFile = config.ReadFile // of weights, with the rights of the user who names them
	if f.serviceWeights != "" {
		text, err := config.ReadWeights(f.serviceWeights)
		if err != nil {
			return usage(fmt.Errorf("--service-weights %s: %w", f.serviceWeights, err))
		}
		scale.Weights = text
	}
	services, err := config.LoadServices(f.services)
	if err != nil {
		return usage(err)
	}
	for i := range services {
		for k := range services[i].Variants {
			if v := &services[i].Variants[k]; v.Measure {
				return usage(fmt.Errorf("%s: service %s: variant %s: the simulator needs a profile: muster service profile --file %s prints the file with what was measured",
					f.services, services[i].Name, v.Name, services[i].Name))
			}
		}
	}
	load, err := config.LoadRequests(f.requests, services)
	if err != nil {
		return usage(err)
	}
	wl, spec, err := f.besideOrAlone("--services")
	if err != nil {
		return err
	}
	entries, err := f.prepare(wl, spec)
	if err != nil {
		return err
	}
	setups, err := f.setups(spec)
	if err != nil {
		return usage(err)
	}
	setups, labels, err := servicesOf(setups, services, load, f.scaling)
	if err != nil {
		return usage(err)
	}
	outs := sim.RunAll(c.Context(), spec, entries, setups, wallClock())
	for i := range outs {
		if outs[i].Err != nil {
			return fmt.Errorf("%s: %w", outs[i].Label, outs[i].Err)
		}
	}
	return f.writeServices(c.OutOrStdout(), c.ErrOrStderr(), playedOf(outs, labels, wl, spec))
}

// servicesOf makes of each setup one for each scaling policy.
func servicesOf(setups []sim.Setup, services []service.Service, load *config.RequestLoad,
	scaling string) (all []sim.Setup,
	labels []string, err error) {
	texts := policy.Split(scaling)
	if scaling == "" {
		texts = []string{""}
	}
	for _, set := range setups {
		for _, text := range texts {
			s := &sim.Serving{Services: services}
			if s.Stream, err = load.Stream(); err != nil {
				return nil, nil, err
			}
			own := make([]string, len(services))
			for i := range services {
				own[i] = cmp.Or(text, services[i].Scaling)
			}
			if s.Scaling, err = scale.Policies(services, own); err != nil {
				return nil, nil, err
			}
			one := set
			one.World.Serving = s
			all, labels = append(all, one), append(labels, text)
		}
	}
	return all, labels, nil
}

// servicesPlayed are the services under every setup, and the books of the workload's jobs under each.
type servicesPlayed struct {
	rows []report.Service
	runs []report.Run
	sums []report.Summary
}

// playedOf takes the results of setups with a scaling policy each; the first jobs of each are the workload's.
func playedOf(outs []sim.Outcome, labels []string, wl *trace.Workload, spec *cluster.Spec) *servicesPlayed {
	p := &servicesPlayed{rows: []report.Service{}, sums: []report.Summary{}}
	for i := range outs {
		played, run := outs[i].Setup.World.Serving, outs[i].Run.OfFirst(len(wl.Jobs))
		run.Trace, run.Cluster = wl.Name, describe(spec)
		if labels[i] != "" {
			run.Policy += " with " + labels[i]
		}
		for k := range played.Services {
			s, t := &played.Services[k], &played.Served[k]
			add := func(name string, t *sim.Served) {
				r := rowOf(t)
				r.Service, r.Scaling, r.Policy = name, cmp.Or(labels[i], s.Scaling), outs[i].Label
				r.Hash = fmt.Sprintf("%016x", outs[i].Hash)
				run.Services = append(run.Services, r)
			}
			if add(s.Name, t); t.Canary != nil { // of these
				add(s.Name+"/"+s.Variants[len(s.Variants)-1].Name, t.Canary)
			}
		}
		p.rows, p.runs, p.sums = append(p.rows, run.Services...), append(p.runs, run), append(p.sums, run.Summarise())
	}
	return p
}

// writeServices writes the services, and below them the jobs that ran beside them.
func (f *simFlags) writeServices(out, errw io.Writer, p *servicesPlayed) error {
	if f.json != "-" {
		if err := p.table(out); err != nil {
			return err
		}
	}
	return writeAll(out, errw, []output{
		{f.json, func(w io.Writer) error {
			return json.NewEncoder(w).Encode(map[string]any{"services": p.rows, "jobs": p.sums})
		}},
		{f.html, func(w io.Writer) error {
			return report.WriteHTML(w, "Muster: services beside "+p.runs[0].Trace, p.runs, p.sums)
		}},
	})
}

func (p *servicesPlayed) table(out io.Writer) error {
	const near = 1e-6
	costs := slices.ContainsFunc(p.rows, func(r report.Service) bool { // or a replica costs its GPUs
		return math.Abs(r.Cost-r.GPUHours) > near*r.GPUHours
	})
	t := tabwriter.NewWriter(out, 0, 4, 2, ' ', 0)
	fmt.Fprint(t, "SERVICE\tSCALING\tPOLICY\tREQUESTS\tIN TIME\tP50\tP99\tTTFT P99\tTPOT P99\tBATCH\tDROPPED\tACCURACY\t"+
		"GPU-HOURS\tPER GPU-HOUR\t")
	if costs {
		fmt.Fprint(t, "PER COST\t")
	}
	fmt.Fprintln(t, "PEAK\tSTARTED\tHASH")
	for i := range p.rows {
		r := &p.rows[i]
		fmt.Fprintf(t, "%s\t%s\t%s\t%d\t%.2f %%\t%s\t%s\t%s\t%s\t%.1f\t%d\t%s\t%.2f\t%.0f\t", r.Service, r.Scaling,
			r.Policy, r.Requests, 100*r.Attainment, millis(r.P50), millis(r.P99), millis(r.TTFT), millis(r.TPOT),
			r.Batch, r.Dropped+r.Refused+r.Failed, accuracy(r.Accuracy), r.GPUHours, r.PerHour)
		if costs {
			fmt.Fprintf(t, "%.0f\t", r.PerCost)
		}
		fmt.Fprintf(t, "%d\t%d\t%s\n", r.Peak, r.Started, r.Hash)
	}
	if err := t.Flush(); err != nil || len(p.runs[0].Records) == 0 {
		return err
	}
	fmt.Fprintln(out, "\nThe jobs beside them:")
	return report.WriteTable(out, p.sums, report.TableOptions{Width: width(out), Color: isTTY(out)})
}

// rowOf is what became of a service, or of its canary.
func rowOf(t *sim.Served) report.Service {
	r := report.Service{Requests: t.Arrived, Attainment: t.Attainment(), P50: t.Latency.Quantile(0.5).Seconds(),
		P99: t.Latency.Quantile(0.99).Seconds(), P999: t.Latency.Quantile(0.999).Seconds(), Dropped: t.Dropped,
		Refused: t.Refused, Failed: t.Failed, GPUHours: t.GPUHours, Cost: t.Cost, Accuracy: t.Accuracy, Peak: t.Peak,
		Started: t.Started, Warm: t.Warm, Evicted: t.Evicted, Batch: float64(t.Answered) / float64(max(1, t.Batches)),
		TTFT: t.TTFT.Quantile(0.99).Seconds(), TPOT: t.TPOT.Quantile(0.99).Seconds()}
	if t.GPUHours > 0 {
		r.PerHour, r.Tokens = float64(t.Answered)/t.GPUHours, float64(t.Tokens)/t.GPUHours
	}
	if t.Cost > 0 {
		r.PerCost = float64(t.Answered) / t.Cost
	}
	return r
}

// accuracy is empty where variants state none.
func accuracy(part float64) string {
	if part == 0 {
		return ""
	}
	return fmt.Sprintf("%.4f", part)
}

func millis(s float64) string {
	return time.Duration(s * float64(time.Second)).Round(100 * time.Microsecond).String()
}
