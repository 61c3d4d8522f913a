package kube

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"syscall"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/muster-gpu/muster/internal/controlplane"
)

// benchTold is how many pods wait; MUSTER_PODS is another number.
const benchTold = 10_000

// BenchmarkTold measures how long it takes until all pods that wait say why, in the condition that autoscalers read,
// from the start of a scheduler that finds them there. They ask for 1 to 8 GPUs;
// the only node is full.
func BenchmarkTold(b *testing.B) {
	n := benchTold
	if text := os.Getenv("MUSTER_PODS"); text != "" {
		var err error
		if n, err = strconv.Atoi(text); err != nil {
			b.Fatal(err)
		}
	}
	muster := os.Getenv("MUSTER_PROGRAM") // another version, to compare with
	if muster == "" {
		muster = filepath.Join(b.TempDir(), "muster-kube")
		build := exec.Command("go", "build", "-o", muster, "../cmd/muster-kube")
		build.Env = append(os.Environ(), "CGO_ENABLED=0")
		if out, err := build.CombinedOutput(); err != nil {
			b.Fatalf("%v: %s", err, out)
		}
	}
	for range b.N {
		told(b, muster, n)
	}
}

func told(b *testing.B, muster string, n int) {
	p := controlplane.Start(b, controlplane.Options{})
	c := p.Client()
	makeNodes(b, c, 1)
	full := controlplane.Pod("full", 8, map[string]string{LabelTier: "critical"})
	if _, err := c.CoreV1().Pods("default").Create(b.Context(), full, metav1.CreateOptions{}); err != nil {
		b.Fatal(err)
	}
	many(b, n, func(i int) error {
		_, err := c.CoreV1().Pods("default").Create(b.Context(),
			controlplane.Pod(fmt.Sprintf("waits-%06d", i), 1+i%8, nil), metav1.CreateOptions{})
		return err
	})
	w, err := c.CoreV1().Pods("default").Watch(b.Context(), metav1.ListOptions{})
	if err != nil {
		b.Fatal(err)
	}
	defer w.Stop()
	api := apiServer(b, p.Admin)
	before := cpuOf(b, api)
	cmd := exec.Command(muster, "--kubeconfig", p.Kubeconfig, "--leader-elect=false", "--listen", "none", "--log-level",
		"warn")
	from, log := time.Now(), startLogged(b, cmd)
	know := map[string]bool{}
	var half time.Duration
	for limit := time.After(20 * time.Minute); len(know) < n; {
		select {
		case ev, ok := <-w.ResultChan():
			if !ok {
				b.Fatalf("the watch ended when %d pods were told: %s", len(know), log.String())
			}
			if p, ok := ev.Object.(*v1.Pod); ok && condition(p).Reason == v1.PodReasonUnschedulable {
				know[p.Name] = true
			}
			if half == 0 && len(know) >= n/2 {
				half = time.Since(from)
			}
		case <-limit:
			b.Fatalf("%d of %d pods were told", len(know), n)
		}
	}
	took := time.Since(from)
	b.ReportMetric(took.Seconds(), "s")
	b.ReportMetric(half.Seconds(), "half-s")
	b.ReportMetric(float64(n)/took.Seconds(), "pods/s")
	b.ReportMetric(cpuOf(b, cmd.Process.Pid).Seconds(), "cpu-s")
	b.ReportMetric((cpuOf(b, api) - before).Seconds(), "apiserver-cpu-s")
	b.ReportMetric(0, "ns/op")
	_ = cmd.Process.Signal(syscall.SIGTERM)
	_ = cmd.Wait()
}
