package kube

import (
	"context"
	"errors"
	"log/slog"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
)

// Lease says who of several schedulers schedules.
type Lease struct {
	Client          kubernetes.Interface
	Namespace, Name string
	Identity        string
	// Length is after what time without a sign of life another may take over; 0:
	// 15 s. A leader that cannot renew stops well before.
	Length time.Duration
	Log    *slog.Logger
}

// errLost ends a scheduler that is not the leader any more.
var errLost = errors.New("another scheduler may lead now: the lease could not be renewed")

// Lead waits until this scheduler leads, then runs f. It returns when f does, or
// when the lead is lost; the context of f has ended by then and f has returned,
// and the lease is given back, so that the next one need not wait.
func (l *Lease) Lead(ctx context.Context, f func(context.Context) error) error {
	if l.Length == 0 {
		l.Length = 15 * time.Second
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	began, ended := make(chan context.Context, 1), make(chan error, 1)
	e, err := leaderelection.NewLeaderElector(leaderelection.LeaderElectionConfig{
		Lock: &resourcelock.LeaseLock{LeaseMeta: metav1.ObjectMeta{Namespace: l.Namespace, Name: l.Name}, Client: l.Client.CoordinationV1(),
			LockConfig: resourcelock.ResourceLockConfig{Identity: l.Identity}},
		LeaseDuration: l.Length, RenewDeadline: l.Length * 2 / 3, RetryPeriod: l.Length / 7,
		Callbacks: leaderelection.LeaderCallbacks{
			OnStartedLeading: func(ctx context.Context) { began <- ctx },
			OnStoppedLeading: func() {},
			OnNewLeader:      func(id string) { l.Log.Info("leader", "identity", id) },
		},
	})
	if err != nil {
		return err
	}
	lost := make(chan struct{})
	leading, stop := context.WithCancel(ctx)
	go func() {
		e.Run(ctx)
		close(lost)
		stop()
	}()
	select {
	case <-lost:
		return ctx.Err()
	case <-began:
	}
	ended <- f(leading)
	select {
	case <-lost:
		if ctx.Err() == nil {
			return errors.Join(errLost, <-ended)
		}
	default:
	}
	cancel()
	<-lost
	release := context.WithoutCancel(ctx)
	release, done := context.WithTimeout(release, 5*time.Second)
	defer done()
	return errors.Join(<-ended, l.release(release))
}

// release gives the lease back.
func (l *Lease) release(ctx context.Context) error {
	lease, err := l.Client.CoordinationV1().Leases(l.Namespace).Get(ctx, l.Name, metav1.GetOptions{})
	if err != nil || lease.Spec.HolderIdentity == nil || *lease.Spec.HolderIdentity != l.Identity {
		return nil // it is not ours to give
	}
	nobody, second := "", int32(1)
	lease.Spec.HolderIdentity, lease.Spec.LeaseDurationSeconds = &nobody, &second
	if _, err := l.Client.CoordinationV1().Leases(l.Namespace).Update(ctx, lease, metav1.UpdateOptions{}); err != nil {
		l.Log.Warn("the lease could not be given back: the next leader waits for its end", "error", err)
	}
	return nil
}
