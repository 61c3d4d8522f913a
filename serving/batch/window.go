package batch

import (
	"time"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/internal/knobs"
)

var windowKind = kind{knobs.Kind{Name: "window",
	About: "as many as still meet the goal together, at once; what can no longer meet it is dropped"},
	func(s Setting, _ *knobs.Set) (Rule, error) { return &window{s, s.halved(), 1}, nil }}

// window computes at once: batches grow by themselves while a replica is busy. A batch is the largest with which the
// first of its requests is in time, by what batches were seen to take. Where that is less than the efficient size
// although more wait, requests at the front are dropped until a batch of that size is in time: otherwise a queue that
// once grew too long would be answered late, in small batches, for ever.
type window struct {
	Setting
	efficient int
	slower    float64 // measured over expected, a moving mean
}

func (w *window) takes(size int) time.Duration {
	return time.Duration(float64(w.Takes(size)) * w.slower)
}

func (w *window) Next(q *Queue, now cluster.Time) Choice {
	n := q.Len()
	for drop := 0; drop < n; drop++ {
		left := q.At(drop).At.Add(w.Goal).Sub(now)
		most := min(w.Max, n-drop)
		size := w.within(left, most)
		if size == most || size >= w.efficient {
			return Choice{Drop: drop, Send: size, Again: cluster.Never}
		}
	}
	if w.takes(1) > w.Goal && w.Takes(1) <= w.Goal {
		// A slow batch or two made every request look late. Only another batch can show that they are over.
		return Choice{Drop: n - 1, Send: 1, Again: cluster.Never}
	}
	return Choice{Drop: n, Again: cluster.Never}
}

// within is the largest batch up to most that takes no longer than a time.
func (w *window) within(left time.Duration, most int) int {
	lo, hi := 0, most
	for lo < hi {
		if mid := (lo + hi + 1) / 2; w.takes(mid) <= left {
			lo = mid
		} else {
			hi = mid - 1
		}
	}
	return lo
}

func (w *window) Done(size int, took time.Duration) {
	const weight = 0.2
	if expected := w.Takes(size); expected > 0 {
		w.slower += weight * (float64(took)/float64(expected) - w.slower)
	}
}
