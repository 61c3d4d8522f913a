package main

import (
	"fmt"
	"net/http"

	"github.com/spf13/cobra"

	"github.com/muster-gpu/muster/api"
	"github.com/muster-gpu/muster/client"
	"github.com/muster-gpu/muster/tune"
)

// applyTo sets the daemon's policy to the choice, unless that is in force, is
// not sure enough, or was not weighed against what the daemon follows.
func (f *tuneFlags) applyTo(c *cobra.Command, t *tuned, tried []tune.Candidate) error {
	say := func(format string, args ...any) {
		if !f.asJSON {
			fmt.Fprintf(c.OutOrStdout(), format, args...)
		}
	}
	if t.Winner == t.Current {
		say("--apply: %s stays\n", t.Rows[t.Current].Policy)
		return nil
	}
	win := &t.Rows[t.Winner]
	if t.Alone != "" && !f.anyway {
		return fmt.Errorf("--apply: not applied: there is nothing to compare %s to, because in the replay of %s %s; with --force it is applied all the same",
			win.Policy, t.Rows[t.Current].Policy, t.Alone)
	}
	if t.Alone == "" && (win.Better == nil || *win.Better < f.sure) {
		return fmt.Errorf("--apply: not applied: %s is better than %s in a share of %s of the resamples, and --sure asks for %g",
			win.Policy, t.Rows[t.Current].Policy, known(win.Better, "%.3f"), f.sure)
	}
	cl := client.Connect()
	var now api.Policy
	if err := cl.Do(c.Context(), http.MethodGet, "/v1/policy", nil, &now); err != nil {
		return fmt.Errorf("--apply: %w", err)
	}
	follows := tune.Candidate{Policy: now.Policy, Backfill: now.Backfill}
	if err := follows.Check(); err != nil {
		return fmt.Errorf("--apply: the daemon's policy: %w", err)
	}
	if follows.String() != t.Rows[t.Current].Policy || now.Place != t.Placer {
		return fmt.Errorf("--apply: not applied: the daemon follows %s with placer %s, and the gain was counted against %s with %s: give --current %s --place %s",
			follows, now.Place, t.Rows[t.Current].Policy, t.Placer, follows, now.Place)
	}
	var choice tune.Candidate
	for _, x := range tried {
		if x.String() == win.Policy {
			choice = x
		}
	}
	r := api.PolicyRequest{Policy: choice.Policy, Backfill: choice.Backfill, DryRun: true}
	if r.Backfill == "" {
		r.Backfill = "own"
	}
	var would, did api.PolicyChange
	if err := cl.Do(c.Context(), http.MethodPost, "/v1/policy", &r, &would); err != nil {
		return fmt.Errorf("--apply: %w", err)
	}
	if !f.asJSON {
		say("\n--apply: what it does to the daemon's jobs:\n")
		if err := printEffects(c.OutOrStdout(), &would); err != nil {
			return err
		}
	}
	r.DryRun = false
	if d, _ := durationFlag("guard", f.guard); d > 0 {
		r.Guard = &api.PolicyGuard{For: api.Duration(d), Objective: f.objective, Bound: f.bound}
	}
	if err := cl.Do(c.Context(), http.MethodPost, "/v1/policy", &r, &did); err != nil {
		return fmt.Errorf("--apply: %w", err)
	}
	would.DryRun, would.Before, would.After = false, did.Before, did.After
	t.Applied = &would
	say("applied: %s -> %s (muster policy set --from-config goes back)\n", did.Before.Text(), did.After.Text())
	if r.Guard != nil {
		say("for %s %s continues as a shadow: if it would have been better by %g %% of %s, it comes back (muster policy show)\n",
			f.guard, did.Before.Policy, 100*f.bound, f.objective)
	}
	return nil
}
