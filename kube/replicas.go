package kube

import (
	"github.com/muster-gpu/muster/kube/fit"
	"github.com/muster-gpu/muster/kube/fit/shared"
	"github.com/muster-gpu/muster/kube/gang"
	"github.com/muster-gpu/muster/kube/gpus"
)

// To the engine a pod with one replica of a shared GPU is a pod with a share of a GPU. All of a gang is counted alike,
// so which nodes it goes to is decided when the engine is told of it, and again if it waits while it fits elsewhere.

// rooms finds what the pods of a gang could have, by the kinds of replicas.
func (d *Driver) rooms(pods []*gang.Pod) map[gpus.Kind]shared.Room {
	open := make([]gang.Pod, len(pods))
	list := make([]*gang.Pod, len(pods))
	for i, p := range pods {
		open[i].Neighbour = fit.Neighbour{Obj: p.Obj, Replica: p.Replica, Want: p.Want}
		open[i].Base = p.Base
		d.settleOn(&open[i], gpus.Kind{})
		list[i] = &open[i]
	}
	found := map[gpus.Kind]shared.Room{}
	for _, name := range d.nodesFor(list).Names {
		s := d.nodes.Replicas(name)
		k := d.gpus.KindFor(&pods[0].Want, d.nodes.Object(name))
		r := found[k]
		r.Kind = k
		if r.Most += s.Most; d.nodes.Node(name).Up() {
			r.Free += max(0, s.Free)
		}
		found[k] = r
	}
	return found
}

// settleOn says of a pod what replicas GPUs have where it goes.
func (d *Driver) settleOn(p *gang.Pod, k gpus.Kind) {
	if !p.Replica.One {
		return
	}
	p.Replica.Kind, p.Replica.Settled, p.Request.GPUs, p.Request.Share = k, true, min(k.Of, 1), k.Share()
	p.Sign(d.fit)
}

// share decides for the pods of a gang that want replicas how large these are.
func (d *Driver) share(pods []*gang.Pod) {
	n, _ := gang.Replicas(pods)
	if n == 0 {
		return
	}
	best := shared.Best(d.rooms(pods), n)
	for _, p := range pods {
		d.settleOn(p, best)
	}
}

// elsewhere reports whether a gang that waits for replicas fits on GPUs that have
// more of them, or fewer, and not on those for which it waits.
func (d *Driver) elsewhere(pods []*gang.Pod) bool {
	n, k := gang.Replicas(pods)
	return n > 0 && shared.Elsewhere(d.rooms(pods), n, k)
}
