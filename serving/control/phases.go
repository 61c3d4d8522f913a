package control

import (
	"slices"
	"strings"

	"github.com/muster-gpu/muster/gateway"
	"github.com/muster-gpu/muster/serving/llm"
	"github.com/muster-gpu/muster/serving/scale"
)

// promptsOf ends the name that the gateway has for a service's replicas for prompts. No service has it in its own.
const promptsOf = ":prompts"

// split is what the gateway has of a service: it with its replicas, or, where its variants have phases, it with those
// that make answers, and an inner service with those that compute prompts.
func (c *Controller) split(s *running) []gateway.Service {
	then := *s.routes
	then.Replicas = []gateway.Replica{}
	first := then
	first.Name, first.Path, first.Inner, first.Replicas = then.Name+promptsOf, "", true, []gateway.Replica{}
	for _, r := range c.of(s) {
		k := s.variant(r)
		x, there := route(r)
		switch {
		case !there:
		case s.Phased() && k >= 0 && s.Variants[k].Language.Phase == llm.Prefill:
			first.Replicas = append(first.Replicas, x)
		default:
			then.Replicas = append(then.Replicas, x)
		}
	}
	if !s.Phased() {
		return []gateway.Service{then}
	}
	then.Prompts = first.Name
	return []gateway.Service{then, first}
}

// bothPhases gives a service whose variants have phases a replica of each, of the two or more that are wanted.
func (s *running) bothPhases(want []scale.Want) []scale.Want {
	if !s.Phased() {
		return want
	}
	most, there := 0, map[llm.Phase]int{}
	for i, w := range want {
		there[s.Variants[w.Variant].Language.Phase] += w.Replicas
		if w.Replicas > want[most].Replicas {
			most = i
		}
	}
	for i, w := range want {
		if phase := s.Variants[w.Variant].Language.Phase; there[phase] == 0 && want[most].Replicas > 1 {
			want[i].Replicas++
			want[most].Replicas--
			there[phase]++
		}
	}
	return want
}

// fold adds what the gateway counted of prompts to their services: a request arrives, waits and fails in either phase,
// and is answered once.
func fold(r *gateway.Report) {
	r.Services = slices.DeleteFunc(r.Services, func(first gateway.Served) bool {
		name, inner := strings.CutSuffix(first.Name, promptsOf)
		i := slices.IndexFunc(r.Services, func(s gateway.Served) bool { return s.Name == name })
		if !inner || i < 0 {
			return false
		}
		s := &r.Services[i]
		s.Arrived = first.Arrived
		s.Dropped += first.Dropped
		s.Refused += first.Refused
		s.Failed += first.Failed
		s.Busy += first.Busy
		s.Left += first.Left
		s.Retried += first.Retried
		s.Waiting += first.Waiting
		s.Replicas = min(s.Replicas, first.Replicas)
		s.Each = append(s.Each, first.Each...)
		if s.Bulk == nil {
			s.Bulk = first.Bulk
		} else if b := first.Bulk; b != nil {
			s.Bulk.Waiting += b.Waiting
			s.Bulk.Needed = max(s.Bulk.Needed, b.Needed)
		}
		return true
	})
}
