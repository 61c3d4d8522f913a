package services

import (
	"fmt"
	"time"
)

// held is a number of replicas that another than Muster set.
type held struct {
	object   string
	replicas int
	by       string // as the API server has it (managedFields); "": it does not
}

// String says who set what. The API server records no writer of 0 replicas by the scale subresource, and none of the
// next number.
func (h held) String() string {
	if h.by == "" {
		return fmt.Sprintf("%s was set to %d replicas (the writer is not recorded)", h.object, h.replicas)
	}
	return fmt.Sprintf("%s set %s to %d replicas", h.by, h.object, h.replicas)
}

// persons respects what others set since Muster began with a service: replicas within the service's bounds stay for a
// period, others as long as they are so.
func (r *Room) persons(s *running, f *fleet, now time.Time) (st status, leave bool) {
	total, theirs, bounds := f.total(f.have), 0, s.spec.Replicas
	for i, o := range s.parts {
		if o != nil && o.setBy != manager {
			theirs += f.have[i]
		}
	}
	there := map[held]time.Time{}
	for _, o := range s.parts {
		if o == nil || o.setBy == manager {
			continue
		}
		left, known := s.left[o.UID]
		if o.setBy == "" && !(known && o.replicas != left || total == 0 && bounds.Min > 0) {
			continue
		}
		key := held{o.String(), o.replicas, o.setBy}
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
		case total < bounds.Min, theirs > bounds.Max,
			total > bounds.Max && known && o.replicas != left: // and not only what Muster replaces is too many
			return status{State: paused, Message: fmt.Sprintf(
				"%s; together that is not from %d to %d, so Muster leaves it alone until that changes", key, bounds.Min,
				bounds.Max)}, true
		case now.Sub(since) < r.opt.Period:
			st, leave = status{State: holding, Message: fmt.Sprintf("%s: Muster decides again after %s", key,
				r.opt.Period)}, true
		}
	}
	s.held = there
	return st, leave
}
