package scale

import (
	"testing"
	"time"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/service"
)

// auto is a service whose replicas may have any part of a GPU (gpus: auto), with a goal of 50 ms.
func auto(t *testing.T) *service.Service {
	t.Helper()
	s := parted(1, 1, 2, service.Use{}, 50*ms)
	if err := s.Variants[0].Choose(s); err != nil {
		t.Fatal(err)
	}
	return s
}

// have are replicas that answer, in hundredths of a GPU.
func have(percent ...int) (list []Replica) {
	for _, p := range percent {
		list = append(list, Replica{Kind: Kind{0, cluster.Milli(p) * 10}, Answers: true})
	}
	return list
}

// TestFound: what a controller finds when it begins stays until rates are known, under every policy.
func TestFound(t *testing.T) {
	s := auto(t)
	for _, k := range List() {
		p := policy(t, k.Name)
		if _, ok := p.(*distserve); ok {
			continue
		}
		v := seen(s, time.Hour, 0, 8)
		v.Period, v.Arrived = 0, 0
		v.Count(have(50, 30, 30))
		if got := text(Decide(p, []*View{v})); got != "50x1 30x2" {
			t.Errorf("%s: %s of what was found", k.Name, got)
		}
	}
}

// TestSizes: muster gives replicas the part of a GPU that the rate needs, with some to spare: a larger one at once when
// the rate rises, a smaller one only after the window; replicas that run stay beside a further one where that is hardly
// dearer; nothing changes where sizes are fixed.
func TestSizes(t *testing.T) {
	s := auto(t)
	sum := func(list []Want) (rate float64, share cluster.Milli) {
		d := demand{service: s, profile: s.Variants[0].Profile}
		for _, w := range list {
			rate += float64(w.Replicas) * d.sustained(w.Share)
			share += cluster.Milli(w.Replicas) * w.Share
		}
		return rate, share
	}
	p := policy(t, "muster:spare=0.3,window=60s")
	now := time.Minute
	at := func(rate float64, there []Replica) []Want {
		now += 10 * time.Second
		v := seen(s, now, rate, 8)
		v.Count(there)
		return Decide(p, []*View{v})[0]
	}
	first := at(0, nil)
	if n, _ := sum(first); n == 0 {
		t.Fatalf("%v at the beginning", first)
	}
	there := func(list []Want) (of []Replica) {
		for _, w := range list {
			for range w.Replicas {
				of = append(of, Replica{Kind: w.Kind, Answers: true})
			}
		}
		return of
	}
	low := first
	for range 60 { // until predictions are known to be right
		low = at(100, there(low))
	}
	if rate, share := sum(low); rate < 100*1.2 || rate > 100*1.8 || share >= cluster.Whole/2 {
		t.Errorf("100/s are served by %v, for %g/s", low, rate)
	}
	high := at(900, there(low))
	if rate, _ := sum(high); rate < 900 {
		t.Errorf("900/s by %v, for %g/s", high, rate)
	}
	if still := at(100, there(high)); text([][]Want{still}) != text([][]Want{high}) {
		t.Errorf("as soon as the rate has fallen: %v, not %v", still, high)
	}
	last := high
	for range 120 {
		last = at(100, there(last))
	}
	if _, share := sum(last); share >= cluster.Whole/2 {
		t.Errorf("20 minutes later: %v", last)
	}
	v := seen(s, now+10*time.Second, 100, 8)
	v.Fixed = true
	v.Ready = []int{1}
	if got := Decide(policy(t, "muster"), []*View{v})[0]; len(got) != 1 || got[0].Share != s.Variants[0].Share() {
		t.Errorf("where sizes are fixed: %v", got)
	}
}

// TestSizesAfford: beside what runs comes nothing that the budget does not allow.
func TestSizesAfford(t *testing.T) {
	s := auto(t)
	v := seen(s, time.Minute, 0, 8)
	v.sizing = true
	now := []Want{{Kind{0, 500}, 1}}
	d := demand{service: s, profile: s.Variants[0].Profile}
	rate := d.sustained(500) + d.sustained(200)
	if more := v.adapted(now, rate, 1); more == nil || text([][]Want{more}) == "50x1" {
		t.Errorf("%v for more than a half sustains", more)
	}
	s.Budget.PerHour = 0.6
	if more := v.adapted(now, rate, 1); more != nil {
		t.Errorf("%v with a budget of 0.6 an hour", more)
	}
	s.Budget.PerHour, s.Replicas.Max = 0, 1
	if more := v.adapted(now, rate, 1); more != nil {
		t.Errorf("%v, and one replica is permitted", more)
	}
}
