package serving

import (
	"cmp"
	"slices"
	"time"

	"github.com/muster-gpu/muster/cluster"
)

// mostBatch is the largest batch that is planned on parts of GPUs.
const mostBatch = 512

// rates are what one process does with batches of a size, by part of a GPU, in per cent.
type rates struct {
	percent, rate []float64
}

func (r *rates) add(percent, rate float64) {
	r.percent, r.rate = append(r.percent, percent), append(r.rate, rate)
}

// at is the rate on a part, in proportion between those measured; 0: it is not known,
// since it is smaller than all of them, or larger.
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

// never is longer than anything that is promised: 104 days. What takes longer takes that,
// so that sums of it do not overflow.
const never = time.Duration(1 << 53)

// inTime is so many whole nanoseconds, or never: one that is missing by the
// arithmetic alone is there.
func inTime(ns float64) time.Duration { return time.Duration(min(ns, float64(never)) + 1e-3) }

// parts is what is known of a service's batches of one size on parts of a GPU, in the
// ways in which it was measured.
type parts struct {
	batch     int
	threads   rates // with so many per cent of the threads
	instance  rates // alone on a MIG instance, which has as much of the compute slices
	processes rates // one of several like it on a whole GPU, each of which has its part
}

// partsOf sorts the measurements of a service on GPUs of a model by batch.
func partsOf(m *cluster.GPUModel, s *Service) (list []parts) {
	points := slices.Clone(s.Points)
	slices.SortStableFunc(points, func(a, b Point) int {
		return cmp.Or(cmp.Compare(a.Batch, b.Batch), cmp.Compare(a.Percent, b.Percent), cmp.Compare(a.Compute, b.Compute), cmp.Compare(b.Processes, a.Processes))
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
			// no quicker than a batch was, and between two parts no quicker than on both
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
// Where that part was measured under MPS, it is as measured, and between two such in
// proportion of the rates. Where only MIG instances were, it is estimated, as the slower
// of two: alone on an instance with as much of the compute slices (its memory is a part,
// too, but nobody else uses it), and as one of so many processes on the whole GPU that
// each has that part of it (they use it all, and its memory together).
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
	// published latencies on instances are cut to milliseconds: a process that does nothing
	// else needs what its rate says
	return inTime(float64(p.batch) / rate * float64(time.Second))
}

// curve is how long batches take on a part of a GPU, by size less one: in proportion
// between the sizes that were measured, no less than smaller ones. Those above the largest
// that is known to run there are missing.
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

// use is what a service uses of a whole GPU while it computes batches of a size, in
// proportion between those that are known.
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
