package kube

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
	resourceclient "k8s.io/client-go/kubernetes/typed/resource/v1"
)

// given is a claim that is to be reserved for a pod, with these devices.
type given struct {
	claim      *resourceapi.ResourceClaim // as it was last seen
	uid        types.UID
	allocation *resourceapi.AllocationResult
}

// errElsewhere says that somebody else allocated a claim, or made another.
var errElsewhere = errors.New("it is not the claim any more that devices were chosen for")

// reserve writes what was chosen into the claims of a pod, and that they are
// reserved for it. It returns the claims as they are then; an error leaves those
// behind that were written before.
func (d *Driver) reserve(ctx context.Context, obj *v1.Pod, list []given) (done []*resourceapi.ResourceClaim,
	err error) {
	for i := range list {
		d.crash("kube-reserving")
		c, err := d.reserveOne(ctx, obj, &list[i])
		if err != nil {
			return done, fmt.Errorf("resource claim %s: %w", list[i].claim.Name, err)
		}
		done = append(done, c)
		d.crash("kube-reserved")
	}
	return done, nil
}

func (d *Driver) reserveOne(ctx context.Context, obj *v1.Pod, g *given) (*resourceapi.ResourceClaim, error) {
	client, c := d.opt.Client.ResourceV1().ResourceClaims(obj.Namespace), g.claim
	for try := 0; ; try++ {
		now, err := d.write(ctx, client, c.DeepCopy(), obj, g)
		if err == nil || errors.Is(err, errElsewhere) || definite(err) && !apierrors.IsConflict(err) {
			return now, err
		}
		if try+1 == bindTries || !pause(ctx, min(20*time.Millisecond<<try, 10*time.Second)) {
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
func (d *Driver) write(ctx context.Context, client resourceclient.ResourceClaimInterface, c *resourceapi.ResourceClaim,
	obj *v1.Pod, g *given) (_ *resourceapi.ResourceClaim, err error) {
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
		c.Status.Allocation.AllocationTimestamp = &metav1.Time{Time: d.opt.Now()}
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

// takeBack takes back what is reserved for a pod that could not be bound. Its
// claims count as taken until that is done.
func (d *Driver) takeBack(p *pod) {
	obj, list := p.obj, d.given(p)
	d.do(func(ctx context.Context) { d.takeBackNow(ctx, p, obj, list, 0) })
}

func (d *Driver) takeBackNow(ctx context.Context, p *pod, obj *v1.Pod, list []given, try int) {
	var done []*resourceapi.ResourceClaim
	now, err := d.opt.Client.CoreV1().Pods(obj.Namespace).Get(ctx, obj.Name, metav1.GetOptions{})
	switch {
	case err == nil && now.UID == obj.UID && now.Spec.NodeName != "": // it was bound after all
	case err == nil || apierrors.IsNotFound(err):
		d.crash("kube-releasing")
		done, err = d.unreserve(ctx, obj, list)
	}
	if err != nil && !apierrors.IsNotFound(err) {
		if try%10 == 0 && ctx.Err() == nil {
			d.opt.Log.Warn("devices cannot be taken back yet", "pod", obj.Namespace+"/"+obj.Name, "error", err)
		}
		time.AfterFunc(min(100*time.Millisecond<<min(try, 8), 10*time.Second), func() {
			select {
			case d.work <- func(ctx context.Context) { d.takeBackNow(ctx, p, obj, list, try+1) }:
			case <-ctx.Done():
			}
		})
		return
	}
	d.inbox.Put(func() {
		d.reserved(done)
		d.ungrant(p)
	})
}

// unreserve removes a pod from its claims; those that nobody else has are not
// allocated any more.
func (d *Driver) unreserve(ctx context.Context, obj *v1.Pod, list []given) (done []*resourceapi.ResourceClaim,
	err error) {
	client := d.opt.Client.ResourceV1().ResourceClaims(obj.Namespace)
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

// reserved books claims as they were written, before a watch says so.
func (d *Driver) reserved(claims []*resourceapi.ResourceClaim) {
	for _, c := range claims {
		d.claimChanged(c)
	}
}
