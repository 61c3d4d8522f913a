package load

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"time"
)

// Server is a kind of model server: how its metrics are called. Where there are several names, later versions call it
// by the first.
type Server struct {
	Name     string
	prefix   string   // of its metrics
	more     []string // other prefixes of metrics that tell of it
	waiting  []string
	running  []string
	full     []string // part of what it can hold that is in use, 0 to 1
	finished []string // requests that were answered
	failed   []string
	prompts  []string // tokens
	outputs  []string
	latency  []timing
	ttft     []timing
	tpot     []timing
	// Of servers of one phase: queues besides, and of these the one in which requests wait for memory; and whether
	// routers send a request to both phases at once.
	moving   []string
	memory   string
	together bool
	// The time of all finished requests together, of servers without a histogram of latencies.
	took timing
	// Of servers that compute batches: the time of each request's batch, together; requests, and batches.
	computed []timing
	requests string
	batches  string
}

// timing is a metric of durations.
type timing struct {
	name string
	unit float64 // in seconds; 0: one
}

func (t *timing) seconds() float64 {
	if t.unit == 0 {
		return 1
	}
	return t.unit
}

// servers are the kinds that are known.
var servers = []*Server{&vllm, &sglang, &triton, &tgi, &rayServe}

// Names lists the kinds of model servers.
func Names() (list []string) {
	for _, s := range servers {
		list = append(list, s.Name)
	}
	return list
}

// recognise finds the kind whose metrics these are, which is of a name if one is given.
func recognise(s *samples, name string) (*Server, error) {
	for _, k := range servers {
		if name != "" && k.Name != name {
			continue
		}
		for metric := range s.sum {
			if strings.HasPrefix(metric, k.prefix) {
				return k, nil
			}
		}
	}
	if name != "" {
		return nil, fmt.Errorf("it has no metrics of %s", name)
	}
	return nil, fmt.Errorf("it has no metrics of a server that is known (%s)", strings.Join(Names(), ", "))
}

// Reading is what a server says at a time; counts are since it began.
type Reading struct {
	At       time.Time
	Waiting  float64 // requests now
	Running  float64
	Moving   float64 // on the way from a prefill server to a decode server
	Full     float64 // part of what it can hold that is in use, 0 to 1
	Tells    bool    // it says so
	Finished float64 // requests
	Failed   float64
	Prompts  float64 // tokens
	Outputs  float64
	Took     float64 // seconds of all finished requests
	First    float64 // ... of all those until their first tokens
	Computed float64 // seconds of each request's batch
	Requests float64 // that were computed
	Batches  float64
	Latency  histogram
	TTFT     histogram
	TPOT     histogram
	Together bool // a request that has two phases comes to a server of each at once
}

// histogram has the counts of durations between two bounds, which are seconds and rise. What lies beyond the last is
// counted with an infinite bound.
type histogram []bucket

type bucket struct{ bound, count float64 }

// read takes what is needed from a server's metrics.
func (k *Server) read(s *samples, at time.Time) Reading {
	first := func(of map[string]float64, names []string) float64 {
		for _, n := range names {
			if v, ok := of[n]; ok {
				return v
			}
		}
		return 0
	}
	r := Reading{At: at, Waiting: first(s.sum, k.waiting), Running: first(s.sum, k.running),
		Full: min(1, first(s.most, k.full)), Finished: first(s.sum, k.finished), Failed: first(s.sum, k.failed),
		Prompts: first(s.sum, k.prompts), Outputs: first(s.sum, k.outputs), Together: k.together}
	for _, name := range k.moving {
		r.Moving += s.sum[name]
	}
	r.Tells = slices.ContainsFunc(k.full, func(name string) bool { _, ok := s.most[name]; return ok })
	r.Waiting += s.sum[k.memory]
	r.Latency, r.TTFT, r.TPOT = s.timed(k.latency), s.timed(k.ttft), s.timed(k.tpot)
	r.Took = s.sum[k.took.name] * k.took.seconds()
	for i := range k.latency {
		r.Took += s.sum[k.latency[i].name+"_sum"] * k.latency[i].seconds()
	}
	for i := range k.ttft {
		r.First += s.sum[k.ttft[i].name+"_sum"] * k.ttft[i].seconds()
	}
	for i := range k.computed {
		r.Computed += s.sum[k.computed[i].name] * k.computed[i].seconds()
	}
	r.Requests, r.Batches = s.sum[k.requests], s.sum[k.batches]
	return r
}

// timed is the first of these histograms that there is.
func (s *samples) timed(names []timing) histogram {
	for i := range names {
		if cumulative := s.buckets[names[i].name]; len(cumulative) > 0 {
			return perBucket(cumulative, names[i].seconds())
		}
	}
	return nil
}

// perBucket turns counts up to a bound into those between two.
func perBucket(cumulative map[float64]float64, unit float64) (h histogram) {
	before := 0.0
	for _, bound := range slices.Sorted(maps.Keys(cumulative)) {
		n := cumulative[bound]
		h = append(h, bucket{bound * unit, max(0, n-before)})
		before = max(before, n)
	}
	return h
}

// since is what was counted after an earlier reading of the same server. One that began again counts from nothing.
func (r *Reading) since(was *Reading) Reading {
	d := *r
	if r.Finished < was.Finished || r.Latency.total() < was.Latency.total() || r.TTFT.total() < was.TTFT.total() {
		return d
	}
	d.Finished -= was.Finished
	d.Failed = max(0, d.Failed-was.Failed)
	d.Prompts, d.Outputs = max(0, d.Prompts-was.Prompts), max(0, d.Outputs-was.Outputs)
	d.Took, d.Computed = max(0, d.Took-was.Took), max(0, d.Computed-was.Computed)
	d.First = max(0, d.First-was.First)
	d.Requests, d.Batches = max(0, d.Requests-was.Requests), max(0, d.Batches-was.Batches)
	d.Latency, d.TTFT, d.TPOT = r.Latency.since(was.Latency), r.TTFT.since(was.TTFT), r.TPOT.since(was.TPOT)
	return d
}

func (h histogram) total() (n float64) {
	for _, b := range h {
		n += b.count
	}
	return n
}

func (h histogram) since(was histogram) histogram {
	d := slices.Clone(h)
	for i := range d {
		if k := slices.IndexFunc(was, func(b bucket) bool { return b.bound == d[i].bound }); k >= 0 {
			d[i].count = max(0, d[i].count-was[k].count)
		}
	}
	return d
}

// busy is how many seconds of a span it computed: of servers that do not say, the part of the span that corresponds to
// what is in use of what they can hold.
func (r *Reading) busy(span float64) float64 {
	if r.Requests > 0 {
		return min(span, r.Computed*r.Batches/r.Requests)
	}
	return r.Full * span
}

// beyond is how many took longer than a time; what shares a bucket with it is spread evenly.
func (h histogram) beyond(limit float64) (n float64) {
	lower := 0.0
	for _, b := range h {
		switch {
		case lower >= limit || math.IsInf(b.bound, 1):
			n += b.count
		case b.bound > limit:
			n += b.count * ((b.bound - limit) / (b.bound - lower))
		}
		lower = b.bound
	}
	return n
}
