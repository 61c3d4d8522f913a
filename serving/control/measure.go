package control

import (
	"slices"
	"strconv"
	"time"

	"github.com/muster-gpu/muster/gateway"
	"github.com/muster-gpu/muster/service"
	"github.com/muster-gpu/muster/show"
)

// times is how long batches took, by size.
type times map[int]*gateway.Size

const (
	leastBatches = 3    // of a size before it counts as measured
	freshBatches = 1000 // beyond as many of a size, older ones count half
)

// add adds what was counted of a replica since the last time.
func (t times) add(now, was []gateway.Size) {
	for _, x := range now {
		if i := slices.IndexFunc(was, func(o gateway.Size) bool { return o.Requests == x.Requests }); i >= 0 {
			x.Batches -= was[i].Batches
			x.Took -= was[i].Took
		}
		if x.Batches <= 0 || x.Took <= 0 || x.Requests < 1 {
			continue
		}
		sum := t[x.Requests]
		if sum == nil {
			sum = &gateway.Size{Requests: x.Requests}
			t[x.Requests] = sum
		}
		if sum.Batches += x.Batches; sum.Batches > freshBatches {
			sum.Batches, sum.Took = sum.Batches/2, (sum.Took+x.Took)/2
			continue
		}
		sum.Took += x.Took
	}
}

// profile is what was measured, as a profile of a variant: a larger batch never takes less time than a smaller one.
func (t times) profile(v *service.Variant) (p service.Profile) {
	longest := time.Duration(0)
	for _, x := range t.sorted() {
		longest = max(longest, x.Took/time.Duration(x.Batches))
		p = append(p, service.Point{Share: v.Share(), Batch: x.Requests, Latency: longest})
	}
	return p
}

// sorted lists the sizes that were measured, rising.
func (t times) sorted() (list []gateway.Size) {
	for _, x := range t {
		if x.Batches >= leastBatches {
			list = append(list, *x)
		}
	}
	slices.SortFunc(list, func(a, b gateway.Size) int { return a.Requests - b.Requests })
	return list
}

// measure takes over what the gateway counted of the replicas' batches.
func (c *Controller) measure(s *running, served *gateway.Served) {
	for i := range served.Each {
		x := &served.Each[i]
		id, err := strconv.Atoi(x.ID)
		if err != nil || c.replicas[id] == nil {
			continue // it is over
		}
		r := c.replicas[id]
		if r.sizes == nil { // what was counted before is known, or is not this controller's
			r.sizes = append([]gateway.Size{}, x.Sizes...)
			r.booked = r.sizes
			continue
		}
		if k := s.variant(r); k >= 0 {
			s.times[k].add(x.Sizes, r.sizes)
		}
		r.sizes = append(r.sizes[:0:0], x.Sizes...)
	}
	for k := range s.Variants {
		if v := &s.Variants[k]; v.Measure {
			if p := s.times[k].profile(v); !alike(p, v.Profile) {
				v.Profile, s.routes = p, nil
			}
		}
	}
}

// alike reports whether two profiles have the same batches, which take as long but for a twentieth.
func alike(p, q service.Profile) bool {
	return slices.EqualFunc(p, q, func(a, b service.Point) bool {
		d := a.Latency - b.Latency
		return a.Batch == b.Batch && max(d, -d) <= b.Latency/20
	})
}

// measured shows what was measured of a variant.
func (t times) measured() (list []show.ServiceBatch) {
	for _, x := range t.sorted() {
		list = append(list, show.ServiceBatch{Requests: x.Requests,
			Seconds: (x.Took / time.Duration(x.Batches)).Seconds()})
	}
	return list
}
