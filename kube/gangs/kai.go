package gangs

import (
	v1 "k8s.io/api/core/v1"
)

// KAI's pod groups (scheduling.run.ai/v2alpha2, v0.17): a pod names its PodGroup in
// an annotation, and that says how many pods it starts with. Where it has
// sub-groups, it starts with so many of each.
var kaiKind = &Kind{Group: "scheduling.run.ai", Name: "PodGroup", Resource: "podgroups", Versions: []string{"v2alpha2"},
	group: true, queue: []string{"spec", "queue"}, class: []string{"spec", "priorityClassName"},
	required:  []string{"spec", "topologyConstraint", "requiredTopologyLevel"},
	preferred: []string{"spec", "topologyConstraint", "preferredTopologyLevel"}}

const (
	kaiGroupName = "pod-group-name"
	kaiSubGroup  = "kai.scheduler/subgroup-name"
	kaiPriority  = "priorityClassName"
	kaiRequired  = "kai.scheduler/topology-required-placement"
	kaiPreferred = "kai.scheduler/topology-preferred-placement"
	kaiMinMember = "kai.scheduler/batch-min-member"
)

func kaiGroup(all *Objects, obj *v1.Pod) *Claim {
	name := obj.Annotations[kaiGroupName]
	if name == "" {
		return nil
	}
	key := kaiKind.In(obj.Namespace, name)
	c := groupClaim(all, key, "kai", func(o map[string]any) (int, error) {
		return numberOf(o, 1, "spec", "minMember"), nil
	})
	plain := c.Need
	c.Need = func(g Gang) (Membership, error) {
		m, err := plain(g)
		if o := all.objects[key]; err == nil && o != nil {
			var roles []Role
			for _, sub := range listOf(o.Object, "spec", "subGroups") {
				if n := numberOf(sub, 0, "minMember"); n > 0 { // those above others have none
					roles = append(roles, Role{textOf(sub, "name"), n})
				}
			}
			if len(roles) > 0 {
				r := roled(roles, func(p *v1.Pod) string { return p.Labels[kaiSubGroup] })
				r.Open, r.Submit = true, m.Submit
				return r, nil
			}
		}
		return m, err
	}
	return c
}
