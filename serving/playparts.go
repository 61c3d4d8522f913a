package serving

import (
	"math"
	"math/rand/v2"
	"time"

	"github.com/muster-gpu/muster/internal/heap"
)

// PlayShares sends each service requests at its rate for a time and answers them as the plan says. The requests
// of a service wait in one line. When a gpulet reaches a service's turn, it takes the waiting requests, up to a
// batch, and computes them, slowed down by the other gpulet of the GPU; it skips services without waiting
// requests. Smaller batches take less time. A service that the plan leaves out answers nothing: all its requests
// are late.
func PlayShares(p *SharePlan, services []Service, arrivals Arrivals, seed uint64, length time.Duration) []Served {
	a := sharePlay{p: p, served: make([]bool, len(services))}
	for k := range services {
		l := &line{queueing: queueing{s: &services[k]}, arrivals: arrivals, length: length,
			r: rand.New(rand.NewPCG(seed, uint64(k)))}
		l.come()
		a.lines = append(a.lines, l)
	}
	for i := range p.Gpulets {
		heap.Push(&a.coming, coming{gpulet: i})
		for t := range p.Gpulets[i].Turns {
			a.served[p.Gpulets[i].Turns[t].Service] = true
		}
	}
	for len(a.coming) > 0 {
		a.turn(heap.Pop(&a.coming))
	}
	out := make([]Served, len(services))
	for k, l := range a.lines {
		if out[k] = l.served(); !a.served[k] {
			for ; l.next < length; l.come() {
				out[k].Requests++
			}
			out[k].Late, out[k].Worst, out[k].P99 = out[k].Requests, length, length
		}
	}
	return out
}

// sharePlay is the state of all services during a play.
type sharePlay struct {
	p      *SharePlan
	lines  []*line // by service
	coming []coming
	served []bool // by service: it has a turn somewhere
}

// coming is when a gpulet reaches a turn, or would.
type coming struct {
	at           time.Duration
	gpulet, turn int
}

// Before implements the order of the heap.
func (c *coming) Before(o *coming) bool {
	return c.at < o.at || c.at == o.at && c.gpulet < o.gpulet
}

// turn lets a gpulet compute for the first of its services, starting at a turn, that has waiting requests; if
// there is none, it tries again when the next request arrives.
func (a *sharePlay) turn(c coming) {
	g := &a.p.Gpulets[c.gpulet]
	soonest := time.Duration(math.MaxInt64)
	for i := range g.Turns {
		at := (c.turn + i) % len(g.Turns)
		t := &g.Turns[at]
		l := a.lines[t.Service]
		l.until(c.at)
		n := min(len(l.waiting), t.Batch)
		if n == 0 {
			if l.next < l.length {
				soonest = min(soonest, l.next)
			}
			continue
		}
		end := c.at + longer(t.takes(n), g.Slower)
		for _, came := range l.waiting[:n] {
			l.took = append(l.took, end-came)
		}
		l.waiting = l.waiting[n:]
		heap.Push(&a.coming, coming{end, c.gpulet, (at + 1) % len(g.Turns)})
		return
	}
	if soonest < math.MaxInt64 {
		heap.Push(&a.coming, coming{soonest, c.gpulet, c.turn})
	}
}

// takes is how long a batch of n requests takes without interference.
func (t *Turn) takes(n int) time.Duration {
	if n <= len(t.curve) {
		return t.curve[n-1]
	}
	return t.Takes
}

// line holds the requests of a service.
type line struct {
	queueing
	arrivals Arrivals
	length   time.Duration
	r        *rand.Rand
	gaps     float64 // between the requests so far, in mean gaps
	next     time.Duration
	waiting  []time.Duration
}

// come generates the next request.
func (l *line) come() {
	if l.gaps++; l.arrivals == Poisson {
		l.gaps += l.r.ExpFloat64() - 1
	}
	l.next = time.Duration(math.Round(l.gaps / l.s.Rate * float64(time.Second)))
}

// until queues the requests that have arrived by now.
func (l *line) until(now time.Duration) {
	for ; l.next <= now && l.next < l.length; l.come() {
		l.waiting = append(l.waiting, l.next)
	}
}
