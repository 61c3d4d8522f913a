package kube

import (
	"context"
	"fmt"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

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
		return d.stale == "" && !d.nodes.Dirty && !d.queues.Dirty() && len(d.dirty) == 0 && len(d.queued) == 0
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
		g.leaves = fmt.Sprintf("preempted for %s: node %s is partitioned otherwise", p.For, p.Node)
		d.queued = append(d.queued, engine.Event{Type: engine.Cancelled, Job: g.id})
	}
}

// besides adds to what a gang waits for which nodes are being partitioned for it.
func (d *Driver) besides(g *gang, text string) string {
	more := d.nodes.MIG.Told(g.name, d.migUsersOn)
	switch {
	case more == "":
		return text
	case text == "":
		return more
	}
	return text + "; " + more
}

// migUsersOn counts them.
func (d *Driver) migUsersOn(node string) int { return len(d.nodes.Users(node)) }

// isUnused asks the API server itself whether a pod has a GPU of a node: what is watched may lag behind. The node
// is cordoned by then.
func (d *Driver) isUnused(ctx context.Context, node string) error {
	list, err := d.opt.Client.CoreV1().Pods("").List(ctx, metav1.ListOptions{FieldSelector: "spec.nodeName=" + node})
	if err != nil {
		return err
	}
	for i := range list.Items {
		p := &list.Items[i]
		if p.Status.Phase != v1.PodSucceeded && p.Status.Phase != v1.PodFailed && d.gpus.Asked(p) {
			return fmt.Errorf("pod %s/%s has a GPU there", p.Namespace, p.Name)
		}
	}
	return nil
}

// migWriter writes on nodes how far they are, and events.
type migWriter struct{ d *Driver }

// PatchNode writes how far a node is (mig.Writer).
func (w migWriter) PatchNode(name string, change []byte, to string, done func(error)) {
	d := w.d
	d.do(func(ctx context.Context) {
		err := error(nil)
		if to == mig.Changing {
			err = d.isUnused(ctx, name)
		}
		d.crash("kube-mig-" + to)
		if err == nil {
			_, err = d.opt.Client.CoreV1().Nodes().Patch(ctx, name, types.MergePatchType, change, metav1.PatchOptions{})
		}
		d.inbox.Put(func() { done(err) })
	})
}

// Event says something of a node (mig.Writer).
func (w migWriter) Event(obj *v1.Node, kind, reason, text string) {
	w.d.notices.Event(obj, kind, reason, text)
}

// MapEvent says something of a ConfigMap (mig.Writer).
func (w migWriter) MapEvent(obj *v1.ConfigMap, kind, reason, text string) {
	w.d.notices.Event(obj, kind, reason, text)
}
