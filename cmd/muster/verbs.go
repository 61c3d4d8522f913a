package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/muster-gpu/muster/api"
	"github.com/muster-gpu/muster/client"
	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/show"
)

func newCancel() *cobra.Command {
	return newManyVerb("cancel", "End jobs, whether they run or wait", "cancelled")
}

func newHold() *cobra.Command {
	return newManyVerb("hold", "Keep waiting jobs from starting", "held")
}

func newRelease() *cobra.Command {
	return newManyVerb("release", "Let held jobs start", "released")
}

func newRequeue() *cobra.Command {
	return newVerb("requeue", api.StateRunning, "Stop running jobs, checkpoint first, and let them wait again")
}

func newSuspend() *cobra.Command {
	return newVerb("suspend", api.StateRunning, "Freeze running jobs on their GPUs")
}

func newResume() *cobra.Command {
	return newVerb("resume", api.StateSuspended, "Let suspended jobs continue")
}

// newVerb does one thing to jobs, one after the other; of an array, to the elements in a state.
func newVerb(name, state, short string) *cobra.Command {
	var asJSON bool
	c := &cobra.Command{
		Use: name + " JOB...", Short: short, Args: cobra.MinimumNArgs(1), ValidArgsFunction: completeJobs(),
		RunE: func(c *cobra.Command, args []string) error {
			cl := client.Connect()
			ids, err := cl.FindJobs(c.Context(), args)
			if err == nil {
				ids, err = cl.ElementsOf(c.Context(), ids, state)
			}
			if err != nil {
				return err
			}
			for _, id := range ids {
				j, err := cl.Act(c.Context(), id, name)
				if err != nil {
					return err
				}
				if err := printJob(c, &j, asJSON); err != nil {
					return err
				}
			}
			return nil
		},
	}
	c.Flags().BoolVar(&asJSON, "json", false, "JSON")
	return c
}

func newShow() *cobra.Command {
	return &cobra.Command{
		Annotations: onCluster,
		Use:         "show JOB", Short: "Show everything about a job, as JSON", Args: cobra.ExactArgs(1),
		ValidArgsFunction: completeJobs(jobStates[1:]...),
		Long:              "Shows everything about a job, as JSON. JOB is its number or its name.",
		RunE: func(c *cobra.Command, args []string) error {
			cl := client.Connect()
			id, err := cl.FindJob(c.Context(), args[0])
			if err != nil {
				return err
			}
			j, err := cl.Job(c.Context(), id)
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
		Annotations: onCluster,
		Use:         "why JOB", Short: "Say why a job waits, for which others, and until when", Args: cobra.ExactArgs(1),
		ValidArgsFunction: completeJobs(),
		Long:              "Says why a job waits, for which others, and until when. JOB is its number or its name.",
		RunE: func(c *cobra.Command, args []string) error {
			cl := client.Connect()
			id, err := cl.FindJob(c.Context(), args[0])
			if err != nil {
				return err
			}
			w, err := cl.Why(c.Context(), id)
			if err != nil {
				return err
			}
			if asJSON {
				return json.NewEncoder(c.OutOrStdout()).Encode(w)
			}
			if w.Job.State != api.StatePending && !waitsAsleep(&w.Job) {
				_, err = fmt.Fprintf(c.OutOrStdout(), "job %d (%s): %s %s%s\n", w.Job.ID, w.Job.Submission.Name,
					w.Job.State, strings.TrimPrefix(w.Text, w.Job.State+" "), runningText(&w.Job))
				return err
			}
			return printAccepted(c.OutOrStdout(), &client.Submitted{Jobs: []int{id}, Job: w.Job, Why: w})
		},
	}
	c.Flags().BoolVar(&asJSON, "json", false, "JSON")
	return c
}

// runningText says of a running job when it is expected to end, and that it is
// idle, if it is.
func runningText(j *api.Job) string {
	text := sharingText(j)
	if j.ExpectedEnd != nil {
		how := map[string]string{api.EndByProgress: "by its progress", api.EndByEstimate: "as was stated",
			api.EndByHistory: "as earlier runs suggest",
			api.EndByLimit:   "at its time limit"}[j.EndBy]
		if p := j.Progress; p != nil && p.Predicted && j.EndBy == api.EndByProgress {
			how += fmt.Sprintf(" (step %g of %.0f, as its metric foretells)", p.Step, p.Steps)
		}
		text += fmt.Sprintf("; expected to end %s, %s", j.ExpectedEnd.Local().Format("15:04:05 Mon 2 Jan"), how)
	}
	if idle := idleText(j); idle != "" {
		text += "\n  " + idle
	}
	return text
}

func newLogs() *cobra.Command {
	var follow, errs bool
	var task int
	c := &cobra.Command{
		Use: "logs JOB", Short: "Show a job's output", Args: cobra.ExactArgs(1),
		ValidArgsFunction: completeJobs(jobStates[1:]...),
		Long:              "Shows a job's output. JOB is its number or its name.",
		RunE: func(c *cobra.Command, args []string) error {
			cl := client.Connect()
			id, err := cl.FindJob(c.Context(), args[0])
			if err != nil {
				return err
			}
			stream := "out"
			if errs {
				stream = "err"
			}
			out := &countingWriter{w: c.OutOrStdout()}
			if err := outputOf(c.Context(), cl, id, task, stream, follow, out); err != nil {
				return err
			}
			return printNoOutput(c, cl, id, out.n)
		},
	}
	c.Flags().BoolVarP(&follow, "follow", "f", false, "go on until the job is over")
	c.Flags().BoolVar(&errs, "stderr", false, "standard error, where it has a file of its own")
	c.Flags().IntVar(&task, "task", 0, "of this task")
	return c
}

// outputOf copies a task's output; with follow, what comes until the job is over, across restarts of the service.
func outputOf(ctx context.Context, cl *client.Client, id, task int, stream string, follow bool, w io.Writer) error {
	if !follow {
		return cl.Log(ctx, id, task, stream, w)
	}
	if _, err := cl.Job(ctx, id); err != nil { // only a service that was there is waited for
		return err
	}
	return cl.FollowLog(ctx, id, task, stream, w)
}

// printNoOutput says of a job without output why it has none: it failed before it could write, or has not started.
func printNoOutput(c *cobra.Command, cl *client.Client, id int, written int64) error {
	if written > 0 {
		return nil
	}
	j, err := cl.Job(c.Context(), id)
	if err != nil {
		return err
	}
	text := j.State
	if j.Reason != "" {
		text += ": " + j.Reason
	}
	_, err = fmt.Fprintf(c.ErrOrStderr(), "muster: job %d has written nothing; it is %s\n", id, text)
	return err
}

// countingWriter counts what passes through it, in bytes.
type countingWriter struct {
	w io.Writer
	n int64
}

func (w *countingWriter) Write(b []byte) (int, error) {
	n, err := w.w.Write(b)
	w.n += int64(n)
	return n, err
}

func newWait() *cobra.Command {
	var asJSON bool
	c := &cobra.Command{
		Use: "wait JOB...", Short: "Wait until jobs are over; the exit code is that of the last one that failed",
		Args: cobra.MinimumNArgs(1), ValidArgsFunction: completeJobs(),
		Long: "Waits until jobs are over. JOB is a number or a name.",
		RunE: func(c *cobra.Command, args []string) error {
			cl := client.Connect()
			ids, err := cl.FindJobs(c.Context(), args)
			if err != nil {
				return err
			}
			code := 0
			for _, id := range ids { // only a daemon that was there is waited for
				if _, err := cl.Job(c.Context(), id); err != nil {
					return err
				}
			}
			for _, id := range ids {
				j, err := cl.WaitOn(c.Context(), id)
				if err != nil {
					return err
				}
				if err := printJob(c, &j, asJSON); err != nil {
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
	var asJSON, each bool
	c := &cobra.Command{
		Annotations: onCluster,
		Use:         "nodes", Aliases: []string{"gpus"}, Short: "Show the GPUs and the jobs that hold them", Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			list, err := client.Connect().Nodes(c.Context())
			if err != nil {
				return err
			}
			if asJSON {
				return json.NewEncoder(c.OutOrStdout()).Encode(list)
			}
			print := printNodes
			if len(list) > 1 && !each {
				print = printMany
			}
			if err := print(c.OutOrStdout(), list); err != nil {
				return err
			}
			if text := show.LeftText(list); text != "" {
				fmt.Fprintln(c.OutOrStdout(), text)
			}
			return nil
		},
	}
	c.Flags().BoolVar(&each, "gpus", false, "a line for each GPU, of several nodes, too")
	c.Flags().BoolVar(&asJSON, "json", false, "JSON")
	return c
}

func printNodes(w io.Writer, list []api.Node) error {
	t := tabwriter.NewWriter(w, 0, 4, 2, ' ', 0)
	fmt.Fprintln(t, "NODE\tSTATE\tGPU\tMODEL\tMEMORY\tFREE\tJOBS\tNOTE")
	for _, n := range list {
		for _, g := range n.GPUs {
			var notes []string
			if n.Reason != "" {
				notes = append(notes, n.Reason)
			}
			if g.Simulated {
				notes = append(notes, "simulated")
			}
			for _, in := range g.Instances {
				word := fmt.Sprintf("%s@%d", in.Profile, in.Start)
				if in.Job != nil {
					word += ": job " + strconv.Itoa(*in.Job)
				}
				notes = append(notes, word)
			}
			switch {
			case !g.Healthy:
				notes = append(notes, strings.TrimSuffix("unhealthy: "+g.Fault, ": "))
			case g.Fault != "":
				notes = append(notes, g.Fault)
			}
			fmt.Fprintf(t, "%s\t%s\t%d\t%s\t%d MiB\t%d%%\t%s\t%s\n", n.Name, n.State, g.Index, g.Model, g.Memory,
				g.Free/10,
				strings.Join(jobTexts(g.Jobs), ","), strings.Join(notes, ", "))
		}
	}
	return t.Flush()
}

// jobTexts are the numbers of jobs.
func jobTexts(ids []int) (list []string) {
	for _, id := range ids {
		list = append(list, strconv.Itoa(id))
	}
	return list
}

// mostHolders bounds how many jobs of a node are named in its line.
const mostHolders = 8

// printMany writes a line for each of several nodes.
func printMany(w io.Writer, list []api.Node) error {
	t := tabwriter.NewWriter(w, 0, 4, 2, ' ', 0)
	fmt.Fprintln(t, "NODE\tSTATE\tMODEL\tGPUS\tFREE\tJOBS\tNOTE")
	for i := range list {
		n := &list[i]
		sum := show.SumOf(n)
		jobs := jobTexts(sum.Jobs)
		if n := len(jobs); n > mostHolders {
			jobs = append(jobs[:mostHolders], fmt.Sprintf("and %d more", n-mostHolders))
		}
		notes := []string{}
		if n.Reason != "" {
			notes = append(notes, n.Reason)
		}
		for _, fault := range slices.Sorted(maps.Keys(sum.Faults)) {
			notes = append(notes, fmt.Sprintf("%d: %s", sum.Faults[fault], fault))
		}
		fmt.Fprintf(t, "%s\t%s\t%s\t%d\t%g\t%s\t%s\n", n.Name, n.State, sum.Model, len(n.GPUs),
			float64(sum.Free)/1000,
			strings.Join(jobs, ","), strings.Join(notes, ", "))
	}
	return t.Flush()
}

func newQueues() *cobra.Command {
	var asJSON bool
	c := &cobra.Command{
		Annotations: onCluster,
		Use:         "queues", Short: "Show the queues and what they hold", Args: cobra.NoArgs,
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
				fmt.Fprintf(t, "%s\t%s\t%g\t%s\t%g\t%d\t%d\n", q.Name, q.Parent, float64(q.Guarantee)/1000, limit,
					float64(q.Used)/1000, q.Running, q.Pending)
			}
			return t.Flush()
		},
	}
	c.Flags().BoolVar(&asJSON, "json", false, "JSON")
	return c
}
