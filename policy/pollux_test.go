package policy

import (
	"math"
	"slices"
	"testing"
	"time"
)

// TestRestartFactor: the vector of Pollux, OSDI'21, and the lower bound 0.
func TestRestartFactor(t *testing.T) {
	for _, c := range []struct {
		age, cost time.Duration
		restarts  int64
		want      float64
	}{
		{600 * time.Second, 30 * time.Second, 2, 540.0 / 630},
		{60 * time.Second, 30 * time.Second, 0, 60.0 / 90},
		{60 * time.Second, 30 * time.Second, 2, 0},
		{60 * time.Second, 30 * time.Second, math.MaxInt64, 0},
		{time.Hour, 0, math.MaxInt64, 1},
	} {
		if got := restartFactor(c.age, c.restarts, c.cost); math.Abs(got-c.want) > 1e-12 {
			t.Errorf("age %v, %d restarts of %v: %g, want %g", c.age, c.restarts, c.cost, got, c.want)
		}
	}
}

// TestSizes: the sizes include 0, the job's least and its present size, up to grow times the most
// it has had; no size in between is far from the next.
func TestSizes(t *testing.T) {
	for _, c := range []struct {
		grow                      int64
		least, most, largest, now int
		first, last               int
	}{
		{2, 1, 8, 0, 0, 1, 1}, {2, 3, 8, 0, 0, 3, 3}, {2, 1, 8, 3, 3, 1, 6}, {2, 1, 8, 7, 2, 1, 8},
		{3, 1, 8, 1, 1, 1, 3},
		{0, 1, 500, 0, 0, 1, 500}, {0, 2, 500, 77, 77, 2, 500}, {0, 4, 4, 0, 0, 4, 4}, {0, 2, 500, 499, 499, 2, 500},
	} {
		job := &resizable{claim: claim{now: c.now, least: c.least, most: c.most}, largest: c.largest}
		got := (&polluxRules{grow: c.grow}).sizesOf(job, nil)
		if got[0] != 0 || got[1] != c.first || got[len(got)-1] != c.last || !slices.Contains(got, c.now) {
			t.Errorf("%+v: sizes %v", c, got)
		}
		for i := 2; i < len(got); i++ {
			if step := got[i] - got[i-1]; step < 1 || step > 1+got[i]/16 {
				t.Errorf("%+v: after %d comes %d", c, got[i-1], got[i])
			}
		}
		if len(got) > 100 {
			t.Errorf("%+v: %d sizes", c, len(got))
		}
	}
}
