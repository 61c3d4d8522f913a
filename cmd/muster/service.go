package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/muster-gpu/muster/api"
	"github.com/muster-gpu/muster/client"
	"github.com/muster-gpu/muster/config"
	"github.com/muster-gpu/muster/service"
)

func newService() *cobra.Command {
	c := &cobra.Command{Use: "service",
		Short: "Services: models that answer requests within a latency, with as many replicas as that needs",
		Long: "A service is a model that answers requests. Its file says how fast it promises to be, and Muster runs as many\n" +
			"replicas as that needs. docs/guide/services.md shows a first one."}
	c.AddCommand(newServiceApply(), newServiceList(), newServiceShow(), newServiceScale(), newServiceLogs(),
		newServiceDelete(), newServiceWhy(), newServiceLoad(), newServiceProfile(), newServiceBatch(), newServiceKey())
	return c
}

func newServiceApply() *cobra.Command {
	return &cobra.Command{
		Use: "apply FILE", Short: "Run the services of a file, or change them; - is standard input",
		Long: "Runs the services of a file, one for each YAML document. A service that runs already is changed: replicas that\n" +
			"run something else than before are replaced, each once a new one answers. Replicas run in the present folder, unless\n" +
			"the file names another (dir).",
		Args: cobra.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			data, err := readAll(args[0], c.InOrStdin())
			if err != nil {
				return err
			}
			if _, err := config.ReadServices(args[0], data); err != nil { // all of it, before any of it is applied
				return usage(err)
			}
			dir, err := os.Getwd()
			if err != nil {
				return err
			}
			cl := client.Connect()
			for _, doc := range config.Documents(data) {
				s, err := cl.ApplyService(c.Context(), &api.ServiceFile{Text: string(doc), Dir: dir})
				if err != nil {
					return err
				}
				fmt.Fprintf(c.OutOrStdout(), "service %s: %s; from %d to %d replicas\n", s.Name, s.Goal, s.Min, s.Max)
			}
			return nil
		},
	}
}

func readAll(path string, stdin io.Reader) ([]byte, error) {
	if path == "-" {
		return io.ReadAll(stdin)
	}
	return os.ReadFile(path)
}

func newServiceList() *cobra.Command {
	asJSON := false
	c := &cobra.Command{
		Use: "list", Short: "List the services with their load and latency of the last minute", Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			list, err := client.Connect().Services(c.Context())
			if err != nil {
				return err
			}
			if asJSON {
				return json.NewEncoder(c.OutOrStdout()).Encode(list)
			}
			return printServices(c.OutOrStdout(), list)
		},
	}
	c.Flags().BoolVar(&asJSON, "json", false, "JSON")
	return c
}

func printServices(w io.Writer, list []api.Service) error {
	if len(list) == 0 {
		_, err := fmt.Fprintln(w, "no services: muster service apply FILE runs one")
		return err
	}
	t := tabwriter.NewWriter(w, 0, 4, 2, ' ', 0)
	fmt.Fprintln(t, "SERVICE\tUSER\tREPLICAS\tREQUESTS/S\tP50\tLATENCY\tGOAL\tMET\tBATCH")
	for i := range list {
		s := &list[i]
		rate, median, quantile, met, batch := "-", "-", "-", "-", "-"
		if s.Measured {
			rate = fmt.Sprintf("%.4g", s.Rate)
		}
		if s.Measured && s.Median > 0 {
			median = latencyText(s.Median)
			quantile = fmt.Sprintf("p%g %s", s.Percentile, latencyText(s.Quantile))
			met = fmt.Sprintf("%.2f %%", 100*s.Attainment)
		}
		if s.Batch > 0 {
			batch = fmt.Sprintf("%.1f", s.Batch)
		}
		fmt.Fprintf(t, "%s\t%s\t%d of %d\t%s\t%s\t%s\t%s\t%s\t%s\n", s.Name, s.Owner, s.Answers, s.Wanted, rate, median,
			quantile, s.Goal, met, batch)
	}
	return t.Flush()
}

func latencyText(s float64) string {
	d := time.Duration(s * float64(time.Second))
	switch {
	case d < 10*time.Millisecond:
		d = d.Round(10 * time.Microsecond)
	case d < time.Second:
		d = d.Round(100 * time.Microsecond)
	default:
		d = d.Round(time.Millisecond)
	}
	return d.String()
}

func newServiceShow() *cobra.Command {
	asJSON, file := false, false
	c := &cobra.Command{
		Use: "show SERVICE", Short: "Show a service: its replicas, and what became of its requests",
		Args: cobra.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			s, err := client.Connect().Service(c.Context(), args[0])
			if err != nil {
				return err
			}
			switch {
			case asJSON:
				return json.NewEncoder(c.OutOrStdout()).Encode(s)
			case file && s.Text == "":
				return errors.New("its file is shown to its owner only")
			case file:
				_, err := fmt.Fprintln(c.OutOrStdout(), strings.Trim(s.Text, "\n"))
				return err
			}
			return printService(c.OutOrStdout(), &s)
		},
	}
	c.Flags().BoolVar(&asJSON, "json", false, "JSON")
	c.Flags().BoolVar(&file, "file", false, "its file, as it was applied")
	return c
}

func printService(w io.Writer, s *api.Service) error {
	t := tabwriter.NewWriter(w, 0, 4, 2, ' ', 0)
	line := func(name, format string, args ...any) { fmt.Fprintf(t, name+"\t"+format+"\n", args...) }
	line("service", "%s of %s, %s", s.Name, s.Owner, s.Tier)
	line("goal", "%s", s.Goal)
	by := ""
	if s.Scaled {
		by = ", as set by muster service scale"
	}
	line("replicas", "%d answer of %d wanted by %s, from %d to %d%s", s.Answers, s.Wanted, s.Scaling, s.Min, s.Max, by)
	if s.Measured {
		line("last minute", "%.4g requests a second, %d waiting now, %d dropped, %d failed", s.Rate, s.Waiting,
			s.Dropped,
			s.Failed)
		line("latency", "median %s, p%g %s; %.2f %% within the goal", latencyText(s.Median), s.Percentile,
			latencyText(s.Quantile), 100*s.Attainment)
		if s.Batch > 0 {
			line("batches", "%.1f requests in the mean", s.Batch)
		}
		if b := s.Bulk; b != nil {
			line("files", "%d of their requests answered, %d failed, %d waiting; %.3g a second keep their deadlines", b.Answered,
				b.Failed, b.Waiting, b.Needed)
		}
		line("cost", "%.4g an hour", s.PerHour)
		if s.Rate > 0 {
			line("", "%.3g for 1000 requests", s.PerHour/3.6/s.Rate)
		}
	}
	for i := range s.Variants {
		if v := &s.Variants[i]; v.Pipeline > 1 {
			line("pipeline", "%s: %d stages, GPUs in each: %d", v.Name, v.Pipeline, v.Tensor)
		}
	}
	if l := s.Loans; l != nil {
		line("lends", "what %d more replicas would hold, to %d jobs; back within %s", l.Replicas, len(l.Jobs),
			latencyText(l.Within))
		if l.Returns > 0 {
			line("given back", "%d times, after %s in the mean and %s at most; %d later than promised", l.Returns,
				latencyText(l.Mean), latencyText(l.Longest), l.Late)
		}
	}
	for _, why := range s.Why {
		line("why", "%s", why)
	}
	if len(s.Replicas) > 0 {
		fmt.Fprintln(t, "\nJOB\tVARIANT\tSTATE\tSINCE\tPORT\tGPUS")
	}
	for i := range s.Replicas {
		r := &s.Replicas[i]
		state := r.State
		if r.Former {
			state += " (former)"
		}
		fmt.Fprintf(t, "%d\t%s\t%s\t%s\t%d\t%s\n", r.Job, r.Variant, state, r.Since.Local().Format(time.TimeOnly),
			r.Port,
			strings.Join(r.Devices, ", "))
	}
	return t.Flush()
}

func newServiceWhy() *cobra.Command {
	return &cobra.Command{
		Use: "why SERVICE", Short: "Say why a service has the replicas that it has, and what is in the way of others",
		Args: cobra.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			s, err := client.Connect().Service(c.Context(), args[0])
			if err != nil {
				return err
			}
			for _, why := range s.Why {
				if _, err := fmt.Fprintln(c.OutOrStdout(), why); err != nil {
					return err
				}
			}
			return nil
		},
	}
}

func newServiceProfile() *cobra.Command {
	whole := false
	c := &cobra.Command{
		Use: "profile SERVICE", Short: "Print how long a service's batches took, as its file has it (profile)",
		Long: "Prints how long the batches of a service's variants took in the mean, neighbours on their GPUs included. In the\n" +
			"service's file it can stand for profile, which the simulator needs, and which a service may leave to be\n" +
			"measured (profile: measure).",
		Args: cobra.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			s, err := client.Connect().Service(c.Context(), args[0])
			if err != nil {
				return err
			}
			if whole {
				text, err := profiledFile(&s)
				if err != nil {
					return err
				}
				_, err = fmt.Fprint(c.OutOrStdout(), text)
				return err
			}
			for i := range s.Variants {
				v := &s.Variants[i]
				if len(v.Measured) == 0 {
					fmt.Fprintf(c.ErrOrStderr(), "muster: of variant %s nothing was measured yet\n", v.Name)
					continue
				}
				fmt.Fprintf(c.OutOrStdout(), "# variant %s\nprofile:\n", v.Name)
				for _, b := range v.Measured {
					fmt.Fprintf(c.OutOrStdout(), "  - {batch: %d, latency: %.3gms}\n", b.Requests, 1000*b.Seconds)
				}
				for _, o := range v.Beside {
					fmt.Fprintf(c.OutOrStdout(), "# beside %s on the same GPU: %.2f times as long (%d batches)\n", o.Other,
						o.Factor, o.Batches)
				}
			}
			return nil
		},
	}
	c.Flags().BoolVar(&whole, "file", false, "print the service's file, with what was measured instead of profile: measure")
	return c
}

// profiledFile is a service's file with what was measured instead of profile: measure.
func profiledFile(s *api.Service) (string, error) {
	measured := map[string]service.Profile{}
	for i := range s.Variants {
		for _, b := range s.Variants[i].Measured {
			measured[s.Variants[i].Name] = append(measured[s.Variants[i].Name],
				service.Point{Batch: b.Requests, Latency: time.Duration(b.Seconds * float64(time.Second))})
		}
	}
	return config.Profiled(s.Text, measured)
}

func newServiceScale() *cobra.Command {
	least, most := 0, 0
	c := &cobra.Command{
		Use: "scale SERVICE [N]", Short: "Set how many replicas a service has: exactly N, or from --min to --max",
		Long: "Sets how many replicas a service has, until its file is applied again.",
		Args: cobra.RangeArgs(1, 2),
		RunE: func(c *cobra.Command, args []string) error {
			given := c.Flags().Changed
			if (len(args) == 2) == (given("min") || given("max")) {
				return usage(errors.New("give a number of replicas, or --min and --max"))
			}
			cl := client.Connect()
			s, err := cl.Service(c.Context(), args[0])
			if err != nil {
				return err
			}
			to := api.ServiceScale{Min: s.Min, Max: s.Max}
			if given("min") {
				to.Min = least
			}
			if given("max") {
				to.Max = most
			}
			if len(args) == 2 {
				n, err := strconv.Atoi(args[1])
				if err != nil || n < 0 {
					return usage(fmt.Errorf("%q is not a number of replicas", args[1]))
				}
				to = api.ServiceScale{Min: n, Max: max(n, 1)}
			}
			if s, err = cl.ScaleService(c.Context(), args[0], to); err != nil {
				return err
			}
			_, err = fmt.Fprintf(c.OutOrStdout(), "service %s: from %d to %d replicas\n", s.Name, s.Min, s.Max)
			return err
		},
	}
	c.Flags().IntVar(&least, "min", 0, "at least; 0: none while there are no requests")
	c.Flags().IntVar(&most, "max", 0, "at most")
	return c
}

func newServiceLogs() *cobra.Command {
	follow, job := false, 0
	c := &cobra.Command{
		Use: "logs SERVICE", Short: "Show what a service's newest replica printed, or another",
		Args: cobra.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			cl := client.Connect()
			id, err := replicaOf(c.Context(), cl, args[0], job)
			if err != nil {
				return err
			}
			fmt.Fprintf(c.ErrOrStderr(), "muster: job %d\n", id)
			out, errs := &countingWriter{w: c.OutOrStdout()}, &countingWriter{w: c.ErrOrStderr()}
			failed := make(chan error, 1)
			go func() { failed <- outputOf(c.Context(), cl, id, 0, "err", follow, errs) }()
			err = outputOf(c.Context(), cl, id, 0, "out", follow, out)
			if err = errors.Join(err, <-failed); err != nil {
				return err
			}
			return printNoOutput(c, cl, id, out.n+errs.n)
		},
	}
	c.Flags().BoolVarP(&follow, "follow", "f", false, "go on until the replica is over")
	c.Flags().IntVar(&job, "job", 0, "of this replica, by its job's number")
	return c
}

// replicaOf is the job of a service's replica: the one that is named, else the newest that has begun to run,
// over or not.
func replicaOf(ctx context.Context, cl *client.Client, name string, job int) (int, error) {
	if job > 0 {
		return job, nil
	}
	if _, err := cl.Service(ctx, name); err != nil {
		return 0, err
	}
	list, err := cl.List(ctx, map[string][]string{"name": {name}, "brief": {"true"}})
	if err != nil {
		return 0, err
	}
	for i := range list {
		if r := list[i].Submission.Replica; r != nil && r.Service == name && list[i].Started != nil {
			return list[i].ID, nil
		}
	}
	return 0, fmt.Errorf("no replica of %s has begun to run: muster service why %s says why", name, name)
}

func newServiceDelete() *cobra.Command {
	return &cobra.Command{
		Use: "delete SERVICE", Short: "End a service; its replicas finish what they have", Args: cobra.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			if err := client.Connect().DeleteService(c.Context(), args[0]); err != nil {
				return err
			}
			_, err := fmt.Fprintf(c.OutOrStdout(), "service %s ends\n", args[0])
			return err
		},
	}
}
