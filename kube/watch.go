package kube

import (
	"context"

	batchv1 "k8s.io/api/batch/v1"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/muster-gpu/muster/kube/watch"
)

// watch sees the cluster from now on, and returns when all that is there is in the inbox.
func (d *Driver) watch(ctx context.Context) error {
	gone := func(n *v1.Node) { d.nodeGone(n.Name) }
	opt := watch.Options{Client: d.opt.Client, Dynamic: d.opt.Dynamic, Rescan: d.opt.Rescan, Maps: d.opt.MIG,
		Log: d.opt.Log, Loop: d.inbox.Put, Go: d.workers.Go}
	return watch.Run(ctx, opt, &watch.Handlers{
		Nodes:      watch.On[*v1.Node]{Changed: d.nodeChanged, Gone: gone},
		Pods:       watch.On[*v1.Pod]{Changed: d.podChanged, Gone: d.podGone},
		Jobs:       watch.On[*batchv1.Job]{Changed: d.jobChanged, Gone: d.jobGone},
		Namespaces: watch.On[*v1.Namespace]{Changed: d.spaceChanged},
		Maps: watch.On[*v1.ConfigMap]{Changed: func(m *v1.ConfigMap) { d.nodes.MIG.MapChanged(m, false) },
			Gone: func(m *v1.ConfigMap) { d.nodes.MIG.MapChanged(m, true) }},
		Queues: watch.On[*unstructured.Unstructured]{Changed: d.queueChanged,
			Gone: func(u *unstructured.Unstructured) { d.queues.Gone(u.GetName()) }},
		Volumes: watch.On[any]{Changed: d.volumeChanged, Gone: d.volumeGone},
		Devices: watch.On[any]{Changed: d.claims.Changed, Gone: d.claims.Gone},
		Served:  func() { d.claims.Served = true },
		Object:  d.objectChanged, Readable: d.kindReadable,
	})
}

func (d *Driver) spaceChanged(s *v1.Namespace) {
	d.nodes.World.SetSpace(s.Name, s.Labels)
}

func (d *Driver) volumeChanged(obj any) {
	d.volumes.Changed(obj)
	d.nodes.World.Changed()
}

func (d *Driver) volumeGone(obj any) {
	d.volumes.Gone(obj)
	d.nodes.World.Changed()
}
