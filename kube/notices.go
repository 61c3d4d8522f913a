package kube

import (
	"sync"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
)

// A pod is told that it is evicted when its eviction was granted, and not before: a disruption budget may keep it.

// notice is what a pod is told that is evicted.
type notice struct{ kind, event, why string }

// notices are those of pods whose eviction was asked for; workers use them, too.
type notices struct {
	mu      sync.Mutex
	waiting map[types.UID]notice
	delayed map[types.UID]bool // those that were told that a budget keeps them
}

func (l *notices) put(uid types.UID, n notice) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.waiting == nil {
		l.waiting, l.delayed = map[types.UID]notice{}, map[types.UID]bool{}
	}
	l.waiting[uid] = n
}

// take returns what a pod is to be told, once: now that its eviction was granted, or that a budget keeps it for now.
func (l *notices) take(uid types.UID, granted bool) (n notice, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if n, ok = l.waiting[uid]; !ok {
		return n, false
	}
	if granted {
		delete(l.waiting, uid)
		delete(l.delayed, uid)
		return n, true
	}
	if l.delayed[uid] {
		return n, false
	}
	l.delayed[uid] = true
	return n, true
}

// drop forgets a pod that is gone.
func (l *notices) drop(uid types.UID) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.waiting, uid)
	delete(l.delayed, uid)
}

// tellEvicted tells a pod what became of the request for its eviction.
func (d *Driver) tellEvicted(obj *v1.Pod, err error) {
	switch {
	case err == nil:
		if n, ok := d.notices.take(obj.UID, true); ok {
			d.told.event(obj, n.kind, n.event, n.why)
		}
	case apierrors.IsTooManyRequests(err):
		if n, ok := d.notices.take(obj.UID, false); ok {
			d.told.event(obj, v1.EventTypeWarning, "EvictionDelayed", "it is to leave ("+n.why+"), and its disruption budget does not allow that yet: it runs until then")
		}
	case apierrors.IsNotFound(err), apierrors.IsConflict(err):
		d.notices.drop(obj.UID)
	}
}
