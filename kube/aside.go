package kube

import (
	"errors"
	"fmt"
	"maps"
	"runtime/debug"
	"slices"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/engine"
	"github.com/muster-gpu/muster/kube/holds"
)

// No object of the cluster may end the scheduler. What cannot be understood, or what the engine refuses to be built
// with, is set aside: it gets an event and is counted, and everything else goes on. A pod that is set aside takes room
// where it is bound and is not managed; a node that is set aside gets no new pods.

// asides is what is set aside.
type asides struct {
	pods map[types.UID]string // pods that were told, and of what
}

func newAsides() asides {
	return asides{pods: map[types.UID]string{}}
}

// What is set aside, for the metric.
const (
	asidePod     = "pod"
	asideNode    = "node"
	asideHandler = "handler" // the handling of an object failed inside the scheduler
)

// setPodAside says once that a pod is not managed.
func (d *Driver) setPodAside(p *pod, why string) {
	d.sayAside(p, why, "a pod is set aside: it takes room where it is bound and is not managed",
		"Muster does not manage this pod, it only counts what it holds: ")
}

// setGangAside says once that a gang is not scheduled.
func (d *Driver) setGangAside(pods []*pod, why string) {
	d.sayAside(pods[0], why, "a gang is set aside: it is not scheduled",
		"Muster does not schedule this pod and its gang: ")
}

// sayAside says once, in the log and in an event of a pod, that something is set aside.
func (d *Driver) sayAside(p *pod, why, logged, told string) {
	if d.aside.pods[p.Obj.UID] == why {
		return
	}
	d.aside.pods[p.Obj.UID] = why
	d.opt.Observe.SetAside(asidePod)
	d.opt.Log.Error(logged, "pod", p.name(), "reason", why)
	d.notices.Event(p.Obj, v1.EventTypeWarning, "SetAside", told+why)
}

// setNodeAside takes the GPUs of a node out of the next engine.
func (d *Driver) setNodeAside(name, why string) {
	if !d.nodes.Exclude(name, why) {
		return
	}
	d.opt.Observe.SetAside(asideNode)
	d.opt.Log.Error("a node is set aside: its GPUs are not given away", "node", name, "reason", why)
	if obj := d.nodes.Object(name); obj != nil {
		d.notices.Event(obj, v1.EventTypeWarning, "SetAside", "Muster does not use the GPUs of this node: "+why)
	}
}

// expel makes the bound pods of a gang foreign: they take room, no more. Those that wait are looked at again.
func (d *Driver) expel(g *gang, why string) {
	for _, p := range g.sorted() {
		if p.node != "" || p.binding {
			d.setPodAside(p, why)
			d.disown(p)
		}
	}
	if g.id != cluster.NoJob {
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
			g.refused, g.refusedIn, g.refusedFor, g.refusedAs = "it cannot be scheduled: "+failed.Error(), d.era,
				uids(g.ready()), g.facts
		}
		return true
	})
	return len(snap.Jobs) < before
}

// safely is a step of building an engine, of which a failure of any kind is an error.
func (d *Driver) safely(f func() error) (err error) {
	defer func() {
		if x := recover(); x != nil {
			d.opt.Observe.SetAside(asideHandler)
			d.opt.Log.Error("the scheduler failed while it built its engine", "error", x, "stack",
				string(debug.Stack()))
			err = fmt.Errorf("the scheduler failed: %v", x)
		}
	}()
	return f()
}

// guarded handles something that came from the cluster. If that fails inside the scheduler, it is told and counted, and
// the engine begins again from what is known; the process goes on for all others.
func (d *Driver) guarded(what string, f func()) {
	defer func() {
		if x := recover(); x != nil {
			d.opt.Observe.SetAside(asideHandler)
			d.opt.Log.Error("the scheduler failed while it handled something of the cluster", "what", what, "error", x,
				"stack", string(debug.Stack()))
			d.stale = "a handler failed"
		}
	}()
	f()
}

// forgetAsides forgets what was told of pods that are gone.
func (d *Driver) forgetAsides() {
	maps.DeleteFunc(d.aside.pods, func(uid types.UID, _ string) bool { return d.pods[uid] == nil })
}
