package kube

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/muster-gpu/muster/internal/kubeapi"
	"github.com/muster-gpu/muster/kube/kubetest"

	batchv1 "k8s.io/api/batch/v1"
	v1 "k8s.io/api/core/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/muster-gpu/muster/config"
	"github.com/muster-gpu/muster/engine"
	"github.com/muster-gpu/muster/internal/controlplane"
	"github.com/muster-gpu/muster/internal/shared"
	"github.com/muster-gpu/muster/kube/gpus"
	"github.com/muster-gpu/muster/kube/lead"
	"github.com/muster-gpu/muster/kube/plans"
)

// childVariable makes the test binary a scheduler that may be killed: the
// kubeconfig, at which crash point it kills itself ("point:3") or stops until
// it is continued ("point:3:stop"), and as who it takes part in the election of
// a leader, where it does.
const childVariable = "MUSTER_TEST_KUBE"

// movesVariable makes it move what it may, all the time.
const movesVariable = "MUSTER_TEST_MOVES"

func TestMain(m *testing.M) {
	text := os.Getenv(childVariable)
	if text == "" {
		shared.Beside(3)
		code := m.Run()
		planes.End()
		os.Exit(code)
	}
	kubeconfig, point, _ := strings.Cut(text, "|")
	point, identity, elect := strings.Cut(point, "|")
	rc, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		panic(err)
	}
	rc.QPS = -1
	if point == "bare" {
		panic(bare(rc))
	}
	fence := lead.NewFence()
	if elect {
		rc.Wrap(fence.Wrap)
	}
	opt := testOptions(kubeapi.Must(rc), slog.New(slog.NewTextHandler(os.Stderr, nil)))
	opt.Workers = 2 // so that it can die between two
	name, count, _ := strings.Cut(point, ":")
	count, stops := strings.CutSuffix(count, ":stop")
	if os.Getenv(movesVariable) != "" {
		opt.Rules.Defrag, opt.Await = &engine.Defrag{Auto: true, Every: 200 * time.Millisecond, PerHour: 1000},
			2*time.Second
	}
	var mu sync.Mutex
	left := 0
	_, _ = fmt.Sscan(count, &left)
	opt.Crash = func(at string) {
		mu.Lock()
		defer mu.Unlock()
		if at == name {
			if left--; left == 0 && stops {
				_ = syscall.Kill(os.Getpid(), syscall.SIGSTOP)
				time.Sleep(10 * time.Millisecond) // it takes effect meanwhile
			} else if left == 0 {
				_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
				select {}
			}
		}
	}
	run := New(opt).Run
	if elect {
		plain, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
		if err != nil {
			panic(err)
		}
		l := &lead.Lease{Client: kubeapi.Must(plain), Namespace: "default", Name: "muster",
			Identity: identity, Length: 3 * time.Second, Fence: fence, Log: opt.Log}
		run = func(ctx context.Context) error {
			for {
				if err := l.Lead(ctx, New(opt).Run); !errors.Is(err, lead.ErrLost) {
					return err
				}
			}
		}
	}
	if err := run(context.Background()); err != nil {
		panic(err)
	}
}

func testOptions(c kubeapi.Interface, log *slog.Logger) Options {
	return Options{Client: c, Tell: c, Scheduler: "muster", GPUs: []string{"nvidia.com/gpu"},
		Drivers: []string{kubetest.Driver}, Now: time.Now, Log: log, TellAfter: 100 * time.Millisecond,
		StatusEvery: 100 * time.Millisecond,
		Labels: Labels{Stated: gpus.Stated{Product: "nvidia.com/gpu.product", Memory: "nvidia.com/gpu.memory",
			Replicas: "nvidia.com/gpu.replicas", Sharing: "nvidia.com/gpu.sharing-strategy",
			Clique: "nvidia.com/gpu.clique"}},
		Rules: config.Rules{Policy: "fifo", Placer: "best-fit", Backfill: "skip",
			Stop: &[3]engine.StopRule{{How: engine.Kill, Grace: time.Second}, {How: engine.Kill, Grace: time.Second},
				{How: engine.Kill, Grace: time.Second}}}}
}

// bench is a cluster with an audit that watches it all the time.
type bench struct {
	*testing.T
	p   *controlplane.Plane
	c   *kubeapi.Clientset
	ctx context.Context
	log io.Writer
	bad *verdicts

	moves bool // processes that schedule move what they may
}

// planes are the control planes of the tests of this package.
var planes controlplane.Planes

// newBench is a cluster with controllers that tests share, one at a time.
func newBench(t *testing.T) *bench {
	return newBenchOn(t, func() *controlplane.Plane { return planes.Take(t, controlplane.Options{Controllers: true}) })
}

// newBenchOn is a cluster on a control plane that the function starts.
func newBenchOn(t *testing.T, start func() *controlplane.Plane) *bench {
	if testing.Short() {
		t.Skip("it needs a control plane")
	}
	b := &bench{T: t, ctx: t.Context(), log: t.Output(), bad: &verdicts{}}
	t.Cleanup(func() { b.bad.sum(t) }) // the first to be asked for comes last
	b.p = start().For(b)
	b.c = b.p.Client()
	return b
}

// under is the bench for a sub-test, whose failures are its own.
func (b *bench) under(t *testing.T) *bench {
	s := *b
	s.T, s.ctx, s.log = t, t.Context(), t.Output()
	s.p = b.p.For(&s)
	return &s
}

// Context is over when the test is, but for what clears up after it.
func (b *bench) Context() context.Context { return b.ctx }

// verdicts are what failed, in a few words: they are said once more when all is
// over, because a cluster leaves so much behind that the end is all one may see.
type verdicts struct {
	mu   sync.Mutex
	list []string
}

const verdictWidth = 300 // characters

func (v *verdicts) add(name, text string) {
	v.mu.Lock()
	defer v.mu.Unlock()
	text = strings.ReplaceAll(text, "\n", " ")
	v.list = append(v.list, name+": "+text[:min(len(text), verdictWidth)])
}

func (v *verdicts) sum(t *testing.T) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if len(v.list) > 0 {
		t.Logf("what failed:\n%s", strings.Join(v.list, "\n"))
	}
}

func (b *bench) Error(args ...any) { b.Helper(); b.Errorf("%s", fmt.Sprint(args...)) }
func (b *bench) Fatal(args ...any) { b.Helper(); b.Fatalf("%s", fmt.Sprint(args...)) }
func (b *bench) Errorf(format string, args ...any) {
	b.Helper()
	b.bad.add(b.Name(), fmt.Sprintf(format, args...))
	b.T.Errorf(format, args...)
}

func (b *bench) Fatalf(format string, args ...any) {
	b.Helper()
	b.bad.add(b.Name(), fmt.Sprintf(format, args...))
	b.T.Fatalf(format, args...)
}

func (b *bench) nodes(gpus int, names ...string) {
	b.Helper()
	for _, n := range names {
		if _, err := b.c.CoreV1().Nodes().Create(b.ctx, controlplane.Node(n, gpus, nil),
			metav1.CreateOptions{}); err != nil {
			b.Fatal(err)
		}
	}
}

func (b *bench) create(pods ...*v1.Pod) {
	b.Helper()
	for _, p := range pods {
		if _, err := b.c.CoreV1().Pods(p.Namespace).Create(b.ctx, p, metav1.CreateOptions{}); err != nil {
			b.Fatal(err)
		}
	}
}

// priorityClass makes a class of priorities, and waits until the API server accepts pods of it: it learns of classes
// from a watch of its own.
func (b *bench) priorityClass(class *schedulingv1.PriorityClass) {
	b.Helper()
	if _, err := b.c.SchedulingV1().PriorityClasses().Create(b.ctx, class, metav1.CreateOptions{}); err != nil {
		b.Fatal(err)
	}
	p := controlplane.Pod("of-a-new-class", 0, nil)
	p.Spec.PriorityClassName = class.Name
	dry := metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}}
	b.wait("pods may be of class "+class.Name, func() bool {
		_, err := b.c.CoreV1().Pods(p.Namespace).Create(b.ctx, p, dry)
		return err == nil
	})
}

func (b *bench) pods() []v1.Pod {
	b.Helper()
	list, err := b.c.CoreV1().Pods("").List(b.ctx, metav1.ListOptions{})
	if err != nil {
		b.Fatal(err)
	}
	return list.Items
}

func (b *bench) pod(name string) *v1.Pod {
	b.Helper()
	p, err := b.c.CoreV1().Pods("default").Get(b.ctx, name, metav1.GetOptions{})
	if err != nil {
		b.Fatal(err)
	}
	return p
}

func (b *bench) wait(what string, so func() bool) {
	b.Helper()
	b.p.Wait(what, func(context.Context) bool { return so() })
}

// schedule runs a scheduler until the function is called that it returns.
func (b *bench) schedule(change ...func(*Options)) (d *Driver, stop func()) {
	opt := testOptions(b.p.Client(), slog.New(slog.NewTextHandler(b.log, &slog.HandlerOptions{Level: slog.LevelDebug})))
	for _, f := range change {
		f(&opt)
	}
	d = New(opt)
	ctx, cancel := context.WithCancel(b.ctx)
	done := make(chan error, 1)
	go func() { done <- d.Run(ctx) }()
	var once sync.Once
	stop = func() {
		once.Do(func() {
			cancel()
			if err := <-done; err != nil {
				b.Errorf("the scheduler ended: %v", err)
			}
		})
	}
	b.Cleanup(stop)
	return d, stop
}

// child runs a scheduler that is a process of its own and kills itself at a
// point, if it comes there; it returns when it is dead.
func (b *bench) child(point string) {
	b.Helper()
	c := exec.Command(os.Args[0], "-test.run=^$")
	c.Env = b.environ(point)
	c.Stderr = b.log
	if err := c.Start(); err != nil {
		b.Fatal(err)
	}
	t := time.AfterFunc(4*time.Minute, func() {
		b.Errorf("the scheduler did not come to %s", point)
		_ = c.Process.Kill()
	})
	defer t.Stop()
	err := c.Wait()
	if ws, ok := c.ProcessState.Sys().(syscall.WaitStatus); !ok || !ws.Signaled() {
		b.Fatalf("the scheduler was to die at %s and ended by itself: %v", point, err)
	}
}

// environ makes a scheduler of a process, with a crash point.
func (b *bench) environ(point string) []string {
	list := append(os.Environ(), childVariable+"="+b.p.Kubeconfig+"|"+point)
	if b.moves {
		list = append(list, movesVariable+"=1")
	}
	return list
}

// live reports whether a pod holds what it asked for.
func live(p *v1.Pod) bool {
	return p.Spec.NodeName != "" && p.Status.Phase != v1.PodSucceeded && p.Status.Phase != v1.PodFailed
}

// audited are the resources of which a node must not give away more than it has.
var audited = []v1.ResourceName{"nvidia.com/gpu", "nvidia.com/gpu.shared"}

// audit looks at the cluster through the API alone: no node is given more GPUs
// than it has, and every gang is bound as a whole, where its plan says, or not
// at all.
func (b *bench) audit() {
	b.Helper()
	nodes, err := b.c.CoreV1().Nodes().List(b.ctx, metav1.ListOptions{})
	if err != nil {
		b.Fatal(err)
	}
	have := map[string]int64{}
	for i := range nodes.Items {
		for _, name := range audited {
			q := nodes.Items[i].Status.Allocatable[name]
			have[nodes.Items[i].Name+" "+string(name)] = q.Value()
		}
	}
	used, gangs, plans := map[string]int64{}, map[string]int{}, map[string]string{}
	pods := b.pods()
	for i := range pods {
		p := &pods[i]
		if !live(p) {
			continue
		}
		for _, name := range audited {
			q := p.Spec.Containers[0].Resources.Limits[name]
			used[p.Spec.NodeName+" "+string(name)] += q.Value()
		}
		if g := p.Labels[LabelGang]; g != "" {
			gangs[g]++
			now := fmt.Sprint(g, " repaired ", repairs1(p.Annotations[AnnotationPlan]))
			if was := plans[now]; was != "" && was != p.Annotations[AnnotationPlan] {
				b.Errorf("gang %s was bound by two plans:\n%s\n%s", g, was, p.Annotations[AnnotationPlan])
			}
			plans[now] = p.Annotations[AnnotationPlan]
			if !strings.Contains(plans[now], `"`+p.Spec.NodeName+`"`) {
				b.Errorf("pod %s is on %s, which its plan does not name: %s", p.Name, p.Spec.NodeName, plans[g])
			}
		}
	}
	b.auditDevices()
	for n, k := range used {
		if k > have[n] {
			b.Errorf("of node %s there are %d, and %d are given away", n, have[n], k)
		}
	}
	for i := range pods {
		if p := &pods[i]; live(p) && p.Labels[LabelGang] != "" {
			if want := p.Annotations[AnnotationSize]; fmt.Sprint(gangs[p.Labels[LabelGang]]) != want {
				b.Errorf("of gang %s %d pods are bound, not %s", p.Labels[LabelGang], gangs[p.Labels[LabelGang]], want)
			}
		}
	}
}

// clear deletes all pods and nodes, and first what would make pods again.
func (b *bench) clear() {
	b.Helper()
	now, background := int64(0), metav1.DeletePropagationBackground
	of := metav1.DeleteOptions{PropagationPolicy: &background}
	if err := b.c.BatchV1().Jobs("default").DeleteCollection(b.ctx, of, metav1.ListOptions{}); err != nil {
		b.Error(err)
	}
	if err := b.c.AppsV1().Deployments("default").DeleteCollection(b.ctx, of, metav1.ListOptions{}); err != nil {
		b.Error(err)
	}
	del := metav1.DeleteOptions{GracePeriodSeconds: &now}
	if err := b.c.CoreV1().Nodes().DeleteCollection(b.ctx, del, metav1.ListOptions{}); err != nil {
		b.Fatal(err)
	}
	b.wait("nothing is left", func() bool {
		spaces := map[string]bool{}
		for _, p := range b.pods() { // one that was made meanwhile, or deleted before its place was known
			spaces[p.Namespace] = true
		}
		for space := range spaces {
			_ = b.c.CoreV1().Pods(space).DeleteCollection(b.ctx, del, metav1.ListOptions{})
		}
		return len(spaces) == 0
	})
	b.clearDevices()
}

func condition(p *v1.Pod) *v1.PodCondition {
	i := slices.IndexFunc(p.Status.Conditions, func(c v1.PodCondition) bool { return c.Type == v1.PodScheduled })
	if i < 0 {
		return &v1.PodCondition{}
	}
	return &p.Status.Conditions[i]
}

// TestKube plays on one real API server, which takes seconds to start. What kills
// that has one of its own, and goes on beside the others: most of it is waiting.
func TestKube(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	var beside sync.WaitGroup
	defer beside.Wait()
	beside.Go(func() {
		t.Run("faults", func(t *testing.T) {
			testFaults(newBenchOn(t, func() *controlplane.Plane { // whose API server and etcd die
				return controlplane.Start(t, controlplane.Options{Controllers: true})
			}))
		})
	})
	for _, c := range []struct {
		name string
		f    func(*bench)
	}{{"driver", testConform}, {"pod", testPod}, {"gangs", testGangs}, {"killed", testKilled}, {"node", testNode},
		{"repair", testRepair}, {"requeue", testRequeue}, {"repair-killed", testRepairKilled}, {"job", testJob},
		{"moldable", testMoldable}, {"preempt", testPreempt}, {"nominate", testNominate},
		{"predicates", testPredicates}, {"neighbours", testNeighbours}, {"slices", testSlices},
		{"replicas", testReplicas}, {"isolation", testIsolation}, {"lead", testLead}, {"queues", testQueues},
		{"owners", testOwners}, {"suspend", testSuspend}, {"ray-served", testRayServed}, {"terms", testTerms},
		{"forbidden", testForbidden}, {"traffic", testTraffic}, {"agent", testAgent},
		{"served", testServed}, {"service", testService},
		{"scenarios", testScenarios}, {"deaths", testDeaths}, {"many", testMany}, {"deadline", testDeadline},
		{"devices", testDevices}, {"devices-gang", testDevicesGang}, {"devices-shared", testDevicesShared},
		{"devices-parts", testDevicesParts}, {"devices-geometry", testDevicesGeometry},
		{"devices-wanted", testDevicesWanted}, {"devices-killed", testDevicesKilled}} {
		b.sub(c.name, c.f)
	}
}

// sub plays a test of its own on the bench, looks at what it leaves, and clears up.
func (b *bench) sub(name string, f func(*bench)) {
	b.Run(name, func(t *testing.T) {
		s := b.under(t)
		defer func() {
			s.ctx = context.Background()
			s.clear()
		}()
		f(s)
		s.audit()
	})
}

// A pod is bound and runs; one that nowhere fits says so, in a condition and in
// an event, and is bound when a node comes that is large enough.
func testPod(b *bench) {
	b.nodes(2, "n1")
	_, stop := b.schedule()
	defer stop()
	b.create(controlplane.Pod("one", 1, nil), controlplane.Pod("large", 4, nil))
	b.wait("pod one runs", func() bool {
		p := b.pod("one")
		return p.Spec.NodeName == "n1" && p.Status.Phase == v1.PodRunning
	})
	if plans.Of(b.pod("one")) == nil {
		b.Error("the pod does not carry its plan")
	}
	b.wait("pod large says why it waits", func() bool {
		c := condition(b.pod("large"))
		return c.Status == v1.ConditionFalse && c.Reason == v1.PodReasonUnschedulable &&
			strings.Contains(c.Message, "4 GPUs")
	})
	b.wait("an event says so, too", func() bool {
		list, err := b.c.CoreV1().Events("default").List(b.ctx, metav1.ListOptions{})
		return err == nil && slices.ContainsFunc(list.Items, func(e v1.Event) bool {
			return e.Reason == "FailedScheduling" && e.InvolvedObject.Name == "large"
		})
	})
	b.nodes(4, "n2")
	b.wait("pod large runs", func() bool { return b.pod("large").Spec.NodeName == "n2" })
}

// Gangs of eight that do not all fit at once: each starts as a whole or not at
// all, and all have their turn.
func testGangs(b *bench) {
	b.nodes(8, "n1", "n2", "n3", "n4")
	_, stop := b.schedule()
	defer stop()
	var names []string
	for i := range 4 {
		name := fmt.Sprintf("g%d", i)
		names = append(names, name)
		b.create(controlplane.Gang(name, 8, 2, map[string]string{"!test.muster.sh/run": "300ms"})...) // 16 of 32 GPUs
	}
	b.create(controlplane.Gang("partial", 8, 1, nil)[:5]...)
	b.wait("all gangs have run", func() bool {
		done := map[string]int{}
		for _, p := range b.pods() {
			if p.Status.Phase == v1.PodSucceeded {
				done[p.Labels[LabelGang]]++
			}
		}
		return !slices.ContainsFunc(names, func(n string) bool { return done[n] != 8 })
	})
	for _, p := range b.pods() {
		if p.Labels[LabelGang] == "partial" && p.Spec.NodeName != "" {
			b.Errorf("pod %s of a gang that is not complete was bound", p.Name)
		}
	}
	b.wait("it says what it lacks", func() bool {
		return strings.Contains(condition(b.pod("partial-0")).Message, "5 of the gang's 8 pods are there")
	})
}

// A scheduler that is killed in the middle of binding gangs is followed by one
// that finishes them: no pod is lost or bound twice, no gang stays in part.
func testKilled(b *bench) {
	b.nodes(8, "n1", "n2", "n3", "n4")
	uid := map[string]string{}
	first, partial := map[string]string{}, 0
	for i, point := range []string{"kube-bound:3", "kube-binding:7", "kube-bound:8", "kube-started:1"} {
		b.create(controlplane.Gang(fmt.Sprintf("k%d", i), 8, 1, nil)...)
		for _, p := range b.pods() {
			if was := uid[p.Name]; was != "" && was != string(p.UID) {
				b.Errorf("pod %s is another than it was", p.Name)
			}
			uid[p.Name] = string(p.UID)
		}
		b.child(point)
		bound := map[string]int{}
		for _, p := range b.pods() {
			if live(&p) {
				bound[p.Labels[LabelGang]]++
			}
		}
		for _, n := range bound {
			if n < 8 {
				partial++
			}
		}
		for _, p := range b.pods() {
			if was := first[p.Name]; was != "" && was != p.Spec.NodeName {
				b.Errorf("pod %s was on %s and is on %q", p.Name, was, p.Spec.NodeName)
			}
			first[p.Name] = p.Spec.NodeName
		}
	}
	if partial == 0 {
		b.Error("no scheduler died in the middle of a gang")
	}
	_, stop := b.schedule()
	defer stop()
	b.wait("all are bound", func() bool {
		return !slices.ContainsFunc(b.pods(), func(p v1.Pod) bool { return p.Spec.NodeName == "" })
	})
	for _, p := range b.pods() {
		if uid[p.Name] != string(p.UID) {
			b.Errorf("pod %s is another than it was", p.Name)
		}
		if was := first[p.Name]; was != "" && was != p.Spec.NodeName {
			b.Errorf("pod %s was on %s and is on %s", p.Name, was, p.Spec.NodeName)
		}
	}
}

// A node that is deleted takes its gang along: all of it leaves, those on other
// nodes, too. What makes it again finds it elsewhere.
func testNode(b *bench) {
	b.nodes(8, "n1", "n2", "n3")
	_, stop := b.schedule()
	defer stop()
	b.create(controlplane.Gang("train", 4, 4, nil)...)
	bound := func() (on []string) {
		for _, p := range b.pods() {
			if live(&p) && p.DeletionTimestamp == nil {
				on = append(on, p.Spec.NodeName)
			}
		}
		slices.Sort(on)
		return on
	}
	b.wait("the gang is bound", func() bool { return len(bound()) == 4 })
	before := bound()
	if before[0] != before[1] || before[2] != before[3] || before[0] == before[3] {
		b.Fatalf("it is on %v; two whole nodes were to be expected", before)
	}
	if err := b.c.CoreV1().Nodes().Delete(b.ctx, before[0], metav1.DeleteOptions{}); err != nil {
		b.Fatal(err)
	}
	b.wait("all of it is gone", func() bool { return len(b.pods()) == 0 })
	b.create(controlplane.Gang("train", 4, 4, nil)...)
	b.wait("it is whole again, and not on the node that is gone", func() bool {
		on := bound()
		return len(on) == 4 && !slices.Contains(on, before[0])
	})
}

// An annotated Job is a gang of as many pods as it runs at a time; one that is
// not is single pods, which run where there is room.
func testJob(b *bench) {
	b.nodes(4, "n1")
	_, stop := b.schedule()
	defer stop()
	four := int32(4)
	job := func(name string, gang string) {
		spec := controlplane.Spec(2)
		spec.RestartPolicy = v1.RestartPolicyNever
		meta := metav1.ObjectMeta{Namespace: "default", Name: name, Annotations: map[string]string{LabelGang: gang}}
		j := &batchv1.Job{ObjectMeta: meta,
			Spec: batchv1.JobSpec{Parallelism: &four, Completions: &four, Template: v1.PodTemplateSpec{Spec: spec,
				ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{"test.muster.sh/run": "300ms"}}}}}
		if _, err := b.c.BatchV1().Jobs("default").Create(b.ctx, j, metav1.CreateOptions{}); err != nil {
			b.Fatal(err)
		}
		b.Cleanup(func() {
			background := metav1.DeletePropagationBackground
			_ = b.c.BatchV1().Jobs("default").Delete(context.Background(), name,
				metav1.DeleteOptions{PropagationPolicy: &background})
		})
	}
	status := func(name string) *batchv1.JobStatus {
		j, err := b.c.BatchV1().Jobs("default").Get(b.ctx, name, metav1.GetOptions{})
		if err != nil {
			b.Fatal(err)
		}
		return &j.Status
	}
	job("whole", "true")
	job("parts", "false")
	b.wait("the Job of single pods is done, two at a time", func() bool { return status("parts").Succeeded == 4 })
	for _, p := range b.pods() {
		if strings.HasPrefix(p.Name, "whole-") && p.Spec.NodeName != "" {
			b.Errorf("pod %s of a gang of 8 GPUs was bound; there are 4", p.Name)
		}
	}
	b.nodes(4, "n2")
	b.wait("the gang is done", func() bool { return status("whole").Succeeded == 4 })
}

// A job of a higher tier takes the place of one of a lower, which is evicted.
func testPreempt(b *bench) {
	b.nodes(4, "n1")
	_, stop := b.schedule()
	defer stop()
	b.create(controlplane.Gang("low", 2, 2, map[string]string{LabelTier: "best-effort"})...)
	b.wait("low runs", func() bool { return live(b.pod("low-0")) && live(b.pod("low-1")) })
	b.create(controlplane.Pod("high", 1, map[string]string{LabelTier: "standard"}))
	b.wait("high runs", func() bool { return live(b.pod("high")) })
	for _, p := range b.pods() {
		if p.Labels[LabelGang] == "low" && live(&p) && p.DeletionTimestamp == nil {
			b.Errorf("%s still runs: a gang leaves as a whole", p.Name)
		}
	}
}

// What selectors, taints, cordons, ports and foreign pods say is respected; what is not
// looked at yet keeps a pod from being bound, and it says so.
func testPredicates(b *bench) {
	b.nodes(8, "n1", "n2", "n3")
	edit := func(name string, f func(*v1.Node)) {
		b.wait("node "+name+" is changed", func() bool {
			n, err := b.c.CoreV1().Nodes().Get(b.ctx, name, metav1.GetOptions{})
			if err != nil {
				b.Fatal(err)
			}
			f(n)
			_, err = b.c.CoreV1().Nodes().Update(b.ctx, n, metav1.UpdateOptions{})
			return err == nil
		})
	}
	edit("n1", func(n *v1.Node) {
		n.Spec.Taints = []v1.Taint{{Key: "only", Value: "vip", Effect: v1.TaintEffectNoSchedule}}
	})
	edit("n2", func(n *v1.Node) { n.Spec.Unschedulable = true })
	foreign := controlplane.Pod("foreign", 6, nil)
	foreign.Spec.SchedulerName, foreign.Spec.NodeName = "other", "n3"
	b.create(foreign)
	_, stop := b.schedule()
	defer stop()
	two, three := controlplane.Pod("two", 2, nil), controlplane.Pod("three", 3, nil)
	vip, hosts := controlplane.Pod("vip", 8, nil), controlplane.Pod("hosts", 0, nil)
	vip.Spec.Tolerations = append(vip.Spec.Tolerations, v1.Toleration{Key: "only", Operator: v1.TolerationOpExists})
	vip.Spec.NodeSelector = map[string]string{"kubernetes.io/hostname": "n1"}
	hosts.Spec.Containers[0].Ports = []v1.ContainerPort{{ContainerPort: 80, HostPort: 80}}
	cpu := controlplane.Pod("cpu", 0, nil)
	cpu.Spec.Containers[0].Resources.Requests[v1.ResourceCPU] = resource.MustParse("95500m")
	b.create(two, vip, hosts)
	b.wait("two is on n3", func() bool { return b.pod("two").Spec.NodeName == "n3" })
	b.wait("vip is on n1", func() bool { return b.pod("vip").Spec.NodeName == "n1" })
	b.wait("hosts is on n3", func() bool { return b.pod("hosts").Spec.NodeName == "n3" })
	ported := controlplane.Pod("ported", 0, nil)
	ported.Spec.Containers[0].Ports = hosts.Spec.Containers[0].Ports
	b.create(ported)
	b.wait("ported says that the port is in use", func() bool {
		return strings.Contains(condition(b.pod("ported")).Message, "host port 80 is in use")
	})
	claims := controlplane.Pod("claims", 1, nil)
	claims.Spec.ResourceClaims = []v1.PodResourceClaim{{Name: "gpu", ResourceClaimName: &claims.Name}}
	b.create(claims)
	b.wait("claims says that its claim is not there", func() bool {
		return strings.Contains(condition(b.pod("claims")).Message, "resource claim claims does not exist")
	})
	b.create(three, cpu)
	b.wait("three and cpu wait", func() bool {
		return condition(b.pod("three")).Status == v1.ConditionFalse &&
			condition(b.pod("cpu")).Status == v1.ConditionFalse
	})
	edit("n2", func(n *v1.Node) { n.Spec.Unschedulable = false })
	b.wait("one of them is on n2", func() bool {
		return b.pod("three").Spec.NodeName == "n2" || b.pod("cpu").Spec.NodeName == "n2"
	})
}

// fenced is a client of an admin that writes only while its scheduler leads.
func (b *bench) fenced(f *lead.Fence) *kubeapi.Clientset {
	rc := rest.CopyConfig(b.p.Admin)
	rc.QPS = -1
	rc.Wrap(f.Wrap)
	return kubeapi.Must(rc)
}

// joins runs a scheduler that waits for the lead, with a lease of this length, until the function is called that it
// returns.
func (b *bench) joins(name string, length time.Duration) (*Driver, func()) {
	log := slog.New(slog.NewTextHandler(b.log, nil))
	fence := lead.NewFence()
	d := New(testOptions(b.fenced(fence), log))
	l := &lead.Lease{Client: b.p.Client(), Namespace: "kube-system", Name: "muster", Identity: name, Length: length,
		Fence: fence, Log: log}
	ctx, cancel := context.WithCancel(b.ctx)
	done := make(chan error, 1)
	go func() { done <- l.Lead(ctx, d.Run) }()
	stop := sync.OnceFunc(func() {
		cancel()
		if err := <-done; err != nil && !errors.Is(err, context.Canceled) {
			b.Error(err)
		}
	})
	b.Cleanup(stop)
	return d, stop
}

// Of two schedulers one leads; when it ends, the other goes on.
func testLead(b *bench) {
	b.nodes(8, "n1")
	a, stopA := b.joins("a", 3*time.Second)
	b.wait("a leads", a.Ready)
	c, stopC := b.joins("c", 3*time.Second)
	defer stopC()
	b.create(controlplane.Pod("one", 1, nil))
	b.wait("one is bound", func() bool { return live(b.pod("one")) })
	if c.Ready() {
		b.Error("two schedulers lead")
	}
	stopA()
	b.wait("c leads", c.Ready)
	b.create(controlplane.Pod("two", 1, nil))
	b.wait("two is bound", func() bool { return live(b.pod("two")) })
}
