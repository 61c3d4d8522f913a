package main

import (
	"encoding/json"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/muster-gpu/muster/trace"
)

func newTrace() *cobra.Command {
	c := &cobra.Command{
		Use:   "trace",
		Short: "Inspect, convert and invent workloads",
	}
	c.AddCommand(traceInspect(), traceConvert(), traceSynth(), traceFormats())
	return c
}

func traceInspect() *cobra.Command {
	f := &traceFlags{}
	var asJSON bool
	c := &cobra.Command{
		Use:   "inspect FILE",
		Short: "Say what a workload holds: jobs, GPU-hours, gangs, durations, arrivals, oddities",
		Args:  cobra.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			f.trace = args[0]
			wl, err := f.open()
			if err != nil {
				return err
			}
			s := trace.Inspect(wl)
			if asJSON {
				enc := json.NewEncoder(c.OutOrStdout())
				enc.SetIndent("", "  ")
				return enc.Encode(s)
			}
			return s.WriteText(c.OutOrStdout())
		},
	}
	f.register(c)
	c.Flags().BoolVar(&asJSON, "json", false, "as JSON")
	return c
}

func traceConvert() *cobra.Command {
	f := &traceFlags{}
	c := &cobra.Command{
		Use:     "convert FILE OUT",
		Short:   "Write a workload in Muster's own format (OUT ends in .jsonl, .jsonl.gz, .jsonl.zst or .csv)",
		Example: "  muster trace convert sacct.txt history.jsonl.zst",
		Args:    cobra.ExactArgs(2),
		RunE: func(c *cobra.Command, args []string) error {
			f.trace = args[0]
			wl, err := f.open()
			if err != nil {
				return err
			}
			if err := trace.Create(args[1], wl); err != nil {
				return err
			}
			fmt.Fprintf(c.ErrOrStderr(), "wrote %s: %d jobs, %d malformed rows skipped\n", args[1], len(wl.Jobs),
				len(wl.Bad))
			return nil
		},
	}
	f.register(c)
	return c
}

func traceSynth() *cobra.Command {
	c := &cobra.Command{
		Use:   "synth SPEC OUT",
		Short: "Invent a workload from documented distributions and a seed",
		Long: "SPEC is a preset or settings, or both: " + strings.Join(trace.Presets(), ", ") +
			".\n\nSettings:\n  " + strings.Join(trace.SynthHelp(), "\n  ") +
			"\n\nThe distributions are described in docs/reference/traces.md.",
		Example: "  muster trace synth preset=philly-like,jobs=5000,gpus=256,load=0.9,seed=7 week.jsonl",
		Args:    cobra.ExactArgs(2),
		RunE: func(c *cobra.Command, args []string) error {
			spec, err := trace.ParseSynth(args[0])
			if err != nil {
				return usage(err)
			}
			wl, err := trace.Synth(spec)
			if err != nil {
				return usage(err)
			}
			if err := trace.Create(args[1], wl); err != nil {
				return err
			}
			fmt.Fprintf(c.ErrOrStderr(), "wrote %s: %d jobs\n", args[1], len(wl.Jobs))
			return nil
		},
	}
	return c
}

func traceFormats() *cobra.Command {
	return &cobra.Command{
		Use:   "formats",
		Short: "List the formats that can be read",
		Args:  cobra.NoArgs,
		Run: func(c *cobra.Command, _ []string) {
			for _, f := range trace.Formats() {
				fmt.Fprintf(c.OutOrStdout(), "%-18s %s\n", f.Name, f.About)
			}
		},
	}
}
