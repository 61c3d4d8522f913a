package kube

import (
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
		Sharer: func(p *fit.Neighbour) shared.Sharer { return d.reader.SharerOf(gang.PodOf(p)) },
		Same:   gang.SameGang,
	}}
}

// newVolumes makes what is known of volumes.
func (d *Driver) newVolumes() *volumes.Volumes {
	return volumes.New(volumes.Books{
		Ours:  func(p *fit.Neighbour) bool { return gang.PodOf(p).Gang != nil },
		Room:  func(pods []*fit.Neighbour, node string) int { return d.reader.FreeFor(gang.PodsOf(pods), node) },
		Equal: func(p, q *fit.Neighbour) bool { return gang.PodOf(p).Request == gang.PodOf(q).Request },
		Held:  d.otherHeldPods,
	})
}
