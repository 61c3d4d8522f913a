package gateway

import (
	"net/url"
	"time"

	"github.com/muster-gpu/muster/serving/batch"
)

// replica is where requests go.
type replica struct {
	spec    Replica
	url     *url.URL
	rule    batch.Rule
	limiter limiter

	busy     int           // requests, or batches, that it answers now
	keeps    int           // prompts that it computed and whose keys and values are not fetched yet
	took     time.Duration // moving mean of an answer; 0: not known
	last     time.Time     // it answered
	credit   float64       // requests that its weight entitles it to and that others got
	failures int           // in a row
	shut     time.Time     // nothing is sent to it before: it failed too often
	answered int64
	failed   int64
	sizes    sizes
}

const (
	failuresToShut = 5
	shutFor        = 2 * time.Second
	atOnceNormal   = 64
	tookWeight     = 0.1
	tookHalves     = 5 * time.Second // without an answer, a slow replica counts as twice as fast: it is tried again
)

func (r *Replica) weight() float64 {
	if r.Weight == 0 {
		return 1
	}
	return r.Weight
}

// atOnce is how many requests, or batches, a replica answers at once. Where single requests have a latency goal, that
// adapts to what the replica can do.
func (p *pool) atOnce(r *replica) int {
	bound := r.spec.AtOnce
	switch {
	case p.spec.Batch > 1:
		return max(1, bound)
	case bound == 0:
		bound = atOnceNormal
	}
	if p.spec.LatencyMS > 0 {
		return r.limiter.at(bound)
	}
	return bound
}

// open reports whether a replica takes another request now. One that failed too often gets one, to see how it is.
func (p *pool) open(r *replica, now time.Time) bool {
	most := p.atOnce(r)
	if r.failures >= failuresToShut {
		most = 1
	}
	return !r.spec.Draining && r.busy+r.keeps < most && !now.Before(r.shut)
}

// fastest is the shortest mean of an answer of all replicas; 0: not known.
func (p *pool) fastest() (least time.Duration) {
	for _, r := range p.replicas {
		if r.took > 0 && (least == 0 || r.took < least) {
			least = r.took
		}
	}
	return least
}

// pick is the open replica that a request should go to, but not to one; nil: none is open. If weights differ, it is the
// one with the most credit, so that each gets its part; else the one with the least expected latency.
func (p *pool) pick(now time.Time, avoid *replica) (best *replica) {
	least := 0.0
	for _, r := range p.replicas {
		if r == avoid || !p.open(r, now) {
			continue
		}
		cost := -r.credit - r.spec.weight()
		if !p.weighted {
			took := r.took >> min(max(now.Sub(r.last), 0)/tookHalves, 30)
			if r.took == 0 {
				took = p.fastest()
			}
			cost = float64(r.busy+r.keeps+1) * float64(max(took, time.Microsecond))
		}
		if best == nil || cost < least {
			best, least = r, cost
		}
	}
	return best
}

// take gives a request, or a batch, to a replica.
func (p *pool) take(r *replica, now time.Time) {
	if p.weighted { // smooth weighted round-robin over the replicas that are open
		total := 0.0
		for _, x := range p.replicas {
			if p.open(x, now) {
				x.credit += x.spec.weight()
				total += x.spec.weight()
			}
		}
		r.credit -= total
	}
	r.busy++
}

// each is how long a replica took for one request of those that it has at once, which began at an instant and is
// answered now: what came before the answer to another was that one's time.
func (r *replica) each(began, now time.Time) time.Duration {
	if r.last.After(began) {
		began = r.last
	}
	return now.Sub(began)
}

// result is what an answer of a replica says of it.
type result struct {
	took     time.Duration
	first    time.Duration // until the answer began; 0: it did not
	failed   bool
	bulk     bool
	left     bool // the client did not wait: nothing is known of the replica
	overload bool // the replica says that it has too much to do
}

// done takes an answer of a replica into account, and lets it take more.
func (p *pool) done(r *replica, x result) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.finish(r, x)
	p.dispatch()
}

func (p *pool) finish(r *replica, x result) {
	if p.spec.Batch <= 1 && x.first > 0 {
		r.limiter.answered(x.first, r.busy, x.overload)
	}
	r.busy--
	if !x.bulk { // it is not what the service is there for
		p.count.Busy += x.took
	}
	r.last = p.server.clock()
	if x.left {
		return
	}
	if x.failed {
		r.failed++
		if r.failures++; r.failures >= failuresToShut {
			r.shut = r.last.Add(shutFor)
		}
		return
	}
	r.answered++
	r.failures = 0
	if r.took == 0 {
		r.took = x.took
	}
	r.took += time.Duration(tookWeight * float64(x.took-r.took))
}

// times is how long a replica may take until it begins to answer, and between two parts of an answer.
func (p *pool) times() (timeout, stall time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.spec.timeout(), p.spec.stall()
}
