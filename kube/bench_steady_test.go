package kube

import (
	"fmt"
	"syscall"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/internal/controlplane"
	"github.com/muster-gpu/muster/kube/gang"
	"github.com/muster-gpu/muster/kube/plans"
	"github.com/muster-gpu/muster/kube/terms"
)

// BenchmarkSteady measures what it costs that something changes around 5,000 nodes of 8 GPUs and 20,000 pods, of which
// a quarter runs and the others wait: a pod that asks for nodes as no other does, a node that joins, one that gets a
// label, a foreign pod that takes CPU; a pod that is resized while it runs, a gang that loses a node, one that starts
// with more pods than it needs, one that is found bound, and an idle node that gets other GPUs. renewals is how often
// the engine begins again for each.
func BenchmarkSteady(b *testing.B) {
	w, next := busyWorld(b), 0
	for _, c := range steadyCases(w) {
		b.Run(c.name, func(b *testing.B) {
			renewals, used := 0, time.Duration(0)
			for range b.N {
				b.StopTimer()
				if c.prepare != nil {
					c.prepare(next)
					w.tenSeconds(b)
				}
				life, from := w.life.count, processorTime(b)
				b.StartTimer()
				c.happen(next)
				w.tenSeconds(b)
				used += processorTime(b) - from
				renewals += w.life.count - life
				next++
			}
			b.ReportMetric(float64(renewals)/float64(b.N), "renewals/op")
			b.ReportMetric(float64(used.Milliseconds())/float64(b.N), "cpu-ms/op")
		})
	}
}

// busyWorld is 5,000 nodes that are all in use, and 15,000 pods that wait.
func busyWorld(b *testing.B) *world {
	const nodes, pods = 5000, 20_000
	list := someNodes(nodes, 8)
	for i, n := range list {
		n.Labels["zone"], n.Labels["one"] = fmt.Sprint(i%10), fmt.Sprint(i)
	}
	w := newWorld(b, nil, list)
	for i := range pods {
		p := controlplane.Pod(fmt.Sprint("p", i), 8, nil)
		if i%2 == 1 {
			p.Spec.NodeSelector = map[string]string{"zone": fmt.Sprint(i % 10)}
		}
		w.add(p)
	}
	steps(b, w.Driver)
	w.tenSeconds(b)
	return w
}

// tenSeconds answers all bindings, lets ten seconds pass and all of that be looked at.
func (w *world) tenSeconds(t testing.TB) {
	t.Helper()
	for range 2 {
		w.answerAll()
		w.now = w.now.Add(5 * time.Second)
		w.settleDown(t)
	}
}

// steadyCase is something that changes; prepare makes what it changes.
type steadyCase struct {
	name            string
	prepare, happen func(i int)
}

func steadyCases(w *world) []steadyCase {
	own := func(name string, i int) *v1.Node { // a node that only its own pods may be on
		n := someNode(name)
		n.Labels["own"] = fmt.Sprint(i)
		n.Spec.Taints = []v1.Taint{{Key: "own", Value: fmt.Sprint(i), Effect: v1.TaintEffectNoSchedule}}
		return n
	}
	there := func(p *v1.Pod, i int) *v1.Pod {
		p.Spec.Tolerations = append(p.Spec.Tolerations, v1.Toleration{Key: "own", Value: fmt.Sprint(i)})
		return on(p, "own", fmt.Sprint(i))
	}
	pair := func(i int) {
		w.nodeChanged(own(fmt.Sprint("own", i, "a"), i))
		w.nodeChanged(own(fmt.Sprint("own", i, "b"), i))
	}
	return []steadyCase{
		{"selector", nil, func(i int) {
			w.add(on(controlplane.Pod(fmt.Sprint("alone", i), 8, nil), "one", fmt.Sprint(i)))
		}},
		{"join", nil, func(i int) { w.nodeChanged(someNode(fmt.Sprint("late", i))) }},
		{"label", nil, func(i int) {
			n := w.nodes.Node(fmt.Sprint("n", i)).Obj.DeepCopy()
			n.Labels["new"] = "yes"
			w.nodeChanged(n)
		}},
		{"foreign", nil, func(i int) {
			p := cpus(controlplane.Pod(fmt.Sprint("foreign", i), 0, nil), "10")
			p.Spec.SchedulerName, p.Spec.NodeName, p.Status.Phase = "other", fmt.Sprint("n", i), v1.PodRunning
			w.add(p)
		}},
		{"resized", nil, func(i int) {
			for q := range w.nodes.World.On(fmt.Sprint("n", i)) {
				if p := gang.PodOf(q); p.Gang != nil {
					obj := cpus(p.Obj.DeepCopy(), "20")
					obj.Spec.NodeName, obj.Status.Phase = p.Node, v1.PodRunning
					w.podChanged(obj)
				}
			}
		}},
		{"repair", func(i int) {
			pair(i)
			loss := map[string]string{"!" + AnnotationLoss: terms.LossRepair}
			for _, p := range controlplane.Gang(fmt.Sprint("repair", i), 2, 8, loss) {
				w.add(there(p, i))
			}
		}, func(i int) {
			w.nodeGone(fmt.Sprint("own", i, "b"))
			w.nodeChanged(own(fmt.Sprint("own", i, "c"), i))
			for k := range 2 {
				if p := w.pods[types.UID(fmt.Sprint("repair", i, "-", k))]; p.Node == fmt.Sprint("own", i, "b") {
					again := p.Obj.DeepCopy()
					again.Name, again.Spec.NodeName = again.Name+"-again", ""
					w.podGone(p.Obj)
					w.add(again)
				}
			}
		}},
		{"moldable", pair, func(i int) {
			for _, p := range least(fmt.Sprint("moldable", i), 7, 2, 2, nil) {
				w.add(there(p, i))
			}
		}},
		{"found", pair, func(i int) {
			node := fmt.Sprint("own", i, "a")
			p := plans.Plan{On: []plans.On{{Node: node, Tasks: 1}}}
			p.Tasks = []cluster.TaskSet{{Count: 1, Request: cluster.Request{GPUs: 8, CPU: 1000}}}
			w.add(boundWith(there(controlplane.Pod(fmt.Sprint("found", i), 8, nil), i), node, p.Text()))
		}},
		{"exchanged", pair, func(i int) {
			n := own(fmt.Sprint("own", i, "a"), i)
			n.Labels["nvidia.com/gpu.product"], n.Labels["nvidia.com/gpu.memory"] = "NVIDIA-A100-SXM4-80GB", ""
			w.nodeChanged(n)
		}},
	}
}

// processorTime is what this process has used so far.
func processorTime(b *testing.B) time.Duration {
	b.Helper()
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
