package main

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/muster-gpu/muster/api"
	"github.com/muster-gpu/muster/client"
	"github.com/muster-gpu/muster/config"
	"github.com/muster-gpu/muster/perf"
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
				err = writeSpeeds(c.OutOrStdout(), &s)
			}
			return err
		},
	})
	return c
}

// writeSpeeds writes measurements as a performance table.
func writeSpeeds(out io.Writer, s *api.Speeds) error {
	if len(s.Paces)+len(s.Pairs) == 0 {
		fmt.Fprintln(out, "# nothing was measured so far: jobs say what they are (--model) and report their steps (MUSTER_PROGRESS)")
		return nil
	}
	same := func(a, b *api.Pace) bool { return a.Model == b.Model && a.GPUs == b.GPUs && a.Unit == b.Unit }
	var speed, scale, pairs strings.Builder
	written := map[string]bool{}
	// samples before steps
	slices.SortStableFunc(s.Paces, func(a, b api.Pace) int {
		return cmp.Or(cmp.Compare(a.Model, b.Model), cmp.Compare(a.Unit, b.Unit))
	})
	for i := 0; i < len(s.Paces); {
		n := i + 1
		for n < len(s.Paces) && same(&s.Paces[i], &s.Paces[n]) {
			n++
		}
		list := s.Paces[i:n]
		i = n
		if written[list[0].Model] { // a table has one row for each
			fmt.Fprintf(&speed, "  # %s was also measured with %d GPUs for each task, in %s\n", list[0].Model,
				list[0].GPUs, list[0].Unit)
			continue
		}
		written[list[0].Model] = true
		writeScale(&scale, list)
		writeSpeed(&speed, list)
	}
	for _, p := range s.Pairs {
		fmt.Fprintf(&pairs, "  %s: %.3g\n", yamlName(p.Model+"/"+p.Beside), p.Speed)
	}
	for _, part := range []struct{ name, text string }{{"speed", speed.String()}, {"scale", scale.String()},
		{"pairs", pairs.String()}} {
		if part.text != "" {
			fmt.Fprintf(out, "%s:\n%s", part.name, part.text)
		}
	}
	return nil
}

// writeSpeed writes how fast a job model is on each GPU model, with the number of tasks of
// which most is known, relative to the fastest.
func writeSpeed(out *strings.Builder, list []api.Pace) {
	known := map[int]int{}
	for _, p := range list {
		known[p.Tasks]++
	}
	tasks := slices.MaxFunc(list, func(a, b api.Pace) int {
		return cmp.Or(cmp.Compare(known[a.Tasks], known[b.Tasks]), cmp.Compare(a.Tasks, b.Tasks))
	}).Tasks
	most, cells, notes := 0.0, []string{}, []string{}
	for _, p := range list {
		if p.Tasks == tasks {
			most = max(most, p.Pace)
		}
	}
	for _, p := range list {
		if p.Tasks == tasks {
			cells = append(cells, fmt.Sprintf("%s: %.3g", yamlName(p.GPU), p.Pace/most))
			notes = append(notes, fmt.Sprintf("%.4g %s/s in %s", p.Pace, p.Unit, several(p.Runs, "run")))
		}
	}
	fmt.Fprintf(out, "  %s: {%s}   # with %s of %s: %s\n", yamlName(list[0].Model), strings.Join(cells, ", "),
		several(tasks, "task"), several(list[0].GPUs, "GPU"), strings.Join(notes, ", "))
}

// writeScale writes how fast it is with each number of tasks on the GPU model on which most
// of them were measured, relative to the most tasks.
func writeScale(out *strings.Builder, list []api.Pace) {
	known := map[string]int{}
	for _, p := range list {
		known[p.GPU]++
	}
	gpu := slices.MaxFunc(list, func(a, b api.Pace) int {
		return cmp.Or(cmp.Compare(known[a.GPU], known[b.GPU]), cmp.Compare(b.GPU, a.GPU))
	}).GPU
	if known[gpu] < 2 {
		return
	}
	var cells []string
	most, largest := 0.0, 0
	for _, p := range list {
		if p.GPU == gpu {
			most, largest = p.Pace, p.Tasks // the last one has the most
		}
	}
	for _, p := range list {
		if p.GPU == gpu {
			cells = append(cells, fmt.Sprintf("%d: %.3g", p.Tasks, p.Pace/most))
		}
	}
	fmt.Fprintf(out, "  %s: {%s}   # on %s, of jobs that ask for %d tasks\n", yamlName(list[0].Model),
		strings.Join(cells, ", "), gpu, largest)
}

// yamlName is a name as YAML takes it for one.
func yamlName(s string) string {
	if text, err := json.Marshal(s); err == nil {
		return string(text)
	}
	return s
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
	listed := t.Pairs
	if t.Given != nil {
		listed = t.Given.Pairs
	}
	why := "not known: they do not disturb each other in shares, and take turns on whole GPUs"
	if _, ok := listed[p]; ok {
		why = "listed"
	} else if _, ok := t.Pairs[p]; ok {
		why = "estimated"
	} else if slices.ContainsFunc([]perf.Pair{{p[0], "*"}, {"*", p[1]}, {"*", "*"}}, func(q perf.Pair) bool {
		_, ok := t.Pairs[q]
		return ok
	}) {
		why = "listed for any"
	}
	v := perf.Belief{Model: t}.Pair(p[0], p[1])
	return fmt.Sprintf("%s keeps %.2f of its speed beside %s: %s", p[0], float64(v)/perf.Million, p[1], why)
}

// several is so many of a thing.
func several(n int, thing string) string {
	if n == 1 {
		return "1 " + thing
	}
	return fmt.Sprintf("%d %ss", n, thing)
}
