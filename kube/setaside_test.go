package kube

import (
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/engine"
	"github.com/muster-gpu/muster/internal/controlplane"
	"github.com/muster-gpu/muster/internal/shared"
	"github.com/muster-gpu/muster/kube/amount"
	"github.com/muster-gpu/muster/kube/gang"
	"github.com/muster-gpu/muster/kube/gangs"
	"github.com/muster-gpu/muster/kube/loans"
	"github.com/muster-gpu/muster/kube/mig"
	"github.com/muster-gpu/muster/kube/patch"
	"github.com/muster-gpu/muster/kube/plans"
	"github.com/muster-gpu/muster/kube/power"
	"github.com/muster-gpu/muster/kube/terms"
)

// setAside counts what a driver sets aside.
type setAside struct {
	noObserver
	count map[string]int
}

func (s *setAside) SetAside(what string) { s.count[what]++ }

// world is a driver that has begun, without a control plane, and when it has its clock.
type world struct {
	*Driver
	now   time.Time
	aside *setAside
}

// newWorld begins a driver with these nodes and pods, as a scheduler that was just started. UIDs are the pods' names.
func newWorld(t testing.TB, change func(*Options), nodes []*v1.Node, pods ...*v1.Pod) *world {
	t.Helper()
	w := &world{now: time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC), aside: &setAside{count: map[string]int{}}}
	opt := testOptions(nil, slog.New(slog.NewTextHandler(io.Discard, nil)))
	opt.Tell, opt.Observe, opt.Now = nil, w.aside, func() time.Time { return w.now }
	if change != nil {
		change(&opt)
	}
	w.Driver = New(opt)
	for _, n := range nodes {
		n.Status.Conditions = []v1.NodeCondition{{Type: v1.NodeReady, Status: v1.ConditionTrue}}
		w.guarded("node", func() { w.nodeChanged(n) })
	}
	for _, p := range pods {
		w.add(p)
	}
	if err := w.begin(w.found(), "start"); err != nil {
		t.Fatal(err)
	}
	steps(t, w.Driver)
	return w
}

func (w *world) add(p *v1.Pod) {
	p.UID, p.CreationTimestamp = types.UID(p.Name), metav1.NewTime(w.now.Add(-time.Minute))
	w.guarded("pod", func() { w.podChanged(p) })
}

// at says where a pod is or is being bound; "": nowhere.
func (w *world) at(name string) string {
	p := w.pods[types.UID(name)]
	if p == nil {
		return ""
	}
	return p.At()
}

// boundWith is a pod that is found bound, with a plan on it.
func boundWith(p *v1.Pod, node, plan string) *v1.Pod {
	p.Spec.NodeName = node
	p.Annotations[AnnotationPlan] = plan
	return p
}

func someNodes(count, gpus int) (list []*v1.Node) {
	for i := range count {
		list = append(list, controlplane.Node(fmt.Sprintf("n%d", i), gpus, nil))
	}
	return list
}

// One pod that is found bound with a forged plan neither keeps the scheduler from starting nor holds what it does not
// have: other pods get the rest of the cluster.
func TestForgedPlan(t *testing.T) {
	for name, plan := range map[string]string{
		"absurd CPU":     `{"tasks":[{"count":1,"request":{"gpus":1,"cpu":4611686018427387904}}],"on":[{"node":"n0","tasks":1}]}`,
		"negative share": `{"tasks":[{"count":1,"request":{"gpus":1,"share":-5}}],"on":[{"node":"n0","tasks":1}]}`,
		"large share":    `{"tasks":[{"count":1,"request":{"gpus":1,"share":90000}}],"on":[{"node":"n0","tasks":1}]}`,
		"slices":         `{"tasks":[{"count":1,"request":{"gpus":8,"profile":"7g.80gb"}}],"on":[{"node":"n0","tasks":1}]}`,
		"memory":         `{"tasks":[{"count":1,"request":{"gpus":1,"memory":-1}}],"on":[{"node":"n0","tasks":1}]}`,
		"many tasks":     `{"tasks":[{"count":1048576,"request":{"gpus":0}},{"count":1048576,"request":{}}],"on":[{"node":"n0","tasks":1048576},{"node":"n0","set":1,"tasks":1048576}]}`,
		"all GPUs":       `{"tasks":[{"count":3,"request":{"gpus":8,"cpu":1000}}],"on":[{"node":"n0","tasks":1},{"node":"n1","tasks":1},{"node":"n2","tasks":1}]}`,
		"its node's":     `{"tasks":[{"count":1,"request":{"gpus":8,"cpu":1000}}],"on":[{"node":"n0","tasks":1}]}`,
		"other nodes":    `{"tasks":[{"count":2,"request":{"gpus":8,"cpu":1000}}],"on":[{"node":"n1","tasks":1},{"node":"n2","tasks":1}]}`,
		"no such nodes":  `{"tasks":[{"count":2,"request":{"gpus":1,"cpu":1000}}],"on":[{"node":"n0","tasks":1},{"node":"ghost","tasks":1}]}`,
		"garbage":        `{"tasks":[{"count":-1}],"on":[{"node":"n0","set":-1,"tasks":-1}]}`,
		"no JSON":        `\x00{`,
		"before":         `{"tasks":[{"count":1,"request":{"gpus":1,"cpu":1000}}],"on":[{"node":"n0","tasks":1}],"before":{"attained":-9223372036854775808,"submit":-9223372036854775808,"served":[{"time":-1}]}}`,
		"the gang runs":  `{"tasks":[{"count":1,"request":{"gpus":1,"cpu":1000}}],"on":[{"node":"n0","tasks":1}],"alone":true,"repair":9223372036854775807}`,
	} {
		t.Run(name, func(t *testing.T) {
			forged := boundWith(
				controlplane.Pod("forged", 1,
					map[string]string{"!" + AnnotationSpeed: "NaN", "!" + AnnotationRunTime: "-1h"}), "n0", plan)
			w := newWorld(t, func(o *Options) { o.Seal = []byte("key") }, someNodes(3, 8), forged,
				controlplane.Pod("a", 8, nil), controlplane.Pod("b", 8, nil), controlplane.Pod("c", 7, nil),
				controlplane.Pod("d", 1, nil))
			if got := []string{w.at("a"), w.at("b"), w.at("c"), w.at("d")}; slices.Contains(got[:3], "") ||
				got[2] != "n0" || got[3] != "" {
				t.Errorf("a, b, c and d are at %q: all but the forged pod's GPU are free, and no more", got)
			}
			if len(w.nodes.Order()) != 3 {
				t.Errorf("nodes: %q", w.nodes.Order())
			}
			if w.aside.count["handler"] > 0 {
				t.Errorf("a handler failed")
			}
		})
	}
}

// A pod whose CPU was resized since it was bound, on a node that lost a GPU, is found again after a restart.
func TestRestartResized(t *testing.T) {
	var pods []*v1.Pod
	for i := range 4 {
		p := boundWith(controlplane.Pod(fmt.Sprint("p", i), 1, nil), "n0",
			`{"tasks":[{"count":1,"request":{"gpus":1,"cpu":1000}}],"on":[{"node":"n0","tasks":1}]}`)
		p.Status.Phase = v1.PodRunning
		pods = append(pods, p)
	}
	pods[2].Spec.Containers[0].Resources.Requests[v1.ResourceCPU] = resource.MustParse("3")
	n := controlplane.Node("n0", 4, nil)
	n.Status.Allocatable = n.Status.Allocatable.DeepCopy()
	n.Status.Allocatable["nvidia.com/gpu"] = resource.MustParse("3")
	w := newWorld(t, nil, []*v1.Node{n}, pods...)
	var cpu cluster.Milli
	for _, b := range w.eng.Beliefs() {
		for _, a := range b.Allocs {
			cpu += a.CPU
		}
	}
	if n := len(w.eng.Beliefs()); n != 4 || cpu != 6000 || len(w.aside.count) > 0 {
		t.Errorf("%d jobs with %d milli-cores, %v set aside; 4 with 6000 are bound", n, cpu, w.aside.count)
	}
}

// A plan says what is missing of a gang only if a scheduler wrote it to this very pod.
func TestSealedPlan(t *testing.T) {
	key := plans.Key("key")
	const plan = `{"tasks":[{"count":2,"request":{"gpus":4,"cpu":1000}}],"on":[{"node":"n0","tasks":1},{"node":"n1","tasks":1}]}`
	start := func(seal string) *world {
		gang := controlplane.Gang("g", 2, 4, nil)
		boundWith(gang[0], "n0", plan).Annotations[AnnotationPlan+terms.SealSuffix] = seal
		return newWorld(t, func(o *Options) { o.Seal = key }, someNodes(2, 8), gang...)
	}
	if w := start(key.Seal("g-0", AnnotationPlan, plan)); w.at("g-1") != "n1" {
		t.Errorf("the second pod of a gang whose plan is sealed is at %q, and its place is on n1", w.at("g-1"))
	}
	for name, seal := range map[string]string{"none": "", "another pod's": key.Seal("g-1", AnnotationPlan, plan),
		"another text's": key.Seal("g-0", AnnotationPlan, "{}"),
		"another key's":  plans.Key("x").Seal("g-0", AnnotationPlan, plan)} {
		w := start(seal)
		g := w.gangs["gang/default/g"]
		if g == nil || g.Phase != gang.Running || len(g.Places) != 1 || len(w.eng.Beliefs()) != 2 {
			t.Errorf("seal %s: the gang is to have what its pod holds, and the other pod its turn: %+v", name, g)
		}
	}
}

// More kinds of node than the engine tells apart keep no other from running: of a tenant that asks for ever
// other sets of nodes, and of nodes that are all different.
func TestManyKinds(t *testing.T) {
	affine := func(name, key string) *v1.Pod {
		p := controlplane.Pod(name, 1, nil)
		p.Spec.Affinity = &v1.Affinity{
			NodeAffinity: &v1.NodeAffinity{RequiredDuringSchedulingIgnoredDuringExecution: &v1.NodeSelector{
				NodeSelectorTerms: []v1.NodeSelectorTerm{
					{MatchExpressions: []v1.NodeSelectorRequirement{{Key: key, Operator: v1.NodeSelectorOpExists}}}}}}}
		return p
	}
	nodes := someNodes(600, 1)
	for i, n := range nodes {
		for bit := range 10 {
			if i>>bit&1 == 1 {
				n.Labels[fmt.Sprint("bit", bit)] = ""
			}
		}
	}
	var pods []*v1.Pod
	for i := range 200 { // from the ninth on there are too many kinds, and from the 62nd on too many sets
		if i < 10 {
			pods = append(pods, affine(fmt.Sprint("p", i), fmt.Sprint("bit", i)))
			continue
		}
		nodes[i].Labels[fmt.Sprint("one", i)] = ""
		pods = append(pods, affine(fmt.Sprint("p", i), fmt.Sprint("one", i)))
	}
	w := newWorld(t, nil, nodes, pods...)
	taken := map[string]bool{}
	for i, p := range pods {
		at := w.at(p.Name)
		n := w.nodes.Node(at)
		must := p.Spec.Affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution
		key := must.NodeSelectorTerms[0].MatchExpressions[0].Key
		if n == nil {
			if i >= 10 && taken[nodes[i].Name] {
				continue // an earlier one has it
			}
			t.Fatalf("pod %s waits: %s", p.Name, w.gangs["pod/"+p.Name].Refused)
		}
		if _, ok := n.Obj.Labels[key]; !ok {
			t.Errorf("pod %s is on %s, which does not have %s", p.Name, at, key)
		}
		taken[at] = true
	}
	if len(w.aside.count) > 0 {
		t.Errorf("set aside: %v", w.aside.count)
	}

	nodes = someNodes(300, 1)
	for i, n := range nodes {
		n.Labels["nvidia.com/gpu.product"] = fmt.Sprint("Own-", i)
	}
	w = newWorld(t, nil, nodes, controlplane.Pod("a", 1, nil))
	if w.at("a") == "" || w.aside.count["node"] != 300-255 {
		t.Errorf("a is at %q; %d nodes are set aside", w.at("a"), w.aside.count["node"])
	}
}

// However large or small the quantities are that pods and nodes state, nothing counts as less than it is.
func TestAbsurdQuantities(t *testing.T) {
	for _, text := range []string{"9223372036854775807", "1e30", "8E", "9999999E", "-1", "-9223372036854775807",
		"1e-30", "0"} {
		q := resource.MustParse(text)
		large := q.CmpInt64(1<<40) > 0
		for name, v := range map[string]int64{"count": amount.Count(&q), "bytes": amount.Bytes(&q),
			"milli": amount.Milli(&q), "MiB": amount.MiB(&q, true)} {
			if v < 0 || large && v <= 1<<40 || q.Sign() <= 0 && v != 0 {
				t.Errorf("%s as %s: %d", text, name, v)
			}
		}
	}
	large := controlplane.Pod("large", 1, nil)
	large.Spec.Containers[0].Resources.Requests[v1.ResourceCPU] = resource.MustParse("9223372036854775807")
	other := controlplane.Pod("other", 1, nil)
	other.Spec.Containers[0].Resources.Requests["example.com/thing"] = resource.MustParse("1e30")
	w := newWorld(t, nil, someNodes(1, 8), large, other, controlplane.Pod("a", 1, nil))
	if w.at("large") != "" || w.at("other") != "" || w.at("a") == "" {
		t.Errorf("large is at %q, other at %q, a at %q", w.at("large"), w.at("other"), w.at("a"))
	}
}

// Whatever tenants and kubelets write into pods and nodes, the scheduler goes on, and an ordinary pod is scheduled.
func TestGarbage(t *testing.T) {
	for seed := range shared.Soak(50, 300) {
		g := &garbage{rand.New(rand.NewPCG(7, uint64(seed)))}
		nodes := someNodes(6, 8)
		for _, n := range nodes[1:] {
			g.spoilNode(n)
		}
		var pods []*v1.Pod
		for i := range 12 {
			p := controlplane.Pod(fmt.Sprint("p", i), g.IntN(4), nil)
			g.spoilPod(p)
			pods = append(pods, p)
		}
		w := newWorld(t, func(o *Options) {
			if seed%2 == 0 {
				o.Seal = []byte("key")
			}
		}, nodes, pods...)
		for range 12 { // they change while the scheduler runs
			w.now = w.now.Add(time.Second)
			p := pods[g.IntN(len(pods))].DeepCopy()
			g.spoilPod(p)
			w.guarded("pod", func() { w.podChanged(p) })
			n := nodes[1+g.IntN(len(nodes)-1)].DeepCopy()
			g.spoilNode(n)
			n.Status.Conditions = nodes[0].Status.Conditions
			w.guarded("node", func() { w.nodeChanged(n) })
			steps(t, w.Driver)
			if err := w.begin(w.found2(), "again"); err != nil {
				t.Fatalf("seed %d: %v", seed, err)
			}
			steps(t, w.Driver)
		}
		for _, p := range pods {
			w.podGone(p)
		}
		ok := controlplane.Pod("ok", 8, nil)
		w.add(ok)
		for range 20 {
			w.now = w.now.Add(10 * time.Second)
			w.nodes.World.Changed()
			w.settleDown(t)
		}
		if w.at("ok") == "" {
			p := w.pods["ok"]
			t.Fatalf("seed %d: an ordinary pod waits: %s; %q, of %s", seed, w.gangs["pod/ok"].Refused, p.Signature,
				string(patch.JSON(p.Obj.Spec)))
		}
		if w.aside.count["handler"] > 0 {
			t.Fatalf("seed %d: a handler failed", seed)
		}
	}
}

// found2 is what the engine knows, as renew has it.
func (w *world) found2() *engine.Snapshot {
	snap := w.eng.Snapshot()
	snap.Now = w.clock()
	return &snap
}

// garbage makes up what a hostile tenant or kubelet could write.
type garbage struct{ *rand.Rand }

func (g *garbage) text() string {
	list := []string{"", "0", "-1", "1", "2", "3", "9223372036854775807", "-9223372036854775808", "1e400", "NaN", "Inf",
		"true", "null", "{}", "[]", `"`, "\x00\xff", "n1", "ghost",
		"loss:0.01:3", "24h", "-3s", "2026-01-01T00:00:00Z", "nvlink", "critical", "30%", "8GiB",
		strings.Repeat("x", 5000)}
	return list[g.IntN(len(list))]
}

func (g *garbage) quantity() resource.Quantity {
	list := []string{"0", "1", "2", "-1", "8", "64", "65", "1000", "9223372036854775807", "8E", "1e30", "-1e30", "1m",
		"1e-9"}
	return resource.MustParse(list[g.IntN(len(list))])
}

func (g *garbage) plan() string {
	p := plans.Plan{Repair: g.IntN(5) - 1, Alone: g.IntN(2) == 0}
	for range 1 + g.IntN(3) {
		r := cluster.Request{GPUs: g.IntN(5) - 1, CPU: 1000 * int64(g.IntN(3)), Share: int64(g.IntN(3)) * 500}
		if g.IntN(6) == 0 {
			r.Profile, r.CPU, r.RAM = "1g.10gb", int64(g.Uint64()), int64(g.Uint64())
		}
		p.Tasks = append(p.Tasks, cluster.TaskSet{Count: 1 + g.IntN(3), Request: r})
		p.On = append(p.On, plans.On{Node: fmt.Sprint("n", g.IntN(8)), Set: len(p.Tasks) - 1,
			Tasks: p.Tasks[len(p.Tasks)-1].Count})
	}
	if g.IntN(3) == 0 {
		p.Before = &plans.Before{Submit: cluster.Time(g.Uint64()), Work: time.Duration(g.Uint64())}
	}
	text, err := json.Marshal(p)
	if err != nil || g.IntN(10) == 0 {
		return g.text()
	}
	return string(text)
}

func (g *garbage) spoilPod(p *v1.Pod) {
	for _, key := range append(slices.Clone(terms.Own), AnnotationEvery, AnnotationSum, AnnotationBefore) {
		if g.IntN(8) == 0 {
			p.Annotations[key] = g.text()
		}
		if g.IntN(12) == 0 {
			p.Labels[key] = g.text()
		}
	}
	if g.IntN(2) == 0 {
		p.Annotations[AnnotationPlan] = g.plan()
	}
	r := p.Spec.Containers[0].Resources.Requests
	for _, name := range []v1.ResourceName{v1.ResourceCPU, v1.ResourceMemory, "nvidia.com/gpu",
		"nvidia.com/mig-1g.10gb", "nvidia.com/gpu.shared", "example.com/thing", "nvidia.com/mig-bad"} {
		if g.IntN(8) == 0 {
			r[name] = g.quantity()
		}
	}
	if p.Spec.NodeName == "" && g.IntN(3) == 0 {
		p.Spec.NodeName = fmt.Sprint("n", 1+g.IntN(7))
	}
	if g.IntN(6) == 0 {
		p.Status.Phase = []v1.PodPhase{v1.PodRunning, v1.PodSucceeded, v1.PodFailed}[g.IntN(3)]
	}
	if g.IntN(4) == 0 {
		p.Spec.NodeSelector = map[string]string{"nvidia.com/gpu.product": g.text()}
	}
	if g.IntN(4) == 0 {
		p.Spec.TopologySpreadConstraints = []v1.TopologySpreadConstraint{
			{MaxSkew: int32(g.IntN(3)), TopologyKey: "kubernetes.io/hostname", WhenUnsatisfiable: v1.DoNotSchedule,
				LabelSelector: &metav1.LabelSelector{
					MatchExpressions: []metav1.LabelSelectorRequirement{
						{Key: g.text(), Operator: "In", Values: []string{g.text()}}}}}}
	}
	if g.IntN(4) == 0 {
		p.OwnerReferences = []metav1.OwnerReference{
			{APIVersion: []string{"batch/v1", "jobset.x-k8s.io/v1alpha2", "v1"}[g.IntN(3)],
				Kind: []string{"Job", "JobSet", "Node"}[g.IntN(3)], Name: "x", UID: "x", Controller: new(bool)}}
		*p.OwnerReferences[0].Controller = true
	}
	if g.IntN(5) == 0 {
		p.Spec.Containers[0].Ports = []v1.ContainerPort{{HostPort: int32(g.IntN(3)) - 1, HostIP: g.text()}}
	}
}

func (g *garbage) spoilNode(n *v1.Node) {
	for _, key := range []string{"nvidia.com/gpu.product", "nvidia.com/gpu.memory", "nvidia.com/gpu.replicas",
		"nvidia.com/gpu.sharing-strategy", "nvidia.com/gpu.clique", mig.Label, power.Label, loans.Label,
		"nvidia.com/mig.config", "nvidia.com/mig.config.state"} {
		if g.IntN(4) == 0 {
			n.Labels[key] = g.text()
		}
	}
	if g.IntN(4) == 0 {
		n.Labels["nvidia.com/gpu.product"] = []string{"NVIDIA-A100-SXM4-80GB", "NVIDIA-A100-SXM4-80GB-MIG-1g.10gb",
			"NVIDIA-H100-80GB-HBM3", "Tesla-T4"}[g.IntN(4)]
	}
	n.Status.Capacity, n.Status.Allocatable = n.Status.Capacity.DeepCopy(), n.Status.Allocatable.DeepCopy()
	for _, list := range []v1.ResourceList{n.Status.Capacity, n.Status.Allocatable} {
		for _, name := range []v1.ResourceName{v1.ResourceCPU, v1.ResourceMemory, v1.ResourcePods, "nvidia.com/gpu",
			"nvidia.com/mig-1g.10gb", "nvidia.com/mig-3g.40gb", "nvidia.com/gpu.shared", "example.com/thing",
			"nvidia.com/mig-bad"} {
			if g.IntN(6) == 0 {
				list[name] = g.quantity()
			}
		}
	}
	if g.IntN(6) == 0 {
		n.Spec.Taints = []v1.Taint{{Key: g.text(), Effect: v1.TaintEffectNoSchedule}}
	}
}

// someNode is one that is ready.
func someNode(name string) *v1.Node {
	n := controlplane.Node(name, 8, nil)
	n.Status.Conditions = []v1.NodeCondition{{Type: v1.NodeReady, Status: v1.ConditionTrue}}
	return n
}

// Whatever stands in the objects that make gangs of pods, the scheduler goes on.
func TestGarbageObjects(t *testing.T) {
	yes := true
	for seed := range shared.Soak(50, 400) {
		g := &garbage{rand.New(rand.NewPCG(11, uint64(seed)))}
		w := newWorld(t, nil, someNodes(4, 8))
		for _, k := range gangs.Kinds() {
			w.kindReadable(k, true)
		}
		put := func() {
			for _, k := range gangs.Kinds() {
				for _, space := range []string{"default", ""} {
					o := &unstructured.Unstructured{
						Object: map[string]any{"apiVersion": k.Group + "/" + k.Versions[0], "kind": k.Name,
							"metadata": map[string]any{"name": "x", "namespace": space}, "spec": g.tree(4),
							"status": g.tree(3), "value": g.tree(0)}}
					w.guarded("object", func() { w.objectChanged(k.In(space, "x"), o) })
				}
			}
			j := &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "x", UID: "x",
				Annotations: map[string]string{LabelGang: "true", AnnotationMin: g.text()}}}
			size, done := int32(g.Uint64()), int32(g.Uint64())
			j.Spec.Parallelism, j.Spec.Completions, j.Status.Succeeded = &size, &done, int32(g.Uint64())
			w.guarded("job", func() { w.jobChanged(j) })
		}
		put()
		for i, k := range append(slices.Clone(gangs.Kinds()),
			&gangs.Kind{Group: "batch", Name: "Job", Versions: []string{"v1"}}) {
			for n := range 2 {
				p := controlplane.Pod(fmt.Sprintf("p%d-%d", i, n), g.IntN(3), nil)
				p.OwnerReferences = []metav1.OwnerReference{
					{APIVersion: k.Group + "/" + k.Versions[0], Kind: k.Name, Name: "x", UID: "x", Controller: &yes}}
				for _, key := range []string{"scheduling.k8s.io/group-name", "pod-group-name",
					"kueue.x-k8s.io/pod-group-name", kueueQueue, kueuePriority, "kueue.x-k8s.io/pod-group-total-count",
					"jobset.sigs.k8s.io/jobset-name",
					"jobset.sigs.k8s.io/replicatedjob-name", "leaderworkerset.sigs.k8s.io/name",
					"leaderworkerset.sigs.k8s.io/group-index", "leaderworkerset.sigs.k8s.io/size",
					"leaderworkerset.sigs.k8s.io/worker-index", "training.kubeflow.org/job-name",
					"training.kubeflow.org/replica-type", "ray.io/cluster", "ray.io/group", "ray.io/node-type",
					"kai.scheduler/subgroup-name", kaiMinMember} {
					if value := g.text(); g.IntN(3) == 0 {
						p.Labels[key], p.Annotations[key] = value, value
					} else if g.IntN(3) == 0 {
						p.Labels[key], p.Annotations[key] = "x", "x"
					}
				}
				w.add(p)
			}
		}
		for range 3 {
			w.settleDown(t)
			put()
		}
		w.settleDown(t)
		if w.aside.count["handler"] > 0 {
			t.Fatalf("seed %d: a handler failed", seed)
		}
	}
}

// tree is what could stand under a field, with the names of fields that are read.
func (g *garbage) tree(depth int) any {
	names := []string{"spec", "suspend", "replicas", "name", "minMember", "template", "startupPolicy",
		"schedulingPolicy", "runPolicy", "replicatedJobs", "minReplicas", "workerGroupSpecs", "topology", "succeeded",
		"subGroups", "metadata",
		"startupPolicyOrder", "schedulingConstraints", "replicaStatuses", "priorityClassName", "priority",
		"parallelism", "numOfHosts", "minCount", "minAvailable", "maxReplicas", "key", "groupName", "gang",
		"elasticPolicy", "dependsOn",
		"completions", "clusterQueue", "pytorchReplicaSpecs", "Master", "Worker", "leaderWorkerTemplate", "size",
		"headGroupSpec", "parent", "queue", "trainer", "numNodes", "rayClusterSpec"}
	switch k := g.IntN(10); {
	case depth > 0 && k < 6:
		m := map[string]any{}
		for range 1 + g.IntN(12) {
			m[names[g.IntN(len(names))]] = g.tree(depth - 1)
		}
		return m
	case depth > 0 && k < 8:
		var list []any
		for range g.IntN(4) {
			list = append(list, g.tree(depth-1))
		}
		return list
	case k < 9:
		return []any{int64(g.Uint64()), int64(-1), int64(0), int64(3), float64(1e300), float64(-2.5), true, nil,
			int64(1) << 40}[g.IntN(9)]
	}
	return g.text()
}
