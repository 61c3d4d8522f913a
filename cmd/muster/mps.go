package main

import (
	"encoding/json"
	"fmt"
	"io"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/perf"
	"github.com/muster-gpu/muster/serving"
)

func newMPS() *cobra.Command {
	c := &cobra.Command{Use: "mps", Short: "How GPUs can be shared (MPS)"}
	c.AddCommand(newMPSPlan())
	return c
}

// mpsOptions are those of muster mps plan.
type mpsOptions struct {
	services       sloOptions
	sizes, weights string
	share          serving.ShareOptions
	json, commands bool
	start          string
}

func newMPSPlan() *cobra.Command {
	var model string
	var o mpsOptions
	c := &cobra.Command{
		Use:   "plan",
		Short: "On how few GPUs services fit in parts under MPS, some of which take turns",
		Long: `Which parts of GPUs under MPS, and which batches, carry inference services at the
rates and latencies that FILE says (CSV: service,rate,latency_ms), on how few GPUs; and
how late requests were when they were played against that. A GPU is whole or in two
parts (gpulets); in each, one service computes or several take turns in a cycle.

How fast services are is measured: DIR/SERVICE.csv or DIR/prof_data_SERVICE.csv has, after
a head, per cent of the GPU (the head of that column is percent; else compute slices of
a MIG instance), batch size, processes, requests per second of each process, seconds per
batch; and, if it is known, use_compute and use_memory, what the service uses of a whole
GPU (0 to 1). From MIG instances it is estimated what a part of a GPU does.

With --interference, services slow each other down on a GPU: the weights of their use of
its computing (own, other's), of its memory (own, other's), and a constant, as gpulet's
linear model has them. Services that would be late are planned again.

Each gpulet is a job in a share of a GPU; the plan says how it is submitted. --commands
prints these command lines alone: muster mps plan ... --commands | sh takes the plan live.`,
		Example: `  muster mps plan --slo services.csv --measured profiles/
  muster mps plan --slo services.csv --measured profiles/ --headroom 1.2 --json
  muster mps plan --slo services.csv --measured profiles/ --interference 0.1,0.2,0.3,0.4,1
  muster mps plan --slo services.csv --measured profiles/ --start './{service} --batch {batch}' --commands | sh`,
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			m, ok := cluster.FindModel(model)
			if !ok {
				var have []string
				for _, m := range cluster.Models() {
					have = append(have, m.Name)
				}
				return badUsage("--model: %v", cluster.Unknown("GPU model", model, have))
			}
			return planParts(c, &m, &o)
		},
	}
	f := c.Flags()
	f.StringVar(&model, "model", "A100-80GB", "GPU model")
	f.StringVar(&o.services.file, "slo", "", "services to plan for: CSV with the columns service, rate, latency_ms")
	f.StringVar(&o.services.measured, "measured", "", "directory of the services' measurements")
	f.StringVar(&o.sizes, "sizes", "20,40,50,60,80,100",
		"parts into which a GPU may be divided, in per cent: each with what it leaves")
	f.Float64Var(&o.share.Headroom, "headroom", 1, "plan for so many times the rates")
	f.Float64Var(&o.share.Ignore, "ignore", 0,
		"leave out what is left of a service's rate beside its saturated gpulets, if it is below so many requests per second (15 in gpulet's code)")
	f.StringVar(&o.weights, "interference", "",
		"five weights of what services do to each other: c1,c2,c3,c4,c5 (default: nothing)")
	f.Float64Var(&o.share.Enough, "enough", 1,
		"with --interference: a service has to be able to take this part of its rate (0.85 in gpulet's code); below 1 it may be late")
	f.DurationVar(&o.services.play, "play", time.Minute, "play requests for so long; 0: do not")
	f.Uint64Var(&o.services.seed, "seed", 1, "of the requests' arrivals")
	f.StringVar(&o.start, "start", "./{service}",
		"what starts a service; {batch} is the size of its batches, {cycle} the longest cycle in ms")
	f.BoolVar(&o.json, "json", false, "print JSON")
	f.BoolVar(&o.commands, "commands", false, "print the gpulets' command lines only, for a shell")
	return c
}

// check says what is wrong with the options, and reads those that are lists.
func (o *mpsOptions) check() error {
	switch {
	case o.services.file == "" || o.services.measured == "":
		return badUsage("--slo and --measured are needed: the services, and the directory of their measurements")
	case !(o.share.Headroom >= 1 && o.share.Headroom <= 100):
		return badUsage("--headroom %g: 1 to 100 are possible", o.share.Headroom)
	case !(o.share.Ignore >= 0 && o.share.Ignore <= 1e9):
		return badUsage("--ignore %g: 0 or more requests per second are possible", o.share.Ignore)
	case !(o.share.Enough > 0 && o.share.Enough <= 1):
		return badUsage("--enough %g: above 0, up to 1 is possible", o.share.Enough)
	case o.json && o.commands:
		return badUsage("--json and --commands: one of them")
	case !strings.Contains(o.start, "{service}"):
		return badUsage("--start %q: {service} is missing", o.start)
	case o.services.play < 0 || o.services.play > time.Hour:
		return badUsage("--play %v: up to an hour is possible", o.services.play)
	}
	for _, word := range strings.Split(o.sizes, ",") {
		p, err := strconv.Atoi(strings.TrimSpace(word))
		if err != nil {
			return badUsage("--sizes %s: %q is not a whole number of per cent", o.sizes, word)
		}
		o.share.Sizes = append(o.share.Sizes, p)
	}
	if o.weights == "" {
		return nil
	}
	var l perf.Linear
	words := strings.Split(o.weights, ",")
	if len(words) != len(l) {
		return badUsage("--interference %s: want %d weights, such as 0.1,0.2,0.3,0.4,1", o.weights, len(l))
	}
	for i, word := range words {
		v, err := strconv.ParseFloat(strings.TrimSpace(word), 64)
		if err != nil || !(v >= -1e3 && v <= 1e3) {
			return badUsage("--interference %s: %q is not a weight; -1000 to 1000 are possible", o.weights, word)
		}
		l[i] = v
	}
	o.share.Slower = func(own, beside serving.Use, share, besideShare float64) float64 {
		use := func(u serving.Use) perf.Use {
			return perf.Use{Compute: int64(u.Compute * perf.Million), Memory: int64(u.Memory * perf.Million)}
		}
		return l.At(use(own), use(beside), share, besideShare)
	}
	return nil
}

// planParts plans services on parts of GPUs, and plays requests against the plan.
func planParts(c *cobra.Command, m *cluster.GPUModel, o *mpsOptions) error {
	if err := o.check(); err != nil {
		return err
	}
	services, err := serving.Promises(o.services.file, o.services.measured)
	if err != nil {
		return err
	}
	if o.share.Slower != nil {
		for i := range services {
			if services[i].Uses == nil {
				return fmt.Errorf("service %s: --interference needs the columns use_compute and use_memory in its measurements", services[i].Name)
			}
		}
	}
	plan, err := serving.MakeShares(m, services, o.share)
	if err != nil {
		return err
	}
	if o.commands {
		o.services.play = 0 // it would not be shown
	}
	if sum := 2 * serving.Requests(services) * o.services.play.Seconds(); sum > mostPlayed {
		return badUsage("--play %v: %.3g requests would be played; up to %.0g are possible: a shorter --play, or 0",
			o.services.play, sum, mostPlayed)
	}
	s := serving.SheetOf(m, plan, services,
		&serving.SheetOptions{Start: o.start, Measured: o.services.measured, Play: o.services.play,
			Seed: o.services.seed, Ignore: o.share.Ignore, Interference: o.share.Slower != nil})
	switch {
	case o.commands:
		for i := range s.Gpulets {
			fmt.Fprintln(c.OutOrStdout(), serving.InShell(s.Gpulets[i].Submit))
		}
		return nil
	case o.json:
		e := json.NewEncoder(c.OutOrStdout())
		e.SetIndent("", "  ")
		return e.Encode(s)
	}
	return writeSheet(c.OutOrStdout(), s, o)
}

// mostPlayed bounds how many requests are played.
const mostPlayed = 2e8

// writeSheet prints a plan as tables.
func writeSheet(out io.Writer, s *serving.Sheet, o *mpsOptions) error {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fewest := "no fewer would do"
	if s.GPUs > s.Least {
		fewest = fmt.Sprintf("at least %d are needed", s.Least)
	}
	fmt.Fprintf(w, "%s: %d services in %d gpulets on %d of its GPUs; %s\n\n", s.Model, len(s.Services), len(s.Gpulets),
		s.GPUs, fewest)
	fmt.Fprintln(w, "GPU\tPERCENT\tSERVICE\tBATCH\tTAKES\tREQUESTS/S\tCYCLE\tAT MOST\tBUSY\tSLOWER")
	ms := func(v float64) string { return strconv.FormatFloat(v, 'f', 1, 64) + "ms" }
	for i := range s.Gpulets {
		g := &s.Gpulets[i]
		for t := range g.Turns {
			turn := &g.Turns[t]
			if t > 0 {
				fmt.Fprintf(w, "\t\t%s\t%d\t%s\t%.0f\t\t\t\t\n", turn.Service, turn.Batch, ms(turn.TakesMS),
					turn.Capacity)
				continue
			}
			fmt.Fprintf(w, "%d\t%d\t%s\t%d\t%s\t%.0f\t%s\t%s\t%.2f\t%.2f\n", g.GPU, g.Percent, turn.Service, turn.Batch,
				ms(turn.TakesMS), turn.Capacity, ms(g.CycleMS), ms(g.DutyMS), g.Busy, g.Slower)
		}
	}
	fmt.Fprintln(w)
	if o.services.play == 0 {
		fmt.Fprintln(w, "SERVICE\tRATE\tCAPACITY\tPROMISED")
		for i := range s.Services {
			v := &s.Services[i]
			fmt.Fprintf(w, "%s\t%g\t%.0f\t%gms\n", v.Service, v.Rate, v.Capacity, v.LatencyMS)
		}
	} else {
		fmt.Fprintln(w, "\t\t\t\tEVEN ARRIVALS\t\tPOISSON ARRIVALS\t")
		fmt.Fprintln(w, "SERVICE\tRATE\tCAPACITY\tPROMISED\tWORST\tLATE\tWORST\tP99\tLATE")
		for i := range s.Services {
			v := &s.Services[i]
			fmt.Fprintf(w, "%s\t%g\t%.0f\t%gms\t%s\t%d of %d\t%s\t%s\t%d of %d\n", v.Service, v.Rate, v.Capacity,
				v.LatencyMS,
				ms(v.Even.WorstMS), v.Even.Late, v.Even.Requests, ms(v.Poisson.WorstMS), ms(v.Poisson.P99MS),
				v.Poisson.Late, v.Poisson.Requests)
		}
	}
	fmt.Fprintln(w)
	for _, n := range s.Notes {
		fmt.Fprintln(w, n)
	}
	fmt.Fprintln(w, "Each gpulet is a job, in this order, under MPS, which limits each process to the part of the GPU; that services of a job take turns, is theirs to keep:")
	for i := range s.Gpulets {
		fmt.Fprintf(w, "  %s\n", serving.InShell(s.Gpulets[i].Submit))
	}
	return w.Flush()
}
