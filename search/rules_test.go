package search

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"
)

// twinOver counts the trials that are over, by the definition.
func twinOver(s *Search) (n int) {
	b := &s.brackets[0]
	over := func(t int) bool {
		for k := range s.cells[t] {
			switch s.cells[t][k].state {
			case failed:
				return true
			case open:
				return b.members[k] != nil && !slices.Contains(b.members[k], t)
			case running:
				return false
			case reported:
			}
		}
		return true
	}
	for t := range s.cells {
		if over(t) {
			n++
		}
	}
	return n
}

// twinRunning counts the running runs.
func twinRunning(s *Search) (n int) {
	for t := range s.cells {
		for k := range s.cells[t] {
			if s.cells[t][k].state == running {
				n++
			}
		}
		if s.target[t].state == running {
			n++
		}
	}
	return n
}

// twinStart is the first member or group of a bracket that is still to be started.
func twinStart(s *Search, b *bracket) (trial, rung int) {
	for k := range b.Rungs {
		if b.members[k] == nil {
			break
		}
		for _, g := range b.groups[k] {
			if c := &s.cells[b.members[k][g.from]][k]; c.state == open && !c.alone && g.to > g.from+1 {
				return b.members[k][g.from], k
			}
		}
		for _, t := range b.members[k] {
			if s.cells[t][k].state == open {
				return t, k
			}
		}
	}
	return -1, -1
}

// checkTwins compares the incremental counts with counts over every trial.
func checkTwins(t *testing.T, s *Search) {
	t.Helper()
	if s.m.Name == Hydro {
		if s.candidate(); s.over != twinOver(s) {
			t.Fatalf("%d trials are over, counted again %d", s.over, twinOver(s))
		}
	}
	if n := twinRunning(s); n != s.running {
		t.Fatalf("%d run, counted again %d", s.running, n)
	}
	if s.m.Name == ASHA {
		return
	}
	for i := range s.brackets {
		b := &s.brackets[i]
		d, ok := s.nextHalving(b)
		if trial, rung := twinStart(s, b); ok != (trial >= 0) || ok && (d.Trials[0] != trial || d.Rung != rung) {
			t.Fatalf("bracket %d: next is %+v, by looking at all trial %d, rung %d", i, d, trial, rung)
		}
	}
}

// A trial that passes two marks, or all, before anything is decided is stopped all the same, and its reports
// after the mark at which it was to leave do not count.
func TestStopsLate(t *testing.T) {
	s := begin(t, Method{Name: ASHA, Trials: 27, Min: 1, Max: 27, Eta: 3, Stopping: true})
	step(t, s, 4)
	passed := func(trial int, metrics ...float64) (evs []Event) {
		for k, v := range metrics {
			evs = append(evs, Event{Type: Reported, Trial: trial, Rung: k, Metric: v})
		}
		return evs
	}
	if d := step(t, s, 0, passed(0, 1, 1)...); len(d) != 0 {
		t.Fatalf("the first one stays: %+v", d)
	}
	d := step(t, s, 0, passed(1, 5, 0.5)...)
	if len(d) != 1 || d[0].Type != Stop || d[0].Trials[0] != 1 || d[0].Rung != 0 {
		t.Fatalf("trial 1 is the worse of two: %+v", d)
	}
	if d = step(t, s, 0, Event{Type: Reported, Trial: 1, Rung: 2, Metric: 0.1}); len(d) != 0 ||
		len(s.brackets[0].ranked[1]) != 1 || len(s.brackets[0].ranked[2]) != 0 {
		t.Errorf("%+v; what a trial that is to leave reports later counts: %v", d, s.brackets[0].ranked)
	}
	if d = step(t, s, 0, passed(2, 6, 6, 6, 6)...); len(d) != 0 {
		t.Errorf("it has ended by itself: %+v", d)
	}
	if d = step(t, s, 0, append(passed(3, 7, 7), Event{Type: Failed, Trial: 3, Rung: 2})...); len(d) != 0 {
		t.Errorf("it has been stopped by a tuner before: %+v", d)
	}
	step(t, s, 0, passed(0, 1, 1, 1, 1)...)
	if r, ok := s.Best(); !ok || r.Trial != 0 || r.Rung != 3 {
		t.Errorf("%+v", r)
	}
	if s.running != 0 {
		t.Errorf("%d run", s.running)
	}
}

// Trials that run on do so to the last budget, however few they are and whether or not it is a rung; others are
// promoted as far as their number allows.
func TestReached(t *testing.T) {
	for _, c := range []struct {
		m    Method
		want []Rung
	}{
		{Method{Name: ASHA, Trials: 4, Min: 1, Max: 81, Eta: 3, Stopping: true},
			[]Rung{{4, 1}, {1, 3}, {1, 9}, {1, 27}, {1, 81}}},
		{Method{Name: ASHA, Trials: 9, Min: 1, Max: 20, Eta: 3, Stopping: true},
			[]Rung{{9, 1}, {3, 3}, {1, 9}, {1, 20}}},
		{Method{Name: ASHA, Trials: 64, Min: 1, Max: 81, Eta: 3}, []Rung{{64, 1}, {21, 3}, {7, 9}, {2, 27}}},
		{Method{Name: Halving, Trials: 9, Min: 1, Max: 8, Eta: 3}, []Rung{{9, 1}, {3, 3}}},
		{Method{Name: Halving, Trials: 81, Min: 1, Max: 81, Eta: 3},
			[]Rung{{81, 1}, {27, 3}, {9, 9}, {3, 27}, {1, 81}}},
	} {
		s := begin(t, c.m)
		if got := s.Brackets()[0].Rungs; !slices.Equal(got, c.want) || c.m.Reached() != c.want[len(c.want)-1].Budget {
			t.Errorf("%+v: %v, to %d", c.m, got, c.m.Reached())
		}
		if d := step(t, s, 1); c.m.Stopping && (d[0].Budget != c.m.Max || len(d[0].Marks) != len(c.want)) {
			t.Errorf("%+v", d[0])
		}
	}
}

// threeRungs is a search of nine narrow models whose first rung is over.
func threeRungs(t *testing.T) *Search {
	s := begin(t, Method{Name: Hydro, Trials: 9, Min: 1, Max: 11, Eta: 3, Scale: 8, Eager: 500})
	step(t, s, 9)
	var evs []Event
	for i := range 9 {
		evs = append(evs, Event{Type: Reported, Trial: i, Metric: float64(10 + i)})
	}
	if d := step(t, s, 9, evs...); !d[0].Target || d[0].Trials[0] != 0 {
		t.Fatalf("%+v", d)
	}
	return s
}

// The result of a search of narrow models is the best of all full-size runs that reported at the whole budget:
// neither the one that began last, nor a narrow one.
func TestHydroResult(t *testing.T) {
	s := threeRungs(t)
	first := Result{Trial: 0, Rung: 2, Budget: 11, Metric: 1, Target: true}
	step(t, s, 9, Event{Type: Reported, Trial: 0, Rung: 2, Metric: 1, Target: true})
	if r, _ := s.Best(); r != first {
		t.Errorf("%+v", r)
	}
	d := step(t, s, 9, Event{Type: Reported, Trial: 0, Rung: 1, Metric: 9},
		Event{Type: Reported, Trial: 1, Rung: 1, Metric: 8}, Event{Type: Reported, Trial: 2, Rung: 1, Metric: 0.5})
	if !d[0].Target || d[0].Trials[0] != 2 {
		t.Fatalf("%+v", d)
	}
	for _, ev := range []Event{{Type: Reported, Trial: 2, Rung: 2, Metric: 0.25},
		{Type: Reported, Trial: 2, Rung: 2, Metric: 3, Target: true}} {
		if r, _ := s.Best(); r != first {
			t.Errorf("%+v", r)
		}
		step(t, s, 9, ev)
	}
	if r, _ := s.Best(); r != first || !s.Done() {
		t.Errorf("%+v", r)
	}
}

// A full-size run that a person cancels does not start again; one that the search stopped may. A tuner that
// replays the past can tell which it was.
func TestHydroCancelled(t *testing.T) {
	s := threeRungs(t)
	left := Event{Type: Left, Trial: 0, Rung: 2, Target: true}
	if d := step(t, s, 9, left); len(d) != 0 || s.target[0].state != failed {
		t.Errorf("a person cancelled it: %+v", d)
	}
	rung := []Event{{Type: Reported, Trial: 0, Rung: 1, Metric: 2}, {Type: Reported, Trial: 1, Rung: 1, Metric: 1},
		{Type: Reported, Trial: 2, Rung: 1, Metric: 3}}
	again := threeRungs(t)
	step(t, again, 0, append(rung, left)...)
	if again.target[0].state != open {
		t.Error("the search had stopped it: it may continue")
	}
}

// BenchmarkMethods plays whole searches of 10,000 trials on 500 workers; an
// operation is one report with the decision that follows.
func BenchmarkMethods(b *testing.B) {
	for _, c := range []struct {
		name string
		m    Method
	}{
		{"halving", Method{Name: Halving, Trials: 10_000, Min: 1, Max: 81, Eta: 3}},
		{"stopping", Method{Name: ASHA, Trials: 10_000, Min: 1, Max: 81, Eta: 3, Stopping: true}},
		{"hydro", Method{Name: Hydro, Trials: 10_000, Min: 1, Max: 81, Eta: 3, Scale: 8, Eager: 500}},
		{"hydro-fused", Method{Name: Hydro, Trials: 10_000, Min: 1, Max: 81, Eta: 3, Scale: 8, Eager: 500,
			Fusion: []int{7}}},
	} {
		b.Run(c.name, func(b *testing.B) {
			w := &workers{m: c.m}
			for b.Loop() {
				w.report(b)
			}
		})
	}
}

// workers play searches one after the other.
type workers struct {
	m     Method
	s     *Search
	r     *rand.Rand
	live  []Decision
	marks map[int]int
}

// report lets a running run report, and carries out what follows.
func (w *workers) report(t testing.TB) {
	if len(w.live) == 0 {
		w.s, _ = New(w.m)
		w.r, w.marks = rand.New(rand.NewPCG(1, 2)), map[int]int{}
		w.live, _ = w.s.Step(nil, 500)
	}
	i := w.r.IntN(len(w.live))
	d := w.live[i]
	var evs []Event
	for _, trial := range d.Trials {
		evs = append(evs, Event{Type: Reported, Trial: trial, Rung: d.Rung + w.marks[d.Trials[0]],
			Metric: w.r.Float64(), Target: d.Target})
	}
	if w.m.Stopping && w.marks[d.Trials[0]] < len(d.Marks)-1 {
		w.marks[d.Trials[0]]++
	} else {
		w.live = slices.Delete(w.live, i, i+1)
	}
	list, err := w.s.Step(evs, 0)
	if err != nil {
		t.Fatal(err)
	}
	for _, d := range list {
		w.live = slices.DeleteFunc(w.live, func(x Decision) bool {
			return x.Target == d.Target && x.Trials[0] == d.Trials[0]
		})
	}
	if list, err = w.s.Step(nil, 500-len(w.live)); err != nil {
		t.Fatal(err)
	}
	w.live = append(w.live, list...)
}

// quantileOf is the interpolated quantile of ascending numbers, by the definition of the rule.
func quantileOf(list []float64, eta int64) float64 {
	at := float64(len(list)-1) / float64(eta)
	low := int(math.Floor(at))
	if at == math.Trunc(at) {
		return list[low]
	}
	return list[low] + (list[low+1]-list[low])*(at-math.Trunc(at))
}

// The stopping rule's quantile, read in place among trials that include failed ones, is that of the list of
// reported metrics.
func TestQuantile(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	for _, eta := range []int64{2, 3, 5} {
		s := begin(t, Method{Name: ASHA, Trials: 300, Min: 1, Max: 9, Eta: eta, Stopping: true})
		step(t, s, 300)
		var before []float64
		for trial := range 300 {
			ev := Event{Type: Reported, Trial: trial, Metric: math.Round(r.Float64() * 50)}
			switch r.IntN(10) {
			case 0:
				ev.Type = Failed
			case 1:
				ev.Metric = math.NaN()
			}
			step(t, s, 0, ev)
			if ev.Type == Failed {
				continue
			}
			own := ev.Metric
			if math.IsNaN(own) {
				own = math.Inf(1)
			}
			if n := len(before); n > 0 {
				got, want := s.quantile(&s.brackets[0], trial, 0, n), quantileOf(before, eta)
				if math.Abs(got-want) > 1e-9 && !math.IsNaN(got) && !math.IsNaN(want) ||
					math.IsNaN(got) != math.IsNaN(want) {
					t.Fatalf("eta %d, trial %d: %g, want %g", eta, trial, got, want)
				}
			}
			i, _ := slices.BinarySearch(before, own)
			before = slices.Insert(before, i, own)
		}
	}
}
