package scale

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/service"
)

// parted is a service whose batches of b take (each*b + fixed)/x ms on the part x of a GPU, measured on every
// twentieth. Its name is its number.
func parted(id int, each, fixed float64, use service.Use, goal time.Duration) *service.Service {
	v := service.Variant{Name: "v", Request: cluster.Request{GPUs: 1}, Use: use}
	for share := cluster.Milli(50); share <= cluster.Whole; share += 50 {
		for b := 1; b <= 64; b++ {
			ms := (each*float64(b) + fixed) * 1000 / float64(share)
			v.Profile = append(v.Profile, service.Point{Share: share, Batch: b,
				Latency: time.Duration(ms*float64(time.Millisecond) + 0.5)})
		}
	}
	return &service.Service{Name: fmt.Sprint(id), Goal: service.Goal{Latency: goal, Percentile: 99},
		Replicas: service.Replicas{Max: 20}, Variants: []service.Variant{v}}
}

// seen is a view of a service at a rate.
func seen(s *service.Service, now time.Duration, rate float64, gpus int) *View {
	const period = 10 * time.Second
	return &View{Now: cluster.Time(now), Period: period, Service: s, Arrived: int64(rate * period.Seconds()),
		Ready: []int{0}, Coming: []int{0}, GPUs: []GPUs{{"A100-80GB", gpus, 0}}}
}

// text is replicas as SHARE%xNUMBER, by service.
func text(list [][]Want) string {
	var parts []string
	for _, wants := range list {
		part := ""
		for _, w := range wants {
			part += fmt.Sprintf(" %gx%d", float64(w.Share)/10, w.Replicas)
		}
		parts = append(parts, strings.TrimSpace(part))
	}
	return strings.Join(parts, ", ")
}

const ms = time.Millisecond

// TestInSS: the vectors of InSS' solver: the shares of W1 to W7.
func TestInSS(t *testing.T) {
	type s struct {
		each, fixed, slowed, memory, rate float64
		goal                              time.Duration
	}
	for name, c := range map[string]struct {
		services []s
		want     string
	}{
		"W1": {[]s{{2, 0, .2, .5, 200, 60}, {2, 0, .2, .5, 200, 60}}, "45x1, 45x1"},
		"W2": {[]s{{2, 0, .2, .5, 250, 60}, {2, 0, .2, .5, 250, 60}}, "50x1, 50x1"},
		"W3": {[]s{{1, 2, .5, .8, 300, 40}, {1, 2, .5, .8, 300, 40}, {1, 2, .1, .2, 100, 40}}, "50x1, 45x1, 25x1"},
		"W4": {[]s{{2, 4, .3, .6, 150, 100}, {.5, 1, .2, .3, 400, 20}, {1, 1, .4, .5, 100, 30},
			{3, 2, .2, .4, 60, 120}},
			"45x1, 35x1, 25x1, 25x1"},
		"W5": {[]s{{1, 0, .2, .5, 500, 50}, {1, 0, .2, .5, 450, 50}, {1, 0, .2, .5, 350, 50}, {1, 0, .2, .5, 300, 50},
			{1, 0, .2, .5, 200, 50}}, "55x1, 50x1, 40x1, 35x1, 20x1"},
		"W6": {[]s{{1, 4, .3, .5, 120, 40}, {1, 4, .3, .5, 120, 40}, {2, 2, .3, .5, 80, 80}, {.5, 2, .2, .4, 200, 30},
			{1, 2, .2, .4, 150, 40}, {2, 4, .4, .6, 60, 100}}, "40x1, 40x1, 30x1, 35x1, 35x1, 25x1"},
		"W7, on a whole GPU although that is too slow": {[]s{{4, 10, .2, .5, 50, 12}}, "100x1"},
	} {
		var views []*View
		for i, x := range c.services {
			spec := parted(i+1, x.each, x.fixed, service.Use{Memory: x.memory, Slowed: x.slowed}, x.goal*ms)
			views = append(views, seen(spec, 0, x.rate, 8))
		}
		if name[:2] == "W7" { // it is faster than its goal alone, but no two of its batches are
			views[0].Service.Goal.Latency = 20 * ms
		}
		if got := text(Decide(policy(t, "inss:over=0"), views)); got != c.want {
			t.Errorf("%s: %s, want %s", name, got, c.want)
		}
	}
}

// TestNexus: Nexus' vectors: sessions of 300/s have 0.371 of the cycle and get 40 % each, on which their batches are as
// fast as their rate needs; 2000/s saturate two GPUs, and 200/s are left.
func TestNexus(t *testing.T) {
	for _, c := range []struct {
		rates []float64
		want  string
	}{
		{[]float64{300}, "40x1"}, {[]float64{300, 300, 300}, "40x1, 40x1, 40x1"}, {[]float64{2000}, "100x2 30x1"},
	} {
		var views []*View
		for i, rate := range c.rates {
			views = append(views, seen(parted(i, 1, 5, service.Use{}, 100*ms), 0, rate, 8))
		}
		if got := text(Decide(policy(t, "nexus:over=0"), views)); got != c.want {
			t.Errorf("%v: %s, want %s", c.rates, got, c.want)
		}
	}
}

// TestGpulet: a batch of 16 saturates half of a GPU at 800/s: 700/s get a half. Two that slow each other down by 1.255
// do not carry it on one half each, and get two.
func TestGpulet(t *testing.T) {
	halves := func(id int, memory float64) *service.Service {
		s := parted(id, 0.5, 2, service.Use{Compute: .5, Memory: memory}, 40*ms)
		v := &s.Variants[0]
		var p service.Profile
		for _, x := range v.Profile {
			if x.Share == 1000 {
				x.Latency = x.Latency * 5 / 3 // 1.2 times as fast as a half
			}
			if x.Share%500 == 0 {
				p = append(p, x)
			}
		}
		v.Profile = p
		return s
	}
	if d := (demand{service: halves(1, 0), profile: halves(1, 0).Variants[0].Profile}); d.sustained(500) != 800 {
		t.Errorf("half of a GPU sustains %g/s, want 800", d.sustained(500))
	}
	for text2, want := range map[string]string{"gpulet:over=0": "50x1, 50x1",
		"gpulet:over=0,interference=0.1/0.2/0.3/0.4/1": "50x2, 50x2"} {
		views := []*View{seen(halves(1, .4), 0, 700, 4), seen(halves(2, .6), 0, 700, 4)}
		if got := text(Decide(policy(t, text2), views)); got != want {
			t.Errorf("%s: %s, want %s", text2, got, want)
		}
	}
	for text, want := range map[string]string{"gpulet:interference=1": "5 weights",
		"gpulet:interference=a/1/1/1/1": `"a"`} {
		if _, err := New(text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", text, err)
		}
	}
}

// TestPlans: what holds for all planners: a plan stays while rates stay, shrinks after the window, is for less where
// there are too few GPUs, keeps a service's bounds, and ends where there are no requests.
func TestPlans(t *testing.T) {
	for _, name := range []string{"gpulet", "inss", "nexus"} {
		p := policy(t, name)
		a, b := parted(1, 1, 2, service.Use{}, 50*ms), parted(2, 2, 2, service.Use{}, 80*ms)
		at := func(now time.Duration, ra, rb float64, gpus int) [][]Want {
			return Decide(p, []*View{seen(a, now, ra, gpus), seen(b, now, rb, gpus)})
		}
		shares := func(list []Want) (n int, sum cluster.Milli) {
			for _, w := range list {
				n, sum = n+w.Replicas, sum+w.Share*cluster.Milli(w.Replicas)
			}
			return n, sum
		}
		first := at(time.Second, 300, 100, 4)
		if got := at(40*time.Second, 310, 98, 4); text(got) != text(first) {
			t.Errorf("%s: %s, with about the same rates %s", name, text(first), text(got))
		}
		higher := at(80*time.Second, 1200, 100, 4)
		if _, was := shares(first[0]); true {
			if _, now := shares(higher[0]); now <= was {
				t.Errorf("%s: %s, at four times the rate %s", name, text(first), text(higher))
			}
		}
		if got := at(120*time.Second, 300, 100, 4); text(got) != text(higher) {
			t.Errorf("%s: %s, as soon as the rate has fallen %s", name, text(higher), text(got))
		}
		if got := at(4*time.Minute, 300, 100, 4); text(got) != text(first) {
			t.Errorf("%s: %s at first, with the same rates again %s", name, text(first), text(got))
		}
		few := at(5*time.Minute, 9000, 4000, 2)
		_, sa := shares(few[0])
		if _, sb := shares(few[1]); sa+sb > 2*cluster.Whole+shareStep || sa == 0 || sb == 0 {
			t.Errorf("%s: %s on two GPUs", name, text(few))
		}
		a.Replicas = service.Replicas{Min: 3, Max: 3}
		if n, _ := shares(at(10*time.Minute, 300, 0, 4)[0]); n != 3 {
			t.Errorf("%s: %d replicas, of three", name, n)
		}
		if n, _ := shares(at(11*time.Minute, 9000, 0, 8)[0]); n != 3 {
			t.Errorf("%s: %d replicas, of three", name, n)
		}
		last := at(20*time.Minute, 0, 0, 4)
		if n, _ := shares(last[1]); n != 0 || len(last[1]) != 1 {
			t.Errorf("%s: %s long after the last request", name, text(last))
		}
		if n, _ := shares(last[0]); n != 3 {
			t.Errorf("%s: %s, of which the first has a least of three", name, text(last))
		}
	}
}

// TestPolicies: services with the same text of a planner share it; others have their own, and policies of single
// services are never shared.
func TestPolicies(t *testing.T) {
	var list []service.Service
	for i := range 5 {
		list = append(list, *parted(i, 1, 2, service.Use{}, 50*ms))
	}
	p, err := Policies(list, []string{"inss", "muster", "inss", "inss:over=0", "muster"})
	if err != nil || p[0] != p[2] || p[0] == p[3] || p[1] == p[4] {
		t.Errorf("%v %v", p, err)
	}
	wholeOnly := list[0]
	wholeOnly.Variants = []service.Variant{wholeOnly.Variants[0]}
	v := &wholeOnly.Variants[0]
	v.Profile = v.Profile[len(v.Profile)-64:]
	for text, want := range map[string]string{"inss": "measured on some", "best": "unknown scaling policy"} {
		_, err := Policies([]service.Service{wholeOnly}, []string{text})
		if err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), "service 0") {
			t.Errorf("%s: %v", text, err)
		}
	}
	if _, err := Policies([]service.Service{wholeOnly}, []string{"muster"}); err != nil {
		t.Error(err)
	}
}

// TestNoRoom: where a larger replica finds no room, the one that answers stays, and the rest gets a smaller one; a
// smaller one that finds none is not needed.
func TestNoRoom(t *testing.T) {
	s := parted(1, 1, 2, service.Use{}, 50*ms)
	p := policy(t, "inss:over=0")
	small := Decide(p, []*View{seen(s, time.Second, 100, 2)})[0]
	larger := Decide(p, []*View{seen(s, time.Minute, 500, 2)})[0]
	have := []Replica{{Kind: small[0].Kind, Answers: true}, {Kind: larger[0].Kind, Stuck: true}}
	v := seen(s, 2*time.Minute, 500, 2)
	v.Count(have)
	got := Decide(p, []*View{v})
	sum := cluster.Milli(0)
	for _, w := range got[0] {
		sum += w.Share * cluster.Milli(w.Replicas)
	}
	d := demand{service: s, profile: s.Variants[0].Profile}
	if len(got[0]) != 2 || got[0][0].Share >= larger[0].Share || got[0][1].Kind != small[0].Kind ||
		d.sustained(got[0][0].Share)+d.sustained(small[0].Share) < 500 {
		t.Errorf("%s answers, %s finds no room: %s", text([][]Want{small}), text([][]Want{larger}), text(got))
	}
	if add, leave := Change(got[0], have); len(add) != 1 || len(leave) != 1 || leave[0] != 1 {
		t.Errorf("add %v, leave %v", add, leave)
	}
	v = seen(s, 10*time.Minute, 100, 2)
	v.Count([]Replica{{Kind: larger[0].Kind, Answers: true}, {Kind: small[0].Kind, Stuck: true}})
	if got := Decide(p, []*View{v}); text(got) != text([][]Want{larger}) {
		t.Errorf("%s answers, %s finds no room: %s", text([][]Want{larger}), text([][]Want{small}), text(got))
	}
}
