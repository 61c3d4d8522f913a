package policy

import (
	"math"
	"math/rand/v2"
	"testing"
	"time"
)

// The cost per end is that of the definition, quantum by quantum.
func TestCostPerEnd(t *testing.T) {
	// Half of the jobs take one more, half 99: trying for one costs 1 and succeeds every other
	// time.
	for _, c := range []struct{ thousandths, want int64 }{{0, 2}, {500, 2}, {501, 50}, {1000, 50}} {
		if got := costPerEnd([]sample{{99, 3}, {1, 3}}, c.thousandths); got != c.want {
			t.Errorf("quantum %d: %d, want %d", c.thousandths, got, c.want)
		}
	}
	r := rand.New(rand.NewPCG(4, 2))
	for range 2000 {
		list := make([]sample, 1+r.IntN(20))
		for i := range list {
			list[i] = sample{1 + r.Int64N(50), 1 + r.Int64N(4)}
		}
		part := r.Int64N(1001)
		want := math.Inf(1)
		for d := int64(1); d <= 51; d++ {
			all, ended, spent := 0., 0., 0.
			for _, s := range list {
				w := float64(s.weight)
				all += w
				spent += w * float64(min(s.beyond, d))
				if s.beyond <= d {
					ended += w
				}
			}
			if ended > 0 && ended*1000 >= float64(part)*all {
				want = min(want, spent/ended)
			}
		}
		if got := costPerEnd(list, part); got != int64(want+1e-9) {
			t.Fatalf("%v, quantum %d: %d, want %v", list, part, got, want)
		}
	}
}

func TestGittinsSteps(t *testing.T) {
	p := gittinsNearPolicy{base: time.Minute}
	for ran, want := range map[time.Duration][2]time.Duration{
		0: {0, time.Minute}, time.Minute - 1: {0, time.Minute}, time.Minute: {time.Minute, 2 * time.Minute},
		5 * time.Minute: {4 * time.Minute, 8 * time.Minute},
	} {
		if from, to := p.step(ran); from != want[0] || to != want[1] {
			t.Errorf("%v: %v to %v, want %v", ran, from, to, want)
		}
	}
}
