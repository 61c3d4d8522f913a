package kube

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	v1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/engine"
	"github.com/muster-gpu/muster/internal/controlplane"
	"github.com/muster-gpu/muster/kube/plans"
	"github.com/muster-gpu/muster/kube/retry"
)

// What goes wrong around a scheduler, on a real API server. Each of these tests
// is watched by a guard, and ends with all that was asked for having run.
func testFaults(b *bench) {
	for _, c := range []struct {
		name string
		f    func(*bench)
	}{{"rival", testRival}, {"wire", testWire}, {"flap", testFlap}, {"budget", testBudget}, {"reclaim", testReclaim},
		{"clique", testClique}, {"hold", testHold}, {"failed", testFailed},
		{"failover", testFailover}, {"handover", testHandover}, {"paused", testPaused}, {"woken", testWoken},
		{"apiserver", testServerDies}, {"etcd", testStoreDies}} {
		b.sub(c.name, c.f)
	}
}

// eights makes nodes of eight GPUs, and a guard over them.
func (b *bench) eights(names ...string) *guard {
	b.Helper()
	b.nodes(8, names...)
	have := map[string]int64{}
	for _, n := range names {
		have[n] = 8
	}
	return b.guard(have)
}

const runs = "!test.muster.sh/run" // how long a pod runs

// Another binds a pod of a gang while Muster binds the others: those that
// were bound leave, with a word about why, and the gang comes again as a whole.
func testRival(b *bench) {
	b.eights("n1", "n2", "n3")
	c := b.crew()
	gang := c.add("g", 8, 2, nil) // it runs until it is unwound, however long that takes
	var once sync.Once
	var unwound atomic.Int32
	_, stop := b.schedule(func(o *Options) {
		o.Workers = 1
		o.Observe = &counter{unwound: &unwound}
		o.Crash = func(at string) {
			if at != "kube-bound" {
				return
			}
			once.Do(func() {
				taken := plans.Of(b.pod("g-0")).On
				free := slices.DeleteFunc([]string{"n1", "n2", "n3"}, func(n string) bool {
					return slices.ContainsFunc(taken, func(on plans.On) bool { return on.Node == n })
				})
				bind := &v1.Binding{ObjectMeta: metav1.ObjectMeta{Name: "g-7"},
					Target: v1.ObjectReference{Kind: "Node", Name: free[0]}}
				if err := b.c.CoreV1().Pods("default").Bind(b.ctx, bind, metav1.CreateOptions{}); err != nil {
					b.Error(err)
				}
			})
		}
	})
	defer stop()
	c.tend()
	b.wait("the gang was unwound", func() bool { return unwound.Load() > 0 })
	gang.more = map[string]string{runs: "300ms"}
	c.finish()
	if c.made <= 8 {
		b.Errorf("%d pods were made: none left", c.made)
	}
	b.wait("an event says why the gang was unwound", func() bool {
		list, err := b.c.CoreV1().Events("default").List(b.ctx, metav1.ListOptions{})
		return err == nil && slices.ContainsFunc(list.Items, func(e v1.Event) bool {
			return e.Reason == "GangUnwound" && strings.Contains(e.Message, "by something else")
		})
	})
}

// counter counts gangs that were unwound.
type counter struct {
	noObserver
	unwound *atomic.Int32
}

func (c *counter) Unwound() { c.unwound.Add(1) }

// The connection breaks in the middle of requests and watches, over and over,
// and is away for a while, in which pods and a node dropPlaceholder that the scheduler
// relies on: what it missed, it finds when it lists everything again.
func testWire(b *bench) {
	b.eights("n1", "n2", "n3")
	w := b.p.Wire()
	client := w.Client()
	c := b.crew()
	for i := range 8 {
		c.add(fmt.Sprintf("g%d", i), 4, 2, map[string]string{runs: "200ms"})
	}
	c.tend()
	_, stop := b.schedule(func(o *Options) { o.Client, o.Tell = client, client })
	defer stop()
	for n := 0; n < 15 && !c.tend(); n++ {
		w.Cut()
		retry.Pause(b.ctx, 40*time.Millisecond)
	}
	c.finish()
	long := b.crew()
	for i := range 3 {
		long.add(fmt.Sprintf("long%d", i), 2, 4, nil)
	}
	long.tend()
	b.wait("the long ones run", func() bool { return b.holding("long0")+b.holding("long1")+b.holding("long2") == 6 })
	lost := b.pod("long0-0").Spec.NodeName
	w.Break()
	if err := b.c.CoreV1().Nodes().Delete(b.ctx, lost, metav1.DeleteOptions{}); err != nil {
		b.Fatal(err)
	}
	for i := range 2 { // one that vanishes unseen, and one that comes
		b.gone(b.pod(fmt.Sprintf("long1-%d", i)))
	}
	b.create(controlplane.Gang("new", 2, 4, nil)...)
	w.Mend()
	b.wait("what lost its node has left it", func() bool {
		return b.holding("long0") == 0 || b.pod("long0-0").Spec.NodeName != lost
	})
	b.wait("the new one runs in a place that became free unseen", func() bool { return b.holding("new") == 2 })
}

// Nodes that are ready and not ready, cordoned and not, deleted and made again,
// all the time: every gang runs to its end, and none stays in part.
func testFlap(b *bench) {
	names := []string{"n1", "n2", "n3", "n4"}
	b.eights(names...)
	_, stop := b.schedule()
	defer stop()
	c := b.crew()
	for i := range 8 {
		c.add(fmt.Sprintf("g%d", i), 4, 4, map[string]string{runs: "400ms"})
	}
	for n := 0; n < 24 && !c.tend(); n++ {
		b.flap(names[n%len(names)], n/len(names))
		retry.Pause(b.ctx, 50*time.Millisecond)
	}
	c.finish()
	if c.made <= 32 {
		b.Logf("no gang lost a pod")
	}
}

// flap makes a node go, in one way or another.
func (b *bench) flap(name string, how int) {
	nodes := b.c.CoreV1().Nodes()
	patch := func(text string, sub ...string) {
		if _, err := nodes.Patch(b.ctx, name, types.StrategicMergePatchType, []byte(text), metav1.PatchOptions{},
			sub...); err != nil {
			b.Logf("node %s: %v", name, err)
		}
	}
	switch how % 3 {
	case 0: // KWOK makes it ready again
		patch(`{"status": {"conditions": [{"type": "Ready", "status": "False", "reason": "Flaps"}]}}`, "status")
	case 1:
		patch(`{"spec": {"unschedulable": true}}`)
		retry.Pause(b.ctx, 20*time.Millisecond)
		patch(`{"spec": {"unschedulable": null}}`)
	case 2:
		if err := nodes.Delete(b.ctx, name, metav1.DeleteOptions{}); err != nil {
			b.Logf("node %s: %v", name, err)
		}
		retry.Pause(b.ctx, 20*time.Millisecond)
		if _, err := nodes.Create(b.ctx, controlplane.Node(name, 8, nil), metav1.CreateOptions{}); err != nil {
			b.Logf("node %s: %v", name, err)
		}
	}
}

// A disruption budget forbids to evict for a while: a gang that needs the place
// waits and the others go on; when it allows it, they leave, and have as long
// to end as their tier gives them.
func testBudget(b *bench) {
	g := b.eights("n1")
	_, stop := b.schedule(func(o *Options) {
		o.Rules.Stop = &[3]engine.StopRule{{How: engine.Kill, Grace: 7 * time.Second},
			{How: engine.Kill, Grace: 7 * time.Second}, {How: engine.Kill, Grace: 7 * time.Second}}
	})
	defer stop()
	low := controlplane.Gang("low", 4, 2, map[string]string{LabelTier: "best-effort"})
	for _, p := range low {
		half := int64(60)
		p.Spec.TerminationGracePeriodSeconds = &half
	}
	b.create(low...)
	b.wait("low runs", func() bool { return b.holding("low") == 4 })
	four := intstr.FromInt32(4)
	pdb := &policyv1.PodDisruptionBudget{ObjectMeta: metav1.ObjectMeta{Name: "all"},
		Spec: policyv1.PodDisruptionBudgetSpec{MinAvailable: &four,
			Selector: &metav1.LabelSelector{MatchLabels: map[string]string{LabelGang: "low"}}}}
	budgets := b.c.PolicyV1().PodDisruptionBudgets("default")
	if _, err := budgets.Create(b.ctx, pdb, metav1.CreateOptions{}); err != nil {
		b.Fatal(err)
	}
	b.wait("the budget is known", func() bool {
		now, err := budgets.Get(b.ctx, "all", metav1.GetOptions{})
		return err == nil && now.Status.ObservedGeneration > 0 && now.Status.CurrentHealthy == 4
	})
	b.create(controlplane.Gang("high", 2, 4, map[string]string{LabelTier: "critical"})...)
	told := func(reason string) bool {
		list, err := b.c.CoreV1().Events("default").List(b.ctx, metav1.ListOptions{})
		return err == nil && slices.ContainsFunc(list.Items, func(e v1.Event) bool {
			return e.Reason == reason && strings.HasPrefix(e.InvolvedObject.Name, "low")
		})
	}
	b.wait("low is told that it is to leave when its budget allows it", func() bool { return told("EvictionRefused") })
	if told("Preempted") {
		b.Error("low is told that it was preempted while its budget protects it")
	}
	if n, m := b.holding("low"), b.holding("high"); n != 4 || m != 0 {
		b.Errorf("the budget forbids evictions: %d of 4 pods of low run, and %d of high", n, m)
	}
	if err := budgets.Delete(b.ctx, "all", metav1.DeleteOptions{}); err != nil {
		b.Fatal(err)
	}
	b.wait("high runs", func() bool { return b.holding("high") == 2 })
	b.wait("low is told that it was preempted", func() bool { return told("Preempted") })
	for i := range 4 {
		if s := g.grace(fmt.Sprintf("low-%d", i)); s != 7 {
			b.Errorf("low-%d was given %d s to end, not the 7 of its tier", i, s)
		}
	}
}

// A queue takes back what it is guaranteed from gangs that borrowed it: as many
// as it needs, each as a whole, and they come back when there is room.
func testReclaim(b *bench) {
	b.eights("n1", "n2")
	unlimited := cluster.Unlimited
	_, stop := b.schedule(func(o *Options) {
		o.Rules.Spec.Queues = []cluster.Queue{
			{Name: "a", Guarantee: 8 * cluster.Whole, Limit: unlimited, Lend: unlimited},
			{Name: "b", Guarantee: 8 * cluster.Whole, Limit: unlimited, Lend: unlimited}}
	})
	defer stop()
	for i := range 4 {
		b.create(controlplane.Gang(fmt.Sprintf("a%d", i), 4, 1, map[string]string{LabelQueue: "a"})...)
	}
	whole := func(prefix string) (list []string) {
		for i := range 4 {
			switch name := fmt.Sprint(prefix, i); b.holding(name) {
			case 4:
				list = append(list, name)
			case 0:
			default:
				return nil
			}
		}
		return list
	}
	b.wait("a holds everything", func() bool { return len(whole("a")) == 4 })
	b.create(controlplane.Gang("b0", 4, 1, map[string]string{LabelQueue: "b"})...)
	b.wait("b has what it asked for, and a lost one gang", func() bool {
		return len(whole("b")) == 1 && len(whole("a")) == 3
	})
	b.create(controlplane.Gang("b1", 4, 1, map[string]string{LabelQueue: "b"})...)
	b.wait("b has what it is guaranteed", func() bool { return len(whole("b")) == 2 && len(whole("a")) == 2 })
	b.create(controlplane.Gang("b2", 4, 1, map[string]string{LabelQueue: "b"})...)
	b.wait("b's third gang says why it waits", func() bool {
		return condition(b.pod("b2-0")).Status == v1.ConditionFalse
	})
	if len(whole("a")) != 2 || len(whole("b")) != 2 {
		b.Errorf("%v and %v run; each queue is guaranteed two gangs", whole("a"), whole("b"))
	}
}

// A gang that has to be within one NVLink domain waits for one to have room for
// all of it, though there are GPUs enough, and is in one only.
func testClique(b *bench) {
	for i := range 4 {
		n := controlplane.Node(fmt.Sprintf("n%d", i), 8,
			map[string]string{"nvidia.com/gpu.clique": fmt.Sprintf("c%d", i/2)})
		if _, err := b.c.CoreV1().Nodes().Create(b.ctx, n, metav1.CreateOptions{}); err != nil {
			b.Fatal(err)
		}
	}
	b.guard(map[string]int64{"n0": 8, "n1": 8, "n2": 8, "n3": 8})
	_, stop := b.schedule()
	defer stop()
	for i := range 2 {
		p := controlplane.Pod(fmt.Sprintf("fill-%d", i), 1, nil)
		p.Spec.NodeSelector = map[string]string{"nvidia.com/gpu.clique": fmt.Sprintf("c%d", i)}
		b.create(p)
	}
	b.wait("both domains are in use", func() bool { return live(b.pod("fill-0")) && live(b.pod("fill-1")) })
	b.create(controlplane.Gang("big", 8, 2, map[string]string{"!" + AnnotationWithin: "nvlink"})...)
	b.wait("the gang says why it waits", func() bool {
		return strings.Contains(condition(b.pod("big-0")).Message, "16 GPUs")
	})
	if n := b.holding("big"); n != 0 {
		b.Errorf("%d pods of it are bound", n)
	}
	b.gone(b.pod("fill-1"))
	b.wait("the gang runs", func() bool { return b.holding("big") == 8 })
	if on := b.on("big", "nvidia.com/gpu.clique"); !maps.Equal(on, map[string]int{"c1": 8}) {
		b.Errorf("it is in %v", on)
	}
}

// The leader is killed in the middle of binding a gang; the one that waited for
// the lead finishes it.
func testFailover(b *bench) {
	b.eights("n1", "n2")
	c := b.crew()
	for i := range 3 {
		c.add(fmt.Sprintf("g%d", i), 8, 1, map[string]string{runs: "200ms"})
	}
	first := b.scheduler("kube-bound:11|first")
	b.wait("the first leads", func() bool { return b.leader() == "first" })
	second := b.scheduler("|second")
	c.tend()
	first.wait()
	c.finish()
	if l := b.leader(); l != "second" {
		b.Errorf("%q leads", l)
	}
	second.kill()
}

// A leader that is told to end in the middle of its work hands over at once: its lease would last for an hour, so it is
// not the end of that which the other waited for.
func testHandover(b *bench) {
	b.eights("n1", "n2")
	c := b.crew()
	const gangs = 6
	for i := range gangs {
		c.add(fmt.Sprintf("g%d", i), 4, 2, map[string]string{runs: "300ms"})
	}
	first, stop := b.joins("first", time.Hour)
	b.wait("the first leads", first.Ready)
	second, end := b.joins("second", time.Hour)
	defer end()
	c.tend()
	b.wait("some have run", func() bool {
		c.tend()
		return slices.ContainsFunc(c.list, func(t *team) bool { return t.done })
	})
	stop()
	b.wait("the second leads", second.Ready)
	c.finish()
	if c.made != 4*gangs {
		b.Errorf("%d pods were made for %d: some had to leave", c.made, 4*gangs)
	}
}

func (b *bench) leader() string {
	l, err := b.c.CoordinationV1().Leases("default").Get(b.ctx, "muster", metav1.GetOptions{})
	if err != nil || l.Spec.HolderIdentity == nil {
		return ""
	}
	return *l.Spec.HolderIdentity
}

// The API server is killed while gangs are being bound, and comes back: what was
// on its way is tried again or found done.
func testServerDies(b *bench) { b.dies("kube-apiserver") }

// ... and so with etcd.
func testStoreDies(b *bench) { b.dies("etcd") }

func (b *bench) dies(program string) {
	b.eights("n1", "n2", "n3", "n4")
	c := b.crew()
	for i := range 5 {
		c.add(fmt.Sprintf("g%d", i), 8, 2, map[string]string{runs: "500ms"})
	}
	c.tend()
	at, reached := context.WithCancel(b.ctx)
	var n atomic.Int32
	d, stop := b.schedule(func(o *Options) {
		o.Workers = 2
		o.Crash = func(point string) {
			if point == "kube-binding" && n.Add(1) == 11 {
				reached()
			}
		}
	})
	defer stop()
	<-at.Done()
	b.p.Kill(program)
	b.p.Revive(program)
	b.wait("all gangs have run to their end", c.tend)
	if !d.Ready() {
		b.Error("the scheduler gave up")
	}
}
