package serving

import (
	"cmp"
	"slices"
	"time"

	"github.com/muster-gpu/muster/cluster"
)

// mostBatch is the largest batch that is planned on parts of GPUs.
const mostBatch = 512

// rates are the measured rates of one process with batches of one size, by part of a GPU in per cent.
type rates struct {
	percent, rate []float64
}

func (r *rates) add(percent, rate float64) {
	r.percent, r.rate = append(r.percent, percent), append(r.rate, rate)
}

// at is the rate on a part, interpolated between the measured ones; 0: unknown, because the part is smaller or
// larger than all of them.
func (r *rates) at(percent float64) float64 {
	for i, p := range r.percent {
		switch {
		case p < percent:
		case p == percent:
			return r.rate[i]
		case i == 0:
			return 0
		default:
			q := r.percent[i-1]
			return r.rate[i-1] + (r.rate[i]-r.rate[i-1])*(percent-q)/(p-q)
		}
	}
	return 0
}

// never is longer than any promise: 104 days. Longer times are cut to it, so that sums do not overflow.
const never = time.Duration(1 << 53)

// inTime converts to whole nanoseconds, at most never; the added thousandth keeps rounding errors from losing
// one.
func inTime(ns float64) time.Duration { return time.Duration(min(ns, float64(never)) + 1e-3) }

// parts are a service's measurements with batches of one size on parts of a GPU, by the way they were measured.
type parts struct {
	batch     int
	threads   rates // under MPS, by per cent of the threads
	instance  rates // alone on a MIG instance, by its part of the compute slices
	processes rates // one of several equal processes on a whole GPU, by its part
}

// partsOf sorts the measurements of a service on GPUs of a model by batch size.
func partsOf(m *cluster.GPUModel, s *Service) (list []parts) {
	points := slices.Clone(s.Points)
	slices.SortStableFunc(points, func(a, b Point) int {
		return cmp.Or(cmp.Compare(a.Batch, b.Batch), cmp.Compare(a.Percent, b.Percent),
			cmp.Compare(a.Compute, b.Compute), cmp.Compare(b.Processes, a.Processes))
	})
	for i := range points {
		p := &points[i]
		if p.Batch > mostBatch || p.Rate <= 0 || p.Latency <= 0 {
			continue
		}
		if len(list) == 0 || list[len(list)-1].batch != p.Batch {
			list = append(list, parts{batch: p.Batch})
		}
		at := &list[len(list)-1]
		whole := m.Compute > 0 && p.Compute == m.Compute
		switch {
		case p.Percent > 0:
			// A part is no faster than its batch latency implies, and between two parts no faster than on both.
			at.threads.add(float64(p.Percent), min(p.Rate, float64(p.Batch)/p.Latency.Seconds()))
		case whole && p.Processes > 1:
			at.processes.add(100/float64(p.Processes), p.Rate)
		case p.Processes == 1 && m.Compute > 0:
			at.instance.add(100*float64(p.Compute)/float64(m.Compute), p.Rate)
			if whole {
				at.processes.add(100, p.Rate)
			}
		}
	}
	return list
}

// takes is how long a batch takes on a part of a GPU; 0: it is not known to run there.
//
// Measurements under MPS count as they are, with rates interpolated in between. Otherwise the rate is estimated
// from MIG instances, as the slower of two: alone on an instance with as many of the compute slices (with a part
// of the memory, but without interference), and as one of several equal processes on the whole GPU (which share
// all of it and its memory).
func (p *parts) takes(percent int) time.Duration {
	rate := p.threads.at(float64(percent))
	if rate == 0 {
		rate = p.instance.at(float64(percent))
		if r := p.processes.at(float64(percent)); r > 0 && (rate == 0 || r < rate) {
			rate = r
		}
	}
	if rate == 0 {
		return 0
	}
	// Published latencies on instances are cut to milliseconds, so for a process that does nothing else the rate
	// counts.
	return inTime(float64(p.batch) / rate * float64(time.Second))
}

// curve is how long batches take on a part of a GPU, by size less one: interpolated between the measured sizes,
// and no less than smaller batches. Sizes above the largest that is known to run there are missing.
func curve(list []parts, percent int) (takes []time.Duration) {
	for i := range list {
		d := list[i].takes(percent)
		if d == 0 {
			continue
		}
		n := len(takes)
		if n > 0 {
			d = max(d, takes[n-1])
		}
		for b := n + 1; b <= list[i].batch; b++ {
			if n == 0 {
				takes = append(takes, d) // smaller than measured: as the smallest
				continue
			}
			takes = append(takes, takes[n-1]+(d-takes[n-1])*time.Duration(b-n)/time.Duration(list[i].batch-n))
		}
	}
	return takes
}

// use is what a service uses of a whole GPU while it computes batches of a size, interpolated between the known
// ones.
func (s *Service) use(batch int) Use {
	for i, u := range s.Uses {
		switch {
		case u.Batch < batch && i+1 < len(s.Uses):
		case u.Batch <= batch || i == 0:
			return Use{batch, u.Compute, u.Memory}
		default:
			v := &s.Uses[i-1]
			f := float64(batch-v.Batch) / float64(u.Batch-v.Batch)
			return Use{batch, v.Compute + f*(u.Compute-v.Compute), v.Memory + f*(u.Memory-v.Memory)}
		}
	}
	return Use{Batch: batch}
}
