package fleet

import (
	"github.com/muster-gpu/muster/serving/batch"
	"github.com/muster-gpu/muster/serving/tally"
)

// canary is a service whose last variant answers a part of the requests, and the others the rest. Either part has a
// queue of its own, and all requests while the other has no replica that takes any.
type canary struct {
	service int32
	last    int      // variant
	part    float64  // of the requests, for the last variant
	parts   [2]int32 // their numbers among the fleet's services: of the other variants, of the last
	credit  float64  // requests that the last variant's part is entitled to and that the other got
}

// of is the part that a variant belongs to.
func (c *canary) of(variant int) int {
	if variant == c.last {
		return 1
	}
	return 0
}

// split divides a service with a canary.
func (f *Fleet) split(svc int32) {
	s := &f.services[svc]
	c := &canary{service: svc, last: len(s.spec.Variants) - 1, part: s.spec.Canary}
	s.canary = c
	for i := range c.parts {
		c.parts[i] = int32(len(f.services))
		f.services = append(f.services, served{spec: f.services[svc].spec, of: c.parts[i], partOf: c})
		f.limit(c.parts[i])
	}
}

// parts are those of a service with a canary.
func (f *Fleet) parts(svc int32) []int32 {
	if c := f.services[svc].canary; c != nil {
		return c.parts[:]
	}
	return nil
}

// part is where the next request of a service goes: the service, or the part of it whose turn it is.
func (f *Fleet) part(svc int32) int32 {
	c := f.services[svc].canary
	if c == nil {
		return svc
	}
	takes := func(i int) bool { return len(f.services[c.parts[i]].taking) > 0 }
	switch {
	case takes(0) && takes(1):
		if c.credit += c.part; c.credit >= 1 {
			c.credit--
			return c.parts[1]
		}
		return c.parts[0]
	case takes(0):
		return c.parts[0]
	case takes(1):
		return c.parts[1]
	}
	return svc
}

// divide gives what waits for a first replica to the parts.
func (f *Fleet) divide(svc int32) {
	s := &f.services[svc]
	for s.queue.Len() > 0 {
		it := *s.queue.At(0)
		to := f.part(svc)
		if to == svc {
			return
		}
		s.queue.Pop(1)
		insert(&f.services[to].queue, it)
	}
}

// insert adds a request to a queue that is ordered by arrival.
func insert(q *batch.Queue, it item) {
	q.Push(it)
	for i := q.Len() - 1; i > 0 && q.At(i-1).At > q.At(i).At; i-- {
		later, earlier := q.At(i-1), q.At(i)
		*later, *earlier = *earlier, *later
	}
}

// giveBack lets the other part have what waits for one without replicas.
func (f *Fleet) giveBack(part int32) {
	p := &f.services[part]
	s := &f.services[p.partOf.service]
	for p.queue.Len() > 0 {
		insert(&s.queue, *p.queue.At(0))
		p.queue.Pop(1)
	}
	f.divide(p.partOf.service)
	for _, k := range p.partOf.parts {
		f.dispatch(k)
	}
}

// Canary is what became so far of the requests that a service's canary had, and the accuracy of its answers in the
// mean; nil: it has none.
func (f *Fleet) Canary(svc int) (*tally.Tally, float64) {
	c := f.services[svc].canary
	if c == nil {
		return nil, 0
	}
	f.Observe(svc)
	last := &f.services[c.parts[1]]
	return &last.total, last.right / float64(max(1, last.total.Answered))
}
