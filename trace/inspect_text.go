package trace

import (
	"bufio"
	"fmt"
	"io"
	"math"
	"strings"
	"time"

	"github.com/muster-gpu/muster/cluster"
)

// barWidth is the length of the longest bar, in characters.
const barWidth = 40

// WriteText prints the summary for people.
func (s Summary) WriteText(w io.Writer) error {
	out := bufio.NewWriter(w)
	fmt.Fprintf(out, "%s (%s): %d jobs", s.Name, s.Format, s.Jobs)
	if s.Users > 0 {
		fmt.Fprintf(out, ", %d users", s.Users)
	}
	if s.Queues > 0 {
		fmt.Fprintf(out, ", %d queues", s.Queues)
	}
	if s.Nodes > 0 {
		fmt.Fprintf(out, "; %d nodes with %d GPUs", s.Nodes, s.NodeGPUs)
	}
	fmt.Fprintln(out)
	if s.Jobs > 0 {
		s.writeJobs(out)
		s.writeArrivals(out)
	}
	if s.Bad > 0 {
		fmt.Fprintf(out, "\nbad rows skipped: %d\n", s.Bad)
		for _, r := range s.BadReasons {
			fmt.Fprintf(out, "  %v\n", r)
		}
	}
	if len(s.Oddities) > 0 {
		fmt.Fprintln(out, "\nworth knowing")
		for _, o := range s.Oddities {
			fmt.Fprintf(out, "  - %s\n", o)
		}
	}
	return out.Flush()
}

func (s Summary) writeJobs(out io.Writer) {
	if s.From != "" {
		fmt.Fprintf(out, "submitted   %s to %s (%s)\n", s.From, s.To, clockText(s.Span))
	} else {
		fmt.Fprintf(out, "submitted   over %s\n", clockText(s.Span))
	}
	fmt.Fprintf(out, "work        %.1f GPU-hours; the largest 1 %% of jobs hold %.0f %%\n", s.GPUHours, 100*s.Top1)
	if s.FullLoad > 0 {
		fmt.Fprintf(out, "load        1.0 on %.0f GPUs", math.Ceil(s.FullLoad))
		if s.NodeGPUs > 0 {
			fmt.Fprintf(out, ", %.2f on the trace's %d", s.Load(s.NodeGPUs), s.NodeGPUs)
		}
		fmt.Fprintln(out)
	}
	r := s.Run
	fmt.Fprintf(out, "run time    mean %s, median %s, p95 %s, p99 %s, longest %s\n",
		clockText(r.Mean), clockText(r.P50), clockText(r.P95), clockText(r.P99), clockText(r.Max))
	for _, c := range []struct {
		n    int
		what string
	}{{s.CPUOnly, "without GPUs"}, {s.Fractional, "on parts of GPUs"}, {s.Deadlines, "with a deadline"},
		{s.Limits, "with a time limit"}} {
		if c.n > 0 {
			fmt.Fprintf(out, "            %d jobs %s\n", c.n, c.what)
		}
	}
	for _, t := range []struct {
		title string
		parts []Share
		least int // minimum number of groups to print
	}{{"GPUs", s.Gangs, 1}, {"kind", s.Kinds, 2}, {"tier", s.Tiers, 2}, {"outcome", s.Outcomes, 2},
		{"top queues", s.TopQueues, 2}, {"top users", s.TopUsers, 2}} {
		if len(t.parts) < t.least {
			continue
		}
		fmt.Fprintf(out, "\n%-14s %9s %7s %14s %7s\n", t.title, "jobs", "", "GPU-hours", "")
		for _, p := range t.parts {
			name := p.Name
			if name == "" {
				name = "(none)"
			}
			fmt.Fprintf(out, "%-14s %9d %6.1f%% %14.1f %6.1f%%\n", name, p.Jobs, 100*p.JobShare, p.GPUHours,
				100*p.GPUShare)
		}
	}
}

func (s Summary) writeArrivals(out io.Writer) {
	a := s.Arrivals
	fmt.Fprintf(out, "\narrivals    one in %s on average, coefficient of variation %.1f (Poisson: 1)\n",
		clockText(a.MeanGap), a.CV)
	fmt.Fprintf(out, "            busiest hour: %d jobs, from %s after the start\n", a.BusiestJobs,
		clockText(a.BusiestHour))
	if a.ByHour == nil {
		return
	}
	var hours, days []string
	for h := range 24 {
		hours = append(hours, fmt.Sprintf("%02d", h))
	}
	for d := range 7 {
		days = append(days, time.Weekday((d + 1) % 7).String()[:3])
	}
	bars(out, "hour of day", hours, a.ByHour[:])
	bars(out, "day of week", days, a.ByDay[:])
}

// bars prints one bar per value, the largest barWidth long.
func bars(out io.Writer, title string, names []string, values []int) {
	most := 1
	for _, v := range values {
		most = max(most, v)
	}
	fmt.Fprintf(out, "\n%s\n", title)
	for i, v := range values {
		fmt.Fprintf(out, "  %-4s %8d %s\n", names[i], v, strings.Repeat("#", (v*barWidth+most/2)/most))
	}
}

// clockText formats seconds as a duration without unnecessary digits.
func clockText(sec float64) string {
	d := asDuration(sec)
	switch {
	case d >= 24*time.Hour:
		d = d.Round(time.Minute)
	case d >= 10*time.Second:
		d = d.Round(time.Second)
	case d >= time.Second:
		d = d.Round(100 * time.Millisecond)
	}
	return cluster.FormatDuration(d)
}
