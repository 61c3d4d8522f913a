package lead

import (
	"context"
	"errors"
	"log/slog"
	"strconv"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/muster-gpu/muster/internal/kubeapi"
)

// leases is an API server that has one lease, and takes a while of the clock to answer.
type leases struct {
	kubeapi.Leases
	lease *coordinationv1.Lease
	clock *manual
	takes time.Duration
	err   error // to what is written
	n     int
}

var ofLeases = schema.GroupResource{Group: "coordination.k8s.io", Resource: "leases"}

func (s *leases) Get(_ context.Context, name string, _ metav1.GetOptions) (*coordinationv1.Lease, error) {
	if s.lease == nil {
		return nil, apierrors.NewNotFound(ofLeases, name)
	}
	return s.lease.DeepCopy(), nil
}

func (s *leases) Create(_ context.Context, l *coordinationv1.Lease, _ metav1.CreateOptions) (*coordinationv1.Lease,
	error) {
	if s.lease != nil {
		return nil, apierrors.NewAlreadyExists(ofLeases, l.Name)
	}
	return s.put(l)
}

func (s *leases) Update(_ context.Context, l *coordinationv1.Lease, _ metav1.UpdateOptions) (*coordinationv1.Lease,
	error) {
	if s.lease == nil || l.ResourceVersion != s.lease.ResourceVersion {
		return nil, apierrors.NewConflict(ofLeases, l.Name, errors.New("it was written since"))
	}
	return s.put(l)
}

func (s *leases) put(l *coordinationv1.Lease) (*coordinationv1.Lease, error) {
	s.clock.at.Add(int64(s.takes))
	if s.err != nil {
		return nil, s.err
	}
	s.n++
	s.lease = l.DeepCopy()
	s.lease.ResourceVersion, s.lease.UID = strconv.Itoa(s.n), types.UID("lease")
	return s.lease.DeepCopy(), nil
}

// candidate takes part in the election, on a clock that all share.
func candidate(s *leases, identity string) *election {
	return &election{leases: s, name: "muster", identity: identity, length: 10 * time.Second,
		fence: &Fence{clock: s.clock.now}, log: slog.New(slog.DiscardHandler)}
}

// expect tries once.
func expect(t *testing.T, what string, e *election, want error) {
	t.Helper()
	if err := e.try(t.Context()); !errors.Is(err, want) {
		t.Errorf("%s: %v, not %v", what, err, want)
	}
}

// term checks who leads, and in which term.
func term(t *testing.T, s *leases, holder string, n int32) {
	t.Helper()
	if got := s.lease.Spec; *got.HolderIdentity != holder || *got.LeaseTransitions != n {
		t.Errorf("%s leads in term %d, not %s in %d", *got.HolderIdentity, *got.LeaseTransitions, holder, n)
	}
}

// One leads while it renews; another does when it has seen no renewal for the length of the lease, or when the lease
// was given back, or when it has the name of the one that leads.
func TestElection(t *testing.T) {
	clock := &manual{}
	s := &leases{clock: clock}
	a, b := candidate(s, "a"), candidate(s, "b")
	expect(t, "the first", a, nil)
	term(t, s, "a", 0)
	for range 5 {
		expect(t, "while it renews", b, errHeld)
		clock.at.Add(int64(4 * time.Second))
		expect(t, "a renewal", a, nil)
	}
	expect(t, "the last renewal is seen now", b, errHeld)
	clock.at.Add(int64(10*time.Second - 1))
	expect(t, "before the length is over", b, errHeld)
	s.lease.Labels = map[string]string{"changed": "by hand"}
	s.lease.ResourceVersion = "labelled"
	expect(t, "a label is no renewal", b, errHeld)
	clock.at.Add(1)
	expect(t, "when it is over", b, nil)
	term(t, s, "b", 1)
	expect(t, "the former leader", a, errTaken)

	free := ""
	s.lease.Spec.HolderIdentity, s.lease.ResourceVersion = &free, "given back"
	c := candidate(s, "c")
	expect(t, "a lease that is free", c, nil)
	term(t, s, "c", 2)
	expect(t, "c again, as another process", candidate(s, "c"), nil)
	term(t, s, "c", 2)
	s.lease = nil
	expect(t, "a leader whose lease is gone", c, errTaken)
}

// Of two that see the same the API server lets one win.
func TestConflict(t *testing.T) {
	s := &leases{clock: &manual{}}
	a, b := candidate(s, "a"), candidate(s, "b")
	expect(t, "the first", a, nil)
	expect(t, "the other", b, errHeld)
	s.clock.at.Add(int64(10 * time.Second))
	c := candidate(s, "c")
	c.seen, c.since = s.lease.DeepCopy(), 0
	expect(t, "the one that is faster", b, nil)
	if err := c.update(t.Context()); !apierrors.IsConflict(err) || c.won {
		t.Errorf("two lead: %v", err)
	}
	expect(t, "the one that is slower", c, errHeld)
}

// A renewal counts from when it was asked for, however late its answer comes; one that fails opens nothing; and a lease
// that another has held since it was won is not renewed.
func TestRenewal(t *testing.T) {
	clock := &manual{}
	s := &leases{clock: clock, takes: 3 * time.Second}
	clock.at.Store(int64(time.Minute))
	e := candidate(s, "a")
	expect(t, "it wins", e, nil)
	if e.fence.until != time.Minute+9*time.Second {
		t.Errorf("the fence is open until %s", e.fence.until)
	}
	s.err = errors.New("no answer")
	expect(t, "a renewal that fails", e, s.err)
	if e.fence.until != time.Minute+9*time.Second {
		t.Errorf("it opened the fence until %s", e.fence.until)
	}
	s.err = nil
	two, free := int32(2), ""
	s.lease.Spec.LeaseTransitions, s.lease.Spec.HolderIdentity = &two, &free // another had it, and it is free again
	s.lease.ResourceVersion = "of another"
	expect(t, "a renewal after another led", e, errTaken)
	if e.fence.until != time.Minute+9*time.Second {
		t.Errorf("it opened the fence until %s", e.fence.until)
	}
}

// A leader that cannot renew gives up after two thirds of the lease; one that is not chosen goes on asking.
func TestPatience(t *testing.T) {
	s := &leases{clock: &manual{}}
	a, b := candidate(s, "a"), candidate(s, "b")
	a.length, b.length = time.Second, time.Second
	if !a.win(t.Context()) {
		t.Fatal("it does not win")
	}
	waiting, stop := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer stop()
	if b.win(waiting) {
		t.Error("two lead")
	}
	s.err = errors.New("no answer")
	began := time.Now()
	a.keep(t.Context())
	if took := time.Since(began); took < 500*time.Millisecond {
		t.Errorf("it gave up after %s", took)
	}
}
