package nodes

import (
	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/kube/gpus"
)

// Asks reports whether a pod asks for the same as a task: how large the share of a replica is, the task's node says.
func (p *Pod) Asks(r *cluster.Request) bool {
	if !p.Replica.One {
		return p.Request == *r
	}
	return p.Request.CPU == r.CPU && p.Request.RAM == r.RAM && r.GPUs <= 1 && r.Profile == "" // 0: an earlier version's
}

// SameDevices reports whether a task is for the GPUs that a pod has, whatever else it asks for. GPUs cannot be resized;
// what a pod has by its claims is not in its specification.
func (p *Pod) SameDevices(r *cluster.Request) bool {
	switch {
	case p.Replica.One:
		return r.GPUs <= 1 && r.Profile == ""
	case len(p.Obj.Spec.ResourceClaims) > 0:
		return true
	}
	return p.Request.GPUs == r.GPUs && p.Request.Share == r.Share && p.Request.Profile == r.Profile &&
		p.Request.Memory == r.Memory
}

// Give makes a pod's request that of the place which it gets.
func (p *Pod) Give(r *cluster.Request) {
	if p.Replica.One {
		p.Request = *r
	}
}

// Holds is what a pod has of its place on a node with so many replicas of each GPU: its own CPU and memory, and of
// devices what it asks for. Only a plan that is trusted says what a shared claim or a replica counts for.
func (p *Pod) Holds(place cluster.Request, replicas int, trusted bool) cluster.Request {
	own := p.Request
	if byPlan := p.Replica.One || len(p.Obj.Spec.ResourceClaims) > 0; byPlan && trusted {
		own = place
		own.CPU, own.RAM = p.Request.CPU, p.Request.RAM
	} else if p.Replica.One && replicas > 0 {
		own.GPUs, own.Share = 1, gpus.Kind{Of: replicas}.Share()
	}
	return own
}
