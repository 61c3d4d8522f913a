package kube

import (
	"context"
	"fmt"

	v1 "k8s.io/api/core/v1"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/engine"
	"github.com/muster-gpu/muster/kube/loans"
	"github.com/muster-gpu/muster/kube/mig"
)

// Nodes are partitioned otherwise for gangs that wait (package kube/mig).

// MIG is a rule for some nodes.
type MIG = mig.Rule

func (d *Driver) newMIG(w mig.Writer) *mig.Room {
	return mig.New(mig.Options{Rules: d.opt.MIG, Scheduler: d.opt.Scheduler, Labels: d.opt.Labels, GPUs: d.gpus,
		Now: d.opt.Now, LoopTime: func() cluster.Time { return d.now }, Changed: func() { d.nodes.Dirty = true },
		Partitioned: d.opt.Observe.Partitioned, Log: d.opt.Log, Writer: w})
}

// migRound looks after nodes that are on their way, and for which gangs others are to be changed.
func (d *Driver) migRound(now cluster.Time) {
	if now < d.nodes.MIG.Next() {
		return
	}
	heard := func() bool {
		return d.stale == "" && !d.nodes.Dirty && !d.queues.Dirty() && len(d.agenda.now) == 0 && len(d.queued) == 0
	}
	if d.nodes.MIG.Tend(now, d.nodes.Order(), heard) {
		d.lookMIG(now)
		d.nodes.MIG.Looked(now, d.clock().Sub(now))
	}
}

// lookMIG looks which gangs wait, and preempts those that are in their way.
func (d *Driver) lookMIG(now cluster.Time) {
	for _, p := range d.nodes.MIG.Look(&mig.View{Cluster: migView{d}, Now: now, Order: d.nodes.Order(), Engine: d.eng,
		Seq: d.seq, Spec: d.cfg.Spec, All: loans.Everywhere}) {
		g := d.gangs[p.Gang]
		g.Leaves = fmt.Sprintf("preempted for %s: node %s is partitioned otherwise", p.For, p.Node)
		d.queued = append(d.queued, engine.Event{Type: engine.Cancelled, Job: g.Job})
	}
}

// migWriter writes on nodes how far they are, and events.
type migWriter struct{ d *Driver }

// PatchNode writes how far a node is (mig.Writer).
func (w migWriter) PatchNode(name string, change []byte, to string, done func(error)) {
	var check func(context.Context) error
	if to == mig.Changing {
		check = func(ctx context.Context) error { return w.d.writer.Unused(ctx, name, w.d.gpus.Asked) }
	}
	w.d.writer.PatchNode(name, change, "kube-mig-"+to, check, done)
}

// Event says something of a node (mig.Writer).
func (w migWriter) Event(obj *v1.Node, kind, reason, text string) {
	w.d.notices.Event(obj, kind, reason, text)
}

// MapEvent says something of a ConfigMap (mig.Writer).
func (w migWriter) MapEvent(obj *v1.ConfigMap, kind, reason, text string) {
	w.d.notices.Event(obj, kind, reason, text)
}
