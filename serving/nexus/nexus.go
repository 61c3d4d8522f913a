// Package nexus packs inference sessions onto whole GPUs, on which they take turns: in each duty cycle of a GPU every
// session computes a batch, one after the other (Nexus: Shen et al., SOSP 2019, section 6).
package nexus

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/service"
)

// Curve is how long batches take on a whole GPU, by their size less one.
type Curve []time.Duration

// CurveOf is the curve of a profile on a whole GPU. A batch takes no longer than a larger one: it can be filled up.
func CurveOf(p service.Profile) Curve {
	c := make(Curve, p.MaxBatch())
	for i := len(c) - 1; i >= 0; i-- {
		if c[i] = p.Takes(cluster.Whole, i+1); i+1 < len(c) {
			c[i] = min(c[i], c[i+1])
		}
	}
	return c
}

// rate is the requests per second of batches of a size, one after the other.
func (c Curve) rate(batch int) float64 { return float64(batch) / c[batch-1].Seconds() }

// Sizes lists the batches that do no fewer requests per second than any smaller one.
func (c Curve) Sizes() (list []int) {
	for b := 1; b <= len(c); b++ {
		if len(list) == 0 || c.rate(b) >= c.rate(list[len(list)-1]) {
			list = append(list, b)
		}
	}
	return list
}

// Saturated is the batch of the greatest rate that takes at most half of a goal: a request that just missed a batch
// waits for it, and is computed in the next. 0: none does.
func (c Curve) Saturated(goal time.Duration) (batch int, rate float64) {
	for _, b := range c.Sizes() {
		if 2*c[b-1] <= goal {
			batch, rate = b, c.rate(b)
		}
	}
	return batch, rate
}

// Session is the requests for a model with a goal.
type Session struct {
	Name   string
	Rate   float64       // requests per second
	Goal   time.Duration // from a request's arrival to its answer, at most
	Takes  Curve
	Memory []int64 // MiB that batches need, by their size less one; none: not counted
}

func (s *Session) check() error {
	switch {
	case !(s.Rate > 0) || math.IsInf(s.Rate, 1) || s.Goal <= 0:
		return errors.New("rate and goal are above 0")
	case len(s.Takes) == 0 || s.Takes[0] <= 0 || !slices.IsSorted(s.Takes):
		return errors.New("times of batches are above 0 and do not fall with their size")
	case len(s.Memory) > 0 && len(s.Memory) != len(s.Takes):
		return fmt.Errorf("memory of %d batches, times of %d", len(s.Memory), len(s.Takes))
	}
	return nil
}

// memory is what a batch needs.
func (s *Session) memory(batch int) int64 {
	if len(s.Memory) == 0 {
		return 0
	}
	return s.Memory[batch-1]
}

// GPU is what a GPU computes in each duty cycle.
type GPU struct {
	Duty  time.Duration
	Turns []Turn
}

// Turn is a session's batch in a duty cycle.
type Turn struct {
	Session int
	Rate    float64 // requests per second that it is for
	Batch   int
	Takes   time.Duration
}

// Occupancy is the part of the cycle in which the GPU computes.
func (g *GPU) Occupancy() float64 {
	sum := time.Duration(0)
	for i := range g.Turns {
		sum += g.Turns[i].Takes
	}
	return float64(sum) / float64(g.Duty)
}

// Plan is all GPUs: those that one session saturates, by session, then those of what is left.
type Plan struct {
	GPUs  []GPU
	Least int // GPUs that every such plan needs
}

const mostGPUs = 100_000

// roundingError is the part of a GPU's rate, or the number of requests, below which there are none.
const roundingError = 1e-9

// packer is a plan in the making.
type packer struct {
	sessions []Session
	memory   int64 // MiB of a GPU; 0: not counted
}

// Make packs sessions onto GPUs with a memory of so many MiB (0: not counted): each gets GPUs that it saturates, and
// what is left of all is merged, by squishy bin packing.
func Make(sessions []Session, memory int64) (*Plan, error) {
	p := &packer{slices.Clone(sessions), memory}
	plan, rest, sum := &Plan{}, []GPU(nil), 0.0
	for k := range p.sessions {
		s := &p.sessions[k]
		if err := s.check(); err != nil {
			return nil, fmt.Errorf("session %q: %w", s.Name, err)
		}
		for memory > 0 && len(s.Takes) > 0 && s.memory(len(s.Takes)) > memory {
			s.Takes, s.Memory = s.Takes[:len(s.Takes)-1], s.Memory[:len(s.Memory)-1]
		}
		batch, rate := s.Takes.Saturated(s.Goal)
		switch {
		case batch == 0:
			return nil, fmt.Errorf("session %q: no batch takes half of %v and has enough memory", s.Name, s.Goal)
		case s.Rate/rate > mostGPUs:
			return nil, fmt.Errorf("session %q: more than %d GPUs are not planned", s.Name, mostGPUs)
		}
		sum += s.Rate / rate
		full := math.Floor(s.Rate/rate + roundingError)
		takes := s.Takes[batch-1]
		for range int(full) {
			plan.GPUs = append(plan.GPUs, GPU{takes, []Turn{{k, rate, batch, takes}}})
		}
		if left := s.Rate - float64(full*rate); left > roundingError*rate {
			rest = append(rest, p.residual(k, left))
		}
	}
	plan.Least = int(math.Ceil(sum - roundingError))
	plan.GPUs = append(plan.GPUs, p.merge(rest)...)
	return plan, nil
}

// residual is the cycle of a rate that does not saturate a GPU: of the largest batch that fills and is computed within
// the goal. Where not even one request comes in time, the cycle is as long as the goal allows; where batches of that
// size do not keep up with the rate, as long as the saturated batch takes.
func (p *packer) residual(k int, rate float64) GPU {
	s := &p.sessions[k]
	batch := 0
	for batch < len(s.Takes) && s.Takes[batch]+fills(batch+1, rate) <= s.Goal {
		batch++
	}
	duty := s.Goal - s.Takes[0]
	if batch > 0 {
		duty = fills(batch, rate)
	}
	if s.Takes[max(0, batch-1)] > duty {
		batch, _ = s.Takes.Saturated(s.Goal)
		duty = s.Takes[batch-1]
	}
	batch = arriving(duty, rate)
	return GPU{duty, []Turn{{k, rate, batch, s.Takes[batch-1]}}}
}

// fills is how long requests take to fill a batch.
func fills(batch int, rate float64) time.Duration {
	return time.Duration(min(float64(batch)/rate*float64(time.Second), math.MaxInt64/4))
}

// arriving is the most requests that arrive in a cycle.
func arriving(duty time.Duration, rate float64) int {
	return max(1, int(math.Ceil(float64((duty.Seconds()-roundingError)*rate)-roundingError)))
}

// merge puts the cycles of sessions on GPUs, those of the greatest occupancy first: each on the GPU that is then the
// most occupied, or on another GPU if it fits on none.
func (p *packer) merge(list []GPU) (gpus []GPU) {
	slices.SortStableFunc(list, func(a, b GPU) int { return cmp.Compare(b.Occupancy(), a.Occupancy()) })
	for i := range list {
		at, best := -1, GPU{}
		for g := range gpus {
			both, ok := p.together(&gpus[g], &list[i])
			if ok && (at < 0 || both.Occupancy() > best.Occupancy()) {
				at, best = g, both
			}
		}
		if at < 0 {
			gpus = append(gpus, list[i])
			continue
		}
		gpus[at] = best
	}
	return gpus
}

// together is the cycle of two GPUs' sessions on one, as long as the shorter of theirs, with smaller batches; it fails
// if the GPU cannot compute them all in a cycle.
func (p *packer) together(a, b *GPU) (both GPU, ok bool) {
	both.Duty = min(a.Duty, b.Duty)
	takes, memory := time.Duration(0), int64(0)
	both.Turns = slices.Concat(a.Turns, b.Turns)
	for i := range both.Turns {
		t := &both.Turns[i]
		s := &p.sessions[t.Session]
		t.Batch = arriving(both.Duty, t.Rate)
		if t.Batch > len(s.Takes) {
			return both, false
		}
		t.Takes = s.Takes[t.Batch-1]
		takes, memory = takes+t.Takes, memory+s.memory(t.Batch)
		if both.Duty+t.Takes > s.Goal {
			return both, false
		}
	}
	return both, takes <= both.Duty && (p.memory == 0 || memory <= p.memory)
}
