package network

import (
	"math/bits"
	"time"
)

// Takes is how long bytes take at a rate in bytes per second, rounded up; with rate 0: a very long time.
func Takes(bytes, rate int64) time.Duration {
	if bytes <= 0 {
		return 0
	}
	if rate <= 0 {
		return 1 << 62
	}
	hi, lo := bits.Mul64(uint64(bytes), 1e9)
	lo, carry := bits.Add64(lo, uint64(rate)-1, 0)
	if hi += carry; hi >= uint64(rate) {
		return 1 << 62
	}
	q, _ := bits.Div64(hi, lo, uint64(rate))
	return time.Duration(min(q, 1<<62))
}

// Moved is how many bytes pass in a time at a rate in bytes per second, rounded down.
func Moved(rate int64, d time.Duration) int64 {
	hi, lo := bits.Mul64(uint64(rate), uint64(d))
	if hi >= 1e9 {
		return 1 << 62
	}
	q, _ := bits.Div64(hi, lo, 1e9)
	return int64(min(q, 1<<62))
}
