package gangs

import (
	"maps"
	"slices"

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
	kueueVersions  = []string{"v1beta2", "v1beta1"}
	localQueueKind = &Kind{Group: "kueue.x-k8s.io", Name: "LocalQueue", Resource: "localqueues",
		Versions: kueueVersions}
	kueuePriorityKind = &Kind{Group: "kueue.x-k8s.io", Name: "WorkloadPriorityClass",
		Resource: "workloadpriorityclasses", Versions: kueueVersions}
	// TopologyKind says which labels of nodes say where they are.
	TopologyKind = &Kind{Group: "kueue.x-k8s.io", Name: "Topology", Resource: "topologies",
		Versions: append(kueueVersions, "v1alpha1")}
)

// Topologies lists the labels of nodes that each Topology object names, from far to near; objects by their names.
func (all *Objects) Topologies() (list [][]string) {
	named := map[string][]string{}
	for key, o := range all.objects {
		if key.Kind != TopologyKind {
			continue
		}
		for _, level := range listOf(o.Object, "spec", "levels") {
			if label := textOf(level, "nodeLabel"); label != "" {
				named[key.Name] = append(named[key.Name], label)
			}
		}
	}
	for _, name := range slices.Sorted(maps.Keys(named)) {
		list = append(list, named[name])
	}
	return list
}

func kueueGroup(_ *Objects, obj *v1.Pod) *Claim {
	label := obj.Labels[kueueGroupName]
	if label == "" {
		return nil
	}
	return &Claim{Key: "kueue/" + obj.Namespace + "/" + label, Name: obj.Namespace + "/" + label,
		Need: func(g Gang) (Membership, error) {
			return counted(g, "label "+kueueGroupName, kueueGroupSize)
		}}
}

// localQueue is the queue that a label of Kueue means: one of that name, else the
// ClusterQueue of the LocalQueue that it names.
func (all *Objects) localQueue(g Gang, namespace, name string, is func(queue string) bool) string {
	if is(name) {
		return name
	}
	if o, _ := all.object(g, localQueueKind.In(namespace, name)); o != nil {
		if q := textOf(o.Object, "spec", "clusterQueue"); q != "" {
			return q
		}
	}
	return name
}
