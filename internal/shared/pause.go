package shared

import "time"

// Pause is how long a test that asks again and again whether something is so waits before it asks once more: it has
// waited that long, and the last answer took so long. It asks for a fifth of the time at most, as answers cost a
// process or a list of everything while other tests run, and hears of what is so a fifth too late, or half a second.
func Pause(waited, took time.Duration) time.Duration {
	const shortest, longest = 5 * time.Millisecond, 500 * time.Millisecond
	return max(shortest, min(max(4*took, waited/5), longest))
}
