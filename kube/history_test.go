package kube

import (
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/retry"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/engine"
	"github.com/muster-gpu/muster/internal/controlplane"
)

// toldHistory is what a scheduler told its history.
type toldHistory struct {
	mu    sync.Mutex
	nodes [][]string
	ended []string
	jobs  []cluster.Job
	did   []time.Duration
}

func (h *toldHistory) Cluster(nodes []cluster.Node, _ []cluster.Queue) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	var list []string
	for _, n := range nodes {
		list = append(list, fmt.Sprintf("%s %dx%s %v", n.Name, n.GPUs, n.Model, n.State))
	}
	h.nodes = append(h.nodes, list)
	return nil
}

func (h *toldHistory) Ended(job *cluster.Job, did time.Duration, reason engine.StopReason, _ cluster.Time) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.ended = append(h.ended, fmt.Sprintf("%s %v", job.Name, reason))
	h.jobs, h.did = append(h.jobs, *job), append(h.did, did)
	return nil
}

func (h *toldHistory) has(ended string) (job cluster.Job, did time.Duration, ok bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if i := slices.Index(h.ended, ended); i >= 0 {
		return h.jobs[i], h.did[i], true
	}
	return job, 0, false
}

// What became of gangs is told to the history: one that was preempted once, with its pods of both times.
func TestHistory(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	h := &toldHistory{}
	d, stop := b.schedule(func(o *Options) { o.History = h })
	defer stop()
	of := b.preempted()
	fails := controlplane.Pod("fails", 1, map[string]string{"!" + AnnotationRunTime: "5m"})
	b.create(saver("a-2", of))
	b.wait("a-2 waits", func() bool { r := b.record(d, "a-2"); return r != nil && r.State == engine.Pending })
	first := b.record(d, "a-2")
	b.finish("big", v1.PodSucceeded)
	b.wait("big has ended", func() bool { _, _, ok := h.has("default/big completed"); return ok })
	b.wait("a-2 has run on", func() bool {
		r := b.record(d, "a-2")
		return r != nil && r.State == engine.Running && time.Since(time.Unix(0, int64(r.Started))) > 2*time.Second
	})
	b.finish("a-2", v1.PodSucceeded)
	b.create(fails)
	b.wait("fails runs", func() bool { return len(b.whereabouts("fails")) == 1 })
	b.wait("it is known to", func() bool { r := b.record(d, "fails"); return r != nil && r.State == engine.Running })
	b.finish("fails", v1.PodFailed)
	b.wait("both have ended", func() bool {
		_, _, one := h.has("default/a-2 completed")
		_, _, two := h.has("default/fails failed")
		return one && two
	})
	job, did, _ := h.has("default/a-2 completed")
	// the clocks of pod and test differ by little
	if did < first.Done+1900*time.Millisecond || job.Submit != first.Spec.Submit || job.Tier != cluster.BestEffort ||
		len(job.Partitions) > 0 || job.NoRequeue || job.Checkpoint.Interval != time.Second || job.GPUs() != 4 {
		b.Errorf("%v after %v: %+v", did, first.Done, job)
	}
	if job, _, _ = h.has("default/fails failed"); job.Estimate != 5*time.Minute {
		b.Errorf("%+v", job)
	}
	if _, _, ok := h.has("default/a-1 preempted"); ok || len(h.ended) != 3 {
		b.Errorf("%v", h.ended)
	}
	b.create(controlplane.Pod("alone", 4, map[string]string{LabelTier: "best-effort"}))
	b.wait("alone runs", func() bool { r := b.record(d, "alone"); return r != nil && r.State == engine.Running })
	b.create(controlplane.Pod("above", 4, map[string]string{LabelTier: "critical"}))
	b.wait("one that is not made again has ended", func() bool {
		_, did, ok := h.has("default/alone preempted")
		return ok && did > 0
	})
	if n := h.nodes[0]; len(h.nodes) != 1 || len(n) > 1 {
		b.Errorf("%v", h.nodes)
	}
}

// finish has a pod come to its end.
func (b *bench) finish(name string, phase v1.PodPhase) {
	b.Helper()
	if err := retry.RetryOnConflict(retry.DefaultRetry, func() error { // its conditions are written, too
		p := b.pod(name)
		p.Status.Phase = phase
		_, err := b.c.CoreV1().Pods("default").UpdateStatus(b.ctx, p, metav1.UpdateOptions{})
		return err
	}); err != nil {
		b.Fatal(err)
	}
}
