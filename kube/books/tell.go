package books

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/engine"
	"github.com/muster-gpu/muster/kube/gang"
	"github.com/muster-gpu/muster/kube/look"
	"github.com/muster-gpu/muster/kube/notices"
)

// Rounds are when gangs are told why they wait, and which of them.
type Rounds struct {
	after time.Duration // how long a gang waits before it is told; and from one round to the next
	next  cluster.Time
}

// NewRounds is rounds of which none was yet.
func NewRounds(after time.Duration) Rounds { return Rounds{after: after} }

// says reports whether a gang says why it waits.
func says(g *gang.Gang) bool { return g.Waits() || g.Waking }

// Next is when gangs are to be told again; Never: none waits.
func (r *Rounds) Next(gangs map[string]*gang.Gang, now cluster.Time) cluster.Time {
	for _, g := range gangs {
		if says(g) {
			return max(r.next, now)
		}
	}
	return cluster.Never
}

// Due lists the gangs that are to be looked at now, in this order: those first that nothing was said to yet, then those
// that are due for longest.
func (r *Rounds) Due(gangs map[string]*gang.Gang, now cluster.Time) (due []*gang.Gang) {
	if now < r.next {
		return nil
	}
	r.next = now.Add(r.after)
	for _, g := range gangs {
		if !says(g) {
			continue
		}
		if !g.Told.Began() {
			g.Told.Since(now, r.after)
		}
		if g.Told.Next <= now {
			due = append(due, g)
		}
	}
	slices.SortFunc(due, func(a, b *gang.Gang) int {
		if a, b := a.Told.Any(), b.Told.Any(); a != b {
			if b {
				return -1
			}
			return 1
		}
		return cmp.Or(cmp.Compare(a.Told.Next, b.Told.Next), strings.Compare(a.Key, b.Key))
	})
	return due
}

// Missed has a gang be looked at again soon, because a pod of it could not be told why it waits.
func (r *Rounds) Missed(g *gang.Gang, now cluster.Time) {
	if says(g) {
		g.Told.Missed(now.Add(r.after))
	}
}

// Letters are what the pods of a gang are to be told of what it waits for, if that is news; false: what that is, is not
// known yet.
func (r *Room) Letters(g *gang.Gang, s Scene, found *look.Explanations) (letters []*notices.Letter, known bool) {
	stem := r.besides(g, g.Refused)
	text := stem
	switch {
	case g.Phase == gang.Waiting:
		y, ok := found.Of(g.Spec, func() engine.Why { return s.Explain(g) })
		if !ok {
			return nil, false
		}
		stem, text = r.whyText(g, s, &y)
	case g.Waking:
		stem, text = g.WakingText(r.Nodes, s.Now)
	}
	pods := slices.DeleteFunc(g.Sorted(), func(p *gang.Pod) bool { return !p.Waits() })
	// a pod that is nominated changes just then
	letters = g.Told.Say(stem, text, gang.Objects(pods), g.Waking)
	for _, l := range letters {
		l.At = time.Unix(0, int64(s.Now))
	}
	return letters, true
}
