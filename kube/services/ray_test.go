package services

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"github.com/muster-gpu/muster/kube/patch"
	"github.com/muster-gpu/muster/service"
)

// serveText is a serveConfigV2 with a comment and several ways to write.
const serveText = `
applications: # all of them
- name: app
  import_path: app:build
  deployments:
  - {name: router, num_replicas: 1}
  - name: model
    num_replicas: 2   # two on each worker
    ray_actor_options: {num_gpus: 0.5, num_replicas: 2}
`

// TestServeWith: num_replicas is changed where it is written, and nothing else; what is not understood is refused.
func TestServeWith(t *testing.T) {
	one, bounds := 1, service.Replicas{Min: 1, Max: 6}
	groups := []workers{{Name: "gpu", Replicas: &one}}
	p, refusal := (&ray{groups: groups, serve: serveText}).part("model", bounds)
	if refusal != "" {
		t.Fatal(refusal)
	}
	text, err := p.serveWith(3)
	if want := strings.Replace(serveText, "num_replicas: 2   #", "num_replicas: 6   #", 1); text != want || err != nil {
		t.Errorf("%v: %s", err, text)
	}
	three, hosts := 3, 2
	for _, c := range []struct {
		name    string
		ray     ray
		variant string
		refusal string
	}{
		{"Ray scales", ray{groups: groups, serve: serveText, scaled: true}, "model", "enableInTreeAutoscaling"},
		{"Serve scales", ray{groups: groups, serve: strings.Replace(serveText, "num_replicas: 2 ",
			"autoscaling_config: {max_replicas: 4}", 1)}, "model", "Ray Serve's autoscaler"},
		{"auto", ray{groups: groups, serve: strings.Replace(serveText, "num_replicas: 2 ", "num_replicas: auto", 1)},
			"model", "Ray Serve's autoscaler"},
		{"no number", ray{groups: groups, serve: strings.Replace(serveText, "num_replicas: 2 ", "", 1)}, "model",
			"has no num_replicas"},
		{"no deployment", ray{groups: groups, serve: "applications: []"}, "model", "lists 0 deployments"},
		{"several", ray{groups: groups, serve: serveText}, "chat", "lists 2 deployments, of which 0"},
		{"no YAML", ray{groups: groups, serve: "{"}, "model", "not YAML"},
		{"several groups", ray{groups: append(groups, workers{Name: "b"}), serve: serveText}, "model",
			"it has 2 worker groups"},
		{"no multiple", ray{groups: []workers{{Name: "gpu", Replicas: &three, Hosts: &hosts}}, serve: serveText},
			"model", "no multiple of the 3 workers"},
		{"bounds", ray{groups: []workers{{Name: "gpu", Replicas: &one, Max: &three}}, serve: serveText}, "model",
			"1 to 6 are not possible: the worker group gpu has from 1 to 3"},
		{"suspended", ray{groups: []workers{{Name: "gpu", Replicas: &one, Suspend: true}}, serve: serveText}, "model",
			"is suspended"},
	} {
		if _, got := c.ray.part(c.variant, bounds); !strings.Contains(got, c.refusal) || got == "" {
			t.Errorf("%s: %q", c.name, got)
		}
	}
	alias := "n: &n 2\napplications: [{deployments: [{name: model, num_replicas: *n}]}]"
	if p, refusal = (&ray{groups: groups, serve: alias}).part("model", bounds); refusal == "" {
		if text, err := p.serveWith(3); err == nil {
			t.Errorf("an alias: %s", text)
		}
	}
}

// playRay makes what KubeRay would: a RayCluster of each RayService, as it is then; and its workers, of which as many
// are ready as Serve has replicas.
func (b *bench) playRay(ctx context.Context, there map[string][]v1.Pod) error {
	api := func(k *kind) *unstructured.UnstructuredList {
		list, err := b.dyn.Resource(k.resourceIn("v1")).Namespace("default").List(ctx, metav1.ListOptions{})
		if err != nil {
			return &unstructured.UnstructuredList{}
		}
		return list
	}
	read := func(k *kind, u *unstructured.Unstructured) *object {
		o, _ := k.trim("v1")(u)
		return o.(*object)
	}
	clusters := map[string]*object{}
	list := api(rayClusters)
	for i := range list.Items {
		clusters[list.Items[i].GetName()] = read(rayClusters, &list.Items[i])
	}
	list = api(rayServices)
	for i := range list.Items {
		u := &list.Items[i]
		o := read(rayServices, u)
		name := u.GetName() + "-raycluster-x"
		c := clusters[name]
		if c == nil {
			spec, _, _ := unstructured.NestedMap(u.Object, "spec", "rayClusterConfig")
			if _, err := b.dyn.Resource(rayClusters.resourceIn("v1")).Namespace("default").Create(ctx,
				&unstructured.Unstructured{Object: map[string]any{"apiVersion": "ray.io/v1", "kind": "RayCluster",
					"metadata": map[string]any{"name": name}, "spec": spec}}, metav1.CreateOptions{}); err != nil {
				return err
			}
			if _, err := b.dyn.Resource(rayServices.resourceIn("v1")).Namespace("default").Patch(ctx, u.GetName(),
				types.MergePatchType, patch.JSON(map[string]any{"status": map[string]any{
					"activeServiceStatus": map[string]any{"rayClusterName": name}}}), metav1.PatchOptions{},
				"status"); err != nil {
				return err
			}
			continue
		}
		p, refusal := o.ray.part("model", service.Replicas{Min: 1, Max: 1})
		if refusal != "" {
			continue
		}
		g := &c.ray.groups[0]
		of := v1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"name": name,
			"app": u.GetName(), "ray.io/cluster": name, "ray.io/group": g.Name, "ray.io/node-type": "worker"}},
			Spec: v1.PodSpec{Containers: []v1.Container{{Name: "main", Image: "none"}}}}
		if err := b.fill(ctx, there, "default", name, value(g.Replicas, 0), of); err != nil {
			return err
		}
		pods, err := b.c.CoreV1().Pods("default").List(ctx, metav1.ListOptions{LabelSelector: "name=" + name})
		for i := 0; err == nil && i < len(pods.Items); i++ {
			ready := v1.ConditionFalse
			if i*2 < p.each*value(o.ray.groups[0].Replicas, 0) {
				ready = v1.ConditionTrue
			}
			if condition(&pods.Items[i], v1.PodReady) != ready {
				err = b.become(ctx, "default", pods.Items[i].Name,
					v1.PodStatus{Conditions: []v1.PodCondition{{Type: v1.PodReady, Status: ready}}})
			}
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// Of a RayService the workers are scaled, in its RayCluster, too, and num_replicas of what runs on them; workers leave
// once Serve has left them. What Ray's autoscaler scales is left alone, and people are told.
func rayServed(b *bench) {
	spec := func(scaled bool) map[string]any {
		return map[string]any{"serveConfigV2": serveText, "rayClusterConfig": map[string]any{
			"enableInTreeAutoscaling": scaled, "headGroupSpec": map[string]any{"template": map[string]any{}},
			"workerGroupSpecs": []any{map[string]any{"groupName": "gpu", "replicas": int64(1), "minReplicas": int64(1),
				"maxReplicas": int64(6)}}}}
	}
	b.create(rayServices, "rays", map[string]any{Annotation: chat("model")[Annotation]}, spec(false))
	b.create(rayServices, "theirs", map[string]any{Annotation: chat("theirs")[Annotation]}, spec(true))
	is := func(k *kind, name string) *object {
		b.Helper()
		u, err := b.dyn.Resource(k.resourceIn("v1")).Namespace("default").Get(b.ctx, name, metav1.GetOptions{})
		if err != nil {
			return &object{ray: &ray{groups: []workers{{}}}}
		}
		o, _ := k.trim("v1")(u)
		return o.(*object)
	}
	so := func(service, cluster int) bool {
		o, c := is(rayServices, "rays"), is(rayClusters, "rays-raycluster-x")
		return value(o.ray.groups[0].Replicas, 0) == service && value(c.ray.groups[0].Replicas, 0) == cluster &&
			strings.Contains(o.ray.serve, fmt.Sprintf("num_replicas: %d   # two on each worker", 2*service))
	}
	b.load("rays", 35)
	b.load("theirs", 35)
	b.run()
	b.wait("four or five replicas serve 35 requests/s", func() bool { return so(4, 4) || so(5, 5) })
	b.event("rays", "ServiceScaled", "requests/s")
	b.wait("its status is there", func() bool {
		return strings.Contains(is(rayServices, "rays").Annotations[AnnotationStatus], scaling)
	})
	b.load("rays", 2)
	b.wait("one is enough", func() bool { return so(1, 1) })
	u, err := b.dyn.Resource(rayClusters.resourceIn("v1")).Namespace("default").Get(b.ctx, "rays-raycluster-x",
		metav1.GetOptions{})
	if err != nil {
		b.Fatal(err)
	}
	groups, _, _ := unstructured.NestedSlice(u.Object, "spec", "workerGroupSpecs")
	gone, _, _ := unstructured.NestedStringSlice(groups[0].(map[string]any), "scaleStrategy", "workersToDelete")
	if len(gone) == 0 {
		b.Error("no workers are named that are to leave")
	}
	b.event("theirs", "ServiceRefused", "RayService default/theirs: Ray's autoscaler sets its workers")
	if n := value(is(rayServices, "theirs").ray.groups[0].Replicas, 0); n != 1 {
		b.Errorf("what Ray scales has %d workers", n)
	}
	time.Sleep(time.Second) // the API server records whole seconds
	if _, err := b.dyn.Resource(rayServices.resourceIn("v1")).Namespace("default").Patch(b.ctx, "rays",
		types.JSONPatchType, patch.JSON(replace("/spec/rayClusterConfig/workerGroupSpecs", 0,
			&is(rayServices, "rays").ray.groups[0], 2)), metav1.PatchOptions{FieldManager: "kubectl"}); err != nil {
		b.Fatal(err)
	}
	b.event("rays", "ServiceHeld", "kubectl set RayService default/rays to 2 replicas")
}
