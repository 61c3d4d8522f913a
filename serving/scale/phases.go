package scale

import (
	"github.com/muster-gpu/muster/service"
	"github.com/muster-gpu/muster/serving/llm"
)

// BothPhases gives each phase that has a variant in want a replica of the two or more that are wanted, from the variant
// that has most; want of a service without phases stays as it is. It changes want.
func BothPhases(s *service.Service, want []Want) {
	if !s.Phased() {
		return
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
}
