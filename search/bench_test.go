package search

import (
	"math/rand/v2"
	"testing"
)

// BenchmarkASHA plays a whole search of 100,000 trials on 500 workers; an
// operation is one report with the decision that follows.
func BenchmarkASHA(b *testing.B) {
	m := Method{Name: ASHA, Trials: MaxTrials, Min: 1, Max: 81, Eta: 3}
	var s *Search
	var live []Decision
	var r *rand.Rand
	for b.Loop() {
		if len(live) == 0 {
			s, _ = New(m)
			r = rand.New(rand.NewPCG(1, 2))
			live, _ = s.Step(nil, 500)
		}
		i := r.IntN(len(live))
		d := live[i]
		live[i] = live[len(live)-1]
		live = live[:len(live)-1]
		next, err := s.Step([]Event{{Type: Reported, Trial: d.Trials[0], Rung: d.Rung, Metric: r.Float64()}}, 1)
		if err != nil {
			b.Fatal(err)
		}
		live = append(live, next...)
	}
}
