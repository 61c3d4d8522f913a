package main

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/muster-gpu/muster/config"
	"github.com/muster-gpu/muster/network"
	"github.com/muster-gpu/muster/network/traffic"
	"github.com/muster-gpu/muster/place"
	"github.com/muster-gpu/muster/policy"
)

func newPolicy() *cobra.Command {
	c := &cobra.Command{Use: "policy", Short: "List policies and placers; show and change what a daemon schedules by"}
	c.AddCommand(newPolicyShow(), newPolicySet())
	c.AddCommand(&cobra.Command{
		Use:   "list",
		Short: "Every policy and placer, what it needs and its knobs",
		Args:  cobra.NoArgs,
		Run: func(c *cobra.Command, _ []string) {
			w := c.OutOrStdout()
			fmt.Fprintln(w, "Policies (which job is next):")
			for _, p := range policy.List() {
				fmt.Fprintf(w, "  %-13s %s\n  %-13s needs %s. Source: %s\n", p.Name, p.About, "", p.Needs, p.Source)
				for _, k := range p.Knobs {
					fmt.Fprintf(w, "  %-13s %s=%s: %s\n", "", k.Name, k.Default, k.About)
				}
			}
			for _, a := range policy.Aliases {
				fmt.Fprintf(w, "  %-13s another name of %s\n", a[0], a[1])
			}
			fmt.Fprintln(w, "\nPlacers (where):")
			for _, p := range place.List() {
				fmt.Fprintf(w, "  %-13s %s. Source: %s\n", p.Name, p.About, p.Source)
			}
			fmt.Fprintln(w, "\nTraffic (how the network treats it):")
			for _, p := range traffic.List() {
				fmt.Fprintf(w, "  %-13s %s. Source: %s\n", p.Name, p.About, p.Source)
			}
		},
	})
	return c
}

func placerNames() string {
	var names []string
	for _, p := range place.List() {
		names = append(names, p.Name)
	}
	return strings.Join(names, ", ")
}

func newClusterCmd() *cobra.Command {
	c := &cobra.Command{Use: "cluster", Short: "Check cluster files"}
	c.AddCommand(&cobra.Command{
		Use:   "check CLUSTER",
		Short: "Read a cluster file or short form and say what it describes",
		Args:  cobra.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			spec, err := config.Load(args[0])
			if err != nil {
				return err
			}
			if err := config.Validate(spec); err != nil {
				return fmt.Errorf("%s: %w", args[0], err)
			}
			w := c.OutOrStdout()
			fmt.Fprintf(w, "%d nodes, %d GPUs, %d queues, %d partitions, %d reservations\n",
				len(spec.Nodes), spec.GPUs(), len(spec.Queues), len(spec.Partitions), len(spec.Reservations))
			if f := network.New(spec.Nodes, spec.Network); f != nil {
				fmt.Fprintf(w, "network: %d links, %d switches, %d classes of traffic\n", f.Links()/2, f.Switches(),
					spec.Network.Classes)
			}
			return nil
		},
	})
	return c
}
