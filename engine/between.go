package engine

import (
	"cmp"
	"fmt"
	"math/bits"
	"slices"

	"github.com/muster-gpu/muster/engine/inventory"
	"github.com/muster-gpu/muster/engine/job"
	"github.com/muster-gpu/muster/engine/shape"
	"github.com/muster-gpu/muster/engine/speed"
)

// inName is a copy of a job's allocations in which shares are its own.
func inName(j *job.State, allocs []inventory.Alloc) []inventory.Alloc {
	list := slices.Clone(allocs)
	for i := range list {
		if list[i].Share != 0 && list[i].Slots == 0 {
			list[i].Tenant = j.Tenant()
		}
	}
	return list
}

// shunnedText says beside whom a job does not go that would have room there, of all
// such devices on that where most would be left of its own speed; "": there is none.
func (e *Engine) shunnedText(j *job.State, s *shape.Shape) (text string) {
	r, best := &s.Sets[0].Request, int64(-1)
	if !e.speeds.KnowsPairs() || !r.Fractional() || r.Profile != "" {
		return ""
	}
	site := e.find.Look(e.anywhere(), j, s, inventory.Domain{}, nil)
	for id := range e.st.Nodes() {
		n := &e.st.Nodes()[id]
		if !n.TakesJobs() || !s.Any.Has(n.Class()) {
			continue
		}
		for m := e.speeds.Shunned(n, j) & n.Healthy(); m != 0; m &= m - 1 {
			dev := bits.TrailingZeros64(m)
			others := e.speeds.Tenants(n, dev, j)
			if own := e.speeds.Among(j, others...); own > best {
				if _, ok := site.DeviceLeft(n, dev, r); ok {
					d, _ := e.speeds.Disturbs(j, others)
					best, text = own, e.disturbedText(j, others, d)
				}
			}
		}
	}
	return text
}

// disturbedText is why a job does not go beside others.
func (e *Engine) disturbedText(j *job.State, others []*job.State, d speed.Disturbed) string {
	names := ""
	for _, o := range others {
		names += ", " + cmp.Or(o.Spec.Model, o.Label())
	}
	names = names[2:]
	switch d.Who {
	case j:
		return fmt.Sprintf("beside %s it would be at %s of its speed, it asks for %s", names, partText(d.Left),
			leastText(e.speeds.Least(j)))
	case nil:
		return fmt.Sprintf("beside %s it would be at %s of its speed, and cost the others %s of theirs", names,
			partText(d.Left), partText(d.Lost))
	}
	return fmt.Sprintf("beside it %s would be at %s of its speed, and asks for %s", d.Who.Label(), partText(d.Left),
		leastText(e.speeds.Least(d.Who)))
}

// partText writes ppm as a factor, to the hundredth and never more than it is.
func partText(ppm int64) string { return fmt.Sprintf("%.2f", float64(ppm/10_000)/100) }

// leastText writes the part of its speed that a job asks for as it was stated.
func leastText(ppm int64) string { return fmt.Sprintf("%g", float64(ppm)/job.Million) }
