package share

import (
	"testing"
	"time"
)

// AntMan's vector (OSDI'20): 100 ms a step alone, 5 % may be lost. 102 ms: a tenth more; 120 ms:
// half. All of the time is the most.
func TestNextDuty(t *testing.T) {
	const eps = 50_000
	floor := int64(1_000_000 * 1_000_000 / (1_000_000 + eps))
	for _, c := range []struct{ duty, ms, want int }{
		{500, 102, 600}, {600, 120, 300}, {1000, 102, 1000}, {1000, 120, 500}, {950, 100, 1000},
		{15, 120, 10}, {10, 200, 10},
	} {
		if got := NextDuty(c.duty, int64(100*1_000_000/c.ms), floor); got != c.want {
			t.Errorf("from %d, at %d ms a step: %d; want %d", c.duty, c.ms, got, c.want)
		}
	}
}

// A job that loses all the more the longer its guest runs is brought to where it loses
// what it may, and stays about there.
func TestDutySettles(t *testing.T) {
	const floor, beside = 950_000, 600_000 // it would keep 0.6 beside a guest that runs all the time
	duty, sum, low := FullDuty, 0, 0
	for n := range 400 {
		rate := int64(1_000_000 - (1_000_000-beside)*duty/FullDuty)
		duty = NextDuty(duty, rate, floor)
		if n >= 100 {
			sum += duty
			if rate < floor {
				low++
			}
		}
	}
	if mean := sum / 300; mean < 80 || mean > 160 { // 125 is what keeps 0.95
		t.Errorf("the guest runs %d thousandths of the time on the mean", mean)
	}
	if low > 150 {
		t.Errorf("its speed was too low %d times of 300", low)
	}
}

func TestWindow(t *testing.T) {
	w := Window{}
	for _, c := range []struct {
		run  int
		step float64
		at   time.Duration
		rate int64
		ok   bool
	}{
		{1, 10, 10 * time.Second, 0, false},
		{1, 15, 11 * time.Second, 0, false}, // too early
		{1, 20, 12 * time.Second, 500_000, true},
		{1, 40, 14 * time.Second, 1_000_000, true},
		{1, 30, 15 * time.Second, 0, false}, // back to a checkpoint
		{2, 50, 20 * time.Second, 0, false},
	} {
		if r, ok := w.Speed(c.run, c.step, c.at, 10); r != c.rate || ok != c.ok {
			t.Errorf("step %v at %v: %d, %v; want %d, %v", c.step, c.at, r, ok, c.rate, c.ok)
		}
	}
}
