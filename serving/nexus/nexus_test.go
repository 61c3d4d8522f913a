package nexus

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/internal/csvfile"
	"github.com/muster-gpu/muster/internal/shared"
	"github.com/muster-gpu/muster/service"
)

const ms = time.Millisecond

// linear is a curve of batches that take first + each for every request.
func linear(first, each time.Duration, most int) (c Curve) {
	for b := 1; b <= most; b++ {
		c = append(c, first+time.Duration(b)*each)
	}
	return c
}

func plan(t *testing.T, sessions []Session, memory int64) *Plan {
	t.Helper()
	p, err := Make(sessions, memory)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// vector is a session of batches of b that take 5 + b ms, within 100 ms.
func vector(rate float64) Session {
	return Session{Name: "s", Rate: rate, Goal: 100 * ms, Takes: linear(5*ms, ms, 128)}
}

// TestVectors: the saturated batch is 45, with 900 requests/s. 300/s get batches of 21 each 70 ms; two such sessions
// share a GPU, a third needs another; 2000/s saturate two GPUs, and 200 are left.
func TestVectors(t *testing.T) {
	if b, r := vector(1).Takes.Saturated(100 * ms); b != 45 || math.Abs(r-900) > 1e-6 {
		t.Errorf("saturated: %d, %v/s", b, r)
	}
	for _, c := range []struct {
		rates []float64
		want  string
	}{
		{[]float64{300}, "70ms .371 0:21/26ms"},
		{[]float64{300, 300}, "70ms .743 0:21/26ms 1:21/26ms"},
		{[]float64{300, 300, 300}, "70ms .743 0:21/26ms 1:21/26ms; 70ms .371 2:21/26ms"},
		{[]float64{2000}, "50ms 1.000 0:45/50ms; 50ms 1.000 0:45/50ms; 75ms .267 0:15/20ms"},
		{[]float64{1800}, "50ms 1.000 0:45/50ms; 50ms 1.000 0:45/50ms"},
		{[]float64{1, 2}, "94ms .128 0:1/6ms 1:1/6ms"},
	} {
		var list []Session
		for _, r := range c.rates {
			list = append(list, vector(r))
		}
		if got := text(plan(t, list, 0)); got != c.want {
			t.Errorf("%v: %s\nwant %s", c.rates, got, c.want)
		}
	}
}

// text is the GPUs of a plan: duty cycle, occupancy, and session:batch/time of each turn.
func text(p *Plan) string {
	var all []string
	for i := range p.GPUs {
		g := &p.GPUs[i]
		s := fmt.Sprintf("%v %s", g.Duty, strings.TrimPrefix(fmt.Sprintf("%.3f", g.Occupancy()), "0"))
		for _, x := range g.Turns {
			s += fmt.Sprintf(" %d:%d/%v", x.Session, x.Batch, x.Takes)
		}
		all = append(all, s)
	}
	return strings.Join(all, "; ")
}

// TestCoarse: batches of one and of two take 9 and 10 ms. For 190/s within 20 ms, batches of one come in time but do
// not keep up; those of two do, one after the other.
func TestCoarse(t *testing.T) {
	s := Session{Rate: 190, Goal: 20 * ms, Takes: Curve{9 * ms, 10 * ms}}
	if got := text(plan(t, []Session{s}, 0)); got != "10ms 1.000 0:2/10ms" {
		t.Error(got)
	}
}

// TestMemory: what does not fit together gets GPUs of its own, and batches are no larger than a GPU.
func TestMemory(t *testing.T) {
	a := vector(300)
	for b := range a.Takes {
		a.Memory = append(a.Memory, int64(1000+10*b))
	}
	if p := plan(t, []Session{a, a}, 2400); len(p.GPUs) != 1 {
		t.Errorf("both fit: %s", text(p))
	}
	if p := plan(t, []Session{a, a}, 2399); len(p.GPUs) != 2 {
		t.Errorf("both do not fit: %s", text(p))
	}
	if got := text(plan(t, []Session{a}, 1090)); got != "33.333333ms .450 0:10/15ms" {
		t.Errorf("batches of up to 10: %s", got)
	}
	if _, err := Make([]Session{a}, 999); err == nil || !strings.Contains(err.Error(), "memory") {
		t.Errorf("no batch fits: %v", err)
	}
}

// check verifies what holds for every plan.
func check(t *testing.T, sessions []Session, p *Plan, memory int64) {
	t.Helper()
	rates, sum := make([]float64, len(sessions)), 0.0
	for i := range p.GPUs {
		g := &p.GPUs[i]
		sum += g.Occupancy()
		if g.Occupancy() > 1 {
			t.Fatalf("GPU %d is busy for %v of its time", i, g.Occupancy())
		}
		needs := int64(0)
		for _, x := range g.Turns {
			s := &sessions[x.Session]
			rates[x.Session] += x.Rate
			needs += s.memory(x.Batch)
			arrive := g.Duty.Seconds() * x.Rate
			if g.Duty+x.Takes > s.Goal || x.Takes != s.Takes[x.Batch-1] || float64(x.Batch) < arrive*(1-1e-6) ||
				x.Batch > 1 && float64(x.Batch-1) > arrive {
				t.Fatalf("GPU %d: %+v in %v; %v arrive", i, x, g.Duty, arrive)
			}
		}
		if memory > 0 && needs > memory {
			t.Fatalf("GPU %d: %d MiB of %d", i, needs, memory)
		}
	}
	for k := range sessions {
		if math.Abs(rates[k]/sessions[k].Rate-1) > 1e-6 {
			t.Fatalf("session %d: planned for %v, not %v", k, rates[k], sessions[k].Rate)
		}
	}
	if float64(len(p.GPUs)) < sum-1e-9 || len(p.GPUs) < p.Least {
		t.Fatalf("%d GPUs, occupancies of %v, at least %d", len(p.GPUs), sum, p.Least)
	}
}

func randomSession(r *rand.Rand, rate float64) Session {
	s := Session{Name: fmt.Sprint(r.Uint32()), Goal: time.Duration(30+r.IntN(300)) * ms}
	for {
		s.Takes = linear(time.Duration(r.IntN(20e6)), time.Duration(1+r.IntN(5e6)), 64)
		if _, most := s.Takes.Saturated(s.Goal); most > 0 {
			s.Rate = most * rate
			return s
		}
	}
}

// TestInvariants: random sessions. The batch of what is left is the largest that is in time.
func TestInvariants(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for range 500 {
		var list []Session
		for range 1 + r.IntN(30) {
			list = append(list, randomSession(r, math.Exp(4*r.Float64()-3)))
		}
		check(t, list, plan(t, list, 0), 0)
		p := &packer{sessions: list}
		for k := range list {
			s := &list[k]
			most, _ := s.Takes.Saturated(s.Goal)
			if 2*s.Takes[most-1] > s.Goal || most < len(s.Takes) && 2*s.Takes[most] <= s.Goal {
				t.Fatalf("a saturated batch of %d", most)
			}
			rate := s.Takes.rate(most) * r.Float64()
			want := 0
			for b := 1; b <= len(s.Takes); b++ {
				if s.Takes[b-1]+fills(b, rate) <= s.Goal {
					want = b
				}
			}
			x := p.residual(k, rate).Turns[0].Batch
			if want > 0 && s.Takes[want-1] <= fills(want, rate) && x != want {
				t.Fatalf("a batch of %d for %v/s, want %d", x, rate, want)
			}
		}
	}
}

// TestOptimum compares squishy bin packing with all groupings and all cycles, for few sessions.
func TestOptimum(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	const cases = 400
	more, sum, bestSum, most := 0, 0, 0, 0
	for range cases {
		var list []Session
		for range 3 + r.IntN(4) {
			list = append(list, randomSession(r, 0.05+0.6*r.Float64()))
		}
		p := plan(t, list, 0)
		best := fewest(list)
		if len(p.GPUs) < best || best < p.Least {
			t.Fatalf("%d GPUs, the optimum is %d, at least %d are needed", len(p.GPUs), best, p.Least)
		}
		if len(p.GPUs) > best {
			more++
		}
		sum, bestSum, most = sum+len(p.GPUs), bestSum+best, max(most, len(p.GPUs)-best)
	}
	t.Logf("%d cases: more GPUs than the optimum in %d, by at most %d; %d GPUs, the optima %d", cases, more, most, sum,
		bestSum)
	if most > 1 || sum*100 > bestSum*115 {
		t.Error("too many")
	}
}

// fewest is the fewest GPUs on which sessions fit that are not divided.
func fewest(list []Session) int {
	least := make([]int, 1<<len(list))
	for set := 1; set < len(least); set++ {
		least[set] = math.MaxInt / 2
		for sub := set; sub > 0; sub = (sub - 1) & set {
			var group []*Session
			for k := range list {
				if sub>>k&1 == 1 {
					group = append(group, &list[k])
				}
			}
			if least[set&^sub]+1 < least[set] && possible(group) {
				least[set] = least[set&^sub] + 1
			}
		}
	}
	return least[len(least)-1]
}

// possible reports whether some cycle is long enough to compute all that arrives in it, and short enough for every
// goal. What is computed in a cycle changes only where another request arrives: the best cycles end there, or where a
// goal ends them.
func possible(group []*Session) bool {
	var cycles []time.Duration
	for _, s := range group {
		for b := 1; b <= len(s.Takes) && fills(b, s.Rate) < s.Goal; b++ {
			cycles = append(cycles, fills(b, s.Rate))
		}
		for _, takes := range s.Takes {
			cycles = append(cycles, s.Goal-takes)
		}
	}
	return slices.ContainsFunc(cycles, func(d time.Duration) bool {
		sum := time.Duration(0)
		for _, s := range group {
			b := arriving(d, s.Rate)
			if d <= 0 || b > len(s.Takes) || d+s.Takes[b-1] > s.Goal {
				return false
			}
			sum += s.Takes[b-1]
		}
		return sum <= d
	})
}

// recorded reads the profiles that Nexus' authors measured on a TITAN X.
func recorded(t *testing.T) (names []string, profiles map[string]service.Profile, memory map[string][]int64) {
	t.Helper()
	rows, err := csvfile.Read(shared.Path(t, "traces/serving-profiles/nexus-titanx.csv"))
	if err != nil {
		t.Fatal(err)
	}
	profiles, memory = map[string]service.Profile{}, map[string][]int64{}
	for _, row := range rows[1:] {
		name := row[1]
		batch, err1 := strconv.Atoi(row[3])
		us, err2 := strconv.ParseFloat(row[4], 64)
		bytes, err3 := strconv.ParseInt(row[6], 10, 64)
		if err1 != nil || err2 != nil || err3 != nil {
			t.Fatalf("%v", row)
		}
		if profiles[name] == nil {
			names = append(names, name)
		}
		profiles[name] = append(profiles[name], service.Point{Share: cluster.Whole, Batch: batch,
			Latency: time.Duration(us * 1e3)})
		memory[name] = append(memory[name], bytes>>20)
	}
	for _, p := range profiles {
		p.Sort()
	}
	return names, profiles, memory
}

// TestRecorded: sessions of recorded profiles on GPUs with 12 GiB.
func TestRecorded(t *testing.T) {
	names, profiles, memory := recorded(t)
	curves := map[string]Curve{}
	for _, name := range names {
		c := CurveOf(profiles[name])
		sizes := c.Sizes()
		if !slices.IsSorted(c) || !slices.IsSortedFunc(sizes, func(a, b int) int {
			return int(math.Copysign(1, c.rate(a)-c.rate(b)))
		}) {
			t.Errorf("%s: times or rates fall", name)
		}
		lost := 0
		for i, p := range profiles[name] {
			if c[i] > p.Latency {
				t.Errorf("%s: a batch of %d takes longer than measured", name, i+1)
			}
			if c[i] < p.Latency {
				lost++
			}
		}
		best := sizes[len(sizes)-1]
		t.Logf("%s: %d of %d times lowered, %d batches worth while, the best is %d with %.0f/s", name, lost, len(c),
			len(sizes), best, c.rate(best))
		curves[name] = c
	}
	r := rand.New(rand.NewPCG(5, 6))
	gpus, least := 0, 0
	for range 100 {
		var list []Session
		for range 1 + r.IntN(20) {
			name := names[r.IntN(len(names))]
			s := Session{Name: name, Takes: curves[name], Memory: memory[name]}
			s.Goal = 2*s.Takes[0] + time.Duration(r.IntN(400))*ms
			_, most := s.Takes.Saturated(s.Goal)
			s.Rate = most * math.Exp(4*r.Float64()-3)
			list = append(list, s)
		}
		p := plan(t, list, 12*1024)
		check(t, list, p, 12*1024)
		gpus, least = gpus+len(p.GPUs), least+p.Least
	}
	t.Logf("%d GPUs, at least %d are needed", gpus, least)
}

func TestErrors(t *testing.T) {
	for want, change := range map[string]func(s *Session){
		"rate and goal":         func(s *Session) { s.Rate = math.NaN() },
		"do not fall":           func(s *Session) { s.Takes = Curve{2, 1} },
		"memory of 1 batches":   func(s *Session) { s.Memory = []int64{1} },
		"takes half of 5ms":     func(s *Session) { s.Goal = 5 * ms },
		"more than 100000 GPUs": func(s *Session) { s.Rate = 1e12 },
	} {
		s := vector(1)
		change(&s)
		if _, err := Make([]Session{s}, 0); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %s", err, want)
		}
	}
}
