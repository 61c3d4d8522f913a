package deploy

import (
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/muster-gpu/muster/internal/controlplane"
)

// rayServiceText is a RayService; its RayCluster and one of something else are rayClustersText.
const rayServiceText = `
apiVersion: ray.io/v1
kind: RayService
metadata:
  name: chat
  namespace: default
  annotations:
    muster.sh/service: |
      name: rays
      latency: 1s
      replicas: {min: 3, max: 4}
      variants: [{name: rays, profile: [{batch: 1, latency: 100ms}]}]
spec:
  serveConfigV2: |
    applications: [{deployments: [{name: model, ray_actor_options: {num_gpus: 0.5},
      num_replicas: 2 # as many as fit
    }]}]
  rayClusterConfig:
    headGroupSpec: {template: {spec: {}}}
    workerGroupSpecs: [{groupName: gpu, replicas: 1, minReplicas: 1}]
status: {activeServiceStatus: {rayClusterName: chat}}
`

const rayClustersText = `
apiVersion: ray.io/v1
kind: RayCluster
metadata:
  name: chat
  namespace: default
  ownerReferences: [{apiVersion: ray.io/v1, kind: RayService, name: chat, uid: UID}]
spec: {headGroupSpec: {template: {spec: {}}}, workerGroupSpecs: [{groupName: gpu, replicas: 1}]}
---
apiVersion: ray.io/v1
kind: RayCluster
metadata: {name: training, namespace: default}
spec: {workerGroupSpecs: [{groupName: gpu, replicas: 1}]}
`

// TestInstallServices installs the chart with services, and lets the scheduler scale one, with exactly the rights and
// the configuration that the chart gives it. Its pods are simulated and publish nothing, so it gets its least replicas.
func TestInstallServices(t *testing.T) {
	k := newCluster(t)
	k.define("gateway.networking.k8s.io", "v1", "HTTPRoute")
	k.define("serving.kserve.io", "v1beta1", "InferenceService")
	k.define("keda.sh", "v1alpha1", "ScaledObject")
	k.define("ray.io", "v1", "RayService", "RayCluster")
	out, err := helm(t, "install", "muster", "helm/muster", "--create-namespace", "--namespace", namespace,
		"--kubeconfig", k.p.Kubeconfig, "--set-json", `config.services={"period":"1s"}`)
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	if _, err := k.c.CoreV1().Nodes().Create(t.Context(), controlplane.Node("n1", 8, nil),
		metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	k.must(`
apiVersion: v1
kind: Service
metadata: {name: chat, namespace: default}
spec: {selector: {app: chat}, ports: [{port: 80}]}
---
apiVersion: gateway.networking.k8s.io/v1
kind: HTTPRoute
metadata: {name: chat, namespace: default, annotations: {muster.sh/service: chat}}
spec: {rules: [{backendRefs: [{name: chat, port: 80, weight: 1}]}]}
---
apiVersion: apps/v1
kind: Deployment
metadata:
  name: chat
  namespace: default
  annotations:
    muster.sh/service: |
      name: chat
      latency: 1s
      replicas: {min: 3, max: 4}
      variants: [{name: chat, profile: [{batch: 1, latency: 100ms}]}]
spec:
  replicas: 1
  selector: {matchLabels: {app: chat}}
  template:
    metadata: {labels: {app: chat}}
    spec:
      schedulerName: muster
      containers: [{name: main, image: none, ports: [{containerPort: 80}], resources: {limits: {nvidia.com/gpu: 1}}}]
`, "apply", "-f", "-")
	k.must(rayServiceText, "apply", "-f", "-")
	uid := k.must("", "-n", "default", "get", "rayservice", "chat", "-o", "jsonpath={.metadata.uid}")
	k.must(strings.ReplaceAll(rayClustersText, "UID", uid), "apply", "-f", "-")
	address := k.installed()
	get := func(what, path string) string {
		t.Helper()
		return k.must("", "-n", "default", "get", what, "chat", "-o", "jsonpath={"+path+"}")
	}
	k.wait("three replicas run", func() bool { return get("deployment", ".status.readyReplicas") == "3" })
	k.wait("the route says so", func() bool { return get("httproute", ".spec.rules[0].backendRefs[0].weight") == "3" })
	k.wait("the object says that nothing is known of its load", func() bool {
		return get("deployment", `.metadata.annotations.muster\.sh/service-status`) != ""
	})
	for _, what := range []string{"rayservice", "raycluster"} {
		path := map[string]string{"rayservice": ".spec.rayClusterConfig", "raycluster": ".spec"}[what]
		k.wait("the "+what+" has three workers", func() bool {
			return get(what, path+".workerGroupSpecs[0].replicas") == "3"
		})
	}
	if text := get("rayservice", ".spec.serveConfigV2"); !strings.Contains(text, "num_replicas: 6 # as many") {
		t.Errorf("serveConfigV2: %s", text)
	}
	k.published(address,
		`muster_kube_service_replicas{namespace="default",service="chat",state="wanted",variant="chat"} 3`,
		`muster_kube_service_goal_seconds{kind="latency",namespace="default",service="rays"} 1`)
	for _, forbidden := range [][]string{
		{"rayservice", "", `{"spec":{"suspend":true}}`},
		{"rayservice", "", `{"spec":{"serveConfigV2":"applications: []"}}`},
		{"rayservice", "", `{"spec":{"rayClusterConfig":{"headGroupSpec":{"template":{"spec":{"hostNetwork":true}}}}}}`},
		{"rayservice", "", `{"spec":{"rayClusterConfig":{"workerGroupSpecs":[{"groupName":"gpu","minReplicas":0}]}}}`},
		{"rayservice", "", `{"spec":{"rayClusterConfig":{"workerGroupSpecs":[]}}}`},
		{"rayservice", "", `{"metadata":{"labels":{"a":"b"}}}`},
		{"raycluster", "", `{"spec":{"workerGroupSpecs":[{"groupName":"cpu","replicas":3}]}}`},
		{"raycluster", "", `{"spec":{"enableInTreeAutoscaling":true}}`},
		{"raycluster/training", "", `{"spec":{"workerGroupSpecs":[{"groupName":"gpu","replicas":4}]}}`},
		{"deployment", "status", `{"status":{"replicas":9}}`},
		{"deployment", "status", `{"metadata":{"annotations":{"a":"b"}}}`},
		{"deployment", "", `{"spec":{"paused":true}}`}, {"httproute", "", `{"spec":{"hostnames":["other.example"]}}`},
		{"httproute", "", `{"metadata":{"annotations":{"muster.sh/service":"other"}}}`},
	} {
		kind, name, named := strings.Cut(forbidden[0], "/")
		if !named {
			name = "chat"
		}
		args := []string{"-n", "default", "patch", kind, name, "--type", "merge", "-p", forbidden[2], "--as",
			account}
		if forbidden[1] != "" {
			args = append(args, "--subresource", forbidden[1])
		}
		if out, err := k.kubectl("", args...); err == nil || !strings.Contains(out, "orbidden") {
			t.Errorf("the scheduler may change %s: %v: %s", forbidden, err, out)
		}
	}
	used := k.used()
	for _, want := range []string{right("apps", "deployments/scale", "get"),
		right("apps", "deployments/scale", "patch"),
		right("apps", "deployments/status", "patch"), right("apps", "statefulsets", "watch"),
		right("autoscaling", "horizontalpodautoscalers", "watch"), right("keda.sh", "scaledobjects", "watch"),
		right("serving.kserve.io", "inferenceservices", "watch"), right("", "services", "get"),
		right("gateway.networking.k8s.io", "httproutes", "patch"), right("ray.io", "rayservices", "patch"),
		right("ray.io", "rayclusters", "patch")} {
		if !used[want] {
			t.Errorf("the scheduler never asked to %s", want)
		}
	}
}
