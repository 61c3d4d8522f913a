package services

import (
	"fmt"
	"time"
)

// held is a number of replicas that a person, or a program of theirs, set.
type held struct {
	object   string
	replicas int
	by       string
}

// persons respects what others set since Muster began with a service: replicas within the service's bounds stay for a
// period, others as long as they are so.
func (r *Room) persons(s *running, f *fleet, now time.Time) (st status, leave bool) {
	total, bounds := f.total(f.have), s.spec.Replicas
	there := map[held]time.Time{}
	for _, o := range s.parts {
		if o == nil || o.setBy == manager {
			continue
		}
		by := o.setBy
		left, known := s.left[o.UID]
		if by == "" && (known && o.replicas != left || total == 0 && bounds.Min > 0) {
			by = "somebody" // who set 0, and the next number, is not recorded
		}
		if by == "" {
			continue
		}
		key := held{o.String(), o.replicas, by}
		since, seen := s.held[key]
		switch {
		case !s.adopted || s.changed: // as it was when Muster began, or when its bounds changed
			since = time.Time{}
		case !seen:
			since = now
		}
		there[key] = since
		switch {
		case !s.adopted || s.changed:
		case total < bounds.Min || total > bounds.Max:
			return status{State: paused, Message: fmt.Sprintf("%s set %s to %d replicas; together that is not from %d "+
				"to %d, so Muster leaves it alone until that changes", by, o, o.replicas, bounds.Min,
				bounds.Max)}, true
		case now.Sub(since) < r.opt.Period:
			st, leave = status{State: holding, Message: fmt.Sprintf("%s set %s to %d replicas: Muster decides again "+
				"after %s", by, o, o.replicas, r.opt.Period)}, true
		}
	}
	s.held = there
	return st, leave
}
