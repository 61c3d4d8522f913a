package load

import (
	"math"
	"time"

	"github.com/muster-gpu/muster/service"
	"github.com/muster-gpu/muster/serving/llm"
	"github.com/muster-gpu/muster/serving/tally"
)

// Replica is a pod whose server is asked.
type Replica struct {
	ID      string // of the pod, unique for all time
	Name    string
	Address string // URL of its metrics
	Started time.Time
	Part    string    // of what it runs, only what has this value in the label deployment; "": all
	Phase   llm.Phase // what it computes of a request
}

// Meter counts what becomes of the requests of one service. It remembers what each replica said last, because servers
// count from their own beginning.
type Meter struct {
	last   time.Time // of the last look; zero: there was none
	known  map[string]Reading
	latest map[string]rates // of the last two readings that differ
	rest   float64          // of a request that arrived
	// between are requests whose prompts are computed, or are about to be, and that are at no decode server yet
	between float64
}

// rates are what was counted between two readings of a replica.
type rates struct {
	Reading
	span    float64 // seconds
	arrived float64
}

// Load is what a service has to do.
type Load struct {
	tally.Tally
	Waiting int
	Batches []Batches
	Known   int           // replicas that said something
	Full    float64       // part of what replicas can hold that is in use, in the mean of those that say it
	Tell    int           // how many do
	Period  time.Duration // since the last look; 0: this is the first
}

// Batches are what a replica computed in a period: of a server that does not say it, the requests that it had at a
// time, in the mean, are a batch (Little's law), which takes as long as they were there.
type Batches struct {
	ID      string // of the replica
	Size    int
	Number  float64
	Seconds float64 // of each
}

func (r *rates) batches(id string) (b Batches, ok bool) {
	switch {
	case r.Requests > 0 && r.Batches > 0:
		b = Batches{id, whole(r.Requests / r.Batches), r.Batches, r.Computed / r.Requests}
	case r.Finished > 0:
		b.ID, b.Seconds = id, r.Took/r.Finished
		b.Size = max(1, whole(r.Finished*b.Seconds/r.span))
		b.Number = r.Finished / float64(b.Size)
	}
	return b, b.Size > 0 && b.Seconds > 0
}

// Take counts what happened since the last look, from the readings of those replicas that answered.
func (m *Meter) Take(now time.Time, goal *service.Goal, replicas []Replica, readings map[string]Reading) (l Load) {
	if !m.last.IsZero() {
		l.Period = now.Sub(m.last)
	}
	var all sums
	var split phases
	known, latest := map[string]Reading{}, map[string]rates{}
	for i := range replicas {
		p := &replicas[i]
		r, ok := readings[p.ID]
		if !ok {
			if was, ok := m.known[p.ID]; ok { // it is counted when it answers again
				known[p.ID] = was
			}
			continue
		}
		l.Known++
		l.Waiting += whole(r.Waiting)
		if r.Tells {
			l.Tell++
			l.Full += (r.Full - l.Full) / float64(l.Tell)
		}
		was, met := m.known[p.ID]
		if !met && !m.last.IsZero() { // a new one: as much as in the mean since it started
			was, met = Reading{At: p.Started}, true
			if before := r.At.Add(-l.Period); p.Started.After(before) {
				was.At = before
			}
		}
		known[p.ID] = r
		rate, fresh := m.latest[p.ID], r.At.After(was.At)
		if met && fresh {
			rate = between(&was, &r)
			if b, ok := rate.batches(p.ID); ok && l.Period > 0 && p.Phase == llm.Both {
				l.Batches = append(l.Batches, b)
			}
		}
		if rate.span <= 0 || l.Period == 0 {
			continue
		}
		latest[p.ID] = rate
		if p.Phase == llm.Both {
			rate.count(&l.Tally, &all, goal, l.Period)
		} else {
			split[p.Phase].add(&rate, &l.Tally, l.Period)
		}
	}
	if first, then := &split[llm.Prefill], &split[llm.Decode]; len(first.list)+len(then.list) > 0 {
		m.join(first, then, &l.Tally, &all, goal)
	}
	m.round(&l.Tally, &all)
	m.last, m.known, m.latest = now, known, latest
	return l
}

func between(was, now *Reading) rates {
	d := now.since(was)
	return rates{d, now.At.Sub(was.At).Seconds(), max(0, d.Finished+d.Failed+now.inside()-was.inside())}
}

// inside is how many requests a replica has.
func (r *Reading) inside() float64 { return r.Waiting + r.Running + r.Moving }

// sums are what all replicas together counted.
type sums struct{ arrived, answered, inTime, failed, prompts, outputs float64 }

// count adds the requests of a period at these rates.
func (r *rates) count(t *tally.Tally, all *sums, goal *service.Goal, period time.Duration) {
	factor := all.add(r, t, period)
	late := 0.0 // part of the requests
	for _, x := range []struct {
		histogram
		to       *tally.Histogram
		promised time.Duration
	}{{r.latencies(), &t.Latency, goal.Latency}, {r.TTFT, &t.TTFT, goal.TTFT}, {r.TPOT, &t.TPOT, goal.TPOT}} {
		x.spread(x.to, 0)
		if n := x.total(); n > 0 && x.promised > 0 {
			late = max(late, x.beyond(x.promised.Seconds())/n)
		}
	}
	all.inTime += r.Finished * factor * (1 - late)
}

// add adds what a replica counted as if in a whole period, and returns the factor that makes it so.
func (s *sums) add(r *rates, t *tally.Tally, period time.Duration) (factor float64) {
	factor = period.Seconds() / r.span
	s.arrived += r.arrived * factor
	s.answered += r.Finished * factor
	s.failed += r.Failed * factor
	s.prompts += r.Prompts * factor
	s.outputs += r.Outputs * factor
	t.Busy += time.Duration(r.busy(r.span) * factor * float64(time.Second))
	return factor
}

// round makes whole requests of the sums. What is left of those that arrived counts in the next period.
func (m *Meter) round(t *tally.Tally, all *sums) {
	m.rest += all.arrived
	t.Arrived = int64(m.rest + 1e-6)
	m.rest = max(0, m.rest-float64(t.Arrived))
	t.Answered, t.InTime = int64(math.Round(all.answered)), int64(math.Round(all.inTime))
	t.Failed = int64(math.Round(all.failed))
	t.Prompts, t.Outputs = int64(math.Round(all.prompts)), int64(math.Round(all.outputs))
}

// latencies are those of the finished requests; of servers that say only their sum, their mean stands for each.
func (r *rates) latencies() histogram {
	if r.Latency != nil || r.Took == 0 || r.Finished == 0 {
		return r.Latency
	}
	mean := r.Took / r.Finished
	return histogram{{mean * 0.999, 0}, {mean, r.Finished}}
}

// parts is into how many equal parts a bucket is divided, at most.
const parts = 16

// spread adds a histogram's durations, those of a bucket evenly between its bounds, each with seconds more.
func (h histogram) spread(to *tally.Histogram, more float64) {
	lower := 0.0
	for _, b := range h {
		n := whole(b.count)
		upper := min(b.bound, mostSeconds)
		if math.IsInf(b.bound, 1) { // nothing else is known of it
			upper = max(lower, 1e-9) * (1 + 1.0/64)
		}
		k := min(n, parts)
		for i := range k {
			share := n*(i+1)/k - n*i/k
			at := min(mostSeconds, more+lower+(upper-lower)*(float64(i)+0.5)/float64(k))
			to.Add(time.Duration(at*float64(time.Second)), int64(share))
		}
		lower = min(b.bound, mostSeconds)
	}
}

// mostSeconds is the longest duration that is believed: a day.
const mostSeconds = 86400

// whole is a count.
func whole(x float64) int { return int(math.Round(min(max(x, 0), 1e12))) }
