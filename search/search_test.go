package search

import (
	"fmt"
	"math"
	"math/rand/v2"
	"reflect"
	"slices"
	"testing"
)

// Integer logarithms are exact where floating-point ones are slightly less.
func TestLog(t *testing.T) {
	for _, c := range []struct {
		n, base int64
		want    int
	}{{1, 3, 0}, {2, 3, 0}, {3, 3, 1}, {80, 3, 3}, {81, 3, 4}, {82, 3, 4}, {243, 3, 5}, {1 << 40, 2, 40},
		{math.MaxInt64, 2, 62}, {1000, 10, 3}, {999, 10, 2}, {125, 5, 3}} {
		if got := Log(c.n, c.base); got != c.want {
			t.Errorf("log %d of %d: %d, want %d", c.base, c.n, got, c.want)
		}
	}
}

// Hyperband with R=81, eta=3 has the brackets of the paper's table.
func TestHyperbandBrackets(t *testing.T) {
	m := Method{Name: Band, Min: 1, Max: 81, Eta: 3}
	want := [][]Rung{{{81, 1}, {27, 3}, {9, 9}, {3, 27}, {1, 81}}, {{34, 3}, {11, 9}, {3, 27}, {1, 81}},
		{{15, 9}, {5, 27}, {1, 81}}, {{8, 27}, {2, 81}}, {{5, 81}}}
	plan := m.Plan()
	if len(plan) != len(want) {
		t.Fatalf("%d brackets", len(plan))
	}
	first := 0
	for i := range plan {
		if !reflect.DeepEqual(plan[i].Rungs, want[i]) || plan[i].First != first {
			t.Errorf("bracket %d: %+v, want %v from %d", i, plan[i], want[i], first)
		}
		first += plan[i].Trials()
	}
}

// A bracket's budget is (s_max+1)*R, plus what rounding n up adds: less than one more trial at the bottom, which
// is R*eta^-s in each of the s+1 rungs.
func TestHyperbandBudget(t *testing.T) {
	for eta := int64(2); eta <= 5; eta++ {
		for r := int64(1); r <= 400; r++ {
			m := Method{Name: Band, Min: 1, Max: r, Eta: eta}
			top := int64(Log(r, eta))
			for s, b := range m.Plan() {
				n := len(b.Rungs)
				most := (top+1)*r + int64(n)*r/power(eta, n-1)
				if got := b.Paid(true); got > most || b.Paid(false) > got {
					t.Errorf("eta %d, R %d, bracket %d: %d steps, at most %d", eta, r, s, got, most)
				}
				if b.Rungs[len(b.Rungs)-1].Budget != r {
					t.Errorf("eta %d, R %d: a bracket ends at %d", eta, r, b.Rungs[len(b.Rungs)-1].Budget)
				}
			}
		}
	}
}

func begin(t *testing.T, m Method) *Search {
	t.Helper()
	s, err := New(m)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func step(t *testing.T, s *Search, free int, events ...Event) []Decision {
	t.Helper()
	list, err := s.Step(events, free)
	if err != nil {
		t.Fatal(err)
	}
	return list
}

// Losses 5, 3, 4, 1 with eta 3: after three finishes 3 is promoted, after the fourth 1, because the first of
// four is another one now. Rung 1 has two.
func TestASHAPromotes(t *testing.T) {
	s := begin(t, Method{Name: ASHA, Trials: 9, Min: 1, Max: 9, Eta: 3})
	if got := step(t, s, 4); len(got) != 4 || got[3].Trials[0] != 3 || got[0].Budget != 1 {
		t.Fatalf("%+v", got)
	}
	for i, loss := range []float64{5, 3} {
		if d := step(t, s, 1, Event{Type: Reported, Trial: i, Metric: loss}); d[0].Rung != 0 {
			t.Errorf("after %d finishes: %+v", i+1, d)
		}
	}
	if d := step(t, s, 1, Event{Type: Reported, Trial: 2, Metric: 4}); d[0].Trials[0] != 1 || d[0].Rung != 1 ||
		d[0].From != 1 || d[0].Budget != 3 {
		t.Errorf("after three: %+v", d)
	}
	if d := step(t, s, 1, Event{Type: Reported, Trial: 3, Metric: 1}); d[0].Trials[0] != 3 || d[0].Rung != 1 {
		t.Errorf("after four: %+v", d)
	}
	if d := step(t, s, 1); d[0].Rung != 0 {
		t.Errorf("no other trial is to be promoted: %+v", d)
	}
}

// s leaves out the lowest rungs.
func TestASHASkips(t *testing.T) {
	s := begin(t, Method{Name: ASHA, Trials: 9, Min: 1, Max: 9, Eta: 3, Skip: 1})
	if b := s.Brackets(); !reflect.DeepEqual(b[0].Rungs, []Rung{{9, 3}, {3, 9}}) {
		t.Errorf("%+v", b)
	}
}

// Ray's rule with eta 2: the first trial stays; a trial that is worse than the median of those before is
// stopped, at each rung.
func TestASHAStops(t *testing.T) {
	s := begin(t, Method{Name: ASHA, Trials: 4, Min: 1, Max: 4, Eta: 2, Stopping: true})
	d := step(t, s, 4)
	if len(d) != 4 || d[0].Budget != 4 || !reflect.DeepEqual(d[0].Marks, []int64{1, 2, 4}) {
		t.Fatalf("%+v", d)
	}
	stopped := []int{}
	for i, loss := range []float64{2, 3, 1, 2.5} { // medians before: none, 2, 2.5, 2
		for _, d := range step(t, s, 0, Event{Type: Reported, Trial: i, Metric: loss}) {
			stopped = append(stopped, d.Trials...)
		}
	}
	if !slices.Equal(stopped, []int{1, 3}) {
		t.Errorf("stopped: %v", stopped)
	}
	step(t, s, 0, Event{Type: Failed, Trial: 1, Rung: 1}, Event{Type: Failed, Trial: 3, Rung: 1})
	if s.Done() {
		t.Error("two trials run")
	}
	if d := step(t, s, 0, Event{Type: Reported, Trial: 0, Rung: 1, Metric: 1.5},
		Event{Type: Reported, Trial: 2, Rung: 1, Metric: math.NaN()}); len(d) != 1 || d[0].Trials[0] != 2 {
		t.Errorf("a diverged trial continues: %+v", d)
	}
	step(t, s, 0, Event{Type: Reported, Trial: 0, Rung: 2, Metric: 1})
	if r, ok := s.Best(); !s.Done() || !ok || r != (Result{Trial: 0, Rung: 2, Budget: 4, Metric: 1}) {
		t.Errorf("done %v, best %+v", s.Done(), r)
	}
}

// The memory of Hydro's example: 24, 6 for one and 8.5 for two gives 7 in one process, and 20 trials are 7, 7
// and 6. A width of 512 by 8 is 64.
func TestFusion(t *testing.T) {
	n, err := FuseSize(2400, 600, 850)
	if err != nil || n != 7 || fuseMemory(7, 600, 850) > 2400 {
		t.Errorf("%d, %v, %d", n, err, fuseMemory(7, 600, 850))
	}
	if got := Even(20, 7); !slices.Equal(got, []int{7, 7, 6}) {
		t.Errorf("%v", got)
	}
	if w, err := Narrow(512, 8); err != nil || w != 64 {
		t.Errorf("%d, %v", w, err)
	}
	if _, err := Narrow(100, 8); err == nil {
		t.Error("100 by 8")
	}
	for memory := int64(1); memory < 60; memory++ {
		for one := int64(1); one <= memory; one++ {
			for two := one + 1; two < 2*one+3; two++ {
				if n, err := FuseSize(memory, one, two); err != nil || fuseMemory(n, one, two) > memory {
					t.Fatalf("%d trials of %d, %d in %d: %v", n, one, two, memory, err)
				}
			}
		}
	}
	for n := 1; n < 50; n++ {
		for most := 1; most < 10; most++ {
			sizes, sum := Even(n, most), 0
			for _, k := range sizes {
				if sum += k; k > most || k < 1 || sizes[0]-k > 1 || k > sizes[0] {
					t.Fatalf("%d by %d: %v", n, most, sizes)
				}
			}
			if sum != n || len(sizes) != (n+most-1)/most {
				t.Fatalf("%d by %d: %v", n, most, sizes)
			}
		}
	}
}

// Fused groups are of one shape, formed again at each rung; the best of enough trials starts at full size, and
// gives way to a better one.
func TestHydro(t *testing.T) {
	s := begin(t, Method{Name: Hydro, Trials: 9, Min: 1, Max: 9, Eta: 3, Scale: 8, Eager: 500, Fusion: []int{3, 2},
		Group: func(t int) int { return t % 2 }})
	d := step(t, s, 99)
	var groups []string
	for _, x := range d {
		groups = append(groups, fmt.Sprint(x.Trials))
	}
	if want := []string{"[0 2 4]", "[6 8]", "[1 3]", "[5 7]"}; !slices.Equal(groups, want) {
		t.Errorf("%v, want %v", groups, want)
	}
	var evs []Event
	for i := range 9 {
		evs = append(evs, Event{Type: Reported, Trial: i, Metric: float64(i)})
	}
	d = step(t, s, 99, evs...)
	if len(d) != 3 || !d[0].Target || d[0].Trials[0] != 0 || d[0].Budget != 9 || d[0].From != 0 {
		t.Fatalf("six of nine are over, and the best is 0: %+v", d)
	}
	if !slices.Equal(d[1].Trials, []int{0, 2}) || d[1].From != 1 || d[1].Budget != 3 ||
		!slices.Equal(d[2].Trials, []int{1}) {
		t.Errorf("rung 1: %+v", d[1:])
	}
	d = step(t, s, 99, Event{Type: Reported, Trial: 0, Rung: 1, Metric: 0.5},
		Event{Type: Reported, Trial: 2, Rung: 1, Metric: 0.1}, Event{Type: Reported, Trial: 1, Rung: 1, Metric: 0.4})
	if len(d) != 3 || d[0].Type != Stop || !d[0].Target || d[0].Trials[0] != 0 || d[1].Type != Start || !d[1].Target ||
		d[1].Trials[0] != 2 || d[2].Rung != 2 {
		t.Fatalf("trial 2 has overtaken 0: %+v", d)
	}
	step(t, s, 0, Event{Type: Reported, Trial: 2, Rung: 2, Metric: 0.01})
	if s.Done() {
		t.Error("the full-size run continues")
	}
	step(t, s, 0, Event{Type: Reported, Trial: 2, Rung: 2, Metric: 0.3, Target: true})
	if r, ok := s.Best(); !s.Done() || !ok || !r.Target || r.Metric != 0.3 {
		t.Errorf("done %v, best %+v", s.Done(), r)
	}
}

// An overtaken full-size run continues when its trial is the best again; the first trial to finish a rung is not
// its best before the others have finished.
func TestHydroAgain(t *testing.T) {
	s := begin(t, Method{Name: Hydro, Trials: 8, Min: 1, Max: 4, Eta: 2, Scale: 2, Eager: 500})
	step(t, s, 99)
	var evs []Event
	for i := range 8 {
		evs = append(evs, Event{Type: Reported, Trial: i, Metric: float64(i)})
	}
	aims := func(list []Decision) (text string) {
		for _, d := range list {
			if d.Target {
				text += fmt.Sprint(map[DecisionType]string{Start: "+", Stop: "-"}[d.Type], d.Trials[0], " ")
			}
		}
		return text
	}
	var got []string
	got = append(got, aims(step(t, s, 99, evs...)))
	got = append(got, aims(step(t, s, 99, Event{Type: Reported, Trial: 3, Rung: 1, Metric: 3})))
	got = append(got, aims(
		step(t, s, 99, Event{Type: Reported, Trial: 0, Rung: 1, Metric: 2},
			Event{Type: Reported, Trial: 1, Rung: 1, Metric: 1}, Event{Type: Reported, Trial: 2, Rung: 1, Metric: 4})))
	got = append(got, aims(
		step(t, s, 99, Event{Type: Left, Trial: 0, Rung: 2, Target: true},
			Event{Type: Reported, Trial: 0, Rung: 2, Metric: 1}, Event{Type: Reported, Trial: 1, Rung: 2, Metric: 2})))
	if want := []string{"+0 ", "", "-0 +1 ", "-1 +0 "}; !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
	step(t, s, 0, Event{Type: Left, Trial: 1, Rung: 2, Target: true},
		Event{Type: Reported, Trial: 0, Rung: 2, Metric: 0.5, Target: true})
	if r, ok := s.Best(); !ok || !s.Done() || !r.Target || r.Trial != 0 {
		t.Errorf("done %v, %+v", s.Done(), r)
	}
}

// The trials of a failed group run again alone, once.
func TestHydroAlone(t *testing.T) {
	s := begin(t, Method{Name: Hydro, Trials: 4, Min: 1, Max: 2, Eta: 2, Scale: 1, Eager: 1000, Fusion: []int{2}})
	if d := step(t, s, 9); len(d) != 2 {
		t.Fatalf("%+v", d)
	}
	d := step(t, s, 9, Event{Type: Failed, Trial: 0, Fused: true}, Event{Type: Failed, Trial: 1, Fused: true})
	if len(d) != 2 || !slices.Equal(d[0].Trials, []int{0}) || !slices.Equal(d[1].Trials, []int{1}) {
		t.Fatalf("%+v", d)
	}
	d = step(t, s, 9, Event{Type: Failed, Trial: 0}, Event{Type: Reported, Trial: 1, Metric: 1},
		Event{Type: Reported, Trial: 2, Metric: 3}, Event{Type: Reported, Trial: 3, Metric: 2})
	if len(d) != 1 || !slices.Equal(d[0].Trials, []int{1, 3}) || d[0].From != 1 {
		t.Fatalf("%+v", d)
	}
}

// methods are the methods to play.
func methods() []Method {
	return []Method{
		{Name: Random, Trials: 7, Max: 5},
		{Name: Halving, Trials: 30, Min: 1, Max: 27, Eta: 3},
		{Name: Halving, Trials: 5, Min: 2, Max: 100, Eta: 2},
		{Name: Band, Min: 1, Max: 27, Eta: 3},
		{Name: ASHA, Trials: 40, Min: 1, Max: 27, Eta: 3},
		{Name: ASHA, Trials: 40, Min: 1, Max: 16, Eta: 2, Skip: 1},
		{Name: ASHA, Trials: 40, Min: 1, Max: 27, Eta: 3, Stopping: true},
		{Name: Hydro, Trials: 30, Min: 1, Max: 9, Eta: 3, Scale: 8, Eager: 500, Fusion: []int{4, 3},
			Group: func(t int) int { return t % 2 }},
		{Name: Hydro, Trials: 20, Min: 4, Max: 4, Eta: 3, Scale: 1, Eager: 1000, Fusion: []int{7}},
	}
}

// player runs a search on this many workers, with random losses and failures.
type player struct {
	t        *testing.T
	s        *Search
	m        Method
	r        *rand.Rand
	live     []Decision
	marks    map[int]int // stopping: rungs that a trial has reported
	past     []Event
	begun    map[string]int
	finished map[int]int   // by rung, asha
	paid     map[int]int64 // by bracket
	broken   bool          // a group failed
}

func (p *player) note(ev Event) { p.past = append(p.past, ev) }

// decided checks decisions.
func (p *player) decided(list []Decision) {
	promoted := map[int]int{}
	for _, d := range list {
		if d.Type == Stop {
			p.live = slices.DeleteFunc(p.live, func(x Decision) bool {
				return x.Target == d.Target && slices.Equal(x.Trials, d.Trials)
			})
			if d.Target {
				p.note(Event{Type: Left, Trial: d.Trials[0], Rung: d.Rung, Target: true})
			} else {
				p.note(Event{Type: Failed, Trial: d.Trials[0], Rung: p.marks[d.Trials[0]]})
			}
			continue
		}
		p.live = append(p.live, d)
		for _, t := range d.Trials {
			key := fmt.Sprint(t, d.Rung, d.Target, len(d.Trials) > 1)
			if p.begun[key]++; p.begun[key] > 1 && !d.Target {
				p.t.Fatalf("%s began twice", key)
			}
			p.note(Event{Type: Started, Trial: t, Rung: d.Rung, Target: d.Target})
			if !d.Target {
				p.paid[d.Bracket] += d.Budget - d.From
			}
		}
		if n := len(d.Trials); n > 1 && (p.m.Fusion == nil || n > p.m.Fusion[p.m.group(d.Trials[0])]) {
			p.t.Fatalf("%d trials in a process", n)
		}
		if p.m.Name == ASHA && d.Rung > 0 {
			k := d.Rung - 1
			if promoted[k]++; promoted[k] > p.finished[k]/int(p.m.Eta) {
				p.t.Fatalf("%d promoted at once, %d finished", promoted[k], p.finished[k])
			}
		}
	}
}

func (m *Method) group(t int) int {
	if m.Group == nil {
		return 0
	}
	return m.Group(t)
}

// happen produces the outcome of one running run.
func (p *player) happen() []Event {
	i := p.r.IntN(len(p.live))
	d := p.live[i]
	var evs []Event
	if p.m.Stopping {
		t := d.Trials[0]
		evs = append(evs, Event{Type: Reported, Trial: t, Rung: p.marks[t], Metric: p.r.Float64()})
		if p.marks[t]++; p.marks[t] < len(d.Marks) {
			p.past = append(p.past, evs...)
			return evs
		}
	} else {
		broken := len(d.Trials) > 1 && p.r.IntN(4) == 0
		p.broken = p.broken || broken
		for _, t := range d.Trials {
			// including ties
			ev := Event{Type: Reported, Trial: t, Rung: d.Rung, Target: d.Target,
				Metric: math.Round(p.r.Float64() * 20)}
			if p.r.IntN(10) == 0 || broken {
				ev.Type, ev.Fused = Failed, broken
			}
			if !d.Target {
				p.finished[d.Rung]++
			}
			evs = append(evs, ev)
		}
	}
	p.live = slices.Delete(p.live, i, i+1)
	p.past = append(p.past, evs...)
	return evs
}

// Whatever happens in whatever order: no run starts twice, groups are of one shape and fit, promotions are
// earned, a bracket keeps to its budget, and the search ends. A tuner that replays the past at any moment
// decides like the original one.
func TestPlayed(t *testing.T) {
	for k, m := range methods() {
		for seed := range uint64(30) {
			p := &player{t: t, s: begin(t, m), m: m, r: rand.New(rand.NewPCG(seed, uint64(k))), marks: map[int]int{},
				begun: map[string]int{}, finished: map[int]int{}, paid: map[int]int64{}}
			workers := 1 + int(seed)%7
			var evs []Event
			for turns := 0; ; turns++ {
				heard := slices.Clone(p.past)
				list := step(t, p.s, 0, evs...)
				p.decided(list)
				again := begin(t, m)
				step(t, again, 0, heard...)
				mine := step(t, p.s, workers-len(p.live))
				if theirs := step(t, again, workers-len(p.live)); !reflect.DeepEqual(mine, theirs) {
					t.Fatalf("%s, seed %d, turn %d: decided %+v, and with what is known of the past %+v", m.Name, seed,
						turns, mine, theirs)
				}
				p.decided(mine)
				checkTwins(t, p.s)
				if len(p.live) == 0 {
					break
				}
				evs = p.happen()
			}
			if !p.s.Done() {
				t.Fatalf("%s, seed %d: nothing runs, and it is not done", m.Name, seed)
			}
			if a, ok := p.s.Best(); ok {
				again := begin(t, m)
				step(t, again, 0, p.past...)
				if b, _ := again.Best(); a != b {
					t.Errorf("%s, seed %d: best %+v, told the past %+v", m.Name, seed, a, b)
				}
			}
			if !m.Stopping {
				for i, b := range p.s.Brackets() {
					if m.Name != ASHA && !p.broken && p.paid[i] > b.Paid(false) {
						t.Errorf("%s: bracket %d took %d of %d steps", m.Name, i, p.paid[i], b.Paid(false))
					}
				}
			}
		}
	}
}

// asha decides by the text of its paper, without an index.
func TestASHATwin(t *testing.T) {
	m := Method{Name: ASHA, Trials: 60, Min: 1, Max: 27, Eta: 3}
	for seed := range uint64(50) {
		r := rand.New(rand.NewPCG(seed, 7))
		s := begin(t, m)
		loss := [4]map[int]float64{{}, {}, {}, {}}
		promoted := [4]map[int]bool{{}, {}, {}, {}}
		next := 0
		twin := func() (trial, rung int) {
			for k := 2; k >= 0; k-- {
				var done []int
				for t := range m.Trials {
					if _, ok := loss[k][t]; ok {
						done = append(done, t)
					}
				}
				slices.SortStableFunc(done, func(a, b int) int {
					switch {
					case loss[k][a] < loss[k][b]:
						return -1
					case loss[k][a] > loss[k][b]:
						return 1
					}
					return a - b
				})
				for _, t := range done[:len(done)/3] {
					if !promoted[k][t] {
						promoted[k][t] = true
						return t, k + 1
					}
				}
			}
			if next < m.Trials {
				next++
				return next - 1, 0
			}
			return -1, 0
		}
		live := [][2]int{}
		for {
			for len(live) < 5 {
				trial, rung := twin()
				d := step(t, s, 1)
				if trial < 0 {
					if len(d) != 0 {
						t.Fatalf("%+v", d)
					}
					break
				}
				if len(d) != 1 || d[0].Trials[0] != trial || d[0].Rung != rung {
					t.Fatalf("seed %d: %+v, the twin: trial %d to rung %d", seed, d, trial, rung)
				}
				live = append(live, [2]int{trial, rung})
			}
			if len(live) == 0 {
				break
			}
			i := r.IntN(len(live))
			x := live[i]
			live = slices.Delete(live, i, i+1)
			loss[x[1]][x[0]] = float64(r.IntN(30))
			step(t, s, 0, Event{Type: Reported, Trial: x[0], Rung: x[1], Metric: loss[x[1]][x[0]]})
		}
	}
}

// Configurations follow from the seed and the trial's number; another parameter leaves the others unchanged.
func TestConfig(t *testing.T) {
	list := []Parameter{{Name: "lr", Kind: LogUniform, Low: 1e-4, High: 1},
		{Name: "m", Kind: Uniform, Low: -1, High: 1}, {Name: "b", Kind: Choice, Values: []any{16, 32, 64}},
		{Name: "n", Kind: Int, Low: 2, High: 5}}
	small, ints, picks := 0, map[any]int{}, map[any]int{}
	for trial := range 4000 {
		c := Config(list, 1, trial)
		lr, _ := c[0].V.(float64)
		m, _ := c[1].V.(float64)
		if lr < 1e-4 || lr > 1 || m < -1 || m > 1 {
			t.Fatalf("%v", c)
		}
		if lr < 1e-2 {
			small++
		}
		ints[c[3].V]++
		picks[c[2].V]++
		if !reflect.DeepEqual(Config(list[1:], 1, trial), c[1:]) {
			t.Fatal("a parameter depends on the others")
		}
	}
	if small < 1850 || small > 2150 || len(ints) != 4 || len(picks) != 3 || ints[int64(2)] < 900 ||
		ints[int64(5)] < 900 || picks[16] < 1200 {
		t.Errorf("%d below the middle, %v, %v", small, ints, picks)
	}
	if reflect.DeepEqual(Config(list, 1, 0), Config(list, 2, 0)) {
		t.Error("the seed changes nothing")
	}
	for trial := range 200 { // rounded to six digits they would be 1
		for _, p := range []Parameter{{Name: "x", Low: 0.9999991, High: 0.9999999},
			{Name: "x", Kind: LogUniform, Low: 0.9999991, High: 0.9999999}} {
			if v, _ := Config([]Parameter{p}, 1, trial)[0].V.(float64); v < p.Low || v > p.High {
				t.Fatalf("%v is not between %v and %v", v, p.Low, p.High)
			}
		}
	}
	if p := (Parameter{Name: "a", Kind: Choice, Values: []any{1.0, math.Inf(-1)}}); p.Check() == nil {
		t.Error("an infinite choice is accepted")
	}
	grid := []Parameter{{Name: "a", Kind: Grid, Values: []any{1, 2}},
		{Name: "b", Kind: Grid, Values: []any{"x", "y", "z"}}}
	seen := ""
	for trial := range GridSize(grid) {
		c := Config(grid, 9, trial)
		seen += fmt.Sprint(c[0].V, c[1].V, " ")
	}
	if seen != "1x 1y 1z 2x 2y 2z " {
		t.Errorf("%q", seen)
	}
}

// Invalid knobs are refused, by name.
func TestCheck(t *testing.T) {
	for _, c := range []struct {
		m    Method
		want string
	}{
		{Method{Name: "bayes"}, "method"}, {Method{Name: Random, Trials: 0, Max: 1}, "trials"},
		{Method{Name: ASHA, Trials: 3, Max: 0}, "budget.max"},
		{Method{Name: ASHA, Trials: 3, Max: 9, Min: 10, Eta: 3}, "budget.min"},
		{Method{Name: ASHA, Trials: 3, Max: 9, Min: 1, Eta: 1}, "eta"},
		{Method{Name: ASHA, Trials: 3, Max: 9, Min: 1, Eta: 3, Skip: 3}, "skip"},
		{Method{Name: Halving, Trials: 3, Max: 9, Min: 1, Eta: 3, Stopping: true}, "skip, stopping"},
		{Method{Name: Hydro, Trials: 3, Max: 9, Min: 1, Eta: 3, Scale: 6, Eager: 500}, "scale"},
		{Method{Name: Hydro, Trials: 3, Max: 9, Min: 1, Eta: 3, Scale: 8}, "eager"},
		{Method{Name: ASHA, Trials: 3, Max: 9, Min: 1, Eta: 3, Scale: 8}, "scale"},
	} {
		if err := c.m.Check(); err == nil || len(err.Error()) < len(c.want) || err.Error()[:len(c.want)] != c.want {
			t.Errorf("%+v: %v, want %s: ...", c.m, err, c.want)
		}
	}
	for _, m := range methods() {
		if err := m.Check(); err != nil {
			t.Errorf("%s: %v", m.Name, err)
		}
	}
	s := begin(t, methods()[0])
	if _, err := s.Step([]Event{{Trial: 99}}, 0); err == nil {
		t.Error("a trial that there is not")
	}
	if _, err := s.Step([]Event{{Trial: 1, Rung: 4}}, 0); err == nil {
		t.Error("a rung that there is not")
	}
	for _, p := range []Parameter{{Name: "a", Kind: LogUniform, Low: 0, High: 1},
		{Name: "a", Kind: Int, Low: 0.5, High: 2}, {Name: "a", Low: 2, High: 1}, {Name: "a", Kind: Choice},
		{Name: "a", High: math.Inf(1)}} {
		if p.Check() == nil {
			t.Errorf("%+v is accepted", p)
		}
	}
}

// fuseMemory is the expected memory of n fused trials: m1 + (n-1)(m2 - m1).
func fuseMemory(n int, one, two int64) int64 { return one + int64(n-1)*(two-one) }
