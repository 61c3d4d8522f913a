package gangs

import (
	"fmt"

	v1 "k8s.io/api/core/v1"

	"github.com/muster-gpu/muster/cluster"
)

// Kubernetes' own pod groups (scheduling.k8s.io/v1beta1, Kubernetes 1.37 with the
// feature gate GenericWorkload): a pod joins by spec.schedulingGroup, and the
// PodGroup says with how many pods the gang starts.
var podGroupKind = &Kind{Group: "scheduling.k8s.io", Name: "PodGroup", Resource: "podgroups",
	Versions: []string{"v1beta1"}}

// priorityKind is what a PriorityClass says; pods carry its value, but pod groups
// of others only its name.
var priorityKind = &Kind{Group: "scheduling.k8s.io", Name: "PriorityClass", Resource: "priorityclasses",
	Versions: []string{"v1"}}

func nativeGroup(all *Objects, obj *v1.Pod) *Claim {
	ref := obj.Spec.SchedulingGroup
	if ref == nil || ref.PodGroupName == nil {
		return nil
	}
	key := podGroupKind.In(obj.Namespace, *ref.PodGroupName)
	if o := all.objects[key]; o != nil && mapOf(o.Object, "spec", "schedulingPolicy", "basic") != nil &&
		mapOf(o.Object, "spec", "schedulingPolicy", "gang") == nil {
		return Alone(obj, key, cluster.Training)
	}
	return groupClaim(all, key, "podgroup", func(o map[string]any) (int, error) {
		if p := textOf(o, "spec", "parentCompositePodGroupName"); p != "" {
			return 0, fmt.Errorf("%s is part of CompositePodGroup %s, which Muster does not place yet", key, p)
		}
		return numberOf(o, 0, "spec", "schedulingPolicy", "gang", "minCount"), nil
	})
}

// groupClaim is the claim of a pod whose gang an object states: it starts with
// as many pods as that says, and more follow one by one.
func groupClaim(all *Objects, key Key, prefix string, least func(o map[string]any) (int, error)) *Claim {
	return &Claim{Key: prefix + "/" + key.Namespace + "/" + key.Name, Name: key.Namespace + "/" + key.Name, Object: key,
		Need: func(g Gang) (Membership, error) {
			o, err := all.whole(g, key)
			if err != nil {
				return Membership{}, err
			}
			n, err := least(o.Object)
			if err == nil && (n < 1 || n > cluster.MaxTasks) {
				err = fmt.Errorf("%s: it says to start with %d pods; 1 to %d would be right", key, n, cluster.MaxTasks)
			}
			return Membership{Size: n, Open: true, Submit: o.GetCreationTimestamp().Time}, err
		}}
}
