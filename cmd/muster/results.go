package main

import (
	"fmt"
	"io"
	"os"

	"github.com/spf13/cobra"

	"github.com/muster-gpu/muster/results"
)

func newResults() *cobra.Command {
	var traces, out, only string
	c := &cobra.Command{
		Use:   "results --traces DIR",
		Short: "Replay published experiments and set our figures beside the published ones",
		Args:  cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			var tables []results.Table
			var all []results.Comparison
			dir, err := os.Stat(traces)
			if err == nil && !dir.IsDir() {
				err = fmt.Errorf("%s is a file", traces)
			}
			if err != nil {
				return fmt.Errorf("--traces: %w; want the directory with the recorded traces, as philly/philly_pollux.csv", err)
			}
			if only != results.Comparing {
				if tables, err = results.All(c.Context(), traces, only); err != nil {
					return err
				}
			}
			if only == "" || only == results.Comparing {
				if all, err = results.Compare(c.Context(), traces, wallClock()); err != nil {
					return err
				}
			}
			write := func(w io.Writer) error {
				if tables != nil {
					if err := results.Write(w, tables); err != nil {
						return err
					}
				}
				if all != nil {
					return results.WriteComparisons(w, all)
				}
				return nil
			}
			if out == "" || out == "-" {
				return write(c.OutOrStdout())
			}
			if err := writeFile(out, write); err != nil {
				return err
			}
			for i := range tables {
				if bad := tables[i].Failed(); len(bad) > 0 {
					return fmt.Errorf("%w: %s: %d figures beyond the tolerance without a reason", errDiffers, tables[i].Title, len(bad))
				}
			}
			return nil
		},
	}
	c.Flags().StringVar(&traces, "traces", "", "directory of the recorded traces")
	c.Flags().StringVar(&out, "out", "", "file to write (default: the terminal)")
	c.Flags().StringVar(&only, "only", "", "one part: tiresias, muri, pollux, pollux-itself, elasticflow, gavel, fgd, miso, parvagpu, parvagpu-changes, or comparison (all policies on the same workloads)")
	if err := c.MarkFlagRequired("traces"); err != nil {
		panic(err) // the flag is defined two lines above
	}
	return c
}
