package main

import (
	"encoding/json"
	"fmt"
	"io"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/muster-gpu/muster/api"
	"github.com/muster-gpu/muster/client"
	"github.com/muster-gpu/muster/cluster"
)

func newUsage() *cobra.Command {
	var by, since string
	var waste, predictions, asJSON bool
	c := &cobra.Command{
		Annotations: onCluster,
		Use:         "usage", Short: "Report who used how much, what was wasted, and how good expected starts were",
		Args:    cobra.NoArgs,
		Example: "  muster usage --by queue --since 7d\n  muster usage --waste",
		RunE: func(c *cobra.Command, _ []string) error {
			if waste && predictions {
				return usage(fmt.Errorf("--waste and --predictions are two reports: give one of them"))
			}
			u, err := client.Connect().Usage(c.Context(), by, since)
			if err != nil {
				return err
			}
			switch {
			case asJSON:
				return json.NewEncoder(c.OutOrStdout()).Encode(u)
			case waste:
				return printWaste(c.OutOrStdout(), &u)
			case predictions:
				return printScore(c.OutOrStdout(), &u.Score)
			}
			return printUsage(c.OutOrStdout(), &u)
		},
	}
	c.Flags().StringVar(&by, "by", "user", "user, queue, job (its name) or model (what it computes)")
	c.Flags().StringVar(&since, "since", "30d", "a time, or how long ago")
	c.Flags().BoolVar(&waste, "waste", false, "GPU time that other jobs could have had, the worst first")
	c.Flags().BoolVar(&predictions, "predictions", false,
		"how far expected starts were off")
	c.Flags().BoolVar(&asJSON, "json", false, "all of it, in JSON")
	return c
}

// known prints a figure, or a dash where it was not measured.
func known(v *float64, format string) string {
	if v == nil {
		return "-"
	}
	return fmt.Sprintf(format, *v)
}

func printUsage(w io.Writer, u *api.Usage) error {
	t := table{heads: []string{strings.ToUpper(u.By), "JOBS", "GPU-HOURS", "COST", "UTIL %", "KWH", "CPU-HOURS",
		"WAITED", "PREEMPTED", "LOST GPU-H",
		"SWITCH GPU-H", "SAMPLES/GPU-H"}}
	for _, r := range append(u.Rows, u.Total) {
		t.rows = append(t.rows,
			[]string{r.Key, strconv.Itoa(r.Jobs), fmt.Sprintf("%.2f", r.GPUHours), known(r.Cost, "%.2f"),
				known(r.Utilisation, "%.0f"),
				known(r.KWh, "%.2f"), fmt.Sprintf("%.2f", r.CPUHours),
				cluster.FormatDuration(time.Duration(r.Waited).Round(time.Second)),
				strconv.Itoa(int(r.Preemptions)), fmt.Sprintf("%.2f", r.LostHours), fmt.Sprintf("%.2f", r.SwitchHours),
				known(r.Samples, "%.0f")})
	}
	if err := t.show(w, nil, "SAMPLES/GPU-H", "SWITCH GPU-H", "CPU-HOURS", "KWH", "LOST GPU-H", "PREEMPTED", "COST",
		"WAITED"); err != nil {
		return err
	}
	return printNotes(w, u)
}

func printNotes(w io.Writer, u *api.Usage) error {
	for _, n := range u.Notes {
		if _, err := fmt.Fprintln(w, "note: "+n); err != nil {
			return err
		}
	}
	return nil
}

func printWaste(w io.Writer, u *api.Usage) error {
	if len(u.Waste) == 0 {
		fmt.Fprintln(w, "nothing was found that was wasted")
		return printNotes(w, u)
	}
	t := tabwriter.NewWriter(w, 0, 4, 2, ' ', 0)
	fmt.Fprintln(t, "WHAT\tGPU-HOURS\tCOST\tJOB\tUSER\tWHY")
	for _, v := range u.Waste {
		job := ""
		if v.Job > 0 {
			job = strings.TrimSpace(fmt.Sprintf("%d %s", v.Job, v.Name))
		}
		fmt.Fprintf(t, "%s\t%.2f\t%s\t%s\t%s\t%s\n", v.Kind, v.GPUHours, known(v.Cost, "%.2f"), job, v.User, v.Text)
	}
	if err := t.Flush(); err != nil {
		return err
	}
	return printNotes(w, u)
}

func printScore(w io.Writer, s *api.Score) error {
	round := func(d api.Duration) string { return cluster.FormatDuration(time.Duration(d).Round(time.Second)) }
	if s.EndsPredicted > 0 {
		fmt.Fprintf(w, "%d jobs said by their progress when they would end; %d of them have completed\n",
			s.EndsPredicted, s.Ended)
	}
	if s.Ended > 0 {
		fmt.Fprintf(w, "half of them within %s of the time that was first expected, nine of ten within %s\n",
			round(s.EndMedian), round(s.EndNinety))
	}
	fmt.Fprintf(w, "%d waiting jobs were given an expected start; %d of them have started\n", s.Predicted, s.Started)
	if s.Later > 0 {
		fmt.Fprintf(w, "%d later answers, to muster why: half within %s, nine of ten within %s\n", s.Later,
			round(s.LaterMedian), round(s.LaterNinety))
	}
	if s.Started == 0 {
		return nil
	}
	fmt.Fprintf(w, "half of them within %s of the time, nine of ten within %s; %d started earlier than expected\n",
		round(s.Median), round(s.Ninety), s.Early)
	if s.Intervals > 0 {
		fmt.Fprintf(w, "%d were given an interval; %d of these (%d %%) started within it\n", s.Intervals, s.Within,
			100*s.Within/s.Intervals)
	}
	return nil
}
