package kube

import (
	v1 "k8s.io/api/core/v1"

	"github.com/muster-gpu/muster/kube/power"
)

// whole is a node as it is or, while it is not back, with at least what it had before it went off.
func (n *node) whole(obj *v1.Node) *v1.Node {
	as, before := power.Whole(obj, obj.Labels[LabelPower], obj.Annotations[AnnotationPowerSize])
	n.power.before, n.power.have = before, obj.Status.Allocatable
	return as
}

// lacks says what of its GPUs a node does not have yet that it had before it went off; "": it has all.
func (d *Driver) lacks(n *node) string {
	return n.power.before.Lacks(n.power.have, d.gpus.Has)
}
