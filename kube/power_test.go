package kube

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/muster-gpu/muster/ask"
	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/internal/controlplane"
	"github.com/muster-gpu/muster/kube/power"
	"github.com/muster-gpu/muster/show"
)

// fuse holds the switch of a test: it notes what it is told, and a node says that it is ready once it may.
type fuse struct {
	*bench
	mu      sync.Mutex
	off, on []string
	open    bool // nodes come back
}

func (f *fuse) program(ctx context.Context, program, node string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if program == "/off" {
		f.off = append(f.off, node)
		return nil
	}
	if f.on = append(f.on, node); f.open {
		return f.boot(ctx, node)
	}
	return nil
}

// boot has a node say that it is ready, as its kubelet does when it comes up.
func (f *fuse) boot(ctx context.Context, node string) error {
	now := time.Now().UTC().Format(time.RFC3339)
	patch := fmt.Sprintf(`{"status": {"conditions": [{"type": "Ready", "status": "True", "reason": "Booted", "lastHeartbeatTime": %q}]}}`, now)
	_, err := f.p.Client().CoreV1().Nodes().Patch(ctx, node, types.StrategicMergePatchType, []byte(patch),
		metav1.PatchOptions{}, "status")
	return err
}

// release lets nodes come back, those of which it was told before at once.
func (f *fuse) release() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.open = true
	for _, n := range f.on {
		if err := f.boot(f.ctx, n); err != nil {
			f.Fatal(err)
		}
	}
}

func (f *fuse) called() (off, on []string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	off, on = slices.Clone(f.off), slices.Clone(f.on)
	slices.Sort(off)
	slices.Sort(on)
	return slices.Compact(off), slices.Compact(on)
}

// options let nodes of the pool sleep after two seconds.
func (f *fuse) options(o *Options) {
	o.Program, o.Namespace, o.PowerWait = f.program, "default", 200*time.Millisecond
	o.Power = []Power{{Selector: map[string]string{"pool": "batch"}, Timeout: time.Minute, Suspend: "/off",
		Resume: "/on",
		Rule: cluster.Power{Every: time.Second, History: time.Second, Future: time.Second, Fell: 1000, Falls: 1000,
			Least: 1, Settled: 2 * time.Second, Wake: 2 * time.Minute}}}
}

func (b *bench) pool(names ...string) {
	b.Helper()
	for _, n := range names {
		if _, err := b.c.CoreV1().Nodes().Create(b.ctx, controlplane.Node(n, 8, map[string]string{"pool": "batch"}),
			metav1.CreateOptions{}); err != nil {
			b.Fatal(err)
		}
	}
}

// power is how far a node is, and whether it is cordoned.
func (b *bench) power(name string) (string, bool) {
	b.Helper()
	n, err := b.c.CoreV1().Nodes().Get(b.ctx, name, metav1.GetOptions{})
	if err != nil {
		b.Fatal(err)
	}
	return n.Labels[power.Label], n.Spec.Unschedulable
}

func (b *bench) isOff(names ...string) {
	b.Helper()
	for _, n := range names {
		b.wait(n+" is off", func() bool { state, cordoned := b.power(n); return state == power.Off && cordoned })
	}
}

// eight is a pod or gang for nodes of the pool.
func eight(name string, size int) []*v1.Pod {
	list := controlplane.Gang(name, size, 8, nil)
	for _, p := range list {
		p.Spec.NodeSelector = map[string]string{"pool": "batch"}
	}
	return list
}

// Nodes of the pool go off that none needs, one with a daemon's pod, too; not one on which another's pod is,
// and none beside the pool. A gang that needs two of them wakes these, says so and is not bound before
// they are there; a scheduler that comes after the first in the midst of it goes on.
func testPower(b *bench) {
	b.pool("n1", "n2", "n3", "n4")
	b.nodes(8, "other")
	b.daemon("n3")
	foreign := controlplane.Pod("foreign", 8, nil)
	foreign.Spec.SchedulerName, foreign.Spec.NodeName = "somebody", "n4"
	b.create(foreign)
	f := &fuse{bench: b}
	_, stop := b.schedule(f.options)
	defer stop()
	b.isOff("n1", "n2", "n3")
	if off, on := f.called(); !slices.Equal(off, []string{"n1", "n2", "n3"}) || on != nil {
		b.Errorf("switched off %v, on %v", off, on)
	}
	b.create(eight("g", 2)...)
	waking := func(name string) bool {
		c := condition(b.pod(name))
		return c.Status == v1.ConditionFalse && strings.Contains(c.Message, "2 nodes are waking, ready in about ")
	}
	b.wait("the gang says what it waits for", func() bool { return waking("g-0") && waking("g-1") })
	b.wait("two nodes are asked for", func() bool { _, on := f.called(); return len(on) == 2 })
	stop()
	_, on := f.called()
	d, stop := b.schedule(f.options)
	defer stop()
	b.wait("the next scheduler asks for them, too", func() bool {
		f.mu.Lock()
		defer f.mu.Unlock()
		return len(f.on) == 4
	})
	b.wait("the gang is held", func() (held bool) {
		b.look(d, func() { held = len(d.heldBack) == 1 })
		return held
	})
	if _, again := f.called(); !slices.Equal(on, again) {
		b.Errorf("the first scheduler woke %v, the next %v", on, again)
	}
	list, err := d.View().Jobs(b.ctx, ask.Filter{})
	if err != nil || len(list) != 1 || list[0].State != show.StateStarting {
		b.Errorf("%v %+v", err, list)
	}
	if b.pod("g-0").Spec.NodeName != "" || b.pod("g-1").Spec.NodeName != "" {
		b.Error("the gang was bound to nodes that are off")
	}
	f.release()
	b.wait("the gang runs", func() bool { return b.pod("g-0").Spec.NodeName != "" && b.pod("g-1").Spec.NodeName != "" })
	for _, n := range on { // that it is on may be written after the pod is bound
		b.wait(n+" is on", func() bool { state, cordoned := b.power(n); return state == power.On && !cordoned })
	}
	for _, n := range []string{"n4", "other"} {
		if state, cordoned := b.power(n); state != "" || cordoned {
			b.Errorf("%s is %q, cordoned %v", n, state, cordoned)
		}
	}
	m, err := b.c.CoreV1().ConfigMaps("default").Get(b.ctx, "muster-power", metav1.GetOptions{})
	if err != nil || !strings.Contains(m.Data["pool_batch"], `"week"`) {
		b.Errorf("%v %v", err, m.Data)
	}
}

// daemon puts a pod of a DaemonSet on a node.
func (b *bench) daemon(node string) {
	b.Helper()
	app := map[string]string{"app": "agent"}
	spec := controlplane.Spec(0)
	spec.SchedulerName, spec.RestartPolicy, spec.NodeSelector = "nobody", v1.RestartPolicyAlways,
		map[string]string{"kubernetes.io/hostname": node}
	_, err := b.c.AppsV1().DaemonSets("default").Create(b.ctx,
		&appsv1.DaemonSet{ObjectMeta: metav1.ObjectMeta{Name: "agent"}, Spec: appsv1.DaemonSetSpec{
			Selector: &metav1.LabelSelector{MatchLabels: app},
			Template: v1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: app}, Spec: spec}}},
		metav1.CreateOptions{})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		_ = b.c.AppsV1().DaemonSets("default").Delete(context.Background(), "agent", metav1.DeleteOptions{})
	})
	var p *v1.Pod
	b.wait("the daemon has a pod", func() bool {
		for _, q := range b.pods() {
			if strings.HasPrefix(q.Name, "agent-") {
				p = &q
			}
		}
		return p != nil
	})
	bind := &v1.Binding{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: p.Name},
		Target: v1.ObjectReference{Kind: "Node", Name: node}}
	if err := b.c.CoreV1().Pods("default").Bind(b.ctx, bind, metav1.CreateOptions{}); err != nil {
		b.Fatal(err)
	}
}

// A node that does not come back is counted on no more: a gang that waits for it goes elsewhere as soon as there is
// room. A person who uncordons a node that is off gets it back.
func testPowerLate(b *bench) {
	b.pool("n1")
	b.nodes(8, "other")
	busy := controlplane.Pod("busy", 8, nil)
	busy.Spec.NodeSelector = map[string]string{"kubernetes.io/hostname": "other"}
	b.create(busy)
	f := &fuse{bench: b}
	_, stop := b.schedule(f.options, func(o *Options) { o.Power[0].Timeout = 5 * time.Second })
	defer stop()
	b.wait("busy runs", func() bool { return b.pod("busy").Spec.NodeName == "other" })
	b.isOff("n1")
	b.create(controlplane.Pod("late", 8, nil))
	b.wait("n1 is asked for", func() bool { _, on := f.called(); return slices.Equal(on, []string{"n1"}) })
	b.wait("the gang that waits says that it is not there", func() bool {
		c := condition(b.pod("late"))
		return c.Status == v1.ConditionFalse && !strings.Contains(c.Message, "waking")
	})
	b.gone(b.pod("busy"))
	b.wait("late is elsewhere", func() bool { return b.pod("late").Spec.NodeName == "other" })
	f.release()
	b.wait("the node is back all the same, and goes off again", func() bool { off := f.times("n1"); return off == 2 })
	b.isOff("n1")
	if _, err := b.c.CoreV1().Nodes().Patch(b.ctx, "n1", types.MergePatchType,
		[]byte(`{"spec": {"unschedulable": null}}`), metav1.PatchOptions{}); err != nil {
		b.Fatal(err)
	}
	b.wait("a person has it back", func() bool {
		state, cordoned := b.power("n1")
		return state == power.On && !cordoned
	})
}

// times is how often a node was switched off.
func (f *fuse) times(node string) (n int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, name := range f.off {
		if name == node {
			n++
		}
	}
	return n
}

// A scheduler that dies while a node goes off, or comes back, is followed by one that goes on.
func testPowerKilled(b *bench) {
	for i, point := range []string{"kube-power-" + power.Suspending, "kube-power-cut", "kube-power-" + power.Off,
		"kube-power-" + power.Resuming, "kube-power-" + power.On} {
		name := fmt.Sprintf("k%d", i)
		b.pool(name)
		f := &fuse{bench: b, open: true}
		dead := b.dying(point, f.options)
		pod := eight("p"+name, 1)[0]
		if i >= 3 {
			b.isOff(name)
			b.create(pod)
		}
		dead()
		if i < 3 {
			b.create(pod)
		}
		_, stop := b.schedule(f.options)
		b.wait("the pod runs after "+point, func() bool { return b.pod(pod.Name).Spec.NodeName == name })
		b.wait("its node is on", func() bool {
			state, cordoned := b.power(name)
			return !cordoned && (state == power.On || state == "")
		})
		stop()
		b.gone(b.pod(pod.Name))
		if err := b.c.CoreV1().Nodes().Delete(b.ctx, name, metav1.DeleteOptions{}); err != nil {
			b.Fatal(err)
		}
	}
}

// TestPower plays nodes that are switched off on one real API server.
func TestPower(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.sub("waking", testPower)
	b.sub("late", testPowerLate)
	b.sub("killed", testPowerKilled)
	b.sub("shrunk", testPowerShrunk)
	b.sub("left", testPowerLeft)
}
