package claims

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/muster-gpu/muster/internal/kubeapi"
	"github.com/muster-gpu/muster/kube/retry"
)

// Given is a claim that is to be reserved for a pod, with these devices.
type Given struct {
	claim      *resourceapi.ResourceClaim // as it was last seen
	uid        types.UID
	allocation *resourceapi.AllocationResult
}

// errElsewhere says that another writer allocated a claim, or made another.
var errElsewhere = errors.New("it is not the claim any more that devices were chosen for")

// Writer writes into claims, on any goroutine.
type Writer struct {
	Client kubeapi.Interface
	Now    func() time.Time
	Crash  func(point string) // where a test lets the scheduler die; nil: nowhere
}

func (w Writer) crash(point string) {
	if w.Crash != nil {
		w.Crash(point)
	}
}

// Reserve writes what was chosen into the claims of a pod, and that they are
// reserved for it. It returns the claims as they are then; an error leaves those
// behind that were written before.
func (w Writer) Reserve(ctx context.Context, obj *v1.Pod, list []Given) (done []*resourceapi.ResourceClaim,
	err error) {
	for i := range list {
		w.crash("kube-reserving")
		c, err := w.reserveOne(ctx, obj, &list[i])
		if err != nil {
			return done, fmt.Errorf("resource claim %s: %w", list[i].claim.Name, err)
		}
		done = append(done, c)
		w.crash("kube-reserved")
	}
	return done, nil
}

func (w Writer) reserveOne(ctx context.Context, obj *v1.Pod, g *Given) (*resourceapi.ResourceClaim, error) {
	client, c := w.Client.ResourceV1().ResourceClaims(obj.Namespace), g.claim
	for try := 0; ; try++ {
		now, err := w.write(ctx, client, c.DeepCopy(), obj, g)
		if err == nil || errors.Is(err, errElsewhere) || retry.Definite(err) && !apierrors.IsConflict(err) {
			return now, err
		}
		if try+1 == retry.Tries || !retry.Pause(ctx, min(20*time.Millisecond<<try, 10*time.Second)) {
			return nil, err
		}
		if now, err = client.Get(ctx, g.claim.Name, metav1.GetOptions{}); err == nil {
			c = now
		} else if apierrors.IsNotFound(err) {
			return nil, err
		}
	}
}

// write allocates and reserves a claim in one request, after the finalizer that
// keeps it from going while it is allocated.
func (w Writer) write(ctx context.Context, client kubeapi.ResourceClaims, c *resourceapi.ResourceClaim,
	obj *v1.Pod, g *Given) (_ *resourceapi.ResourceClaim, err error) {
	switch has := c.Status.Allocation; {
	case c.UID != g.uid || c.DeletionTimestamp != nil:
		return nil, errElsewhere
	case has != nil && !equality.Semantic.DeepEqual(has.Devices, g.allocation.Devices):
		return nil, errElsewhere
	case has != nil && reservedFor(c, obj.UID):
		return c, nil
	case has == nil:
		if !slices.Contains(c.Finalizers, resourceapi.Finalizer) {
			c.Finalizers = append(c.Finalizers, resourceapi.Finalizer)
			if c, err = client.Update(ctx, c, metav1.UpdateOptions{}); err != nil {
				return nil, err
			}
		}
		c.Status.Allocation = g.allocation.DeepCopy()
		c.Status.Allocation.AllocationTimestamp = &metav1.Time{Time: w.Now()}
	}
	c.Status.ReservedFor = append(c.Status.ReservedFor,
		resourceapi.ResourceClaimConsumerReference{Resource: "pods", Name: obj.Name, UID: obj.UID})
	return client.UpdateStatus(ctx, c, metav1.UpdateOptions{})
}

func reservedFor(c *resourceapi.ResourceClaim, uid types.UID) bool {
	return slices.ContainsFunc(c.Status.ReservedFor, func(r resourceapi.ResourceClaimConsumerReference) bool {
		return r.UID == uid
	})
}

// Unreserve removes a pod from its claims; those that no other pod has are not
// allocated any more.
func (w Writer) Unreserve(ctx context.Context, obj *v1.Pod, list []Given) (done []*resourceapi.ResourceClaim,
	err error) {
	client := w.Client.ResourceV1().ResourceClaims(obj.Namespace)
	for i := range list {
		c, err := client.Get(ctx, list[i].claim.Name, metav1.GetOptions{})
		switch {
		case apierrors.IsNotFound(err) || err == nil && (c.UID != list[i].uid || !reservedFor(c, obj.UID)):
			continue
		case err != nil:
			return done, err
		}
		c.Status.ReservedFor = slices.DeleteFunc(c.Status.ReservedFor,
			func(r resourceapi.ResourceClaimConsumerReference) bool { return r.UID == obj.UID })
		if len(c.Status.ReservedFor) == 0 {
			c.Status.Allocation, c.Status.Devices = nil, nil
		}
		if c, err = client.UpdateStatus(ctx, c, metav1.UpdateOptions{}); err != nil {
			return done, err
		}
		done = append(done, c)
	}
	return done, nil
}
