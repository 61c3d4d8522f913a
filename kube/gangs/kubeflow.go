package gangs

import (
	"cmp"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// The jobs of Kubeflow's training operator (kubeflow.org/v1, v1.8) and of its MPI
// operator (kubeflow.org/v2beta1): all replicas of a job are a gang. It starts
// with schedulingPolicy.minAvailable, or what an elastic PyTorchJob needs.
var kubeflowKinds = []*Kind{kubeflowKind("PyTorchJob", "v1"), kubeflowKind("TFJob", "v1"),
	kubeflowKind("MPIJob", "v2beta1", "v1"),
	kubeflowKind("XGBoostJob", "v1"), kubeflowKind("PaddleJob", "v1"), kubeflowKind("JAXJob", "v1")}

func kubeflowKind(name string, versions ...string) *Kind {
	return &Kind{Group: "kubeflow.org", Name: name, Resource: strings.ToLower(name) + "s", Versions: versions,
		queue: []string{"spec", "runPolicy", "schedulingPolicy", "queue"},
		class: []string{"spec", "runPolicy", "schedulingPolicy", "priorityClass"}}
}

const (
	kubeflowJob  = "training.kubeflow.org/job-name"
	kubeflowType = "training.kubeflow.org/replica-type"
	kubeflowRole = "training.kubeflow.org/job-role" // where there is no replica-type: launchers of the MPI operator
)

func kubeflowGang(all *Objects, obj *v1.Pod) *Claim {
	name := obj.Labels[kubeflowJob]
	if name == "" {
		return nil
	}
	key := OwnerKey(obj)
	if ref := Owner(obj, "batch", "Job"); ref != nil { // the launcher of an MPIJob
		j := all.jobs[ref.UID]
		if j == nil {
			return nil // it waits for its Job in what would be that one's gang
		}
		key = OwnerKey(j)
	}
	if !slices.Contains(kubeflowKinds, key.Kind) {
		return nil
	}
	o := all.objects[key]
	late := o != nil && textOf(o.Object, "spec", "launcherCreationPolicy") == "WaitForWorkersReady"
	switch {
	case o == nil && !all.readable[key.Kind]: // nothing says how many they are
		return Alone(obj, key, 0)
	case o != nil && o.GetAnnotations()[Label] == "false", late && replicaType(obj) == "launcher":
		return Alone(obj, key, 0)
	}
	return &Claim{Key: "kubeflow/" + strings.ToLower(key.Kind.Name) + "/" + key.Namespace + "/" + key.Name,
		Name: key.Namespace + "/" + key.Name, Object: key,
		Need: func(g Gang) (Membership, error) {
			o, err := all.whole(g, key)
			if err != nil {
				return Membership{}, err
			}
			return kubeflowNeed(g, key, o)
		}}
}

func replicaType(obj *v1.Pod) string {
	return strings.ToLower(cmp.Or(obj.Labels[kubeflowType], obj.Labels[kubeflowRole]))
}

// kubeflowNeed counts the replicas that have yet to succeed.
func kubeflowNeed(g Gang, key Key, o *unstructured.Unstructured) (Membership, error) {
	if flagOf(o.Object, "spec", "runPolicy", "suspend") {
		return Membership{}, &suspendedError{"its " + key.String()}
	}
	late := textOf(o.Object, "spec", "launcherCreationPolicy") == "WaitForWorkersReady"
	var roles []Role
	for field, specs := range mapOf(o.Object, "spec") {
		if specs, ok := specs.(map[string]any); ok && strings.HasSuffix(field, "ReplicaSpecs") {
			for name, spec := range specs {
				spec, ok := spec.(map[string]any)
				if !ok || late && name == "Launcher" {
					continue
				}
				n := numberOf(spec, 1, "replicas") - numberOf(o.Object, 0, "status", "replicaStatuses", name,
					"succeeded")
				roles = append(roles, Role{strings.ToLower(name), max(0, n)})
			}
		}
	}
	slices.SortFunc(roles, func(a, b Role) int { // workers are those that can come later
		return cmp.Or(cmp.Compare(later(a.Name), later(b.Name)), strings.Compare(a.Name, b.Name))
	})
	m := roled(roles, replicaType)
	m.Submit = o.GetCreationTimestamp().Time
	if least := numberOf(o.Object, 0, "spec", "elasticPolicy", "minReplicas"); least > 0 {
		for _, r := range roles {
			if r.Name == "worker" && least < r.Count {
				m.lower(m.Size - r.Count + least)
			}
		}
	}
	if least := numberOf(o.Object, 0, "spec", "runPolicy", "schedulingPolicy", "minAvailable"); least > 0 {
		m.lower(least)
	}
	return m, minAvailable(g, &m, notNil(o.GetAnnotations()))
}

func later(role string) int {
	switch role {
	case "worker":
		return 1
	case "evaluator":
		return 2
	}
	return 0
}
