package batch

import (
	"time"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/internal/knobs"
)

var nexusKind = kind{knobs.Kind{Name: "nexus",
	About: "Nexus' early drop: the first window of the planned size that can still meet the goal",
	Knobs: []knobs.Knob{{Name: "batch", Default: "0",
		About: "the planned size; 0: the largest with which a batch that was just missed can be waited for"}}},
	newNexus}

// nexus drops early (Shen et al., Nexus, SOSP 2019, section 6.3): a window of the planned batch size slides over the
// queue and stops at the first request whose remaining time covers the window's batch; those before it are dropped.
type nexus struct {
	Setting
	window int
}

func newNexus(s Setting, k *knobs.Set) (Rule, error) {
	size, err := k.Number("batch", 0, 4096)
	n := &nexus{Setting: s, window: min(int(size), s.Max)}
	if n.window == 0 {
		n.window = s.halved()
	}
	return n, err
}

func (n *nexus) Next(q *Queue, now cluster.Time) Choice {
	for drop := range q.Len() {
		size := min(n.window, q.Len()-drop)
		if q.At(drop).At.Add(n.Goal) >= now.Add(n.Takes(size)) {
			return Choice{Drop: drop, Send: size, Again: cluster.Never}
		}
	}
	return Choice{Drop: q.Len(), Again: cluster.Never}
}

func (n *nexus) Done(int, time.Duration) {}
