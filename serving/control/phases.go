package control

import (
	"github.com/muster-gpu/muster/serving/llm"
	"github.com/muster-gpu/muster/serving/scale"
)

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
