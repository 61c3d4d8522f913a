package fit

import (
	"fmt"

	v1 "k8s.io/api/core/v1"

	"github.com/muster-gpu/muster/kube/gpus"
)

// replicas are those of shared GPUs: as large as those of the rest of a pod's gang.
type replicas struct{ *gpus.Names }

// Key is nothing: which resource it is, the devices' key says.
func (replicas) Key(*Pod) any { return nil }

// Settled is on what GPUs it is to be.
func (replicas) Settled(p *Pod) string {
	if !p.Replica.Settled {
		return ""
	}
	return fmt.Sprintf(" replicas=%+v", p.Replica.Kind)
}

// Suits looks at the node's replicas.
func (f replicas) Suits(p *Pod, n *v1.Node) string { return f.Replicable(&p.Replica, &p.Want, n) }

// Differs is the devices' matter, and that of labels.
func (replicas) Differs(_, _ *v1.Node) bool { return false }
