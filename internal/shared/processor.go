package shared

import (
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// ProcessorTime is the processor time of this process: other work on the machine disturbs it less than wall
// time.
func ProcessorTime(tb testing.TB) time.Duration {
	tb.Helper()
	var t unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_PROCESS_CPUTIME_ID, &t); err != nil {
		tb.Fatal(err)
	}
	return time.Duration(t.Nano())
}
