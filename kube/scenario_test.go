package kube

import (
	"fmt"
	"maps"
	"os"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/internal/controlplane"
	"github.com/muster-gpu/muster/internal/shared"
	"github.com/muster-gpu/muster/scenario"
)

// onCluster are the scenario files that a cluster plays, too: rigid jobs of whole
// GPUs, CPU and memory, on nodes in racks and NVLink domains, of all tiers, in
// queues, first in, first out. What a cluster decides is compared up to the first
// end of a job, because pods' time is not a scenario's. The others are about time
// (backfilling, limits, deadlines), about what pods do not have (elastic jobs,
// dependencies, arrays, holds, reservations), about jobs of one instant whose
// order only a replay keeps, or about things that have a test of their own here
// (nodes that go, models of GPUs, shares, MIG, changes of queues).
var onCluster = []string{"fifo-gang", "gang-whole-or-nothing", "gang-tasks", "topology-nvlink", "topology-required",
	"topology-tightest",
	"tier-order", "tier-best-effort-first", "pack-fit", "cpu-ram", "kueue-reclaim", "queue-tree", "reclaim-order"}

// few is how many of them a plain test plays; MUSTER_SOAK has them all.
const few = 1

// testScenarios: jobs that are submitted in the order of a scenario run, as gangs
// of pods, on the nodes on which the scenario has them.
func testScenarios(b *bench) {
	played := map[string]bool{}
	for i, name := range onCluster {
		if shared.Soak(true, false) && i%(len(onCluster)/few) != 1 {
			continue
		}
		text, err := os.ReadFile("../scenario/testdata/" + name + ".scn")
		if err != nil {
			b.Fatal(err)
		}
		moments, err := scenario.Moments(b.ctx, name, text)
		if err != nil {
			b.Fatal(err)
		}
		for _, m := range moments {
			key := fmt.Sprint(m.Policy, m.Placer, m.Backfill, m.Spec, m.Jobs)
			if !m.Plain || m.Policy != "fifo" || m.Backfill != "" && m.Backfill != "skip" && m.Backfill != "none" ||
				played[key] {
				continue
			}
			played[name], played[key] = true, true
			b.sub(fmt.Sprintf("%s:%d %s", name, m.Line, m.Label), func(b *bench) { b.moment(&m) })
		}
		if !played[name] {
			b.Errorf("nothing of %s makes sense on a cluster", name)
		}
	}
}

func (b *bench) moment(m *scenario.Moment) {
	have := map[string]int64{}
	for i := range m.Spec.Nodes {
		n := &m.Spec.Nodes[i]
		have[n.Name] = int64(n.GPUs)
		if _, err := b.c.CoreV1().Nodes().Create(b.ctx, nodeOf(n), metav1.CreateOptions{}); err != nil {
			b.Fatal(err)
		}
	}
	b.guard(have)
	_, stop := b.schedule(func(o *Options) {
		o.Labels.Rack, o.Labels.Fabric = "test.muster.sh/rack", "test.muster.sh/fabric"
		o.Rules.Policy, o.Rules.Placer, o.Rules.Backfill, o.Rules.Spec.Queues = m.Policy, m.Placer, m.Backfill,
			m.Spec.Queues
	})
	defer stop()
	for i := range m.Jobs {
		pods := podsOf(&m.Jobs[i].Job)
		b.create(pods...)
		b.wait(fmt.Sprintf("job %s runs or waits", m.Jobs[i].Job.Name), func() bool {
			p := b.pod(pods[0].Name)
			return live(p) || condition(p).Status == v1.ConditionFalse
		})
	}
	var now string
	defer func() {
		if b.Failed() {
			b.Logf("now: %s", now)
		}
	}()
	want := make([]map[string]int, len(m.Jobs))
	for i := range m.Jobs {
		want[i] = m.Jobs[i].On
	}
	b.wait(fmt.Sprintf("the jobs are on %v", want), func() bool {
		is := make([]map[string]int, len(m.Jobs))
		for i := range is {
			is[i] = map[string]int{}
		}
		for _, p := range b.pods() {
			var i int
			if _, err := fmt.Sscanf(p.Name, "job%d-", &i); err == nil && live(&p) && p.DeletionTimestamp == nil {
				is[i][p.Spec.NodeName]++
			}
		}
		now = fmt.Sprint(is)
		return now == fmt.Sprint(want)
	})
}

// nodeOf is a node of a scenario as the API server has it.
func nodeOf(n *cluster.Node) *v1.Node {
	labels := map[string]string{}
	for key, value := range map[string]string{"test.muster.sh/rack": n.Rack, "test.muster.sh/fabric": n.Fabric,
		"nvidia.com/gpu.clique": n.NVLink} {
		if value != "" {
			labels[key] = value
		}
	}
	o := controlplane.Node(n.Name, n.GPUs, labels)
	if n.CPU > 0 {
		o.Status.Allocatable[v1.ResourceCPU] = *resource.NewMilliQuantity(n.CPU, resource.DecimalSI)
	}
	if n.RAM > 0 {
		o.Status.Allocatable[v1.ResourceMemory] = *resource.NewQuantity(n.RAM<<20, resource.BinarySI)
	}
	o.Status.Capacity = maps.Clone(o.Status.Allocatable)
	return o
}

// podsOf is a job of a scenario as a gang of pods.
func podsOf(j *cluster.Job) (pods []*v1.Pod) {
	name := fmt.Sprintf("job%d", j.ID)
	more := map[string]string{LabelTier: j.Tier.String()}
	if j.Queue != "" {
		more[LabelQueue] = j.Queue
	}
	if t := j.Topology; t.Required {
		more["!"+AnnotationWithin] = t.Level.String()
	} else if t.Level != 0 {
		more["!"+AnnotationPrefer] = t.Level.String()
	}
	size := 0
	for _, set := range j.Tasks {
		size += set.Count
	}
	for _, set := range j.Tasks {
		for range set.Count {
			p := controlplane.Pod(fmt.Sprintf("%s-%d", name, len(pods)), set.Request.GPUs, more)
			p.Labels[LabelGang], p.Annotations[AnnotationSize] = name, fmt.Sprint(size)
			c := &p.Spec.Containers[0].Resources
			delete(c.Requests, v1.ResourceCPU)
			if r := &set.Request; r.CPU > 0 {
				c.Requests[v1.ResourceCPU] = *resource.NewMilliQuantity(r.CPU, resource.DecimalSI)
			}
			if r := &set.Request; r.RAM > 0 {
				c.Requests[v1.ResourceMemory] = *resource.NewQuantity(r.RAM<<20, resource.BinarySI)
			}
			pods = append(pods, p)
		}
	}
	return pods
}
