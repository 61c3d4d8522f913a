package kube

import (
	"slices"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/muster-gpu/muster/kube/gangs"
)

// kindOf is a kind that makes gangs, by its resource.
func kindOf(resource string) *gangs.Kind {
	i := slices.IndexFunc(gangs.Kinds(), func(k *gangs.Kind) bool { return k.String() == resource })
	return gangs.Kinds()[i]
}

func gvr(k *gangs.Kind) schema.GroupVersionResource {
	return schema.GroupVersionResource{Group: k.Group, Version: k.Versions[0], Resource: k.Resource}
}

var (
	jobSetKind        = kindOf("jobsets.jobset.x-k8s.io")
	trainJobKind      = kindOf("trainjobs.trainer.kubeflow.org")
	lwsKind           = kindOf("leaderworkersets.leaderworkerset.x-k8s.io")
	pyTorchKind       = kindOf("pytorchjobs.kubeflow.org")
	tfKind            = kindOf("tfjobs.kubeflow.org")
	mpiKind           = kindOf("mpijobs.kubeflow.org")
	paddleKind        = kindOf("paddlejobs.kubeflow.org")
	rayClusterKind    = kindOf("rayclusters.ray.io")
	rayJobKind        = kindOf("rayjobs.ray.io")
	rayServiceKind    = kindOf("rayservices.ray.io")
	volcanoKind       = kindOf("podgroups.scheduling.volcano.sh")
	kaiKind           = kindOf("podgroups.scheduling.run.ai")
	localQueueKind    = kindOf("localqueues.kueue.x-k8s.io")
	kueuePriorityKind = kindOf("workloadpriorityclasses.kueue.x-k8s.io")
)

// What the controllers of these kinds, and people, write on pods and on what makes them.
const (
	jobSetName        = "jobset.sigs.k8s.io/jobset-name"
	jobSetReplicated  = "jobset.sigs.k8s.io/replicatedjob-name"
	jobSetReplicas    = "jobset.sigs.k8s.io/replicatedjob-replicas"
	lwsName           = "leaderworkerset.sigs.k8s.io/name"
	lwsGroup          = "leaderworkerset.sigs.k8s.io/group-index"
	lwsWorker         = "leaderworkerset.sigs.k8s.io/worker-index"
	lwsSize           = "leaderworkerset.sigs.k8s.io/size"
	kubeflowJob       = "training.kubeflow.org/job-name"
	kubeflowType      = "training.kubeflow.org/replica-type"
	kubeflowRole      = "training.kubeflow.org/job-role"
	rayCluster        = "ray.io/cluster"
	rayType           = "ray.io/node-type"
	rayGroup          = "ray.io/group"
	volcanoGroupNameK = "scheduling.k8s.io/group-name"
	kaiGroupName      = "pod-group-name"
	kaiSubGroup       = "kai.scheduler/subgroup-name"
	kaiPriority       = "priorityClassName"
	kaiPreferred      = "kai.scheduler/topology-preferred-placement"
	kaiMinMember      = "kai.scheduler/batch-min-member"
	kueueQueue        = "kueue.x-k8s.io/queue-name"
	kueueGroupName    = "kueue.x-k8s.io/pod-group-name"
	kueueGroupSize    = "kueue.x-k8s.io/pod-group-total-count"
	kueuePriority     = "kueue.x-k8s.io/priority-class"
	kueueMaxTime      = "kueue.x-k8s.io/max-exec-time-seconds"
	kueueRequired     = "kueue.x-k8s.io/podset-required-topology"
)
