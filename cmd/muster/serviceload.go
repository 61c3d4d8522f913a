package main

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/muster-gpu/muster/config"
	"github.com/muster-gpu/muster/service"
	"github.com/muster-gpu/muster/serving/load"
	"github.com/muster-gpu/muster/serving/tally"
)

func newServiceLoad() *cobra.Command {
	services, path, body, asJSON := "", "", "", false
	opt := load.Options{}
	c := &cobra.Command{
		Use: "load", Short: "Send the requests of a load file to services, and say what became of them",
		Long: "Sends requests when the file says, however long the answers take. The same two files are played in the simulator by\n" +
			"muster sim --services FILE --requests FILE.",
		Example: "  muster service load --services examples/serving/demo.yaml --requests examples/serving/demo-load.yaml",
		Args:    cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) (err error) {
			if opt.Services, err = config.LoadServices(services); err != nil {
				return usage(err)
			}
			l, err := config.LoadRequests(path, opt.Services)
			if err != nil {
				return usage(err)
			}
			if opt.Stream, err = l.Stream(); err != nil {
				return err
			}
			if body != "" {
				if opt.Body, err = os.ReadFile(body); err != nil {
					return err
				}
			}
			opt.Key, opt.Now = os.Getenv("MUSTER_GATEWAY_KEY"), wallTime
			counts, errs, err := load.Play(c.Context(), opt)
			if err != nil {
				return err
			}
			return writeLoad(c.OutOrStdout(), opt.Services, counts, errs, asJSON)
		},
	}
	c.Flags().StringVar(&services, "services", "", "file of the services")
	c.Flags().StringVar(&path, "requests", "", "file that says which requests come")
	c.Flags().StringVar(&opt.Gateway, "gateway", "http://127.0.0.1:8000",
		"address of the gateway; MUSTER_GATEWAY_KEY is its key")
	c.Flags().StringVar(&body, "body", "",
		"file with the body of each request; zeros of the shape that the model states if empty")
	c.Flags().IntVar(&opt.Open, "open", 10_000, "most requests at once; those beyond count as failed")
	c.Flags().BoolVar(&asJSON, "json", false, "JSON")
	for _, name := range []string{"services", "requests"} {
		if err := c.MarkFlagRequired(name); err != nil {
			panic(err) // the flag is defined above
		}
	}
	return c
}

// writeLoad writes what became of the requests.
func writeLoad(w io.Writer, services []service.Service, counts []tally.Tally, errs map[string]int, asJSON bool) error {
	if asJSON {
		all := map[string]*tally.Tally{}
		for i := range services {
			all[services[i].Name] = &counts[i]
		}
		return json.NewEncoder(w).Encode(map[string]any{"services": all, "errors": errs})
	}
	t := tabwriter.NewWriter(w, 0, 4, 2, ' ', 0)
	fmt.Fprintln(t, "SERVICE\tREQUESTS\tIN TIME\tP50\tP99\tDROPPED\tREFUSED\tFAILED")
	for i := range services {
		x := &counts[i]
		fmt.Fprintf(t, "%s\t%d\t%.2f %%\t%s\t%s\t%d\t%d\t%d\n", services[i].Name, x.Arrived, 100*x.Attainment(),
			latencyText(x.Latency.Quantile(0.5).Seconds()), latencyText(x.Latency.Quantile(0.99).Seconds()), x.Dropped,
			x.Refused, x.Failed)
	}
	if err := t.Flush(); err != nil {
		return err
	}
	texts := slices.SortedFunc(maps.Keys(errs), func(a, b string) int {
		return cmp.Or(cmp.Compare(errs[b], errs[a]), cmp.Compare(a, b))
	})
	for _, text := range texts[:min(len(texts), 5)] {
		if _, err := fmt.Fprintf(w, "%d times: %s\n", errs[text], text); err != nil {
			return err
		}
	}
	return nil
}
