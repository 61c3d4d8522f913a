package services

import (
	"fmt"
	"maps"
	"math/bits"
	"slices"
	"time"

	"github.com/muster-gpu/muster/kube/services/load"
	"github.com/muster-gpu/muster/service"
)

// times is how long batches of a variant took, by size.
type times map[int]timed

// timed is what was measured of batches of a size.
type timed struct {
	Batch   int     `json:"batch"`
	Seconds float64 `json:"seconds"` // in the mean
	Number  float64 `json:"number"`
}

const (
	leastBatches = 3    // of a size before it counts as measured
	freshBatches = 1000 // beyond as many of a size, older ones count less
	mostBatch    = 4096
	mostSizes    = 200 // that are read of an annotation
)

// size is one of those that are told apart: above 16, of each power of two the eighths.
func size(batch int) int {
	batch = min(max(batch, 1), mostBatch)
	shift := max(0, bits.Len(uint(batch))-4)
	return batch >> shift << shift
}

// add adds batches.
func (t times) add(b *load.Batches) {
	n := size(b.Size)
	x := t[n]
	x.Batch = n
	x.Seconds = (x.Seconds*x.Number + b.Seconds*b.Number) / (x.Number + b.Number)
	x.Number = min(x.Number+b.Number, freshBatches)
	t[n] = x
}

// list lists the sizes, rising.
func (t times) list() (list []timed) {
	for _, n := range slices.Sorted(maps.Keys(t)) {
		list = append(list, t[n])
	}
	return list
}

// profile is what was measured: a larger batch never takes less time than a smaller one.
func (t times) profile(v *service.Variant) (p service.Profile) {
	longest := time.Duration(0)
	for _, x := range t.list() {
		if x.Number >= leastBatches {
			longest = max(longest, time.Duration(x.Seconds*float64(time.Second)))
			p = append(p, service.Point{Share: v.Share(), Batch: x.Batch, Latency: longest})
		}
	}
	return p
}

// learn adds what was measured in a period of the variants whose profile is that.
func (s *running) learn(f *fleet, l *load.Load) {
	for i := range l.Batches {
		b := &l.Batches[i]
		if v := f.variant[b.ID]; s.spec.Variants[v].Measure {
			s.times[v].add(b)
		}
	}
}

// remember takes over what was measured before the service had another form or, as the annotation has it, by an earlier
// scheduler. What that says is the service's own affair, so it is only bounded.
func (s *running) remember(old *running) {
	known := s.recorded().Measured
	if old != nil && old.err == nil {
		known = old.measured()
	}
	s.times = make([]times, len(s.spec.Variants))
	for i := range s.spec.Variants {
		s.times[i] = times{}
		list := known[s.spec.Variants[i].Name]
		for _, x := range list[:min(len(list), mostSizes)] {
			const longest = 3600
			if x.Batch == size(x.Batch) && x.Seconds > 0 && x.Seconds <= longest && x.Number > 0 {
				x.Number = min(x.Number, freshBatches)
				s.times[i][x.Batch] = x
			}
		}
	}
}

// measured is what is kept of the variants whose profile is measured.
func (s *running) measured() map[string][]timed {
	all := map[string][]timed{}
	for i := range s.spec.Variants {
		if v := &s.spec.Variants[i]; v.Measure && i < len(s.times) && len(s.times[i]) > 0 {
			all[v.Name] = s.times[i].list()
		}
	}
	return all
}

// profiled gives a variant the profile that was measured, if it is to have that, and says what is in the way of
// computing with it.
func (s *running) profiled(i int, spec *service.Service, v *service.Variant) (problem string) {
	if !v.Measure {
		return ""
	}
	v.Profile = s.times[i].profile(v)
	if len(v.Profile) == 0 {
		return "variant " + v.Name + ": what a replica sustains is not measured yet"
	}
	if _, rate := v.Profile.Sustained(v.Share(), mostBatch, spec.Goal.Latency); rate == 0 {
		return fmt.Sprintf("variant %s: the fastest requests take %s in the mean, and at most half of the latency that is "+
			"promised is computed with: scaling: hpa does without", v.Name,
			v.Profile[0].Latency.Round(time.Millisecond))
	}
	spec.Batching.Max = max(spec.Batching.Max, v.Profile.MaxBatch())
	return ""
}
