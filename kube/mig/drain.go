package mig

import (
	"cmp"
	"slices"
	"time"

	"github.com/muster-gpu/muster/cluster"
)

// Where no empty node serves the first in line, one is emptied: nothing starts there any more, gangs of a lower tier
// are preempted when no others are left, and all others end by themselves. Of each rule one node at a time, the one
// that costs least: work that is lost, and GPUs that are idle until the last has ended.

const (
	mostBusy = 16                  // nodes of which it is tried whether it would serve, the cheapest first
	unknown  = 30 * 24 * time.Hour // as long as a pod counts as running of which it is not known how long
)

// emptyFor closes a node in use for the first in line that empty nodes do not serve, nor those that are being emptied,
// of whichever rule: of two for one gang either would be needed no more, and be opened, for ever. emptied is as though
// these were empty.
func (l *look) emptyFor(wants []*Waiter, emptied *world, can []*candidate) {
	for len(wants) > 0 && (l.isClosedFor(wants[0]) || emptied.starts[wants[0].Job.ID] != nil) {
		l.giveUp(wants[0].Gang)
		wants = wants[1:]
	}
	if len(wants) == 0 {
		return
	}
	want := wants[:1]
	l.work = max(l.work, work/4) // whatever it took to find that no empty node serves
	var idle, busy []*candidate
	for _, c := range can {
		if l.isEmpty(c.Node) {
			idle = append(idle, c)
		} else if !l.isEmptying(c.rule) {
			if cost, ok := l.emptyingCost(c.Node, want[0].above()); ok {
				c.Cost = max(1, cost)
				busy = append(busy, c)
			}
		}
	}
	slices.SortStableFunc(busy, func(a, b *candidate) int {
		return cmp.Or(cmp.Compare(a.Cost, b.Cost), l.UserCount(a.obj.Name)-l.UserCount(b.obj.Name))
	})
	for _, c := range busy[:min(len(busy), mostBusy)] {
		if l.work <= 0 {
			break
		}
		with := append(slices.Clip(idle), c)
		q, names := l.ask(want, emptied, with)
		if plan := q.choose(); plan != nil {
			if _, ok := l.try(plan, q, names, want, emptied, with); ok {
				return
			}
		}
	}
	l.giveUp(want[0].Gang)
}

// above is the tier of a gang that waits: gangs of a lower one may be preempted for it. For one that preempts none it
// is the lowest.
func (w *Waiter) above() cluster.Tier {
	if w.Job.NoPreempt {
		return cluster.BestEffort
	}
	return w.Job.Tier
}

// isClosedFor reports whether a node is being emptied for a gang.
func (l *look) isClosedFor(w *Waiter) bool {
	return slices.ContainsFunc(l.room.underway(l.Order), func(n *Node) bool {
		return n.step == Closed && slices.Contains(n.note.For, w.Name)
	})
}

// isEmptying reports whether a node of a rule is closed and still in use.
func (l *look) isEmptying(rule int) bool {
	return slices.ContainsFunc(l.room.underway(l.Order), func(n *Node) bool {
		return n.rule == rule && n.step == Closed && !l.isEmpty(n)
	})
}

// emptyingCost is what it costs to empty a node for a gang of a tier, in GPU-seconds; false: a pod there never leaves.
func (l *look) emptyingCost(n *Node, tier cluster.Tier) (cost int64, ok bool) {
	var last time.Duration
	seen := map[string]bool{}
	for _, u := range l.Users(n.obj.Name) {
		switch {
		case u.Gang != "" && seen[u.Gang]:
			continue
		case u.Gang != "" && !l.isLeaving(u.Gang) && u.Goes(tier):
			cost += int64(u.Lost()/time.Second) * int64(u.GPUs)
		case u.Endless:
			return 0, false
		case u.Ends == cluster.Never:
			last = max(last, unknown)
		default:
			last = max(last, u.Ends.Sub(l.Now), 0)
		}
		seen[u.Gang] = true
	}
	return cost + int64(last/time.Second)*int64(max(1, n.note.GPUs, l.room.whole(n))), true
}

// bringOn has a closed node changed if it is empty, else preempts the gangs there. It comes after each look that finds
// it needed, never before one: those for which it was closed may be gone, or served elsewhere.
func (l *look) bringOn(k needed) {
	switch {
	case l.room.opt.Now().Before(k.again): // the API server refused not long ago that it is changed
	case l.isEmpty(k.Node):
		l.room.set(k.Node, Changing, k.note)
	default:
		l.dismiss(k)
	}
}

// dismiss preempts the gangs on a closed node, if all are of a lower tier than those that it was closed for, and that
// need it.
func (l *look) dismiss(k needed) {
	tier, err := cluster.ParseTier(k.note.Tier)
	if k.note.Tier == "" || err != nil || len(k.note.For) == 0 {
		return
	}
	tier = max(tier, k.tier) // the lower one
	var list []string
	for _, u := range l.Users(k.obj.Name) {
		switch {
		case u.Gang == "":
			return
		case u.Leaves || l.isLeaving(u.Gang) || slices.Contains(list, u.Gang):
		case !u.Goes(tier):
			return
		default:
			list = append(list, u.Gang)
		}
	}
	for _, gang := range list {
		l.leave = append(l.leave, Preemption{gang, k.obj.Name, k.name})
	}
}

// isLeaving reports whether a gang is preempted by this look.
func (l *look) isLeaving(gang string) bool {
	return slices.ContainsFunc(l.leave, func(p Preemption) bool { return p.Gang == gang })
}
