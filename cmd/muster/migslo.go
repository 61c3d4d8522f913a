package main

import (
	"fmt"
	"io"
	"strings"
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
	from, out      string
	spare          int
}

func (o *sloOptions) flags(c *cobra.Command) {
	c.Flags().StringVar(&o.file, "slo", "", "services to plan for: CSV with the columns service, rate, latency_ms")
	c.Flags().StringVar(&o.measured, "measured", "", "with --slo: directory of the services' measurements")
	c.Flags().Float64Var(&o.headroom, "headroom", 0,
		"with --slo: plan for so many times the rates (default: for each service as many as keep 99 % of its requests in time with Poisson arrivals)")
	c.Flags().DurationVar(&o.play, "play", time.Minute, "with --slo: play requests for so long; 0: do not")
	c.Flags().Uint64Var(&o.seed, "seed", 1, "with --slo: of the requests' arrivals")
	c.Flags().StringVar(&o.out, "out", "", "with --slo: write the plan to this file, for --from")
	c.Flags().StringVar(&o.from, "from", "",
		"with --slo: the plan that is deployed, as --out wrote it: keep much of it, and say the steps from it")
	c.Flags().IntVar(&o.spare, "spare", -1,
		"with --from: use at most so many GPUs beside those of the larger plan; -1: as many as it takes")
}

// planServices plans services, and plays requests against the plan.
func planServices(c *cobra.Command, m *cluster.GPUModel, o *sloOptions) error {
	switch {
	case o.measured == "":
		return badUsage("--slo needs --measured: the directory of the services' measurements")
	case !(o.headroom >= 1 && o.headroom <= 100) && c.Flags().Changed("headroom"):
		return badUsage("--headroom %g: 1 to 100 are possible", o.headroom)
	case o.play < 0 || o.play > time.Hour:
		return badUsage("--play %v: up to an hour is possible", o.play)
	case o.spare < -1 || o.spare > mostSpare:
		return badUsage("--spare %d: 0 to %d are possible, -1 for as many as it takes", o.spare, mostSpare)
	case o.spare >= 0 && o.from == "":
		return badUsage("--spare needs --from: the plan that is deployed")
	}
	services, err := serving.Promises(o.file, o.measured)
	if err != nil {
		return err
	}
	planned, err := o.planFrom(m, services)
	if err != nil {
		return err
	}
	plan := planned.Plan
	fewest := "no fewer would do"
	if plan.GPUs > plan.Least {
		fewest = fmt.Sprintf("at least %d are needed", plan.Least)
	}
	w := tabwriter.NewWriter(c.OutOrStdout(), 0, 0, 2, ' ', 0)
	fmt.Fprintf(w, "%s: %d services in %d instances on %d of its GPUs; %s\n\n", m.Name, len(services),
		len(plan.Instances), plan.GPUs, fewest)
	fmt.Fprintln(w, "GPU\tINSTANCE\tSERVICE\tBATCH\tPROCESSES\tREQUESTS/S\tBATCH TAKES")
	for i := range plan.Instances {
		in := &plan.Instances[i]
		fmt.Fprintf(w, "%d\t%s@%d\t%s\t%d\t%d\t%.0f\t%v\n", in.GPU, in.Profile, in.Start, services[in.Service].Name,
			in.Batch, in.Processes, in.Capacity(), in.Latency)
	}
	fmt.Fprintf(w, "mig: %q\n\n", cluster.GeometryText(plan.Geometry()))
	if planned.Change != nil {
		writeChange(w, planned.Change)
	}
	if note := headroomNote(planned, services); note != "" {
		fmt.Fprintf(w, "%s\n\n", note)
	}
	writeServed(w, plan, services, o)
	writeStarts(w, m, plan, services, o)
	if o.out != "" {
		if err := writeFile(o.out, serving.Deploy(m, plan, services).Write); err != nil {
			return err
		}
	}
	return w.Flush()
}

// writeStarts says of whose GPUs the measurements are taken to be, and how a job of the
// plan is started: what Muster gives it is the instance, and MPS inside it is its own.
func writeStarts(w io.Writer, m *cluster.GPUModel, plan *serving.Plan, services []serving.Service, o *sloOptions) {
	fmt.Fprintf(w, "\nThe measurements in %s are taken as those of %s: they do not say on which model they were made.\n", o.measured, m.Name)
	most := 0
	for i := range plan.Instances {
		if plan.Instances[i].Processes > plan.Instances[most].Processes {
			most = i
		}
	}
	in := &plan.Instances[most]
	name := services[in.Service].Name
	if in.Processes < 2 {
		fmt.Fprintf(w, "Each line of the plan is a job, as %s's: muster submit --kind service --gpus %s -- ./%s\n",
			name, in.Profile, name)
		return
	}
	var each []string
	for k := range in.Processes {
		each = append(each, fmt.Sprint(k+1))
	}
	fmt.Fprintln(w, "Each line of the plan is a job. Muster gives it the instance, and does not start MPS there: the processes are the job's own, under an MPS that it starts itself, as")
	fmt.Fprintf(w, "%s's: muster submit --kind service --gpus %s -- sh -c 'export CUDA_MPS_PIPE_DIRECTORY=$(mktemp -d); export CUDA_MPS_LOG_DIRECTORY=$CUDA_MPS_PIPE_DIRECTORY; nvidia-cuda-mps-control -d; for i in %s; do ./%s & done; wait'\n",
		name, in.Profile, strings.Join(each, " "), name)
}

// writeServed plays requests and says how late they were.
func writeServed(w *tabwriter.Writer, plan *serving.Plan, services []serving.Service, o *sloOptions) {
	if o.play == 0 {
		fmt.Fprintln(w, "SERVICE\tRATE\tCAPACITY\tPROMISED")
		for k := range services {
			fmt.Fprintf(w, "%s\t%g\t%.0f\t%v\n", services[k].Name, services[k].Rate, plan.Capacity[k],
				services[k].Latency)
		}
		return
	}
	even := serving.Play(plan, services, serving.Even, o.seed, o.play)
	random := serving.Play(plan, services, serving.Poisson, o.seed, o.play)
	fmt.Fprintln(w, "\t\t\t\tEVEN ARRIVALS\t\tPOISSON ARRIVALS\t")
	fmt.Fprintln(w, "SERVICE\tRATE\tCAPACITY\tPROMISED\tWORST\tLATE\tWORST\tP99\tLATE")
	ms := func(d time.Duration) time.Duration { return d.Round(100 * time.Microsecond) }
	for k := range services {
		fmt.Fprintf(w, "%s\t%g\t%.0f\t%v\t%v\t%d of %d\t%v\t%v\t%d of %d\n", services[k].Name, services[k].Rate,
			plan.Capacity[k], services[k].Latency,
			ms(even[k].Worst), even[k].Late, even[k].Requests, ms(random[k].Worst), ms(random[k].P99), random[k].Late,
			random[k].Requests)
	}
}
