package kube

import (
	v1 "k8s.io/api/core/v1"
)

// KAI's pod groups (scheduling.run.ai/v2alpha2, v0.17): a pod names its PodGroup in
// an annotation, and that says how many pods it starts with. Where it has
// sub-groups, it starts with so many of each.
var kaiKind = &objectKind{group: "scheduling.run.ai", kind: "PodGroup", resource: "podgroups", versions: []string{"v2alpha2"}}

const (
	kaiGroupName = "pod-group-name"
	kaiSubGroup  = "kai.scheduler/subgroup-name"
	kaiPriority  = "priorityClassName"
	kaiRequired  = "kai.scheduler/topology-required-placement"
	kaiPreferred = "kai.scheduler/topology-preferred-placement"
	kaiMinMember = "kai.scheduler/batch-min-member"
)

func kaiGroup(d *Driver, obj *v1.Pod) *claim {
	name := obj.Annotations[kaiGroupName]
	if name == "" {
		return nil
	}
	key := kaiKind.in(obj.Namespace, name)
	c := groupClaim(d, key, "kai", func(o map[string]any) (int, error) { return numberOf(o, 1, "spec", "minMember"), nil })
	plain := c.need
	c.need = func(g *gang) (membership, error) {
		m, err := plain(g)
		if o := d.objects[key]; err == nil && o != nil {
			var roles []role
			for _, sub := range listOf(o.Object, "spec", "subGroups") {
				if n := numberOf(sub, 0, "minMember"); n > 0 { // those above others have none
					roles = append(roles, role{textOf(sub, "name"), n})
				}
			}
			if len(roles) > 0 {
				r := roled(roles, func(p *v1.Pod) string { return p.Labels[kaiSubGroup] })
				r.open, r.submit = true, m.submit
				return r, nil
			}
		}
		return m, err
	}
	return c
}
