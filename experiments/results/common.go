package results

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"time"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/policy"
	"github.com/muster-gpu/muster/report"
	"github.com/muster-gpu/muster/sim"
	"github.com/muster-gpu/muster/trace"
)

// Comparison is all policies on one workload.
type Comparison struct {
	Name  string
	Jobs  int
	Load  float64 // offered load while jobs arrive
	Bound float64 // lower bound of the mean JCT, in seconds
	Own   bool    // the deadlines are from the workload
	Ready int     // deadlines that would be met on an empty cluster
	Rows  []report.Summary
}

// The cluster and the overheads of the comparison.
const (
	commonCluster = "16x8xA100-80GB"
	commonStartup = 10 * time.Second
	commonSeed    = 1 // for the deadlines
)

var commonCheckpoint = cluster.Checkpoint{Interval: 30 * time.Minute, Cost: 10 * time.Second, Restart: 20 * time.Second}

// commonTraces are the workloads: the first jobs of each trace.
var commonTraces = []struct {
	name, file string
	jobs       int
	load       float64 // higher where jobs run for as long as others arrive
}{
	{"Philly", "philly/philly_pollux.csv", 1000, 0.9},
	{"Muri's trace 3", "muri/trace3.csv", 1000, 0.9},
	{"Pollux' workload 2", "pollux/workloads/workload-2.csv", 1000, 0.9},
	{"ElasticFlow's cluster 10", "elasticflow-itp/deadline/cluster10.csv", 1000, 0.9},
	{"Chronus' SLO", "chronus/trace_job_Philly_SLO.csv.gz", 600, 1.5},
	{"Gavel's continuous trace", "gavel/continuous_single_seed0.csv.gz", 1000, 2},
}

// Compare replays the same workloads under every policy. clock measures wall time.
func Compare(ctx context.Context, traces string, clock func() time.Duration) ([]Comparison, error) {
	var out []Comparison
	for _, c := range commonTraces {
		wl, err := trace.Open(filepath.Join(traces, c.file), trace.Options{Limit: c.jobs})
		if err != nil {
			return nil, err
		}
		r, err := CompareOn(ctx, c.name, wl, c.load, policy.Names(), clock)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", c.name, err)
		}
		out = append(out, r)
	}
	return out, nil
}

// CompareOn replays one workload, stretched to a load, under policies.
func CompareOn(ctx context.Context, name string, wl *trace.Workload, load float64, policies []string,
	clock func() time.Duration) (Comparison, error) {
	out := Comparison{Name: name, Load: load}
	spec, err := cluster.ParseShort(commonCluster)
	if err != nil {
		return out, err
	}
	fits := wl.Jobs[:0:0]
	for i := range wl.Jobs {
		e := wl.Jobs[i]
		e.Job.Tier, e.Job.GPUTypes, e.Job.Checkpoint = cluster.Standard, nil, commonCheckpoint
		if e.Job.GPUs() <= spec.GPUs() && e.Run > 0 {
			fits = append(fits, e)
		}
	}
	same := *wl
	same.Jobs = fits
	out.Own = makeDeadlines(fits)
	if err := sim.Stretch(&same, spec, load); err != nil {
		return out, err
	}
	sim.AutoQueues(spec, &same)
	entries := sim.Prepare(&same, spec, sim.Estimates{}, sim.PerNode)
	out.Jobs, out.Bound = len(entries), LowerBound(entries, float64(spec.GPUs()))
	for i := range entries {
		e := &entries[i]
		// a running job stops periodically for checkpoints
		alone := time.Duration(
			float64(e.Run) * float64(commonCheckpoint.Interval+commonCheckpoint.Cost) / float64(
				commonCheckpoint.Interval))
		if d := e.Job.Deadline; d > 0 && e.Job.Submit.Add(commonStartup+alone) <= d {
			out.Ready++
		}
	}
	setups := make([]sim.Setup, len(policies))
	for i, p := range policies {
		if p == "elasticflow" || p == "chronus" { // their promises must allow for the start-up time
			p += ":overhead=" + commonStartup.String()
		}
		setups[i] = sim.Setup{Policy: p, Placer: "best-fit", World: sim.Options{Startup: commonStartup}}
	}
	for _, o := range sim.RunAll(ctx, spec, entries, setups, clock) {
		if o.Err != nil {
			return out, fmt.Errorf("%s: %w", o.Label, o.Err)
		}
		out.Rows = append(out.Rows, o.Run.Summarise())
	}
	return out, ctx.Err()
}

// makeDeadlines gives each job a deadline, if no job has one, by ElasticFlow's rule: lambda times
// the run time after the submission, with lambda uniform between 0.5 and 1.5. own: the jobs have
// deadlines.
func makeDeadlines(jobs []trace.Entry) (own bool) {
	if slices.ContainsFunc(jobs, func(e trace.Entry) bool { return e.Job.Deadline > 0 }) {
		return true
	}
	rng := rand.New(rand.NewPCG(commonSeed, 0))
	for i := range jobs {
		e := &jobs[i]
		e.Job.Deadline = e.Job.Submit.Add(time.Duration((0.5 + rng.Float64()) * float64(e.Run)))
	}
	return false
}

// WriteComparisons writes comparisons as Markdown.
func WriteComparisons(w io.Writer, list []Comparison) error {
	p := &printer{w: w}
	p.f("# All policies on the same six workloads\n\n"+generated+
		"\n\nThis table is not from a publication. The cluster is %s, arrivals are stretched to the load given above each table (GPU time requested while jobs arrive, over the GPU time available), a start takes %v, a checkpoint "+
		"%v (written every %v, and when a job is asked to leave), a restart %v; run times are known exactly, every policy has its defaults and best-fit (those that accept deadlines are given the time of a start, `overhead=%v`), gangs are cut into tasks by nodes, no speeds are known (so policies for "+
		"several GPU models or elastic jobs show only how they share). \"of bound\" is the mean JCT over a lower bound for all schedulers: the largest of three relaxations with preemption at no cost "+
		"(`experiments/results/bound.go`). rho is the finish-time ratio, Jain's index is over queues, GPU time is what the tenant with the least of its share held of what it deserved (ASTRAEA's measure; tenants are queues, or users where there is one queue; below 1 it lost by sharing), "+
		"deadlines are the workload's own or, where it has none, the submission plus lambda times the run time, lambda drawn evenly between 0.5 and 1.5 (ElasticFlow's rule, seed %d): \"met\" is the share of them that was met (how many could be met on an empty cluster "+
		"is given above each table; for gangs of a fixed size a lambda below 1 cannot be met), \"accepted\" how many of them a policy accepted that answers deadlines, \"late\" how many of these were late; hours lost are GPU-hours of work thrown away and of overheads; µs is wall time per event, the simulated world's included, with two policies at a time on two cores.\n",
		commonCluster, commonStartup, commonCheckpoint.Cost, commonCheckpoint.Interval, commonCheckpoint.Restart,
		commonStartup, commonSeed)
	for i := range list {
		c := &list[i]
		p.f("\n## %s: %d jobs, load %.1f, bound %s s\n\n%s\n\n| policy | mean JCT, s | of bound | p99 | mean wait | rho mean | rho p95 | Jain | GPU time | met | accepted | late | preemptions | hours lost | not done | µs |\n|---|---|---|---|---|---|---|---|---|---|---|---|---|---|---|---|\n", c.Name, c.Jobs, c.Load, whole(c.Bound), c.due())
		for k := range c.Rows {
			r := &c.Rows[k]
			p.f("| %s | %s | %.2f | %s | %s | %.2f | %.2f | %.2f | %s | %s | %d | %.1f | %d | %.2g |\n", r.Policy,
				whole(r.JCT.Mean), r.JCT.Mean/c.Bound, whole(r.JCT.P99), whole(r.Delay.Mean),
				r.FTF.Mean, r.FTF.P95, r.Jain, some(r.LongTerm > 0, "%.2f", r.LongTerm), answers(r), r.Preemptions,
				r.LostHours+r.OverheadHours, r.Jobs-r.Completed, r.DecisionMicros)
		}
	}
	return p.err
}

// due describes the deadlines.
func (c *Comparison) due() string {
	n := 0
	if len(c.Rows) > 0 {
		n = c.Rows[0].Deadlines
	}
	if c.Own {
		return fmt.Sprintf("%d jobs have deadlines of their own, which %d could meet on an empty cluster.", n, c.Ready)
	}
	return fmt.Sprintf("Deadlines are made; %d of %d could be met on an empty cluster.", c.Ready, n)
}

// answers are the three columns about deadlines.
func answers(r *report.Summary) string {
	said := r.Accepted+r.Declined > 0
	return some(r.Deadlines > 0, "%.3f", float64(r.DeadlinesMet)/float64(max(1, r.Deadlines))) + " | " +
		some(said, "%d", r.Accepted) + " | " + some(said, "%d", r.AcceptedLate)
}

// some formats a value if there is one.
func some(is bool, form string, v any) string {
	if !is {
		return ""
	}
	return fmt.Sprintf(form, v)
}

func whole(seconds float64) string { return fmt.Sprintf("%.0f", seconds) }
