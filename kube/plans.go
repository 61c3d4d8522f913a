package kube

import (
	"fmt"

	"github.com/muster-gpu/muster/engine"
	"github.com/muster-gpu/muster/kube/gang"
	"github.com/muster-gpu/muster/kube/holds"
	"github.com/muster-gpu/muster/kube/places"
	"github.com/muster-gpu/muster/kube/plans"
)

// refuseForeign makes pods foreign that have no place in their gang's plan.
func (d *Driver) refuseForeign(pods []*gang.Pod) {
	for _, q := range pods {
		d.setAside.Pod(q.Obj, fmt.Sprintf("annotation %s of its gang has no place for it on node %s", AnnotationPlan,
			q.Node))
		d.disown(q)
	}
}

// devices gives a plan devices that no other has, where the engine has yet to hear of its nodes, too: if one is gone,
// it learns that in a moment.
func (d *Driver) devices(p *plans.Plan, taken map[string]holds.InUse) ([]engine.Alloc, error) {
	return places.Devices(p, taken, func(node string) int { return d.nodes.NumberFor(node, d.now) })
}
