package tune

import (
	"math"
	"testing"
	"time"

	"github.com/muster-gpu/muster/report"
)

// One week in which a candidate happens to do well does not make it the choice: among candidates
// that resampling cannot distinguish, the one that is closest to the best week by week is chosen.
func TestChooseByWeeks(t *testing.T) {
	h := time.Hour
	at := []time.Duration{0, week, 2 * week, 3 * week, 4 * week, 5 * week}
	force := history(at, []time.Duration{400 * h, 9 * h, 9 * h, 9 * h, 9 * h, 9 * h})
	lucky := history(at, []time.Duration{20 * h, 3 * h, 3 * h, 3 * h, 3 * h, 3 * h}) // 41 h in all
	// 51 h in all, and half of the other's JCT in five of six weeks
	steady := history(at, []time.Duration{40 * h, h, h, h, h, h})
	// beats lucky in all weeks but one
	surely := history(at, []time.Duration{10 * h, 2 * h, 2 * h, 2 * h, 2 * h, 3 * h})
	for _, c := range []struct {
		name   string
		runs   []report.Run
		winner int
		least  int
	}{
		{"may be chance", []report.Run{force, lucky, steady}, 2, 1},
		{"is not", []report.Run{force, lucky, surely}, 2, 2},
		{"in force among equals", []report.Run{steady, steady, lucky}, 0, 2},
	} {
		r, err := Choose([]string{"a", "b", "c"}, c.runs, 0,
			Options{Objective: objective(t, "mean-jct"), Resamples: 200})
		if err != nil {
			t.Fatal(err)
		}
		if got := r.Rows[r.Winner].run; got != c.winner {
			t.Errorf("%s: chose %d; want %d", c.name, got, c.winner)
		}
		if got := r.Rows[r.Least].run; got != c.least {
			t.Errorf("%s: least cost %d; want %d", c.name, got, c.least)
		}
	}
}

// Each week is left out once and scored with the choice made on the other weeks.
func TestLeaveOut(t *testing.T) {
	h := time.Hour
	at := []time.Duration{0, week, 2 * week, 3 * week}
	runs := []report.Run{
		history(at, []time.Duration{9 * h, 9 * h, 9 * h, 9 * h}),
		history(at, []time.Duration{h, h, h, 6 * h}), // chosen when one of the first three weeks is left out
		history(at, []time.Duration{5 * h, 5 * h, 5 * h, h}),
	}
	r, err := Choose([]string{"force", "most", "last"}, runs, 0,
		Options{Objective: objective(t, "mean-jct"), Holdout: true})
	if err != nil {
		t.Fatal(err)
	}
	// Without week 4 "most" is chosen; without another one "most" has 1+1+6 and "last" 5+5+1.
	want := LeftOut{Cost: (1 + 1 + 1 + 6 + 4) * 900, Current: 36000, Best: "most", Least: (1 + 1 + 1 + 6 + 4) * 900}
	if l := r.LeftOut; l == nil || math.Abs(l.Cost-want.Cost) > 1e-9 || math.Abs(l.Current-want.Current) > 1e-9 ||
		l.Best != want.Best || math.Abs(l.Least-want.Least) > 1e-9 {
		t.Errorf("%+v; want %+v", l, want)
	}
	runs[1] = history(at, []time.Duration{h, h, h, 20 * h}) // now "most" is chosen only for the week in which it is bad
	if r, err = Choose([]string{"force", "most", "last"}, runs, 0,
		Options{Objective: objective(t, "mean-jct"), Holdout: true}); err != nil {
		t.Fatal(err)
	}
	if l := r.LeftOut; l.Best != "last" || math.Abs(l.Cost-float64(6+6+6+21)*900) > 1e-9 ||
		math.Abs(l.Behind-(39.0/20-1)) > 1e-9 {
		t.Errorf("%+v", l)
	}
}

// Results from other histories favour gittins where these weeks say little: a tenth in six more
// weeks. They do not where the weeks say more, for another objective, or against a candidate that
// uses what is stated of jobs.
func TestProven(t *testing.T) {
	h := time.Hour
	at := []time.Duration{0, week, 2 * week, 3 * week}
	force := history(at, []time.Duration{40 * h, 40 * h, 40 * h, 40 * h})
	gittins := history(at, []time.Duration{11 * h, 11 * h, 11 * h, 11 * h})
	// less in total, and slightly less week by week
	nearly := history(at, []time.Duration{23 * h / 2, 23 * h / 2, 8 * h, 12 * h})
	much := history(at, []time.Duration{9 * h, 9 * h, 2 * h, 14 * h}) // much less
	for _, c := range []struct {
		name      string
		objective string
		other     report.Run
		winner    int
		others    bool
	}{
		{"las", "mean-jct", nearly, 1, true},
		{"las", "mean-jct", much, 2, false},
		{"las", "weighted:mean-jct=1,p95-wait=0.01", nearly, 2, false},
		{"srtf", "mean-jct", nearly, 2, false},
	} {
		r, err := Choose([]string{"fifo", "gittins", c.name}, []report.Run{force, gittins, c.other}, 0,
			Options{Objective: objective(t, c.objective), Resamples: 200})
		if err != nil {
			t.Fatal(err)
		}
		if got := r.Rows[r.Winner].run; got != c.winner || r.Others != c.others {
			t.Errorf("%s by %s: chose %d, other histories %t; want %d, %t", c.name, c.objective, got, r.Others,
				c.winner, c.others)
		}
	}
}
