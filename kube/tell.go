package kube

import (
	"cmp"
	"slices"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/engine"
	"github.com/muster-gpu/muster/kube/gang"
	"github.com/muster-gpu/muster/kube/look"
)

// Every waiting pod says why it waits: in the condition PodScheduled, which
// autoscalers read, too, and in an event. A second of waiting is not spoken of;
// then a gang is looked at less and less often, and written to only when what
// blocks it is another.
const tellAfter = time.Second

// nextTell is when gangs are to be told again.
func (d *Driver) nextTell(now cluster.Time) cluster.Time {
	if d.opt.Tell == nil {
		return cluster.Never
	}
	for _, g := range d.gangs {
		if g.Waits() || g.Waking {
			return max(d.tellAt, now)
		}
	}
	return cluster.Never
}

// tell tells gangs that wait what they wait for.
func (d *Driver) tell(now cluster.Time) {
	if d.opt.Tell == nil || now < d.tellAt {
		return
	}
	d.tellAt = now.Add(d.opt.TellAfter)
	var due []*gang.Gang
	for _, g := range d.gangs {
		if !g.Waits() && !g.Waking {
			continue
		}
		if !g.Told.Began() {
			g.Told.Since(now, d.opt.TellAfter)
		}
		if g.Told.Next <= now {
			due = append(due, g)
		}
	}
	slices.SortFunc(due, func(a, b *gang.Gang) int {
		if a, b := a.Told.Any(), b.Told.Any(); a != b { // those that nothing was said to yet come first
			if b {
				return -1
			}
			return 1
		}
		return cmp.Or(cmp.Compare(a.Told.Next, b.Told.Next), strings.Compare(a.Key, b.Key))
	})
	found := look.NewExplanations(d.opt.Now)
	for _, g := range due {
		if found.Late() {
			return
		}
		if d.tellGang(g, now, found) {
			g.Told.Again(now)
		}
	}
}

// tellGang writes to the pods of a gang what it waits for, if that is news; false: what that is, is not known yet.
func (d *Driver) tellGang(g *gang.Gang, now cluster.Time, found *look.Explanations) bool {
	stem := d.besides(g, g.Refused)
	text := stem
	switch {
	case g.Phase == gang.Waiting:
		y, ok := found.Of(g.Spec, func() engine.Why { return d.explain(g, now) })
		if !ok {
			return false
		}
		stem, text = d.whyText(g, &y, now)
	case g.Waking:
		stem, text = g.WakingText(d.nodes, now)
	}
	pods := slices.DeleteFunc(g.Sorted(), func(p *gang.Pod) bool { return !p.Waits() })
	// a pod that is nominated changes just then
	for i, l := range g.Told.Say(stem, text, gang.Objects(pods), g.Waking) {
		l.At, l.Changed = time.Unix(0, int64(now)), func() { d.inbox.Put(func() { d.missed(g) }) }
		d.notices.Put(l)
		if i == 0 && l.News { // one event for a gang
			d.notices.Event(l.Pod, v1.EventTypeWarning, "FailedScheduling", l.Text)
		}
	}
	return true
}

// missed looks at a gang again soon, because a pod of it could not be told why it waits.
func (d *Driver) missed(g *gang.Gang) {
	if g.Waits() || g.Waking {
		g.Told.Missed(d.now.Add(d.opt.TellAfter))
	}
}

// why is what blocks a gang; stem is that part of it that is news when it is another.
func (d *Driver) why(g *gang.Gang, now cluster.Time) (stem, text string) {
	y := d.explain(g, now)
	return d.whyText(g, &y, now)
}

// whyText says in words what blocks a gang.
func (d *Driver) whyText(g *gang.Gang, y *engine.Why, now cluster.Time) (stem, text string) {
	stem = look.Stem(y, g.KeptOff, len(d.nodes.Objects()))
	stem = g.WithAnswer(d.eng, d.besides(g, stem))
	return stem, look.Full(stem, y, now)
}
