package kube

import (
	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/engine"
	"github.com/muster-gpu/muster/kube/gang"
	"github.com/muster-gpu/muster/kube/history"
)

// History takes down what became of gangs.
type History = history.Book

// tellHistory tells the history what the cluster is.
func (d *Driver) tellHistory(spec cluster.Spec) {
	there := func(name string) bool { return !d.nodes.Lost(name) }
	d.history.Cluster(d.now, &spec, there, d.queues.Tree().List())
}

// specNow is the cluster as the engine has it, or will when it has heard of the nodes that join.
func (d *Driver) specNow() cluster.Spec {
	spec := d.cfg.Spec
	spec.Nodes = d.engineNodes()
	return spec
}

// chronicleEnd tells the history of a gang whose job ends now.
func (d *Driver) chronicleEnd(g *gang.Gang, reason engine.StopReason) {
	if !d.history.Wants() || g.Spec == nil {
		return
	}
	r := d.eng.Record(g.Job)
	if r == nil || r.State < engine.Starting || r.State > engine.Stopping {
		return
	}
	if d.history.Missing() {
		d.tellHistory(d.specNow())
	}
	d.history.End(d.eng, d.life.count, d.nodes.Sets.Named(), g.Spec, reason, d.now, r.DoneAt(d.now))
}
