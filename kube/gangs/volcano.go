package gangs

import (
	"cmp"

	v1 "k8s.io/api/core/v1"
)

// Volcano's pod groups (scheduling.volcano.sh/v1beta1, v1.16): a pod names its
// PodGroup in an annotation, and that says how many pods it starts with
// (minMember) and in which queue.
var volcanoKind = &Kind{Group: "scheduling.volcano.sh", Name: "PodGroup", Resource: "podgroups",
	Versions: []string{"v1beta1"},
	group:    true, queue: []string{"spec", "queue"}, class: []string{"spec", "priorityClassName"}}

const (
	volcanoGroupName  = "scheduling.volcano.sh/group-name"
	volcanoGroupNameK = "scheduling.k8s.io/group-name" // the name it has on most pods
)

// queueKeys are labels and annotations in which others name a queue.
var queueKeys = []string{"scheduling.volcano.sh/queue-name", "volcano.sh/queue-name", "kai.scheduler/queue",
	"runai/queue"}

func volcanoGroup(all *Objects, obj *v1.Pod) *Claim {
	name := cmp.Or(obj.Annotations[volcanoGroupNameK], obj.Annotations[volcanoGroupName])
	if name == "" {
		return nil
	}
	return groupClaim(all, volcanoKind.In(obj.Namespace, name), "volcano", func(o map[string]any) (int, error) {
		return numberOf(o, 1, "spec", "minMember"), nil
	})
}
