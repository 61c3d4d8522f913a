package kube

import (
	"errors"
	"slices"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/engine"
	"github.com/muster-gpu/muster/kube/gang"
	"github.com/muster-gpu/muster/kube/holds"
)

// No object of the cluster may end the scheduler. What cannot be understood, or what the engine refuses to be built
// with, is set aside: it gets an event and is counted, and everything else goes on. A pod that is set aside takes room
// where it is bound and is not managed; a node that is set aside gets no new pods.

// setNodeAside takes the GPUs of a node out of the next engine.
func (d *Driver) setNodeAside(name, why string) {
	if d.nodes.Exclude(name, why) {
		d.setAside.Node(name, d.nodes.Object(name), why)
	}
}

// expel makes the bound pods of a gang foreign: they take room, no more. Those that wait are looked at again.
func (d *Driver) expel(g *gang.Gang, why string) {
	for _, p := range g.Sorted() {
		if p.Node != "" || p.Binding {
			d.setAside.Pod(p.Obj, why)
			d.disown(p)
		}
	}
	if g.Job != cluster.NoJob {
		d.withdraw(g)
	}
}

// withoutCulprit changes a snapshot so that an engine can be built that failed to be built, and reports whether it
// could: without the job or the GPUs of the node that the error names, else without the gangs that were adopted just
// now, else without any job. Each time something is gone that was there before, so that trying again comes to an end.
func (d *Driver) withoutCulprit(snap *engine.Snapshot, failed error, adopted map[cluster.JobID]bool) bool {
	var job *engine.JobError
	var node *engine.NodeError
	gone := func(*engine.JobRecord) bool { return true }
	switch {
	case errors.As(failed, &job):
		gone = func(r *engine.JobRecord) bool { return r.Spec.ID == job.Job }
	case errors.As(failed, &node) && !d.nodes.Excluded(node.Node):
		d.setNodeAside(node.Node, node.Text)
		gone = func(r *engine.JobRecord) bool { return holds.On(r, d.nodes.Order(), node.Node) }
		d.dropJobs(snap, gone, failed)
		return true
	case slices.ContainsFunc(snap.Jobs, func(r engine.JobRecord) bool { return adopted[r.Spec.ID] }):
		gone = func(r *engine.JobRecord) bool { return adopted[r.Spec.ID] }
	}
	return d.dropJobs(snap, gone, failed)
}

// dropJobs takes jobs out of a snapshot and sets their gangs aside; false: there was none.
func (d *Driver) dropJobs(snap *engine.Snapshot, gone func(*engine.JobRecord) bool, failed error) bool {
	before := len(snap.Jobs)
	snap.Jobs = slices.DeleteFunc(snap.Jobs, func(r engine.JobRecord) bool {
		if !gone(&r) {
			return false
		}
		if g := d.byID[r.Spec.ID]; g != nil {
			d.expel(g, failed.Error())
			g.Refused = "it cannot be scheduled: " + failed.Error()
			g.RefusedIn, g.RefusedFor, g.RefusedAs = d.refusalEpoch, gang.UIDs(g.Ready()), g.Facts
		}
		return true
	})
	return len(snap.Jobs) < before
}

// guarded handles something that came from the cluster. If that fails inside the scheduler, it is told and counted, and
// the engine begins again from what is known; the process goes on for all others.
func (d *Driver) guarded(what string, f func()) {
	defer func() {
		if x := recover(); x != nil {
			d.setAside.Failed("handled something of the cluster", x, "what", what)
			d.stale = "a handler failed"
		}
	}()
	f()
}
