package main

import (
	"encoding/json"
	"fmt"
	"io"
	"strconv"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/muster-gpu/muster/api"
	"github.com/muster-gpu/muster/client"
	"github.com/muster-gpu/muster/cluster"
)

// jobIDs reads job numbers.
func jobIDs(args []string) (ids []int, err error) {
	for _, a := range args {
		id, err := strconv.Atoi(a)
		if err != nil || id < 1 {
			return nil, usage(fmt.Errorf("%q is not the number of a job", a))
		}
		ids = append(ids, id)
	}
	return ids, nil
}

// newVerbs are the commands that do one thing to jobs.
func newVerbs() (list []*cobra.Command) {
	for _, v := range []struct{ name, short string }{
		{"cancel", "End jobs, whether they run or wait"},
		{"hold", "Keep waiting jobs from starting"},
		{"release", "Let held jobs start"},
		{"requeue", "Stop running jobs, checkpoint first, and let them wait again"},
		{"suspend", "Freeze running jobs on their GPUs"},
		{"resume", "Let suspended jobs go on"},
	} {
		var asJSON bool
		c := &cobra.Command{
			Use: v.name + " JOB...", Short: v.short, Args: cobra.MinimumNArgs(1), ValidArgsFunction: completeJobs(),
			RunE: func(c *cobra.Command, args []string) error {
				ids, err := jobIDs(args)
				if err != nil {
					return err
				}
				cl := client.Connect()
				for _, id := range ids {
					j, err := cl.Act(c.Context(), id, v.name)
					if err != nil {
						return err
					}
					if err := tellJob(c, &j, asJSON); err != nil {
						return err
					}
				}
				return nil
			},
		}
		c.Flags().BoolVar(&asJSON, "json", false, "JSON")
		list = append(list, c)
	}
	return list
}

func newShow() *cobra.Command {
	return &cobra.Command{
		Use: "show JOB", Short: "Show everything about a job, as JSON", Args: cobra.ExactArgs(1), ValidArgsFunction: completeJobs(jobStates[1:]...),
		RunE: func(c *cobra.Command, args []string) error {
			ids, err := jobIDs(args)
			if err != nil {
				return err
			}
			j, err := client.Connect().Job(c.Context(), ids[0])
			if err != nil {
				return err
			}
			j.Submission.Env = nil // long, and known to whoever asks
			enc := json.NewEncoder(c.OutOrStdout())
			enc.SetIndent("", "  ")
			return enc.Encode(j)
		},
	}
}

func newWhy() *cobra.Command {
	var asJSON bool
	c := &cobra.Command{
		Use: "why JOB", Short: "Say why a job waits, for whom, and until when", Args: cobra.ExactArgs(1), ValidArgsFunction: completeJobs(),
		RunE: func(c *cobra.Command, args []string) error {
			ids, err := jobIDs(args)
			if err != nil {
				return err
			}
			w, err := client.Connect().Why(c.Context(), ids[0])
			if err != nil {
				return err
			}
			if asJSON {
				return json.NewEncoder(c.OutOrStdout()).Encode(w)
			}
			if w.Job.State != api.StatePending {
				_, err = fmt.Fprintf(c.OutOrStdout(), "job %d (%s): %s %s\n", w.Job.ID, w.Job.Submission.Name, w.Job.State, w.Text)
				return err
			}
			return tellAccepted(c.OutOrStdout(), &client.Submitted{Jobs: ids, Job: w.Job, Why: w})
		},
	}
	c.Flags().BoolVar(&asJSON, "json", false, "JSON")
	return c
}

func newLogs() *cobra.Command {
	var follow, errs bool
	var task int
	c := &cobra.Command{
		Use: "logs JOB", Short: "Show a job's output", Args: cobra.ExactArgs(1), ValidArgsFunction: completeJobs(jobStates[1:]...),
		RunE: func(c *cobra.Command, args []string) error {
			ids, err := jobIDs(args)
			if err != nil {
				return err
			}
			stream := "out"
			if errs {
				stream = "err"
			}
			return client.Connect().Log(c.Context(), ids[0], task, stream, follow, c.OutOrStdout())
		},
	}
	c.Flags().BoolVarP(&follow, "follow", "f", false, "go on until the job is over")
	c.Flags().BoolVar(&errs, "stderr", false, "standard error, where it has a file of its own")
	c.Flags().IntVar(&task, "task", 0, "of this task")
	return c
}

func newWait() *cobra.Command {
	var asJSON bool
	c := &cobra.Command{
		Use: "wait JOB...", Short: "Wait until jobs are over; the exit code is that of the last one that failed", Args: cobra.MinimumNArgs(1), ValidArgsFunction: completeJobs(),
		RunE: func(c *cobra.Command, args []string) error {
			ids, err := jobIDs(args)
			if err != nil {
				return err
			}
			code := 0
			for _, id := range ids {
				j, err := client.Connect().Wait(c.Context(), id)
				if err != nil {
					return err
				}
				if err := tellJob(c, &j, asJSON); err != nil {
					return err
				}
				if j.State != api.StateCompleted {
					code = max(1, j.ExitCode)
				}
			}
			if code != 0 {
				return exitCode(code)
			}
			return nil
		},
	}
	c.Flags().BoolVar(&asJSON, "json", false, "JSON")
	return c
}

func newNodes() *cobra.Command {
	var asJSON bool
	c := &cobra.Command{
		Use: "nodes", Aliases: []string{"gpus"}, Short: "Show the GPUs and who holds them", Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			list, err := client.Connect().Nodes(c.Context())
			if err != nil {
				return err
			}
			if asJSON {
				return json.NewEncoder(c.OutOrStdout()).Encode(list)
			}
			return printNodes(c.OutOrStdout(), list)
		},
	}
	c.Flags().BoolVar(&asJSON, "json", false, "JSON")
	return c
}

func printNodes(w io.Writer, list []api.Node) error {
	t := tabwriter.NewWriter(w, 0, 4, 2, ' ', 0)
	fmt.Fprintln(t, "NODE\tSTATE\tGPU\tMODEL\tMEMORY\tFREE\tJOBS\tNOTE")
	for _, n := range list {
		for _, g := range n.GPUs {
			var jobs, notes []string
			if n.Reason != "" {
				notes = append(notes, n.Reason)
			}
			for _, id := range g.Jobs {
				jobs = append(jobs, strconv.Itoa(id))
			}
			if g.Simulated {
				notes = append(notes, "simulated")
			}
			if !g.Healthy {
				notes = append(notes, strings.TrimSuffix("unhealthy: "+g.Fault, ": "))
			}
			fmt.Fprintf(t, "%s\t%s\t%d\t%s\t%d MiB\t%d%%\t%s\t%s\n", n.Name, n.State, g.Index, g.Model, g.Memory, g.Free/10,
				strings.Join(jobs, ","), strings.Join(notes, ", "))
		}
	}
	return t.Flush()
}

func newQueues() *cobra.Command {
	var asJSON bool
	c := &cobra.Command{
		Use: "queues", Short: "Show the queues and what they hold", Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			list, err := client.Connect().Queues(c.Context())
			if err != nil {
				return err
			}
			if asJSON {
				return json.NewEncoder(c.OutOrStdout()).Encode(list)
			}
			t := tabwriter.NewWriter(c.OutOrStdout(), 0, 4, 2, ' ', 0)
			fmt.Fprintln(t, "QUEUE\tPARENT\tGUARANTEE\tLIMIT\tHOLDS\tRUNNING\tWAITING")
			for _, q := range list {
				limit := "none"
				if q.Limit != cluster.Unlimited {
					limit = fmt.Sprintf("%g", float64(q.Limit)/1000)
				}
				fmt.Fprintf(t, "%s\t%s\t%g\t%s\t%g\t%d\t%d\n", q.Name, q.Parent, float64(q.Guarantee)/1000, limit, float64(q.Used)/1000, q.Running, q.Pending)
			}
			return t.Flush()
		},
	}
	c.Flags().BoolVar(&asJSON, "json", false, "JSON")
	return c
}
