package kube

import (
	"fmt"

	v1 "k8s.io/api/core/v1"

	"github.com/muster-gpu/muster/cluster"
)

// Kubernetes' own pod groups (scheduling.k8s.io/v1beta1, Kubernetes 1.37 with the
// feature gate GenericWorkload): a pod joins by spec.schedulingGroup, and the
// PodGroup says with how many pods the gang starts.
var podGroupKind = &objectKind{group: "scheduling.k8s.io", kind: "PodGroup", resource: "podgroups", versions: []string{"v1beta1"}}

// priorityKind is what a PriorityClass says; pods carry its value, but pod groups
// of others only its name.
var priorityKind = &objectKind{group: "scheduling.k8s.io", kind: "PriorityClass", resource: "priorityclasses", versions: []string{"v1"}}

// groupKinds are pod groups that name a queue and a priority class.
var groupKinds = []*objectKind{volcanoKind, kaiKind}

func nativeGroup(d *Driver, obj *v1.Pod) *claim {
	ref := obj.Spec.SchedulingGroup
	if ref == nil || ref.PodGroupName == nil {
		return nil
	}
	key := podGroupKind.in(obj.Namespace, *ref.PodGroupName)
	if o := d.objects[key]; o != nil && mapOf(o.Object, "spec", "schedulingPolicy", "basic") != nil && mapOf(o.Object, "spec", "schedulingPolicy", "gang") == nil {
		return alone(obj, key, cluster.Training)
	}
	return groupClaim(d, key, "podgroup", func(o map[string]any) (int, error) {
		if p := textOf(o, "spec", "parentCompositePodGroupName"); p != "" {
			return 0, fmt.Errorf("%s is part of CompositePodGroup %s, which Muster does not place yet", key, p)
		}
		return numberOf(o, 0, "spec", "schedulingPolicy", "gang", "minCount"), nil
	})
}

// groupClaim is the claim of a pod whose gang an object states: it starts with
// as many pods as that says, and more follow one by one.
func groupClaim(d *Driver, key objKey, prefix string, least func(o map[string]any) (int, error)) *claim {
	return &claim{key: prefix + "/" + key.namespace + "/" + key.name, name: key.namespace + "/" + key.name, object: key, need: func(g *gang) (membership, error) {
		o, err := d.whole(g, key)
		if err != nil {
			return membership{}, err
		}
		n, err := least(o.Object)
		if err == nil && (n < 1 || n > cluster.MaxTasks) {
			err = fmt.Errorf("%s: it says to start with %d pods; 1 to %d would be right", key, n, cluster.MaxTasks)
		}
		return membership{size: n, open: true, submit: o.GetCreationTimestamp().Time}, err
	}}
}
