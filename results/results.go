// Package results replays published experiments and sets our figures beside
// the published ones. Its output is docs/results.md.
package results

import (
	"context"
	"fmt"
	"io"
	"math"
	"path/filepath"
	"strconv"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/internal/csvfile"
	"github.com/muster-gpu/muster/report"
	"github.com/muster-gpu/muster/sim"
	"github.com/muster-gpu/muster/trace"
)

// Row is one published figure beside ours.
type Row struct {
	Case      string
	Figure    string
	Published float64
	Ours      float64
	Reason    string // of a difference
}

// Off is the relative difference.
func (r *Row) Off() float64 {
	if r.Published == 0 {
		return math.Abs(r.Ours)
	}
	return r.Ours/r.Published - 1
}

// Table is one published table.
type Table struct {
	Title     string
	About     string
	Tolerance float64 // relative; rows beyond it carry a reason
	Rows      []Row
}

// Failed lists the rows beyond the tolerance that nobody has explained.
func (t *Table) Failed() []Row {
	var bad []Row
	for _, r := range t.Rows {
		if math.Abs(r.Off()) > t.Tolerance && r.Reason == "" {
			bad = append(bad, r)
		}
	}
	return bad
}

// Comparing is the part of docs/results.md that replays nothing published: Compare.
const Comparing = "comparison"

// experiments are what is replayed, in the order of docs/results.md.
var experiments = []struct {
	name string
	run  func(context.Context, string) (Table, error)
}{{"tiresias", Tiresias}, {"muri", Muri}, {"pollux", Pollux}, {"pollux-itself", PolluxItself}, {"elasticflow", ElasticFlow}, {"gavel", Gavel}, {"fgd", FGD}, {"miso", MISO}, {"parvagpu", ParvaGPU}, {"parvagpu-changes", ParvaChanges}, {"parvagpu-shares", ParvaShares}}

// All replays every experiment, or the one of that name. traces is the directory of
// recorded traces.
func All(ctx context.Context, traces, only string) ([]Table, error) {
	var out []Table
	var names []string
	for _, e := range experiments {
		if names = append(names, e.name); only != "" && only != e.name {
			continue
		}
		t, err := e.run(ctx, traces)
		if err != nil {
			return nil, err
		}
		out = append(out, t)
	}
	if out == nil {
		return nil, cluster.Unknown("experiment", only, append(names, Comparing))
	}
	return out, nil
}

// tiresiasPolicy says which of our policies stands for which of the upstream
// simulator's schedules.
var tiresiasPolicy = []struct{ theirs, ours, backfill, reason string }{
	{"fifo", "fifo", "none", ""},
	{"fjf", "fifo", "skip", ""},
	{"dlas", "las:thresholds=3250/7200/18000,dimension=time", "", ""},
	{"dlas-gpu", "las:thresholds=3250/7200/18000", "", ""},
	{"shortest", "srtf", "", ""},
	{"shortest-gpu", "srsf", "", ""},
	{"sjf", "sjf-gpu:preempt=true", "", ""},
}

// Tiresias replays the 60-job trace on the clusters of the upstream simulator
// with its count scheme: a job may take GPUs anywhere.
func Tiresias(ctx context.Context, traces string) (Table, error) {
	t := Table{Title: "Tiresias: 60 jobs, count placement", Tolerance: 0.02,
		About: "Mean JCT and makespan in seconds, of the upstream simulator with `--scheme=count` (measured under Python 2.7). " +
			"Gangs are one task per GPU. Upstream's shortest-gpu sorts a preempted job by its full duration again; ours by what remains."}
	dir := filepath.Join(traces, "tiresias")
	published, err := readMeasured(filepath.Join(dir, "measured_60job_upstream_simulator.csv"))
	if err != nil {
		return t, err
	}
	wl, err := trace.Open(filepath.Join(dir, "60_job.csv"), trace.Options{})
	if err != nil {
		return t, err
	}
	for _, c := range []struct{ name, short string }{{"n2g8", "2x8"}, {"n4g8", "4x8"}} {
		for _, p := range tiresiasPolicy {
			want, ok := published[c.name+"/count/"+p.theirs]
			if !ok {
				return t, fmt.Errorf("%s: no row for %s count %s", dir, c.name, p.theirs)
			}
			s, err := replay(ctx, wl, c.short, p.ours, p.backfill)
			if err != nil {
				return t, err
			}
			name := fmt.Sprintf("%s, %s (ours: %s)", c.short, p.theirs, p.ours)
			t.Rows = append(t.Rows, Row{name, "mean JCT", want.jct, s.JCT.Mean, p.reason},
				Row{name, "makespan", want.makespan, s.Makespan, p.reason})
		}
	}
	return t, nil
}

func replay(ctx context.Context, wl *trace.Workload, short, pol, backfill string) (report.Summary, error) {
	spec, err := cluster.ParseShort(short)
	if err != nil {
		return report.Summary{}, err
	}
	setup := sim.Setup{Policy: pol, Placer: "best-fit"}
	if backfill != "" {
		if err := setup.SetBackfill(backfill); err != nil {
			return report.Summary{}, err
		}
	}
	o := sim.Run(ctx, spec, sim.Prepare(wl, spec, sim.Estimates{}, sim.PerGPU), setup)
	if o.Err != nil {
		return report.Summary{}, o.Err
	}
	s := o.Run.Summarise()
	if s.Completed != s.Jobs {
		return s, fmt.Errorf("%s: %d of %d jobs completed", pol, s.Completed, s.Jobs)
	}
	return s, nil
}

// readFigures reads figures by the first three columns; the fourth is the figure,
// in seconds.
func readFigures(path string) (map[string]float64, error) {
	rows, err := csvfile.Read(path)
	if err != nil {
		return nil, err
	}
	out := map[string]float64{}
	for _, r := range rows[1:] {
		v, err := strconv.ParseFloat(r[3], 64)
		if err != nil {
			return nil, fmt.Errorf("%s: row %v: not a number of seconds", path, r)
		}
		out[r[0]+"/"+r[1]+"/"+r[2]] = v
	}
	return out, nil
}

type measured struct{ jct, makespan float64 }

func readMeasured(path string) (map[string]measured, error) {
	rows, err := csvfile.Read(path)
	if err != nil {
		return nil, err
	}
	out := map[string]measured{}
	for _, r := range rows[1:] {
		jct, err1 := strconv.ParseFloat(r[4], 64)
		span, err2 := strconv.ParseFloat(r[8], 64)
		if err1 != nil || err2 != nil {
			return nil, fmt.Errorf("%s: row %v: not numbers", path, r)
		}
		out[r[0]+"/"+r[1]+"/"+r[2]] = measured{jct, span}
	}
	return out, nil
}

// Write writes the tables as Markdown.
func Write(w io.Writer, tables []Table) error {
	p := &printer{w: w}
	p.f("# Published figures beside ours\n\nWritten by `make results` (`muster results --traces DIR --out docs/results.md`); do not edit.\n")
	for i := range tables {
		t := &tables[i]
		p.f("\n## %s\n\n%s\n\nTolerance: %.1f %%. Rows beyond it: %d unexplained.\n\n", t.Title, t.About, 100*t.Tolerance, len(t.Failed()))
		p.f("| case | figure | published | ours | difference | reason |\n|---|---|---|---|---|---|\n")
		for k := range t.Rows {
			r := &t.Rows[k]
			p.f("| %s | %s | %s | %s | %+.2f %% | %s |\n", r.Case, r.Figure, num(r.Published), num(r.Ours), math.Round(1e4*r.Off())/100+0, r.Reason) // no -0.00
		}
	}
	return p.err
}

func num(v float64) string { return strconv.FormatFloat(math.Round(v*1000)/1000, 'f', -1, 64) }

type printer struct {
	w   io.Writer
	err error
}

func (p *printer) f(format string, args ...any) {
	if p.err == nil {
		_, p.err = fmt.Fprintf(p.w, format, args...)
	}
}
