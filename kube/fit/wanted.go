package fit

import (
	"fmt"

	v1 "k8s.io/api/core/v1"

	"github.com/muster-gpu/muster/kube/gpus"
)

// wanted is what a pod needs of its GPUs besides the resource that it names.
type wanted struct{ *gpus.Names }

// Key is nothing: what a gang wants is settled later.
func (wanted) Key(*Pod) any { return nil }

// Settled is what is wanted.
func (wanted) Settled(p *Pod) string {
	if p.Want.Any() {
		return fmt.Sprintf(" wants %+v", p.Want)
	}
	return ""
}

// Suits looks at what the pod gets of the node.
func (f wanted) Suits(p *Pod, n *v1.Node) (why string) {
	if p.Want.Any() {
		_, why = f.Gives(&p.Replica, &p.Want, p.Requests, n)
	}
	return why
}

// Differs is the devices' matter, and that of labels.
func (wanted) Differs(_, _ *v1.Node) bool { return false }
