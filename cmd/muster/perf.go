package main

import (
	"cmp"
	"fmt"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/muster-gpu/muster/client"
	"github.com/muster-gpu/muster/config"
	"github.com/muster-gpu/muster/perf"
	"github.com/muster-gpu/muster/progress"
)

func newPerf() *cobra.Command {
	c := &cobra.Command{Use: "perf", Short: "Check performance tables, and write what was measured as one"}
	c.AddCommand(&cobra.Command{
		Use:   "check TABLE [MODEL/BESIDE...]",
		Short: "Read a performance table and say how far what is estimated of it is off",
		Long: `Reads a performance table (--perf of muster sim, performance: of muster serve). Where it
says predict: true, each way to estimate pairs that it does not list is tried on those
that it lists: they are hidden from it, and what it says is compared with what they are.
The way that is the least off counts. Pairs named are listed with what they are taken to be.`,
		Example: `  muster perf check pairs.yaml
  muster perf check pairs.yaml resnet50/bert bert/resnet50`,
		Args: cobra.MinimumNArgs(1),
		RunE: func(c *cobra.Command, args []string) error { return checkPerf(c, args[0], args[1:]) },
	})
	c.AddCommand(&cobra.Command{
		Annotations: onCluster,
		Use:         "measured",
		Short:       "How fast jobs of each model were measured to go, as a performance table",
		Long: `Asks the daemon for what the progress of jobs with --model told of their speeds, and
writes it as a performance table (--perf of muster sim, performance: of muster serve): on GPU
models relative to the fastest, with several numbers of tasks relative to the most. What was
measured, and how often, stands beside it in comments.`,
		Example: `  muster perf measured
  muster perf measured > measured.yaml && muster sim --from-journal j --perf measured.yaml`,
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			s, err := client.Connect().Speeds(c.Context())
			if err == nil {
				err = progress.WriteTable(c.OutOrStdout(), &s)
			}
			return err
		},
	})
	return c
}

// checkPerf says what a table has, and what it says of pairs.
func checkPerf(c *cobra.Command, path string, names []string) error {
	t, err := config.LoadPerf(path)
	if err != nil {
		return err
	}
	out := c.OutOrStdout()
	fmt.Fprintln(out, config.PerfText(t))
	if len(t.Ways) > 0 {
		w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
		fmt.Fprintln(w, "WAY\tPAIRS\tOFF BY\t19 OF 20 BELOW\tOF NEW MODELS\tOFF BY\t19 OF 20 BELOW")
		for i := range t.Ways {
			e := &t.Ways[i]
			fmt.Fprintf(w, "%s\t%s\t%s\n", e.Way, errorCells(&e.Pairs), errorCells(&e.Models))
		}
		w.Flush()
	}
	for _, name := range names {
		var p perf.Pair
		if err := p.UnmarshalText([]byte(name)); err != nil {
			return badUsage("%v", err)
		}
		fmt.Fprintln(out, pairText(t, p))
	}
	return nil
}

// errorCells are how many pairs are estimated in one way, and how far known ones are off.
func errorCells(e *perf.Error) string {
	if e.Known == 0 {
		return fmt.Sprintf("%d\t-\t-", e.Filled)
	}
	return fmt.Sprintf("%d\t%.3f\t%.3f", e.Filled, e.Mean, e.P95)
}

// pairText says what a pair is taken to be, and why.
func pairText(t *perf.Table, p perf.Pair) string {
	why := cmp.Or(t.Origin(p),
		"not known: they do not disturb each other in shares, and take turns on whole GPUs")
	v := perf.Belief{Model: t}.Pair(p[0], p[1])
	return fmt.Sprintf("%s keeps %.2f of its speed beside %s: %s", p[0], float64(v)/perf.Million, p[1], why)
}
