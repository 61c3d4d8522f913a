//go:build linux

package local

import (
	"sync"
	"time"

	"github.com/muster-gpu/muster/cluster"
)

// clock gives the engine a time that follows the wall clock and never jumps:
// it advances with the monotonic clock and is slewed by at most a tenth of
// what has passed. A clock that is set back or forward neither freezes time
// limits nor makes them strike at once.
type clock struct {
	mu   sync.Mutex
	last time.Time // with its monotonic reading
	at   cluster.Time
	off  time.Duration // a test's: how far the wall clock was set
}

// start begins at the wall clock's time, or at the stored one if that is later.
func (c *clock) start(wall time.Time, stored cluster.Time) {
	c.last, c.at = wall, max(stored, cluster.Time(wall.UnixNano()))
}

// now returns the time. It never falls.
func (c *clock) now(wall time.Time) cluster.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	passed := max(0, wall.Sub(c.last)) // by the monotonic clock
	if passed > 0 {                    // two who ask at once may come in the other order
		c.last = wall
	}
	off := cluster.Time(wall.UnixNano()).Add(c.off).Sub(c.at.Add(passed))
	c.at = c.at.Add(passed + min(max(off, -passed/10), passed/10))
	return c.at
}
