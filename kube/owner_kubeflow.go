package kube

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
var (
	pyTorchKind = &objectKind{group: "kubeflow.org", kind: "PyTorchJob", resource: "pytorchjobs", versions: []string{"v1"}}
	tfKind      = &objectKind{group: "kubeflow.org", kind: "TFJob", resource: "tfjobs", versions: []string{"v1"}}
	mpiKind     = &objectKind{group: "kubeflow.org", kind: "MPIJob", resource: "mpijobs", versions: []string{"v2beta1", "v1"}}
	xgbKind     = &objectKind{group: "kubeflow.org", kind: "XGBoostJob", resource: "xgboostjobs", versions: []string{"v1"}}
	paddleKind  = &objectKind{group: "kubeflow.org", kind: "PaddleJob", resource: "paddlejobs", versions: []string{"v1"}}
	jaxKind     = &objectKind{group: "kubeflow.org", kind: "JAXJob", resource: "jaxjobs", versions: []string{"v1"}}

	kubeflowKinds = []*objectKind{pyTorchKind, tfKind, mpiKind, xgbKind, paddleKind, jaxKind}
)

const (
	kubeflowJob  = "training.kubeflow.org/job-name"
	kubeflowType = "training.kubeflow.org/replica-type"
	kubeflowRole = "training.kubeflow.org/job-role" // where there is no replica-type: launchers of the MPI operator
)

func kubeflowGang(d *Driver, obj *v1.Pod) *claim {
	name := obj.Labels[kubeflowJob]
	if name == "" {
		return nil
	}
	key := ownerKey(obj)
	if ref := owner(obj, "batch", "Job"); ref != nil { // the launcher of an MPIJob
		j := d.jobs[ref.UID]
		if j == nil {
			return nil // it waits for its Job in what would be that one's gang
		}
		key = ownerKey(j)
	}
	if !slices.Contains(kubeflowKinds, key.kind) {
		return nil
	}
	o := d.objects[key]
	late := o != nil && textOf(o.Object, "spec", "launcherCreationPolicy") == "WaitForWorkersReady"
	switch {
	case o == nil && !d.readable[key.kind]: // nothing says how many they are
		return alone(obj, key, 0)
	case o != nil && o.GetAnnotations()[LabelGang] == "false", late && replicaType(obj) == "launcher":
		return alone(obj, key, 0)
	}
	return &claim{key: "kubeflow/" + strings.ToLower(key.kind.kind) + "/" + key.namespace + "/" + key.name, name: key.namespace + "/" + key.name, object: key,
		need: func(g *gang) (membership, error) {
			o, err := d.whole(g, key)
			if err != nil {
				return membership{}, err
			}
			return kubeflowNeed(g, key, o)
		}}
}

func replicaType(obj *v1.Pod) string {
	return strings.ToLower(cmp.Or(obj.Labels[kubeflowType], obj.Labels[kubeflowRole]))
}

// kubeflowNeed counts the replicas that have yet to succeed.
func kubeflowNeed(g *gang, key objKey, o *unstructured.Unstructured) (membership, error) {
	if flagOf(o.Object, "spec", "runPolicy", "suspend") {
		return membership{}, &suspendedError{"its " + key.String()}
	}
	late := textOf(o.Object, "spec", "launcherCreationPolicy") == "WaitForWorkersReady"
	var roles []role
	for field, specs := range mapOf(o.Object, "spec") {
		if specs, ok := specs.(map[string]any); ok && strings.HasSuffix(field, "ReplicaSpecs") {
			for name, spec := range specs {
				spec, ok := spec.(map[string]any)
				if !ok || late && name == "Launcher" {
					continue
				}
				n := numberOf(spec, 1, "replicas") - numberOf(o.Object, 0, "status", "replicaStatuses", name, "succeeded")
				roles = append(roles, role{strings.ToLower(name), max(0, n)})
			}
		}
	}
	slices.SortFunc(roles, func(a, b role) int { // workers are those that can come later
		return cmp.Or(cmp.Compare(later(a.name), later(b.name)), strings.Compare(a.name, b.name))
	})
	m := roled(roles, replicaType)
	m.submit = o.GetCreationTimestamp().Time
	if least := numberOf(o.Object, 0, "spec", "elasticPolicy", "minReplicas"); least > 0 {
		for _, r := range roles {
			if r.name == "worker" && least < r.count {
				m.lower(m.size - r.count + least)
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

// mapOf reads an object inside an object; nil: there is none.
func mapOf(m map[string]any, path ...string) map[string]any {
	v, _, _ := unstructured.NestedFieldNoCopy(m, path...)
	o, _ := v.(map[string]any)
	return o
}
