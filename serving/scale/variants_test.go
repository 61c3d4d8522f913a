package scale

import (
	"fmt"
	"math"
	"testing"
	"time"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/service"
)

// three is a service with three sizes of a model: accuracy .70, .76, .80 at a cost of 1, 2, 5; a request alone takes 2,
// 8 and 15 ms.
func three(goal time.Duration, b service.Budget) *View {
	s := &service.Service{Goal: service.Goal{Latency: goal, Percentile: 99}, Replicas: service.Replicas{Max: 20},
		Budget: b}
	for _, v := range []struct {
		name     string
		accuracy float64
		cost     float64
		ms       int
	}{{"small", 0.70, 1, 2}, {"mid", 0.76, 2, 8}, {"big", 0.80, 5, 15}} {
		s.Variants = append(s.Variants, service.Variant{Name: v.name, Accuracy: v.accuracy, Cost: v.cost,
			Request: cluster.Request{GPUs: 1},
			Profile: service.Profile{
				{Share: cluster.Whole, Batch: 1, Latency: time.Duration(v.ms) * time.Millisecond}}})
	}
	return &View{Service: s, Period: 15 * time.Second, Ready: make([]int, 3), Coming: make([]int, 3)}
}

// TestBudget: a floor of accuracy takes the middle variant, a goal that excludes it the small one if accuracy may give
// way; a budget that is too small gives way where it may.
func TestBudget(t *testing.T) {
	const ms = time.Millisecond
	for _, c := range []struct {
		goal time.Duration
		b    service.Budget
		rate float64
		want string
		full bool
	}{
		{100 * ms, service.Budget{}, 400, "[1 0 0]", true},
		{100 * ms, service.Budget{Accuracy: 0.75}, 100, "[0 1 0]", true},
		{100 * ms, service.Budget{Accuracy: 0.75}, 250, "[0 2 0]", true},
		{100 * ms, service.Budget{Accuracy: 0.78}, 60, "[0 0 1]", true},
		{10 * ms, service.Budget{Accuracy: 0.75}, 100, "[0 0 0]", false},
		{10 * ms, service.Budget{Accuracy: 0.75, Gives: service.Accuracy}, 100, "[1 0 0]", true},
		{100 * ms, service.Budget{Accuracy: 0.75, PerHour: 3}, 250, "[0 1 0]", false},
		{100 * ms, service.Budget{Accuracy: 0.75, PerHour: 3, Gives: service.Cost}, 250, "[0 2 0]", true},
		{100 * ms, service.Budget{Accuracy: 0.75, PerHour: 3, Gives: service.Accuracy}, 250, "[1 0 0]", true},
	} {
		want, full := three(c.goal, c.b).cheapest(c.rate, 1)
		if fmt.Sprint(want) != c.want || full != c.full {
			t.Errorf("%v, %+v at %g/s: %v %t, want %s %t", c.goal, c.b, c.rate, want, full, c.want, c.full)
		}
	}
}

// TestINFaaS grows by the cheapest way, shrinks one replica at a time, and keeps the floor of accuracy.
func TestINFaaS(t *testing.T) {
	v := three(100*time.Millisecond, service.Budget{Accuracy: 0.75})
	v.Service.Replicas.Min = 1
	p := policy(t, "infaas")
	if got := fmt.Sprint(p.Decide(v)); got != "[0 1 0]" {
		t.Errorf("at the beginning: %s", got)
	}
	v.Ready, v.Arrived = []int{0, 1, 0}, 15*300
	if got := fmt.Sprint(p.Decide(v)); got != "[0 3 0]" {
		t.Errorf("300/s on one that sustains 125: %s", got)
	}
	v.Ready, v.Arrived = []int{0, 3, 0}, 15*100
	if got := fmt.Sprint(p.Decide(v)); got != "[0 2 0]" {
		t.Errorf("100/s on three: %s", got)
	}
	v.Ready, v.Arrived = []int{0, 2, 0}, 15*150
	if got := fmt.Sprint(p.Decide(v)); got != "[0 2 0]" {
		t.Errorf("150/s on two: %s", got)
	}
}

// TestStated: what people expect counts before anything has come, and while less than that comes; a language model's
// replicas follow from the tokens that are expected.
func TestStated(t *testing.T) {
	for _, name := range []string{"muster", "mark", "lyra", "cocktail"} {
		v := three(100*time.Millisecond, service.Budget{})
		v.Service.Forecast.Steps = []service.ExpectedStep{{At: 100, Rate: 900}, {At: 200, Rate: 100}}
		p := policy(t, name)
		for k, want := range []int{0: 2, 1: 2, 6: 2, 7: 1} { // 500/s each
			v.Epoch, v.Now = 100, cluster.Time(15*time.Duration(k)*time.Second)
			if v.Period = 15 * time.Second; k == 0 {
				v.Period = 0
			}
			if got := p.Decide(v); want > 0 && got[0] < want {
				t.Errorf("%s, period %d: %v", name, k, got)
			}
		}
		v.Now = cluster.Time(time.Hour)
		if got := p.Decide(v); got[0] != 1 {
			t.Errorf("%s, in the end: %v", name, got)
		}
	}
}

// TestLyra: replicas fill whole servers, for the rate with headroom, and leave when none of the window needed them.
func TestLyra(t *testing.T) {
	v := three(100*time.Millisecond, service.Budget{})
	v.GPUs = []GPUs{{"A100-80GB", 16, 4}, {"H100-80GB", 16, 8}}
	p := policy(t, "lyra")
	for k, c := range []struct {
		rate float64
		want string
	}{{1600, "[4 0 0]"}, {1700, "[8 0 0]"}, {100, "[8 0 0]"}, {100, "[4 0 0]"}, {100, "[4 0 0]"}} {
		v.Now, v.Arrived = cluster.Time(k)*cluster.Time(9*time.Minute), int64(15*c.rate)
		if got := fmt.Sprint(p.Decide(v)); got != c.want {
			t.Errorf("%g/s in period %d: %s, want %s", c.rate, k, got, c.want)
		}
	}
	v.Arrived = 15 * 9000
	if got := fmt.Sprint(policy(t, "lyra").Decide(v)); got != "[20 0 0]" { // 22 are needed
		t.Errorf("within the service's most: %s", got)
	}
	v.Arrived = 15 * 100
	if got := fmt.Sprint(policy(t, "lyra:unit=2").Decide(v)); got != "[2 0 0]" {
		t.Errorf("two at a time: %s", got)
	}
}

// TestForecasts: both policies that forecast have replicas for a rising rate before it is there, and follow it down.
func TestForecasts(t *testing.T) {
	for _, name := range []string{"muster", "mark"} {
		v := three(100*time.Millisecond, service.Budget{})
		v.Service.Variants[0].Startup = time.Minute
		p := policy(t, name)
		early, peak, last := 0, 0, 0
		for k := range 200 {
			rate := min(float64(100+50*k), 5000) // it rises by 50 a period, and falls to 100 in the end
			if k > 140 {
				rate = 100
			}
			v.Now, v.Arrived = cluster.Time(k)*cluster.Time(15*time.Second), int64(15*rate)
			got := p.Decide(v)
			covered := float64(got[0])*500 + float64(got[1])*125 + float64(got[2])*1e3/15
			if covered < rate && k > 10 {
				t.Fatalf("%s: %v for %g/s in period %d", name, got, rate, k)
			}
			if k == 60 && covered >= rate+4*50 { // what the rate is when a replica that is asked for now answers
				early++
			}
			v.Ready, last = got, got[0]
			peak = max(peak, got[0])
		}
		if early == 0 || peak < 10 || peak > 15 || last > 2 {
			t.Errorf("%s: early %d, %d replicas at most, %d at the end", name, early, peak, last)
		}
	}
}

// TestLearns: requests that are late because more came than replicas sustain say nothing of what these sustain; those
// that are late although fewer came lower it, once, and easy ones raise it to just below where the goal was missed.
func TestLearns(t *testing.T) {
	v := three(100*time.Millisecond, service.Budget{})
	p := policy(t, "muster")
	m := p.(*muster)
	v.Ready, v.Latency = []int{2, 0, 0}, 90*time.Millisecond // 500/s each
	play := func(periods int, rate, missed float64, waiting int, easy bool) float64 {
		for range periods {
			v.Now = v.Now.Add(v.Period)
			v.Arrived, v.Missed, v.Waiting, v.Easy = int64(15*rate), 15*missed, waiting, easy
			p.Decide(v)
		}
		return m.factor
	}
	if f := play(4, 900, 0, 0, false); f != 1 {
		t.Errorf("after requests that are in time: %g", f)
	}
	if f := play(4, 1500, 700, 8000, false); f != 1 {
		t.Errorf("after a load that is too high: %g", f)
	}
	if f := play(1, 900, 600, 0, false); f != 1 {
		t.Errorf("after what had waited: %g", f)
	}
	if f := play(2, 900, 0, 0, false); f != 1 {
		t.Errorf("after that: %g", f)
	}
	if f := play(1, 950, 8, 0, false); f != 1 {
		t.Errorf("after a period that misses a little: %g", f)
	}
	if f := play(2, 950, 30, 0, false); f != 0.95 {
		t.Errorf("after misses although fewer came than two sustain: %g", f)
	}
	if f := play(40, 900, 0, 0, true); f < 0.97 || f > 1.1 {
		t.Errorf("after easy periods: %g", f)
	}
}

// TestMargin: a surprise among many forecasts does not count; those that come again have a margin.
func TestMargin(t *testing.T) {
	v := &View{Period: 15 * time.Second, Arrived: 15 * 100, Ready: []int{0}, Service: &service.Service{}}
	f := forecast{ahead: 2}
	if m := f.margin(v, 0.05, 0.005); m != mostMargin {
		t.Errorf("a margin of %g where nothing is known", m)
	}
	for range 60 {
		f.add(100)
	}
	f.add(200)
	f.add(200)
	for range 4 {
		f.add(100)
	}
	if m := f.margin(v, 0.05, 0.005); m > 1.01 {
		t.Errorf("a margin of %g after one surprise", m)
	}
	for range 4 {
		f.add(200)
		f.add(200)
		for range 8 {
			f.add(100)
		}
	}
	if m := f.margin(v, 0.05, 0.005); m < 1.3 || math.Abs(f.expected(v, m)-f.predicted()*m) > 1e-9 {
		t.Errorf("a margin of %g after bursts; %g are expected", m, f.expected(v, m))
	}
}

// TestMarginAfterStep: a step to more than the largest margin would cover is no reason to expect another.
func TestMarginAfterStep(t *testing.T) {
	v := &View{Period: 15 * time.Second, Service: &service.Service{}}
	f := forecast{ahead: 4}
	for k := range 60 {
		f.add(100 * float64(1+3*(k/30)))
	}
	if m := f.margin(v, 0, 0); m > 1.7 {
		t.Errorf("a margin of %g", m)
	}
}

// TestBegins: a service of which nothing is known begins with two replicas, and one of them leaves before it answers
// if the first period does not need it; with one, where the budget does not pay for two.
func TestBegins(t *testing.T) {
	for _, c := range []struct {
		name   string
		change func(s *service.Service)
		want   int
	}{{"unknown", func(*service.Service) {}, 2},
		{"foreseen", func(s *service.Service) { s.Forecast.Steps = []service.ExpectedStep{{Rate: 1}} }, 1},
		{"from zero", func(s *service.Service) { s.Replicas.Min = 0 }, 1},
		{"one at most", func(s *service.Service) { s.Replicas.Max = 1 }, 1},
		{"two are too dear", func(s *service.Service) { s.Budget = service.Budget{PerHour: 1.5} }, 1},
		{"as much as two cost", func(s *service.Service) { s.Budget = service.Budget{PerHour: 2} }, 2}} {
		v := three(100*time.Millisecond, service.Budget{})
		v.Service.Variants = v.Service.Variants[:1]
		v.Service.Replicas.Min = 1
		c.change(v.Service)
		each := v.sustained(&v.Service.Variants[0], cluster.Whole)
		p := policy(t, "muster")
		v.Ready, v.Coming = []int{0}, []int{0}
		period := v.Period
		v.Period, v.Arrived, v.Waiting = 0, 0, 0
		got := p.Decide(v)
		if got[0] != c.want {
			t.Errorf("%s: begins with %v, want %d", c.name, got, c.want)
		}
		v.Now, v.Period, v.Coming = cluster.Time(period), period, got
		v.Arrived = int64(0.1 * each * period.Seconds())
		if got := p.Decide(v); got[0] != 1 {
			t.Errorf("%s: after little load %v", c.name, got)
		}
	}
}

// TestOwes: after more requests missed the goal than it allows, what exceeded the forecasts is covered whole.
func TestOwes(t *testing.T) {
	decide := func(missed float64) (most int) {
		v := three(100*time.Millisecond, service.Budget{})
		v.Service.Variants, v.Service.Goal.Percentile = v.Service.Variants[:1], 99
		v.Service.Variants[0].Startup = 4 * v.Period
		each := v.sustained(&v.Service.Variants[0], cluster.Whole)
		p := policy(t, "muster")
		for k := range 100 {
			part := 0.9
			if k == 30 || k == 60 { // too seldom for the margin of a service that keeps its goal
				part = 1.6
			}
			v.Now, v.Ready, v.Coming = cluster.Time(k)*cluster.Time(v.Period), []int{1}, []int{0}
			v.Arrived = int64(part * each * v.Period.Seconds())
			v.Missed = missed * float64(v.Arrived)
			if n := p.Decide(v)[0]; k > 80 { // the last burst is over
				most = max(most, n)
			}
		}
		return most
	}
	if n := decide(0); n != 1 {
		t.Errorf("%d replicas where the goal is kept", n)
	}
	if n := decide(0.05); n < 2 {
		t.Errorf("%d replicas where it is missed", n)
	}
}

// TestRamp: where an uneven rate rises for a while, another replica is asked for before those that there are are full.
func TestRamp(t *testing.T) {
	v := three(100*time.Millisecond, service.Budget{})
	v.Service.Variants = v.Service.Variants[:1]
	v.Service.Variants[0].Startup = time.Minute
	each := v.sustained(&v.Service.Variants[0], cluster.Whole)
	p := policy(t, "muster")
	most := 0.0
	for k := range 120 {
		v.Now, v.Ready, v.Coming = cluster.Time(k)*cluster.Time(v.Period), []int{1}, []int{0}
		part := (0.4 + 0.006*float64(k)) * (1 + 0.1*float64(k%2*2-1))
		most = max(most, part)
		v.Arrived = int64(part * each * v.Period.Seconds())
		if p.Decide(v)[0] > 1 {
			break
		}
	}
	if most > 0.97 {
		t.Errorf("another replica is asked for at %.2f of what one sustains", most)
	}
}

// TestKept: what is not needed any more stays for twice the time that it takes to start, but starts no other.
func TestKept(t *testing.T) {
	v := three(100*time.Millisecond, service.Budget{})
	v.Service.Variants = v.Service.Variants[:1]
	v.Service.Variants[0].Startup = time.Minute
	each := v.sustained(&v.Service.Variants[0], cluster.Whole)
	p := policy(t, "muster")
	play := func(k int, part float64, have int) int {
		v.Now, v.Ready, v.Coming = cluster.Time(k)*cluster.Time(v.Period), []int{have}, []int{0}
		v.Arrived = int64(part * each * v.Period.Seconds())
		return p.Decide(v)[0]
	}
	for k := range 40 {
		play(k, 0.3, 1)
	}
	if n := play(40, 2.5, 1); n != 3 {
		t.Fatalf("%d for 2.5 times what one sustains", n)
	}
	until := int(2 * time.Minute / v.Period)
	for k := 41; k < 40+until; k++ {
		if n := play(k, 0.3, 2); n != 2 { // the third failed
			t.Errorf("%d of two replicas %d periods after a burst", n, k-40)
		}
	}
	for k := 40 + until; k < 80; k++ {
		play(k, 0.3, 2)
	}
	if n := play(80, 0.3, 2); n != 1 {
		t.Errorf("%d long after it", n)
	}
}
