package kube

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/engine"
	"github.com/muster-gpu/muster/kube/reports"
	"github.com/muster-gpu/muster/show"
)

// Pods tell what they have done (muster-kube report). It counts as what a job on a machine
// writes to its progress file: package progress makes the engine's event of it. A report is
// the last of everything, so one that is lost or comes twice changes nothing. What is
// known is memory: after a restart, pods report again.

// ErrNoPod is returned for a report of a pod that this scheduler did not bind, or that is over.
var ErrNoPod = errors.New("no such pod")

// Report books what a pod tells of itself: which it is, the API server says. A report that makes no sense is an
// *ask.FieldError.
func (d *Driver) Report(ctx context.Context, namespace, name string, uid types.UID, r *show.Report) error {
	if err := r.Check(); err != nil {
		return err
	}
	at := d.opt.Now().Add(-time.Duration(r.Age) * time.Millisecond)
	var failed error
	err := d.desk.Ask(ctx, func() {
		p := d.pods[uid]
		if p == nil || p.gang == nil || p.node == "" || p.Over() || p.Obj.Namespace != namespace || p.Obj.Name != name {
			failed = fmt.Errorf("%w: %s/%s (uid %s) is none that this scheduler started", ErrNoPod, namespace, name,
				uid)
			return
		}
		p.report, p.reported = r, cluster.Time(at.UnixNano())
		d.reported.Put(p.gang, r.Finished || p.gang.phase == stopping)
	})
	if err != nil {
		return err
	}
	return failed
}

// reports are what the engine is to know of what pods told, when that is due: before it hears what became of them,
// since with a checkpoint that is not booked, work would be lost. While it is to be renewed they wait, so that pods
// which report all the time do not keep it from that.
func (d *Driver) reports(now cluster.Time) (events []engine.Event) {
	if slices.ContainsFunc(d.agenda.now, func(g *gang) bool { return g.phase != starting && d.reported.Has(g) }) {
		d.reported.Hurry()
	}
	if d.stale != "" {
		return nil
	}
	for _, g := range d.reported.Take(now) {
		switch {
		case g.phase == starting && d.gangs[g.key] == g: // the engine does not know yet that it runs
			d.reported.Put(g, false)
		case g.phase == running || g.phase == stopping:
			events = append(events, g.hearReport(d.eng, now)...)
		}
	}
	return events
}

// annotationSource is the pod whose reports count for its gang: the first that reports, in the order
// of their ranks. What others add is the same work, told by another rank.
func (g *gang) annotationSource() *pod {
	for _, p := range g.seated() {
		if p.report != nil && p.report.Lines > 0 {
			return p
		}
	}
	return nil
}

// hearReport books what a gang's annotationSource told, if it is new.
func (g *gang) hearReport(e *engine.Engine, now cluster.Time) []engine.Event {
	p, rec := g.annotationSource(), e.Record(g.id)
	if p == nil || rec == nil || rec.State < engine.Starting || rec.State > engine.Stopping {
		return nil
	}
	r := reports.Report{Report: p.report, Pod: p.Obj.UID, At: p.reported, Run: g.run + 1}
	return g.Hear(&r, g.converge, rec, now)
}

// workOf is all of a gang's work, as its progress told; 0: that did not tell, or it goes by what was stated.
func (d *Driver) workOf(id cluster.JobID) time.Duration {
	g, rec := d.byID[id], d.eng.Record(id)
	if g == nil || rec == nil {
		return 0
	}
	return g.Work(rec)
}

// expectedEnd is when a running gang is expected to end by what it reports; Never: that does not tell.
func (g *gang) expectedEnd(e *engine.Engine, now cluster.Time) cluster.Time {
	if g.phase != running {
		return cluster.Never
	}
	return g.End(e.Record(g.id), now)
}
