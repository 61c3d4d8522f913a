package serving

import (
	"math/rand/v2"
	"time"

	"github.com/muster-gpu/muster/internal/heap"
)

// PlayShares sends each service requests at its rate for a time and answers them as the
// plan has it. The requests of a service wait in one line; when a gpulet comes to the turn
// of a service it takes what waits, up to a batch. Each turn has its time in the cycle, as
// long as a full batch takes beside whom the gpulet is, and answers at its end. A service
// that was left out altogether answers nothing: all its requests are late.
func PlayShares(p *SharePlan, services []Service, arrivals Arrivals, seed uint64, length time.Duration) []Served {
	out := make([]Served, len(services))
	for k := range services {
		q := &queueing{s: &services[k]}
		var turns []coming
		for i := range p.Gpulets {
			g := &p.Gpulets[i]
			at, cycle := time.Duration(0), g.Cycle()
			for t := range g.Turns {
				turn := &g.Turns[t]
				takes := g.Takes(turn)
				if turn.Service == k {
					turns = append(turns, coming{at, len(turns), cycle, takes, turn.Batch})
				}
				at += takes
			}
		}
		r := rand.New(rand.NewPCG(seed, uint64(k)))
		out[k] = q.turns(turns, r, arrivals, length)
	}
	return out
}

// coming is the next turn of a service in a gpulet.
type coming struct {
	at           time.Duration
	number       int
	cycle, takes time.Duration
	batch        int
}

// Before implements the order of the heap.
func (c *coming) Before(o *coming) bool {
	return c.at < o.at || c.at == o.at && c.number < o.number
}

// turns answers the requests of a service in the turns that it has.
func (q *queueing) turns(list []coming, r *rand.Rand, arrivals Arrivals, length time.Duration) Served {
	came, gaps := 0, 0.0
	next := func() time.Duration {
		came++
		gaps += 1
		if arrivals == Poisson {
			gaps += r.ExpFloat64() - 1
		}
		return time.Duration(gaps / q.s.Rate * float64(time.Second))
	}
	at := next()
	if len(list) == 0 {
		for ; at < length; at = next() {
			continue
		}
		return Served{Requests: came - 1, Late: came - 1, Worst: length, P99: length}
	}
	var coming []coming
	for _, c := range list {
		heap.Push(&coming, c)
	}
	var waiting []time.Duration
	for at < length || len(waiting) > 0 {
		c := heap.Pop(&coming)
		for ; at < length && at <= c.at; at = next() {
			waiting = append(waiting, at)
		}
		n := min(len(waiting), c.batch)
		for _, came := range waiting[:n] {
			q.took = append(q.took, c.at+c.takes-came)
		}
		waiting = waiting[n:]
		c.at += c.cycle
		heap.Push(&coming, c)
	}
	return q.served()
}
