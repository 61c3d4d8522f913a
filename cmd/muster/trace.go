package main

import (
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/muster-gpu/muster/requests"
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
		Short: "Say what a workload holds (jobs, GPU-hours, gangs, durations, arrivals, oddities), or a file of requests",
		Args:  cobra.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			f.trace = args[0]
			s, err := f.inspect(c)
			if err != nil {
				return err
			}
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

// inspect describes a workload, or recorded requests if the file has them.
func (f *traceFlags) inspect(c *cobra.Command) (interface{ WriteText(io.Writer) error }, error) {
	of := f.requests()
	if of == "" {
		wl, err := f.open()
		if err != nil {
			return nil, err
		}
		return trace.Inspect(wl), nil
	}
	for _, name := range []string{"skip-bad", "nodes", "rate", "throughputs", "profiles", "partitions", "trace"} {
		if c.Flags().Changed(name) {
			return nil, usage(fmt.Errorf("--%s: is for workloads of jobs; %s holds requests (%s)", name, f.trace, of))
		}
	}
	s, err := requests.Inspect(f.trace, requests.Options{Format: of, Limit: int64(f.limit)})
	return &s, err
}

// requests is the format of a file that holds requests instead of jobs: the one that was named, if only requests have
// it, or else the one that its first line shows; "": it holds none.
func (f *traceFlags) requests() string {
	jobs := func(name string) bool {
		return slices.ContainsFunc(trace.Formats(), func(t trace.Format) bool { return t.Name == name })
	}
	if slices.Contains(requests.Names(), f.format) && !jobs(f.format) {
		return f.format
	}
	of, err := requests.Detect(f.trace)
	if err != nil || f.format != "" && f.format != of {
		return "" // who reads it as a workload says what is wrong
	}
	return of
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
			fmt.Fprintln(c.OutOrStdout(), "\nRequests, for muster trace inspect and the file of muster sim --requests:")
			for _, f := range requests.Formats() {
				fmt.Fprintf(c.OutOrStdout(), "%-18s %s\n", f.Name, f.About)
			}
		},
	}
}
