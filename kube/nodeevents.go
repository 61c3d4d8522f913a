package kube

import (
	"cmp"
	"slices"

	v1 "k8s.io/api/core/v1"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/driver"
	"github.com/muster-gpu/muster/engine"
	"github.com/muster-gpu/muster/kube/gang"
	"github.com/muster-gpu/muster/kube/holds"
	"github.com/muster-gpu/muster/kube/nodes"
)

// The engine learns of nodes by events (package kube/nodes), and by being renewed where these do not suffice.

// nodeChanged books a node as it is now.
func (d *Driver) nodeChanged(obj *v1.Node) {
	seen := d.nodes.See(obj)
	if seen.Renew != "" {
		d.stale = seen.Renew
	}
	if seen.Other {
		d.lookAgain()
	}
}

// nodeGone books that a node was deleted: what was there is lost.
func (d *Driver) nodeGone(name string) {
	d.nodes.Gone(name, d.now)
	for _, g := range d.gangs {
		if g.Phase > gang.Waiting {
			d.agenda.touch(g)
		}
	}
}

// lookAgain has gangs looked at again that are not in the engine: other nodes may be what they wait for.
func (d *Driver) lookAgain() {
	d.refusalEpoch++
	for _, g := range d.gangs {
		if g.Phase == gang.Gathering {
			d.agenda.touch(g)
		}
	}
}

// nodeEvents are what the engine missed of nodes.
func (d *Driver) nodeEvents() []engine.Event {
	d.nodes.Dirty = false
	d.queues.NodesChanged()
	joined, list := d.joinEvents()
	events, _ := driver.Diff(driver.Observed{Nodes: d.observed(list).Nodes}, driver.View{Nodes: list})
	return append(joined, events...)
}

// engineNodes are the nodes as the engine has them, or will when it has heard of those that join.
func (d *Driver) engineNodes() []cluster.Node { return d.nodes.EngineNodes(d.eng.Nodes()) }

// joinEvents tell the engine of nodes that it does not have yet, or that are others than they were; and return the
// nodes that it has then.
func (d *Driver) joinEvents() ([]engine.Event, []cluster.Node) {
	news := d.nodes.Tell(&nodes.Engine{Nodes: d.eng.Nodes(), Held: d.heldNow, Refuses: d.eng.CheckChange,
		Model: func(name string) bool {
			_, known := d.cfg.Spec.Model(name)
			return known
		}})
	for i := range news.Events {
		if news.Events[i].Type == engine.NodeChanged {
			d.unconfirmed.Must(news.Events[i])
		}
	}
	d.stale = cmp.Or(d.stale, news.Renew)
	if news.Other {
		d.lookAgain()
	}
	if news.Joined {
		d.queues.Grown()
		d.tellHistory(d.specNow())
	}
	return news.Events, news.Nodes
}

// heldNow is a snapshot of no more than what jobs hold of nodes.
func (d *Driver) heldNow() *engine.Snapshot {
	snap := &engine.Snapshot{}
	for _, b := range d.eng.Beliefs() {
		snap.Jobs = append(snap.Jobs, *d.unconfirmed.Record(d.eng, b.Job))
	}
	return snap
}

// nextResize is when nodes and pods are looked at next whose size may be another.
func (d *Driver) nextResize() cluster.Time {
	return max(d.sizedAt, d.life.at).Add(max(resizeEvery, resizePart*d.life.took))
}

// sizeEvents tell the engine of nodes of another size, and of what pods hold that were resized: first of nodes that
// grew, so that there is room for pods that did.
func (d *Driver) sizeEvents() []engine.Event {
	d.sizedAt = d.now
	start := d.opt.Now()
	defer func() { d.life.took = d.opt.Now().Sub(start) }()
	snap := d.heldNow()
	resized := d.resizedNow(snap)
	grown, smaller := d.nodes.TellSizes(d.eng.Nodes(), holds.ByNode(snap, d.nodes.Order()))
	if len(grown) > 0 {
		d.lookAgain()
	}
	return slices.Concat(grown, resized, smaller)
}
