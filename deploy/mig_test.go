package deploy

import (
	"os"
	"path/filepath"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/muster-gpu/muster/internal/controlplane"
)

// TestInstallMIG installs the chart with repartitioning of nodes, and lets the scheduler have a node partitioned
// for a pod, with exactly the rights and the configuration that the chart gives it. The test plays the part of
// the GPU operator.
func TestInstallMIG(t *testing.T) {
	k := newCluster(t)
	k.must("", "create", "namespace", "gpu-operator")
	k.must(`
apiVersion: v1
kind: ConfigMap
metadata: {name: default-mig-parted-config, namespace: gpu-operator}
data:
  config.yaml: |
    version: v1
    mig-configs:
      all-disabled: [{devices: all, mig-enabled: false}]
      all-1g.10gb: [{devices: all, mig-enabled: true, mig-devices: {"1g.10gb": 7}}]
`, "apply", "-f", "-")
	out, err := helm(t, "install", "muster", "helm/muster", "--create-namespace", "--namespace", namespace,
		"--kubeconfig", k.p.Kubeconfig,
		"--set-json", `config.mig=[{"selector":{"pool":"shared"},"after":"1s"}]`)
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	n := controlplane.Node("n1", 2,
		map[string]string{"pool": "shared", "nvidia.com/mig.config": "all-disabled",
			"nvidia.com/mig.config.state": "success"})
	if _, err := k.c.CoreV1().Nodes().Create(t.Context(), n, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	k.installed()
	p := controlplane.Pod("small", 0, nil)
	slice := v1.ResourceList{"nvidia.com/mig-1g.10gb": resource.MustParse("1")}
	p.Spec.Containers[0].Resources = v1.ResourceRequirements{Limits: slice, Requests: slice}
	k.create(p)
	k.wait("the node is labelled", func() bool {
		n, err := k.c.CoreV1().Nodes().Get(t.Context(), "n1", metav1.GetOptions{})
		return err == nil && n.Labels["nvidia.com/mig.config"] == "all-1g.10gb" && n.Spec.Unschedulable
	})
	k.must("", "patch", "node", "n1", "--subresource", "status", "--type", "merge", "-p",
		`{"status": {"capacity": {"nvidia.com/gpu": "0", "nvidia.com/mig-1g.10gb": "14"}, "allocatable": {"nvidia.com/gpu": "0", "nvidia.com/mig-1g.10gb": "14"}}}`)
	k.must("", "label", "node", "n1", "nvidia.com/mig.config.state=success")
	k.wait("the pod runs", func() bool { return k.runs("small") })
	used := k.used()
	for _, want := range []string{right("", "nodes", "patch"), right("", "configmaps", "watch"),
		right("", "pods", "list")} {
		if !used[want] {
			t.Errorf("the scheduler never asked to %s", want)
		}
	}
}

// installed runs the program with the configuration and the account of the chart, and returns its address.
func (k *cluster) installed() string {
	k.Helper()
	m, err := k.c.CoreV1().ConfigMaps(namespace).Get(k.Context(), "muster", metav1.GetOptions{})
	if err != nil {
		k.Fatal(err)
	}
	conf := filepath.Join(k.TempDir(), "muster.yaml")
	if err := os.WriteFile(conf, []byte(m.Data["muster.yaml"]), 0o600); err != nil {
		k.Fatal(err)
	}
	address := k.address()
	k.launch("--kubeconfig", k.kubeconfig(namespace, "muster"), "--config", conf, "--namespace", namespace, "--listen",
		address)
	return address
}
