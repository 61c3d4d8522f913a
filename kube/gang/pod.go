package gang

import (
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/kube/fit"
	"github.com/muster-gpu/muster/kube/fit/claims"
	"github.com/muster-gpu/muster/kube/gpus"
	"github.com/muster-gpu/muster/kube/nodes"
	"github.com/muster-gpu/muster/kube/notices"
	"github.com/muster-gpu/muster/kube/plans"
	"github.com/muster-gpu/muster/show"
)

// Pod is a pod as the driver knows it.
type Pod struct {
	nodes.Pod
	Gang      *Gang  // nil: not ours
	Node      string // where it is bound, or being bound; "": nowhere
	Binding   bool   // a binding is on its way
	Leaving   bool   // an eviction or a deletion was asked for
	Ended     bool   // ... by force, because its node is gone
	Nominated string // what its status says, or will: where it is to go
	Assumed   string // where its binding is on its way to
	Claimed   claims.Pod
	Report    *show.Report // what it told last; nil: nothing
	Reported  cluster.Time // ... as of when
	SurplusAt cluster.Time // when it is told that its gang has enough pods; 0: it is not known to be beyond
}

// taskState is what a pod is doing, for people.
func taskState(p *Pod) string {
	switch {
	case p.Obj.Status.Phase == v1.PodSucceeded:
		return "succeeded"
	case p.Obj.Status.Phase == v1.PodFailed:
		return "failed"
	case p.Leaving || p.Obj.DeletionTimestamp != nil:
		return "leaving"
	case p.Binding:
		return "binding"
	case p.Obj.Status.Phase == v1.PodRunning:
		return "running"
	case p.Node != "":
		return "bound"
	case len(p.Obj.Spec.SchedulingGates) > 0:
		return "gated"
	}
	return "waiting"
}

// Leaves reports whether a pod is told to leave, or ends.
func (p *Pod) Leaves() bool {
	return p.Leaving || p.Obj.DeletionTimestamp != nil ||
		p.Gang != nil && (p.Gang.Phase == Stopping || p.Gang.Leaves != "")
}

// HeldBy says which of the claims is held by a pod that does not leave; "": none.
func HeldBy(list []fit.Rival) string {
	for i := range list {
		if !PodOf(list[i].User).Leaves() {
			return list[i].Text()
		}
	}
	return ""
}

// Began is when the first of some pods began, or was created.
func Began(pods []*Pod) cluster.Time {
	var from time.Time
	for _, q := range pods {
		at := q.Obj.CreationTimestamp.Time
		if q.Obj.Status.StartTime != nil {
			at = q.Obj.Status.StartTime.Time
		}
		if from.IsZero() || at.Before(from) {
			from = at
		}
	}
	return cluster.Time(from.UnixNano())
}

// At is where a pod is, or is going; "": nowhere.
func (p *Pod) At() string {
	switch {
	case p.Over():
		return ""
	case p.Node != "":
		return p.Node
	case p.Gang == nil:
		return p.Obj.Status.NominatedNodeName // another scheduler is making room for it
	}
	return p.Assumed
}

// Neighbours are these pods as the world knows them.
func Neighbours(pods []*Pod) []*fit.Neighbour {
	list := make([]*fit.Neighbour, len(pods))
	for i, p := range pods {
		list[i] = &p.Neighbour
	}
	return list
}

// OnNodes are these pods as nodes know them.
func OnNodes(pods []*Pod) []*nodes.Pod {
	list := make([]*nodes.Pod, len(pods))
	for i, p := range pods {
		list[i] = &p.Pod
	}
	return list
}

// PodOf is a pod of the world as the driver knows it.
func PodOf(p *fit.Neighbour) *Pod { return p.Record.(*Pod) }

// PodsOf are these pods of the world.
func PodsOf(list []*fit.Neighbour) []*Pod {
	pods := make([]*Pod, len(list))
	for i, p := range list {
		pods[i] = PodOf(p)
	}
	return pods
}

// Nominate writes to which node a pod will go, if it does not say so; "": to none that is known.
func (p *Pod) Nominate(n *notices.Writer, node string) {
	if p.Nominated != node && n.Nominate(p.Obj, node) {
		p.Nominated = node
	}
}

// Ready reports whether the pod wants to be bound, and it is known what it asks for.
func (p *Pod) Ready() bool { return p.Waits() && p.Claimed.Lacks == "" }

// Waits reports whether the pod wants to be bound.
func (p *Pod) Waits() bool {
	return p.Node == "" && !p.Over() && p.Obj.DeletionTimestamp == nil && len(p.Obj.Spec.SchedulingGates) == 0
}

func (p *Pod) Name() string { return p.Obj.Namespace + "/" + p.Obj.Name }

// Order is the order of pods.
func Order(a, b *Pod) int { return fit.Order(a.Obj, b.Obj) }

// Priority is the priority that stands in a pod.
func Priority(obj *v1.Pod) int64 {
	if obj.Spec.Priority == nil {
		return 0
	}
	return int64(*obj.Spec.Priority)
}

// Grace is how long an evicted pod has, in seconds: its own time, but no longer
// than its tier's, and never nothing: that would be a deletion by force.
func Grace(obj *v1.Pod, most int64) int64 {
	own := int64(30) // Kubernetes' default
	if s := obj.Spec.TerminationGracePeriodSeconds; s != nil {
		own = *s
	}
	return max(1, min(own, most))
}

// UIDs are the UIDs of these pods, in their order.
func UIDs(pods []*Pod) []types.UID {
	list := make([]types.UID, 0, len(pods))
	for _, p := range pods {
		list = append(list, p.Obj.UID)
	}
	slices.Sort(list)
	return list
}

// SameGang reports whether two pods are of one gang.
func SameGang(p, q *fit.Neighbour) bool { return PodOf(p).Gang == PodOf(q).Gang }

// Replicas counts the pods with a replica, and says on what GPUs they are to be.
func Replicas(pods []*Pod) (n int64, k gpus.Kind) {
	for _, p := range pods {
		if p.Replica.One {
			n, k = n+1, p.Replica.Kind
		}
	}
	return n, k
}

// TakesPlace reports whether a pod that is new can have a place of its gang: it asks for what the place is for, or for
// the same GPUs and as much CPU and memory as the node has left - the pod before it may have been resized.
func (p *Pod) TakesPlace(all *nodes.Room, r *cluster.Request, node string) bool {
	if p.Asks(r) {
		return true
	}
	if all.Lost(node) || p.Replica.One || len(p.Obj.Spec.ResourceClaims) > 0 || !p.SameDevices(r) {
		return false
	}
	cpu, ram := all.Rest(settledBut(nil)).Left(node)
	return p.Request.CPU <= cpu && p.Request.RAM <= ram
}

// Occupies reports whether a pod holds something of a node that is there.
func (p *Pod) Occupies(all *nodes.Room) bool {
	return p.Node != "" && !p.Over() && !all.Lost(p.Node)
}

// Objects are these pods as Kubernetes knows them.
func Objects(pods []*Pod) []*v1.Pod {
	list := make([]*v1.Pod, len(pods))
	for i, p := range pods {
		list[i] = p.Obj
	}
	return list
}

// Finished reports whether a pod of a gang came to its end by itself, where no other is made for it.
func Finished(obj *v1.Pod) bool {
	if obj.Status.Phase != v1.PodSucceeded || metav1.GetControllerOf(obj) != nil {
		return false
	}
	p := plans.Of(obj)
	return p != nil && (len(p.Tasks) > 1 || p.Tasks[0].Count > 1)
}

// Tasks lists the pods of the gang, for people.
func (g *Gang) Tasks() (list []show.Task) {
	for _, p := range g.Sorted() {
		list = append(list, show.Task{Name: p.Obj.Name, State: taskState(p), Node: p.Node, GPUs: p.Request.GPUs})
	}
	return list
}

// SettleOn says of a pod what replicas GPUs have where it goes.
func (p *Pod) SettleOn(k gpus.Kind, all fit.Nodes) {
	if !p.Replica.One {
		return
	}
	p.Replica.Kind, p.Replica.Settled, p.Request.GPUs, p.Request.Share = k, true, min(k.Of, 1), k.Share()
	p.Sign(all)
}
