package kube

import (
	"maps"
	"slices"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/internal/controlplane"
	"github.com/muster-gpu/muster/kube/gang"
	"github.com/muster-gpu/muster/kube/plans"
	"github.com/muster-gpu/muster/kube/terms"
)

// hall makes nodes of eight GPUs in two NVLink domains, c1 and c2, with a guard.
func (b *bench) hall(cliques map[string]string) {
	b.Helper()
	have := map[string]int64{}
	for _, n := range slices.Sorted(maps.Keys(cliques)) {
		have[n] = 8
		o := controlplane.Node(n, 8, map[string]string{"nvidia.com/gpu.clique": cliques[n]})
		if _, err := b.c.CoreV1().Nodes().Create(b.ctx, o, metav1.CreateOptions{}); err != nil {
			b.Fatal(err)
		}
	}
	b.guard(have)
}

// team1 lists the pods of a gang that hold something and are not told to leave,
// by UID, with their nodes.
func (b *bench) team1(gang string) map[types.UID]string {
	on := map[types.UID]string{}
	for _, p := range b.pods() {
		if p.Labels[LabelGang] == gang && live(&p) && p.DeletionTimestamp == nil {
			on[p.UID] = p.Spec.NodeName
		}
	}
	return on
}

func (b *bench) loseNode(name string) {
	b.Helper()
	if err := b.c.CoreV1().Nodes().Delete(b.ctx, name, metav1.DeleteOptions{}); err != nil {
		b.Fatal(err)
	}
}

// repaired waits until a gang has all of its pods again, none where it lost them.
func (b *bench) repaired(c *crew, size int, lost string) {
	b.Helper()
	b.wait("it is whole again", func() bool {
		c.tend()
		on := b.team1("train")
		return len(on) == size && !slices.Contains(used(on), lost)
	})
}

// kept counts the pods of a gang that it had before.
func kept(before, now map[types.UID]string) (n int) {
	for uid, node := range before {
		if now[uid] == node {
			n++
		}
	}
	return n
}

// used lists the nodes.
func used(on map[types.UID]string) (nodes []string) {
	return slices.Compact(slices.Sorted(maps.Values(on)))
}

// A gang that is to be repaired loses a node, twice, with a restart of the
// scheduler between: what is left runs on, and what its owner makes comes to it,
// in the NVLink domain of the others if there is room. What was lost is given to
// others when the node is back. The whole is one gang again, which leaves as one.
func testRepair(b *bench) {
	b.hall(map[string]string{"a1": "c2", "n1": "c1", "n2": "c1", "n3": "c1"})
	_, stop := b.schedule()
	defer func() { stop() }()
	filler := controlplane.Pod("filler", 8, nil)
	filler.Spec.NodeSelector = map[string]string{"kubernetes.io/hostname": "a1"}
	b.create(filler)
	b.wait("the filler is bound", func() bool { return live(b.pod("filler")) })
	c := b.crew()
	c.add("train", 4, 4, map[string]string{"!" + AnnotationLoss: "repair", LabelTier: "best-effort"})
	c.tend()
	b.wait("the gang is bound", func() bool { return len(b.team1("train")) == 4 })
	b.gone(b.pod("filler")) // a scheduler that looks at room only would take this
	before := b.team1("train")
	lost := used(before)[0]
	b.loseNode(lost)
	b.repaired(c, 4, lost)
	now := b.team1("train")
	if kept(before, now) != 2 || slices.Contains(used(now), "a1") || slices.Contains(used(now), lost) {
		b.Errorf("it was on %v, node %s was lost, and it is on %v", before, lost, now)
	}
	if _, err := b.c.CoreV1().Nodes().Create(b.ctx, controlplane.Node(lost, 8, nil),
		metav1.CreateOptions{}); err != nil {
		b.Fatal(err)
	}
	whole := controlplane.Pod("whole", 8, nil)
	whole.Spec.NodeSelector = map[string]string{"kubernetes.io/hostname": lost}
	b.create(whole)
	b.wait("the lost node is another's", func() bool { return live(b.pod("whole")) })
	stop()
	_, stop = b.schedule()
	before = now
	lost = used(now)[0]
	b.loseNode(lost)
	b.repaired(c, 4, lost) // in the other domain, as there is no room in its own
	now = b.team1("train")
	if kept(before, now) != 2 || !slices.Contains(used(now), "a1") {
		b.Errorf("it was on %v, and is on %v", before, now)
	}
	b.wait("its pods say how often it was repaired", func() bool {
		return slices.ContainsFunc(b.pods(), func(p v1.Pod) bool {
			return repairs1(p.Annotations[AnnotationPlan]) == 2
		})
	})
	urgent := controlplane.Pod("urgent", 8, map[string]string{LabelTier: "critical"})
	urgent.Spec.NodeSelector = map[string]string{"kubernetes.io/hostname": "a1"}
	b.create(urgent)
	b.wait("the gang leaves as one", func() bool { return live(b.pod("urgent")) && b.holding("train") == 0 })
}

// With requeue all of a gang leaves with one of its nodes, and comes again as a
// whole, also where the configuration says repair.
func testRequeue(b *bench) {
	b.eights("n1", "n2", "n3")
	_, stop := b.schedule(func(o *Options) { o.Repair = true })
	defer stop()
	c := b.crew()
	c.add("train", 4, 4, map[string]string{"!" + AnnotationLoss: "requeue"})
	c.add("bad", 2, 1, map[string]string{"!" + AnnotationLoss: "restart"})
	c.tend()
	b.wait("the gang is bound", func() bool { return len(b.team1("train")) == 4 })
	b.wait("the other says what is wrong with it", func() bool {
		return strings.Contains(condition(b.pod("bad-0")).Message, `"restart" is neither requeue nor repair`)
	})
	before := b.team1("train")
	lost := used(before)[0]
	b.loseNode(lost)
	b.wait("it is whole again", func() bool {
		c.tend()
		now := b.team1("train")
		return len(now) == 4 && kept(before, now) == 0
	})
	if on := used(b.team1("train")); slices.Contains(on, lost) {
		b.Errorf("it is on %v; %s is lost", on, lost)
	}
}

// The scheduler is dead when a node is lost under a gang, the next one dies in the
// middle of the repair, and the one after that finishes it.
func testRepairKilled(b *bench) {
	b.eights("n1", "n2", "n3", "n4")
	c := b.crew()
	c.add("train", 12, 2, map[string]string{"!" + AnnotationLoss: "repair"})
	c.tend()
	first := b.scheduler("")
	b.wait("the gang is bound", func() bool { return len(b.team1("train")) == 12 })
	first.kill()
	before := b.team1("train")
	lost := used(before)[0]
	b.loseNode(lost)
	second := b.scheduler("kube-bound:1")
	dead := make(chan struct{})
	go func() {
		_ = second.c.Wait()
		close(dead)
	}()
	b.wait("the second scheduler dies", func() bool {
		c.tend()
		select {
		case <-dead:
			return true
		default:
			return false
		}
	})
	part := b.team1("train")
	if kept(before, part) != 8 || len(part) == 8 || len(part) == 12 {
		b.Errorf("it was on %v, and in the middle of its repair on %v", before, part)
	}
	_, stop := b.schedule(func(o *Options) { o.Repair = true })
	defer stop()
	b.repaired(c, 12, lost)
	if now := b.team1("train"); kept(before, now) != 8 || kept(part, now) != len(part) {
		b.Errorf("it was on %v, then %v, and is on %v", before, part, now)
	}
}

// What a gang's plan says of a place that was lost, and that others have now, does not count
// for a scheduler that finds both: the pod that waits for it gets none there, and one that does not
// want to be repaired leaves as a whole.
func TestGivenAway(t *testing.T) {
	for _, answer := range []string{terms.LossRepair, terms.LossRequeue} {
		t.Run(answer, func(t *testing.T) {
			pods, other := controlplane.Gang("g", 2, 6, map[string]string{"!" + AnnotationLoss: answer}),
				controlplane.Pod("other", 6, nil)
			bound := func(p *v1.Pod, node string, on ...plans.On) {
				p.Spec.NodeName = node
				tasks := []cluster.TaskSet{{Count: len(on), Request: cluster.Request{GPUs: 6, CPU: 1000}}}
				p.Annotations[AnnotationPlan] = (&plans.Plan{Tasks: tasks, On: on}).Text()
			}
			bound(pods[0], "n0000", plans.On{Node: "n0000", Tasks: 1}, plans.On{Node: "n0001", Tasks: 1})
			bound(other, "n0001", plans.On{Node: "n0001", Tasks: 1})
			d, _ := still(t, 2, pods[0], pods[1], other)
			for _, p := range d.pods {
				if p.Obj.Name == "g-1" && (p.Binding || p.Node != "") {
					t.Errorf("it is bound to %s%s, where another is", p.Node, p.Assumed)
				}
			}
			g := d.gangs["gang/default/g"]
			switch {
			case answer == terms.LossRepair && (g.Phase != gang.Running || len(g.Missing) != 1):
				t.Errorf("phase %d, lost %v: it was to be repaired", g.Phase, g.Missing)
			case answer == terms.LossRequeue && g.Phase != gang.Stopping:
				t.Errorf("phase %d: it was to leave", g.Phase)
			}
			for i, n := range d.eng.Nodes() {
				if n.GPUs != 8 {
					t.Errorf("node %d has %d GPUs in the books", i, n.GPUs)
				}
			}
		})
	}
}
