package quota

import (
	"math"
	"time"

	"github.com/muster-gpu/muster/cluster"
)

const (
	daySeconds  = 24 * 60 * 60
	weekSeconds = 7 * daySeconds
)

// calendar splits local seconds since 1970-01-01 into the day's weekday (0:
// Sunday) and the seconds since its midnight. That first day was a Thursday.
func calendar(wall int64) (weekday int, tod int64) {
	days := wall / daySeconds
	if tod = wall % daySeconds; tod < 0 {
		tod += daySeconds
		days--
	}
	return int(((days+4)%7 + 7) % 7), tod
}

// opens reports whether a window starts on that weekday.
func opens(w *cluster.Window, weekday int) bool {
	return w.Days == 0 || w.Days>>weekday&1 == 1
}

// bounds returns a window's ends in seconds since the midnight of the day on
// which it starts; to is above from, and beyond a day's length if the window
// crosses midnight.
func bounds(w *cluster.Window) (from, to int64) {
	from, to = int64(w.From/time.Second), int64(w.To/time.Second)
	if to <= from {
		to += daySeconds
	}
	return from, to
}

// Open reports whether the window applies at wall (local seconds). The days
// are those on which it starts: a Saturday night lasts into Sunday.
func Open(w *cluster.Window, wall int64) bool {
	weekday, tod := calendar(wall)
	from, to := bounds(w)
	return opens(w, weekday) && from <= tod && tod < to ||
		opens(w, (weekday+6)%7) && tod+daySeconds < to
}

// Effective returns the guarantee and limit (milli-GPU) of a queue at wall
// (local seconds), and the next instant at which either changes,
// math.MaxInt64 if that never happens. Of several open windows the last in
// the list decides, for guarantee and limit each on its own: a window that
// leaves one unchanged (cluster.Unlimited) leaves it to the others.
func Effective(q *cluster.Queue, wall int64) (guarantee, limit Milli, next int64) {
	guarantee, limit = amountsAt(q, wall)
	for at := wall; ; {
		at = nextEdge(q, at)
		if at == math.MaxInt64 || at-wall > weekSeconds { // the calendar repeats
			return guarantee, limit, math.MaxInt64
		}
		if g, l := amountsAt(q, at); g != guarantee || l != limit {
			return guarantee, limit, at
		}
	}
}

func amountsAt(q *cluster.Queue, wall int64) (guarantee, limit Milli) {
	guarantee, limit = q.Guarantee, q.Limit
	for i := range q.Windows {
		w := &q.Windows[i]
		if !Open(w, wall) {
			continue
		}
		if w.Guarantee != cluster.Unlimited {
			guarantee = w.Guarantee
		}
		if w.Limit != cluster.Unlimited {
			limit = w.Limit
		}
	}
	return guarantee, limit
}

// nextEdge returns the first instant after wall at which a window opens or
// closes, math.MaxInt64 without windows.
func nextEdge(q *cluster.Queue, wall int64) int64 {
	next := int64(math.MaxInt64)
	weekday, tod := calendar(wall)
	midnight := wall - tod
	for i := range q.Windows {
		w := &q.Windows[i]
		from, to := bounds(w)
		for day := -1; day <= 7; day++ { // a window of yesterday may still be open
			if !opens(w, (weekday+day+7)%7) {
				continue
			}
			start := midnight + int64(day)*daySeconds
			if start+from > wall {
				next = min(next, start+from)
			}
			if start+to > wall {
				next = min(next, start+to)
			}
		}
	}
	return next
}
