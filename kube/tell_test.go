package kube

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	k8stesting "k8s.io/client-go/testing"

	"github.com/muster-gpu/muster/engine"
	"github.com/muster-gpu/muster/internal/controlplane"
	"github.com/muster-gpu/muster/internal/fakekube"
	"github.com/muster-gpu/muster/kube/gang"
	"github.com/muster-gpu/muster/kube/look"
	"github.com/muster-gpu/muster/kube/notices"
)

// patches counts the conditions that are written, by pod.
type patches struct {
	mu   sync.Mutex
	last map[string]string
	n    int
	fail func(pod string, n int) error
}

// listenTo has a driver tell what it has to, and returns what reaches the API server.
func listenTo(t *testing.T, d *Driver) *patches {
	t.Helper()
	p := &patches{last: map[string]string{}}
	client := fakekube.New()
	client.PrependReactor("patch", "pods", func(a k8stesting.Action) (bool, runtime.Object, error) {
		p.mu.Lock()
		defer p.mu.Unlock()
		patch, ok := a.(k8stesting.PatchAction)
		if !ok || patch.GetSubresource() != "status" {
			return true, nil, fmt.Errorf("not a patch of a status")
		}
		p.n++
		if p.fail != nil {
			if err := p.fail(patch.GetName(), p.n); err != nil {
				return true, nil, err
			}
		}
		p.last[patch.GetName()] = string(patch.GetPatch())
		return true, &v1.Pod{}, nil
	})
	d.opt.Tell = client
	d.notices = notices.New(client, "muster")
	ctx, cancel := context.WithCancel(context.Background())
	var done sync.WaitGroup
	done.Go(func() { d.notices.Run(ctx) })
	t.Cleanup(func() {
		cancel()
		done.Wait()
	})
	return p
}

// await waits until so many pods were told.
func (p *patches) await(t *testing.T, what string, want int) {
	t.Helper()
	have := 0
	for deadline := time.Now().Add(time.Minute); time.Now().Before(deadline); time.Sleep(time.Millisecond) {
		p.mu.Lock()
		have = len(p.last)
		p.mu.Unlock()
		if have >= want {
			return
		}
	}
	t.Fatalf("%s: %d pods were told, not %d", what, have, want)
}

// All that wait are told at the first look at them, however many they are, and not again while nothing is new.
func TestTellMany(t *testing.T) {
	var pods []*v1.Pod
	for i := range 600 {
		pods = append(pods, controlplane.Pod(fmt.Sprintf("p%d", i), 1+i%8, nil))
	}
	d, now := still(t, 2, pods...)
	open := 0
	for _, g := range d.gangs {
		if g.Phase == gang.Waiting {
			open++
		}
	}
	if open < 500 {
		t.Fatalf("%d pods wait", open)
	}
	p := listenTo(t, d)
	d.tell(d.clock()) // they are seen to wait
	*now = now.Add(2 * time.Second)
	d.tell(d.clock())
	p.await(t, "after the first look", open)
	p.mu.Lock()
	for name, patch := range p.last {
		if !strings.Contains(patch, "GPU") || !strings.Contains(patch, "Unschedulable") {
			t.Errorf("pod %s is told %s", name, patch)
		}
	}
	p.mu.Unlock()
	*now = now.Add(time.Minute)
	d.tell(d.clock())
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.n != open {
		t.Errorf("%d conditions were written for %d pods", p.n, open)
	}
}

// What a pod waits for stays the same while others come and go that hold it: which these are is told again, in time.
func TestTellHolders(t *testing.T) {
	pods := []*v1.Pod{controlplane.Pod("a", 4, nil), controlplane.Pod("b", 4, nil), controlplane.Pod("big", 8, nil),
		controlplane.Pod("c", 4, nil)}
	d, now := still(t, 1, pods...)
	p := listenTo(t, d)
	big := func() string {
		p.mu.Lock()
		defer p.mu.Unlock()
		return p.last["big"]
	}
	d.tell(d.clock())
	*now = now.Add(2 * time.Second)
	d.tell(d.clock())
	p.await(t, "at first", 2)
	if !strings.Contains(big(), "default/a:") {
		t.Fatalf("the pod that waits is told %s", big())
	}
	d.podGone(pods[0])
	steps(t, d)
	if d.pods[pods[3].UID].Gang.Phase == gang.Waiting {
		t.Fatal("nothing came in the place of what left")
	}
	for range 20 {
		*now = now.Add(30 * time.Second)
		d.tell(d.clock())
	}
	for deadline := time.Now().Add(time.Minute); !strings.Contains(big(), "default/c:"); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("the pod that waits is still told %s", big())
		}
	}
	if strings.Contains(big(), "default/a:") {
		t.Errorf("it is told of one that has left: %s", big())
	}
}

// A gang that was never told comes before any number of others that are only looked at again.
func TestTellFirst(t *testing.T) {
	var pods []*v1.Pod
	for i := range 64 { // no two ask for the same
		pods = append(pods, controlplane.Gang(fmt.Sprintf("old%d", i), 1, 1+i%8,
			map[string]string{LabelQueue: "default", "!" + AnnotationModel: fmt.Sprint("m", i)})...)
	}
	d, now := still(t, 1, append(pods, controlplane.Pod("full", 8, map[string]string{LabelTier: "critical"}))...)
	d.opt.Now = func() time.Time { // as slow as can be
		*now = now.Add(100 * time.Millisecond)
		return *now
	}
	p := listenTo(t, d)
	for n := 0; n < 1000; n++ {
		*now = now.Add(2 * time.Second)
		d.tell(d.clock())
		told := 0
		for _, g := range d.gangs {
			if g.Told.Any() {
				told++
			}
		}
		if told == len(d.gangs)-1 { // all but the one that runs
			break
		}
	}
	p.await(t, "in the end", 64)
	*now = now.Add(5 * time.Minute) // all are due
	late := controlplane.Pod("late", 1, nil)
	late.UID = types.UID("late")
	d.podChanged(late)
	steps(t, d)
	d.tell(d.clock()) // it is seen to wait
	d.pods["late"].Gang.Told.Next = d.clock()
	for _, g := range d.gangs {
		if g.Told.Any() {
			g.Told.Next = 0 // due for longer
		}
	}
	*now = now.Add(2 * time.Second)
	d.tell(d.clock())
	if !d.pods["late"].Gang.Told.Any() {
		t.Error("one that was never told has to wait until others are looked at again")
	}
}

// What could not be written because the pod is another by now is written to that soon after.
func TestTellConflict(t *testing.T) {
	d, now := still(t, 0, controlplane.Pod("a", 1, nil))
	p := listenTo(t, d)
	p.fail = func(pod string, n int) error {
		if n == 1 {
			return apierrors.NewConflict(v1.Resource("pods"), pod, fmt.Errorf("it was changed"))
		}
		return nil
	}
	tried := func() int {
		p.mu.Lock()
		defer p.mu.Unlock()
		return p.n
	}
	d.tell(d.clock())
	*now = now.Add(2 * time.Second)
	d.tell(d.clock())
	for deadline := time.Now().Add(time.Minute); tried() == 0 && time.Now().Before(deadline); {
		time.Sleep(time.Millisecond)
	}
	for deadline := time.Now().Add(time.Minute); len(p.names()) == 0 &&
		time.Now().Before(deadline); time.Sleep(time.Millisecond) {
		d.collect()
		*now = now.Add(2 * time.Second)
		d.tell(d.clock())
	}
	p.await(t, "after a conflict", 1)
}

func (p *patches) names() map[string]string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.last
}

// TestTellAlike: where finding out of one gang takes as long as a look may, all that ask for the same are told
// in that look, too.
func TestTellAlike(t *testing.T) {
	var pods []*v1.Pod
	for i := range 200 {
		pods = append(pods, controlplane.Gang(fmt.Sprintf("alike%d", i), 1, 1,
			map[string]string{LabelQueue: "default"})...)
	}
	d, now := still(t, 1, append(pods, controlplane.Pod("full", 8, map[string]string{LabelTier: "critical"}))...)
	found := look.NewExplanations(d.opt.Now)
	n, shared := 0, 0
	for _, g := range d.gangs {
		if g.Phase != gang.Waiting {
			continue
		}
		n++
		_, known := found.Of(g.Spec, func() engine.Why {
			if n == 2 { // longer than a look may take
				*now = now.Add(time.Second)
			}
			return d.scene(d.clock()).Explain(g)
		})
		if known && n > 2 && !found.Late() {
			shared++
		}
	}
	if n != 200 || shared != 198 {
		t.Errorf("%d of %d gangs that ask for the same are told at once, want 198 of 200", shared, n)
	}
}
