//go:build linux

package main

import (
	"cmp"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/muster-gpu/muster/api"
	"github.com/muster-gpu/muster/client"
	"github.com/muster-gpu/muster/cluster"
)

func newAudit() *cobra.Command {
	var userName, action, since string
	var job, limit int
	var asJSON bool
	c := &cobra.Command{
		Use: "audit", Short: "Show who did what, to what, from where", Args: cobra.NoArgs,
		Long: "Shows who changed whose jobs, nodes, tokens, the policy and the configuration, from where and when, and wrong tokens.\n" +
			"Admins see everything, others what was done to their jobs, and by them.",
		Example: "  muster audit --job 12\n  muster audit --user ann --since 24h\n  muster audit --action drain",
		RunE: func(c *cobra.Command, _ []string) error {
			d, err := cluster.ParseDuration(since)
			if err != nil {
				return usage(fmt.Errorf("--since: %w", err))
			}
			q := url.Values{"since": {wallTime().Add(-d).UTC().Format(time.RFC3339Nano)},
				"limit": {strconv.Itoa(limit)}}
			for k, v := range map[string]string{"user": userName, "action": action} {
				if v != "" {
					q.Set(k, v)
				}
			}
			if job != 0 {
				q.Set("job", strconv.Itoa(job))
			}
			var list []api.Audit
			if err := client.Connect().Do(c.Context(), http.MethodGet, "/v1/audit?"+q.Encode(), nil,
				&list); err != nil {
				return err
			}
			if asJSON {
				return json.NewEncoder(c.OutOrStdout()).Encode(list)
			}
			t := tabwriter.NewWriter(c.OutOrStdout(), 0, 4, 2, ' ', 0)
			fmt.Fprintln(t, "TIME\tWHO\tROLE\tACTION\tWHAT\tFROM\tDETAILS")
			for _, a := range slices.Backward(list) {
				what := a.Subject
				if a.Job != 0 {
					what = fmt.Sprintf("job %d of %s", a.Job, a.Owner)
				}
				fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%s\t%s\t%s\n", a.At.Local().Format("2006-01-02 15:04:05"),
					cmp.Or(a.User, "-"), cmp.Or(a.Role, "-"), a.Action,
					cmp.Or(what, "-"), a.From, a.Text)
			}
			return t.Flush()
		},
	}
	f := c.Flags()
	f.StringVarP(&userName, "user", "u", "", "only what this user did")
	f.IntVar(&job, "job", 0, "only what was done to this job")
	f.StringVar(&action, "action", "",
		"only this: cancel, hold, release, requeue, suspend, resume, signal, update, drain, undrain, policy, config, make-moves, create-token, revoke-token, wrong-token")
	f.StringVar(&since, "since", "7d", "within so long a time")
	f.IntVar(&limit, "limit", 1000, "the latest so many")
	f.BoolVar(&asJSON, "json", false, "JSON")
	return c
}
