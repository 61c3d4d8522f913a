package main

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/muster-gpu/muster/api"
	"github.com/muster-gpu/muster/client"
)

// newPartitions shows the rules of each partition.
func newPartitions() *cobra.Command {
	var asJSON bool
	c := &cobra.Command{
		Use:   "partitions",
		Short: "Show the partitions: their nodes, their time limits, which goes first",
		Args:  cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			list, err := client.Connect().Partitions(c.Context())
			if err != nil {
				return err
			}
			if asJSON {
				return json.NewEncoder(c.OutOrStdout()).Encode(list)
			}
			return printPartitions(c.OutOrStdout(), list)
		},
	}
	c.Flags().BoolVar(&asJSON, "json", false, "JSON")
	return c
}

// printPartitions writes a line for each partition; the default one has a star.
func printPartitions(w io.Writer, list []api.Partition) error {
	if len(list) == 0 {
		_, err := fmt.Fprintln(w, "no partitions: all jobs may use all nodes")
		return err
	}
	t := tabwriter.NewWriter(w, 0, 4, 2, ' ', 0)
	fmt.Fprintln(t, "PARTITION\tPRIORITY\tMAX TIME\tDEFAULT TIME\tNODES")
	for i := range list {
		p := &list[i]
		name := p.Name
		if p.Default {
			name += "*"
		}
		nodes := strings.Join(p.Nodes, ",")
		fmt.Fprintf(t, "%s\t%d\t%s\t%s\t%s\n", name, p.PriorityTier, limitText(p.MaxTime), limitText(p.DefaultTime),
			nodes)
	}
	return t.Flush()
}
