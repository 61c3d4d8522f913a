// Package clock gives the engine a time that follows the wall clock and never jumps: it advances with the monotonic
// clock and is slewed by at most a tenth of what has passed. A clock that is set back or forward neither freezes time
// limits nor makes them strike at once.
package clock

import (
	"sync"
	"time"

	"github.com/muster-gpu/muster/cluster"
)

// Clock tells the time. It may be used by several goroutines.
type Clock struct {
	wall func() time.Time

	mu   sync.Mutex
	last time.Time // of the wall clock, with its monotonic reading
	at   cluster.Time
	skew time.Duration // a test's: how far the wall clock was set
}

// New makes a clock that follows a wall clock. It is started before it is used.
func New(wall func() time.Time) *Clock { return &Clock{wall: wall} }

// Start begins at the wall clock's time, or at the stored one if that is later.
func (c *Clock) Start(stored cluster.Time) {
	c.last = c.wall()
	c.at = max(stored, cluster.Time(c.last.UnixNano()))
}

// Now returns the time. It never falls.
func (c *Clock) Now() cluster.Time {
	wall := c.wall()
	c.mu.Lock()
	defer c.mu.Unlock()
	passed := max(0, wall.Sub(c.last)) // by the monotonic clock
	if passed > 0 {                    // the wall times of two callers may come in the other order
		c.last = wall
	}
	off := cluster.Time(wall.UnixNano()).Add(c.skew).Sub(c.at.Add(passed))
	c.at = c.at.Add(passed + min(max(off, -passed/10), passed/10))
	return c.at
}

// Time is Now as Go has it.
func (c *Clock) Time() time.Time { return time.Unix(0, int64(c.Now())) }

// Skew is for tests: the wall clock counts as set forward by so much.
func (c *Clock) Skew(by time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.skew = by
}
