package kube

import (
	"fmt"
	"syscall"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/muster-gpu/muster/internal/controlplane"
)

// BenchmarkSteady measures what it costs that something changes around 5,000 nodes of 8 GPUs and 20,000 pods, of which
// a quarter runs and the others wait: a pod that asks for nodes as no other does, a node that joins, one that gets a
// label, and a foreign pod that takes CPU. renewals is how often the engine begins anew for each.
func BenchmarkSteady(b *testing.B) {
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
	for _, p := range w.pods {
		if p.binding {
			w.bound(p.gang, p, p.gang.run, p.assumed, nil)
		}
	}
	w.settleDown(b)
	next := 0
	for _, c := range []struct {
		name   string
		happen func(i int)
	}{
		{"selector", func(i int) {
			p := controlplane.Pod(fmt.Sprint("own", i), 8, nil)
			p.Spec.NodeSelector = map[string]string{"one": fmt.Sprint(i)}
			w.add(p)
		}},
		{"join", func(i int) { w.nodeChanged(someNode(fmt.Sprint("late", i))) }},
		{"label", func(i int) {
			n := w.nodes[fmt.Sprint("n", i)].obj.DeepCopy()
			n.Labels["new"] = "yes"
			w.nodeChanged(n)
		}},
		{"foreign", func(i int) {
			p := cpus(controlplane.Pod(fmt.Sprint("foreign", i), 0, nil), "10")
			p.Spec.SchedulerName, p.Spec.NodeName, p.Status.Phase = "other", fmt.Sprint("n", i), v1.PodRunning
			w.add(p)
		}},
	} {
		b.Run(c.name, func(b *testing.B) {
			life, from := w.life, processorTime(b)
			for range b.N {
				c.happen(next)
				next++
				w.now = w.now.Add(10 * time.Second)
				w.settleDown(b)
			}
			b.ReportMetric(float64(w.life-life)/float64(b.N), "renewals/op")
			b.ReportMetric(float64((processorTime(b)-from).Milliseconds())/float64(b.N), "cpu-ms/op")
		})
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
