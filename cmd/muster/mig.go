package main

import (
	"fmt"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/muster-gpu/muster/cluster"
)

func newMIG() *cobra.Command {
	c := &cobra.Command{Use: "mig", Short: "How GPUs can be partitioned (MIG)"}
	c.AddCommand(newMIGPlan())
	return c
}

func newMIGPlan() *cobra.Command {
	var model, profiles, fit string
	var slo sloOptions
	c := &cobra.Command{
		Use:   "plan",
		Short: "The layouts of a GPU model; on how few GPUs instances or services fit, and where",
		Long: `The profiles of a GPU model, and every way to partition one of its GPUs to which
nothing can be added. With --fit: on how few GPUs the instances named fit together,
and where each begins, as a cluster file (mig:) and nvidia-smi mig -cgi take it.

With --slo: which instances, batches and processes carry inference services at the
rates and latencies that FILE says (CSV: service,rate,latency_ms), on how few GPUs, and
how late requests were when they were played against that. How fast services are
is measured: DIR/SERVICE.csv or DIR/prof_data_SERVICE.csv has, after a head, compute
slices, batch size, processes, requests per second of each process, seconds per batch.

--out writes the plan to a file. When rates change, --from names that file: the new plan
keeps much of it on as few GPUs, and the steps from one to the other are said, in which
no service falls below the smaller of its old and its new rate; or which does, by how
much, where that takes more spare GPUs than --spare.`,
		Example: `  muster mig plan --model H100-80GB
  muster mig plan --model A100-80GB --fit 3g.40gb,3g.40gb,1g.10gb
  muster mig plan --model A100-80GB --fit 4x1g.10gb,2x2g.20gb
  muster mig plan --model A100-80GB --slo services.csv --measured profiles/ --out plan.json
  muster mig plan --model A100-80GB --slo tomorrow.csv --measured profiles/ --from plan.json --spare 1`,
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			m, ok := cluster.FindModel(model)
			if !ok || !m.MIG() {
				var have []string
				for _, m := range cluster.Models() {
					if m.MIG() {
						have = append(have, m.Name)
					}
				}
				return badUsage("--model: %v", cluster.Unknown("GPU model with MIG", model, have))
			}
			switch {
			case slo.file != "" && fit != "":
				return badUsage("--slo and --fit: one of them")
			case slo.file != "":
				return planServices(c, &m, &slo)
			case fit != "":
				return planFit(c, &m, fit)
			}
			return planLayouts(c, &m, profiles)
		},
	}
	c.Flags().StringVar(&model, "model", "H100-80GB", "GPU model")
	c.Flags().StringVar(&profiles, "profiles", "",
		"only layouts of these profiles: 1g.10gb,3g.40gb, or by shape: 1g,3g (default: all but +me)")
	c.Flags().StringVar(&fit, "fit", "", "instances to lay out: 3g.40gb,3g.40gb or 2x3g.40gb")
	slo.flags(c)
	return c
}

// planLayouts lists the profiles, and the full layouts by what they hold.
func planLayouts(c *cobra.Command, m *cluster.GPUModel, names string) error {
	var chosen []*cluster.SliceProfile
	for i := range m.Profiles {
		if p := &m.Profiles[i]; names == "" && !p.Media() {
			chosen = append(chosen, p)
		}
	}
	for _, name := range strings.FieldsFunc(names, func(r rune) bool { return r == ',' }) {
		p, ok := m.Profile(name)
		if !ok {
			return badUsage("--profiles: %v", noProfile(m, name))
		}
		chosen = append(chosen, p)
	}
	w := tabwriter.NewWriter(c.OutOrStdout(), 0, 0, 2, ' ', 0)
	fmt.Fprintf(w, "%s: %d compute and %d memory slices\n\n", m.Name, m.Compute, m.MemSlots)
	fmt.Fprintln(w, "PROFILE\tCOMPUTE\tMEMORY\tMIB\tBEGINS AT\tMOST")
	for i := range m.Profiles {
		p := &m.Profiles[i]
		fmt.Fprintf(w, "%s\t%d\t%d\t%d\t%s\t%d\n", p.Name, p.Compute, p.Slots, p.Memory,
			strings.Trim(fmt.Sprint(p.Starts), "[]"), p.Max)
	}
	full := m.FullLayouts(chosen)
	kinds := map[string][]cluster.Instance{}
	var order []string
	for _, l := range full {
		k := m.Contents(l)
		if kinds[k] == nil {
			order = append(order, k)
			kinds[k] = l
		}
	}
	slices.SortStableFunc(order, func(a, b string) int { return len(kinds[a]) - len(kinds[b]) })
	fmt.Fprintf(w, "\n%d layouts, of which nothing can be added to %d; these differ in more than where instances begin:\n", len(m.Layouts(chosen)), len(full))
	for _, k := range order {
		fmt.Fprintf(w, "  %s\t%s\n", k, strings.TrimPrefix(cluster.GeometryText([][]cluster.Instance{kinds[k]}), "0:"))
	}
	return w.Flush()
}

func noProfile(m *cluster.GPUModel, name string) error {
	var have []string
	for i := range m.Profiles {
		have = append(have, m.Profiles[i].Name)
	}
	return cluster.Unknown("MIG profile of "+m.Name, name, have)
}

// mostFit bounds what is laid out at once.
const mostFit = 1000

// planFit lays instances out.
func planFit(c *cobra.Command, m *cluster.GPUModel, text string) error {
	var names []string
	for _, word := range strings.FieldsFunc(text, func(r rune) bool { return r == ',' }) {
		n, name := 1, word
		if count, rest, ok := strings.Cut(word, "x"); ok {
			if _, err := fmt.Sscanf(count, "%d", &n); err != nil || n < 1 || n > mostFit {
				return badUsage("--fit: %q: want PROFILE or NxPROFILE, such as 2x3g.40gb", word)
			}
			name = rest
		}
		if _, ok := m.Profile(name); !ok {
			return badUsage("--fit: %v", noProfile(m, name))
		}
		for range n {
			names = append(names, name)
		}
	}
	if len(names) == 0 || len(names) > mostFit {
		return badUsage("--fit: %d instances; 1 to %d are possible", len(names), mostFit)
	}
	gpus, exact, err := m.Fit(names)
	if err != nil {
		return err
	}
	fewest := ", no fewer would do"
	if !exact {
		fewest = "; fewer may do"
	}
	w := c.OutOrStdout()
	fmt.Fprintf(w, "%s: %d instances on %d of its GPUs%s\n", m.Name, len(names), len(gpus), fewest)
	for i, g := range gpus {
		fmt.Fprintf(w, "GPU %d: %s\n", i, m.Contents(g))
	}
	fmt.Fprintf(w, "mig: %q\n", cluster.GeometryText(gpus))
	return nil
}

// badUsage is a mistake of the caller.
func badUsage(format string, args ...any) error {
	return fmt.Errorf("%w: %s", errUsage, fmt.Sprintf(format, args...))
}
