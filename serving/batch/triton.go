package batch

import (
	"time"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/internal/knobs"
)

var tritonKind = kind{knobs.Kind{Name: "triton",
	About: "Triton's dynamic batcher: the largest preferred size at once, else what waits after the delay"},
	func(s Setting, _ *knobs.Set) (Rule, error) { return &triton{s}, nil }}

// triton is the dynamic batcher of NVIDIA's Triton Inference Server: as soon as the queue can form a preferred size,
// the largest such is sent; else the first request waits for at most the delay, and what is there is sent.
type triton struct{ Setting }

func (t *triton) Next(q *Queue, now cluster.Time) Choice {
	for i := len(t.Preferred) - 1; i >= 0; i-- {
		if p := t.Preferred[i]; p <= q.Len() && p <= t.Max {
			return Choice{Send: p, Again: cluster.Never}
		}
	}
	return upTo(q, now, t.Max, t.Delay)
}

func (t *triton) Done(int, time.Duration) {}
