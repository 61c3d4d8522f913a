package gpus

import (
	"slices"
	"strconv"
	"strings"

	v1 "k8s.io/api/core/v1"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/kube/amount"
)

// Replicas of shared GPUs (time-slicing, MPS) are a resource beside the GPUs' own, nvidia.com/gpu.shared; a label of
// the node says how many a GPU has. To the engine a pod with one replica is a pod with that share of a GPU. Which
// replica a pod gets, the kubelet decides.

// sharedSuffix is what the device plugin adds to a resource that it shares.
const sharedSuffix = ".shared"

// mostReplicas is how many replicas of a GPU can be told apart: a share is a thousandth of a GPU at least.
const mostReplicas = int(cluster.Whole)

// Replica is what a pod asks for of replicas of shared GPUs.
type Replica struct {
	Name    v1.ResourceName // "": it asks for none
	N       int64
	One     bool // it asks for one and for no other GPU: the engine counts that
	Kind         // on what GPUs it may be
	Settled bool
}

// Kind is what replicas GPUs have.
type Kind struct {
	Of  int  // how many of them a GPU has; 0: that is open
	MPS bool // they have memory of their own; only of pods that want some
}

// Share is the part of a GPU that one of them is; 0: all of it.
func (k Kind) Share() cluster.Milli {
	if k.Of > 1 {
		return cluster.Whole / cluster.Milli(k.Of)
	}
	return 0
}

// Shared reports whether a resource is replicas of what counts as a GPU. One that the configuration lists itself is
// counted as GPUs.
func (c *Names) Shared(name v1.ResourceName) bool {
	base, ok := strings.CutSuffix(string(name), sharedSuffix)
	return ok && slices.Contains(c.GPUs, base) && !slices.Contains(c.GPUs, string(name))
}

// SharedSlice names replicas of MIG slices in a list; "": there are none.
func (c *Names) SharedSlice(list v1.ResourceList) (found v1.ResourceName) {
	for name, q := range list {
		if base, ok := strings.CutSuffix(string(name), sharedSuffix); ok && !q.IsZero() {
			if _, slice := c.Slice(v1.ResourceName(base)); slice && (found == "" || name < found) {
				found = name
			}
		}
	}
	return found
}

// ReplicaIn reads what a pod asks for.
func (c *Names) ReplicaIn(obj *v1.Pod, requests v1.ResourceList, r *cluster.Request) (rep Replica) {
	kinds := 0
	for name, q := range requests {
		if c.Shared(name) && !q.IsZero() {
			kinds++
			rep = Replica{Name: name, N: amount.Count(&q)}
		}
	}
	rep.One = kinds == 1 && rep.N == 1 && r.GPUs == 0 && len(obj.Spec.ResourceClaims) == 0
	return rep
}

// Replicas are those of a node.
type Replicas struct {
	Name  v1.ResourceName // "": it has none
	Of    int             // how many a GPU has; 0: its label does not say
	Most  int64           // those that there are, healthy or not
	Free  int64           // those that no pod has
	Aside int64           // those that the engine cannot give: not healthy, or of pods that it does not count
}

// ReplicasOn is what replicas a node has, without pods on it.
func (c *Names) ReplicasOn(n *v1.Node) (s Replicas) {
	if n == nil {
		return s
	}
	for _, g := range c.GPUs {
		name := v1.ResourceName(g + sharedSuffix)
		most, have := n.Status.Capacity[name], n.Status.Allocatable[name]
		if !c.Shared(name) || most.IsZero() && have.IsZero() {
			continue
		}
		s.Name, s.Most, s.Free = name, max(amount.Count(&most), amount.Count(&have)), amount.Count(&have)
		s.Aside = s.Most - s.Free
		break
	}
	if s.Name == "" {
		return s
	}
	if of, err := strconv.Atoi(n.Labels[c.Labels.Replicas]); err == nil && of >= 1 && of <= mostReplicas {
		s.Of = of
	}
	return s
}

// Take has a pod hold what it asks for; counted: the engine counts that.
func (s *Replicas) Take(r *Replica, counted bool) {
	if r.Name != s.Name || s.Name == "" {
		return
	}
	s.Free -= r.N
	if !counted {
		s.Aside += r.N
	}
}

// GPUs is how many GPUs the replicas are of.
func (s *Replicas) GPUs() int {
	if s.Of == 0 {
		return 0
	}
	return int(min((s.Most+int64(s.Of)-1)/int64(s.Of), int64(cluster.MaxGPUsPerNode)))
}

// Lost is how many of so many GPUs, whole ones, have no replica for us.
func (s *Replicas) Lost(gpus int) int {
	if s.Of == 0 {
		return gpus
	}
	return int((int64(gpus*s.Of) - s.Most + s.Aside) / int64(s.Of))
}

// OnlyShared reports whether a node has replicas, and none of its GPUs are given away whole.
func (c *Names) OnlyShared(n *v1.Node) bool {
	if c.ReplicasOn(n).Name == "" || c.Count(n.Status.Capacity) > 0 {
		return false
	}
	published, _ := c.published(n.Name)
	return published == 0
}

// KindFor is what replicas a node's GPUs have to a pod. To one that wants memory it is not all the same by what that is
// enforced.
func (c *Names) KindFor(w *Want, n *v1.Node) Kind {
	k := Kind{Of: c.ReplicasOn(n).Of}
	if w.Memory > 0 {
		ways := c.Ways(n)
		k.MPS = ways.Sharing == cluster.MPS && ways.Model.MPSLimits()
	}
	return k
}
