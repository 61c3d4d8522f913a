//go:build linux

package record

import (
	"testing"
	"time"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/engine"
)

// What an elastic job still holds of what it gives back is counted until it has
// left it.
func TestGivenBack(t *testing.T) {
	start := cluster.Time(1e18)
	var i Info
	step := func(after time.Duration, gone uint64) {
		if i.Record.Leaving = nil; gone != 0 {
			i.Record.Leaving = []engine.Alloc{{Tasks: 1, GPUs: gone}}
		}
		i.giveBack(start.Add(after))
	}
	step(0, 0)
	step(time.Hour, 0b110)
	step(90*time.Minute, 0b110)
	if h := i.backHours(start.Add(2 * time.Hour)); h != 2 {
		t.Errorf("two GPUs for an hour: %v GPU-hours", h)
	}
	step(2*time.Hour, 0b1110) // it loses another one meanwhile
	step(3*time.Hour, 0)
	if h := i.backHours(start.Add(9 * time.Hour)); h != 5 || i.Back != nil {
		t.Errorf("then three for an hour: %v GPU-hours", h)
	}
}

// Runs in a row that lose their shim are tried again after ever longer waits, a few times; a long run begins again.
func TestLosses(t *testing.T) {
	var l Losses
	for _, want := range []time.Duration{time.Second, 2 * time.Second, 4 * time.Second, 8 * time.Second, 0} {
		if wait := l.Book(time.Second); wait != want {
			t.Errorf("after %d losses it waits %v, not %v", l, wait, want)
		}
	}
	if wait := l.Book(longRun); wait != time.Second || l != 1 {
		t.Errorf("after a long run it waits %v, with %d losses", wait, l)
	}
}
