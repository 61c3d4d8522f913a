package cluster

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"
)

// Time is an instant in nanoseconds. Live drivers count from the Unix epoch;
// the simulator counts from the start of its trace (see Spec.Epoch).
type Time int64

// Never is later than every instant that can occur.
const Never Time = math.MaxInt64

// Add returns t+d, saturating at Never instead of overflowing.
func (t Time) Add(d time.Duration) Time {
	if t == Never || d > 0 && int64(t) > math.MaxInt64-int64(d) {
		return Never
	}
	return t + Time(d)
}

// Sub returns the duration t-u.
func (t Time) Sub(u Time) time.Duration { return time.Duration(t - u) }

// String formats the instant as a duration since the origin, or "never".
func (t Time) String() string {
	if t == Never {
		return "never"
	}
	return FormatDuration(time.Duration(t))
}

// Milli is a thousandth: of a GPU, or of a CPU core.
type Milli = int64

// MiB is an amount of memory in mebibytes.
type MiB = int64

// Whole is the share of one whole GPU, in milli-GPU.
const Whole Milli = 1000

// Limits of the numbers that are accepted as input: far beyond any real
// cluster, far below the point where sums of products overflow int64.
const (
	MaxGPUsPerNode = 64              // a node's devices are a 64-bit mask
	MaxTasks       = 1 << 20         // tasks of one gang
	MaxMilli       = Milli(1) << 40  // milli-cores or milli-GPU in one request
	MaxMiB         = MiB(1) << 40    // 1 EiB
	MaxDuration    = 100 * 365 * day // a hundred years
	day            = 24 * time.Hour
)

// FormatDuration formats d in the usual way: "90s" is "1m30s", whole units omit zero parts ("2h",
// not "2h0m0s"), days are "3d4h".
func FormatDuration(d time.Duration) string {
	if d < 0 {
		return "-" + FormatDuration(-max(d, -math.MaxInt64)) // math.MinInt64 has no negation
	}
	if d == 0 {
		return "0s"
	}
	if d < time.Second {
		return d.String()
	}
	var b strings.Builder
	if n := d / day; n > 0 {
		fmt.Fprintf(&b, "%dd", n)
		d %= day
	}
	if n := d / time.Hour; n > 0 {
		fmt.Fprintf(&b, "%dh", n)
		d %= time.Hour
	}
	if n := d / time.Minute; n > 0 {
		fmt.Fprintf(&b, "%dm", n)
		d %= time.Minute
	}
	if d > 0 {
		b.WriteString(strconv.FormatFloat(d.Seconds(), 'f', -1, 64) + "s")
	}
	return b.String()
}

// ParseDuration reads Go durations ("1h30m", "45s"), with days ("2d4h") and
// weeks ("1w") as well. Negative durations and those beyond a hundred years
// are errors.
func ParseDuration(s string) (time.Duration, error) {
	rest, total := s, time.Duration(0)
	for _, u := range []struct {
		unit string
		size time.Duration
	}{{"w", 7 * day}, {"d", day}} {
		i := strings.Index(rest, u.unit)
		if i < 0 {
			continue
		}
		n, err := strconv.ParseFloat(rest[:i], 64)
		if err != nil || !(n >= 0) || n > float64(MaxDuration/u.size) {
			return 0, fmt.Errorf("%q is not a duration such as 90s, 30m, 1h30m or 2d4h", s)
		}
		total += time.Duration(n * float64(u.size))
		rest = rest[i+1:]
	}
	if rest != "" && rest != "0" {
		d, err := time.ParseDuration(rest)
		if err != nil || d < 0 {
			return 0, fmt.Errorf("%q is not a duration such as 90s, 30m, 1h30m or 2d4h", s)
		}
		total += d
	} else if s == "" {
		return 0, fmt.Errorf("an empty duration; write one such as 90s or 1h30m")
	}
	if total < 0 || total > MaxDuration {
		return 0, fmt.Errorf("%q is out of range: durations are between 0 and 100 years", s)
	}
	return total, nil
}
