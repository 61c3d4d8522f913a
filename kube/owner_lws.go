package kube

import (
	"fmt"
	"strconv"

	v1 "k8s.io/api/core/v1"

	"github.com/muster-gpu/muster/cluster"
)

// Each group of a LeaderWorkerSet (leaderworkerset.x-k8s.io/v1) is a gang: a
// leader and its workers. With startupPolicy LeaderReady workers are created
// only when the leader is ready, so that the leader starts by itself.
var lwsKind = &objectKind{group: "leaderworkerset.x-k8s.io", kind: "LeaderWorkerSet", resource: "leaderworkersets", versions: []string{"v1"}}

// What the LeaderWorkerSet controller writes on pods (v0.6 to v0.8).
const (
	lwsName   = "leaderworkerset.sigs.k8s.io/name"
	lwsGroup  = "leaderworkerset.sigs.k8s.io/group-index"
	lwsWorker = "leaderworkerset.sigs.k8s.io/worker-index"
	lwsSize   = "leaderworkerset.sigs.k8s.io/size"
)

func lwsGang(d *Driver, obj *v1.Pod) *claim {
	name, group := obj.Labels[lwsName], obj.Labels[lwsGroup]
	if name == "" || group == "" {
		return nil
	}
	key := lwsKind.in(obj.Namespace, name)
	c := &claim{key: "lws/" + obj.Namespace + "/" + name + "/" + group, name: obj.Namespace + "/" + name + "-" + group, object: key, kind: cluster.Service}
	late := 0
	if o := d.objects[key]; o != nil && textOf(o.Object, "spec", "startupPolicy") == "LeaderReady" {
		if obj.Labels[lwsWorker] == "0" {
			return alone(obj, key, cluster.Service)
		}
		c.key, c.name, late = c.key+"/workers", c.name+"-workers", 1
	}
	c.need = func(g *gang) (membership, error) {
		if _, err := d.object(g, key); err != nil {
			return membership{}, err
		}
		for _, p := range g.sorted() {
			if text, ok := p.obj.Annotations[lwsSize]; ok {
				n, err := strconv.Atoi(text)
				if err != nil || n < 1 || n > cluster.MaxTasks {
					return membership{}, fmt.Errorf("pod %s: annotation %s: %q is not a number from 1 to %d", p.obj.Name, lwsSize, text, cluster.MaxTasks)
				}
				return membership{size: n - late}, nil
			}
		}
		return membership{}, fmt.Errorf("no pod of the group has the annotation %s, which says how many they are", lwsSize)
	}
	return c
}
