package fleet

import (
	"cmp"
	"time"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/serving/batch"
)

// batches is the work of a replica that computes requests in batches.
type batches struct {
	takes    []time.Duration // of a batch, by its size less one
	rule     batch.Rule
	again    cluster.Time // when the rule looks again, while it is idle
	began    cluster.Time
	end      cluster.Time   // of the batch; cluster.Never: it is idle
	arrivals []cluster.Time // of the requests of the batch
}

func newBatches(s *served, variant int, p Place) (*batches, error) {
	v := &s.spec.Variants[variant]
	b := &batches{takes: make([]time.Duration, s.spec.MaxBatch(v)), end: cluster.Never}
	for i := range b.takes {
		b.takes[i] = time.Duration(float64(v.Profile.Takes(cmp.Or(p.Share, v.Share()), i+1)) * p.Slower)
	}
	c := &s.spec.Batching
	var err error
	b.rule, err = batch.New(cmp.Or(c.Rule, s.rule),
		batch.Setting{Max: len(b.takes), Delay: c.Delay, Preferred: c.Preferred,
			Goal: s.spec.Goal.Latency, Takes: func(n int) time.Duration { return b.takes[n-1] }})
	return b, err
}

// next lets the rule choose from what waits; again is when it wants to look again, unless that is known already.
func (b *batches) next(s *served, now cluster.Time) (sent bool, again cluster.Time) {
	c := b.rule.Next(&s.queue, now)
	s.since.Dropped += int64(c.Drop)
	s.queue.Pop(c.Drop)
	if c.Send == 0 {
		if c.Again == b.again {
			return false, cluster.Never
		}
		b.again = c.Again
		return false, c.Again
	}
	for k := range c.Send {
		b.arrivals = append(b.arrivals, s.queue.At(k).At)
	}
	s.queue.Pop(c.Send)
	b.began, b.end, b.again = now, now.Add(b.takes[c.Send-1]), 0
	s.since.Batches++
	return true, cluster.Never
}

// finish answers the requests of a batch.
func (b *batches) finish(s *served, now cluster.Time) {
	goal := s.spec.Goal.Latency
	for _, at := range b.arrivals {
		took := now.Sub(at)
		s.since.Answer(took, took <= goal)
	}
	b.rule.Done(len(b.arrivals), now.Sub(b.began))
	s.since.Busy += now.Sub(b.began)
	b.arrivals, b.end = b.arrivals[:0], cluster.Never
}
