package kube

import (
	v1 "k8s.io/api/core/v1"
)

// What people of Kueue put on pods and on their owners (its labels as of
// v0.19). Kueue itself need not be there any more; where its LocalQueues and
// WorkloadPriorityClasses still are, they are read.
const (
	kueueQueue     = "kueue.x-k8s.io/queue-name"
	kueueGroupName = "kueue.x-k8s.io/pod-group-name"
	kueueGroupSize = "kueue.x-k8s.io/pod-group-total-count"
	kueuePriority  = "kueue.x-k8s.io/priority-class"
	kueueMaxTime   = "kueue.x-k8s.io/max-exec-time-seconds"
	kueueRequired  = "kueue.x-k8s.io/podset-required-topology"
	kueuePreferred = "kueue.x-k8s.io/podset-preferred-topology"
	kueueJobMin    = "kueue.x-k8s.io/job-min-parallelism"
)

var (
	kueueVersions     = []string{"v1beta2", "v1beta1"}
	localQueueKind    = &objectKind{group: "kueue.x-k8s.io", kind: "LocalQueue", resource: "localqueues", versions: kueueVersions}
	kueuePriorityKind = &objectKind{group: "kueue.x-k8s.io", kind: "WorkloadPriorityClass", resource: "workloadpriorityclasses", versions: kueueVersions}
)

func kueueGroup(_ *Driver, obj *v1.Pod) *claim {
	label := obj.Labels[kueueGroupName]
	if label == "" {
		return nil
	}
	return &claim{key: "kueue/" + obj.Namespace + "/" + label, name: obj.Namespace + "/" + label, need: func(g *gang) (membership, error) {
		return counted(g, "label "+kueueGroupName, kueueGroupSize)
	}}
}

// localQueue is the queue that a label of Kueue means: one of that name, else the
// ClusterQueue of the LocalQueue that it names.
func (d *Driver) localQueue(g *gang, namespace, name string) string {
	if d.queues.Tree().Has(name) {
		return name
	}
	if o, _ := d.object(g, localQueueKind.in(namespace, name)); o != nil {
		if q := textOf(o.Object, "spec", "clusterQueue"); q != "" {
			return q
		}
	}
	return name
}
