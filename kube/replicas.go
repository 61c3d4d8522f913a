package kube

import (
	"math/bits"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/kube/fit"
	"github.com/muster-gpu/muster/kube/gpus"
	"github.com/muster-gpu/muster/kube/mig"
)

// Replicas of shared GPUs (time-slicing, MPS) are a resource beside the GPUs' own,
// nvidia.com/gpu.shared; a label of the node says how many a GPU has. To the engine
// a pod with one replica is a pod with that share of a GPU. How large the share is
// depends on the node, and all of a gang is to be counted alike: so a gang goes to
// nodes whose GPUs have equally many, and which these are is decided when the
// engine is told of it, and again if it waits while it fits elsewhere. Which replica
// a pod gets, the kubelet decides.

// counted reports whether the engine counts the replica of a pod that has its place.
func (p *pod) counted() bool { return p.Replica.One && p.gang != nil && p.request.GPUs > 0 }

// asks reports whether a pod asks for the same as a task: how large the share of a
// replica is, the task's node says.
func (p *pod) asks(r *cluster.Request) bool {
	if !p.Replica.One {
		return p.request == *r
	}
	return p.request.CPU == r.CPU && p.request.RAM == r.RAM && r.GPUs <= 1 && r.Profile == "" // 0: an earlier version's
}

// give makes a pod's request that of the place which it gets.
func (p *pod) give(r *cluster.Request) {
	if p.Replica.One {
		p.request = *r
	}
}

// room is what nodes with replicas of one kind have.
type room struct {
	gpus.Kind
	most, free int64
}

// better reports whether pods that want n replicas should rather be here: where
// they fit now, where what they want is enforced, else where there are more.
func (a room) better(b room, n int64) bool {
	switch {
	case (a.free >= n) != (b.free >= n):
		return a.free >= n
	case a.MPS != b.MPS:
		return a.MPS
	case a.free >= n:
		return a.free > b.free
	}
	return a.most > b.most
}

// rooms finds what the pods of a gang could have, by the kinds of replicas.
func (d *Driver) rooms(pods []*pod) map[gpus.Kind]room {
	open := make([]pod, len(pods))
	list := make([]*pod, len(pods))
	for i, p := range pods {
		open[i] = pod{Neighbour: fit.Neighbour{Replica: p.Replica, Want: p.Want}, obj: p.obj, base: p.base}
		d.settleOn(&open[i], gpus.Kind{})
		list[i] = &open[i]
	}
	found := map[gpus.Kind]room{}
	for _, name := range d.nodesFor(list).Names {
		s := d.replicasOn(d.nodes[name])
		k := d.gpus.KindFor(&pods[0].Want, d.nodes[name].obj)
		r := found[k]
		r.Kind = k
		if r.most += s.Most; d.nodes[name].state() == cluster.Up {
			r.free += max(0, s.Free)
		}
		found[k] = r
	}
	return found
}

// settleOn says of a pod what replicas GPUs have where it goes.
func (d *Driver) settleOn(p *pod, k gpus.Kind) {
	if !p.Replica.One {
		return
	}
	p.Replica.Kind, p.Replica.Settled, p.request.GPUs, p.request.Share = k, true, min(k.Of, 1), 0
	if k.Of > 1 {
		p.request.Share = cluster.Whole / cluster.Milli(k.Of)
	}
	d.sign(p)
}

// replicasOf counts the pods with a replica, and says on what GPUs they are to be.
func replicasOf(pods []*pod) (n int64, k gpus.Kind) {
	for _, p := range pods {
		if p.Replica.One {
			n, k = n+1, p.Replica.Kind
		}
	}
	return n, k
}

// share decides for the pods of a gang that want replicas how large these are.
func (d *Driver) share(pods []*pod) {
	n, _ := replicasOf(pods)
	if n == 0 {
		return
	}
	best, found := gpus.Kind{}, d.rooms(pods)
	for k := range found {
		if a, b := found[k], found[best]; best.Of == 0 || a.better(b, n) || !b.better(a, n) && k.Of < best.Of {
			best = k
		}
	}
	for _, p := range pods {
		d.settleOn(p, best)
	}
}

// elsewhere reports whether a gang that waits for replicas fits on GPUs that have
// more of them, or fewer, and not on those for which it waits.
func (d *Driver) elsewhere(pods []*pod) bool {
	n, k := replicasOf(pods)
	if n == 0 {
		return false
	}
	found := d.rooms(pods)
	if found[k].free >= n {
		return false
	}
	for _, r := range found {
		if r.free >= n {
			return true
		}
	}
	return false
}

// limitReplicas bounds nodes where the engine counts more replicas than there are: of a
// GPU some of whose replicas others have, or are not healthy.
func (d *Driver) limitReplicas(l *fit.Look, p *pod) {
	for _, believed := range d.eng.Nodes() {
		s := d.replicasOn(d.nodes[believed.Name])
		if s.Of == 0 || s.Name != p.Replica.Name {
			continue
		}
		whole := mig.WholeGPUs(&believed)
		good := whole - bits.OnesCount64(believed.Bad&(uint64(1)<<whole-1))
		if int64(good*s.Of) > s.Most-s.Aside {
			l.Most(believed.Name, max(0, s.Free), "too little "+string(s.Name))
		}
	}
}
