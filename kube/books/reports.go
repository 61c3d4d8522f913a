package books

import (
	"slices"
	"time"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/engine"
	"github.com/muster-gpu/muster/kube/gang"
	"github.com/muster-gpu/muster/kube/reports"
	"github.com/muster-gpu/muster/show"
)

// Reports are what pods told that is not booked yet.
type Reports struct {
	reports.Inbox[*gang.Gang]
}

// Hear takes what a pod told, as of some time.
func (r *Reports) Hear(p *gang.Pod, told *show.Report, at time.Time) {
	p.Report, p.Reported = told, cluster.Time(at.UnixNano())
	r.Put(p.Gang, told.Finished || p.Gang.Phase == gang.Stopping)
}

// Settling has reports be booked at once if one of these gangs told something that may be its last words.
func (r *Reports) Settling(list []*gang.Gang) {
	ends := func(g *gang.Gang) bool { return g.Phase != gang.Starting && r.Has(g) }
	if slices.ContainsFunc(list, ends) {
		r.Hurry()
	}
}

// Book is what the engine is to know of them, when that is due.
func (r *Reports) Book(s Scene) (events []engine.Event) {
	for _, g := range r.Take(s.Now) {
		switch {
		case g.Phase == gang.Starting && s.Gangs[g.Key] == g: // the engine does not know yet that it runs
			r.Put(g, false)
		case g.Phase == gang.Running || g.Phase == gang.Stopping:
			events = append(events, g.HearReport(s.Engine, s.Now)...)
		}
	}
	return events
}
