package services

import (
	"github.com/muster-gpu/muster/service"
	"github.com/muster-gpu/muster/serving/llm"
	"github.com/muster-gpu/muster/serving/scale"
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

// bothPhases gives each phase a replica of the two or more that are kept, where it has an object.
func (s *running) bothPhases(list []int) []int {
	var want []scale.Want
	for i, o := range s.parts {
		if o != nil {
			want = append(want, scale.Want{Kind: scale.Kind{Variant: i}, Replicas: list[i]})
		}
	}
	scale.BothPhases(&s.spec, want)
	for _, w := range want {
		list[w.Variant] = w.Replicas
	}
	return list
}
