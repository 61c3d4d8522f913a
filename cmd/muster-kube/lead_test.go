package main

import (
	"context"
	"fmt"
	"os/exec"
	"syscall"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/muster-gpu/muster/internal/controlplane"
	"github.com/muster-gpu/muster/internal/shared"
)

// bound waits until a pod, which it makes, is bound, and returns how long that took.
func (s *stage) bound(name string) time.Duration {
	s.Helper()
	begin := time.Now()
	s.create(controlplane.Pod(name, 1, nil))
	s.p.Wait(name+" is bound", func(ctx context.Context) bool {
		p, err := s.c.CoreV1().Pods("default").Get(ctx, name, metav1.GetOptions{})
		return err == nil && p.Spec.NodeName != ""
	})
	return time.Since(begin)
}

// takeLease makes somebody else the holder of the schedulers' lease, for some seconds, and returns who held it.
func (s *stage) takeLease(holder string, seconds int32) (before string) {
	s.Helper()
	s.p.Wait("the lease is "+holder+"'s", func(ctx context.Context) bool {
		leases := s.c.CoordinationV1().Leases("kube-system")
		l, err := leases.Get(ctx, "muster", metav1.GetOptions{})
		if err != nil || l.Spec.HolderIdentity == nil {
			return false
		}
		before = *l.Spec.HolderIdentity
		now, terms := metav1.NowMicro(), *l.Spec.LeaseTransitions+1
		l.Spec.HolderIdentity, l.Spec.LeaseDurationSeconds, l.Spec.LeaseTransitions = &holder, &seconds, &terms
		l.Spec.AcquireTime, l.Spec.RenewTime = &now, &now
		_, err = leases.Update(ctx, l, metav1.UpdateOptions{})
		return err == nil
	})
	return before
}

// TestLoseLead takes the lead from a scheduler that runs, as a successor does: it begins again in its place, as the
// same process, and schedules when it leads again.
func TestLoseLead(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	s.create(controlplane.Node("n1", 8, nil))
	c := exec.Command(programs.Path(s, "muster-kube"), "--kubeconfig", s.p.Kubeconfig,
		"--listen", "none", "--api-listen", "none", "--lease", "2s")
	c.Stderr = s.Output()
	c.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() { done <- c.Wait() }()
	s.bound("first")
	first := s.takeLease("another", 4)
	s.p.Wait("it leads again", func(context.Context) bool { return s.leader() != "another" })
	if now := s.leader(); now == first {
		t.Errorf("%q leads again, as if it had lost nothing", now)
	}
	s.bound("second")
	select {
	case err := <-done:
		t.Fatalf("the scheduler ended: %v", err)
	default:
	}
	if err := c.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if err := <-done; err != nil {
		t.Errorf("told to end, it ended with: %v", err)
	}
}

// TestTakeover kills leaders, one after the other, and says how long nothing was bound. MUSTER_SOAK is how many.
func TestTakeover(t *testing.T) {
	t.Parallel()
	kills := shared.Soaking(t, 2)
	s := newStage(t)
	s.create(controlplane.Node("n1", 1000, nil))
	kill := map[string]func(){}
	for i := range kills + 1 {
		name := fmt.Sprintf("scheduler-%d", i)
		s.env = []string{"POD_NAME=" + name} // is its identity
		kill[name] = s.start("--api-listen", "none")
	}
	s.bound("first")
	var took []time.Duration
	for i := range kills {
		leader := s.leader()
		if kill[leader] == nil {
			t.Fatalf("%q leads", leader)
		}
		kill[leader]()
		delete(kill, leader)
		took = append(took, s.bound(fmt.Sprintf("after-%d", i+1)).Round(10*time.Millisecond))
	}
	t.Logf("a pod made when the leader was killed was bound after %v", took)
}

// leader is who holds the schedulers' lease.
func (s *stage) leader() (name string) {
	s.Helper()
	l, err := s.c.CoordinationV1().Leases("kube-system").Get(s.Context(), "muster", metav1.GetOptions{})
	if err != nil || l.Spec.HolderIdentity == nil {
		s.Fatal(err)
	}
	return *l.Spec.HolderIdentity
}
