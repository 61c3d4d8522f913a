package gangs

import (
	v1 "k8s.io/api/core/v1"

	"github.com/muster-gpu/muster/cluster"
)

// A SparkApplication (sparkoperator.k8s.io/v1beta2, Kubeflow's Spark operator 2) is a driver, which asks for its
// executors once it runs, some at a time: so each pod starts by itself. Executors are owned by the driver's pod; it is
// the application that says on which terms all of them run.
var sparkKind = &Kind{Group: "sparkoperator.k8s.io", Name: "SparkApplication", Resource: "sparkapplications",
	Versions: []string{"v1beta2"}, queue: []string{"spec", "batchSchedulerOptions", "queue"},
	class: []string{"spec", "batchSchedulerOptions", "priorityClassName"}}

// sparkApp is the name of the application on the pods of both roles.
const sparkApp = "sparkoperator.k8s.io/app-name"

func sparkOne(all *Objects, obj *v1.Pod) *Claim {
	name := obj.Labels[sparkApp]
	if name == "" {
		return nil
	}
	return Alone(obj, sparkKind.In(obj.Namespace, name), cluster.Training)
}
