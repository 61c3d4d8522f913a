package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/muster-gpu/muster/api"
	"github.com/muster-gpu/muster/client"
	"github.com/muster-gpu/muster/cluster"
)

// newUpdate changes waiting jobs.
func newUpdate() *cobra.Command {
	f := &jobFlags{}
	var asJSON bool
	c := &cobra.Command{
		Use: "update JOB... [flags]", Short: "Change waiting jobs", Args: cobra.MinimumNArgs(1),
		Long:              "Changes waiting jobs. JOB is a number or a name.",
		ValidArgsFunction: completeJobs(api.StatePending),
		Example:           "  muster update 12 --gpus 2 --time 4h\n  muster update 12 13 --queue night --priority 5",
		RunE: func(c *cobra.Command, args []string) error {
			ids, err := client.Connect().FindJobs(c.Context(), args)
			if err != nil {
				return err
			}
			u, err := f.update(c)
			if err != nil {
				return usage(err)
			}
			for _, id := range ids {
				var j api.Job
				if err := client.Connect().Do(c.Context(), http.MethodPatch, "/v1/jobs/"+strconv.Itoa(id), u,
					&j); err != nil {
					return fmt.Errorf("job %d: %w", id, err)
				}
				if err := printJob(c, &j, asJSON); err != nil {
					return err
				}
			}
			return nil
		},
	}
	fl := c.Flags()
	fl.StringVarP(&f.s.Name, "name", "J", "", "name of the job")
	fl.StringVarP(&f.s.Queue, "queue", "q", "", "queue that it counts for")
	fl.StringVar(&f.s.Tier, "tier", "", "critical, standard or best-effort")
	fl.Int64Var(&f.s.Priority, "priority", 0, "higher first")
	fl.StringVarP(&f.gpus, "gpus", "G", "0",
		"GPUs of each task, a fraction such as 0.5, or a MIG profile such as 3g.40gb")
	fl.StringVar(&f.gpuMem, "gpu-mem", "", "GPU memory needed on each GPU, such as 8GiB")
	fl.StringVar(&f.gpuCores, "gpu-cores", "",
		"part of a GPU's compute, such as 30%: the same as --gpus 0.3; with --gpus 2, of each of two GPUs of a node")
	fl.StringVar(&f.s.Isolation, "isolation", "",
		"what must be kept apart on a shared GPU: none, memory, or full (docs/howto/share-a-gpu.md)")
	fl.Float64Var(&f.s.MinSpeed, "min-speed", 0,
		"least part of its speed alone that it accepts beside others in a share of a GPU; 0: the configured one")
	fl.IntVarP(&f.s.Tasks, "tasks", "n", 1, "tasks of the gang")
	fl.Float64VarP(&f.cpus, "cpus", "c", 0, "CPU cores of each task")
	fl.StringVar(&f.memory, "mem", "", "host memory of each task, such as 16GiB")
	fl.StringSliceVar(&f.s.GPUTypes, "gpu-type", nil, "acceptable GPU models, best first; any if empty")
	fl.StringVarP(&f.limit, "time", "t", "", "time limit, such as 2h30m; 0s: none")
	fl.StringVar(&f.estimate, "estimate", "", "expected run time, such as 1h; 0s: unknown")
	fl.StringVar(&f.s.Comment, "comment", "", "free text")
	fl.BoolVar(&asJSON, "json", false, "JSON")
	return c
}

// update is what the flags change.
func (f *jobFlags) update(c *cobra.Command) (*api.Update, error) {
	s := f.s
	if err := f.resources(&s); err != nil {
		return nil, err
	}
	u := &api.Update{}
	var limit, estimate api.Duration
	for flag, take := range map[string]func() error{
		"name":     func() error { u.Name = &s.Name; return nil },
		"queue":    func() error { u.Queue = &s.Queue; return nil },
		"tier":     func() error { u.Tier = &s.Tier; return nil },
		"priority": func() error { u.Priority = &s.Priority; return nil },
		"gpus":     func() error { u.GPUs, u.Share, u.Profile = &s.GPUs, &s.Share, &s.Profile; return nil },
		"gpu-cores": func() error { // of as many GPUs as it asks for
			u.Share, u.Profile = &s.Share, &s.Profile
			return nil
		},
		"gpu-mem":   func() error { u.Memory = &s.Memory; return nil },
		"isolation": func() error { u.Isolation = &s.Isolation; return nil },
		"min-speed": func() error { u.MinSpeed = &s.MinSpeed; return nil },
		"tasks":     func() error { u.Tasks = &s.Tasks; return nil },
		"cpus":      func() error { u.CPU = &s.CPU; return nil },
		"mem":       func() error { u.RAM = &s.RAM; return nil },
		"gpu-type":  func() error { u.GPUTypes = &s.GPUTypes; return nil },
		"comment":   func() error { u.Comment = &s.Comment; return nil },
		"time":      func() (err error) { u.Limit = &limit; limit, err = parseSpan(f.limit); return err },
		"estimate":  func() error { u.Estimate = &estimate; return estimate.UnmarshalText([]byte(f.estimate)) },
	} {
		if !c.Flags().Changed(flag) {
			continue
		}
		if err := take(); err != nil {
			return nil, fmt.Errorf("--%s: %w", flag, err)
		}
	}
	if *u == (api.Update{}) {
		return nil, errors.New("nothing to change: give flags such as --gpus or --time")
	}
	return u, nil
}

// printJob answers with a job's state.
func printJob(c *cobra.Command, j *api.Job, asJSON bool) error {
	if asJSON {
		return json.NewEncoder(c.OutOrStdout()).Encode(j)
	}
	_, err := fmt.Fprintf(c.OutOrStdout(), "job %d: %s\n", j.ID, j.State)
	return err
}

// completeJobs completes the numbers of jobs in these states; all that are not
// over if none is named.
func completeJobs(states ...string) cobra.CompletionFunc {
	return func(c *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
		if len(states) == 0 {
			states = []string{"active"}
		}
		if kubeCluster.given() && kubeCluster.connect(c.Context()) != nil {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		list, err := client.Connect().List(c.Context(), url.Values{"state": states})
		if err != nil {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		var out []string
		for i := range list {
			out = append(out, cobra.CompletionWithDesc(strconv.Itoa(list[i].ID),
				list[i].Submission.Name+" ("+list[i].User+", "+list[i].State+")"))
		}
		return out, cobra.ShellCompDirectiveNoFileComp
	}
}

func newDrain() *cobra.Command {
	var reason string
	c := newNodeVerb("drain", "drain", "Let this machine, or a node, take no more jobs; running jobs continue", &reason)
	c.Flags().StringVar(&reason, "reason", "", "why it is drained")
	return c
}

func newUndrain() *cobra.Command {
	return newNodeVerb("undrain", "resume", "Let a drained node take jobs again", new(string))
}

// newNodeVerb does one thing to a node, the first one if none is named.
func newNodeVerb(name, verb, short string, reason *string) *cobra.Command {
	var asJSON bool
	c := &cobra.Command{
		Use: name + " [NODE]", Short: short, Args: cobra.MaximumNArgs(1), ValidArgsFunction: completeNames(nodeNames),
		RunE: func(c *cobra.Command, args []string) error {
			cl := client.Connect()
			nodes, err := cl.Nodes(c.Context())
			if err != nil {
				return err
			}
			node := nodes[0].Name
			if len(args) > 0 {
				node = args[0]
			}
			nodes = nil // what is decoded into it would keep what the answer does not have
			path := "/v1/nodes/" + url.PathEscape(node) + "/" + verb
			if err := cl.Do(c.Context(), http.MethodPost, path, &api.Drain{Reason: *reason}, &nodes); err != nil {
				return err
			}
			if asJSON {
				return json.NewEncoder(c.OutOrStdout()).Encode(nodes)
			}
			for i := range nodes {
				if nodes[i].Name == node {
					text := fmt.Sprintf("node %s: %s %s", node, nodes[i].State, nodes[i].Reason)
					fmt.Fprintln(c.OutOrStdout(), strings.TrimSpace(text))
				}
			}
			return nil
		},
	}
	c.Flags().BoolVar(&asJSON, "json", false, "JSON")
	return c
}

// newHistory shows what happened to a job, or which jobs are over.
func newHistory() *cobra.Command {
	var asJSON bool
	var since, userName, cols string
	c := &cobra.Command{
		Use: "history [JOB]", Short: "Show what happened to a job, or the jobs that are over",
		Long:              "Shows what happened to a job, or the jobs that are over. JOB is its number or its name.",
		Args:              cobra.MaximumNArgs(1),
		ValidArgsFunction: completeJobs(jobStates[1:]...),
		Example:           "  muster history 12\n  muster history --since 24h --user ann",
		RunE: func(c *cobra.Command, args []string) error {
			if len(args) == 0 {
				return endedJobs(c, since, userName, cols, asJSON)
			}
			ids, err := client.Connect().FindJobs(c.Context(), args)
			if err != nil {
				return err
			}
			var list []api.Moment
			if err := client.Connect().Do(c.Context(), http.MethodGet, "/v1/jobs/"+strconv.Itoa(ids[0])+"/history", nil,
				&list); err != nil {
				return err
			}
			if asJSON {
				return json.NewEncoder(c.OutOrStdout()).Encode(list)
			}
			t := tabwriter.NewWriter(c.OutOrStdout(), 0, 4, 2, ' ', 0)
			for _, m := range list {
				fmt.Fprintf(t, "%s\t%s\t%s\n", m.At.Local().Format("2006-01-02 15:04:05.000"), m.State, m.Text)
			}
			return t.Flush()
		},
	}
	c.Flags().StringVar(&since, "since", "7d", "jobs that ended in so long a time")
	c.Flags().StringVarP(&userName, "user", "u", "", "only this user's")
	c.Flags().StringVarP(&cols, "columns", "o", "job,name,user,queue,gpus,state,exit,waited,ran,gpu-hours,ended",
		"columns, as of muster queue")
	c.Flags().BoolVar(&asJSON, "json", false, "JSON")
	return c
}

func endedJobs(c *cobra.Command, since, userName, cols string, asJSON bool) error {
	d, err := cluster.ParseDuration(since)
	if err != nil {
		return usage(fmt.Errorf("--since: %w", err))
	}
	shown, err := chosen(cols)
	if err != nil {
		return usage(err)
	}
	q := url.Values{"since": {wallTime().Add(-d).UTC().Format("2006-01-02T15:04:05Z07:00")}, "state": jobStates[6:]}
	if userName != "" {
		q.Set("user", userName)
	}
	list, err := client.Connect().List(c.Context(), q)
	if err != nil {
		return err
	}
	if asJSON {
		return json.NewEncoder(c.OutOrStdout()).Encode(list)
	}
	if err := sortJobs(list, "ended"); err != nil {
		return err
	}
	return printRows(c.OutOrStdout(), singleRows(list), shown, true, !c.Flags().Changed("columns"))
}
