package service

import (
	"math"
	"slices"
	"time"
)

// Slowdown is the mean factor by which batches of replicas take longer than alone, because of what computes on the
// same GPUs.
type Slowdown struct {
	sum float64
	n   int
}

// Add counts another replica.
func (d *Slowdown) Add(factor float64) { d.sum, d.n = d.sum+factor, d.n+1 }

// Mean is the mean in steps of a twentieth, as what is decided by it would change with each batch otherwise; 1 without
// a replica.
func (d *Slowdown) Mean() float64 {
	const step = 20
	if d.n == 0 {
		return 1
	}
	return math.Round(d.sum/float64(d.n)*step) / step
}

// Slowed is the service with batches that take longer by a factor for each variant.
func (s *Service) Slowed(factors []float64) Service {
	spec := *s
	spec.Variants = slices.Clone(s.Variants)
	for k := range spec.Variants {
		if factors[k] == 1 {
			continue
		}
		v := &spec.Variants[k]
		v.Profile = slices.Clone(v.Profile)
		for i := range v.Profile {
			v.Profile[i].Latency = time.Duration(float64(v.Profile[i].Latency) * factors[k])
		}
	}
	return spec
}
