package report

import (
	"time"

	"github.com/muster-gpu/muster/cluster"
)

// maxBins bounds the curves of a report: when a replay outgrows them, pairs of
// bins are merged.
const maxBins = 1024

// Series holds time integrals in bins of equal width, so that a replay of any
// length yields curves of bounded size, exact in their means.
type Series struct {
	Width time.Duration
	Bins  []Bin
}

// Bin holds integrals over one bin, in unit-seconds.
type Bin struct {
	Alloc, Busy, Pending, Running, Demand, Split, Useless, Free float64
	Queues                                                      []float64 // milli-GPU-seconds per queue
}

// Sample is the state of a cluster between two events.
type Sample struct {
	Alloc, Busy cluster.Milli // held by jobs; the part of it that computes
	Demand      cluster.Milli // requested by pending jobs
	Split, Free cluster.Milli // free on partly used nodes; all free
	Useless     cluster.Milli // free, but unusable for recently submitted tasks (inventory.Fragmentation)
	Pending     int64         // jobs
	Running     int64
}

// NewSeries returns an empty series with bins of a minute.
func NewSeries() Series { return Series{Width: time.Minute} }

// Add integrates a constant state over [from, to).
func (s *Series) Add(from, to cluster.Time, v Sample, queues []cluster.Milli) {
	for to > cluster.Time(s.Width)*maxBins {
		s.double()
	}
	for from < to {
		i := int(from / cluster.Time(s.Width))
		end := min(to, cluster.Time(i+1)*cluster.Time(s.Width))
		for i >= len(s.Bins) {
			s.Bins = append(s.Bins, Bin{})
		}
		b := &s.Bins[i]
		dt := end.Sub(from).Seconds()
		b.Alloc += float64(v.Alloc) * dt
		b.Busy += float64(v.Busy) * dt
		b.Pending += float64(v.Pending) * dt
		b.Running += float64(v.Running) * dt
		b.Demand += float64(v.Demand) * dt
		b.Split += float64(v.Split) * dt
		b.Useless += float64(v.Useless) * dt
		b.Free += float64(v.Free) * dt
		for len(b.Queues) < len(queues) {
			b.Queues = append(b.Queues, 0)
		}
		for q, m := range queues {
			if m != 0 {
				b.Queues[q] += float64(m) * dt
			}
		}
		from = end
	}
}

func (s *Series) double() {
	s.Width *= 2
	half := s.Bins[:0]
	for i := 0; i < len(s.Bins); i += 2 {
		b := s.Bins[i]
		if i+1 < len(s.Bins) {
			b.merge(&s.Bins[i+1])
		}
		half = append(half, b)
	}
	for i := len(half); i < len(s.Bins); i++ {
		s.Bins[i] = Bin{}
	}
	s.Bins = half
}

func (b *Bin) merge(o *Bin) {
	b.Alloc += o.Alloc
	b.Busy += o.Busy
	b.Pending += o.Pending
	b.Running += o.Running
	b.Demand += o.Demand
	b.Split += o.Split
	b.Useless += o.Useless
	b.Free += o.Free
	for len(b.Queues) < len(o.Queues) {
		b.Queues = append(b.Queues, 0)
	}
	for q, v := range o.Queues {
		b.Queues[q] += v
	}
}
