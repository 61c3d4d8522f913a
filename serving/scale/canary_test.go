package scale

import (
	"slices"
	"testing"
	"time"

	"github.com/muster-gpu/muster/service"
)

// The canary has the replicas that its part of the requests takes, none without others; the policy decides about the
// others as if it were not there, and together they stay within the bounds.
func TestCanary(t *testing.T) {
	s := parted(1, 1, 1, service.Use{}, 50*ms)
	canary := s.Variants[0]
	canary.Name = "new"
	s.Variants, s.Canary = append(s.Variants, canary), 0.1
	decide := func(policy string, rate float64) []Want {
		p, err := New(policy)
		if err != nil {
			t.Fatal(err)
		}
		v := seen(s, time.Minute, rate, 16)
		v.Ready, v.Coming = []int{2, 1}, []int{0, 0}
		v.Have = []Replica{{Kind: Kind{0, 1000}, Answers: true}, {Kind: Kind{1, 1000}, Answers: true}}
		return Decide(p, []*View{v})[0]
	}
	for replicas, want := range map[string][]int{"1": {1, 1}, "9": {9, 1}, "10": {10, 2}, "18": {17, 2}} {
		list := decide("static:replicas="+replicas, 10)
		if got := []int{list[0].Replicas, list[1].Replicas}; !slices.Equal(got, want) || list[1].Variant != 1 {
			t.Errorf("beside %s: %v, not %v", replicas, got, want)
		}
	}
	s.Replicas.Max = 8
	for _, policy := range []string{"muster", "mark", "infaas", "inss"} {
		list := decide(policy, 1e5)
		if n := list[0].Replicas; list[len(list)-1].Replicas != 1 || n < 1 || n > 7 {
			t.Errorf("%s: %+v", policy, list)
		}
	}
	v := seen(s, time.Minute, 10, 16)
	if list := v.withCanary([]Want{{Kind{0, 1000}, 0}}); list[1].Replicas != 0 {
		t.Errorf("without others: %+v", list)
	}
	if shown := v.stable(); shown.Arrived != 90 || v.Arrived != 100 || len(shown.Service.Variants) != 1 {
		t.Errorf("the policy is shown %d requests of %d", shown.Arrived, v.Arrived)
	}
}
