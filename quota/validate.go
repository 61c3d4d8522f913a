package quota

import (
	"fmt"
	"time"

	"github.com/muster-gpu/muster/cluster"
)

// validate checks every queue, then the sums of the tree, at all times of the week at which a
// window opens or closes.
func (t *Tree) validate(capacity Milli) error {
	for q := 1; q < len(t.nodes); q++ {
		if err := checkQueue(&t.nodes[q].spec); err != nil {
			return err
		}
		if err := t.checkReserve(q); err != nil {
			return err
		}
	}
	if err := t.checkSums(capacity, staticAmounts, ""); err != nil {
		return err
	}
	const sunday = 3 * daySeconds // 1970-01-04
	for q := 1; q < len(t.nodes); q++ {
		for wall := int64(sunday - 1); ; {
			if wall = nextEdge(&t.nodes[q].spec, wall); wall >= sunday+weekSeconds {
				break
			}
			at := func(s *cluster.Queue) (Milli, Milli) { return amountsAt(s, wall) }
			if err := t.checkSums(capacity, at, clock(wall)); err != nil {
				return err
			}
		}
	}
	return nil
}

func staticAmounts(s *cluster.Queue) (guarantee, limit Milli) { return s.Guarantee, s.Limit }

// clock formats an instant of the week for error messages: "on Sunday at 07:00, ".
func clock(wall int64) string {
	weekday, tod := cluster.Calendar(wall)
	return fmt.Sprintf("on %s at %02d:%02d, ", time.Weekday(weekday), tod/3600, tod/60%60)
}

// checkQueue checks a queue's own settings.
func checkQueue(s *cluster.Queue) error {
	for _, f := range []struct {
		key       string
		value     int64
		unlimited bool
	}{
		{"guarantee", s.Guarantee, false}, {"limit", s.Limit, true}, {"lend", s.Lend, true},
		{"weight", s.Weight, false}, {"reserve", s.Reserve, false}, {"user_gpus", s.UserGPUs, false},
		{"max_jobs", int64(s.MaxJobs), false}, {"user_jobs", int64(s.UserJobs), false},
		{"budget", s.Budget, false}, {"period", int64(s.Period), false}, {"shares", s.Shares, false},
	} {
		if f.value < 0 && !(f.unlimited && f.value == cluster.Unlimited) {
			return fmt.Errorf("queue %q: %s is negative (%d)", s.Name, f.key, f.value)
		}
		if f.key != "period" && f.value > cluster.MaxMilli {
			return fmt.Errorf("queue %q: %s is too large (%d)", s.Name, f.key, f.value)
		}
	}
	for i := range s.Windows {
		if err := checkWindow(&s.Windows[i]); err != nil {
			return fmt.Errorf("queue %q: window %d: %w", s.Name, i+1, err)
		}
	}
	return nil
}

func checkWindow(w *cluster.Window) error {
	const day = 24 * time.Hour
	switch {
	case w.Days > 0x7f:
		return fmt.Errorf("days has a bit beyond Saturday (%#x)", w.Days)
	case w.From < 0 || w.From >= day:
		return fmt.Errorf("from %s is not within a day", w.From)
	case w.To < 0 || w.To > day:
		return fmt.Errorf("to %s is not within a day", w.To)
	case w.From%time.Second != 0 || w.To%time.Second != 0:
		return fmt.Errorf("from and to must be whole seconds")
	case w.Guarantee < cluster.Unlimited || w.Limit < cluster.Unlimited:
		return fmt.Errorf("guarantee or limit is negative")
	case w.Guarantee > cluster.MaxMilli || w.Limit > cluster.MaxMilli:
		return fmt.Errorf("guarantee or limit is too large")
	}
	return nil
}

// checkReserve checks that lend and reserve fit the guarantee, the largest of the week; a window
// may leave less, and then less is lent and reserved. Only leaves have a reserve, because critical
// jobs must fit a leaf's guarantee.
func (t *Tree) checkReserve(q int) error {
	s := &t.nodes[q].spec
	if s.Reserve > 0 && !t.Leaf(q) {
		return fmt.Errorf("queue %q groups other queues: set reserve on those that run critical jobs", s.Name)
	}
	most := s.Guarantee
	for i := range s.Windows {
		most = max(most, s.Windows[i].Guarantee)
	}
	if s.Lend > most && (most > 0 || t.Leaf(q)) { // otherwise a group, whose guarantee is its children's
		return fmt.Errorf("queue %q: lends %s GPUs, more than its guarantee of %s",
			s.Name, FormatGPUs(s.Lend), FormatGPUs(most))
	}
	if s.Reserve > most {
		return fmt.Errorf("queue %q: reserves %s GPUs for the critical tier, more than its guarantee of %s",
			s.Name, FormatGPUs(s.Reserve), FormatGPUs(most))
	}
	return nil
}

// checkSums checks guarantees against limits, and the children's sums against their parent's
// guarantee and the capacity, with the given amounts. When is the time, for the message.
func (t *Tree) checkSums(capacity Milli, amounts func(*cluster.Queue) (Milli, Milli), when string) error {
	sums := make([]Milli, len(t.nodes))
	for q := len(t.nodes) - 1; q >= 1; q-- {
		n := &t.nodes[q]
		guarantee, limit := amounts(&n.spec)
		if guarantee > 0 && sums[q] > guarantee {
			return fmt.Errorf("%sthe children of queue %q are guaranteed %s GPUs in sum (%s), more than its own guarantee of %s",
				when, n.spec.Name, FormatGPUs(sums[q]), t.breakdown(q, amounts), FormatGPUs(guarantee))
		}
		if guarantee == 0 {
			guarantee = sums[q]
		}
		if limit != cluster.Unlimited && guarantee > limit {
			return fmt.Errorf("%squeue %q: guarantee of %s GPUs is above its limit of %s",
				when, n.spec.Name, FormatGPUs(guarantee), FormatGPUs(limit))
		}
		sums[n.parent] += guarantee
	}
	if capacity != cluster.Unlimited && sums[Root] > capacity {
		return fmt.Errorf("%sguarantees of %s GPUs in sum (%s) are more than the cluster's %s",
			when, FormatGPUs(sums[Root]), t.breakdown(Root, amounts), FormatGPUs(capacity))
	}
	return nil
}

// breakdown lists the guarantees below q that add up to a sum: "a 4, b 4".
func (t *Tree) breakdown(q int, amounts func(*cluster.Queue) (Milli, Milli)) string {
	s := ""
	for _, c := range t.nodes[q].children {
		g, _ := amounts(&t.nodes[c].spec)
		part := t.Name(c) + " " + FormatGPUs(g)
		if g == 0 {
			if len(t.nodes[c].children) == 0 {
				continue
			}
			part = t.breakdown(c, amounts)
		}
		if s != "" && part != "" {
			s += ", "
		}
		s += part
	}
	return s
}
