package fleet

import (
	"cmp"
	"time"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/serving/batch"
)

// batches is the work of a replica that computes requests in batches.
type batches struct {
	alone    []time.Duration // of a batch, by its size less one, where nothing slows it
	takes    []time.Duration // the same beside the neighbours that there are
	rule     batch.Rule
	again    cluster.Time // when the rule looks again, while it is idle
	began    cluster.Time
	end      cluster.Time // of the batch; cluster.Never: it is idle
	items    []item       // of the batch
	accuracy float64
}

func newBatches(s *served, variant int, p Place) (*batches, error) {
	v := &s.spec.Variants[variant]
	b := &batches{takes: make([]time.Duration, s.spec.MaxBatch(v)), end: cluster.Never,
		accuracy: v.Accuracy}
	for i := range b.takes {
		b.alone = append(b.alone, v.Profile.Takes(cmp.Or(p.Share, v.Share()), i+1))
	}
	b.slow(p.Slower)
	c := &s.spec.Batching
	var err error
	b.rule, err = batch.New(cmp.Or(c.Rule, s.rule),
		batch.Setting{Max: len(b.takes), Delay: c.Delay, Preferred: c.Preferred,
			Goal: s.spec.Goal.Latency, Takes: func(n int) time.Duration { return b.takes[n-1] }})
	return b, err
}

// slow has later batches take longer by a factor.
func (b *batches) slow(factor float64) {
	for i, d := range b.alone {
		b.takes[i] = time.Duration(float64(d) * factor)
	}
}

// send lets the rule choose from what waits; again is when it wants to look again, unless that is known already.
func (f *Fleet) send(b *batches, svc int32) (sent bool, again cluster.Time) {
	s := &f.services[svc]
	c := b.rule.Next(&s.queue, f.now)
	if s.member {
		for k := range c.Drop {
			f.vote(svc, s.queue.At(k), false)
		}
	} else {
		s.since.Dropped += int64(c.Drop)
	}
	s.queue.Pop(c.Drop)
	if c.Send == 0 {
		if c.Again == b.again {
			return false, cluster.Never
		}
		b.again = c.Again
		return false, c.Again
	}
	for k := range c.Send {
		b.items = append(b.items, *s.queue.At(k))
	}
	s.queue.Pop(c.Send)
	b.began, b.end, b.again = f.now, f.now.Add(b.takes[c.Send-1]), 0
	f.services[s.of].since.Batches++
	return true, cluster.Never
}

// finish answers the requests of a replica's batch.
func (f *Fleet) finish(r *replica) {
	b, s := r.batches, &f.services[r.service]
	goal := s.spec.Goal.Latency
	for i := range b.items {
		if s.member {
			f.vote(r.service, &b.items[i], true)
			continue
		}
		took := f.now.Sub(b.items[i].At)
		s.since.Answer(took, took <= goal)
		s.right += b.accuracy
	}
	b.rule.Done(len(b.items), f.now.Sub(b.began))
	f.services[s.of].since.Busy += f.now.Sub(b.began)
	b.items, b.end = b.items[:0], cluster.Never
}

// lose counts what a replica has begun as failed.
func (f *Fleet) lose(r *replica) {
	b, s := r.batches, &f.services[r.service]
	for i := range b.items {
		if s.member {
			f.vote(r.service, &b.items[i], false)
		} else {
			s.since.Failed++
		}
	}
	b.items, b.end = nil, cluster.Never
}
