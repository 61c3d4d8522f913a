package kube

import (
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/internal/controlplane"
	"github.com/muster-gpu/muster/kube/gang"
)

// change lets a pod be another than it was, as a watch would say it.
func (w *world) change(t *testing.T, p *v1.Pod, how func(*v1.Pod)) *v1.Pod {
	t.Helper()
	p = p.DeepCopy()
	how(p)
	w.podChanged(p)
	w.settleDown(t)
	return p
}

// settleDown takes steps and lets nodes be looked at for their size.
func (w *world) settleDown(t testing.TB) {
	t.Helper()
	for range 3 {
		steps(t, w.Driver)
		w.now = w.now.Add(2 * time.Second)
		w.agenda.due(w.clock())
		if w.nodes.SizesDirty {
			w.queued = append(w.queued, w.sizeEvents()...)
		}
	}
	steps(t, w.Driver)
}

// run makes a pod that is being bound one that runs.
func (w *world) run(t *testing.T, obj *v1.Pod) *v1.Pod {
	t.Helper()
	p := w.pods[obj.UID]
	if p == nil || p.Assumed == "" {
		t.Fatalf("pod %s is not being bound: %s", obj.Name, w.gangs["pod/"+obj.Name].Refused)
	}
	g, node := p.Gang, p.Assumed
	w.bound(g, p, g.Run, node, nil)
	obj = obj.DeepCopy()
	obj.Spec.NodeName, obj.Status.Phase = node, v1.PodRunning
	w.podChanged(obj)
	w.settleDown(t)
	return obj
}

func cpus(p *v1.Pod, text string) *v1.Pod {
	p.Spec.Containers[0].Resources.Requests[v1.ResourceCPU] = resource.MustParse(text)
	return p
}

// Whatever is changed of a pod that waits is seen at once.
func TestWaitingPodChanges(t *testing.T) {
	nodes := someNodes(2, 8)
	nodes[0].Spec.Taints = []v1.Taint{{Key: "team", Value: "a", Effect: v1.TaintEffectNoSchedule}}
	nodes[1].Spec.Taints = nodes[0].Spec.Taints
	p, same := controlplane.Pod("p", 1, nil), controlplane.Pod("same", 1, nil)
	w := newWorld(t, func(o *Options) {
		o.DefaultQueue = "none"
		o.Rules.Spec.Queues = []cluster.Queue{{Name: "a", Limit: cluster.Unlimited, Lend: cluster.Unlimited},
			{Name: "b", Limit: 1000, Lend: cluster.Unlimited}}
	}, nodes, p, same)
	if w.at("p") != "" {
		t.Fatal("p is bound on a node with a taint")
	}
	p = w.change(t, p, func(p *v1.Pod) {
		p.Spec.Tolerations = append(p.Spec.Tolerations, v1.Toleration{Key: "team", Operator: v1.TolerationOpExists})
	})
	if w.at("p") != "" {
		t.Fatal("p is bound though its queue does not exist")
	}
	p = w.change(t, p, func(p *v1.Pod) { p.Labels[LabelQueue] = "a" })
	if w.at("p") == "" {
		t.Errorf("p waits though it tolerates the taint and its queue is right: %s", w.gangs["pod/p"].Refused)
	}
	if w.at("same") != "" {
		t.Error("a pod that p was alike before does not tolerate the taint")
	}
	// A gang that the engine has is taken back when its queue is another, and when it has a gang.
	big := controlplane.Pod("big", 8, map[string]string{LabelQueue: "b"})
	big.Spec.Tolerations = p.Spec.Tolerations
	w.add(big)
	w.settleDown(t)
	if w.at("big") != "" {
		t.Fatal("big is beyond the limit of its queue")
	}
	big = w.change(t, big, func(p *v1.Pod) { p.Labels[LabelQueue] = "a" })
	if w.at("big") == "" {
		t.Errorf("big waits though its queue is another: %s", w.gangs["pod/big"].Refused)
	}
	late := controlplane.Pod("late", 1,
		map[string]string{LabelQueue: "a", LabelGang: "pair", "!" + AnnotationSize: "2"})
	late.Spec.Tolerations = p.Spec.Tolerations
	w.add(late)
	w.settleDown(t)
	if w.at("late") != "" {
		t.Fatal("late is bound before its gang is whole")
	}
	w.change(t, late, func(p *v1.Pod) { delete(p.Labels, LabelGang) })
	if w.at("late") == "" {
		t.Error("late waits though it is of no gang any more")
	}
}

// What a Job says of its pods counts when it is corrected, too.
func TestJobChanges(t *testing.T) {
	j := &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "j", UID: "j",
		Labels: map[string]string{LabelQueue: "wrong"}}}
	yes := true
	p := controlplane.Pod("p", 1, nil)
	p.OwnerReferences = []metav1.OwnerReference{
		{APIVersion: "batch/v1", Kind: "Job", Name: "j", UID: "j", Controller: &yes}}
	w := newWorld(t, func(o *Options) {
		o.Rules.Spec.Queues = []cluster.Queue{{Name: "a", Limit: cluster.Unlimited, Lend: cluster.Unlimited}}
	}, someNodes(1, 8))
	w.jobChanged(j)
	w.add(p)
	w.settleDown(t)
	if w.at("p") != "" {
		t.Fatal("p is bound though its queue does not exist")
	}
	j = j.DeepCopy()
	j.Labels[LabelQueue] = "a"
	w.jobChanged(j)
	w.settleDown(t)
	if w.at("p") == "" {
		t.Errorf("p waits though its Job names another queue: %s", w.gangs["pod/p"].Refused)
	}
}

// CPU and memory that pods get or give back while they run are counted, of our own pods and of others.
func TestResizeInPlace(t *testing.T) {
	grown := func(cpu string) func(*v1.Pod) {
		return func(p *v1.Pod) { cpus(p, cpu) }
	}
	for name, own := range map[string]bool{"own": true, "foreign": false} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, nil, someNodes(1, 8))
			p := cpus(controlplane.Pod("p", 1, nil), "10")
			if own {
				w.add(p)
				w.settleDown(t)
				p = w.run(t, p)
			} else {
				p.Spec.SchedulerName, p.Spec.NodeName = "other", "n0"
				w.add(p)
			}
			p = w.change(t, p, grown("90"))
			q := cpus(controlplane.Pod("q", 1, nil), "20")
			w.add(q)
			w.settleDown(t)
			if w.at("q") != "" {
				t.Fatal("q asks for 20 of 96 CPUs, and p was resized to 90")
			}
			p = w.change(t, p, func(p *v1.Pod) { // specified less, not yet given back
				cpus(p, "10")
				p.Status.ContainerStatuses = []v1.ContainerStatus{
					{Name: "main", AllocatedResources: v1.ResourceList{v1.ResourceCPU: resource.MustParse("90"),
						"nvidia.com/gpu": resource.MustParse("1")}}}
			})
			if w.at("q") != "" {
				t.Fatal("q is bound though p still has 90 CPUs")
			}
			w.change(t, p, func(p *v1.Pod) {
				p.Status.ContainerStatuses[0].AllocatedResources[v1.ResourceCPU] = resource.MustParse("10")
			})
			if w.at("q") == "" {
				t.Error("q waits though p gave its CPUs back")
			}
			w.same(t)
		})
	}
}

// same compares the engine's books with what the pods hold.
func (w *world) same(t *testing.T) {
	t.Helper()
	held := map[string]int64{}
	for _, b := range w.eng.Beliefs() {
		for _, a := range b.Allocs {
			held[w.nodes.Order()[a.Node]] += a.CPU
		}
	}
	for _, obj := range w.nodes.Objects() {
		name, sum := obj.Name, int64(0)
		for q := range w.nodes.World.On(name) {
			if p := gang.PodOf(q); p.Gang != nil {
				sum += p.Request.CPU
			}
		}
		if sum != held[name] {
			t.Errorf("node %s: pods of ours hold %d milli-cores, and the engine counts %d", name, sum, held[name])
		}
	}
}

// A gang of which one pod was resized keeps its places, and the pod that its owner makes for that one gets its place.
func TestResizeInGang(t *testing.T) {
	pods := controlplane.Gang("g", 3, 2, nil)
	w := newWorld(t, nil, someNodes(1, 8), pods...)
	for i := range pods {
		p := w.pods[pods[i].UID]
		w.bound(p.Gang, p, p.Gang.Run, p.Assumed, nil)
		pods[i] = pods[i].DeepCopy()
		pods[i].Spec.NodeName, pods[i].Status.Phase = "n0", v1.PodRunning
		w.podChanged(pods[i])
	}
	w.settleDown(t)
	pods[1] = w.change(t, pods[1], func(p *v1.Pod) { cpus(p, "50") })
	w.same(t)
	if g := w.gangs["gang/default/g"]; g.Phase != gang.Running || len(g.Spec.Tasks) != 2 {
		t.Errorf("phase %d, tasks %+v", g.Phase, g.Spec.Tasks)
	}
	w.podGone(pods[1])
	again := controlplane.Gang("g", 3, 2, nil)[1]
	again.Name = "again"
	w.add(again)
	w.settleDown(t)
	if w.at("again") != "n0" {
		t.Error("the pod that is made for one that was resized does not get its place")
	}
	w.same(t)
}

// A pod that was resized counts at once, also before the engine has heard of it.
func TestResizeAtOnce(t *testing.T) {
	w := newWorld(t, nil, someNodes(1, 8))
	p := cpus(controlplane.Pod("p", 1, nil), "10")
	w.add(p)
	w.settleDown(t)
	p = w.run(t, p).DeepCopy()
	w.podChanged(cpus(p, "90"))
	w.add(cpus(controlplane.Pod("q", 1, nil), "20"))
	w.settleDown(t)
	if w.at("q") != "" {
		t.Error("q asks for 20 of 96 CPUs, and p was resized to 90 just before")
	}
	w.same(t)
}
