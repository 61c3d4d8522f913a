package services

import (
	"github.com/muster-gpu/muster/service"
	"github.com/muster-gpu/muster/serving/llm"
)

// A service whose variants have phases needs a replica of each to answer. Which replicas a request goes to, the router
// in front of them decides.

// phase is what replicas of a variant compute of requests.
func phase(v *service.Variant) llm.Phase {
	if v.Language == nil {
		return llm.Both
	}
	return v.Language.Phase
}

// fewest is how many replicas can answer requests.
func (s *running) fewest() int {
	if s.spec.Phased() {
		return 2
	}
	return 1
}

// withoutPhase says which phase has no object; "": each has.
func (s *running) withoutPhase() string {
	if !s.spec.Phased() {
		return ""
	}
	for _, p := range []llm.Phase{llm.Prefill, llm.Decode} {
		if s.ofPhase(p) < 0 {
			return "no object has replicas for " + llm.PhaseNames[p]
		}
	}
	return ""
}

// ofPhase is the first variant of a phase that has an object; -1: none has.
func (s *running) ofPhase(p llm.Phase) int {
	for i, o := range s.parts {
		if o != nil && phase(&s.spec.Variants[i]) == p {
			return i
		}
	}
	return -1
}

// bothPhases gives each phase a replica of the two or more that are kept, from the variant that has most.
func (s *running) bothPhases(list []int) []int {
	var n [len(llm.PhaseNames)]int
	most := 0
	for i, k := range list {
		n[phase(&s.spec.Variants[i])] += k
		if k > list[most] {
			most = i
		}
	}
	for p := llm.Prefill; s.spec.Phased() && p <= llm.Decode; p++ {
		if i := s.ofPhase(p); n[p] == 0 && i >= 0 && list[most] > 1 {
			list[i]++
			list[most]--
		}
	}
	return list
}
