package main

import (
	"cmp"
	"fmt"
	"slices"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/serving"
)

// sloOptions are those of muster mig plan --slo.
type sloOptions struct {
	file, measured string
	headroom       float64
	play           time.Duration
	seed           uint64
}

func (o *sloOptions) flags(c *cobra.Command) {
	c.Flags().StringVar(&o.file, "slo", "", "services to plan for: CSV with the columns service, rate, latency_ms")
	c.Flags().StringVar(&o.measured, "measured", "", "with --slo: directory of the services' measurements")
	c.Flags().Float64Var(&o.headroom, "headroom", 1, "with --slo: plan for so many times the rates")
	c.Flags().DurationVar(&o.play, "play", time.Minute, "with --slo: play requests for so long; 0: do not")
	c.Flags().Uint64Var(&o.seed, "seed", 1, "with --slo: of the requests' arrivals")
}

// planServices plans services, and plays requests against the plan.
func planServices(c *cobra.Command, m *cluster.GPUModel, o *sloOptions) error {
	switch {
	case o.measured == "":
		return badUsage("--slo needs --measured: the directory of the services' measurements")
	case !(o.headroom >= 1 && o.headroom <= 100):
		return badUsage("--headroom %g: 1 to 100 are possible", o.headroom)
	case o.play < 0 || o.play > time.Hour:
		return badUsage("--play %v: up to an hour is possible", o.play)
	}
	services, err := serving.Promises(o.file, o.measured)
	if err != nil {
		return err
	}
	plan, err := serving.Make(m, services, o.headroom)
	if err != nil {
		return err
	}
	fewest := "no fewer would do"
	if plan.GPUs > plan.Least {
		fewest = fmt.Sprintf("at least %d are needed", plan.Least)
	}
	w := tabwriter.NewWriter(c.OutOrStdout(), 0, 0, 2, ' ', 0)
	fmt.Fprintf(w, "%s: %d services in %d instances on %d of its GPUs; %s\n\n", m.Name, len(services), len(plan.Instances), plan.GPUs, fewest)
	fmt.Fprintln(w, "GPU\tINSTANCE\tSERVICE\tBATCH\tPROCESSES\tREQUESTS/S\tBATCH TAKES")
	geometry := make([][]cluster.Instance, plan.GPUs)
	for i := range plan.Instances {
		in := &plan.Instances[i]
		geometry[in.GPU] = append(geometry[in.GPU], in.Instance)
		fmt.Fprintf(w, "%d\t%s@%d\t%s\t%d\t%d\t%.0f\t%v\n", in.GPU, in.Profile, in.Start, services[in.Service].Name, in.Batch, in.Processes, in.Capacity(), in.Latency)
	}
	for _, g := range geometry {
		slices.SortFunc(g, func(a, b cluster.Instance) int { return cmp.Compare(a.Start, b.Start) })
	}
	fmt.Fprintf(w, "mig: %q\n\n", cluster.GeometryText(geometry))
	writeServed(w, plan, services, o)
	return w.Flush()
}

// writeServed plays requests and says how late they were.
func writeServed(w *tabwriter.Writer, plan *serving.Plan, services []serving.Service, o *sloOptions) {
	if o.play == 0 {
		fmt.Fprintln(w, "SERVICE\tRATE\tCAPACITY\tPROMISED")
		for k := range services {
			fmt.Fprintf(w, "%s\t%g\t%.0f\t%v\n", services[k].Name, services[k].Rate, plan.Capacity[k], services[k].Latency)
		}
		return
	}
	even := serving.Play(plan, services, serving.Even, o.seed, o.play)
	random := serving.Play(plan, services, serving.Poisson, o.seed, o.play)
	fmt.Fprintln(w, "\t\t\t\tEVEN ARRIVALS\t\tPOISSON ARRIVALS\t")
	fmt.Fprintln(w, "SERVICE\tRATE\tCAPACITY\tPROMISED\tWORST\tLATE\tWORST\tP99\tLATE")
	ms := func(d time.Duration) time.Duration { return d.Round(100 * time.Microsecond) }
	for k := range services {
		fmt.Fprintf(w, "%s\t%g\t%.0f\t%v\t%v\t%d of %d\t%v\t%v\t%d of %d\n", services[k].Name, services[k].Rate, plan.Capacity[k], services[k].Latency,
			ms(even[k].Worst), even[k].Late, even[k].Requests, ms(random[k].Worst), ms(random[k].P99), random[k].Late, random[k].Requests)
	}
}
