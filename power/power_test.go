package power

import (
	"encoding/json"
	"math/big"
	"math/rand/v2"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/internal/csvfile"
	"github.com/muster-gpu/muster/internal/shared"
)

const monday = 4 * 24 * 3600

// rule has steps of ten minutes, a history of two steps and a future of three.
func rule(change func(*cluster.Power)) *cluster.Power {
	p := &cluster.Power{Every: 10 * time.Minute, Buffer: 2, History: 20 * time.Minute, Future: 30 * time.Minute,
		Fell: 1000, Falls: 0, Least: 2, Keep: 30 * time.Minute, Wake: time.Minute}
	if change != nil {
		change(p)
	}
	return p
}

// run steps a meter through a series of nodes in use; initially all nodes are awake.
func run(p *cluster.Power, total int, used ...int) (active []int) {
	var m Meter
	now := total
	for i, u := range used {
		now = m.Step(p, monday+int64(i)*seconds(p.Every), Seen{Used: u, Active: now, Total: total})
		active = append(active, now)
	}
	return active
}

// Worked out by hand. History: two steps; keep: three; buffer: two; nothing is known of the week,
// so the forecast is the current use.
func TestStep(t *testing.T) {
	settled := func(p *cluster.Power) { p.Settled = 20 * time.Minute }
	for _, c := range []struct {
		name   string
		change func(*cluster.Power)
		used   []int
		want   []int
	}{
		// (8+8)/2-7 = 1, but 9 of 10 is less than two fewer; (8+7)/2-6 = 1.5: 6+2
		{"shrinks once use has fallen by a node against the mean of two steps", nil, []int{8, 8, 7, 6, 6},
			[]int{10, 10, 10, 8, 8}},
		{"a single node is not worth it", nil, []int{8, 8, 7}, []int{10, 10, 10}},
		{"a history is needed", nil, []int{8, 4, 4}, []int{10, 10, 6}}, // at the second step there is only one before
		{"a steady use is never one that has fallen", nil, []int{2, 2, 2, 2, 2, 2, 2, 2},
			[]int{10, 10, 10, 10, 10, 10, 10, 10}},
		{"but too many for twenty minutes are", settled, []int{2, 2, 2, 2, 2, 2}, []int{10, 10, 4, 4, 4, 4}},
		{"too few: the used and the buffer, at once", nil, []int{8, 8, 4, 4, 7, 7}, []int{10, 10, 6, 6, 9, 9}},
		{"within the buffer no node wakes", nil, []int{8, 8, 4, 6, 6}, []int{10, 10, 6, 6, 6}},
		{"never more than there are", nil, []int{8, 8, 4, 9, 10}, []int{10, 10, 6, 10, 10}},
		// woken in step 3: again in step 6, (2+2)/2-1 = 1
		{"after a wake-up three steps without shrinking", nil, []int{8, 8, 4, 7, 2, 2, 1, 0},
			[]int{10, 10, 6, 9, 9, 9, 3, 3}},
		{"a threshold of half a node", func(p *cluster.Power) { p.Fell = 500 }, []int{6, 6, 5, 5}, []int{10, 10, 7, 7}},
		{"the forecast has to fall, too", func(p *cluster.Power) {
			p.Falls = 1
		}, []int{8, 8, 4, 4}, []int{10, 10, 10, 10}},
	} {
		t.Run(c.name, func(t *testing.T) {
			if got := run(rule(c.change), 10, c.used...); !reflect.DeepEqual(got, c.want) {
				t.Errorf("used %v: awake %v, want %v", c.used, got, c.want)
			}
		})
	}
}

// Short is called between the steps, when jobs start.
func TestShort(t *testing.T) {
	var m Meter
	p := rule(nil)
	if n, ok := m.Short(p, monday, Seen{Used: 4, Active: 4, Total: 10}); ok || n != 4 || m.Grown != 0 {
		t.Errorf("enough: %d %v, grown %d", n, ok, m.Grown)
	}
	if n, ok := m.Short(p, monday, Seen{Used: 5, Active: 4, Total: 10}); !ok || n != 7 || m.Grown != monday {
		t.Errorf("too few: %d %v, grown %d", n, ok, m.Grown)
	}
	if n, _ := m.Short(p, monday, Seen{Used: 9, Active: 4, Total: 10}); n != 10 {
		t.Errorf("as many as there are: %d", n)
	}
}

// In a week, every day has six nodes in use from 8 to 20 and two otherwise: on the second Monday
// the fall and the rise are predicted to the hour, at the level of the day.
func TestForecast(t *testing.T) {
	daily := func(at int64) int {
		if h := at / 3600 % 24; h >= 8 && h < 20 {
			return 6
		}
		return 2
	}
	var f Forecast
	for at := int64(monday); at < monday+7*86400; at += 600 {
		f.observe(at, daily(at))
	}
	s := Seen{Used: 3, Active: 10, Total: 7} // one more than usual
	now := int64(monday + 7*86400 + 7*3600)
	for after, want := range map[int64]int64{0: 3000, 3599: 3000, 3600: 5000, 12 * 3600: 5000, 13 * 3600: 3000} {
		if got := f.At(now, now+after, s); got != want {
			t.Errorf("%ds ahead: %d thousandths of nodes, want %d", after, got, want)
		}
	}
	s.Used = 1
	if got := f.At(now+6*3600, now+14*3600, s); got != 0 {
		t.Errorf("a negative forecast: %d", got)
	}
}

// An hour that was not observed is estimated from other days, otherwise use stays; the mean over
// weeks decays by halves.
func TestForecastLearns(t *testing.T) {
	var f Forecast
	for hour := range int64(30) { // Monday, and six hours of Tuesday
		f.observe(monday+hour*3600, 10+int(hour%24))
	}
	// Monday's use rose by three
	if got := f.At(monday+30*3600, monday+33*3600, Seen{Used: 16, Total: 99}); got != 17_500 {
		t.Errorf("Tuesday at nine: %d", got)
	}
	var g Forecast
	if got := g.At(monday, monday+3600, Seen{Used: 16, Total: 99}); got != 16_000 {
		t.Errorf("nothing known: %d", got)
	}
	for week, used := range []int{8, 4, 4} {
		g.observe(monday+int64(week)*7*86400, used)
		g.observe(monday+int64(week)*7*86400+3600, used)
	}
	if v, ok := g.season(monday / 3600); !ok || v != 5000 { // ((8+4)/2+4)/2
		t.Errorf("the mean of 8, 4 and 4 is %d, %v", v, ok)
	}
}

// naive is the rule as published, computed from the whole series.
type naive struct {
	used         []int
	grown, over  int64
	isUp, isOver bool
}

func (n *naive) step(p *cluster.Power, f *Forecast, now int64, s Seen) int {
	n.used = append(n.used, s.Used)
	active := s.Active
	if active < s.Used {
		active, n.grown, n.isUp, n.isOver = min(s.Total, s.Used+p.Buffer), now, true, false
	}
	want := min(active, s.Used+p.Buffer)
	if want == active {
		n.isOver = false
		return active
	}
	if !n.isOver {
		n.over, n.isOver = now, true
	}
	mean := func(from, to int, at func(int) *big.Rat) *big.Rat {
		sum := new(big.Rat)
		for i := from; i < to; i++ {
			sum.Add(sum, at(i))
		}
		return sum.Quo(sum, big.NewRat(int64(to-from), 1))
	}
	future, past := int(p.Future/p.Every), int(p.History/p.Every)
	at := func(i int) *big.Rat { return big.NewRat(f.At(now, now+int64(i)*int64(p.Every/time.Second), s), 1000) }
	used := big.NewRat(int64(s.Used), 1)
	near, far := mean(0, future, at), mean(0, 2*future, at)
	trend := false
	if k := len(n.used) - 1; k >= past {
		fell := new(big.Rat).Sub(mean(k-past, k, func(i int) *big.Rat { return big.NewRat(int64(n.used[i]), 1) }), used)
		trend = fell.Cmp(big.NewRat(p.Fell, 1000)) >= 0 &&
			new(big.Rat).Sub(used, near).Cmp(big.NewRat(p.Falls, 1000)) >= 0
	}
	long := p.Settled > 0 && now-n.over >= int64(p.Settled/time.Second)
	if long { // its own condition alone
		trend = near.Cmp(used) <= 0
	}
	switch {
	case n.isUp && now < n.grown+int64(p.Keep/time.Second), active-want < p.Least, near.Cmp(far) < 0, !trend:
		return active
	}
	n.isOver = false
	return want
}

// Comparison with the rule as published over random weeks, with its invariants. A meter that was
// stored and reloaded behaves the same.
func TestTwin(t *testing.T) {
	for seed := range uint64(30) {
		r := rand.New(rand.NewPCG(seed, 1))
		p := &cluster.Power{Every: time.Duration(1+r.IntN(30)) * time.Minute, Buffer: r.IntN(4), Fell: r.Int64N(3000),
			Falls: r.Int64N(2000) - 500,
			Least: 1 + r.IntN(3), Wake: time.Minute}
		p.History, p.Future = time.Duration(1+r.IntN(8))*p.Every, time.Duration(1+r.IntN(20))*p.Every
		p.Keep, p.Settled = time.Duration(r.IntN(15))*p.Every, time.Duration(r.IntN(30))*p.Every
		total := 5 + r.IntN(40)
		var m Meter
		var n naive
		active, twin, used, shrunk := total, total, 0, 0
		grown := int64(-1 << 40)
		for i := range 2500 {
			used = min(total, max(0, used+r.IntN(7)-3))
			now := monday + int64(i)*seconds(p.Every)
			was := active
			s := Seen{used, active, total}
			active = m.Step(p, now, s)
			if twin = n.step(p, &m.Forecast, now, Seen{used, twin, total}); twin != active {
				t.Fatalf("seed %d, step %d: %d awake, %d by the published rule (%+v)", seed, i, active, twin, s)
			}
			switch {
			case active < used || active > total:
				t.Fatalf("seed %d, step %d: %d awake, %d used, %d in all", seed, i, active, used, total)
			case active < was && now < grown+seconds(p.Keep):
				t.Fatalf("seed %d, step %d: fewer are awake %d s after a wake-up", seed, i, now-grown)
			case active < was && (was-active < p.Least || active != used+p.Buffer):
				t.Fatalf("seed %d, step %d: from %d to %d with %d used", seed, i, was, active, used)
			case active > was && was >= used:
				t.Fatalf("seed %d, step %d: %d woke, although there were enough", seed, i, active-was)
			case active > was:
				grown = now
			case active < was:
				shrunk++
			}
			if i%500 == 499 {
				text, err := json.Marshal(&m)
				if m = (Meter{}); err != nil || json.Unmarshal(text, &m) != nil {
					t.Fatal(err, string(text))
				}
			}
		}
		if p.Settled > 0 && shrunk == 0 {
			t.Errorf("seed %d: nodes were never put to sleep: %+v", seed, p)
		}
	}
}

// The error is over the means of the time ahead, and counts when all of it has passed.
func TestError(t *testing.T) {
	var m Meter
	p := rule(nil) // three steps ahead
	for i, used := range []int{4, 4, 7, 1} {
		m.Step(p, monday+int64(i)*600, Seen{Used: used, Active: 10, Total: 10})
	}
	// 4 expected: 4,4,7 came, then 4,7,1
	if e := m.Error; e.Steps != 2 || e.Naive != 1000+0 || e.Model != 1000 || len(e.Open) != 2 {
		t.Errorf("%+v", e)
	}
}

// Knobs may change, and change back, between any two steps and over a restart: forecasts for
// another time ahead are not scored, and with steady use, where forecasts come true, the error
// stays zero.
func TestKnobsChange(t *testing.T) {
	knobs := func(every, history, future time.Duration) *cluster.Power {
		return rule(func(p *cluster.Power) { p.Every, p.History, p.Future = every, history, future })
	}
	const minute = time.Minute
	list := []*cluster.Power{knobs(10*minute, 60*minute, 180*minute), knobs(30*minute, 60*minute, 180*minute),
		knobs(10*minute, 60*minute, 30*minute),
		knobs(10*minute, 10*minute, 10*minute), knobs(10*minute, 60*minute, 600*minute),
		knobs(60*minute, 300*minute, 60*minute)}
	r := rand.New(rand.NewPCG(1, 1))
	for range 300 {
		var m Meter
		for now, i := int64(monday), 0; i < 12; i++ {
			p := list[r.IntN(len(list))]
			for range 1 + r.IntN(40) {
				m.Step(p, now, Seen{Used: 5, Active: 8, Total: 20})
				now += seconds(p.Every)
			}
			text, err := json.Marshal(&m)
			if m = (Meter{}); err != nil || json.Unmarshal(text, &m) != nil {
				t.Fatal(err, string(text))
			}
			if err := m.Check(); err != nil {
				t.Fatal(err, string(text))
			}
			if e := &m.Error; e.Model != 0 || e.Naive != 0 || len(e.Open) >= e.Ahead {
				t.Fatalf("use never changed: %+v", e)
			}
		}
	}
}

// Observations at another interval are no history: no node is put to sleep because of them.
func TestEveryChanges(t *testing.T) {
	var m Meter
	p := rule(nil)
	for i := range int64(3) {
		m.Step(p, monday+i*600, Seen{Used: 8, Active: 10, Total: 10})
	}
	p.Every, p.History, p.Future = 30*time.Minute, time.Hour, time.Hour
	if n := m.Step(p, monday+3600, Seen{Used: 4, Active: 10, Total: 10}); n != 10 || len(m.Last) != 1 {
		t.Errorf("%d are awake after %v at another interval", n, m.Last)
	}
}

// A meter that was edited by hand is refused where no meter could have such values; accepted values
// never panic.
func TestCheck(t *testing.T) {
	for text, want := range map[string]string{
		`{"week": [1, 2]}`:                                          "week: 2 hours",
		`{"sum": -1}`:                                               "sum: -1",
		`{"count": 1, "sum": 9000000}`:                              "sum: 9000000",
		`{"last": [3, -1]}`:                                         "last: ",
		`{"grown": -4}`:                                             "grown",
		`{"error": {"open": [{"used": -1}]}}`:                       "open: ",
		`{"error": {"open": [{"sum": 10000000000000000}]}}`:         "open: ",
		`{"error": {"steps": -1}}`:                                  "steps",
		`{"grown": 99999999999}`:                                    "",
		`{"error": {"ahead": 3, "open": [{}, {}, {}, {}, {}, {}]}}`: "",
		`{"error": {"ahead": -3, "open": [{}]}, "last": [7]}`:       "",
	} {
		var m Meter
		if err := json.Unmarshal([]byte(text), &m); err != nil {
			t.Fatal(err)
		}
		err := m.Check()
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", text, err, want)
		}
		if err != nil {
			continue
		}
		active := 10
		for i := range int64(20) {
			active = m.Step(rule(nil), monday+i*600, Seen{Used: 9 - min(7, int(i)), Active: active, Total: 10})
		}
		if active == 10 {
			t.Errorf("%s: nodes never go to sleep", text)
		}
	}
}

// The nodes in use recorded by Philly, for the two weeks of December 2017 in which Helios evaluated
// its rule, with Helios' knobs; the forecast is Muster's and has learned since October.
func TestPhilly(t *testing.T) {
	rows, err := csvfile.Read(shared.Path(t, "traces/philly/philly_node_sequence.csv"))
	if err != nil {
		t.Fatal(err)
	}
	p := &cluster.Power{Every: 10 * time.Minute, Buffer: 20, History: 20 * time.Minute, Future: 5 * time.Hour,
		Fell: 100, Falls: 0, Least: 1,
		Keep: 100 * time.Minute, Wake: 5 * time.Minute}
	from := time.Date(2017, 12, 1, 0, 0, 0, 0, time.UTC).Unix()
	var m Meter
	active, wakes, woken, steps := 0, 0, 0, 0
	before, after := 0.0, 0.0
	for _, s := range tenMinutes(t, rows[1:]) {
		if s.at < from { // learns
			m.Step(p, s.at, Seen{s.used, s.total, s.total})
			continue
		}
		if steps == 0 {
			active, m.Error, m.Grown, m.Over = s.used+p.Buffer, Error{}, 0, 0
		}
		was := min(active, s.total)
		if active = m.Step(p, s.at, Seen{s.used, was, s.total}); active > was {
			wakes, woken = wakes+1, woken+active-was
		}
		before += float64(s.used) / float64(s.total)
		after += float64(s.used) / float64(active)
		steps++
	}
	n, days := float64(steps), float64(steps)/144
	t.Logf("%.1f days: of the nodes awake %.1f %% in use, of all %.1f %%; %.1f wake-ups and %.1f nodes woken a day; forecast off by %.1f nodes, no change by %.1f",
		days, 100*after/n, 100*before/n, float64(wakes)/days, float64(woken)/days,
		float64(m.Error.Model)/float64(m.Error.Steps)/1000, float64(m.Error.Naive)/float64(m.Error.Steps)/1000)
	if gain := (after - before) / n; gain < 0.13 || float64(wakes)/days > 5 {
		t.Errorf("%.3f more of the nodes awake are in use, with %.1f wake-ups a day", gain, float64(wakes)/days)
	}
}

type sample struct {
	at          int64
	used, total int
}

// tenMinutes takes the maximum of each ten minutes, as Helios did.
func tenMinutes(t *testing.T, rows [][]string) (list []sample) {
	for _, r := range rows {
		at := shared.Must(time.Parse(time.DateTime, r[0]))
		s := sample{at: at.Unix() - at.Unix()%600}
		if json.Unmarshal([]byte(r[1]), &s.used) != nil || json.Unmarshal([]byte(r[2]), &s.total) != nil {
			t.Fatalf("not numbers: %v", r)
		}
		if last := len(list) - 1; last >= 0 && list[last].at == s.at {
			list[last].used, list[last].total = max(list[last].used, s.used), max(list[last].total, s.total)
			continue
		}
		list = append(list, s)
	}
	return list
}
