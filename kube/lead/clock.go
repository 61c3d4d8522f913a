package lead

import (
	"time"

	"golang.org/x/sys/unix"
)

// bootTime is the time since the machine booted. It also counts while the process is stopped or the machine is
// suspended, where Go's own monotonic clock may stand still.
func bootTime() time.Duration {
	var t unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &t); err != nil {
		panic(err) // every Linux since 2.6.39 has this clock
	}
	return time.Duration(t.Nano())
}
