package control

import (
	"maps"
	"slices"
	"time"

	"github.com/muster-gpu/muster/service"
	"github.com/muster-gpu/muster/show"
)

// Replicas on parts of one GPU slow each other down, and so does training there. How much is measured: how long batches
// take while a replica of another variant computes beside them, or a job of a model runs there, against how long they
// take alone.

// besides is how long a variant's batches took, by the one other (SERVICE/VARIANT, or "jobs of MODEL") that computed on
// the same GPU; "": none did.
type besides map[string]times

const (
	bookEvery   = time.Second // neighbours that computed in the same time count as having computed together
	leastBeside = 10          // batches before a pair counts as measured
	mostBeside  = 64          // others of which it is known what they do to a variant
)

// book attributes the batches since the last time to the neighbours that replicas had.
func (c *Controller) book(now time.Time) {
	if now.Sub(c.bookedAt) < bookEvery {
		return
	}
	c.bookedAt = now
	since := map[*replica]times{}
	for _, r := range c.replicas {
		if s := c.services[r.Service]; s != nil && r.State == Starts && r.answers {
			since[r] = times{}
			since[r].add(r.sizes, r.booked)
		}
		r.booked = slices.Clone(r.sizes)
	}
	for r, t := range since {
		s := c.services[r.Service]
		k := s.variant(r)
		if k < 0 || len(t) == 0 {
			continue
		}
		others := c.neighbours(r, func(o *replica) bool { return len(since[o]) > 0 })
		if len(others) > 1 { // what each of them does cannot be told
			continue
		}
		other := ""
		if len(others) == 1 {
			other = others[0]
		}
		if s.beside[k][other] == nil {
			if other != "" && len(s.beside[k]) > mostBeside {
				continue
			}
			s.beside[k][other] = times{}
		}
		s.beside[k][other].add(t.list(), nil)
		if f, ok := s.factor(k, other); ok {
			c.opt.Scheduler.Slowed(r.ID, 1/f)
		}
	}
	for _, s := range c.services {
		c.slow(s)
	}
}

// neighbours are what computes on a replica's GPUs: the replicas of which something holds, and the other jobs, which
// are taken to compute all the time.
func (c *Controller) neighbours(r *replica, holds func(*replica) bool) (kinds []string) {
	for _, o := range c.replicas {
		if o != r && o.State == Starts && holds(o) &&
			slices.ContainsFunc(o.GPUs, func(g string) bool { return slices.Contains(r.GPUs, g) }) {
			kinds = append(kinds, o.kind())
		}
	}
	for _, model := range r.Beside {
		kinds = append(kinds, jobsOf(model))
	}
	return kinds
}

// jobsOf is the name of jobs of a model; no service has it.
func jobsOf(model string) string {
	if model == "" {
		return "jobs without a model"
	}
	return "jobs of " + model
}

// kind is the name of what equal replicas compute.
func (r *replica) kind() string { return r.Service + "/" + r.Variant }

// factor is by what factor batches of a variant take longer beside another than alone: the mean over batches of sizes
// whose time alone was measured or stated; false: it is not known.
func (s *running) factor(k int, other string) (f float64, ok bool) {
	beside, alone := s.beside[k][other], s.beside[k][""]
	if other == "" || beside.batches() < leastBeside {
		return 1, false
	}
	took, expected := 0.0, 0.0
	for n, x := range beside {
		one := time.Duration(0)
		if a := alone[n]; a != nil && a.Batches >= leastBatches {
			one = a.Took / time.Duration(a.Batches)
		} else if v := &s.Variants[k]; !v.Measure {
			one = v.Profile.Takes(v.Share(), n)
		}
		if one > 0 {
			took += float64(x.Took)
			expected += float64(one) * float64(x.Batches)
		}
	}
	if expected == 0 {
		return 1, false
	}
	return max(1, took/expected), true
}

// slow finds out by what factor the batches of a service take longer where its replicas are now.
func (c *Controller) slow(s *running) {
	for k := range s.Variants {
		var by service.Slowdown
		for _, r := range c.of(s) {
			if s.variant(r) != k || r.state() != Answers {
				continue
			}
			all := 1.0
			for _, o := range c.neighbours(r, func(o *replica) bool { return o.answers }) {
				f, _ := s.factor(k, o)
				all *= f
			}
			by.Add(all)
		}
		was := s.slower[k]
		if s.slower[k] = by.Mean(); s.slower[k] != was {
			s.routes = nil
		}
	}
}

// slowed is a service whose batches take as long as they do beside the neighbours that its replicas have. A profile
// that is measured has them in it.
func (s *running) slowed() service.Service {
	slower := slices.Clone(s.slower)
	for k := range slower {
		if s.Variants[k].Measure {
			slower[k] = 1
		}
	}
	return s.Service.Slowed(slower)
}

// batches is how many were measured.
func (t times) batches() (n int64) {
	for _, x := range t {
		n += x.Batches
	}
	return n
}

// showBeside shows what was measured of a variant beside others.
func (s *running) showBeside(k int) (list []show.ServiceBeside) {
	for _, other := range slices.Sorted(maps.Keys(s.beside[k])) {
		if f, ok := s.factor(k, other); ok {
			list = append(list, show.ServiceBeside{Other: other, Factor: f, Batches: s.beside[k][other].batches()})
		}
	}
	return list
}
