package quota

import (
	"math"

	"github.com/muster-gpu/muster/cluster"
)

const (
	daySeconds  = 24 * 60 * 60
	weekSeconds = 7 * daySeconds
)

// hours returns the hours of a window.
func hours(w *cluster.Window) *cluster.Hours {
	return &cluster.Hours{Days: w.Days, From: w.From, To: w.To}
}

// Open reports whether the window applies at wall (local seconds). Its days are those on which it
// starts: a Saturday night extends into Sunday.
func Open(w *cluster.Window, wall int64) bool { return hours(w).Open(wall) }

// Effective returns the guarantee and limit (milli-GPU) of a queue at wall (local seconds), and the
// next instant at which either changes, math.MaxInt64 if that never happens. Of several open
// windows the last in the list decides, separately for guarantee and limit: a window that leaves
// one unchanged (cluster.Unlimited) leaves it to the others.
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
	weekday, tod := cluster.Calendar(wall)
	midnight := wall - tod
	for i := range q.Windows {
		w := &q.Windows[i]
		h := hours(w)
		from, to := h.Bounds()
		for day := -1; day <= 7; day++ { // yesterday's window may still be open
			if !h.Begins((weekday + day + 7) % 7) {
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
