// Package lead decides which of several schedulers schedules, and keeps one that may not lead any more from writing.
package lead

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"sync/atomic"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
)

// Length is how long a lease lasts unless told otherwise: a leader that was killed costs no more than this and a
// second. A leader that cannot renew stops after two thirds of it, and the fence closes with its last tenth left, so a
// short lease costs no safety; one that is lost without need costs a listing of the cluster.
const Length = 5 * time.Second

// retry is how often a lease is renewed, and how often the others look whether it is free (they wait up to 2.2 times
// as long, at random).
func retry(length time.Duration) time.Duration { return min(length/10, 500*time.Millisecond) }

// releasePatience is how long giving the lease back may take.
const releasePatience = 5 * time.Second

// Lease says which of several schedulers schedules.
type Lease struct {
	// Client has to be another than the one that the fence stands before, with its own rate limit: what the scheduler
	// writes must not hold up a renewal.
	Client          kubernetes.Interface
	Namespace, Name string
	// Identity must be unique among those that run. One that comes back with the identity of a dead one need not wait
	// for its lease to run out.
	Identity string
	Length   time.Duration // whole seconds; 0: that of the package
	Fence    *Fence        // is opened while this scheduler leads
	Log      *slog.Logger
}

// ErrLost ends a scheduler that is not the leader any more.
var ErrLost = errors.New("another scheduler may lead now: the lease could not be renewed")

// Lead waits until this scheduler leads, then runs f. It returns when f does, or when the lead is lost; the context of
// f has ended by then, f has returned and its writes are answered. At a clean end the lease is given back then, so that
// the next one need not wait.
func (l *Lease) Lead(ctx context.Context, f func(context.Context) error) error {
	l.Fence.reset()
	// the lease is kept until the last write is answered
	renewing, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	began := make(chan struct{})
	e, err := l.elector(func() { close(began) })
	if err != nil {
		return err
	}
	leading, end := context.WithCancel(ctx)
	defer end()
	lost := make(chan struct{})
	go func() {
		e.Run(renewing)
		end()
		close(lost)
	}()
	select {
	case <-ctx.Done():
		stop()
		<-lost
		return errors.Join(ctx.Err(), l.release(ctx)) // it may have been won in this very moment
	case <-lost: // won and lost again
		return ErrLost
	case <-began:
	}
	err = f(leading)
	l.Fence.drain()
	select {
	case <-lost:
		if ctx.Err() == nil {
			return errors.Join(ErrLost, err)
		}
		return err
	default:
	}
	stop()
	<-lost
	return errors.Join(err, l.release(ctx))
}

func (l *Lease) elector(began func()) (*leaderelection.LeaderElector, error) {
	length := cmp.Or(l.Length, Length)
	k := &lock{Interface: &resourcelock.LeaseLock{LeaseMeta: metav1.ObjectMeta{Namespace: l.Namespace, Name: l.Name},
		Client: l.Client.CoordinationV1(), LockConfig: resourcelock.ResourceLockConfig{Identity: l.Identity}},
		fence: l.Fence}
	k.term.Store(noTerm)
	return leaderelection.NewLeaderElector(leaderelection.LeaderElectionConfig{
		Lock: k, LeaseDuration: length, RenewDeadline: length * 2 / 3, RetryPeriod: retry(length),
		Callbacks: leaderelection.LeaderCallbacks{
			OnStartedLeading: func(context.Context) { began() },
			OnStoppedLeading: func() {},
			OnNewLeader:      func(id string) { l.Log.Info("leader", "identity", id) },
		},
	})
}

// release gives the lease back.
func (l *Lease) release(ctx context.Context) error {
	ctx, done := context.WithTimeout(context.WithoutCancel(ctx), releasePatience)
	defer done()
	leases := l.Client.CoordinationV1().Leases(l.Namespace)
	lease, err := leases.Get(ctx, l.Name, metav1.GetOptions{})
	if err != nil || lease.Spec.HolderIdentity == nil || *lease.Spec.HolderIdentity != l.Identity {
		return nil // it is not ours to give
	}
	nobody, second := "", int32(1)
	lease.Spec.HolderIdentity, lease.Spec.LeaseDurationSeconds = &nobody, &second
	if _, err := leases.Update(ctx, lease, metav1.UpdateOptions{}); err != nil {
		l.Log.Warn("the lease could not be given back: the next leader waits for its end", "error", err)
	}
	return nil
}

// lock is the lease as the election writes it. Each renewal opens the fence for as long as no other can win.
type lock struct {
	resourcelock.Interface
	fence *Fence
	term  atomic.Int64 // leaseTransitions with which it was won; noTerm: it was not yet
}

const noTerm = -1

// errTaken keeps a leader that woke late from taking the lease again behind a successor's back: its view of the
// cluster is from before that one.
var errTaken = errors.New("another scheduler has led since")

// Create makes the lease.
func (k *lock) Create(ctx context.Context, r resourcelock.LeaderElectionRecord) error {
	return k.write(ctx, r, k.Interface.Create)
}

// Update renews the lease or takes it over.
func (k *lock) Update(ctx context.Context, r resourcelock.LeaderElectionRecord) error {
	return k.write(ctx, r, k.Interface.Update)
}

func (k *lock) write(ctx context.Context, r resourcelock.LeaderElectionRecord,
	send func(context.Context, resourcelock.LeaderElectionRecord) error) error {
	term := k.term.Load()
	if term != noTerm && term != int64(r.LeaderTransitions) {
		return errTaken
	}
	asked := k.fence.clock()
	if err := send(ctx, r); err != nil {
		return err
	}
	k.term.Store(int64(r.LeaderTransitions))
	// Others count from when they see this renewal, which is after it was asked for.
	length := time.Duration(r.LeaseDurationSeconds) * time.Second
	k.fence.hold(asked + length - length/10)
	return nil
}
