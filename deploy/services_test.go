package deploy

import (
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/muster-gpu/muster/internal/controlplane"
)

// TestInstallServices installs the chart with services, and lets the scheduler scale one, with exactly the rights and
// the configuration that the chart gives it. Its pods are simulated and publish nothing, so it gets its least replicas.
func TestInstallServices(t *testing.T) {
	k := newCluster(t)
	k.define("gateway.networking.k8s.io", "v1", "HTTPRoute")
	k.define("serving.kserve.io", "v1beta1", "InferenceService")
	k.define("keda.sh", "v1alpha1", "ScaledObject")
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
	k.installed()
	get := func(what, path string) string {
		t.Helper()
		return k.must("", "-n", "default", "get", what, "chat", "-o", "jsonpath={"+path+"}")
	}
	k.wait("three replicas run", func() bool { return get("deployment", ".status.readyReplicas") == "3" })
	k.wait("the route says so", func() bool { return get("httproute", ".spec.rules[0].backendRefs[0].weight") == "3" })
	k.wait("the object says that nothing is known of its load", func() bool {
		return get("deployment", `.metadata.annotations.muster\.sh/service-status`) != ""
	})
	for _, forbidden := range [][]string{
		{"deployment", "status", `{"status":{"replicas":9}}`},
		{"deployment", "status", `{"metadata":{"annotations":{"a":"b"}}}`},
		{"deployment", "", `{"spec":{"paused":true}}`}, {"httproute", "", `{"spec":{"hostnames":["other.example"]}}`},
		{"httproute", "", `{"metadata":{"annotations":{"muster.sh/service":"other"}}}`},
	} {
		args := []string{"-n", "default", "patch", forbidden[0], "chat", "--type", "merge", "-p", forbidden[2], "--as",
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
		right("gateway.networking.k8s.io", "httproutes", "patch")} {
		if !used[want] {
			t.Errorf("the scheduler never asked to %s", want)
		}
	}
}
