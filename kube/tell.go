package kube

import (
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/muster-gpu/muster/cluster"
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
	return d.telling.Next(d.gangs, now)
}

// tell tells gangs that wait what they wait for.
func (d *Driver) tell(now cluster.Time) {
	if d.opt.Tell == nil {
		return
	}
	due := d.telling.Due(d.gangs, now)
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
	letters, known := d.books.Letters(g, d.scene(now), found)
	for i, l := range letters {
		l.Changed = func() { d.inbox.Put(func() { d.telling.Missed(g, d.now) }) }
		d.notices.Put(l)
		if i == 0 && l.News { // one event for a gang
			d.notices.Event(l.Pod, v1.EventTypeWarning, "FailedScheduling", l.Text)
		}
	}
	return known
}

// tellDeadlines writes to the pods of gangs with deadlines what the policy says of them, if
// that is news to them. An event says so once for a gang.
func (d *Driver) tellDeadlines() {
	if d.opt.Tell == nil {
		return
	}
	scene := d.scene(d.now)
	for _, g := range d.gangs {
		v := scene.Verdict(g)
		if v == nil || d.notices.Full(len(v.Pods)) {
			continue
		}
		g.Pledge = v.Pledge
		if e := v.Event; e != nil {
			d.notices.Event(v.Pods[0], e.Kind, e.Reason, e.Text)
		}
		for _, obj := range v.Pods {
			d.notices.Condition(obj, v.Condition)
		}
	}
}
