// Package serving plans inference services on MIG instances: which sizes of instance, with which batches and how
// many processes on each, meet each service's rate and latency on the fewest GPUs (ParvaGPU, SC'24); or on parts
// of GPUs under MPS, where several services may take turns (gpulet, ATC'22). It plays requests against such
// plans.
package serving

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/muster-gpu/muster/cluster"
)

// Point is a measurement of a service: processes share an instance or a part of a GPU (under MPS), and each
// computes batches.
type Point struct {
	Compute   int           // compute slices of the instance; 0: not an instance
	Batch     int           // requests computed together
	Processes int           // on the instance
	Rate      float64       // requests per second of each process
	Latency   time.Duration // of a batch, while all processes compute
	Percent   int           // of a GPU's threads, under MPS; 0: an instance
}

// Use is what a service uses of a whole GPU while it computes batches of a size.
type Use struct {
	Batch           int
	Compute, Memory float64 // of its compute, of its memory bandwidth; 0 to 1
}

// Capacity is the requests per second of all processes.
func (p *Point) Capacity() float64 { return p.Rate * float64(p.Processes) }

// Service is a model that answers requests, with its promise.
type Service struct {
	Name    string
	Rate    float64       // requests per second
	Latency time.Duration // from a request's arrival to its answer, at most
	Points  []Point       // its measurements
	Uses    []Use         // by batch; none: unknown
}

// Instance is a MIG instance of a GPU for a service.
type Instance struct {
	Service int
	GPU     int // from 0
	cluster.Instance
	Point
}

// Plan is the instances of all services, by GPU and start.
type Plan struct {
	GPUs      int
	Least     int // GPUs that every plan needs: by compute slices, or by exhaustive search
	Instances []Instance
	Capacity  []float64 // requests per second, by service
}

// size is a size of instance that a service can have, with the best measurement of each service.
type size struct {
	profile *cluster.SliceProfile
	best    []Point // by service; no batch: it does not fit, or is too slow
}

// sizes lists the sizes of a model's instances by compute slices, the largest first.
func sizes(m *cluster.GPUModel, services []Service) (list []size) {
	for _, p := range m.Sizes() {
		s := size{profile: p, best: make([]Point, len(services))}
		for k := range services {
			s.best[k] = services[k].best(p.Compute)
		}
		list = append(list, s)
	}
	slices.SortStableFunc(list, func(a, b size) int { return cmp.Compare(b.profile.Compute, a.profile.Compute) })
	return list
}

// best is the measurement of greatest capacity whose batches take at most half of the promised latency: a
// request waits for the batch that is being computed, and is computed in the next. Of equal ones the fastest.
func (s *Service) best(compute int) (best Point) {
	for _, p := range s.Points {
		if p.Compute != compute || p.Rate <= 0 || p.Latency <= 0 || 2*p.Latency > s.Latency {
			continue
		}
		if c, b := p.Capacity(), best.Capacity(); c > b || c == b && p.Latency < best.Latency {
			best = p
		}
	}
	return best
}

// check says what is wrong with a service.
func (s *Service) check() error {
	switch {
	case !(s.Rate >= 1e-6 && s.Rate <= 1e9):
		return fmt.Errorf("service %s: rate %g; want requests per second, from a millionth to a billion", s.Name,
			s.Rate)
	case s.Latency <= 0:
		return fmt.Errorf("service %s: latency %v; want a duration", s.Name, s.Latency)
	case len(s.Points) == 0:
		return fmt.Errorf("service %s: it was never measured", s.Name)
	}
	return nil
}
