package lead

import (
	"context"
	"errors"
	"log/slog"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/muster-gpu/muster/internal/kubeapi"
)

// election is what one scheduler does in the election of a leader. A Lease object has the name of the leader, which
// leads until it has not renewed the lease for its length. That is counted from when the others saw the last renewal,
// so clocks need not agree; and of two that write at once the API server refuses the later. The rules are those of
// client-go's leaderelection, which cannot be used without the clients and informers of all groups of the API.
type election struct {
	leases         kubeapi.Leases
	name, identity string
	length         time.Duration // whole seconds
	fence          *Fence
	log            *slog.Logger

	seen   *coordinationv1.Lease // as it was read or written last
	since  time.Duration         // when it was first seen so, by the fence's clock
	won    bool
	term   int32  // leaseTransitions with which it was won
	leader string // as it was said last
}

var (
	errHeld = errors.New("another scheduler holds the lease")
	// errTaken keeps a leader that woke late from taking the lease again behind a successor's back: its view of the
	// cluster is from before that one.
	errTaken = errors.New("another scheduler has led since")
)

// win tries until the lease is won; false: the context ended first.
func (e *election) win(ctx context.Context) bool {
	said := ""
	for {
		err := e.try(ctx)
		if err == nil {
			return true
		}
		if said != err.Error() && !errors.Is(err, errHeld) && ctx.Err() == nil {
			said = err.Error()
			e.log.Warn("the lease cannot be taken", "error", err)
		}
		// at random, so that they do not all ask at once
		if !sleep(ctx, wait.Jitter(retry(e.length), 1.2)) {
			return false
		}
	}
}

// keep renews the lease until it is lost, or the context ends.
func (e *election) keep(ctx context.Context) {
	for e.renew(ctx) && sleep(ctx, retry(e.length)) {
	}
}

// renew tries for two thirds of the lease's length.
func (e *election) renew(ctx context.Context) bool {
	patient, cancel := context.WithTimeout(ctx, e.length*2/3)
	defer cancel()
	for {
		err := e.try(patient)
		if err == nil {
			return true
		}
		if errors.Is(err, errTaken) || !sleep(patient, retry(e.length)) {
			if ctx.Err() == nil {
				e.log.Warn("the lease is lost", "error", err)
			}
			return false
		}
	}
}

// try takes the lease, or renews it. That nothing else wrote it since it was seen last, the API server finds out.
func (e *election) try(ctx context.Context) error {
	if e.won && e.holder() == e.identity && e.update(ctx) == nil {
		return nil
	}
	lease, err := e.leases.Get(ctx, e.name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return e.create(ctx)
	case err != nil:
		return err
	}
	e.saw(lease)
	holder := e.holder()
	switch {
	case e.won && (holder != e.identity || transitions(lease) != e.term):
		return errTaken
	case holder != "" && holder != e.identity && e.fence.clock() < e.since+lasts(lease):
		return errHeld
	}
	return e.update(ctx)
}

// holder is whose the lease is; empty: it is free.
func (e *election) holder() string {
	if e.seen == nil || e.seen.Spec.HolderIdentity == nil {
		return ""
	}
	return *e.seen.Spec.HolderIdentity
}

// saw takes note of the lease as it is now.
func (e *election) saw(lease *coordinationv1.Lease) {
	if e.seen == nil || !equality.Semantic.DeepEqual(e.seen.Spec, lease.Spec) {
		e.since = e.fence.clock()
	}
	e.seen = lease
	if holder := e.holder(); holder != e.leader {
		e.leader = holder
		e.log.Info("leader", "identity", holder)
	}
}

// create makes the lease, where there is none. A leader whose lease is gone cannot know whether another has led since.
func (e *election) create(ctx context.Context) error {
	if e.won {
		return errTaken
	}
	lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: e.name}}
	e.fill(lease, 0)
	return e.write(lease, func() (*coordinationv1.Lease, error) {
		return e.leases.Create(ctx, lease, metav1.CreateOptions{})
	})
}

// update writes the lease, as it was seen last, with this scheduler as its holder.
func (e *election) update(ctx context.Context) error {
	lease, term := e.seen.DeepCopy(), transitions(e.seen)
	if e.holder() != e.identity {
		term++
	}
	e.fill(lease, term)
	return e.write(lease, func() (*coordinationv1.Lease, error) {
		return e.leases.Update(ctx, lease, metav1.UpdateOptions{})
	})
}

// fill makes a lease one of this scheduler, renewed now, in a term.
func (e *election) fill(lease *coordinationv1.Lease, term int32) {
	now, seconds := metav1.NowMicro(), int32(e.length/time.Second)
	s := &lease.Spec
	if s.HolderIdentity == nil || *s.HolderIdentity != e.identity {
		s.AcquireTime = &now
	}
	s.HolderIdentity, s.LeaseDurationSeconds, s.RenewTime, s.LeaseTransitions = &e.identity, &seconds, &now, &term
}

// write sends a lease and, if it is accepted, opens the fence for as long as no other can win.
func (e *election) write(lease *coordinationv1.Lease, send func() (*coordinationv1.Lease, error)) error {
	asked := e.fence.clock()
	written, err := send()
	if err != nil {
		return err
	}
	e.won, e.term = true, transitions(lease)
	e.saw(written)
	// Others count from when they see this renewal, which is after it was asked for.
	e.fence.hold(asked + lasts(lease)*9/10)
	return nil
}

func transitions(lease *coordinationv1.Lease) int32 {
	if n := lease.Spec.LeaseTransitions; n != nil {
		return *n
	}
	return 0
}

// lasts is how long a lease lasts without a renewal.
func lasts(lease *coordinationv1.Lease) time.Duration {
	if s := lease.Spec.LeaseDurationSeconds; s != nil {
		return time.Duration(*s) * time.Second
	}
	return 0
}

// sleep waits; false: the context ended first.
func sleep(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-t.C:
		return true
	}
}
