package main

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/muster-gpu/muster/config"
	"github.com/muster-gpu/muster/policy"
	"github.com/muster-gpu/muster/service"
	"github.com/muster-gpu/muster/serving/scale"
	"github.com/muster-gpu/muster/sim"
)

// simServices plays services in the simulator, beside a workload or alone.
func simServices(c *cobra.Command, f *simFlags) error {
	if f.tile > 1 || f.search != "" || f.starts > 0 || f.html != "" || f.csv != "" || f.json != "" && f.json != "-" {
		return usage(errors.New("--services: writes its table, or with --json - that as JSON; --tile, --search, --score-starts, --html and --csv are not for it"))
	}
	if f.requests == "" {
		return usage(errors.New("--services: say with --requests which requests come"))
	}
	scale.ReadFile = config.ReadFile // of weights, with the rights of the user who names them
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
	return writeServices(c.OutOrStdout(), outs, labels, services, f.json == "-")
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

// simServiceRow is a line of the table.
type simServiceRow struct {
	Service    string  `json:"service"`
	Scaling    string  `json:"scaling"`
	Policy     string  `json:"policy"`
	Requests   int64   `json:"requests"`
	Attainment float64 `json:"attainment"`
	Goodput    float64 `json:"goodput_per_s"`
	P50        float64 `json:"p50_s"`
	P99        float64 `json:"p99_s"`
	P999       float64 `json:"p999_s"`
	Batch      float64 `json:"mean_batch"`
	Dropped    int64   `json:"dropped"`
	Refused    int64   `json:"refused"`
	Failed     int64   `json:"failed"`
	GPUHours   float64 `json:"gpu_hours"`
	PerHour    float64 `json:"requests_per_gpu_hour"`
	Cost       float64 `json:"cost"`
	Accuracy   float64 `json:"accuracy,omitempty"`
	TTFT       float64 `json:"ttft_p99_s,omitempty"`
	TPOT       float64 `json:"tpot_p99_s,omitempty"`
	Tokens     float64 `json:"tokens_per_gpu_hour,omitempty"`
	Peak       int     `json:"peak_replicas"`
	Started    int     `json:"replicas_started"`
	Warm       int     `json:"warm_starts"`
	Evicted    int     `json:"replicas_evicted"`
	Hash       string  `json:"hash"`
}

func writeServices(w io.Writer, outs []sim.Outcome, labels []string, services []service.Service, asJSON bool) error {
	rows := []simServiceRow{}
	for i := range outs {
		for k := range services {
			s, t := &services[k], &outs[i].Setup.World.Serving.Served[k]
			add := func(name string, t *sim.Served) {
				r := rowOf(t)
				r.Service, r.Scaling, r.Policy = name, cmp.Or(labels[i], s.Scaling), outs[i].Label
				r.Hash = fmt.Sprintf("%016x", outs[i].Hash)
				rows = append(rows, r)
			}
			if add(s.Name, t); t.Canary != nil { // of these
				add(s.Name+"/"+s.Variants[len(s.Variants)-1].Name, t.Canary)
			}
		}
	}
	if asJSON {
		return json.NewEncoder(w).Encode(map[string]any{"services": rows})
	}
	t := tabwriter.NewWriter(w, 0, 4, 2, ' ', 0)
	fmt.Fprintln(t, "SERVICE\tSCALING\tPOLICY\tREQUESTS\tIN TIME\tP50\tP99\tTTFT P99\tTPOT P99\tBATCH\tDROPPED\tACCURACY\tGPU-HOURS\tPER GPU-HOUR\tPEAK\tSTARTED\tHASH")
	for i := range rows {
		r := &rows[i]
		fmt.Fprintf(t, "%s\t%s\t%s\t%d\t%.2f %%\t%s\t%s\t%s\t%s\t%.1f\t%d\t%s\t%.2f\t%.0f\t%d\t%d\t%s\n", r.Service,
			r.Scaling, r.Policy,
			r.Requests, 100*r.Attainment, millis(r.P50), millis(r.P99), millis(r.TTFT), millis(r.TPOT), r.Batch,
			r.Dropped+r.Refused+r.Failed, accuracy(r.Accuracy), r.GPUHours,
			r.PerHour, r.Peak, r.Started, r.Hash)
	}
	return t.Flush()
}

// rowOf is what became of a service, or of its canary.
func rowOf(t *sim.Served) simServiceRow {
	r := simServiceRow{Requests: t.Arrived, Attainment: t.Attainment(), P50: t.Latency.Quantile(0.5).Seconds(),
		P99: t.Latency.Quantile(0.99).Seconds(), P999: t.Latency.Quantile(0.999).Seconds(), Dropped: t.Dropped,
		Refused: t.Refused, Failed: t.Failed, GPUHours: t.GPUHours, Cost: t.Cost, Accuracy: t.Accuracy, Peak: t.Peak,
		Started: t.Started, Warm: t.Warm, Evicted: t.Evicted, Batch: float64(t.Answered) / float64(max(1, t.Batches)),
		TTFT: t.TTFT.Quantile(0.99).Seconds(), TPOT: t.TPOT.Quantile(0.99).Seconds()}
	if t.GPUHours > 0 {
		r.PerHour, r.Tokens = float64(t.Answered)/t.GPUHours, float64(t.Tokens)/t.GPUHours
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
