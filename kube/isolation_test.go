package kube

import (
	"fmt"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/muster-gpu/muster/ask"
	"github.com/muster-gpu/muster/internal/controlplane"
	"github.com/muster-gpu/muster/kube/gang"
	"github.com/muster-gpu/muster/kube/gpus"
)

// gpuNode is a node with so many of some resources, whose labels say the rest.
func gpuNode(name, product string, memory int, how string, of int, have map[v1.ResourceName]int64) *v1.Node {
	n := controlplane.Node(name, 0,
		map[string]string{"nvidia.com/gpu.product": product, "nvidia.com/gpu.memory": fmt.Sprint(memory),
			"nvidia.com/gpu.replicas": fmt.Sprint(of)})
	if how != "" {
		n.Labels["nvidia.com/gpu.sharing-strategy"] = how
	}
	for r, k := range have {
		n.Status.Allocatable[r] = *resource.NewQuantity(k, resource.DecimalSI)
	}
	n.Status.Capacity = n.Status.Allocatable
	n.Status.Conditions = []v1.NodeCondition{{Type: v1.NodeReady, Status: v1.ConditionTrue}}
	return n
}

const a100 = "NVIDIA-A100-SXM4-80GB"

// mixed are nodes that share GPUs in each way.
func mixed() []*v1.Node {
	one := func(r v1.ResourceName, k int64) map[v1.ResourceName]int64 { return map[v1.ResourceName]int64{r: k} }
	return []*v1.Node{
		gpuNode("turns", a100+"-SHARED", 81920, "time-slicing", 4, one("nvidia.com/gpu.shared", 4)),
		gpuNode("mps", a100+"-SHARED", 81920, "mps", 4, one("nvidia.com/gpu.shared", 4)),
		gpuNode("tenths", a100+"-SHARED", 81920, "mps", 10, one("nvidia.com/gpu.shared", 10)),
		gpuNode("old", "Tesla-P100-SHARED", 16384, "mps", 2, one("nvidia.com/gpu.shared", 2)),
		gpuNode("slices", a100, 81920, "none", 1,
			map[v1.ResourceName]int64{"nvidia.com/mig-1g.10gb": 2, "nvidia.com/mig-3g.40gb": 1,
				"nvidia.com/mig-2g.20gb.shared": 4}),
		gpuNode("small", "Tesla-T4", 15360, "none", 1, one("nvidia.com/gpu", 2)),
		gpuNode("whole", a100, 81920, "none", 1, one("nvidia.com/gpu", 2)),
		gpuNode("unnamed", "Tesla-V100-SXM2-16GB-SHARED", 16384, "time-slicing", 4, one("nvidia.com/gpu", 4)),
	}
}

// wanting is a pod that asks for one of a resource, and says KEY=VALUE of what it wants.
func wanting(name string, r v1.ResourceName, says ...string) *v1.Pod {
	p := controlplane.Pod(name, 0, nil)
	p.UID, p.Annotations = types.UID(name), map[string]string{}
	if r != "" {
		q := *resource.NewQuantity(1, resource.DecimalSI)
		p.Spec.Containers[0].Resources.Limits, p.Spec.Containers[0].Resources.Requests[r] = v1.ResourceList{r: q}, q
	}
	for _, s := range says {
		key, value, _ := strings.Cut(s, "=")
		p.Annotations[Prefix+key] = value
	}
	return p
}

// What a pod wants besides the resource that it names chooses among the nodes that have it,
// as cluster.Ways.Choose has it for a share on a machine of that kind; one that finds nothing that
// is enough is told what nodes have instead, and what there is.
func TestIsolation(t *testing.T) {
	const shared, gpu, third, first, ofSlice = "nvidia.com/gpu.shared", "nvidia.com/gpu", "nvidia.com/mig-3g.40gb",
		"nvidia.com/mig-1g.10gb", "nvidia.com/mig-2g.20gb.shared"
	for _, c := range []struct {
		asks v1.ResourceName
		says string
		on   string // nodes that suit it
		why  string // part of what it is told, if there are none
	}{
		{shared, "", "turns mps tenths old", ""},
		{shared, "isolation=none", "turns mps tenths old", ""},
		{shared, "isolation=memory", "mps tenths", ""}, // before Volta MPS parts nothing
		{shared, "latency-sensitive=true", "mps tenths old", ""},
		{shared, "latency-sensitive=false", "turns mps tenths old", ""},
		{shared, "isolation=full", "", "it shares GPUs by mps, which is not enough for isolation full"},
		{shared, "gpu-memory=10GiB", "turns mps", ""},
		{shared, "gpu-memory=8GiB", "turns mps tenths old", ""},
		{shared, "gpu-memory=21GiB", "", "a replica there is 20480 MiB of a GPU, not 21504"},
		{shared, "isolation=memory gpu-memory=10GiB", "mps", ""},
		{shared, "gpu-cores=20%", "turns mps old", ""},
		{shared, "gpu-cores=60%", "", "a replica there is 25 % of a GPU's compute, not 60 %"},
		{gpu, "isolation=full", "small whole", ""},
		{gpu, "isolation=memory", "small whole", ""},
		{gpu, "gpu-memory=40Gi", "whole", ""},
		{gpu, "gpu-memory=4Gi", "small whole unnamed", ""},
		{gpu, "gpu-memory=100Gi", "", "its GPUs have 81920 MiB, not 102400"},
		{third, "isolation=full", "slices", ""},
		{third, "gpu-memory=30GiB gpu-cores=40%", "slices", ""},
		{third, "gpu-cores=50%", "", "3g.40gb is 3 of 7 of a GPU's compute"},
		{first, "gpu-memory=30GiB", "", "1g.10gb has 9728 MiB, not 30720"},
		// which nodes have it, is counted elsewhere
		{ofSlice, "isolation=none", "turns mps tenths old slices small whole unnamed", ""},
		{ofSlice, "isolation=memory", "",
			"replicas of MIG slices are by time-slicing, which is not enough for isolation memory"},
		{"", "isolation=memory", "", "it wants isolation memory and asks for no GPU"},
	} {
		t.Run(strings.TrimSpace(string(c.asks)+" "+c.says), func(t *testing.T) {
			d, _ := still(t, 0)
			for _, n := range mixed() {
				d.nodeChanged(n)
			}
			d.podChanged(wanting("p", c.asks, strings.Fields(c.says)...))
			steps(t, d)
			p := d.pods["p"]
			open := *p
			open.SettleOn(gpus.Kind{}, d.fit) // of several sizes of replicas it was given one
			suits := d.reader.NodesFor([]*gang.Pod{&open}).Names
			if got := strings.Join(ordered(d, suits), " "); c.on != "" && got != c.on {
				t.Errorf("it may be on %q, not %q; %s", got, c.on, p.Gang.Refused)
			}
			if c.on != "" && c.asks != ofSlice &&
				(p.Assumed == "" || !strings.Contains(" "+c.on+" ", " "+p.Assumed+" ")) {
				t.Errorf("it is on %q: %s", p.Assumed, p.Gang.Refused)
			}
			if c.on == "" && (p.Assumed != "" || !strings.Contains(p.Gang.Refused, c.why) ||
				!strings.Contains(p.Gang.Refused,
					"there are nvidia.com/gpu by time-slicing, 1 of 4 of a GPU with 4096 MiB (nodes: 1); "+
						"nvidia.com/gpu with 15360 MiB (nodes: 1); nvidia.com/gpu with 81920 MiB (nodes: 1); nvidia.com/gpu.shared by mps, 1 of 10 of a GPU with 8192 MiB (nodes: 1)")) {
				t.Errorf("it is on %q: %s", p.Assumed, p.Gang.Refused)
			}
		})
	}
}

// ordered lists nodes as mixed does.
func ordered(d *Driver, names []string) (list []string) {
	for _, n := range mixed() {
		for _, name := range names {
			if n.Name == name {
				list = append(list, name)
			}
		}
	}
	return list
}

// What makes no sense is said, with where it stands.
func TestWantErrors(t *testing.T) {
	for says, want := range map[string]string{
		"isolation=half":          `annotation muster.sh/isolation of pod p: "half" is not an isolation: none, memory, full`,
		"gpu-memory=much":         `annotation muster.sh/gpu-memory of pod p: "much" is not an amount of memory`,
		"gpu-memory=0":            `annotation muster.sh/gpu-memory of pod p: it has to be above 0`,
		"gpu-cores=30":            `annotation muster.sh/gpu-cores of pod p: "30" is not a part of a GPU's compute such as 30%`,
		"gpu-cores=130%":          `"130%" is not a part`,
		"latency-sensitive=maybe": `annotation muster.sh/latency-sensitive of pod p: "maybe" is neither true nor false`,
	} {
		d, _ := still(t, 1)
		d.podChanged(wanting("p", "nvidia.com/gpu", says))
		steps(t, d)
		if p := d.pods["p"]; p.Assumed != "" || !strings.Contains(p.Gang.Refused, want) {
			t.Errorf("%s: on %q: %q", says, p.Assumed, p.Gang.Refused)
		}
	}
}

// A pod that wants memory goes where that is enforced if there is room, else where it is only
// declared, and back to the first while it waits.
func TestMemoryEnforced(t *testing.T) {
	d, _ := still(t, 0)
	for _, n := range mixed() {
		d.nodeChanged(n)
	}
	for i := range 4 {
		d.podChanged(wanting(fmt.Sprintf("filler-%d", i), "nvidia.com/gpu.shared", "gpu-memory=20GiB"))
		steps(t, d)
		if on := d.pods[types.UID(fmt.Sprintf("filler-%d", i))].Assumed; on != "mps" {
			t.Fatalf("pod %d is on %s", i, on)
		}
	}
	d.podChanged(wanting("next", "nvidia.com/gpu.shared", "gpu-memory=20GiB"))
	d.podChanged(wanting("strict", "nvidia.com/gpu.shared", "gpu-memory=20GiB", "isolation=memory"))
	steps(t, d)
	if on := d.pods["next"].Assumed; on != "turns" {
		t.Errorf("the one that takes what is only declared is on %q", on)
	}
	if p := d.pods["strict"]; p.Assumed != "" || p.Gang.Phase != gang.Waiting {
		t.Errorf("the one that does not is on %q: %s", p.Assumed, p.Gang.Refused)
	}
	if got, want := d.reader.SharingOf(d.pods["next"].Gang),
		"a replica by time-slicing, 1 of 4 of a GPU (20480 MiB): declared only: neither memory nor compute is enforced, for 20480 MiB of GPU memory"; got != want {
		t.Errorf("it gets %q", got)
	}
	if got, want := d.reader.SharingOf(d.pods["filler-0"].Gang),
		"a replica by mps, 1 of 4 of a GPU (20480 MiB): enforced: memory by MPS; compute by MPS, for 20480 MiB of GPU memory"; got != want {
		t.Errorf("it gets %q", got)
	}
	if got, want := d.reader.SharingOf(d.pods["strict"].Gang),
		"what is enough for isolation memory, 20480 MiB of GPU memory on 1 of 8 nodes"; got != want {
		t.Errorf("it gets %q", got)
	}
}

// testIsolation: with a real API server, pods with replicas go where they are kept apart as
// they want, one that no node is enough for says so until one is, and muster why says what
// they got; another scheduler says the same.
func testIsolation(b *bench) {
	for _, n := range mixed()[:1] {
		if _, err := b.c.CoreV1().Nodes().Create(b.ctx, n, metav1.CreateOptions{}); err != nil {
			b.Fatal(err)
		}
	}
	_, stop := b.schedule()
	pod := func(name string, says ...string) *v1.Pod {
		p := wanting(name, "nvidia.com/gpu.shared", says...)
		p.UID = ""
		return p
	}
	b.create(pod("any"))
	b.runs("any")
	gang := controlplane.Gang("kept", 2, 0, nil)
	for i := range gang {
		p := pod(gang[i].Name, "isolation=memory", "gpu-memory=16GiB")
		p.Labels, p.Annotations[AnnotationSize] = gang[i].Labels, "2"
		b.create(p)
	}
	b.says("kept-0", "none of 1 nodes suits it (1: it shares GPUs by time-slicing, which is not enough for isolation memory); there are nvidia.com/gpu.shared by time-slicing, 1 of 4 of a GPU with 20480 MiB (nodes: 1)")
	for _, n := range mixed()[1:3] {
		if _, err := b.c.CoreV1().Nodes().Create(b.ctx, n, metav1.CreateOptions{}); err != nil {
			b.Fatal(err)
		}
	}
	b.runs("kept-0", "kept-1")
	if on := b.on("kept", v1.LabelHostname); on["mps"] != 2 {
		b.Errorf("the gang is on %v", on)
	}
	b.create(pod("apart", "isolation=full"))
	b.says("apart", "which is not enough for isolation full")
	stop()
	d, stop := b.schedule()
	defer stop()
	b.wait("another scheduler says how they share", func() bool {
		jobs, err := d.View().Jobs(b.ctx, ask.Filter{})
		if err != nil {
			return false
		}
		found := map[string]string{}
		for i := range jobs {
			if w, err := (d.View()).Why(b.ctx, jobs[i].ID); err == nil {
				found[w.Job.Submission.Name] = w.Job.Sharing
			}
		}
		return found["default/any"] == "a replica by time-slicing, 1 of 4 of a GPU (20480 MiB): declared only: neither memory nor compute is enforced" &&
			found["default/kept"] == "a replica by mps, 1 of 4 of a GPU (20480 MiB): enforced: memory by MPS; compute by MPS, for isolation memory, 16384 MiB of GPU memory"
	})
}
