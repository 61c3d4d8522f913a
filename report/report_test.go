package report

import (
	"bytes"
	"encoding/csv"
	"encoding/json"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/muster-gpu/muster/cluster"
)

// made returns figures that are easy to check by eye.
func made() []Summary {
	d := func(mean, p50, p95, p99 float64) Dist {
		return Dist{N: 998, Mean: mean, P50: p50, P95: p95, P99: p99, Max: p99}
	}
	fifo := Summary{Policy: "fifo", Placer: "best-fit", Backfill: "none", Hash: "00ff", Jobs: 1000, Completed: 998,
		Rejected: 2,
		JCT:      d(15120, 1200, 90000, 200000), Delay: d(7200, 38, 40000, 86400), Slowdown: d(12.3, 1.04, 40, 1234),
		FTF:      d(1.5, 1, 3, 4),
		Makespan: 1e6, Allocation: .731, Utilisation: .7, Goodput: .7, Fragmentation: .21, Unusable: .12, FTFOver: .35,
		Jain: .82}
	las := fifo
	las.Policy, las.Backfill, las.Preemptions, las.LostHours, las.Jain = "las", "skip", 1234, 5.25, .91
	las.JCT, las.Delay = d(7380, 600, 80000, 250000), d(3600, 4, 20000, 90000)
	cut := las
	cut.Policy, cut.JCT.N, cut.Completed, cut.Unfinished, cut.Rejected, cut.JCT.Mean = "cut", 900, 900, 98, 2, 60
	return []Summary{fifo, las, cut}
}

const narrow = `                             fifo      las      cut
Job completion time
  mean                      4h12m    2h03m*      1m
  median                      20m      10m*     10m
  p95                         25h   22h13m*  22h13m
  p99                       2d08h*   2d21h    2d21h
Queueing delay
  mean                         2h       1h*      1h
  median                      38s     4.0s*    4.0s
  p95                      11h07m    5h33m*   5h33m
  p99                         24h*     25h      25h
Slowdown
  mean                       12.3     12.3     12.3
  median                     1.04     1.04     1.04
  p95                        40.0     40.0     40.0
  p99                       1,234    1,234    1,234
Cluster
  makespan                 11d14h   11d14h   11d14h
  GPUs allocated            73.1%    73.1%    73.1%
  GPUs computing            70.0%    70.0%    70.0%
  goodput                   70.0%    70.0%    70.0%
  fragmentation             21.0%    21.0%    21.0%
  idle, but unusable        12.0%    12.0%    12.0%
Fairness
  finish-time ratio, mean    1.50     1.50     1.50
  finish-time ratio, p95     3.00     3.00     3.00
  jobs with ratio over 1    35.0%    35.0%    35.0%
  Jain's index of queues     0.82     0.91*    0.91
Stops
  preemptions                   0*   1,234    1,234
  GPU-hours lost                0*    5.25     5.25
Jobs
  submitted                 1,000    1,000    1,000
  completed                   998      998      900
  rejected                      2        2        2
  unfinished                    0*       0*      98

* best of the policies; runs cut short, or that ended fewer jobs, do not compete
placer: best-fit
backfill: none (fifo), skip (las, cut)
not alike: where there is no backfill nothing passes a blocked job, under the
  others jobs do; what is due to the order alone shows with the same backfill
  for all (--backfill easy)
fifo, las: 2 of 1,000 jobs rejected, not in the completion times
cut: 98 of 1,000 jobs not finished, 2 of 1,000 jobs rejected, not in the
  completion times
`

func TestTable(t *testing.T) {
	var b strings.Builder
	if err := WriteTable(&b, made(), TableOptions{Width: 80}); err != nil {
		t.Fatal(err)
	}
	if b.String() != narrow {
		t.Errorf("got\n%s", b.String())
	}
	b.Reset()
	WriteTable(&b, made(), TableOptions{Width: 80, Color: true})
	if got := regexp.MustCompile("\x1b\\[[0-9]m").ReplaceAllString(b.String(), ""); got != narrow {
		t.Errorf("colours move the table:\n%s", got)
	}
	if !strings.Contains(b.String(), "\x1b[1m2h03m*\x1b[0m") {
		t.Error("the best is not bold")
	}
}

const manyRows = `                       Job completion time            Queueing delay
policy                  mean  median     p95    p99   mean  median     p95  p99
policy-00(knob=0.125)  4h12m     20m     25h  2d08h*    2h     38s  11h07m  24h*
policy-01(knob=0.125)  2h03m*    10m* 22h13m* 2d21h     1h*   4.0s*  5h33m* 25h
`

// TestTableFits formats 1 to 20 policies in 80 to 200 columns: no line is too wide, and no value is
// lost or broken.
func TestTableFits(t *testing.T) {
	for n := 1; n <= 20; n++ {
		var sums []Summary
		for i := range n {
			s := made()[i%2]
			s.Policy = fmt.Sprintf("policy-%02d(knob=0.125)", i)
			sums = append(sums, s)
		}
		for w := 80; w <= 200; w += 20 {
			var b strings.Builder
			WriteTable(&b, sums, TableOptions{Width: w})
			for _, line := range strings.Split(b.String(), "\n") {
				if width(line) > w {
					t.Fatalf("%d policies, %d columns: a line of %d: %s", n, w, width(line), line)
				}
			}
			if got := strings.Count(b.String(), "11h07m"); got != (n+1)/2 {
				t.Fatalf("%d policies, %d columns: p95 delay %d times", n, w, got)
			}
			if n == 12 && w == 100 && !strings.HasPrefix(b.String(), manyRows) {
				t.Errorf("got\n%s", b.String())
			}
		}
	}
}

func TestBest(t *testing.T) {
	sums := made()
	f := figures()[0]
	if got := best(&f, sums); !slices.Equal(got, []bool{false, true, false}) {
		t.Errorf("a run in which fewer jobs ended competes in completion times: %v", got)
	}
	sums[1].Partial = true
	if got := best(&f, sums); !slices.Equal(got, []bool{true, false, false}) {
		t.Errorf("an interrupted run competes: %v", got)
	}
	if got := best(&f, sums[:1]); slices.Contains(got, true) {
		t.Error("one run is best of one")
	}
}

func TestUnits(t *testing.T) {
	for _, c := range []struct {
		u    unit
		v    float64
		want string
	}{
		{unitSeconds, 0, "0s"}, {unitSeconds, 0.012, "12ms"}, {unitSeconds, 3.21, "3.2s"}, {unitSeconds, 38, "38s"},
		{unitSeconds, 59.7, "1m"},
		{unitSeconds, 725, "12m05s"}, {unitSeconds, 3599.8, "1h"}, {unitSeconds, 15120, "4h12m"},
		{unitSeconds, 172799, "2d"},
		{unitSeconds, 3 * 90000, "3d03h"}, {unitSeconds, 200 * 86400, "200d"},
		{unitShare, 0, "0%"}, {unitShare, 1, "100%"}, {unitShare, .99999, "99.9%"}, {unitShare, .00005, "0.01%"},
		{unitShare, .731, "73.1%"},
		{unitCount, 1234567, "1,234,567"}, {unitCount, 999, "999"}, {unitRatio, 9.996, "10.0"}, {unitRatio, .5, "0.50"},
		{unitRatio, 1234.4, "1,234"},
		{unitMicros, 8.94, "8.9µs"}, {unitMicros, 12345, "12ms"},
	} {
		if got := c.u.human(c.v); got != c.want {
			t.Errorf("%s %g reads %s, want %s", unitNames[c.u], c.v, got, c.want)
		}
	}
}

// TestJSON pins the schema: names that other programs read must not change.
func TestJSON(t *testing.T) {
	runs, sums := fixtures()
	var b bytes.Buffer
	if err := WriteJSON(&b, runs, sums); err != nil {
		t.Fatal(err)
	}
	var got struct {
		Schema, Trace, Cluster string
		Capacity               int64 `json:"capacity_milli_gpu"`
		Runs                   []map[string]any
	}
	if err := json.Unmarshal(b.Bytes(), &got); err != nil {
		t.Fatal(err)
	}
	if got.Schema != "muster.report/v1" || got.Trace != "made up" || got.Cluster != "2x4xV100" ||
		got.Capacity != 8000 || len(got.Runs) != 3 {
		t.Errorf("head: %+v", got)
	}
	flat := map[string]string{}
	for k, v := range got.Runs[0] {
		if m, ok := v.(map[string]any); ok {
			for sub := range m {
				flat[k+"."+sub] = ""
			}
		} else {
			flat[k] = ""
		}
	}
	b.Reset()
	if err := WriteCSV(&b, sums); err != nil {
		t.Fatal(err)
	}
	rows, err := csv.NewReader(&b).ReadAll()
	if err != nil || len(rows) != 4 {
		t.Fatal(err, rows)
	}
	for _, name := range rows[0] {
		if _, ok := flat[name]; !ok && name != "partial" { // left out if false
			t.Errorf("the CSV's %s is not in the JSON", name)
		}
		delete(flat, name)
	}
	for name := range flat {
		t.Errorf("the JSON's %s is not in the CSV", name)
	}
	const head = "policy,placer,backfill,hash,partial,jobs,completed,failed,cancelled,timed_out,rejected,lost,unfinished,jct.n,jct.mean,jct.p50,jct.p95,jct.p99,jct.max"
	if !strings.HasPrefix(strings.Join(rows[0], ","), head) {
		t.Errorf("header %v", rows[0])
	}
	if line := strings.Join(rows[3], ","); !strings.HasPrefix(line,
		"largest(knob=2),best-fit,none,000000000000feed,false,24,23,0,0,0,0,0,1,23,") {
		t.Errorf("line %s", line)
	}
}

func TestJobsCSV(t *testing.T) {
	runs, _ := fixtures()
	r := runs[0]
	var b bytes.Buffer
	if err := WriteJobsCSV(&b, &r); err != nil {
		t.Fatal(err)
	}
	rows, err := csv.NewReader(&b).ReadAll()
	if err != nil || len(rows) != 25 {
		t.Fatal(err, len(rows))
	}
	if got := strings.Join(rows[0],
		","); got != "id,name,user,queue,gpus,submit,first_start,end,outcome,waited_s,ran_s,jct_s,preemptions,lost_gpu_s,deadline,deadline_answer,deadline_met" {
		t.Errorf("header %s", got)
	}
	if got := strings.Join(rows[1], ","); got != "0,train-00,ada,vision,1,0,0,900,completed,0,900,900,0,0,,," {
		t.Errorf("first job %s", got)
	}
	if got := rows[4]; got[12] != "2" || got[13] != "90" {
		t.Errorf("a stopped job %v", got)
	}
	if got := rows[24]; got[7] != "" || got[8] != "unfinished" || got[11] != "" {
		t.Errorf("a job without an end %v", got)
	}
	r.Jobs = slices.Clone(r.Jobs)
	for i := range 2 {
		j := *r.Jobs[i]
		j.Deadline = r.Records[i].End - cluster.Time(i)
		r.Jobs[i], r.Records[i].Answer = &j, Answer(i)
	}
	b.Reset()
	WriteJobsCSV(&b, &r)
	for i, want := range []string{",900,,true", "accepted,false"} {
		if line := strings.Split(b.String(), "\n")[1+i]; !strings.HasSuffix(line, want) {
			t.Errorf("a deadline: %s, want %s", line, want)
		}
	}
	r.Jobs[0], r.Records[0].Answer = runs[0].Jobs[0], Unanswered
	r.Epoch = 1506996060
	r.Records[0].Submit = cluster.Time(1500 * time.Millisecond)
	b.Reset()
	WriteJobsCSV(&b, &r)
	if !strings.Contains(b.String(),
		"0,train-00,ada,vision,1,2017-10-03T02:01:01.5Z,2017-10-03T02:01:00Z,2017-10-03T02:16:00Z,") {
		t.Errorf("dated: %s", strings.SplitN(b.String(), "\n", 3)[1])
	}
}

func TestPageIsSealed(t *testing.T) {
	runs, sums := fixtures()
	runs[0].Cluster, runs[0].Trace = hostile, hostile
	sums[0].Policy = hostile
	var b bytes.Buffer
	if err := WriteHTML(&b, hostile, runs, sums); err != nil {
		t.Fatal(err)
	}
	s := b.String()
	if strings.Contains(s, "<img") || strings.Count(s, "</script>") != 3 || strings.Contains(s, "onerror=\"") {
		t.Error("a name is markup")
	}
	policy := regexp.MustCompile(`Content-Security-Policy" content="([^"]*)"`).FindStringSubmatch(s)
	if policy == nil || !strings.HasPrefix(policy[1], "default-src 'none'; script-src 'sha256-") ||
		strings.Contains(policy[1], "unsafe") {
		t.Errorf("policy %v", policy)
	}
	for _, u := range regexp.MustCompile(`https?://[^\s"')]*`).FindAllString(s, -1) {
		if u != "https://github.com/leeoniya/uPlot" { // its licence comment
			t.Errorf("the page names %s", u)
		}
	}
	for _, tag := range []string{"<link rel=\"stylesheet", "src=\"", "@import", "url("} {
		if strings.Contains(s, tag) {
			t.Errorf("the page has %s", tag)
		}
	}
	data := regexp.MustCompile(`(?s)<script id="data" type="application/json">(.*?)</script>`).FindStringSubmatch(s)
	var p page
	if err := json.Unmarshal([]byte(data[1]), &p); err != nil || p.Title != hostile || p.Runs[0].Jobs == nil {
		t.Errorf("data: %v %q", err, p.Title)
	}
	for _, asset := range []string{"Permission is hereby granted", "uPlot 1.6.32", "Leon Sorokin"} {
		if !strings.Contains(s, asset) {
			t.Errorf("the page lacks %q", asset)
		}
	}
}

// TestPageSize bounds a page of ten policies with every curve full.
func TestPageSize(t *testing.T) {
	r := Run{Policy: "p", Capacity: 384_000, Series: NewSeries(), Last: cluster.Time(1024 * time.Minute)}
	for q := range 24 {
		r.Queues, r.Owed = append(r.Queues, fmt.Sprint("queue", q)), append(r.Owed, 1000)
	}
	for i := range 1024 {
		v := 1000.0 / 7 * float64(i)
		b := Bin{Alloc: v * 1e4, Busy: v * 9e3, Pending: v * 60, Running: v * 7, Demand: v * 3e4, Split: v * 77,
			Free: v * 777}
		for range 24 {
			b.Queues = append(b.Queues, v*123)
		}
		r.Series.Bins = append(r.Series.Bins, b)
	}
	for i := range 80000 {
		end := cluster.Time(time.Duration(i) * 777 * time.Millisecond)
		r.Records = append(r.Records, Record{End: end, Outcome: Completed, Waited: time.Duration(end / 3)})
		r.Jobs, r.Ideal, r.Active = append(r.Jobs, &cluster.Job{}), append(r.Ideal, time.Second), append(r.Active, 1)
	}
	runs, sums := make([]Run, 10), make([]Summary, 10)
	for i := range runs {
		runs[i], sums[i] = r, Summary{Policy: "p"}
	}
	var n counter
	if err := WriteHTML(&n, "", runs, sums); err != nil {
		t.Fatal(err)
	}
	if n > 2<<20 {
		t.Errorf("%d bytes", n)
	}
	if got := len(newPage("", runs[:1], sums[:1]).Runs[0].JCT.Q); got != maxQuantiles {
		t.Errorf("%d quantiles", got)
	}
}

type counter int

func (c *counter) Write(p []byte) (int, error) { *c += counter(len(p)); return len(p), nil }

func TestQuantiles(t *testing.T) {
	var v []float64
	for i := range 5000 {
		v = append(v, float64((i*37)%5000+1))
	}
	q := quantiles(v)
	if len(q) != maxQuantiles || q[len(q)-1] != 5000 || !slices.IsSorted(q) {
		t.Fatalf("%d points, last %g", len(q), q[len(q)-1])
	}
	for i, x := range q { // nearest rank of (i+1)/512 over 1..5000
		if want := float64(((i+1)*5000 + 511) / 512); x != want {
			t.Fatalf("point %d is %g, want %g", i, x, want)
		}
	}
}

// TestSpansOnPage checks that a mask of GPUs becomes its stretches.
func TestSpansOnPage(t *testing.T) {
	r := Run{Jobs: []*cluster.Job{{}}, Records: make([]Record, 1), Nodes: []string{"a"}, GPUs: []int{64},
		Spans: []Span{{GPUs: 0b1101_1000_0011}, {GPUs: ^uint64(0)}, {GPUs: 1 << 63, To: cluster.Never}},
		Last:  cluster.Time(time.Second)}
	var to pageRun
	r.pageSpans(&to, nil)
	want := [][6]int64{{0, 0, 0, 2, 0, 0}, {0, 0, 7, 2, 0, 0}, {0, 0, 10, 2, 0, 0}, {0, 0, 0, 64, 0, 0},
		{0, 0, 63, 1, 0, 1000}}
	if !slices.Equal(to.Spans, want) {
		t.Errorf("got %v", to.Spans)
	}
}

func TestProgress(t *testing.T) {
	var out bytes.Buffer
	now := time.Hour
	p := NewProgress(&out, true, 200, "replay", func() time.Duration { return now })
	draws := func() int { return strings.Count(out.String(), "\r\x1b[K") }
	p.Update(10, "")
	now += 1900 * time.Millisecond
	p.Update(20, "")
	if out.Len() > 0 {
		t.Errorf("drawn within two seconds: %q", out.String())
	}
	now += 3100 * time.Millisecond
	p.Update(50, "las")
	if got := out.String(); got != "\r\x1b[Kreplay ██████░░░░░░░░░░░░░░░░░░  25%  15s left  las" {
		t.Errorf("got %q", got)
	}
	for range 50 {
		now += 10 * time.Millisecond
		p.Update(60, "")
	}
	if n := draws(); n > 6 {
		t.Errorf("%d draws in half a second", n)
	}
	q := p.Part(200)
	now += time.Second
	q.Update(140, "")
	if !strings.HasSuffix(out.String(), "50%  7s left") {
		t.Errorf("two parts: %q", out.String())
	}
	p.Done()
	p.Update(200, "")
	if !strings.HasSuffix(out.String(), "left\r\x1b[K") {
		t.Errorf("not erased: %q", out.String())
	}
	out.Reset()
	quiet := NewProgress(&out, false, 10, "replay", func() time.Duration { now += time.Minute; return now })
	quiet.Update(5, "")
	quiet.Done()
	NewProgress(&out, true, 10, "replay", func() time.Duration { return now }).Done()
	if out.Len() > 0 {
		t.Errorf("not a terminal, or over at once: %q", out.String())
	}
}

// TestProgressTogether is for the race detector.
func TestProgressTogether(t *testing.T) {
	var at int64
	p := NewProgress(io.Discard, true, 0, "x", func() time.Duration {
		at += int64(time.Second)
		return time.Duration(at)
	})
	var wg sync.WaitGroup
	for range 8 {
		q := p.Part(100)
		wg.Go(func() {
			for i := range 101 {
				q.Update(i, "")
			}
		})
	}
	wg.Wait()
	if got := p.line(time.Second); !strings.Contains(got, "100%") {
		t.Errorf("ends at %q", got)
	}
	p.Done()
}

// Late jobs are those whose deadline was accepted and that had not ended by then.
func TestDeadlines(t *testing.T) {
	at := func(s int) cluster.Time { return cluster.Time(s) * cluster.Time(time.Second) }
	r := Run{Queues: []string{"q"}, Capacity: cluster.Whole, Last: at(100)}
	for _, x := range []struct {
		deadline, end int // end 0: it did not end
		out           Outcome
		said          Answer
	}{
		{50, 50, Completed, Accepted}, {50, 51, Completed, Accepted}, {50, 51, Completed, Declined},
		{50, 49, Completed, Unanswered},
		{50, 49, Failed, Accepted}, {50, 51, Failed, Accepted}, {50, 40, Cancelled, Accepted}, {50, 40, Lost, Accepted},
		{99, 0, Unfinished, Accepted}, {101, 0, Unfinished, Accepted}, {0, 50, Completed, Unanswered},
	} {
		rec := Record{End: at(x.end), Outcome: x.out, Answer: x.said}
		if x.end == 0 {
			rec.End = cluster.Never
		}
		r.Jobs, r.Records = append(r.Jobs, &cluster.Job{Deadline: at(x.deadline)}), append(r.Records, rec)
		r.Ideal, r.Active = append(r.Ideal, time.Second), append(r.Active, 1)
	}
	s := r.Summarise()
	if s.Deadlines != 10 || s.DeadlinesMet != 2 || s.Accepted != 8 || s.Declined != 1 || s.AcceptedLate != 4 {
		t.Errorf("of %d deadlines %d met, %d accepted, %d declined, %d late", s.Deadlines, s.DeadlinesMet, s.Accepted,
			s.Declined, s.AcceptedLate)
	}
	var b strings.Builder
	if err := WriteTable(&b, []Summary{s, {Policy: "edf", Deadlines: 10, DeadlinesMet: 3}},
		TableOptions{Width: 100}); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{`deadlines met +2/10 +3/10\*`, `deadlines accepted +8/9 +–`,
		`accepted, but late +4/8 +–`} {
		if !regexp.MustCompile(want).MatchString(b.String()) {
			t.Errorf("no %q in\n%s", want, b.String())
		}
	}
}

// TestPicks: which runs a page of many opens with, and why.
func TestPicks(t *testing.T) {
	var sums []Summary
	for i, name := range []string{"fifo", "las", "srtf", "gittins", "multifactor", "drf", "edf", "sjf"} {
		var s Summary
		s.Policy, s.Jobs, s.Completed = name, 100, 100
		s.JCT = Dist{N: 100, Mean: float64([]int{90, 20, 30, 10, 40, 50, 60, 70}[i]), P99: float64(100 - i)}
		s.Goodput, s.Makespan = float64(i%5)/10, 1000
		sums = append(sums, s)
	}
	if got := picks(sums[:7]); got != nil {
		t.Errorf("seven runs, of which all are shown: %v", got)
	}
	got := picks(sums)
	want := []pick{{3, "best by job completion time, mean"}, {7, "best by job completion time, p99"},
		{1, "next by job completion time, mean"},
		{4, "what muster serve runs by default; best by goodput"}, {0, "the baseline"}}
	if !slices.Equal(got, want) {
		t.Errorf("%v\nwant %v", got, want)
	}
}
