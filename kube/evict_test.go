package kube

import (
	"errors"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	k8stesting "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/record"

	"github.com/muster-gpu/muster/internal/controlplane"
	"github.com/muster-gpu/muster/internal/fakekube"
	"github.com/muster-gpu/muster/kube/gang"
	"github.com/muster-gpu/muster/kube/notices"
	"github.com/muster-gpu/muster/kube/write"
)

// A pod is made to leave only as it was seen: one that has changed is looked at again before it is asked for
// again. It is told that it was preempted when its eviction is granted, and not before.
func TestDepart(t *testing.T) {
	d, _ := still(t, 1, controlplane.Pod("a", 1, nil))
	p := d.pods[pidOf(d, "a")]
	g := p.Gang
	bound := p.Obj.DeepCopy()
	bound.Spec.NodeName, bound.ResourceVersion = "n0000", "5"
	p.Binding = false
	d.podChanged(bound)
	g.Phase, g.Notice = gang.Stopping, gang.Notice{Kind: v1.EventTypeWarning, Reason: "Preempted", Text: "for a test"}
	var seen []string
	answers := []error{apierrors.NewTooManyRequests("its budget protects it", 1),
		apierrors.NewConflict(v1.Resource("pods"), "a", errors.New("it has changed")), nil}
	client := fakekube.New()
	client.PrependReactor("create", "pods", func(a k8stesting.Action) (bool, runtime.Object, error) {
		c, _ := a.(k8stesting.CreateAction)
		ev, ok := c.GetObject().(*policyv1.Eviction)
		if !ok || ev.DeleteOptions.Preconditions.ResourceVersion == nil ||
			*ev.DeleteOptions.Preconditions.UID != bound.UID {
			t.Errorf("it is not this pod's eviction: %+v", c.GetObject())
			return true, nil, nil
		}
		seen = append(seen, *ev.DeleteOptions.Preconditions.ResourceVersion)
		return true, nil, answers[len(seen)-1]
	})
	events := record.NewFakeRecorder(10)
	d.notices = notices.By(events)
	for len(d.writer.Waiting()) > 0 { // the binding
		<-d.writer.Waiting()
	}
	d.writer = write.New(write.Options{Client: client, Now: time.Now, Log: d.opt.Log, Loop: d.inbox.Put})
	d.evict(g, p)
	(<-d.writer.Waiting())(t.Context())
	if got := <-events.Events; got != "Normal EvictionRefused it is to leave, when its disruption budget allows that: for a test" {
		t.Errorf("while its budget protects it, it is told %q", got)
	}
	again := bound.DeepCopy()
	again.ResourceVersion = "6"
	next := func() {
		t.Helper()
		for deadline := time.Now().Add(time.Minute); len(d.writer.Waiting()) == 0; time.Sleep(time.Millisecond) {
			if time.Now().After(deadline) {
				t.Fatal("it is not asked to leave again")
			}
			d.collect()
			if !p.Leaving {
				d.vacated(g, func(p *gang.Pod) { d.evict(g, p) })
			}
		}
		(<-d.writer.Waiting())(t.Context())
	}
	next() // the API server knows version 6 already
	d.podChanged(again)
	next()
	if got := <-events.Events; got != "Warning Preempted for a test" || len(events.Events) > 0 {
		t.Errorf("when it is granted, it is told %q", got)
	}
	if len(seen) != 3 || seen[0] != "5" || seen[1] != "5" || seen[2] != "6" {
		t.Errorf("its versions were %v", seen)
	}
}
