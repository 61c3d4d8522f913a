package scale

import (
	"testing"
	"time"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/service"
)

// TestRoom: where there are no GPUs for more replicas of the cheapest variant, others do what those cannot; after a
// while it is tried again. What none has room for waits.
func TestRoom(t *testing.T) {
	v := three(100*time.Millisecond, service.Budget{})
	s := v.Service
	s.Replicas = service.Replicas{Min: 2, Max: 8}
	p := policy(t, "muster:window=1s")
	now := time.Hour
	at := func(rate float64, have ...Replica) []int {
		now += 10 * time.Second
		v := seen(s, now, rate, 1)
		v.Count(have)
		return p.Decide(v)
	}
	of := func(variant int, stuck bool) Replica {
		return Replica{Kind: Kind{variant, cluster.Whole}, Answers: !stuck, Stuck: stuck}
	}
	small, mid, waits := of(0, false), of(1, false), of(0, true)
	for range 60 { // until predictions are known to be right
		if got := at(100, small, small); got[0] != 2 || got[1] != 0 {
			t.Fatalf("at first: %v", got)
		}
	}
	if got := at(1100, small, small); got[0] < 3 || got[1] != 0 {
		t.Fatalf("the small ones are the cheapest: %v", got)
	}
	if got := at(1100, small, small, waits); got[0] != 2 || got[1] == 0 {
		t.Errorf("there is no room for a third: %v", got)
	}
	now += retry - time.Minute
	if got := at(1100, small, small, mid, mid, mid); got[0] != 2 || got[1] == 0 {
		t.Errorf("others do what they cannot: %v", got)
	}
	now += time.Minute
	if got := at(1100, small, small, mid, mid, mid); got[0] < 3 {
		t.Errorf("it is tried again: %v", got)
	}
	if got := at(2500, small, small, waits, mid, of(1, true), of(2, true)); got[0] < 5 || got[1] != 1 {
		t.Errorf("for no variant there is room: %v", got)
	}
}
