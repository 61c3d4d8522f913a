// Package results replays published experiments and compares our figures with the published ones.
// Its output is docs/results.md, with a page per experiment in docs/results.
package results

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/internal/csvfile"
	"github.com/muster-gpu/muster/report"
	"github.com/muster-gpu/muster/sim"
	"github.com/muster-gpu/muster/trace"
)

// Row is one published figure with ours.
type Row struct {
	Case      string
	Figure    string
	Published float64
	Ours      float64
	Reason    string // why they differ
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
	Name      string // of the experiment and its page
	Title     string
	About     string
	Tolerance float64 // relative; rows beyond it need a reason
	Rows      []Row
	Sections  []Section // where rows are too many: the page has these, and of the rows those that lack a reason
}

// Section is a part of a page that has a table of its own.
type Section struct {
	Title, About string
	Head         []string
	Cells        [][]string
}

// Failed lists the rows beyond the tolerance without a reason.
func (t *Table) Failed() []Row {
	var bad []Row
	for _, r := range t.Rows {
		if math.Abs(r.Off()) > t.Tolerance && r.Reason == "" {
			bad = append(bad, r)
		}
	}
	return bad
}

// Comparing is the page that replays nothing published: Compare.
const Comparing = "comparison"

// experiments are the replays, in the order of docs/results.md.
var experiments = []struct {
	name string
	run  func(context.Context, string) (Table, error)
}{{"tiresias", Tiresias}, {"muri", Muri}, {"pollux", Pollux}, {"pollux-itself", PolluxItself},
	{"elasticflow", ElasticFlow}, {"gavel", Gavel}, {"fgd", FGD}, {"miso", MISO}, {"parvagpu", ParvaGPU},
	{"parvagpu-changes", ParvaChanges}, {"parvagpu-shares", ParvaShares}, {"distserve", DistServe},
	{"serving", Serving}, {"triton", Triton}, {"language", LanguageModels},
	{"language-apart", LanguageApart}, {"network", Network}}

// Names returns the names of the pages.
func Names() (list []string) {
	for _, e := range experiments {
		list = append(list, e.name)
	}
	return append(list, Comparing)
}

// All replays every experiment, or the one with that name. traces is the directory of recorded
// traces.
func All(ctx context.Context, traces, only string) ([]Table, error) {
	var out []Table
	for _, e := range experiments {
		if only != "" && only != e.name {
			continue
		}
		t, err := e.run(ctx, traces)
		if err != nil {
			return nil, err
		}
		t.Name = e.name
		out = append(out, t)
	}
	if out == nil {
		return nil, cluster.Unknown("experiment", only, Names())
	}
	return out, nil
}

// tiresiasPolicy maps the upstream simulator's schedules to our policies.
var tiresiasPolicy = []struct{ theirs, ours, backfill, reason string }{
	{"fifo", "fifo", "none", ""},
	{"fjf", "fifo", "skip", ""},
	{"dlas", "las:thresholds=3250/7200/18000,dimension=time", "", ""},
	{"dlas-gpu", "las:thresholds=3250/7200/18000", "", ""},
	{"shortest", "srtf", "", ""},
	{"shortest-gpu", "srsf", "", ""},
	{"sjf", "sjf-gpu:preempt=true", "", ""},
}

// Tiresias replays the 60-job trace on the clusters of the upstream simulator with its count
// scheme: a job may take GPUs anywhere.
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

// eachRow calls f for each row below the header of a CSV file.
func eachRow(path string, f func(head, r []string) error) error {
	rows, err := csvfile.Read(path)
	if err != nil {
		return err
	}
	for _, r := range rows[1:] {
		if err := f(rows[0], r); err != nil {
			return fmt.Errorf("%s: row %v: %w", path, r, err)
		}
	}
	return nil
}

// readFigures reads figures by the first three columns; the fourth is the figure, in seconds.
func readFigures(path string) (map[string]float64, error) {
	out := map[string]float64{}
	return out, eachRow(path, func(_, r []string) (err error) {
		out[r[0]+"/"+r[1]+"/"+r[2]], err = strconv.ParseFloat(r[3], 64)
		return err
	})
}

type measured struct{ jct, makespan float64 }

func readMeasured(path string) (map[string]measured, error) {
	out := map[string]measured{}
	return out, eachRow(path, func(_, r []string) error {
		jct, err1 := strconv.ParseFloat(r[4], 64)
		span, err2 := strconv.ParseFloat(r[8], 64)
		out[r[0]+"/"+r[1]+"/"+r[2]] = measured{jct, span}
		return errors.Join(err1, err2)
	})
}

// generated is on every page.
const generated = "Written by `make results`; do not edit."

// Index writes the first page: what agrees and what does not, a line for each experiment.
func Index(w io.Writer, tables []Table) error {
	p := &printer{w: w}
	p.f("# Published figures and ours\n\n%s\n\nEach published figure is replayed by our engine and our policies in the world of the simulator that printed it "+
		"(`experiments/compat`); what is particular to that world, and why a figure differs, is on the experiment's page.\n\n", generated)
	p.f("| experiment | figures | equal | within the tolerance | beyond it, with a reason | without a reason |\n|---|---|---|---|---|---|\n")
	for i := range tables {
		t := &tables[i]
		equal, near, apart := t.agree()
		p.f("| [%s](results/%s.md) | %d | %d | %d (%.1f %%) | %d | %d |\n", t.Title, t.Name, len(t.Rows), equal, near,
			100*t.Tolerance, apart, len(t.Failed()))
	}
	p.f("\n\"Equal\" is to the hundredth of a per cent. Most of the rows with a reason replay a policy of ours, with its own rules, next to the published one. [All policies on the same six workloads](results/%s.md) is ours alone: no such table has been published.\n", Comparing)
	return p.err
}

// agree counts the rows that are equal as printed, those that differ within the tolerance, and
// those that differ by more, with a reason.
func (t *Table) agree() (equal, near, apart int) {
	for i := range t.Rows {
		switch off := math.Abs(t.Rows[i].Off()); {
		case off < 5e-5:
			equal++
		case off <= t.Tolerance:
			near++
		case t.Rows[i].Reason != "":
			apart++
		}
	}
	return equal, near, apart
}

// Write writes an experiment's page.
func (t *Table) Write(w io.Writer) error {
	p := &printer{w: w}
	p.f("# %s\n\n%s\n\n%s\n\nTolerance: %.1f %%. Rows beyond it: %d unexplained.\n\n", t.Title, generated, t.About,
		100*t.Tolerance, len(t.Failed()))
	rows := t.Rows
	if len(t.Sections) > 0 {
		rows = t.Failed()
	}
	if len(rows) > 0 {
		p.f("| case | figure | published | ours | difference | reason |\n|---|---|---|---|---|---|\n")
	}
	for k := range rows {
		r := &rows[k]
		// no -0.00
		p.f("| %s | %s | %s | %s | %+.2f %% | %s |\n", r.Case, r.Figure, num(r.Published), num(r.Ours),
			math.Round(1e4*r.Off())/100+0, r.Reason)
	}
	for i := range t.Sections {
		s := &t.Sections[i]
		p.f("%s## %s\n\n%s\n\n", some(i > 0 || len(rows) > 0, "%s", "\n"), s.Title, s.About)
		p.f("| %s |\n|%s\n", strings.Join(s.Head, " | "), strings.Repeat("---|", len(s.Head)))
		for _, cells := range s.Cells {
			p.f("| %s |\n", strings.Join(cells, " | "))
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
