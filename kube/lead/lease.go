// Package lead decides which of several schedulers schedules, and keeps one that may not lead any more from writing.
package lead

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/muster-gpu/muster/internal/kubeapi"
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
	Client          kubeapi.Interface
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
	leading, end := context.WithCancel(ctx)
	defer end()
	lost := make(chan struct{})
	go func() {
		defer close(lost)
		defer end()
		if e := l.election(); e.win(renewing) {
			close(began)
			e.keep(renewing)
		}
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
	err := f(leading)
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

// election is this scheduler's part in the election.
func (l *Lease) election() *election {
	return &election{leases: l.Client.CoordinationV1().Leases(l.Namespace), name: l.Name, identity: l.Identity,
		length: cmp.Or(l.Length, Length), fence: l.Fence, log: l.Log}
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
