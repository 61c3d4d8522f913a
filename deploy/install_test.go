package deploy

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"
	v1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/muster-gpu/muster/internal/controlplane"
	"github.com/muster-gpu/muster/internal/kubeapi"
	"github.com/muster-gpu/muster/internal/shared"
)

const namespace, account = "muster-system", "system:serviceaccount:muster-system:muster"

// cluster is a control plane on which Muster is installed.
type cluster struct {
	*testing.T
	p     *controlplane.Plane
	c     *kubeapi.Clientset
	began int64 // bytes of the audit before the test
}

// planes are the control planes of the tests, each of one test at a time. In audit the API server logs the requests of
// the scheduler's account.
var (
	planes controlplane.Planes
	audit  = sync.OnceValues(func() (args []string, err error) {
		if auditDir, err = os.MkdirTemp("", "muster-audit"); err != nil {
			return nil, err
		}
		policy := filepath.Join(auditDir, "audit.yaml")
		text := "apiVersion: audit.k8s.io/v1\nkind: Policy\nomitStages: [ResponseStarted, ResponseComplete]\nrules:\n- {level: Metadata, users: [" + fmt.Sprintf("%q", account) + "]}\n- {level: None}\n"
		return []string{"--audit-policy-file", policy, "--audit-log-path", auditLog()},
			os.WriteFile(policy, []byte(text), 0o600)
	})
	auditDir string
)

func auditLog() string { return filepath.Join(auditDir, "audit.log") }

func newCluster(t *testing.T) *cluster {
	args, err := audit()
	if err != nil {
		t.Fatal(err)
	}
	k := &cluster{T: t, p: planes.Take(t, controlplane.Options{Controllers: true, Args: args})}
	k.c = k.p.Client()
	if info, err := os.Stat(auditLog()); err == nil {
		k.began = info.Size()
	}
	return k
}

func (k *cluster) kubectl(stdin string, args ...string) (string, error) {
	c := exec.CommandContext(k.Context(), k.p.Program("kubectl"),
		append([]string{"--kubeconfig", k.p.Kubeconfig}, args...)...)
	c.Stdin = strings.NewReader(stdin)
	var out, errs bytes.Buffer // it warns of an API that has no server yet
	c.Stdout, c.Stderr = &out, &errs
	if err := c.Run(); err != nil {
		return out.String() + errs.String(), err
	}
	return out.String(), nil
}

func (k *cluster) must(stdin string, args ...string) string {
	k.Helper()
	out, err := k.kubectl(stdin, args...)
	if err != nil {
		k.Fatalf("kubectl %s: %v: %s", strings.Join(args, " "), err, out)
	}
	return out
}

func (k *cluster) wait(what string, so func() bool) {
	k.Helper()
	k.p.Wait(what, func(context.Context) bool { return so() })
}

// definition defines a custom kind: name, kind, group, version.
const definition = `
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata:
  name: %[1]s.%[3]s
  annotations: {api-approved.kubernetes.io: unapproved}
spec:
  group: %[3]s
  scope: Namespaced
  names: {kind: %[2]s, plural: %[1]s}
  versions:
  - {name: %[4]s, served: true, storage: true, schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}}
`

// define registers custom kinds.
func (k *cluster) define(group, version string, kinds ...string) {
	k.Helper()
	for _, kind := range kinds {
		name := strings.TrimSuffix(strings.ToLower(kind), "s") + "s"
		switch base, y := strings.CutSuffix(strings.ToLower(kind), "y"); {
		case y:
			name = base + "ies"
		case strings.HasSuffix(kind, "Class"):
			name = base + "es"
		}
		api := k.c.Discovery().RESTClient()
		text := fmt.Appendf(nil, definition, name, kind, group, version)
		if err := api.Post().AbsPath("/apis/apiextensions.k8s.io/v1/customresourcedefinitions").SetHeader(
			"Content-Type", "application/yaml").Body(text).Do(k.Context()).Error(); err != nil {
			k.Fatal(err)
		}
		k.wait(name+" are served", func() bool {
			return api.Get().AbsPath("/apis", group, version, name).Do(k.Context()).Error() == nil
		})
	}
}

// TestInstall installs Muster with Helm and, after removing that, with kustomize, and runs the scheduler with
// exactly the rights that it is given.
func TestInstall(t *testing.T) {
	k := newCluster(t)
	k.define("monitoring.coreos.com", "v1", "ServiceMonitor", "PrometheusRule")
	k.define("jobset.x-k8s.io", "v1alpha2", "JobSet") // kinds that make gangs, so that the right to read them is used
	k.define("trainer.kubeflow.org", "v1alpha1", "TrainJob")
	k.define("leaderworkerset.x-k8s.io", "v1", "LeaderWorkerSet")
	k.define("kubeflow.org", "v1", "PyTorchJob", "TFJob", "MPIJob", "XGBoostJob", "PaddleJob", "JAXJob")
	k.define("ray.io", "v1", "RayCluster", "RayJob", "RayService")
	k.define("sparkoperator.k8s.io", "v1beta2", "SparkApplication")
	k.define("scheduling.volcano.sh", "v1beta1", "PodGroup")
	k.define("scheduling.run.ai", "v2alpha2", "PodGroup")
	k.define("kueue.x-k8s.io", "v1beta2", "LocalQueue", "WorkloadPriorityClass", "Topology")
	k.withHelm()
	for range 2 { // the second time nothing changes
		k.must("", "apply", "--server-side", "-k", "base")
		k.must("", "apply", "--server-side", "-k", "monitoring")
	}
	k.pods()
	k.schedules()
	t.Run("marks", k.marks)
	k.rights()
}

// withHelm installs, upgrades and removes the chart; the queues stay.
func (k *cluster) withHelm() {
	k.Helper()
	run := func(args ...string) string {
		k.Helper()
		out, err := helm(k.T, append(args, "--kubeconfig", k.p.Kubeconfig, "--namespace", "gpu")...)
		if err != nil {
			k.Fatalf("helm %s: %v: %s", args[0], err, out)
		}
		return out
	}
	run("install", "muster", "helm/muster", "--create-namespace", "--set", "monitoring.enabled=true,agent.enabled=true")
	if _, err := k.c.AppsV1().DaemonSets("gpu").Get(k.Context(), "muster-agent", metav1.GetOptions{}); err != nil {
		k.Errorf("the agent is not there: %v", err)
	}
	k.must("", "get", "apiservices", "--field-selector", "metadata.name=v1.view.muster.sh", "--as",
		"system:serviceaccount:gpu:muster-agent")
	k.must(`{apiVersion: muster.sh/v1alpha1, kind: Queue, metadata: {name: kept}, spec: {guarantee: 2}}`, "apply", "-f",
		"-")
	run("upgrade", "muster", "helm/muster", "--set", "replicas=3,config.policy=fifo,agent.enabled=false")
	if _, err := k.c.AppsV1().DaemonSets("gpu").Get(k.Context(), "muster-agent", metav1.GetOptions{}); err == nil {
		k.Error("the agent is still there")
	}
	d, err := k.c.AppsV1().Deployments("gpu").Get(k.Context(), "muster", metav1.GetOptions{})
	if err != nil || *d.Spec.Replicas != 3 {
		k.Fatalf("the upgrade changed nothing: %v", err)
	}
	run("uninstall", "muster", "--wait")
	if out := k.must("", "get", "queues"); !strings.Contains(out, "kept") {
		k.Errorf("helm uninstall took the queues along: %s", out)
	}
	k.must("", "delete", "queue", "kept")
}

// pods: the namespace admits the Deployment's pods, and no pods with more privileges.
func (k *cluster) pods() {
	k.Helper()
	k.wait("the Deployment's pods are admitted", func() bool {
		list, err := k.c.CoreV1().Pods(namespace).List(k.Context(), metav1.ListOptions{})
		return err == nil && len(list.Items) == 2
	})
	loose := controlplane.Pod("loose", 0, nil)
	loose.Namespace = namespace
	if _, err := k.c.CoreV1().Pods(namespace).Create(k.Context(), loose, metav1.CreateOptions{}); err == nil ||
		!strings.Contains(err.Error(), "violates PodSecurity") {
		k.Errorf("a pod that is not restricted is admitted: %v", err)
	}
}

// kubeconfig contains the token of an account: the scheduler's is muster in namespace.
func (k *cluster) kubeconfig(namespace, account string) string {
	k.Helper()
	hour := int64(3600)
	tr, err := k.c.CoreV1().ServiceAccounts(namespace).CreateToken(k.Context(), account,
		&authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{ExpirationSeconds: &hour}},
		metav1.CreateOptions{})
	if err != nil {
		k.Fatal(err)
	}
	path := filepath.Join(k.TempDir(), "kubeconfig")
	if err := os.WriteFile(path, k.p.KubeconfigFor(tr.Status.Token), 0o600); err != nil {
		k.Fatal(err)
	}
	return path
}

// address is an unused address of this machine.
func (k *cluster) address() string {
	k.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		k.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

// route lets the API server find the scheduler: Services are not routed here, so the Service becomes a name.
func (k *cluster) route(api string) {
	k.Helper()
	_, port, err := net.SplitHostPort(api)
	if err != nil {
		k.Fatal(err)
	}
	k.must("", "-n", namespace, "delete", "service", "muster-view")
	k.must("", "-n", namespace, "create", "service", "externalname", "muster-view", "--external-name", "localhost")
	k.must("", "patch", "apiservice", "v1.view.muster.sh", "--type", "merge", "-p",
		`{"spec":{"service":{"port":`+port+`}}}`)
}

// looked: a user bound to the viewer's role may look, and no other user may.
func (k *cluster) looked() {
	k.Helper()
	ask := func() (string, error) {
		return k.kubectl("", "get", "--raw", "/apis/view.muster.sh/v1/queues", "--as", "ann")
	}
	if out, err := ask(); err == nil || !strings.Contains(out, "forbidden") {
		k.Errorf("anybody may look: %v: %s", err, out)
	}
	k.must("", "create", "clusterrolebinding", "ann-looks", "--clusterrole", "muster-viewer", "--user", "ann")
	k.wait("ann sees the queues", func() bool {
		out, err := ask()
		return err == nil && strings.Contains(out, `"research"`)
	})
}

// launch runs the program until the end of the test, and checks that it ended without an error and that no
// request was forbidden. It returns what the program says.
func (k *cluster) launch(args ...string) *shared.Text {
	k.Helper()
	c := exec.Command(programs.Path(k, "muster-kube"), args...)
	log := &shared.Text{}
	c.Stdout, c.Stderr = log, log
	c.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := c.Start(); err != nil {
		k.Fatal(err)
	}
	k.Cleanup(func() {
		_ = c.Process.Signal(syscall.SIGTERM)
		if err := c.Wait(); err != nil || k.Failed() || strings.Contains(log.String(), "forbidden") {
			k.Errorf("muster-kube: %v\n%s", err, log)
		}
	})
	return log
}

// scheduler starts the program as the Deployment does, with the rights of its account, and returns its address.
func (k *cluster) scheduler() string {
	k.Helper()
	d, err := k.c.AppsV1().Deployments(namespace).Get(k.Context(), "muster", metav1.GetOptions{})
	if err != nil {
		k.Fatal(err)
	}
	conf := filepath.Join(k.TempDir(), "muster.yaml")
	text := configuration(k.T) + "stop: {best-effort: {how: kill, grace: 1s}}\n" + traffic
	if err := os.WriteFile(conf, []byte(text), 0o600); err != nil {
		k.Fatal(err)
	}
	address, api := k.address(), k.address()
	k.route(api)
	args := []string{"--kubeconfig", k.kubeconfig(namespace, "muster")}
	for _, a := range d.Spec.Template.Spec.Containers[0].Args {
		args = append(args, strings.NewReplacer("/etc/muster/muster.yaml", conf, "=:9095", "="+address, "=:8443",
			"="+api, "$(POD_NAMESPACE)", namespace).Replace(a))
	}
	k.launch(args...)
	return address
}

func (k *cluster) create(pods ...*v1.Pod) {
	k.Helper()
	for _, p := range pods {
		if _, err := k.c.CoreV1().Pods(p.Namespace).Create(k.Context(), p, metav1.CreateOptions{}); err != nil {
			k.Fatal(err)
		}
	}
}

// runs reports whether a pod is bound and not being evicted.
func (k *cluster) runs(name string) bool {
	k.Helper()
	p, err := k.c.CoreV1().Pods("default").Get(k.Context(), name, metav1.GetOptions{})
	return err == nil && p.Spec.NodeName != "" && p.DeletionTimestamp == nil && p.Status.Phase == v1.PodRunning
}

// schedules lets the scheduler do everything for which it needs rights.
func (k *cluster) schedules() {
	k.Helper()
	address := k.scheduler()
	k.must(`{apiVersion: muster.sh/v1alpha1, kind: Queue, metadata: {name: research}, spec: {guarantee: 4, namespaces: [default]}}`, "apply", "-f", "-")
	for _, name := range []string{"n1", "n2"} {
		if _, err := k.c.CoreV1().Nodes().Create(k.Context(), controlplane.Node(name, 4, nil),
			metav1.CreateOptions{}); err != nil {
			k.Fatal(err)
		}
	}
	low := controlplane.Gang("low", 2, 4, map[string]string{"muster.sh/queue": "research"})
	for _, p := range low { // their tier is that of their PriorityClass
		p.Spec.PriorityClassName = "muster-best-effort"
	}
	k.create(low...)
	k.wait("a gang runs", func() bool { return k.runs("low-0") && k.runs("low-1") })
	k.wait("its queue says so", func() bool {
		out, err := k.kubectl("", "get", "queue", "research", "-o",
			"jsonpath={.status.used} {.status.borrowed} {.status.running}")
		return err == nil && out == "8 4 1"
	})
	k.create(controlplane.Pod("high", 2, map[string]string{"muster.sh/queue": "research"}),
		controlplane.Pod("large", 9, nil))
	k.wait("it leaves for a higher tier", func() bool { return k.runs("high") })
	k.wait("a pod that fits nowhere says so", func() bool {
		p, err := k.c.CoreV1().Pods("default").Get(k.Context(), "large", metav1.GetOptions{})
		return err == nil && slices.ContainsFunc(p.Status.Conditions, func(c v1.PodCondition) bool {
			return c.Type == v1.PodScheduled && c.Reason == v1.PodReasonUnschedulable
		})
	})
	high, err := k.c.CoreV1().Pods("default").Get(k.Context(), "high", metav1.GetOptions{})
	if err != nil {
		k.Fatal(err)
	}
	if err := k.c.CoreV1().Nodes().Delete(k.Context(), high.Spec.NodeName, metav1.DeleteOptions{}); err != nil {
		k.Fatal(err)
	}
	k.wait("what was on a node that is gone is gone, too", func() bool {
		_, err := k.c.CoreV1().Pods("default").Get(k.Context(), "high", metav1.GetOptions{})
		return err != nil
	})
	k.volumes()
	k.devices()
	k.looked()
	k.published(address, "muster_kube_leading 1",
		`muster_kube_queue_gpus{kind="guarantee",parent="",queue="research"} 4`)
}

// published checks that the scheduler publishes metrics.
func (k *cluster) published(address string, metrics ...string) {
	k.Helper()
	resp, err := http.Get("http://" + address + "/metrics")
	if err != nil {
		k.Fatal(err)
	}
	defer resp.Body.Close()
	text, _ := io.ReadAll(resp.Body)
	for _, want := range metrics {
		if !strings.Contains(string(text), want) {
			k.Errorf("/metrics lacks %s", want)
		}
	}
}

// volumes lets the scheduler bind a claim to a volume, and have one provisioned.
func (k *cluster) volumes() {
	k.Helper()
	k.must(`
{apiVersion: storage.k8s.io/v1, kind: StorageClass, metadata: {name: local}, provisioner: kubernetes.io/no-provisioner, volumeBindingMode: WaitForFirstConsumer}
---
{apiVersion: storage.k8s.io/v1, kind: StorageClass, metadata: {name: made}, provisioner: example.com/nobody, volumeBindingMode: WaitForFirstConsumer}
---
{apiVersion: v1, kind: PersistentVolume, metadata: {name: v1}, spec: {storageClassName: local, capacity: {storage: 5Gi}, accessModes: [ReadWriteOnce], hostPath: {path: /data}}}
---
{apiVersion: v1, kind: PersistentVolumeClaim, metadata: {name: local}, spec: {storageClassName: local, accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}}}
---
{apiVersion: v1, kind: PersistentVolumeClaim, metadata: {name: made}, spec: {storageClassName: made, accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}}}
`, "apply", "-n", "default", "-f", "-")
	for _, name := range []string{"local", "made"} {
		p := controlplane.Pod("with-"+name, 0, map[string]string{"muster.sh/queue": "research"})
		p.Spec.Volumes = []v1.Volume{
			{Name: "data", VolumeSource: v1.VolumeSource{
				PersistentVolumeClaim: &v1.PersistentVolumeClaimVolumeSource{ClaimName: name}}}}
		k.create(p)
	}
	k.wait("a pod runs with a volume that there is", func() bool { return k.runs("with-local") })
	k.wait("a volume is asked for where the pod goes", func() bool {
		c, err := k.c.CoreV1().PersistentVolumeClaims("default").Get(k.Context(), "made", metav1.GetOptions{})
		return err == nil && c.Annotations["volume.kubernetes.io/selected-node"] != ""
	})
}

// devices lets the scheduler allocate a device to a claim. There is no driver: the test publishes the slice.
func (k *cluster) devices() {
	k.Helper()
	k.must(`
{apiVersion: resource.k8s.io/v1, kind: DeviceClass, metadata: {name: gpu.nvidia.com}, spec: {selectors: [{cel: {expression: "device.driver == 'gpu.nvidia.com'"}}]}}
---
{apiVersion: v1, kind: Node, metadata: {name: n3, labels: {kubernetes.io/hostname: n3}}, status: {allocatable: {cpu: 8, memory: 8Gi, pods: 10}, capacity: {cpu: 8, memory: 8Gi, pods: 10}}}
---
{apiVersion: resource.k8s.io/v1, kind: ResourceSlice, metadata: {name: n3}, spec: {driver: gpu.nvidia.com, nodeName: n3, pool: {name: n3, generation: 1, resourceSliceCount: 1}, devices: [{name: gpu-0}]}}
---
{apiVersion: resource.k8s.io/v1, kind: ResourceClaimTemplate, metadata: {name: gpu, namespace: default}, spec: {spec: {devices: {requests: [{name: gpu, exactly: {deviceClassName: gpu.nvidia.com}}]}}}}
`, "create", "-f", "-")
	p := controlplane.Pod("with-device", 0, map[string]string{"muster.sh/queue": "research"})
	template := "gpu"
	p.Spec.ResourceClaims = []v1.PodResourceClaim{{Name: "gpu", ResourceClaimTemplateName: &template}}
	k.create(p)
	k.wait("a pod runs with a device of a driver", func() bool { return k.runs("with-device") })
}

// used are the requests of the scheduler's account in this test: "group/resource/subresource verb".
func (k *cluster) used() map[string]bool {
	k.Helper()
	f, err := os.Open(auditLog())
	if err != nil {
		k.Fatal(err)
	}
	defer f.Close()
	if _, err := f.Seek(k.began, io.SeekStart); err != nil {
		k.Fatal(err)
	}
	list := map[string]bool{}
	lines := bufio.NewScanner(f)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		var e struct {
			Verb      string
			ObjectRef *struct{ Resource, Subresource, APIGroup, Namespace, Name string }
		}
		if err := json.Unmarshal(lines.Bytes(), &e); err == nil && e.ObjectRef != nil {
			list[right(e.ObjectRef.APIGroup, strings.TrimSuffix(e.ObjectRef.Resource+"/"+e.ObjectRef.Subresource, "/"),
				e.Verb)] = true
		}
	}
	return list
}

func right(group, resource, verb string) string {
	return strings.TrimPrefix(group+"/"+resource, "/") + " " + verb
}

// rare rights are used only in situations that take long, or that a test cannot arrange.
var rare = map[string]string{
	"events patch":                       "a repeated event of the same pod increments its count",
	"pods get":                           "after a binding without an answer, to see whether it was made",
	"resource.k8s.io/resourceclaims get": "after a conflict, or to take devices back",
	"resource.k8s.io/resourceclaims/binding update": "checked when the status of a claim is written; there is no request of its own",
	"scheduling.k8s.io/podgroups list":              "only where Kubernetes serves them: TestPodGroup of package kube",
	"scheduling.k8s.io/podgroups watch":             "only where Kubernetes serves them",
	"discovery.k8s.io/endpointslices create":        "where a Service without a name leads to the scheduler; here it has one: package kube/front",
	"discovery.k8s.io/endpointslices get":           "the same",
	"discovery.k8s.io/endpointslices update":        "the same",
	"discovery.k8s.io/endpointslices delete":        "the same, when the address is of another family",
	"policy/poddisruptionbudgets list":              "where moves are worth it and allowed: TestMoves of package kube",
	"authentication.k8s.io/tokenreviews create":     "a client that calls the scheduler's port directly presents a token",
}

// rights: each right of the scheduler is used, and it requested no other.
func (k *cluster) rights() {
	k.Helper()
	granted := map[string]bool{}
	grant := func(rules []rbacv1.PolicyRule) {
		for _, r := range rules {
			for _, g := range r.APIGroups {
				for _, res := range r.Resources {
					for _, v := range r.Verbs {
						granted[right(g, res, v)] = true
					}
				}
			}
		}
	}
	cr, err := k.c.RbacV1().ClusterRoles().Get(k.Context(), "muster", metav1.GetOptions{})
	if err != nil {
		k.Fatal(err)
	}
	grant(cr.Rules)
	role, err := k.c.RbacV1().Roles(namespace).Get(k.Context(), "muster", metav1.GetOptions{})
	if err != nil {
		k.Fatal(err)
	}
	grant(role.Rules)
	for _, name := range []string{"muster-api", "system:auth-delegator"} {
		cr, err := k.c.RbacV1().ClusterRoles().Get(k.Context(), name, metav1.GetOptions{})
		if err != nil {
			k.Fatal(err)
		}
		grant(cr.Rules)
	}
	if role, err = k.c.RbacV1().Roles(namespace).Get(k.Context(), "muster-api", metav1.GetOptions{}); err != nil {
		k.Fatal(err)
	}
	grant(role.Rules)
	granted["configmaps get"] = true // of kube-system's role extension-apiserver-authentication-reader
	used := k.used()
	for _, r := range slices.Sorted(maps.Keys(granted)) {
		what, listed := strings.CutSuffix(r, " list")
		if listed && used[what+" watch"] { // older API servers cannot begin a watch with a list
			continue
		}
		if !used[r] && rare[r] == "" {
			k.Errorf("the scheduler may %q and never does", r)
		}
	}
	for _, r := range slices.Sorted(maps.Keys(used)) {
		if !granted[r] {
			k.Errorf("the scheduler asked for %q, which it may not", r)
		}
	}
}
