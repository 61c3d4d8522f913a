//go:build linux

package main

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/muster-gpu/muster/api"
	"github.com/muster-gpu/muster/client"
	"github.com/muster-gpu/muster/policy"
)

// newPolicyShow says which policy a daemon follows.
func newPolicyShow() *cobra.Command {
	var asJSON bool
	c := &cobra.Command{
		Use: "show", Short: "Show the policy that the daemon follows, since when, and who set it", Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			var p api.Policy
			if err := client.Connect().Do(c.Context(), http.MethodGet, "/v1/policy", nil, &p); err != nil {
				return err
			}
			if asJSON {
				return json.NewEncoder(c.OutOrStdout()).Encode(p)
			}
			w := c.OutOrStdout()
			fmt.Fprintf(w, "%s\n  since %s, set by %s\n", p.Text(), p.Since.Local().Format(time.DateTime), p.By)
			if p.Live {
				fmt.Fprintf(w, "  configured: %s (muster policy set --from-config goes back to it)\n",
					p.Configured.Text())
			}
			if g := p.Guard; g != nil {
				fmt.Fprintf(w, "  guarded until %s: if %s would have been better by %g %% of %s, it comes back\n",
					g.Until.Local().Format(time.DateTime),
					g.Against.Text(), 100*g.Bound, g.Objective)
				if g.Text != "" {
					fmt.Fprintf(w, "  the last check: %s\n", g.Text)
				}
			}
			for _, m := range p.Changes {
				fmt.Fprintf(w, "  %s  %s  %s\n", m.At.Local().Format(time.DateTime), m.State, m.Text)
			}
			return nil
		},
	}
	c.Flags().BoolVar(&asJSON, "json", false, "JSON")
	return c
}

// newPolicySet changes the policy of a daemon.
func newPolicySet() *cobra.Command {
	var r api.PolicyRequest
	var guard api.PolicyGuard
	var asJSON bool
	c := &cobra.Command{
		Use: "set [POLICY[:knob=value,...]]", Short: "Change the policy of the daemon; running jobs continue",
		Args: cobra.MaximumNArgs(1),
		Long: "The change counts from the next decision on and survives a restart of the daemon. It counts until the configuration\n" +
			"(file or flags) says something else of policy, place or backfill than it does now: the last to speak wins.\n" +
			"A policy that preempts may take devices from running jobs at once: --dry-run says from which. Only operators may.",
		Example: "  muster policy set tiresias --dry-run\n  muster policy set las:base=30m --place consolidate\n  muster policy set --from-config",
		ValidArgsFunction: func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
			return policy.Names(), cobra.ShellCompDirectiveNoFileComp
		},
		RunE: func(c *cobra.Command, args []string) error {
			if len(args) > 0 {
				r.Policy = args[0]
			}
			if guard.For > 0 {
				r.Guard = &guard
			}
			var v api.PolicyChange
			if err := client.Connect().Do(c.Context(), http.MethodPost, "/v1/policy", &r, &v); err != nil {
				return err
			}
			if asJSON {
				return json.NewEncoder(c.OutOrStdout()).Encode(v)
			}
			return printPolicy(c.OutOrStdout(), &v)
		},
	}
	c.Flags().StringVar(&r.Place, "place", "", "where: a placer (muster policy list); as it is if empty")
	c.Flags().StringVar(&r.Backfill, "backfill", "",
		"none, skip, easy or conservative; own: as the policy wants it; as it is if empty")
	c.Flags().BoolVar(&r.FromConfig, "from-config", false, "go back to what the configuration says")
	c.Flags().BoolVar(&r.DryRun, "dry-run", false, "change nothing: say what would happen")
	c.Flags().TextVar(&guard.For, "guard", api.Duration(0),
		"for so long the policy before continues as a shadow, and comes back if it would have done better")
	c.Flags().TextVar(&guard.Every, "guard-every", api.Duration(0),
		"how often that is checked; 10m if it is not given")
	c.Flags().StringVar(&guard.Objective, "guard-objective", "",
		"by what it is judged, as in muster tune; mean-jct if it is not given")
	c.Flags().Float64Var(&guard.Bound, "guard-bound", 0,
		"by what part the policy before has to be better; 0.05 if it is not given")
	c.Flags().IntVar(&guard.Jobs, "guard-jobs", 0, "the fewest jobs to judge by; 20 if it is not given")
	c.Flags().BoolVar(&asJSON, "json", false, "JSON")
	return c
}

// printPolicy says what changed, or what would.
func printPolicy(w io.Writer, v *api.PolicyChange) error {
	if v.Before == v.After {
		fmt.Fprintf(w, "%s: that is what counts already\n", v.After.Text())
	} else {
		fmt.Fprintf(w, "%s -> %s\n", v.Before.Text(), v.After.Text())
	}
	if !v.DryRun {
		return nil
	}
	if err := printEffects(w, v); err != nil {
		return err
	}
	_, err := fmt.Fprintln(w, "nothing was changed (--dry-run)")
	return err
}

// printEffects says which jobs would start, leave and wait.
func printEffects(w io.Writer, v *api.PolicyChange) error {
	t := tabwriter.NewWriter(w, 0, 4, 2, ' ', 0)
	if len(v.Starts) == 0 {
		fmt.Fprintln(t, "no job would start now")
	} else {
		fmt.Fprintln(t, "would start now:")
	}
	for i := range v.Starts {
		j := &v.Starts[i]
		fmt.Fprintf(t, "  job %d\t%s\t%s\t%g GPUs\tnow %s\n", j.Job, j.Name, j.User, j.GPUs,
			inLine(j.Before, j.ExpectedBefore))
	}
	if len(v.Preempted) == 0 {
		fmt.Fprintln(t, "no job would be preempted")
	} else {
		fmt.Fprintln(t, "would be preempted:")
	}
	for i := range v.Preempted {
		j := &v.Preempted[i]
		target := ""
		if j.For > 0 {
			target = "for job " + strconv.Itoa(j.For)
		}
		fmt.Fprintf(t, "  job %d\t%s\t%s\t%g GPUs\t%s %s\n", j.Job, j.Name, j.User, j.GPUs, j.How, target)
	}
	if len(v.Waiting) > 0 {
		fmt.Fprintln(t, "would wait:")
	}
	for i := range v.Waiting {
		j := &v.Waiting[i]
		if i == mostWaiting {
			fmt.Fprintf(t, "  ... and %d more (--json lists them)\n", len(v.Waiting)-i)
			break
		}
		fmt.Fprintf(t, "  job %d\t%s\t%s\t%g GPUs\t%s\t->\t%s\n", j.Job, j.Name, j.User, j.GPUs,
			inLine(j.Before, j.ExpectedBefore), inLine(j.After, j.ExpectedAfter))
	}
	return t.Flush()
}

// mostWaiting is how many waiting jobs are shown to people.
const mostWaiting = 50

// inLine is a place in the line with when the job is expected to start.
func inLine(position int, at *time.Time) string {
	if position == 0 {
		return "running"
	}
	text := "number " + strconv.Itoa(position)
	if at == nil {
		return text
	}
	local := at.Local()
	if local.Format(time.DateOnly) != wallTime().Format(time.DateOnly) {
		return text + " (" + local.Format("2 Jan 15:04") + ")"
	}
	return text + " (" + local.Format(time.TimeOnly) + ")"
}
