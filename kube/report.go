package kube

import (
	"context"
	"errors"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/engine"
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
		if p == nil || p.Gang == nil || p.Node == "" || p.Over() || p.Obj.Namespace != namespace || p.Obj.Name != name {
			failed = fmt.Errorf("%w: %s/%s (uid %s) is none that this scheduler started", ErrNoPod, namespace, name,
				uid)
			return
		}
		d.reported.Hear(p, r, at)
	})
	if err != nil {
		return err
	}
	return failed
}

// reports are what the engine is to know of what pods told, when that is due: before it hears what became of them,
// since with a checkpoint that is not booked, work would be lost. While it is to be renewed they wait, so that pods
// which report all the time do not keep it from that.
func (d *Driver) reports(now cluster.Time) []engine.Event {
	d.reported.Settling(d.agenda.now)
	if d.stale != "" {
		return nil
	}
	return d.reported.Book(d.scene(now))
}
