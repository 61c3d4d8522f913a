package compat

import (
	"fmt"
	"math"
	"path/filepath"
	"strconv"
	"testing"

	"github.com/muster-gpu/muster/internal/shared"
)

func distData(t testing.TB) (*DistServe, string) {
	t.Helper()
	dir := filepath.Dir(shared.Path(t, "traces/distserve-profiles/max_num_tokens.csv"))
	d, err := ReadDistServe(dir)
	if err != nil {
		t.Fatal(err)
	}
	return d, dir
}

func distLoad(t testing.TB, dir, name string) []DistRequest {
	t.Helper()
	list, err := ReadDistRequests(filepath.Join(dir, "workload-"+name+".csv"))
	if err != nil || len(list) != 300 {
		t.Fatalf("%d requests: %v", len(list), err)
	}
	return list
}

// split is a layout of two instances, by TP and PP of each.
func split(tpp, ppp, tpd, ppd int) DistLayout {
	return DistLayout{Prefill: DistParallel{tpp, ppp}, Decode: DistParallel{tpd, ppd}}
}

func together(tp, pp int) DistLayout {
	return DistLayout{Together: true, Prefill: DistParallel{tp, pp}}
}

// TestDistRequests: single requests, as in the published program.
func TestDistRequests(t *testing.T) {
	t.Parallel()
	d, _ := distData(t)
	for _, c := range []struct {
		layout   DistLayout
		requests []DistRequest // Gap: the arrival
		want     []DistTimes   // Exit: 0: not compared
	}{
		{split(1, 1, 1, 1), []DistRequest{{512, 4, 0}}, []DistTimes{{75.199881, 22.347118, 164.588353}}},
		{split(2, 1, 1, 2), []DistRequest{{512, 4, 0}}, []DistTimes{{53.547845, 22.347118, 0}}},
		{split(1, 2, 1, 1), []DistRequest{{512, 4, 0}}, []DistTimes{{78.199881, 22.347118, 0}}},
		{split(1, 1, 1, 1), []DistRequest{{100, 1, 0}}, []DistTimes{{31.374995, 22.046530, 0}}},
		{split(1, 1, 1, 1), []DistRequest{{512, 2, 0}, {256, 3, 0}},
			[]DistTimes{{101.781784, 22.571984, 0}, {101.781784, 22.435118, 0}}},
		{split(1, 1, 1, 1), []DistRequest{{512, 2, 0}, {256, 3, 10}},
			[]DistTimes{{75.199881, 22.346391, 0}, {112.884330, 22.160659, 0}}},
		{together(1, 1), []DistRequest{{512, 2, 0}, {256, 3, 10}, {128, 2, 100}},
			[]DistTimes{{99.161363, 78.660905, 0}, {150.738840, 40.486490, 0}, {103.921354, 26.280909, 0}}},
		{together(1, 2), []DistRequest{{512, 2, 0}, {256, 3, 10}, {128, 2, 100}},
			[]DistTimes{{102.161363, 46.655482, 0}, {123.437302, 29.847456, 0}, {55.522159, 26.774399, 0}}},
	} {
		m, ok := d.Machine("opt-13b", c.layout)
		if !ok {
			t.Fatalf("%v: not measured", c.layout)
		}
		var arrivals []float64
		for _, q := range c.requests {
			arrivals = append(arrivals, q.Gap)
		}
		got, err := m.Run(c.requests, arrivals)
		if err != nil {
			t.Fatal(err)
		}
		for i, want := range c.want {
			if want.Exit == 0 {
				want.Exit = got[i].Exit
			}
			if digits(got[i].TTFT, 6) != digits(want.TTFT, 6) || digits(got[i].TPOT, 6) != digits(want.TPOT, 6) ||
				digits(got[i].Exit, 6) != digits(want.Exit, 6) {
				t.Errorf("%v, %v: request %d: %.6f, want %.6f", c.layout, c.requests, i, got[i], want)
			}
		}
	}
}

func digits(v float64, n int) string { return strconv.FormatFloat(v, 'f', n, 64) }

// TestDistLimits: what would never be computed is refused, and what was not measured has no machine.
func TestDistLimits(t *testing.T) {
	t.Parallel()
	d, _ := distData(t)
	for model, l := range map[string]DistLayout{"opt-13b": split(1, 1, 5, 1), "opt-66b": together(1, 2),
		"opt-175b": split(8, 1, 8, 1)} {
		if _, ok := d.Machine(model, l); ok {
			t.Errorf("%s was not measured on %v", model, l)
		}
	}
	m, _ := d.Machine("opt-66b", split(2, 1, 2, 1))
	for _, q := range []DistRequest{{Prompt: 100}, {Prompt: 11601, Output: 1}, {Prompt: 11600, Output: 38401}} {
		if _, err := m.Run([]DistRequest{q}, []float64{0}); err == nil {
			t.Errorf("%+v was computed", q)
		}
	}
	if _, err := m.Run([]DistRequest{{Prompt: 11600, Output: 38400}}, []float64{0}); err != nil {
		t.Error(err)
	}
}

// TestDistPercentiles: with 9 of 100 requests late to their first token and 9 others to the next, each percentile is
// below its target.
func TestDistPercentiles(t *testing.T) {
	t.Parallel()
	list := make([]DistTimes, 100)
	for i := range 9 {
		list[i].TTFT, list[99-i].TPOT = 1000, 1000
	}
	f := DistTarget{200, 100}.Figures(list)
	if f.TTFT != 91 || f.TPOT != 91 || f.Both != 82 || f.P90TTFT >= 200 || f.P90TPOT >= 100 {
		t.Errorf("%+v", f)
	}
	list[50].TTFT = 1000
	if f := (DistTarget{200, 100}).Figures(list); math.Abs(f.P90TTFT-100) > 1e-9 {
		t.Errorf("with 10 late the percentile is %v, want a tenth of the way to 1000", f.P90TTFT)
	}
	if f := (DistTarget{200, 100}).Figures(list[:1]); f.P90TTFT != 1000 {
		t.Errorf("of one request: %+v", f)
	}
}

// TestDistRuns compares every digit of the published program's figures.
func TestDistRuns(t *testing.T) {
	t.Parallel()
	d, dir := distData(t)
	rows, err := ReadDistRuns(filepath.Join(dir, "expected", "runs.csv"))
	if err != nil || len(rows) != 120 {
		t.Fatalf("%d runs: %v", len(rows), err)
	}
	loads := map[string][]DistRequest{}
	for i := range rows {
		x := &rows[i]
		if loads[x.Workload] == nil {
			loads[x.Workload] = distLoad(t, dir, x.Workload)
		}
		got, err := x.Run(d, loads[x.Workload])
		if err != nil {
			t.Fatal(err)
		}
		if got != x.Published {
			t.Errorf("%s, %s, %v at %g/s: %+v, want %+v", x.Workload, x.Model, x.Layout, x.Rate, got, x.Published)
		}
	}
}

// TestDistSearch compares all candidates of the searches and their rates.
func TestDistSearch(t *testing.T) {
	t.Parallel()
	d, dir := distData(t)
	searches, err := ReadDistSearches(filepath.Join(dir, "expected", "search.csv"))
	if err != nil || len(searches) != 12 {
		t.Fatalf("%d searches: %v", len(searches), err)
	}
	measured, wanted := 0, 202
	if shared.Soak(true, false) { // package results compares what all of them find
		searches, wanted = searches[:1], 0
		for _, c := range searches[0].Published {
			if c.Measured {
				wanted++
			}
		}
	}
	for i := range searches {
		x := &searches[i]
		got, err := d.Search(x.Cluster, x.Model, x.Together, distLoad(t, dir, x.Workload), x.Target())
		if err != nil {
			t.Fatal(err)
		}
		if len(got) != len(x.Published) {
			t.Errorf("%v: %d candidates, want %d", x, len(got), len(x.Published))
			continue
		}
		for k, want := range x.Published {
			if got[k] != want {
				t.Errorf("%v: candidate %d is %+v, want %+v", x, k, got[k], want)
			}
			if want.Measured {
				measured++
			}
		}
		if best := DistBest(got); best != x.Best {
			t.Errorf("%v: candidate %d is the best, want %d", x, best, x.Best)
		}
	}
	if measured != wanted || wanted == 0 {
		t.Errorf("%d candidates were measured, want %d", measured, wanted)
	}
}

// BenchmarkDist plays the published runs, and the searches.
func BenchmarkDist(b *testing.B) {
	d, dir := distData(b)
	runs, err := ReadDistRuns(filepath.Join(dir, "expected", "runs.csv"))
	if err != nil {
		b.Fatal(err)
	}
	searches, err := ReadDistSearches(filepath.Join(dir, "expected", "search.csv"))
	if err != nil {
		b.Fatal(err)
	}
	loads := map[string][]DistRequest{}
	for _, name := range []string{"azconv300", "sharegpt300"} {
		loads[name] = distLoad(b, dir, name)
	}
	measure := func(b *testing.B, play func()) {
		from := shared.ProcessorTime(b)
		for range b.N {
			play()
		}
		b.ReportMetric((shared.ProcessorTime(b)-from).Seconds()*1000/float64(b.N), "cpu-ms")
	}
	b.Run(fmt.Sprintf("%d runs", len(runs)), func(b *testing.B) {
		measure(b, func() {
			for i := range runs {
				if _, err := runs[i].Run(d, loads[runs[i].Workload]); err != nil {
					b.Fatal(err)
				}
			}
		})
	})
	b.Run(fmt.Sprintf("%d searches", len(searches)), func(b *testing.B) {
		measure(b, func() {
			for i := range searches {
				x := &searches[i]
				if _, err := d.Search(x.Cluster, x.Model, x.Together, loads[x.Workload], x.Target()); err != nil {
					b.Fatal(err)
				}
			}
		})
	})
}

// TestDistOurs: an instance of ours with the published rules and step times gives each request the published times, up
// to the rounding of step times to nanoseconds, once decode steps there may have any context as well; and as they are,
// where all requests together stay below that bound.
func TestDistOurs(t *testing.T) {
	t.Parallel()
	d, dir := distData(t)
	rows, err := ReadDistRuns(filepath.Join(dir, "expected", "runs.csv"))
	if err != nil {
		t.Fatal(err)
	}
	compared, same := 0, 0
	for i := range rows {
		x := &rows[i]
		m, ok := d.Machine(x.Model, x.Layout)
		if !ok {
			t.Fatalf("%v: not measured", x.Layout)
		}
		o, ok := m.Ours()
		if !ok {
			continue
		}
		load := distLoad(t, dir, x.Workload)
		arrivals := DistArrivals(load, x.Rate)
		ours, err := o.Run(load, arrivals)
		if err != nil {
			t.Fatal(err)
		}
		for _, bound := range []int{distContext, math.MaxInt} {
			m.context = bound
			theirs, err := m.Run(load, arrivals)
			if err != nil {
				t.Fatal(err)
			}
			off := 0.0
			for k := range ours {
				off = max(off, math.Abs(ours[k].TTFT-theirs[k].TTFT), math.Abs(ours[k].TPOT-theirs[k].TPOT))
			}
			switch {
			case bound < math.MaxInt && off < 1e-3:
				same++
			case bound == math.MaxInt && off > 1e-3:
				t.Errorf("%s, %s, %v at %g/s: %g ms apart", x.Workload, x.Model, x.Layout, x.Rate, off)
			}
		}
		compared++
	}
	if compared != 34 || same != 20 {
		t.Errorf("%d runs were compared, and %d are equal with the bound: want 34 and 20", compared, same)
	}
}

// TestDistRoofline: of our engine with its own step times, more GPUs serve a request sooner, and there is none where
// the weights do not fit or heads cannot be divided.
func TestDistRoofline(t *testing.T) {
	t.Parallel()
	last := math.Inf(1)
	for _, tp := range []int{1, 2, 4, 8} {
		o, ok := NewDistOurs("opt-13b", tp, 512)
		if !ok {
			t.Fatalf("no instance on %d GPUs", tp)
		}
		got, err := o.Run([]DistRequest{{Prompt: 1000, Output: 100}}, []float64{5})
		if err != nil {
			t.Fatal(err)
		}
		if q := got[0]; q.TTFT >= last || q.TPOT <= 0 || math.Abs(q.TTFT+99*q.TPOT+5-q.Exit) > 1e-9 {
			t.Errorf("on %d GPUs: %+v", tp, q)
		}
		last = got[0].TTFT
	}
	for _, c := range []struct {
		model string
		tp    int
	}{{"opt-66b", 1}, {"opt-66b", 5}, {"opt-13b", 3}} {
		if _, ok := NewDistOurs(c.model, c.tp, 0); ok {
			t.Errorf("%s runs on %d GPUs", c.model, c.tp)
		}
	}
	o, _ := NewDistOurs("opt-66b", 2, 0)
	if _, err := o.Run([]DistRequest{{Prompt: 100_000, Output: 1}}, []float64{0}); err == nil {
		t.Error("a prompt beyond the KV memory was computed")
	}
}
