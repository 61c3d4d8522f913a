package service

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/muster-gpu/muster/cluster"
)

// Point is how long a batch takes on a part of a GPU.
type Point struct {
	Share   cluster.Milli // of the GPU's threads; Whole: all
	Batch   int           // requests computed together
	Latency time.Duration // of the batch
}

// Profile is how long a variant computes, as measured: by share, then by batch.
type Profile []Point

// Sort puts the points in order.
func (p Profile) Sort() {
	slices.SortFunc(p, func(a, b Point) int {
		return cmp.Or(cmp.Compare(a.Share, b.Share), cmp.Compare(a.Batch, b.Batch))
	})
}

func (p Profile) check() error {
	if len(p) == 0 {
		return errors.New("it was never measured: give how long batches take, such as {batch: 1, latency: 5ms}")
	}
	for i, x := range p {
		switch {
		case x.Share < 1 || x.Share > cluster.Whole:
			return fmt.Errorf("share: %d is not from 1 to %d thousandths of a GPU", x.Share, cluster.Whole)
		case x.Batch < 1 || x.Batch > maxBatch:
			return fmt.Errorf("batch: %d is not from 1 to %d", x.Batch, maxBatch)
		case x.Latency <= 0 || x.Latency > time.Hour:
			return fmt.Errorf("latency: %v is not a time up to an hour", x.Latency)
		case i > 0 && x.Share == p[i-1].Share && x.Batch == p[i-1].Batch:
			return fmt.Errorf("batch %d with share %d was given twice", x.Batch, x.Share)
		}
	}
	return nil
}

// MaxBatch is the largest batch that was measured.
func (p Profile) MaxBatch() (most int) {
	for i := range p {
		most = max(most, p[i].Batch)
	}
	return most
}

// Takes is how long a batch takes on a share of a GPU. Between two measured batches it is interpolated, and so it is
// in 1/share between two measured shares; below the least share, time grows as the share shrinks. A batch beyond the
// largest takes as many of those as are needed. 0: nothing was measured.
func (p Profile) Takes(share cluster.Milli, batch int) time.Duration {
	if len(p) == 0 {
		return 0
	}
	lo, hi := 0, len(p) // the curves of the shares below and above: p[lo:mid], p[mid:hi]
	mid := 0
	for mid < len(p) && p[mid].Share < share {
		if p[mid].Share != p[lo].Share {
			lo = mid
		}
		mid++
	}
	if mid == len(p) { // beyond the largest share: as on that
		return p[lo:].at(batch)
	}
	for hi = mid; hi < len(p) && p[hi].Share == p[mid].Share; {
		hi++
	}
	above := p[mid:hi].at(batch)
	switch {
	case p[mid].Share == share:
		return above
	case mid == 0:
		return scaled(above, float64(p[0].Share)/float64(share))
	}
	below := p[lo:mid].at(batch)
	x, a, b := 1/float64(share), 1/float64(p[mid].Share), 1/float64(p[lo].Share)
	return above + scaled(below-above, (x-a)/(b-a))
}

// at is how long a batch takes on the share of one curve.
func (p Profile) at(batch int) time.Duration {
	last := &p[len(p)-1]
	whole := time.Duration(0)
	if batch > last.Batch {
		whole = time.Duration(batch/last.Batch) * last.Latency
		if batch %= last.Batch; batch == 0 {
			return whole
		}
	}
	i := 0
	for p[i].Batch < batch {
		i++
	}
	if i == 0 || p[i].Batch == batch {
		return whole + p[i].Latency // fewer than were ever measured take as long as the fewest
	}
	a, b := &p[i-1], &p[i]
	return whole + a.Latency + scaled(b.Latency-a.Latency, float64(batch-a.Batch)/float64(b.Batch-a.Batch))
}

func scaled(d time.Duration, by float64) time.Duration {
	return time.Duration(math.Round(float64(d) * by))
}

// Sustained is the largest batch that replicas on a share can compute within a latency goal when requests come at a
// rate for each (per second), and the highest such rate that they sustain. A request that just missed a batch waits
// until that is done, and is computed in the next (Nexus, section 4, SOSP 2019): a batch takes at most half of the
// goal. 0: not even one request at a time.
func (p Profile) Sustained(share cluster.Milli, most int, goal time.Duration) (batch int, rate float64) {
	for b := 1; b <= most && len(p) > 0; b++ {
		if t := p.Takes(share, b); 2*t <= goal {
			if r := float64(b) / t.Seconds(); r > rate {
				batch, rate = b, r
			}
		}
	}
	return batch, rate
}
