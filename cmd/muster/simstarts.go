package main

import (
	"fmt"
	"io"
	"math"
	"text/tabwriter"
	"time"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/sim"
)

// scoredStarts are the answers under a policy.
type scoredStarts struct {
	label  string
	starts *sim.Starts
}

// writeStartScores says how good expected starts were, a line for each policy.
func writeStartScores(w io.Writer, list []scoredStarts) error {
	t := tabwriter.NewWriter(w, 0, 4, 2, ' ', 0)
	fmt.Fprintln(t, "POLICY\tANSWERS\tMEDIAN WAIT\tINSIDE 80 %\tERROR\tDATED\tERROR DATED\tAT THE EARLIEST\tHIGH/LOW\tLOOK AHEAD ALONE\tTOO EARLY")
	for i := range list {
		s := list[i].starts
		for _, part := range []struct {
			name string
			take func(*sim.Answer) bool
		}{{"", nil}, {" at submission", func(a *sim.Answer) bool {
			return !a.Later
		}}, {" later", func(a *sim.Answer) bool { return a.Later }}} {
			v := s.Score(part.take)
			if v.Answers == 0 {
				continue
			}
			fmt.Fprintf(t, "%s%s\t%d\t%s\t%s\t%s\t%d\t%s\t%d\t%.1f\t%s\t%s\n", list[i].label, part.name, v.Answers,
				cluster.FormatDuration(v.Wait.Round(time.Second)),
				wholePercent(v.Within), wholePercent(v.Error), v.Dated, wholePercent(v.DatedErr), v.Open, v.Width,
				wholePercent(v.AheadErr), wholePercent(v.Early))
		}
		if s.Unknown > 0 {
			fmt.Fprintf(t, "%s: %d answers were about jobs that never started, or not before the end\n", list[i].label,
				s.Unknown)
		}
	}
	return t.Flush()
}

func wholePercent(v float64) string {
	if math.IsNaN(v) {
		return "-"
	}
	return fmt.Sprintf("%.0f %%", 100*v)
}
