package reader

import (
	"cmp"
	"fmt"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/kube/areas"
	"github.com/muster-gpu/muster/kube/fit/shared"
	"github.com/muster-gpu/muster/kube/gang"
	"github.com/muster-gpu/muster/kube/gangs"
	"github.com/muster-gpu/muster/kube/terms"
)

// Domains lists the topology domains in which all of what is left of a gang is, the closest first; only the one that
// it has to be in, if there is such.
func (r *Reader) Domains(g *gang.Gang) []areas.Area {
	t := cluster.Topology{}
	for _, p := range g.Sorted() {
		if origins, err := r.Origins(g, p.Obj); err == nil && p.Node != "" {
			t, _ = r.Rules.Topology(origins) // it was understood when the gang began
			break
		}
	}
	return areas.Shared(g.Places.Nodes(), r.GPUs.Labels.Domains(), t, r.Nodes.World)
}

// Terms reads a gang's terms. An owner that should be there and is not is an error: it may say something.
func (r *Reader) Terms(g *gang.Gang, first *v1.Pod) (t terms.Terms, err error) {
	origins, err := r.Origins(g, first)
	if err != nil {
		return t, err
	}
	of := terms.Gang{Sources: origins, Queue: r.queueFor(g, first.Namespace, origins),
		Created: func() time.Time { return terms.Created(origins, g.Members()) }}
	if of.Priority, of.Class, err = r.priorityFor(g, first, origins); err != nil {
		return t, err
	}
	return r.Rules.Read(&of, first)
}

// Origins lists a gang's pod, and its owners.
func (r *Reader) Origins(g *gang.Gang, first *v1.Pod) ([]gangs.Origin, error) {
	return r.Objects.Origins(g, g.Object, first)
}

// QueueOf is the queue of a gang that waits for something, as far as it can be known.
func (r *Reader) QueueOf(g *gang.Gang, first *v1.Pod) string {
	origins, err := r.Origins(g, first)
	if err != nil {
		origins = gangs.PodAlone(first)
	}
	return r.queueFor(g, first.Namespace, origins)
}

// queueFor finds the queue of a gang.
func (r *Reader) queueFor(g *gang.Gang, namespace string, origins []gangs.Origin) string {
	stated := gangs.Stated(origins, terms.LabelQueue).Value
	return cmp.Or(stated, r.Objects.Queue(g, namespace, origins, r.Queues.Tree()), r.DefaultQueue)
}

// priorityFor finds the priority of a gang, and the name of its class.
func (r *Reader) priorityFor(g *gang.Gang, first *v1.Pod, origins []gangs.Origin) (value int64, class string,
	err error) {
	value, class, is, err := r.Objects.Priority(g, g.Object, origins)
	if !is {
		return gang.Priority(first), first.Spec.PriorityClassName, nil
	}
	return value, class, err
}

// SharerOf is that of a pod.
func (r *Reader) SharerOf(p *gang.Pod) shared.Sharer {
	if p.Gang == nil {
		return shared.Sharer{} // what other schedulers' pods are is not known
	}
	if s := p.Gang.Spec; s != nil {
		return shared.Sharer{Model: s.Model, Least: s.MinSpeed}
	}
	t, err := r.Terms(p.Gang, p.Obj)
	if err != nil {
		return shared.Sharer{}
	}
	return t.Sharer
}

// CheckKeys says which key of Muster's on a pod, or on what made it, is not understood.
func (r *Reader) CheckKeys(g *gang.Gang, pods []*gang.Pod) error {
	for _, p := range pods {
		if err := terms.CheckPod(p.Obj); err != nil {
			return err
		}
		if key := terms.OtherPart(p.Obj); key != "" && !r.GPUs.Asked(p.Obj) {
			return fmt.Errorf("pod %s: annotation %s asks another scheduler for a part of a GPU, and the pod asks for none as a resource: with Muster it asks for one of %v, and for a part of it by %s and %s", p.Obj.Name, key, r.GPUs.GPUs, terms.AnnotationMemory, terms.AnnotationCores)
		}
	}
	if len(pods) == 0 {
		return nil
	}
	origins, err := r.Origins(g, pods[0].Obj)
	if err != nil {
		return nil // its terms say so
	}
	for _, s := range origins[1:] {
		if err := terms.CheckOwner(s.Meta, s.What); err != nil {
			return err
		}
	}
	return nil
}
