package gateway

import "time"

const (
	limiterWindow  = 16  // fewest answers of a window
	limiterSlower  = 2   // factor of the smallest mean beyond which a replica is overloaded
	limiterBackoff = 0.8 // factor of the limit after overload
)

// limiter adapts how many requests a replica answers at once to the latency that it sees: while answers take about as
// long as the fastest did, more are let in, and fewer once they take twice as long. It compares means over windows,
// since single requests differ in what they ask for. It begins with an eighth of the bound and doubles until the first
// overload, so that the latency without a queue is seen. If answers take longer even one at a time, it is the requests
// that have changed: then it begins again with that latency.
type limiter struct {
	limit    float64
	bound    int
	least    time.Duration // smallest mean of a window
	sum      time.Duration // of the window
	answers  int
	overload bool // the replica said in this window that it has too much to do
	full     bool // the limit was reached in this window
	slowed   bool // an overload has been seen
}

// at is the limit now, within a bound.
func (l *limiter) at(bound int) int {
	if l.bound != bound {
		*l = limiter{limit: max(1, float64(bound)/8), bound: bound}
	}
	return int(l.limit)
}

// answered takes an answer into account; busy counts the requests that the replica had, this one too.
func (l *limiter) answered(took time.Duration, busy int, overload bool) {
	l.sum += took
	l.answers++
	l.overload = l.overload || overload
	l.full = l.full || busy >= int(l.limit)
	if l.answers < max(limiterWindow, int(l.limit)) {
		return
	}
	mean := l.sum / time.Duration(l.answers)
	if l.least == 0 || mean < l.least {
		l.least = mean
	}
	switch {
	case l.limit == 1 && !l.overload && mean > limiterSlower*l.least:
		l.least, l.slowed = mean, false
	case l.overload || mean > limiterSlower*l.least:
		l.limit, l.slowed = max(1, l.limit*limiterBackoff), true
	case l.full && l.slowed:
		l.limit = min(l.limit+1, float64(l.bound))
	case l.full:
		l.limit = min(l.limit*2, float64(l.bound))
	}
	l.sum, l.answers, l.overload, l.full = 0, 0, false, false
}
