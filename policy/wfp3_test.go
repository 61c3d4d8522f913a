package policy

import (
	"cmp"
	"math/rand/v2"
	"testing"
	"time"
)

// By hand: a job of 8 GPUs that waited an hour for a run of two: ∛8 · 1/2 = 1, and 8 · (1/2)³ = 1.
func TestWaitScore(t *testing.T) {
	const one = 10_000_000
	for _, c := range []struct {
		wait, left time.Duration
		milli      int64
		want       int64
	}{
		{time.Hour, 2 * time.Hour, 8000, one}, {time.Hour, time.Hour, 1000, one},
		{3 * time.Hour, 2 * time.Hour, 27_000, 4.5 * one}, {time.Hour, 4 * time.Hour, 125, one / 8},
		{0, time.Hour, 8000, 0}, {time.Second, 100 * 365 * 24 * time.Hour, 1000, 0},
	} {
		if got := waitScore(c.wait, c.left, c.milli); got != c.want {
			t.Errorf("%+v: %d", c, got)
		}
	}
	if got := waitScore(100*365*24*time.Hour, 0, 64_000_000); got <= 0 {
		t.Errorf("a job that is nearly done after a hundred years: %d", got)
	}
	r := rand.New(rand.NewPCG(2, 3))
	for range 2000 { // in the order of the formula
		var score [2]int64
		var formula [2]float64
		for i := range score {
			wait, left, gpus := 1+r.Int64N(1e6), 1+r.Int64N(1e6), 1+r.Int64N(4096)
			score[i] = waitScore(time.Duration(wait)*time.Second, time.Duration(left)*time.Second, gpus*1000)
			x := float64(wait) / float64(left)
			formula[i] = float64(gpus) * x * x * x
		}
		if ratio := formula[0] / formula[1]; (ratio < 0.999 || ratio > 1.001) &&
			cmp.Compare(score[0], score[1]) != cmp.Compare(formula[0], formula[1]) {
			t.Errorf("%v has the scores %v", formula, score)
		}
	}
}
