package gateway

import (
	"time"

	"github.com/muster-gpu/muster/serving/tally"
)

// Report is what became of requests since the gateway began.
type Report struct {
	Began    int64    `json:"began"` // Unix nanoseconds
	Services []Served `json:"services"`
}

// Served is what became of a service's requests. Each that arrived waits, is with a replica, has left, or is one of
// the tally's.
type Served struct {
	Name string `json:"name"`
	tally.Tally
	Left     int64     `json:"left"`     // the client did not wait for the answer
	Retried  int64     `json:"retried"`  // given to a second replica, because the first died
	Waiting  int       `json:"waiting"`  // now
	Replicas int       `json:"replicas"` // of the configuration, but for those that are draining
	Bulk     *Bulk     `json:"bulk,omitempty"`
	Sizes    []Size    `json:"sizes,omitempty"`
	Each     []Counted `json:"each,omitempty"`
}

// Size is how often batches of a size were computed, and how long that took in all.
type Size struct {
	Requests int           `json:"requests"` // samples, if requests have several
	Batches  int64         `json:"batches"`
	Took     time.Duration `json:"took_ns"`
}

// Counted is what a replica does, and did since it was configured.
type Counted struct {
	ID       string `json:"id"`
	Busy     int    `json:"busy"`    // requests, or batches, that it computes now
	AtOnce   int    `json:"at_once"` // how many it is given at once, at most
	Open     bool   `json:"open"`    // neither draining nor left alone because it failed
	Answered int64  `json:"answered"`
	Failed   int64  `json:"failed"`
	Sizes    []Size `json:"sizes,omitempty"`
}

// counts is what becomes of a service's requests.
type counts struct {
	tally.Tally
	left    int64
	retried int64
	sizes   sizes
}

// served is a copy of the counts as they are now.
func (p *pool) served() Served {
	p.mu.Lock()
	defer p.mu.Unlock()
	s := Served{Name: p.name, Tally: p.count.Since(&tally.Tally{}), Left: p.count.left, Retried: p.count.retried,
		Waiting: p.waitingNow(), Replicas: p.serving(), Sizes: p.count.sizes.filled()}
	now := p.server.clock()
	s.Bulk = p.bulk.report(now)
	for _, r := range p.replicas {
		s.Each = append(s.Each, Counted{ID: r.spec.ID, Busy: r.busy, AtOnce: p.atOnce(r),
			Open: !r.spec.Draining && !now.Before(r.shut), Answered: r.answered, Failed: r.failed,
			Sizes: r.sizes.filled()})
	}
	return s
}

// waitingNow is how many requests wait, those for a second replica too.
func (p *pool) waitingNow() int {
	n := len(p.calls) - p.gone
	for _, t := range p.retries {
		n += len(t.calls)
	}
	return n
}

// answered counts what became of a request that a replica has had.
func (p *pool) answered(took time.Duration, well, bulk bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.countAnswer(took, well, bulk)
}

func (p *pool) countAnswer(took time.Duration, well, bulk bool) {
	if bulk {
		p.countBulk(well)
		return
	}
	if !well {
		p.count.Failed++
		return
	}
	p.count.Answer(took, p.spec.LatencyMS == 0 || took <= p.spec.goal())
}

// sizes counts batches by their samples.
type sizes []Size

func (s *sizes) add(samples int, took time.Duration) {
	for n := len(*s); n <= samples; n++ {
		*s = append(*s, Size{Requests: n})
	}
	(*s)[samples].Batches++
	(*s)[samples].Took += took
}

// filled are the sizes of which there were batches.
func (s sizes) filled() (list []Size) {
	for _, x := range s {
		if x.Batches > 0 {
			list = append(list, x)
		}
	}
	return list
}

func (p *pool) countBatch(r *replica, samples int, took time.Duration, bulk bool) {
	p.count.sizes.add(samples, took)
	r.sizes.add(samples, took)
	if bulk {
		return
	}
	p.count.Batches++
	p.meters.batch.Observe(float64(samples))
}

func (p *pool) dropped() {
	p.count.Dropped++
	p.meters.drop(reasonLate)
}

func (p *pool) refused(why string) {
	p.count.Refused++
	p.meters.drop(why)
}

func (p *pool) retried() {
	p.count.retried++
	p.meters.retries.Inc()
}
