package search

import "slices"

// through is called when a trial has finished a rung: under the stopping rule it either runs on towards the next
// one, or is to leave.
//
// The rule is that of Ray's ASHA scheduler: a trial leaves if its metric is worse than the 1/eta quantile
// (interpolated) of those that reached the rung before it.
func (s *Search) through(b *bracket, trial, rung int) {
	if !s.m.Stopping || rung+1 >= len(b.Rungs) {
		return
	}
	c := &s.cells[trial][rung]
	if c.state != reported {
		return // it failed: it does not run any more
	}
	c.leave = !s.good(trial, rung)
	if n := b.heard[rung] - 1; n > 0 && c.metric > s.quantile(b, trial, rung, n) {
		c.leave = true
	}
	if c.leave {
		s.leaving = append(s.leaving, trial)
	}
	if next := &s.cells[trial][rung+1]; next.state == open {
		s.set(next, running)
	}
}

// quantile is the 1/eta quantile of the metrics that n other trials reported at a rung, interpolated linearly.
// Failed trials are ranked together with those that reported no number: both are infinite, so their order does
// not matter.
func (s *Search) quantile(b *bracket, trial, rung, n int) float64 {
	list := b.ranked[rung]
	own, _ := slices.BinarySearchFunc(list, trial, func(a, t int) int { return s.compare(a, t, rung) })
	at := func(i int) float64 {
		if i >= own {
			i++
		}
		return s.cells[list[i]][rung].metric
	}
	i, rest := (n-1)/int(s.m.Eta), (n-1)%int(s.m.Eta)
	v := at(i)
	if rest > 0 {
		v += (at(i+1) - v) * float64(rest) / float64(s.m.Eta)
	}
	return v
}

// late reports whether an event comes from a trial that was to leave at an earlier rung: what it reports before
// it is stopped does not count. If it has ended, it need not be stopped.
func (s *Search) late(ev Event) bool {
	cells := s.cells[ev.Trial]
	k := slices.IndexFunc(cells, func(c cell) bool { return c.leave })
	if k < 0 || ev.Rung <= k {
		return false
	}
	if c := &cells[k+1]; c.state == running && (ev.Type == Failed || ev.Type == Reported && ev.Rung == len(cells)-1) {
		s.set(c, failed)
	}
	return true
}

// leavers are the trials that are to stop and still run, and an overtaken full-size run.
func (s *Search) leavers() (list []Decision) {
	slices.Sort(s.leaving)
	for _, t := range s.leaving {
		k := slices.IndexFunc(s.cells[t], func(c cell) bool { return c.leave })
		if c := &s.cells[t][k+1]; c.state == running {
			s.set(c, failed) // decided once: later reports do not count
			list = append(list, Decision{Type: Stop, Trials: []int{t}, Rung: k, Bracket: s.of[t]})
		}
	}
	s.leaving = s.leaving[:0]
	return append(list, s.overtaken()...)
}
