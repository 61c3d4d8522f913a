package kube

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/internal/controlplane"
	"github.com/muster-gpu/muster/internal/kubeapi"
	"github.com/muster-gpu/muster/kube/gang"
	"github.com/muster-gpu/muster/kube/retry"
)

// The sizes of BenchmarkCluster: nodes of eight GPUs, two to an NVLink domain;
// pods of one GPU that are there when the scheduler starts, and those that come
// while it runs, so many a second.
const (
	benchNodes, benchPods      = 1000, 5000
	benchLive, benchLiveRate   = 2000, 400
	benchClique, benchGangSize = 2, 8
)

// BenchmarkCluster compares schedulers on a real control plane with nodes of
// KWOK: pods bound per second when all are there at first, the time from a pod's
// creation to its binding while pods are being created, and what scheduler and API
// server use. bare binds to the first fit of whole gangs and does nothing else: the
// ceiling. MUSTER_PEER=name|program|arguments adds another scheduler; {kubeconfig}
// stands for the file.
func BenchmarkCluster(b *testing.B) {
	for _, shape := range []string{"single", "gangs"} {
		for _, s := range contestants(b) {
			if shape == "gangs" && s.name == "kube-scheduler" {
				continue // it knows no gangs unless feature gates are on
			}
			b.Run(shape+"/"+s.name, func(b *testing.B) {
				for range b.N {
					race(b, shape, &s)
				}
			})
		}
	}
}

// contestant is a scheduler that is measured.
type contestant struct {
	name, scheduler string // schedulerName of its pods
	command         func(p *controlplane.Plane) *exec.Cmd
}

func contestants(b *testing.B) []contestant {
	muster := filepath.Join(b.TempDir(), "muster-kube")
	build := exec.Command("go", "build", "-o", muster, "../cmd/muster-kube")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		b.Fatalf("%v: %s", err, out)
	}
	list := []contestant{
		{"bare", "bare", func(p *controlplane.Plane) *exec.Cmd {
			c := exec.Command(os.Args[0], "-test.run=^$")
			c.Env = append(os.Environ(), childVariable+"="+p.Kubeconfig+"|bare")
			return c
		}},
		{"muster", "muster", func(p *controlplane.Plane) *exec.Cmd {
			return exec.Command(muster, "--kubeconfig", p.Kubeconfig, "--leader-elect=false", "--qps", "10000",
				"--listen", "none", "--log-level", "warn")
		}},
		{"kube-scheduler", "default-scheduler", func(p *controlplane.Plane) *exec.Cmd {
			return exec.Command(p.Program("kube-scheduler"), "--kubeconfig", p.Kubeconfig, "--leader-elect=false",
				"--secure-port=0", "--kube-api-qps=10000", "--kube-api-burst=10000")
		}},
	}
	if f := strings.Split(os.Getenv("MUSTER_PEER"), "|"); len(f) == 3 {
		list = append(list, contestant{f[0], f[0], func(p *controlplane.Plane) *exec.Cmd {
			return exec.Command(f[1], strings.Fields(strings.ReplaceAll(f[2], "{kubeconfig}", p.Kubeconfig))...)
		}})
	}
	return list
}

// track is what became of the pods: when they were asked for, and bound.
type track struct {
	mu      sync.Mutex
	created map[string]time.Time
	bound   map[string]time.Time
	node    map[string]string
	more    chan struct{}
}

func follow(b *testing.B, p *controlplane.Plane) *track {
	t := &track{created: map[string]time.Time{}, bound: map[string]time.Time{}, node: map[string]string{},
		more: make(chan struct{}, 1)}
	c, s := p.Client(), &kubeapi.Informers{}
	in := s.Add(kubeapi.Inform(c, c.CoreV1().Pods(v1.NamespaceAll), &v1.Pod{}, nil), func(obj any) (any, error) {
		pod, ok := obj.(*v1.Pod)
		if !ok {
			return obj, nil
		}
		return &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: pod.Namespace, Name: pod.Name,
			ResourceVersion: pod.ResourceVersion}, Spec: v1.PodSpec{NodeName: pod.Spec.NodeName}}, nil
	})
	if _, err := in.AddEventHandler(
		cache.ResourceEventHandlerFuncs{AddFunc: t.saw, UpdateFunc: func(_, obj any) { t.saw(obj) }}); err != nil {
		b.Fatal(err)
	}
	s.Start(b.Context())
	cache.WaitForCacheSync(b.Context().Done(), in.HasSynced)
	return t
}

func (t *track) saw(obj any) {
	p, ok := obj.(*v1.Pod)
	if !ok || p.Spec.NodeName == "" {
		return
	}
	now := time.Now()
	t.mu.Lock()
	defer t.mu.Unlock()
	if _, is := t.bound[p.Name]; !is {
		t.bound[p.Name], t.node[p.Name] = now, p.Spec.NodeName
		select {
		case t.more <- struct{}{}:
		default:
		}
	}
}

// all waits until so many pods are bound.
func (t *track) all(b *testing.B, n int) {
	b.Helper()
	for limit := time.After(10 * time.Minute); ; {
		t.mu.Lock()
		have := len(t.bound)
		t.mu.Unlock()
		if have >= n {
			return
		}
		select {
		case <-t.more:
		case <-limit:
			b.Fatalf("%d of %d pods are bound after ten minutes", have, n)
		}
	}
}

// latencies are the times from creation to binding of the pods of a prefix, sorted.
func (t *track) latencies(prefix string) (list []time.Duration) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for name, at := range t.created {
		if strings.HasPrefix(name, prefix) {
			list = append(list, t.bound[name].Sub(at))
		}
	}
	slices.Sort(list)
	return list
}

// many runs f for 0 to n-1, 32 at a time.
func many(b *testing.B, n int, f func(i int) error) {
	b.Helper()
	work, errs := make(chan int), make(chan error, n)
	var wg sync.WaitGroup
	for range 32 {
		wg.Go(func() {
			for i := range work {
				errs <- f(i)
			}
		})
	}
	for i := range n {
		work <- i
	}
	close(work)
	wg.Wait()
	close(errs)
	for err := range errs {
		if err != nil {
			b.Fatal(err)
		}
	}
}

func makeNodes(b *testing.B, c kubeapi.Interface, n int) {
	many(b, n, func(i int) error {
		node := controlplane.Node(fmt.Sprintf("node-%05d", i), 8,
			map[string]string{"nvidia.com/gpu.clique": fmt.Sprintf("clique-%04d", i/benchClique)})
		_, err := c.CoreV1().Nodes().Create(b.Context(), node, metav1.CreateOptions{})
		return err
	})
	for {
		list, err := c.CoreV1().Nodes().List(b.Context(), metav1.ListOptions{ResourceVersion: "0"})
		if err != nil {
			b.Fatal(err)
		}
		if len(list.Items) == n &&
			!slices.ContainsFunc(list.Items, func(n v1.Node) bool { return unready(&n) }) {
			return
		}
		retry.Pause(b.Context(), 500*time.Millisecond)
	}
}

// pods of a prefix, of one GPU each, single or in gangs that want one NVLink domain.
func benchPod(shape, scheduler, prefix string, i, gpus int) *v1.Pod {
	p := controlplane.Pod(fmt.Sprintf("%s-%06d", prefix, i), gpus, nil)
	if p.Spec.SchedulerName = scheduler; shape == "gangs" {
		p.Labels[LabelGang] = fmt.Sprintf("%s-%05d", prefix, i/benchGangSize)
		p.Annotations[AnnotationSize], p.Annotations[AnnotationWithin] = strconv.Itoa(benchGangSize), "nvlink"
	}
	return p
}

func race(b *testing.B, shape string, s *contestant) {
	p := controlplane.Start(b, controlplane.Options{})
	c := p.Client()
	makeNodes(b, c, benchNodes)
	t := follow(b, p)
	create := func(prefix string, i int) error {
		pod := benchPod(shape, s.scheduler, prefix, i, 1)
		t.mu.Lock()
		t.created[pod.Name] = time.Now()
		t.mu.Unlock()
		_, err := c.CoreV1().Pods("default").Create(b.Context(), pod, metav1.CreateOptions{})
		return err
	}
	many(b, benchPods, func(i int) error { return create("first", i) })
	api := apiServer(b, p.Admin)
	apiBefore := cpuOf(b, api)
	cmd := s.command(p)
	from := time.Now()
	startLogged(b, cmd)
	t.all(b, benchPods)
	took := time.Since(from)
	cpuFirst, apiFirst := cpuOf(b, cmd.Process.Pid), cpuOf(b, api)-apiBefore
	tick := time.NewTicker(time.Second / benchLiveRate)
	var wg sync.WaitGroup
	for i := range benchLive {
		<-tick.C
		wg.Go(func() {
			if err := create("live", i); err != nil {
				b.Error(err)
			}
		})
	}
	wg.Wait()
	t.all(b, benchPods+benchLive)
	memory := peakOf(b, cmd.Process.Pid)
	_ = cmd.Process.Signal(syscall.SIGTERM)
	_ = cmd.Wait()
	live := t.latencies("live")
	b.ReportMetric(float64(benchPods)/took.Seconds(), "pods/s")
	b.ReportMetric(ms(live[len(live)/2]), "p50-ms")
	b.ReportMetric(ms(live[len(live)*99/100]), "p99-ms")
	b.ReportMetric(cpuFirst.Seconds(), "cpu-s")
	b.ReportMetric(apiFirst.Seconds(), "apiserver-cpu-s")
	b.ReportMetric(memory, "MiB")
	b.ReportMetric(0, "ns/op")
	if shape == "gangs" {
		t.whole(b)
	}
}

func ms(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }

// whole checks that the pods of each gang are in one NVLink domain, and no node
// has more of them than GPUs.
func (t *track) whole(b *testing.B) {
	b.Helper()
	domain, on := map[string]int{}, map[string]int{}
	for name, node := range t.node {
		prefix, number, _ := strings.Cut(name, "-")
		i, _ := strconv.Atoi(number)
		n, _ := strconv.Atoi(strings.TrimPrefix(node, "node-"))
		gang := fmt.Sprint(prefix, i/benchGangSize)
		if d, is := domain[gang]; is && d != n/benchClique {
			b.Errorf("gang %s is in two NVLink domains", gang)
		}
		domain[gang] = n / benchClique
		if on[node]++; on[node] > 8 {
			b.Errorf("node %s has more pods than GPUs", node)
		}
	}
}

// apiServer finds the process of the API server at this address.
func apiServer(b *testing.B, admin *rest.Config) int {
	b.Helper()
	u, err := url.Parse(admin.Host)
	if err != nil {
		b.Fatal(err)
	}
	files, _ := filepath.Glob("/proc/[0-9]*/cmdline")
	for _, f := range files {
		text, _ := os.ReadFile(f)
		if strings.Contains(string(text), "kube-apiserver\x00") &&
			strings.Contains(string(text), "--secure-port\x00"+u.Port()+"\x00") {
			pid, _ := strconv.Atoi(filepath.Base(filepath.Dir(f)))
			return pid
		}
	}
	b.Fatal("the API server's process is not found")
	return 0
}

// cpuOf is the processor time that a process used.
func cpuOf(b *testing.B, pid int) time.Duration {
	b.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		b.Fatal(err)
	}
	f := strings.Fields(string(text[bytes.LastIndexByte(text, ')')+2:]))
	user, _ := strconv.Atoi(f[11])
	system, _ := strconv.Atoi(f[12])
	return time.Duration(user+system) * 10 * time.Millisecond // of 100 a second, on Linux
}

// peakOf is the most memory that a process had, in MiB.
func peakOf(b *testing.B, pid int) float64 {
	b.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		b.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(text), "VmHWM:")
	kib, _ := strconv.Atoi(strings.Fields(rest)[0])
	return float64(kib) / 1024
}

// bare is the ceiling: informers, first fit of whole gangs in one NVLink domain,
// 32 workers that bind, nothing else.
func bare(rc *rest.Config) error {
	c, err := kubeapi.New(rc)
	if err != nil {
		return err
	}
	s, pods := &kubeapi.Informers{}, make(chan *v1.Pod, 1<<20)
	nodes := s.Add(kubeapi.Inform(c, c.CoreV1().Nodes(), &v1.Node{}, nil), nil)
	in := s.Add(kubeapi.Inform(c, c.CoreV1().Pods(v1.NamespaceAll), &v1.Pod{}, nil), nil)
	if _, err := in.AddEventHandler(
		cache.ResourceEventHandlerFuncs{AddFunc: func(obj any) {
			if p, ok := obj.(*v1.Pod); ok && p.Spec.SchedulerName == "bare" && p.Spec.NodeName == "" {
				pods <- p
			}
		}}); err != nil {
		return err
	}
	s.Start(context.Background())
	cache.WaitForCacheSync(context.Background().Done(), nodes.HasSynced)
	type place struct{ pod, node string }
	work := make(chan place, 1<<20)
	for range 32 {
		go func() {
			for w := range work {
				_ = c.CoreV1().Pods("default").Bind(context.Background(),
					&v1.Binding{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: w.pod},
						Target: v1.ObjectReference{Kind: "Node", Name: w.node}}, metav1.CreateOptions{})
			}
		}()
	}
	names := nodes.GetStore().ListKeys()
	slices.Sort(names)
	free, gangs := make([]int, len(names)), map[string][]string{}
	for i := range free {
		free[i] = 8
	}
	fit := func(k, group int) int { // the first group of nodes with so many GPUs free
		for i := 0; i < len(free); i += group {
			sum := 0
			for _, n := range free[i:min(i+group, len(free))] {
				sum += n
			}
			if sum >= k {
				return i
			}
		}
		return -1
	}
	for p := range pods {
		members, group := []string{p.Name}, 1
		if label := p.Labels[LabelGang]; label != "" {
			gangs[label] = append(gangs[label], p.Name)
			members, group = gangs[label], benchClique
			if len(members) < benchGangSize {
				continue
			}
		}
		i := fit(len(members), group)
		if i < 0 {
			return errors.New("the cluster is full")
		}
		for _, m := range members {
			for free[i] == 0 {
				i++
			}
			free[i]--
			work <- place{m, names[i]}
		}
	}
	return nil
}

// BenchmarkBacklog is 40,000 GPUs and 100,000 pods that wait for them: how long a
// step of the engine takes, what the scheduler needs of memory, and how long it
// takes to explain why a gang waits.
func BenchmarkBacklog(b *testing.B) {
	for range b.N {
		backlog(b, 5000, 100_000)
	}
}

// stepTimes measures the steps of the engine.
type stepTimes struct {
	noObserver
	mu   sync.Mutex
	took []time.Duration
}

func (s *stepTimes) Stepped(took time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.took = append(s.took, took)
}

func backlog(b *testing.B, nodes, pods int) {
	p := controlplane.Start(b, controlplane.Options{})
	c := p.Client()
	makeNodes(b, c, nodes)
	t := follow(b, p)
	opt := testOptions(p.Client(), slog.New(slog.NewTextHandler(io.Discard, nil)))
	opt.Rules.Policy, opt.Rules.Backfill = "multifactor", ""
	seen := &stepTimes{}
	opt.Observe = seen
	d := New(opt)
	ctx, cancel := context.WithCancel(b.Context())
	done := make(chan error, 1)
	go func() { done <- d.Run(ctx) }()
	many(b, nodes, func(i int) error {
		_, err := c.CoreV1().Pods("default").Create(b.Context(), benchPod("single", "muster", "fill", i, 8),
			metav1.CreateOptions{})
		return err
	})
	t.all(b, nodes)
	many(b, pods, func(i int) error {
		_, err := c.CoreV1().Pods("default").Create(b.Context(), benchPod("gangs", "muster", "wait", i, 1),
			metav1.CreateOptions{})
		return err
	})
	ask := func(f func()) {
		answer := make(chan struct{})
		d.inbox.Put(func() { f(); close(answer) })
		<-answer
	}
	for waits := 0; waits < pods/benchGangSize; {
		ask(func() {
			waits = 0
			for _, g := range d.gangs {
				if g.Phase == gang.Waiting {
					waits++
				}
			}
		})
		retry.Pause(b.Context(), time.Second)
	}
	var why time.Duration
	ask(func() {
		last := d.gangs["gang/default/wait-00000"]
		for _, g := range d.gangs {
			if g.Phase == gang.Waiting && g.Job > last.Job {
				last = g
			}
		}
		from := time.Now()
		if _, text := d.books.Why(last, d.scene(cluster.Time(from.UnixNano()))); text == "" {
			b.Error("nothing is said")
		}
		why = time.Since(from)
	})
	seen.mu.Lock()
	slices.Sort(seen.took)
	b.ReportMetric(ms(seen.took[len(seen.took)/2]), "step-p50-ms")
	b.ReportMetric(ms(seen.took[len(seen.took)*99/100]), "step-p99-ms")
	seen.mu.Unlock()
	b.ReportMetric(ms(why), "explain-ms")
	b.ReportMetric(peakOf(b, os.Getpid()), "MiB")
	b.ReportMetric(0, "ns/op")
	cancel()
	if err := <-done; err != nil {
		b.Error(err)
	}
}

// startLogged starts a program that ends with the test, and returns what it writes.
func startLogged(b *testing.B, cmd *exec.Cmd) *bytes.Buffer {
	b.Helper()
	log := &bytes.Buffer{}
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := cmd.Start(); err != nil {
		b.Fatal(err)
	}
	return log
}
