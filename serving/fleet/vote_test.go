package fleet

import (
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/requests"
	"github.com/muster-gpu/muster/service"
)

// pair is a service with variants that take 6 and 20 ms, and an ensemble's accuracy of 0.6 for the first alone, 0.7 for
// the second, 0.9 for both.
func pair() ([]service.Service, func(voted uint64) float64) {
	s := matrix("")
	slow := s.Variants[0]
	slow.Name, slow.Profile = "slow", nil
	for _, p := range s.Variants[0].Profile {
		p.Latency += 14 * ms
		slow.Profile = append(slow.Profile, p)
	}
	s.Variants = append(s.Variants, slow)
	return []service.Service{s}, func(voted uint64) float64 { return []float64{0, 0.6, 0.7, 0.9}[voted] }
}

// TestVotes: an answer takes as long as the slowest member, and is as accurate as the members together; what comes
// before there is a member waits for one; after one has left, the other decides alone.
func TestVotes(t *testing.T) {
	services, accuracy := pair()
	f, err := New(services, requests.Draw(&requests.Arrivals{Rate: 10, For: 30 * time.Second}, 0))
	if err != nil {
		t.Fatal(err)
	}
	f.Ensemble(0, accuracy)
	until := func(s float64) {
		t.Helper()
		if err := f.Advance(cluster.Time(s * 1e9)); err != nil {
			t.Fatal(err)
		}
	}
	until(0.25)
	if n := f.Waiting(0); n != 2 {
		t.Errorf("%d wait for a member, want 2", n)
	}
	fast, _ := f.Add(0, 0, alone)
	slow, _ := f.Add(0, 1, alone)
	f.Observe(0)
	until(10.05)
	got := f.Observe(0)
	if p := got.Latency.Quantile(0.5); p < 20*ms || p > 21*ms || got.Dropped > 2 {
		t.Errorf("%v in the median, %d dropped", p, got.Dropped)
	}
	if a := f.Accuracy(0); math.Abs(a-0.9) > 0.011 {
		t.Errorf("an accuracy of %g, want 0.9", a)
	}
	f.Drain(slow)
	until(20.05)
	if p := f.Observe(0).Latency.Quantile(1); p > 7*ms {
		t.Errorf("%v with the fast member alone", p)
	}
	f.Drain(fast)
	until(25)
	if n := f.Waiting(0); n < 45 {
		t.Errorf("%d wait without a member", n)
	}
}

// TestVotesConserved: whatever happens to members, each request is answered once, or dropped, refused or still there.
func TestVotesConserved(t *testing.T) {
	for seed := range uint64(30) {
		services, accuracy := pair()
		services[0].Batching.Waiting = 50
		f, err := New(services, requests.Draw(
			&requests.Arrivals{Rate: 3000, CV: 2, For: 4 * time.Second, Seed: seed}, 0))
		if err != nil {
			t.Fatal(err)
		}
		f.Ensemble(0, accuracy)
		r := rand.New(rand.NewPCG(seed, 1))
		var ids []int
		for at := cluster.Time(0); at < cluster.Time(8*time.Second); at += cluster.Time(r.IntN(int(200 * ms))) {
			if err := f.Advance(at); err != nil {
				t.Fatal(err)
			}
			switch k := r.IntN(4); {
			case k < 2 || len(ids) == 0:
				id, err := f.Add(0, k%2, alone)
				if err != nil {
					t.Fatal(err)
				}
				ids = append(ids, id)
			case k == 2:
				f.Drain(ids[r.IntN(len(ids))])
			default:
				f.Remove(ids[r.IntN(len(ids))])
			}
		}
		for _, id := range ids {
			f.Remove(id)
		}
		got := f.Total(0)
		if sum := got.Answered + got.Dropped + got.Refused + int64(f.Waiting(0)); sum != got.Arrived ||
			got.Answered == 0 || len(f.services[0].ensemble.free) != len(f.services[0].ensemble.ballots) {
			t.Fatalf("seed %d: %d of %d: %+v", seed, sum, got.Arrived, got)
		}
		if a := f.Accuracy(0); a < 0.6 || a > 0.9 {
			t.Errorf("seed %d: an accuracy of %g", seed, a)
		}
	}
}
