package policy

import (
	"math"
	"math/rand/v2"
	"testing"
	"time"
)

// E-LAS, ICPP'20, test vectors with T0=1s: GPU-seconds times seconds.
func TestELASIndex(t *testing.T) {
	total, remaining := &eLASPolicy{beta: 1000}, &eLASPolicy{beta: 1000, remaining: true}
	for _, c := range []struct {
		gpus, ran int64
		done      float64
		total     float64
		remaining float64
	}{
		{1, 10, 0.5, 200, 100}, {1, 10, 0.1, 1000, 900}, {4, 10, 0.5, 800, 400}, {1, 0, 0, 0, 0}, {1, 10, 0, 10, 10},
		{1, 100, 0.95, 10526, 526},
		{1, 100, 1, 10101, 101}, // p is capped at 0.99 until the job ends
	} {
		work := 1000 * time.Second
		a, ran, done := c.gpus*c.ran*gpuSecond, time.Duration(c.ran)*time.Second, time.Duration(c.done*float64(work))
		for p, want := range map[*eLASPolicy]float64{total: c.total, remaining: c.remaining} {
			if got := float64(p.index(a, ran, done, work, time.Second)) / gpuSecond; math.Abs(got-want) > 0.5 {
				t.Errorf("%+v, remaining %v: %v, want %v", c, p.remaining, got, want)
			}
		}
	}
	if got := (&eLASPolicy{beta: 2500}).index(4*gpuSecond, time.Second, 0, time.Hour,
		time.Second); got != 10*gpuSecond {
		t.Errorf("without progress it is %d, want service times beta", got)
	}
}

// The index is never negative, increases with GPUs, decreases with progress and is 0 for new jobs,
// also at the largest numbers.
func TestELASOrder(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	for range 5000 {
		p := &eLASPolicy{beta: 1000, remaining: r.IntN(2) == 0}
		ran, work := time.Duration(r.Int64N(1<<r.IntN(61)+1)), time.Duration(1+r.Int64N(1<<r.IntN(61)))
		done, unit := time.Duration(r.Int64N(int64(work)+1)), time.Duration(1+r.Int64N(1<<r.IntN(50)))
		a := r.Int64N(1<<r.IntN(58) + 1)
		got, wider := p.index(a, ran, done, work, unit), p.index(4*a, ran, done, work, unit)
		if got < 0 || wider < got || p.index(0, 0, done, work, unit) != 0 {
			t.Fatalf("index(%d %v %v %v %v) = %d, four times as wide %d", a, ran, done, work, unit, got, wider)
		}
		if further := p.index(a, ran, done+(work-done)/2, work, unit); done > 0 && further > got {
			t.Fatalf("index(%d %v %v %v %v) = %d, further on %d", a, ran, done, work, unit, got, further)
		}
	}
}

// If all jobs are equally fast, the order is that of attained service (E-LAS, ICPP'20).
func TestELASIsLAS(t *testing.T) {
	r := rand.New(rand.NewPCG(5, 6))
	p := &eLASPolicy{beta: 1000}
	for range 2000 {
		var service, index [2]int64
		for i := range service {
			ran := time.Duration(1+r.IntN(1000)) * time.Second
			service[i] = int64(1+r.IntN(64)) * int64(ran/time.Second) * gpuSecond
			index[i] = p.index(service[i], ran, ran, 3000*time.Second, time.Second) // a second of work per second
		}
		if (service[0] < service[1]) != (index[0] < index[1]) && service[0] != service[1] {
			t.Fatalf("service %v, index %v", service, index)
		}
	}
}
