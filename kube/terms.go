package kube

import (
	"cmp"
	"fmt"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/muster-gpu/muster/kube/fit/shared"
	"github.com/muster-gpu/muster/kube/gang"
	"github.com/muster-gpu/muster/kube/gangs"
	"github.com/muster-gpu/muster/kube/terms"
)

// terms reads a gang's terms. An owner that should be there and is not is an error: it may say something.
func (d *Driver) terms(g *gang.Gang, first *v1.Pod) (t terms.Terms, err error) {
	origins, err := d.annotationSources(g, first)
	if err != nil {
		return t, err
	}
	of := terms.Gang{Sources: origins, Queue: d.queueFor(g, first.Namespace, origins),
		Created: func() time.Time { return terms.Created(origins, g.Members()) }}
	if of.Priority, of.Class, err = d.priorityFor(g, first, origins); err != nil {
		return t, err
	}
	return d.opt.termRules().Read(&of, first)
}

// termRules are what holds where a gang does not say on which terms it runs.
func (o *Options) termRules() *terms.Rules {
	return &terms.Rules{Labels: &o.Labels, Classes: o.Classes, Repair: o.Repair,
		MinSpeed: o.Rules.Spec.MinSpeed}
}

// annotationSources lists a gang's pod, and its owners.
func (d *Driver) annotationSources(g *gang.Gang, first *v1.Pod) ([]gangs.Origin, error) {
	return d.objects.Origins(g, g.Object, first)
}

// queueOf is the queue of a gang that waits for something, as far as it can be known.
func (d *Driver) queueOf(g *gang.Gang, first *v1.Pod) string {
	origins, err := d.annotationSources(g, first)
	if err != nil {
		origins = gangs.PodAlone(first)
	}
	return d.queueFor(g, first.Namespace, origins)
}

// queueFor finds the queue of a gang.
func (d *Driver) queueFor(g *gang.Gang, namespace string, origins []gangs.Origin) string {
	return cmp.Or(gangs.Stated(origins, LabelQueue).Value, d.objects.Queue(g, namespace, origins, d.queues.Tree()),
		d.opt.DefaultQueue)
}

// priorityFor finds the priority of a gang, and the name of its class.
func (d *Driver) priorityFor(g *gang.Gang, first *v1.Pod, origins []gangs.Origin) (value int64, class string,
	err error) {
	value, class, is, err := d.objects.Priority(g, g.Object, origins)
	if !is {
		return gang.Priority(first), first.Spec.PriorityClassName, nil
	}
	return value, class, err
}

// sharerOf is that of a pod.
func (d *Driver) sharerOf(p *gang.Pod) shared.Sharer {
	if p.Gang == nil {
		return shared.Sharer{} // what other schedulers' pods are is not known
	}
	if s := p.Gang.Spec; s != nil {
		return shared.Sharer{Model: s.Model, Least: s.MinSpeed}
	}
	t, err := d.terms(p.Gang, p.Obj)
	if err != nil {
		return shared.Sharer{}
	}
	return t.Sharer
}

// checkKeys says which key of Muster's on a pod, or on what made it, is not understood.
func (d *Driver) checkKeys(g *gang.Gang, pods []*gang.Pod) error {
	for _, p := range pods {
		if err := terms.CheckPod(p.Obj); err != nil {
			return err
		}
		if key := terms.OtherPart(p.Obj); key != "" && !d.gpus.Asked(p.Obj) {
			return fmt.Errorf("pod %s: annotation %s asks another scheduler for a part of a GPU, and the pod asks for none as a resource: with Muster it asks for one of %v, and for a part of it by %s and %s", p.Obj.Name, key, d.opt.GPUs, AnnotationMemory, AnnotationCores)
		}
	}
	if len(pods) == 0 {
		return nil
	}
	origins, err := d.annotationSources(g, pods[0].Obj)
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
