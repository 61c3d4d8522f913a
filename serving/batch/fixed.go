package batch

import (
	"time"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/internal/knobs"
)

var fixedKind = kind{knobs.Kind{Name: "fixed",
	About: "a full batch, or what has come when the first request has waited as long as it may"},
	func(s Setting, _ *knobs.Set) (Rule, error) { return &fixed{s}, nil }}

type fixed struct{ Setting }

func (f *fixed) Next(q *Queue, now cluster.Time) Choice {
	return upTo(q, now, f.Max, f.Delay)
}

func (f *fixed) Done(int, time.Duration) {}

// upTo sends a batch of the most that may be in one, or what waits once the first request has waited for a delay.
func upTo(q *Queue, now cluster.Time, most int, delay time.Duration) Choice {
	if due := q.At(0).At.Add(delay); q.Len() < most && due > now {
		return Choice{Again: due}
	}
	return Choice{Send: min(q.Len(), most), Again: cluster.Never}
}
