package place

import "github.com/muster-gpu/muster/engine/placement"

var consolidate = Info{
	Name:   "consolidate",
	About:  "Tiresias' rule: gangs of high skew on as few machines as possible, others fill the smallest holes",
	Source: "Tiresias (NSDI'19): skew placement; a job whose skew is unknown is consolidated",
	New:    func() placement.Placer { return skew{limit: 100} },
}

// skew consolidates jobs whose largest message exceeds limit thousandths of their model; 0.1 is the
// limit that Tiresias' profiler learns.
type skew struct{ limit int64 }

func (skew) Name() string { return "consolidate" }

// Place consolidates (largest-free first) or scatters (smallest-free first).
func (p skew) Place(s *placement.Site) bool {
	j := s.Job().Spec()
	if j.Skew == 0 || j.Skew > p.limit {
		return constrained(s, pack)
	}
	return constrained(s, func(s *placement.Site) bool {
		return sets(s, func(set, count int) bool {
			return fill(s, set, count, placement.Fullest)
		})
	})
}
