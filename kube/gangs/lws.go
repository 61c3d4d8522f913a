package gangs

import (
	"fmt"
	"strconv"

	v1 "k8s.io/api/core/v1"

	"github.com/muster-gpu/muster/cluster"
)

// Each group of a LeaderWorkerSet (leaderworkerset.x-k8s.io/v1) is a gang: a
// leader and its workers. With startupPolicy LeaderReady workers are created
// only when the leader is ready, so that the leader starts by itself.
var lwsKind = &Kind{Group: "leaderworkerset.x-k8s.io", Name: "LeaderWorkerSet", Resource: "leaderworkersets",
	Versions: []string{"v1"}}

// What the LeaderWorkerSet controller writes on pods (v0.6 to v0.8).
const (
	lwsName   = "leaderworkerset.sigs.k8s.io/name"
	lwsGroup  = "leaderworkerset.sigs.k8s.io/group-index"
	lwsWorker = "leaderworkerset.sigs.k8s.io/worker-index"
	lwsSize   = "leaderworkerset.sigs.k8s.io/size"
)

func lwsGang(all *Objects, obj *v1.Pod) *Claim {
	name, group := obj.Labels[lwsName], obj.Labels[lwsGroup]
	if name == "" || group == "" {
		return nil
	}
	key := lwsKind.In(obj.Namespace, name)
	c := &Claim{Key: "lws/" + obj.Namespace + "/" + name + "/" + group, Name: obj.Namespace + "/" + name + "-" + group,
		Object: key, Kind: cluster.Service}
	late := 0
	if o := all.objects[key]; o != nil && textOf(o.Object, "spec", "startupPolicy") == "LeaderReady" {
		if obj.Labels[lwsWorker] == "0" {
			return Alone(obj, key, cluster.Service)
		}
		c.Key, c.Name, late = c.Key+"/workers", c.Name+"-workers", 1
	}
	c.Need = func(g Gang) (Membership, error) {
		if _, err := all.object(g, key); err != nil {
			return Membership{}, err
		}
		for _, p := range g.Members() {
			if text, ok := p.Annotations[lwsSize]; ok {
				n, err := strconv.Atoi(text)
				if err != nil || n < 1 || n > cluster.MaxTasks {
					return Membership{},
						fmt.Errorf("pod %s: annotation %s: %q is not a number from 1 to %d", p.Name, lwsSize, text,
							cluster.MaxTasks)
				}
				return Membership{Size: n - late}, nil
			}
		}
		return Membership{},
			fmt.Errorf("no pod of the group has the annotation %s, which says how many they are", lwsSize)
	}
	return c
}
