package fleet

import (
	"testing"
	"time"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/requests"
	"github.com/muster-gpu/muster/service"
)

// TestCanary: a canary has its part of the requests, to the request, while it and others take any; what waits for a
// part that has no replica left is answered by the other.
func TestCanary(t *testing.T) {
	s := []service.Service{matrix("")}
	s[0].Goal.Latency = time.Hour
	s[0].Variants, s[0].Canary = append(s[0].Variants, s[0].Variants[0]), 0.25
	f, err := New(s, requests.Draw(&requests.Arrivals{Rate: 1000, For: time.Second}, 0))
	if err != nil {
		t.Fatal(err)
	}
	advance := func(to time.Duration) {
		t.Helper()
		if err := f.Advance(cluster.Time(to)); err != nil {
			t.Fatal(err)
		}
	}
	advance(99500 * time.Microsecond)
	if f.Waiting(0) != 99 {
		t.Errorf("%d wait for a first replica", f.Waiting(0))
	}
	usual := add(t, f, 0)
	new, err := f.Add(0, 1, alone)
	if err != nil {
		t.Fatal(err)
	}
	advance(499500 * time.Microsecond)
	if got, _ := f.Canary(0); got.Arrived != 100 {
		t.Errorf("the canary had %d of 400", got.Arrived)
	}
	f.Drain(usual)
	f.Drain(new)
	advance(599500 * time.Microsecond)
	if f.Waiting(0) < 100 {
		t.Errorf("%d wait without replicas", f.Waiting(0))
	}
	add(t, f, 0)
	advance(time.Minute)
	got, canary := f.Total(0), f.services[0].canary
	if got.Answered != 999 || got.Arrived != 999 || f.Waiting(0) != 0 || f.services[canary.parts[1]].queue.Len() != 0 {
		t.Errorf("%+v; %d wait", got, f.Waiting(0))
	}
}
