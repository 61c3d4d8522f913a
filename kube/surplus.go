package kube

import (
	"fmt"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/kube/gang"
	"github.com/muster-gpu/muster/kube/notices"
)

// surplusAgain is how long a pod beyond its gang's size is left alone before it is told again what it waits for, if the
// first time was lost.
const surplusAgain = 30 * time.Second

// tellSurplus tells the pods that wait beside a gang that runs and is whole why they wait: the gang has as many
// as it is to have. One that was just made may take the place of one that is about to end, so it is told after
// a while.
func (d *Driver) tellSurplus(g *gang.Gang, now cluster.Time) {
	if d.opt.Tell == nil {
		return
	}
	for _, p := range g.Ready() {
		if p.Binding || g.Places.Has(p.Obj.UID) {
			continue
		}
		text := fmt.Sprintf("its gang %s runs with the %d pods that it is to have (%s): this one is beyond them and waits until one of them is gone", g.Name, len(g.Places), AnnotationSize)
		switch {
		case p.SurplusAt == 0:
			p.SurplusAt = now.Add(d.opt.TellAfter)
		case now < p.SurplusAt || notices.Unscheduled(p.Obj) == text || d.notices.Full(1):
		default:
			d.notices.Put(&notices.Letter{Pod: p.Obj, Text: text, At: time.Unix(0, int64(now)), News: true,
				Changed: func() { d.inbox.Put(func() { p.SurplusAt = 0 }) }})
			d.notices.Event(p.Obj, v1.EventTypeWarning, "FailedScheduling", text)
			p.SurplusAt = now.Add(surplusAgain)
		}
		if notices.Unscheduled(p.Obj) != text {
			d.agenda.at(g, max(p.SurplusAt, now.Add(d.opt.TellAfter)))
		}
	}
}
