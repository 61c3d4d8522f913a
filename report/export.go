package report

import (
	"encoding/csv"
	"encoding/json"
	"io"
	"slices"
	"strconv"
	"time"

	"github.com/muster-gpu/muster/cluster"
)

// Schema names the format of the JSON report. Fields may be added under it; a change of meaning
// needs a new name.
const Schema = "muster.report/v1"

type jsonRun struct {
	Summary
	Trace   string `json:"trace,omitempty"`   // if it differs from the report's
	Cluster string `json:"cluster,omitempty"` // if it differs from the report's
}

type jsonReport struct {
	Schema   string    `json:"schema"`
	Trace    string    `json:"trace"`
	Cluster  string    `json:"cluster"`
	Capacity int64     `json:"capacity_milli_gpu"`
	Runs     []jsonRun `json:"runs"`
}

// WriteJSON writes the figures of the runs; docs/reference/report.md has the schema.
func WriteJSON(w io.Writer, runs []Run, sums []Summary) error {
	r := jsonReport{Schema: Schema, Runs: make([]jsonRun, len(sums))}
	if len(runs) > 0 {
		r.Trace, r.Cluster, r.Capacity = runs[0].Trace, runs[0].Cluster, runs[0].Capacity
	}
	for i := range sums {
		r.Runs[i].Summary = sums[i]
		if i >= len(runs) {
			continue
		}
		if runs[i].Trace != r.Trace {
			r.Runs[i].Trace = runs[i].Trace
		}
		if runs[i].Cluster != r.Cluster {
			r.Runs[i].Cluster = runs[i].Cluster
		}
	}
	enc := json.NewEncoder(w)
	enc.SetIndent("", "  ")
	return enc.Encode(r)
}

type field struct {
	name string
	get  func(*Summary) string
}

func text(name string, get func(*Summary) string) field { return field{name, get} }

func whole(name string, get func(*Summary) int) field {
	return field{name, func(s *Summary) string { return strconv.Itoa(get(s)) }}
}

func decimal(name string, get func(*Summary) float64) field {
	return field{name, func(s *Summary) string { return number(get(s)) }}
}

func number(v float64) string { return strconv.FormatFloat(v, 'f', -1, 64) }

func dist(name string, of func(*Summary) *Dist) []field {
	return []field{
		whole(name+".n", func(s *Summary) int { return of(s).N }),
		decimal(name+".mean", func(s *Summary) float64 { return of(s).Mean }),
		decimal(name+".p50", func(s *Summary) float64 { return of(s).P50 }),
		decimal(name+".p95", func(s *Summary) float64 { return of(s).P95 }),
		decimal(name+".p99", func(s *Summary) float64 { return of(s).P99 }),
		decimal(name+".max", func(s *Summary) float64 { return of(s).Max }),
	}
}

// fields lists the columns of the CSV: the JSON names, in the JSON's order.
func fields() []field {
	f := []field{
		text("policy", func(s *Summary) string { return s.Policy }),
		text("placer", func(s *Summary) string { return s.Placer }),
		text("backfill", func(s *Summary) string { return s.Backfill }),
		text("hash", func(s *Summary) string { return s.Hash }),
		text("partial", func(s *Summary) string { return strconv.FormatBool(s.Partial) }),
		whole("jobs", func(s *Summary) int { return s.Jobs }),
		whole("completed", func(s *Summary) int { return s.Completed }),
		whole("failed", func(s *Summary) int { return s.Failed }),
		whole("cancelled", func(s *Summary) int { return s.Cancelled }),
		whole("timed_out", func(s *Summary) int { return s.TimedOut }),
		whole("rejected", func(s *Summary) int { return s.Rejected }),
		whole("lost", func(s *Summary) int { return s.Lost }),
		whole("unfinished", func(s *Summary) int { return s.Unfinished }),
	}
	f = append(f, dist("jct", func(s *Summary) *Dist { return &s.JCT })...)
	f = append(f, dist("queueing_delay", func(s *Summary) *Dist { return &s.Delay })...)
	f = append(f, dist("slowdown", func(s *Summary) *Dist { return &s.Slowdown })...)
	f = append(f,
		decimal("makespan", func(s *Summary) float64 { return s.Makespan }),
		decimal("gpu_allocation", func(s *Summary) float64 { return s.Allocation }),
		decimal("gpu_utilisation", func(s *Summary) float64 { return s.Utilisation }),
		decimal("goodput", func(s *Summary) float64 { return s.Goodput }),
		decimal("fragmentation", func(s *Summary) float64 { return s.Fragmentation }),
		decimal("unusable", func(s *Summary) float64 { return s.Unusable }))
	f = append(f, dist("finish_time_ratio", func(s *Summary) *Dist { return &s.FTF })...)
	return append(f,
		decimal("finish_time_unfair", func(s *Summary) float64 { return s.FTFOver }),
		decimal("jain_queues", func(s *Summary) float64 { return s.Jain }),
		decimal("long_term_gpu_time", func(s *Summary) float64 { return s.LongTerm }),
		whole("preemptions", func(s *Summary) int { return s.Preemptions }),
		whole("failures", func(s *Summary) int { return s.Failures }),
		decimal("gpu_hours_lost", func(s *Summary) float64 { return s.LostHours }),
		decimal("gpu_hours_overhead", func(s *Summary) float64 { return s.OverheadHours }),
		whole("deadlines", func(s *Summary) int { return s.Deadlines }),
		whole("deadlines_met", func(s *Summary) int { return s.DeadlinesMet }),
		whole("deadlines_accepted", func(s *Summary) int { return s.Accepted }),
		whole("deadlines_declined", func(s *Summary) int { return s.Declined }),
		whole("accepted_late", func(s *Summary) int { return s.AcceptedLate }),
		text("traffic", func(s *Summary) string { return s.Traffic }),
		decimal("gpu_hours_sending", func(s *Summary) float64 { return s.SendingHours }),
		decimal("gpu_hours_contended", func(s *Summary) float64 { return s.ContendedHours }),
		decimal("wall_seconds", func(s *Summary) float64 { return s.WallSeconds }),
		decimal("decision_us", func(s *Summary) float64 { return s.DecisionMicros }))
}

// WriteCSV writes a line per run; the header has the JSON names, joined by
// dots.
func WriteCSV(w io.Writer, sums []Summary) error {
	c := csv.NewWriter(w)
	f := fields()
	if slices.ContainsFunc(sums, func(s Summary) bool { return s.Power != nil }) {
		f = append(f, powerFields()...)
	}
	row := make([]string, len(f))
	for i := range f {
		row[i] = f[i].name
	}
	if err := c.Write(row); err != nil {
		return err
	}
	for k := range sums {
		for i := range f {
			row[i] = f[i].get(&sums[k])
		}
		if err := c.Write(row); err != nil {
			return err
		}
	}
	c.Flush()
	return c.Error()
}

// String returns the outcome's name in reports.
func (o Outcome) String() string {
	names := [...]string{"unfinished", "completed", "failed", "cancelled", "timed-out", "rejected", "lost"}
	if int(o) < len(names) {
		return names[o]
	}
	return "outcome " + strconv.Itoa(int(o))
}

// WriteJobsCSV writes a line per job of a run. Instants are RFC 3339 in UTC if the run has a
// calendar, otherwise seconds from its start; durations are seconds; what did not happen is empty.
func WriteJobsCSV(w io.Writer, r *Run) error {
	c := csv.NewWriter(w)
	head := []string{"id", "name", "user", "queue", "gpus", "submit", "first_start", "end", "outcome", "waited_s",
		"ran_s", "jct_s", "preemptions", "lost_gpu_s", "deadline", "deadline_answer", "deadline_met"}
	if err := c.Write(head); err != nil {
		return err
	}
	for i := range r.Records {
		rec, j := &r.Records[i], r.Jobs[i]
		jct := ""
		if rec.End != cluster.Never && rec.Outcome != Rejected {
			jct = number(rec.End.Sub(rec.Submit).Seconds())
		}
		err := c.Write([]string{strconv.Itoa(i), j.Name, j.User, j.Queue, strconv.Itoa(int(rec.GPUs)),
			r.instant(rec.Submit), r.instant(rec.FirstStart), r.instant(rec.End), rec.Outcome.String(),
			number(rec.Waited.Seconds()), number(rec.Ran.Seconds()), jct,
			strconv.Itoa(int(rec.Preemptions)), number(float64(rec.Lost) / 1e6),
			due(j.Deadline, r.instant(j.Deadline)), due(j.Deadline, rec.Answer.String()),
			due(j.Deadline, strconv.FormatBool(rec.met(j)))})
		if err != nil {
			return err
		}
	}
	c.Flush()
	return c.Error()
}

// due returns text for a job with a deadline, and "" for one without.
func due(deadline cluster.Time, text string) string {
	if deadline == 0 {
		return ""
	}
	return text
}

// String returns the answer's name in the interface; "" for none.
func (a Answer) String() string { return [...]string{"", "accepted", "declined"}[a] }

func (r *Run) instant(t cluster.Time) string {
	switch {
	case t == cluster.Never:
		return ""
	case r.Epoch == 0:
		return number(time.Duration(t).Seconds())
	}
	return time.Unix(r.Epoch, int64(t)).UTC().Format("2006-01-02T15:04:05.999Z07:00")
}
