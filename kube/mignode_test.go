package kube

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"

	"github.com/muster-gpu/muster/internal/controlplane"
	"github.com/muster-gpu/muster/internal/kubeapi"
	"github.com/muster-gpu/muster/kube/kubetest"
	"github.com/muster-gpu/muster/kube/mig"
)

const migConfigLabel, migStateLabel = kubetest.ConfigLabel, kubetest.StateLabel

// migManager is a played mig-manager: it does what NVIDIA's does to a node's labels and, since that restarts the device
// plugin, to what the node offers. It changes no GPU, for there is none.
type migManager struct {
	*bench
	mu     sync.Mutex
	holds  bool              // it waits, in the midst of it
	breaks bool              // it fails
	seen   map[string]string // its label, by node
	todo   map[string]string
	wrote  []string      // node=config, in order
	broken []string      // what it was asked to do to nodes on which pods had GPUs
	again  chan struct{} // something has changed
	stop   func()
}

func (b *bench) migManager() *migManager {
	m := &migManager{bench: b, seen: map[string]string{}, todo: map[string]string{}, again: make(chan struct{}, 1)}
	ctx, cancel := context.WithCancel(b.ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		for ctx.Err() == nil {
			m.round(ctx)
			select {
			case <-ctx.Done():
			case <-m.again:
			}
		}
	}()
	followed := b.follow(ctx, kubeapi.Inform(b.c, b.c.CoreV1().Nodes(), &v1.Node{}, nil), m.again)
	m.stop = sync.OnceFunc(func() {
		cancel()
		<-done
		followed()
	})
	b.Cleanup(m.stop)
	return m
}

func (m *migManager) round(ctx context.Context) {
	list, err := m.c.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
	if err != nil {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	for i := range list.Items {
		n := &list.Items[i]
		want := n.Labels[migConfigLabel]
		if _, met := m.seen[n.Name]; !met {
			m.seen[n.Name] = want // by a writer before
		}
		switch { // it goes by changes of the label: what is written again, is nothing to it
		case want != m.seen[n.Name] && m.breaks:
			m.seen[n.Name] = want
			m.state(ctx, n.Name, "failed")
		case want != m.seen[n.Name]:
			m.seen[n.Name], m.todo[n.Name] = want, want
			m.wrote = append(m.wrote, n.Name+"="+want)
			for _, p := range m.pods() {
				if live(&p) && p.Spec.NodeName == n.Name && len(p.Spec.Containers[0].Resources.Limits) > 0 {
					m.broken = append(m.broken, n.Name+" has "+p.Name)
				}
			}
			m.state(ctx, n.Name, "pending")
			m.offers(ctx, n, nil)
		case !m.holds && m.todo[n.Name] != "":
			m.offers(ctx, n, kubetest.MIGMade[want])
			delete(m.todo, n.Name)
			m.state(ctx, n.Name, "success")
		}
	}
}

func (m *migManager) state(ctx context.Context, node, to string) {
	_, _ = m.c.CoreV1().Nodes().Patch(ctx, node, types.MergePatchType,
		fmt.Appendf(nil, `{"metadata": {"labels": {%q: %q}}}`, migStateLabel, to), metav1.PatchOptions{})
}

// offers has a node's device plugin offer something else.
func (m *migManager) offers(ctx context.Context, n *v1.Node, what map[string]string) {
	list := map[string]any{}
	for name := range n.Status.Capacity {
		if strings.HasPrefix(string(name), "nvidia.com/") {
			list[string(name)] = "0"
		}
	}
	for name, q := range what {
		list[name] = q
	}
	text, err := json.Marshal(map[string]any{"status": map[string]any{"capacity": list, "allocatable": list}})
	if err != nil {
		panic(err)
	}
	_, _ = m.c.CoreV1().Nodes().Patch(ctx, n.Name, types.StrategicMergePatchType, text, metav1.PatchOptions{}, "status")
}

func (m *migManager) set(f func()) {
	m.mu.Lock()
	defer m.mu.Unlock()
	f()
	kubetest.Tell(m.again)
}

// follow tells of changes of objects until the context ends; over waits until it has.
func (b *bench) follow(ctx context.Context, objects cache.SharedIndexInformer, changed chan struct{}) (over func()) {
	b.Helper()
	s := &kubeapi.Informers{}
	look := func(any) { kubetest.Tell(changed) }
	if _, err := s.Add(objects, nil).AddEventHandler(cache.ResourceEventHandlerFuncs{AddFunc: look,
		UpdateFunc: func(_, now any) { look(now) }, DeleteFunc: look}); err != nil {
		b.Fatal(err)
	}
	s.Start(ctx)
	return s.Wait
}

// none fails if a node was changed on which a pod had a GPU.
func (m *migManager) none() {
	m.Helper()
	m.set(func() {
		if len(m.broken) > 0 {
			m.Errorf("partitioned under running pods: %v", m.broken)
		}
	})
}

func (m *migManager) changes() (n int) {
	m.set(func() { n = len(m.wrote) })
	return n
}

// migPool makes nodes of two GPUs that may be partitioned, as a configuration has made them.
func (b *bench) migPool(config string, names ...string) {
	b.Helper()
	for _, name := range names {
		n := controlplane.Node(name, 2,
			map[string]string{"pool": "shared", migConfigLabel: config, migStateLabel: "success",
				"nvidia.com/mig.strategy": "mixed"})
		delete(n.Status.Capacity, "nvidia.com/gpu")
		for r, q := range kubetest.MIGMade[config] {
			n.Status.Capacity[v1.ResourceName(r)] = resource.MustParse(q)
		}
		n.Status.Allocatable = n.Status.Capacity
		if _, err := b.c.CoreV1().Nodes().Create(b.ctx, n, metav1.CreateOptions{}); err != nil {
			b.Fatal(err)
		}
	}
}

func (b *bench) migMap(text string) {
	b.Helper()
	m := &v1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "mig"},
		Data: map[string]string{"config.yaml": text}}
	if _, err := b.c.CoreV1().ConfigMaps("default").Update(b.ctx, m, metav1.UpdateOptions{}); err != nil {
		if _, err = b.c.CoreV1().ConfigMaps("default").Create(b.ctx, m, metav1.CreateOptions{}); err != nil {
			b.Fatal(err)
		}
	}
}

// migRules let nodes of the pool be partitioned for gangs that have waited for half a second.
func migRules(o *Options) {
	o.MIG = []MIG{{Selector: map[string]string{"pool": "shared"}, Space: "default", Map: "mig",
		After: 500 * time.Millisecond, Timeout: time.Minute}}
	o.Labels.Count, o.Labels.Config, o.Labels.State, o.Labels.Strategy = "nvidia.com/gpu.count", migConfigLabel,
		migStateLabel, "nvidia.com/mig.strategy"
}

// migGang is a gang of pods for a slice each.
func migGang(name string, size int, profile string, more map[string]string) (list []*v1.Pod) {
	for _, p := range controlplane.Gang(name, size, 0, more) {
		q := migPod(p.Name, profile, p.Labels)
		q.Annotations = p.Annotations
		list = append(list, q)
	}
	return list
}

// allOn reports whether all pods of a gang are bound to these nodes.
func (b *bench) allOn(gang string, size int, nodes ...string) bool {
	n := 0
	for _, p := range b.pods() {
		if p.Labels[LabelGang] == gang && strings.Contains(" "+strings.Join(nodes, " ")+" ", " "+p.Spec.NodeName+" ") {
			n++
		}
	}
	return n == size
}

// relabel is what a person writes.
func (b *bench) relabel(node, config string) {
	b.Helper()
	if _, err := b.c.CoreV1().Nodes().Patch(b.ctx, node, types.MergePatchType,
		fmt.Appendf(nil, `{"metadata": {"labels": {%q: %q}}}`, migConfigLabel, config),
		metav1.PatchOptions{}); err != nil {
		b.Fatal(err)
	}
}

// migLabels are a node's configuration and how far it is.
func (b *bench) migLabels(name string) (config, step string, cordoned bool) {
	b.Helper()
	n, err := b.c.CoreV1().Nodes().Get(b.ctx, name, metav1.GetOptions{})
	if err != nil {
		b.Fatal(err)
	}
	return n.Labels[migConfigLabel], n.Labels[mig.Label], n.Spec.Unschedulable
}

// waitMIG waits until a node's labels say this configuration and step: they are written after the pods are told, and
// after pods are bound.
func (b *bench) waitMIG(name, config, step string, cordoned bool) {
	b.Helper()
	b.wait(fmt.Sprintf("%s is %s, %q, cordoned %v", name, config, step, cordoned), func() bool {
		c, s, closed := b.migLabels(name)
		return c == config && s == step && closed == cordoned
	})
}

// A gang for slices that no node has waits; an empty node of whole GPUs becomes what it needs, and it starts
// there. What is busy is not touched. When it is over and a gang of whole GPUs waits, the node becomes whole
// again.
func testMIGFollows(b *bench) {
	b.migMap(kubetest.MIGMap)
	b.migPool("all-disabled", "n1", "n2")
	m := b.migManager()
	m.set(func() { m.holds = true })
	busy := controlplane.Pod("busy", 1, nil)
	busy.Spec.NodeSelector = map[string]string{"kubernetes.io/hostname": "n1"}
	b.create(busy)
	d, stop := b.schedule(migRules)
	defer stop()
	b.wait("busy runs", func() bool { return b.pod("busy").Spec.NodeName == "n1" })
	b.create(migGang("ones", 10, "1g.10gb", nil)...)
	b.wait("the gang says what is done for it", func() bool {
		return strings.Contains(condition(b.pod("ones-0")).Message,
			"node n2 is being partitioned as all-1g.10gb for it")
	})
	b.wait("why says so, too", func() bool {
		w := b.whyOf(d, "default/ones")
		return strings.Contains(strings.Join(w.Blockers, "; "),
			"node n2 is being partitioned as all-1g.10gb for it: since")
	})
	b.waitMIG("n2", "all-1g.10gb", mig.Changing, true)
	m.set(func() { m.holds = false })
	b.wait("the gang runs", func() bool { return b.allOn("ones", 10, "n2") })
	b.waitMIG("n2", "all-1g.10gb", "", false)
	b.create(controlplane.Gang("whole", 1, 2, nil)...)
	time.Sleep(3 * time.Second)
	if m.changes() != 1 {
		b.Errorf("%v: busy nodes were changed", m.wrote)
	}
	for _, p := range b.pods() {
		if p.Labels[LabelGang] == "ones" {
			b.gone(&p)
		}
	}
	b.wait("the gang of whole GPUs runs", func() bool { return b.allOn("whole", 1, "n2") })
	b.waitMIG("n2", "all-disabled", "", false)
	m.none()
}

// What could not be done is said, the node is used as it is, and it is not tried there again until a person
// sees to it. A node on which a pod of another scheduler has a GPU is never touched.
func testMIGFails(b *bench) {
	b.migMap(kubetest.MIGMap)
	b.migPool("all-disabled", "n1", "n2")
	foreign := controlplane.Pod("foreign", 1, nil)
	foreign.Spec.SchedulerName, foreign.Spec.NodeName, foreign.Spec.RestartPolicy = "somebody", "n2",
		v1.RestartPolicyAlways
	b.create(foreign)
	m := b.migManager()
	m.set(func() { m.breaks = true })
	d, stop := b.schedule(migRules)
	b.create(migGang("ones", 10, "1g.10gb", nil)...)
	b.wait("the scheduler leads", d.Ready)
	b.wait("why says that it failed", func() bool {
		w := b.whyOf(d, "default/ones")
		return strings.Contains(strings.Join(w.Blockers, "; "),
			"node n1 could not be partitioned as all-1g.10gb for it: mig-manager says failed")
	})
	b.wait("the node is used as it is", func() bool {
		_, step, cordoned := b.migLabels("n1")
		return step == "" && !cordoned
	})
	b.wait("an event says so", func() bool {
		list, err := b.c.CoreV1().Events("default").List(b.ctx, metav1.ListOptions{})
		return err == nil &&
			slices.ContainsFunc(list.Items, func(e v1.Event) bool {
				return e.Reason == "NotPartitioned" && e.InvolvedObject.Name == "n1"
			})
	})
	b.create(controlplane.Pod("whole", 2, nil))
	b.wait("a pod runs there", func() bool { return b.pod("whole").Spec.NodeName == "n1" })
	b.gone(b.pod("whole"))
	stop()
	m.set(func() { m.breaks = false })
	_, stop = b.schedule(migRules) // what failed is known to the next one
	defer stop()
	time.Sleep(3 * time.Second)
	if n := m.changes(); n != 0 {
		b.Errorf("%v: tried again", m.wrote)
	}
	b.relabel("n1", "all-disabled")
	b.wait("after a person saw to it, it is tried again, and done", func() bool { return b.allOn("ones", 10, "n1") })
	b.waitMIG("n2", "all-disabled", "", false) // a pod stays there
	m.none()
}

// What another writer writes holds, and the node is its for as long as a node stays as it is.
func testMIGPerson(b *bench) {
	b.migMap(kubetest.MIGMap)
	b.migPool("all-disabled", "n1")
	m := b.migManager()
	m.set(func() { m.holds = true })
	_, stop := b.schedule(migRules, func(o *Options) { o.MIG[0].Keep = time.Hour })
	defer stop()
	b.create(migGang("ones", 10, "1g.10gb", nil)...)
	b.wait("n1 is being partitioned", func() bool { _, step, _ := b.migLabels("n1"); return step == mig.Changing })
	b.relabel("n1", "someones")
	b.wait("it is left to them", func() bool {
		config, step, cordoned := b.migLabels("n1")
		return config == "someones" && step == "" && !cordoned
	})
	m.set(func() { m.holds = false })
	time.Sleep(3 * time.Second)
	if config, step, _ := b.migLabels("n1"); config != "someones" || step != "" {
		b.Errorf("n1 is %s, %q", config, step)
	}
}

// For a gang that waits for quota, and not for a node, none is changed. Of two that wait for different ones, the first
// in line is served.
func testMIGOrder(b *bench) {
	b.migMap(kubetest.MIGMap)
	b.migPool("all-disabled", "n1")
	m := b.migManager()
	_, stop := b.schedule(migRules, smallQueue(1000))
	defer stop()
	b.create(migGang("bound", 10, "1g.10gb", map[string]string{LabelQueue: "small"})...)
	b.wait("it says why it waits", func() bool { return condition(b.pod("bound-0")).Status == v1.ConditionFalse })
	time.Sleep(3 * time.Second)
	if n := m.changes(); n != 0 {
		b.Errorf("%v for one that waits for quota", m.wrote)
	}
	b.create(controlplane.Pod("holder", 2, nil))
	b.wait("the holder runs", func() bool { return b.pod("holder").Spec.NodeName == "n1" })
	b.create(migGang("threes", 4, "3g.40gb", nil)...)
	time.Sleep(1100 * time.Millisecond) // creation is in whole seconds
	b.create(migGang("ones", 10, "1g.10gb", nil)...)
	b.wait("both say why they wait", func() bool {
		return condition(b.pod("threes-0")).Status == v1.ConditionFalse &&
			condition(b.pod("ones-0")).Status == v1.ConditionFalse
	})
	b.gone(b.pod("holder"))
	b.wait("the first runs", func() bool { return b.allOn("threes", 4, "n1") })
	if !b.allOn("ones", 0, "n1") {
		b.Error("the later one runs, too")
	}
	m.none()
}

// Where no node is empty, one is closed until what is there has ended; a scheduler that comes after goes on with it. If
// none waits for it any more, it is opened.
func testMIGEmptied(b *bench) {
	b.migMap(kubetest.MIGMap)
	b.migPool("all-disabled", "n1")
	m := b.migManager()
	d, stop := b.schedule(migRules)
	b.create(controlplane.Pod("first", 1, nil))
	b.wait("first runs", func() bool { return b.pod("first").Spec.NodeName == "n1" })
	closed := func() bool { _, step, cordoned := b.migLabels("n1"); return step == mig.Closed && cordoned }
	b.create(migGang("ones", 10, "1g.10gb", nil)...)
	b.wait("n1 is closed", closed)
	b.wait("why says so", func() bool {
		text := strings.Join(b.whyOf(d, "default/ones").Blockers, "; ")
		return strings.Contains(text, "node n1 is being partitioned as half for it: closed since") &&
			strings.Contains(text, ", 1 pod still there") ||
			strings.Contains(text, "node n1 is being partitioned as all-1g.10gb for it: closed since") &&
				strings.Contains(text, ", 1 pod still there")
	})
	b.create(controlplane.Pod("late", 1, nil))
	b.wait("a later one waits", func() bool { return condition(b.pod("late")).Status == v1.ConditionFalse })
	for _, p := range b.pods() {
		if p.Labels[LabelGang] == "ones" {
			b.gone(&p)
		}
	}
	b.wait("it is opened when none waits for it", func() bool { return !closed() })
	b.wait("the later one runs", func() bool { return b.pod("late").Spec.NodeName == "n1" })
	b.create(migGang("more", 14, "1g.10gb", nil)...)
	b.wait("n1 is closed again", closed)
	stop()
	b.gone(b.pod("late"))
	_, stop = b.schedule(migRules)
	defer stop()
	time.Sleep(2 * time.Second)
	if n := m.changes(); n != 0 || !closed() {
		b.Errorf("%v, closed %v, and a pod is still there", m.wrote, closed())
	}
	b.gone(b.pod("first"))
	b.wait("the gang runs when the last has ended", func() bool { return b.allOn("more", 14, "n1") })
	m.none()
}

// What is of a lower tier is preempted for it, where all are; what is of the same is not.
func testMIGPreempts(b *bench) {
	b.migMap(kubetest.MIGMap)
	b.migPool("all-disabled", "n1", "n2")
	m := b.migManager()
	_, stop := b.schedule(migRules)
	defer stop()
	equal := controlplane.Pod("equal", 2, nil)
	equal.Spec.NodeSelector = map[string]string{"kubernetes.io/hostname": "n1"}
	low := controlplane.Pod("low", 2, map[string]string{LabelTier: "best-effort"})
	low.Spec.NodeSelector = map[string]string{"kubernetes.io/hostname": "n2"}
	b.create(equal, low)
	b.wait("both run", func() bool {
		return b.pod("equal").Spec.NodeName == "n1" && b.pod("low").Spec.NodeName == "n2"
	})
	b.create(migGang("ones", 14, "1g.10gb", nil)...)
	b.wait("the gang runs instead of the one of a lower tier", func() bool { return b.allOn("ones", 14, "n2") })
	if p := b.pod("equal"); p.Spec.NodeName != "n1" || p.DeletionTimestamp != nil {
		b.Error("one of the same tier had to leave")
	}
	b.waitMIG("n1", "all-disabled", "", false)
	m.none()
}

// A scheduler that dies at any step is followed by one that goes on.
func testMIGKilled(b *bench) {
	b.migMap(kubetest.MIGMap)
	m := b.migManager()
	for i, point := range []string{"kube-mig-" + mig.Closed, "kube-mig-" + mig.Changing, "kube-mig-"} {
		name := fmt.Sprintf("k%d", i)
		b.migPool("all-disabled", name)
		b.create(migGang("g"+name, 14, "1g.10gb", nil)...)
		b.dieAt(point, migRules)
		_, stop := b.schedule(migRules)
		b.wait("the gang runs after "+point, func() bool { return b.allOn("g"+name, 14, name) })
		b.waitMIG(name, "all-1g.10gb", "", false)
		stop()
	}
	if n := m.changes(); n != 3 {
		b.Errorf("%v", m.wrote)
	}
	m.none()
}

// dieAt runs a scheduler that gets as far as a point.
func (b *bench) dieAt(point string, change ...func(*Options)) {
	b.Helper()
	b.dying(point, change...)()
}

// dying starts a scheduler that gets as far as a point; the function that it returns waits for that.
func (b *bench) dying(point string, change ...func(*Options)) (wait func()) {
	died := make(chan struct{})
	var once sync.Once
	ctx, kill := context.WithCancel(b.ctx)
	opt := testOptions(b.p.Client(), slog.New(slog.NewTextHandler(b.log, nil)))
	for _, f := range change {
		f(&opt)
	}
	opt.Crash = func(at string) { // it gets no further
		if at == point {
			once.Do(func() { close(died); kill() })
			<-ctx.Done()
		}
	}
	done := make(chan error, 1)
	go func() { done <- New(opt).Run(ctx) }()
	return func() {
		b.Helper()
		defer kill()
		select {
		case <-died:
		case <-time.After(2 * time.Minute):
			b.Fatalf("it did not come to %s", point)
		}
		if err := <-done; err != nil {
			b.Fatal(err)
		}
	}
}

// TestMIG plays nodes that are partitioned for gangs that wait, on one real API server.
func TestMIG(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.sub("follows", testMIGFollows)
	b.sub("fails", testMIGFails)
	b.sub("person", testMIGPerson)
	b.sub("order", testMIGOrder)
	b.sub("emptied", testMIGEmptied)
	b.sub("preempts", testMIGPreempts)
	b.sub("killed", testMIGKilled)
}
