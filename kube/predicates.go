package kube

import (
	v1 "k8s.io/api/core/v1"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/kube/fit"
	"github.com/muster-gpu/muster/kube/fit/shared"
	"github.com/muster-gpu/muster/kube/fit/volumes"
	"github.com/muster-gpu/muster/kube/gang"
	"github.com/muster-gpu/muster/kube/gpus"
)

// newWorld makes the world with all that pods can ask for of what is on the nodes.
func (d *Driver) newWorld() *fit.World {
	free := func(node string) int { return d.nodes.FreeGPUs(node) }
	list := fit.Neighbours(fit.Books{Free: free, Besides: d.gpus.Uncounted})
	return fit.NewWorld(append(list, d.newReplicas(), d.volumes, d.claims)...)
}

// newReplicas makes the predicate of replicas of shared GPUs.
func (d *Driver) newReplicas() shared.Replicas {
	return shared.Replicas{Names: d.gpus, Books: shared.Books{
		Speeds: func() any { return d.cfg.Speeds },
		Nodes:  func() []cluster.Node { return d.eng.Nodes() },
		On:     func(node string) gpus.Replicas { return d.nodes.Replicas(node) },
		Ways:   func(node string) cluster.Sharing { return d.gpus.Ways(d.nodes.Object(node)).Sharing },
		Sharer: func(p *fit.Neighbour) shared.Sharer { return d.sharerOf(gang.PodOf(p)) },
		Same:   gang.SameGang,
	}}
}

// newVolumes makes what is known of volumes.
func (d *Driver) newVolumes() *volumes.Volumes {
	return volumes.New(volumes.Books{
		Ours:  func(p *fit.Neighbour) bool { return gang.PodOf(p).Gang != nil },
		Room:  func(pods []*fit.Neighbour, node string) int { return d.freeFor(gang.PodsOf(pods), node) },
		Equal: func(p, q *fit.Neighbour) bool { return gang.PodOf(p).Request == gang.PodOf(q).Request },
		Held:  d.otherHeldPods,
	})
}

// keptOff says why the volumes of a pod that takes the place of another cannot be used on its node now; "": they can.
func (d *Driver) keptOff(p *gang.Pod, node string) string {
	return d.volumes.KeptOff(d.nodes.World, &p.Neighbour, node)
}

// readNeeds reads what a pod needs of its neighbours.
func (d *Driver) readNeeds(p *gang.Pod, requests v1.ResourceList) {
	p.Counted = d.gpus.CountedAs(&p.Replica, &p.Request, requests)
	d.nodes.World.Read(&p.Neighbour, requests)
}

// freeFor is how many of the gang's pods the engine finds GPUs for on a node.
func (d *Driver) freeFor(pods []*gang.Pod, node string) int {
	need := cluster.Milli(0)
	for _, p := range pods {
		if m := p.Request.Milli(); m > 0 && (need == 0 || m < need) {
			need = m
		}
	}
	if need == 0 {
		return len(pods)
	}
	return d.nodes.FreeFor(need, node)
}
