package trace

import (
	"bytes"
	"slices"
	"strings"
	"time"

	"github.com/muster-gpu/muster/cluster"
)

// csvFormat is what WriteCSV writes, and a simple format for a user's own jobs: submit_s, run_s and
// gpus are required, the other columns are optional.
var csvFormat = Format{
	Name: "csv",
	About: "plain columns submit_s,run_s,gpus and, if you like, " +
		strings.ReplaceAll(csvHeader, "submit_s,run_s,", ""),
	Detect: columns(',', "submit_s", "run_s", "gpus"),
	Read:   readCSV,
}

func readCSV(b *Builder) error {
	t, err := b.table(',', "submit_s", "run_s", "gpus")
	if err != nil {
		return err
	}
	for _, h := range t.header {
		if known := strings.Split(csvHeader, ","); !slices.Contains(known, h) {
			return b.fatal(1, "%v", cluster.Unknown("column", h, known))
		}
	}
	name, user, queue, kind, tier := t.col("name"), t.col("user"), t.col("queue"), t.col("kind"), t.col("tier")
	submit, run, gpus, milli := t.col("submit_s"), t.col("run_s"), t.col("gpus"), t.col("gpu_milli")
	limit, estimate, deadline := t.col("limit_s"), t.col("estimate_s"), t.col("deadline_s")
	model, types, outcome := t.col("model"), t.col("gpu_types"), t.col("outcome")
	return t.each(func(e *Entry) bool {
		j := &e.Job
		j.Name, j.User, j.Queue, j.Model = t.str(name), t.str(user), t.str(queue), t.str(model)
		j.Tier = cluster.Standard
		j.Submit, e.Run = t.at(submit, time.Second), t.dur(run, time.Second)
		j.Deadline = cluster.Time(t.optional(deadline))
		j.Limit, j.Estimate = t.optional(limit), t.optional(estimate)
		t.parsed(kind, func(s []byte) error { return j.Kind.UnmarshalText(s) })
		t.parsed(tier, func(s []byte) error { return j.Tier.UnmarshalText(s) })
		t.parsed(outcome, func(s []byte) error { return e.Outcome.UnmarshalText(s) })
		for m := range bytes.SplitSeq(t.raw(types), []byte("|")) {
			if m = bytes.TrimSpace(m); len(m) > 0 {
				j.GPUTypes = append(j.GPUTypes, b.text(m))
			}
		}
		b.gang(e, int(t.num(gpus, 0, cluster.MaxTasks)), 0, 0)
		if milli >= 0 && len(t.raw(milli)) > 0 {
			if share := t.num(milli, 1, cluster.Whole); share < cluster.Whole {
				j.Tasks[0].Request.Share = share
			}
		}
		if j.Kind == cluster.Service && e.Run > 0 {
			e.End, e.Run = j.Submit.Add(e.Run), 0 // a service ends when it is cancelled
		}
		return true
	})
}

// optional reads seconds from a field that may be empty.
func (t *table) optional(i int) time.Duration {
	if i < 0 || len(t.raw(i)) == 0 {
		return 0
	}
	return t.dur(i, time.Second)
}

// parsed passes a non-empty field to a parser.
func (t *table) parsed(i int, parse func([]byte) error) {
	if i < 0 || len(t.raw(i)) == 0 || t.reason != "" {
		return
	}
	if err := parse(t.raw(i)); err != nil {
		t.reason = t.header[i] + ": " + err.Error()
	}
}
