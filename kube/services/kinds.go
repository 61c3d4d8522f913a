package services

import (
	"encoding/json"
	"maps"
	"strings"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/muster-gpu/muster/kube/gpus"
)

// kind is a kind of object that is watched.
type kind struct {
	group, name, resource string
	versions              []string // that can be read, the best first
	// read takes what is needed from an object. nil: it is only looked whether it is there.
	read func(o *object, u map[string]any)
	// scaled: its replicas can be set, by its scale subresource.
	scaled bool
	// told: its status can be written without a right to change what it runs; patched: there is a right to change it
	// that an admission policy limits.
	told, patched bool
	// owned is the field by whose last writer it is known who set the replicas.
	owned []string
}

func (k *kind) resourceIn(version string) schema.GroupVersionResource {
	return schema.GroupVersionResource{Group: k.group, Version: version, Resource: k.resource}
}

var specReplicas = []string{"spec", "replicas"}

var (
	deployments = &kind{group: "apps", name: "Deployment", resource: "deployments", versions: []string{"v1"},
		read: readSelected, scaled: true, told: true, owned: specReplicas}
	statefulSets = &kind{group: "apps", name: "StatefulSet", resource: "statefulsets", versions: []string{"v1"},
		read: readSelected, scaled: true, told: true, owned: specReplicas}
	leaderWorkerSets = &kind{group: "leaderworkerset.x-k8s.io", name: "LeaderWorkerSet",
		resource: "leaderworkersets", versions: []string{"v1"}, read: readLeaders, scaled: true,
		owned: specReplicas}
	inferenceServices = &kind{group: "serving.kserve.io", name: "InferenceService", resource: "inferenceservices",
		versions: []string{"v1beta1"}}
	rayServices = &kind{group: "ray.io", name: "RayService", resource: "rayservices", versions: []string{"v1"},
		read: readRayService, patched: true, owned: []string{"spec", "rayClusterConfig", "workerGroupSpecs"}}
	rayClusters = &kind{group: "ray.io", name: "RayCluster", resource: "rayclusters", versions: []string{"v1"},
		read: readRayCluster}
	autoscalers = &kind{group: "autoscaling", name: "HorizontalPodAutoscaler", resource: "horizontalpodautoscalers",
		versions: []string{"v2"}, read: readTarget}
	scaledObjects = &kind{group: "keda.sh", name: "ScaledObject", resource: "scaledobjects",
		versions: []string{"v1alpha1"}, read: readTarget}
	routes = &kind{group: "gateway.networking.k8s.io", name: "HTTPRoute", resource: "httproutes",
		versions: []string{"v1"}, read: readRules}

	kinds = []*kind{deployments, statefulSets, leaderWorkerSets, inferenceServices, rayServices, rayClusters,
		autoscalers, scaledObjects, routes}
)

// object is what is kept of an object.
type object struct {
	metav1.ObjectMeta
	kind     *kind
	version  string
	replicas int               // that it should have
	setBy    string            // the last writer of its replicas, as the API server has it; "": they were never stated
	selector string            // of its pods; of groups of pods, of those that answer
	labels   map[string]string // of its pods
	asks     v1.ResourceList   // what each of its pods asks for, where that is read
	target   target            // whose replicas it sets
	rules    []rule
	ray      *ray     // of a RayService or RayCluster
	part     *rayPart // of a RayService, what is scaled of it
	refusal  string   // why it cannot be scaled
}

type target struct{ group, kind, name string }

func (o *object) String() string { return o.kind.name + " " + o.Namespace + "/" + o.Name }

func (o *object) resource() schema.GroupVersionResource { return o.kind.resourceIn(o.version) }

// kept are the prefixes of the annotations that are read.
var kept = []string{"muster.sh/", "serving.kserve.io/"}

// trim keeps what is read of an object: most of its bytes are something else.
func (k *kind) trim(version string) func(any) (any, error) {
	return func(obj any) (any, error) {
		u, ok := obj.(*unstructured.Unstructured)
		if !ok {
			return obj, nil // it was trimmed before
		}
		o := &object{kind: k, version: version, ObjectMeta: metav1.ObjectMeta{Namespace: u.GetNamespace(),
			Name: u.GetName(), UID: u.GetUID(), ResourceVersion: u.GetResourceVersion(),
			CreationTimestamp: u.GetCreationTimestamp(), DeletionTimestamp: u.GetDeletionTimestamp(),
			OwnerReferences: u.GetOwnerReferences(), Annotations: map[string]string{}}}
		for key, v := range u.GetAnnotations() {
			for _, prefix := range kept {
				if strings.HasPrefix(key, prefix) {
					o.Annotations[key] = v
				}
			}
		}
		if k.scaled {
			o.replicas = 1
			if n, found, err := unstructured.NestedInt64(u.Object, "spec", "replicas"); found && err == nil {
				o.replicas = int(n)
			}
		}
		if len(k.owned) > 0 {
			o.setBy = writer(u.GetManagedFields(), k.owned)
		}
		if k.read != nil {
			k.read(o, u.Object)
		}
		return o, nil
	}
}

// writer finds the last writer of a field: Muster, if others want the same.
func writer(list []metav1.ManagedFieldsEntry, path []string) (last string) {
	for i := range list {
		e := &list[i]
		if e.FieldsV1 != nil && last != manager && owns(e.FieldsV1.Raw, path) {
			last = e.Manager
		}
	}
	return last
}

// owns reports whether a field is in a set of fields.
func owns(set json.RawMessage, path []string) bool {
	for _, name := range path {
		var fields map[string]json.RawMessage
		if json.Unmarshal(set, &fields) != nil {
			return false
		}
		var ok bool
		if set, ok = fields["f:"+name]; !ok {
			return false
		}
	}
	return true
}

// into converts a part of an object; what has another form than it should have is as if it were not there.
func into(u map[string]any, to any, path ...string) {
	if part, found, err := unstructured.NestedMap(u, path...); found && err == nil {
		if runtime.DefaultUnstructuredConverter.FromUnstructured(part, to) != nil {
			return
		}
	}
}

// readSelected reads whose pods are found by a selector.
func readSelected(o *object, u map[string]any) {
	var spec struct {
		Selector *metav1.LabelSelector `json:"selector"`
		Template struct {
			Metadata metav1.ObjectMeta `json:"metadata"`
			Spec     v1.PodSpec        `json:"spec"`
		} `json:"template"`
	}
	into(u, &spec, "spec")
	o.labels = spec.Template.Metadata.Labels
	for i := range spec.Template.Spec.Containers { // of pods the API server sets what is limited and not requested
		r := &spec.Template.Spec.Containers[i].Resources
		all := v1.ResourceList{}
		maps.Copy(all, r.Limits)
		maps.Copy(all, r.Requests)
		r.Requests = all
	}
	o.asks = gpus.Requests(&v1.Pod{Spec: spec.Template.Spec})
	if spec.Selector != nil {
		o.selector = metav1.FormatLabelSelector(spec.Selector)
	}
}

// readLeaders reads a set of groups of pods, whose first pod answers for the group.
func readLeaders(o *object, u map[string]any) {
	const set, index = "leaderworkerset.sigs.k8s.io/name", "leaderworkerset.sigs.k8s.io/worker-index"
	o.selector = metav1.FormatLabelSelector(&metav1.LabelSelector{
		MatchLabels: map[string]string{set: o.Name, index: "0"}})
	o.labels = map[string]string{set: o.Name, index: "0"}
	for _, of := range []string{"workerTemplate", "leaderTemplate"} {
		labels, _, err := unstructured.NestedStringMap(u, "spec", "leaderWorkerTemplate", of, "metadata", "labels")
		for key, v := range labels {
			if err == nil {
				o.labels[key] = v
			}
		}
	}
}

// readTarget reads whose replicas an autoscaler sets.
func readTarget(o *object, u map[string]any) {
	var ref struct {
		APIVersion string `json:"apiVersion"`
		Kind       string `json:"kind"`
		Name       string `json:"name"`
	}
	into(u, &ref, "spec", "scaleTargetRef")
	gv, err := schema.ParseGroupVersion(ref.APIVersion)
	if err != nil {
		return
	}
	o.target = target{gv.Group, ref.Kind, ref.Name}
	if ref.Kind == "" { // KEDA's default
		o.target = target{deployments.group, deployments.name, ref.Name}
	} else if gv.Group == "" {
		o.target.group = deployments.group
	}
}
