package search

import "slices"

// through is called when a trial is through with a rung: under the stopping rule
// it either runs on towards the next one, or is to leave.
//
// The rule is that of Ray's ASHA scheduler: a trial leaves if its metric is worse
// than the 1/eta quantile (interpolated) of those that reached the rung before it.
func (s *Search) through(b *bracket, trial, rung int) {
	if !s.m.Stopping || rung+1 >= len(b.Rungs) {
		return
	}
	c := &s.cells[trial][rung]
	if c.state != reported {
		return // it failed: it runs no more
	}
	var before []float64
	for _, t := range b.ranked[rung] {
		if t != trial && s.cells[t][rung].state == reported {
			before = append(before, s.cells[t][rung].metric)
		}
	}
	c.leave = !s.good(trial, rung)
	if len(before) > 0 && c.metric > quantile(before, s.m.Eta) {
		c.leave = true
	}
	if next := &s.cells[trial][rung+1]; next.state == open {
		next.state = running
	}
}

// quantile is the 1/eta quantile of ascending numbers, linear between them.
func quantile(list []float64, eta int64) float64 {
	n := int64(len(list)) - 1
	i, rest := n/eta, n%eta
	v := list[i]
	if rest > 0 {
		v += (list[i+1] - v) * float64(rest) / float64(eta)
	}
	return v
}

// leavers are the trials that are to stop and still run, and a full-size run
// that another has overtaken.
func (s *Search) leavers() (list []Decision) {
	if s.m.Stopping {
		for t := range s.cells {
			k := slices.IndexFunc(s.cells[t], func(c cell) bool { return c.leave })
			if k >= 0 && s.cells[t][k+1].state == running {
				s.cells[t][k+1].state = failed // said once: what it reports now is too late
				list = append(list, Decision{Type: Stop, Trials: []int{t}, Rung: k, Bracket: s.of[t]})
			}
		}
	}
	return append(list, s.overtaken()...)
}
