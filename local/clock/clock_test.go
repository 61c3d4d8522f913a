package clock

import (
	"testing"
	"time"
)

// Steps of the wall clock become slopes of a tenth; time never falls.
func TestClock(t *testing.T) {
	wall := time.Now()
	c := New(func() time.Time { return wall })
	c.Start(0)
	for _, set := range []struct {
		by, take time.Duration
	}{{time.Hour, 110 * time.Second}, {-time.Hour, 90 * time.Second}} {
		c.Skew(set.by)
		begin := c.Now()
		last := begin
		for range 100 {
			wall = wall.Add(time.Second)
			now := c.Now()
			if now < last {
				t.Fatal("time falls")
			}
			last = now
		}
		if got := last.Sub(begin); got != set.take {
			t.Errorf("set by %v, 100 s take %v instead of %v", set.by, got, set.take)
		}
	}
	last := c.Now()
	if wall = wall.Add(-time.Second); c.Now() < last {
		t.Error("an older reading makes time fall")
	}
}
