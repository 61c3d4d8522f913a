package serving

import (
	"math/rand/v2"
	"slices"
	"time"

	"github.com/muster-gpu/muster/internal/heap"
)

// Arrivals is how requests arrive.
type Arrivals uint8

// The arrivals.
const (
	Even    Arrivals = iota // evenly spaced
	Poisson                 // exponentially distributed gaps
)

// Served is the outcome of a service's requests.
type Served struct {
	Requests int
	Late     int           // answered later than promised
	Worst    time.Duration // the longest that one took
	P99      time.Duration // nearest rank
}

// Play sends each service requests at its rate for a time and answers them as the plan says: a request goes to
// the instance with the least work for its capacity, and waits there; an idle process takes the waiting
// requests, up to a batch. The time of batch sizes that were not measured is interpolated. All requests are
// answered.
func Play(p *Plan, services []Service, arrivals Arrivals, seed uint64, length time.Duration) []Served {
	out := make([]Served, len(services))
	for k := range services {
		r := rand.New(rand.NewPCG(seed, uint64(k)))
		out[k] = newQueueing(p, services, k).play(r, arrivals, length)
	}
	return out
}

// queueing is one service during a play.
type queueing struct {
	s         *Service
	instances []station
	ends      []ending
	took      []time.Duration
}

// station is an instance with its processes.
type station struct {
	point   Point
	curve   []Point // the same with smaller batches, by size
	waiting []time.Duration
	idle    int
}

// ending is the end of a batch.
type ending struct {
	at      time.Duration
	station int
}

// Before implements the order of the heap.
func (e *ending) Before(o *ending) bool {
	return e.at < o.at || e.at == o.at && e.station < o.station
}

func newQueueing(p *Plan, services []Service, k int) *queueing {
	q := &queueing{s: &services[k]}
	for i := range p.Instances {
		in := &p.Instances[i]
		if in.Service != k {
			continue
		}
		st := station{point: in.Point, idle: in.Processes}
		for _, pt := range q.s.Points {
			if pt.Compute == in.Compute && pt.Processes == in.Processes && pt.Batch <= in.Batch && pt.Rate > 0 {
				st.curve = append(st.curve, pt)
			}
		}
		slices.SortFunc(st.curve, func(a, b Point) int { return a.Batch - b.Batch })
		q.instances = append(q.instances, st)
	}
	return q
}

// takes is how long a batch of n requests takes.
func (st *station) takes(n int) time.Duration {
	for i := range st.curve {
		c := &st.curve[i]
		switch {
		case c.Batch < n:
		case i == 0 || c.Batch == n:
			return c.Latency
		default:
			b := &st.curve[i-1]
			return b.Latency + (c.Latency-b.Latency)*time.Duration(n-b.Batch)/time.Duration(c.Batch-b.Batch)
		}
	}
	return st.point.Latency
}

func (q *queueing) play(r *rand.Rand, arrivals Arrivals, length time.Duration) Served {
	gap := func() time.Duration {
		d := float64(time.Second) / q.s.Rate
		if arrivals == Poisson {
			d *= r.ExpFloat64()
		}
		return time.Duration(d)
	}
	for next := gap(); next < length || len(q.ends) > 0; {
		if len(q.ends) > 0 && (q.ends[0].at <= next || next >= length) {
			e := heap.Pop(&q.ends)
			q.instances[e.station].idle++
			q.begin(e.station, e.at)
			continue
		}
		best := 0
		for i := range q.instances {
			if q.instances[i].load() < q.instances[best].load() {
				best = i
			}
		}
		st := &q.instances[best]
		st.waiting = append(st.waiting, next)
		q.begin(best, next)
		next += max(1, gap())
	}
	return q.served()
}

// load is an instance's work, in seconds, with one more request.
func (st *station) load() float64 {
	return float64(len(st.waiting)+1+(st.point.Processes-st.idle)*st.point.Batch) / st.point.Capacity()
}

// begin lets idle processes of an instance take the waiting requests.
func (q *queueing) begin(i int, now time.Duration) {
	st := &q.instances[i]
	for st.idle > 0 && len(st.waiting) > 0 {
		n := min(len(st.waiting), st.point.Batch)
		end := now + st.takes(n)
		for _, came := range st.waiting[:n] {
			q.took = append(q.took, end-came)
		}
		st.waiting = st.waiting[n:]
		st.idle--
		heap.Push(&q.ends, ending{end, i})
	}
}

func (q *queueing) served() Served {
	s := Served{Requests: len(q.took)}
	if len(q.took) == 0 {
		return s
	}
	slices.Sort(q.took)
	s.Worst, s.P99 = q.took[len(q.took)-1], q.took[(len(q.took)*99+99)/100-1]
	for _, d := range q.took {
		if d > q.s.Latency {
			s.Late++
		}
	}
	return s
}
