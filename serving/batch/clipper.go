package batch

import (
	"time"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/internal/knobs"
)

var clipperKind = kind{knobs.Kind{Name: "clipper",
	About: "Clipper: the largest batch grows while batches meet the goal, and shrinks when one does not",
	Knobs: []knobs.Knob{{Name: "step", Default: "1", About: "requests by which it grows"},
		{Name: "backoff", Default: "0.9", About: "factor by which it shrinks"}}}, newClipper}

// clipper adapts the largest batch of a replica to the latency that it sees (Crankshaw et al., Clipper, NSDI 2017,
// section 4.3.1): additive increase while a full batch takes no longer than the goal, multiplicative decrease when it
// does.
type clipper struct {
	Setting
	most, step, backoff float64
}

func newClipper(s Setting, k *knobs.Set) (Rule, error) {
	c := &clipper{Setting: s, most: 1}
	var err error
	if c.step, err = k.Number("step", 0.01, 1000); err != nil {
		return nil, err
	}
	c.backoff, err = k.Number("backoff", 0.01, 1)
	return c, err
}

func (c *clipper) Next(q *Queue, now cluster.Time) Choice {
	return upTo(q, now, min(int(c.most), c.Max), c.Delay)
}

func (c *clipper) Done(size int, took time.Duration) {
	switch {
	case took > c.Goal:
		c.most = max(1, float64(int(c.most*c.backoff)))
	case size >= int(c.most):
		c.most = min(c.most+c.step, float64(c.Max))
	}
}
