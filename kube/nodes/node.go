package nodes

import (
	"cmp"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/kube/fit"
	"github.com/muster-gpu/muster/kube/mig"
	"github.com/muster-gpu/muster/kube/power"
)

// Pod is what has to be known of a pod that is on a node, or going there.
type Pod struct {
	fit.Neighbour
	Request cluster.Request
	Managed bool // it is of a gang; else it only takes room
	// Signature is what of it decides on which nodes it may run; Base is that without what is settled with its gang.
	Signature, Base string
}

// AsPod is the pod itself, for who has what embeds it.
func (p *Pod) AsPod() *Pod { return p }

// podOf is a pod of the world as nodes know it.
func podOf(p *fit.Neighbour) *Pod { return p.Record.(interface{ AsPod() *Pod }).AsPod() }

// Over reports whether the pod holds nothing any more, though it is still there.
func (p *Pod) Over() bool {
	return p.Obj.Status.Phase == v1.PodSucceeded || p.Obj.Status.Phase == v1.PodFailed
}

// InEngine reports whether the engine counts the replica of a shared GPU that the pod has, where it has its place.
func (p *Pod) InEngine() bool { return p.Replica.One && p.Managed && p.Request.GPUs > 0 }

// followsNode reports whether the pod goes where its node goes: it is no reason to keep a node on.
func (p *Pod) followsNode() bool {
	owner := metav1.GetControllerOf(p.Obj)
	_, static := p.Obj.Annotations[v1.MirrorPodAnnotationKey]
	return p.Over() || static || owner != nil && owner.Kind == "DaemonSet"
}

// Node is a node as the scheduler knows it.
type Node struct {
	Obj   *v1.Node // nil: it is gone
	Power power.Node
	MIG   mig.Node

	foreign map[*Pod]bool // pods on it that the engine did not put there
	held    Held          // what these hold
}

// Held is what foreign pods hold of a node.
type Held struct {
	CPU, RAM int64 // milli-cores, MiB
	GPUs     int64 // devices
}

// Object is the node's object; nil: it is gone, or never was.
func (n *Node) Object() *v1.Node {
	if n == nil {
		return nil
	}
	return n.Obj
}

// Foreign is what pods hold that the engine did not put there.
func (n *Node) Foreign() Held { return n.held }

func (n *Node) count(p *Pod, by int64) {
	n.held.CPU += by * p.Request.CPU
	n.held.RAM += by * p.Request.RAM
	if p.Request.Profile == "" {
		n.held.GPUs += by * int64(p.Request.GPUs)
	}
}

// closedBy is the taint that keeps new pods off the node; nil: none does.
func (n *Node) closedBy() *v1.Taint {
	for i := range n.Obj.Spec.Taints {
		if t := &n.Obj.Spec.Taints[i]; fit.Passing(t) && t.Effect != v1.TaintEffectPreferNoSchedule {
			return t
		}
	}
	return nil
}

// State says what may be done with a node. One that is not ready keeps what runs there: Kubernetes evicts that itself
// when it has been away for long.
func (n *Node) State() cluster.NodeState {
	switch {
	case n.Obj == nil:
		return cluster.Down
	case n.Power.Sleeps(): // it is there for gangs that need it
		return cluster.Up
	case n.Obj.Spec.Unschedulable || n.Obj.DeletionTimestamp != nil || n.MIG.Shut() || n.closedBy() != nil:
		return cluster.Draining
	}
	for _, c := range n.Obj.Status.Conditions {
		if c.Type == v1.NodeReady && c.Status == v1.ConditionTrue {
			return cluster.Up
		}
	}
	return cluster.Draining
}

// Up reports whether the node is there and takes pods; no node does not.
func (n *Node) Up() bool { return n != nil && n.State() == cluster.Up }

// Told is a node's state as it is to be told to the engine: one that is given back is drained, as the engine has it.
func (n *Node) Told(givenBack bool) cluster.NodeState {
	if s := n.State(); !givenBack || s != cluster.Up {
		return s
	}
	return cluster.Draining
}

// Reason says why nothing starts on a node that is there; "": something may.
func (n *Node) Reason() string {
	switch {
	case n.Obj.DeletionTimestamp != nil:
		return "it is being deleted"
	case n.Power.Sleeps():
		return n.Power.Reason()
	case n.MIG.Reason() != "":
		return n.MIG.Reason()
	case n.Obj.Spec.Unschedulable:
		return "cordoned"
	}
	if t := n.closedBy(); t != nil {
		return "taint " + t.Key
	}
	if n.State() != cluster.Up {
		return "not ready"
	}
	return ""
}

// Lost reports whether there is no such node.
func (r *Room) Lost(name string) bool { return r.Object(name) == nil }

// ReasonOf says why nothing starts on a node, by its name; "": something may.
func (r *Room) ReasonOf(name string, givenBack bool) string {
	switch n := r.nodes[name]; {
	case n.Object() == nil:
		return "it is not in the cluster any more"
	case givenBack:
		return cmp.Or(n.Reason(), "given back to its lender")
	default:
		return n.Reason()
	}
}
