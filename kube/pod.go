package kube

import (
	"slices"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/kube/fit"
	"github.com/muster-gpu/muster/kube/fit/claims"
	"github.com/muster-gpu/muster/kube/nodes"
	"github.com/muster-gpu/muster/show"
)

// pod is a pod as the driver knows it.
type pod struct {
	nodes.Pod
	gang      *gang  // nil: not ours
	node      string // where it is bound, or being bound; "": nowhere
	binding   bool   // a binding is on its way
	leaving   bool   // an eviction or a deletion was asked for
	ended     bool   // ... by force, because its node is gone
	nominated string // what its status says, or will: where it is to go
	assumed   string // where its binding is on its way to
	claimed   claims.Pod
	report    *show.Report // what it told last; nil: nothing
	reported  cluster.Time // ... as of when
	surplusAt cluster.Time // when it is told that its gang has enough pods; 0: it is not known to be beyond
}

// ready reports whether the pod wants to be bound, and it is known what it asks for.
func (p *pod) ready() bool { return p.waits() && p.claimed.Lacks == "" }

// waits reports whether the pod wants to be bound.
func (p *pod) waits() bool {
	return p.node == "" && !p.Over() && p.Obj.DeletionTimestamp == nil && len(p.Obj.Spec.SchedulingGates) == 0
}

func (p *pod) name() string { return p.Obj.Namespace + "/" + p.Obj.Name }

func podOrder(a, b *pod) int { return fit.Order(a.Obj, b.Obj) }

func priority(obj *v1.Pod) int64 {
	if obj.Spec.Priority == nil {
		return 0
	}
	return int64(*obj.Spec.Priority)
}

// grace is how long an evicted pod has, in seconds: its own time, but no longer
// than its tier's, and never nothing: that would be a deletion by force.
func grace(obj *v1.Pod, most int64) int64 {
	own := int64(30) // Kubernetes' default
	if s := obj.Spec.TerminationGracePeriodSeconds; s != nil {
		own = *s
	}
	return max(1, min(own, most))
}

func uids(pods []*pod) []types.UID {
	list := make([]types.UID, 0, len(pods))
	for _, p := range pods {
		list = append(list, p.Obj.UID)
	}
	slices.Sort(list)
	return list
}
