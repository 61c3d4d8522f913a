package scale

import (
	"math"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/service"
)

func view(now time.Duration, ready int, busy float64) *View {
	s := &service.Service{Replicas: service.Replicas{Min: 1, Max: 100}, Variants: make([]service.Variant, 1)}
	return &View{Now: cluster.Time(now), Period: 15 * time.Second, Service: s, Ready: []int{ready}, Coming: []int{0},
		Arrived: 10, Busy: time.Duration(busy * float64(ready) * float64(15*time.Second))}
}

func policy(t *testing.T, text string) Policy {
	t.Helper()
	p, err := New(text)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// TestHPA: four at 0.9 of a target of 0.6 become six; 1.05 of it is within the tolerance; less only after the window.
func TestHPA(t *testing.T) {
	p := policy(t, "hpa:target=0.6")
	if got := p.Decide(view(0, 4, 0.9))[0]; got != 6 {
		t.Errorf("4 at 0.9: %d, want 6", got)
	}
	if got := policy(t, "hpa:target=0.6").Decide(view(0, 4, 0.63))[0]; got != 4 {
		t.Errorf("4 at 0.63: %d, want 4", got)
	}
	for load, want := range map[float64]int{0.84: 4, 0.87: 4, 0.89: 5} { // over 0.8: 1.05, 1.0875 and 1.1125
		if got := policy(t, "hpa:target=0.8").Decide(view(0, 4, load))[0]; got != want {
			t.Errorf("4 at %g of 0.8: %d, want %d", load, got, want)
		}
	}
	for now := 15 * time.Second; now <= 10*time.Minute; now += 15 * time.Second {
		want := 6
		if now >= 5*time.Minute {
			want = 2
		}
		if got := p.Decide(view(now, 6, 0.2))[0]; got != want {
			t.Fatalf("6 at 0.2 after %v: %d, want %d", now, got, want)
		}
	}
	w := policy(t, "hpa:metric=waiting")
	v := view(0, 2, 0)
	v.Waiting = 23
	if got := w.Decide(v)[0]; got != 5 {
		t.Errorf("23 waiting at 5 each: %d, want 5", got)
	}
	none := view(0, 0, 0)
	none.Service.Replicas.Min = 0
	if got := policy(t, "hpa").Decide(none)[0]; got != 1 {
		t.Errorf("from zero: %d, want 1", got)
	}
	none.Arrived = 0
	if got := policy(t, "hpa").Decide(none)[0]; got != 0 {
		t.Errorf("nothing to do: %d, want 0", got)
	}
}

// TestHPAMetrics: the memory for keys and values in use, requests for each, and of several metrics the one that needs
// most. Replicas that do not say it count as Kubernetes counts them; if none does, there are not fewer.
func TestHPAMetrics(t *testing.T) {
	for _, c := range []struct {
		text          string
		memory        float64
		tell, waiting int
		arrived       int64
		want          int
	}{
		{"hpa:metric=kv", 0.96, 4, 0, 0, 5}, // 4.8
		{"hpa:metric=kv", 0.84, 4, 0, 0, 4}, // within the tolerance
		{"hpa:metric=kv", 0.4, 4, 0, 0, 2},
		{"hpa:metric=kv", 0.4, 2, 0, 0, 3},  // the others use 0.8
		{"hpa:metric=kv", 0.96, 2, 0, 0, 4}, // ... none: 0.48 in the mean is no reason for fewer
		{"hpa:metric=kv", 0, 0, 0, 0, 4},
		{"hpa:metric=kv,target=0.5", 0.75, 4, 0, 0, 6},
		{"hpa:metric=kv/waiting", 0.4, 4, 28, 0, 6},                // 28 of 5 each
		{"hpa:metric=kv/waiting", 0.96, 4, 2, 0, 5},                // the memory needs more
		{"hpa:metric=kv/waiting,target=0.6/10", 0.96, 4, 28, 0, 7}, // 6.4
		{"hpa:metric=rate,target=20", 0, 0, 0, 15 * 120, 6},
	} {
		v := view(0, 4, 0)
		v.Memory, v.Tell, v.Waiting, v.Arrived = c.memory, c.tell, c.waiting, c.arrived
		p := policy(t, c.text+map[bool]string{true: ",", false: ":"}[strings.Contains(c.text, ":")]+"window=0s")
		if got := p.Decide(v)[0]; got != c.want {
			t.Errorf("%s: %g of the memory of %d, %d waiting, %d arrived: %d, want %d", c.text, c.memory, c.tell,
				c.waiting, c.arrived, got, c.want)
		}
		if blind := Says(p) != ""; blind != (c.tell == 0 && c.arrived == 0) {
			t.Errorf("%s, %d tell: %q", c.text, c.tell, Says(p))
		}
	}
	s := &view(0, 1, 0).Service
	if err := Check(policy(t, "hpa:metric=kv"), *s); err == nil || !strings.Contains(err.Error(), "language models") {
		t.Errorf("a model without such a memory: %v", err)
	}
	if err := Check(policy(t, "hpa:metric=waiting"), *s); err != nil {
		t.Error(err)
	}
}

// TestStatic: always the same, within the service's bounds.
func TestStatic(t *testing.T) {
	for text, want := range map[string]int{"static": 100, "static:replicas=7": 7, "static:replicas=700": 100} {
		if got := policy(t, text).Decide(view(0, 1, 1))[0]; got != want {
			t.Errorf("%s: %d, want %d", text, got, want)
		}
	}
}

// TestNames: unknown names and values are errors.
func TestNames(t *testing.T) {
	for text, want := range map[string]string{"fast": `unknown scaling policy "fast"`,
		"hpa:metric=x":  `unknown metric "x"`,
		"hpa:target=-1": "want a number", "hpa:window=x": "window", "static:replicas=-1": "want a number",
		"hpa:speed=1": "knob", "hpa:metric=rate": "say with target",
		"hpa:metric=kv,target=80":          "is a part, such as 0.8",
		"hpa:metric=kv/waiting,target=0.8": "want a number for each of kv/waiting", "hpa:metric=kv/": "unknown metric",
		"hpa:metric=kv/waiting,target=0.8/x": "want a number", "hpa:target=NaN": "want a number"} {
		if _, err := New(text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %s", text, err, want)
		}
	}
}

// TestCover: types A (price 1, 100/s) and B (2.5, 300/s): 350/s costs 3.5 with one of each, 4 with A alone, 5 with B.
func TestCover(t *testing.T) {
	list := []option{{Kind{}, 100, 1, 10}, {Kind{Variant: 1}, 300, 2.5, 10}}
	for rate, want := range map[float64][2]int{350: {1, 1}, 100: {1, 0}, 101: {2, 0}, 300: {0, 1}, 600: {0, 2},
		0: {0, 0}} {
		if got := cover(list, rate, 100); got == nil || [2]int(got) != want {
			t.Errorf("%g/s: %v, want %v", rate, got, want)
		}
	}
	if got := cover(list, 5000, 4); got != nil {
		t.Errorf("beyond what four can do: %v", got)
	}
	r := rand.New(rand.NewPCG(6, 6))
	for range 300 { // against every combination
		var list []option
		for k := range 1 + r.IntN(3) {
			list = append(list, option{Kind{Variant: k}, float64(1 + r.IntN(20)), float64(1+r.IntN(40)) / 4, 1000})
		}
		rate := float64(1 + r.IntN(100))
		best := math.Inf(1)
		var try func(k int, sum, cost float64)
		try = func(k int, sum, cost float64) {
			if sum >= rate {
				best = min(best, cost)
				return
			}
			if k < len(list) && cost < best {
				try(k, sum+list[k].rate, cost+list[k].cost)
				try(k+1, sum, cost)
			}
		}
		try(0, 0, 0)
		cost, sum := 0.0, 0.0
		for k, n := range cover(list, rate, 1000) {
			cost, sum = cost+float64(n)*list[k].cost, sum+float64(n)*list[k].rate
		}
		if sum < rate || cost > best+1e-9 {
			t.Fatalf("%v at %g/s: cost %g for %g/s, the best costs %g", list, rate, cost, sum, best)
		}
	}
}

// TestIdle: where nothing may run, the last replica stays until there was no request for the time that the policy is
// given, however short its window is.
func TestIdle(t *testing.T) {
	v := three(100*time.Millisecond, service.Budget{})
	p, err := New("muster:window=10s,idle=5m")
	if err != nil {
		t.Fatal(err)
	}
	v.Ready = []int{1, 0, 0}
	for k := range 30 {
		v.Now, v.Arrived = cluster.Time(time.Hour)+cluster.Time(k)*cluster.Time(15*time.Second), 0
		if k == 0 {
			v.Arrived = 15
		}
		want := 1
		if k >= 20 {
			want = 0
		}
		if got := p.Decide(v); got[0] != want || got[1]+got[2] != 0 {
			t.Fatalf("%v after %d s without requests, not %d", got, 15*k, want)
		}
	}
}
