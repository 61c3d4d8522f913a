package controlplane

import (
	"context"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	k8stesting "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"

	"github.com/muster-gpu/muster/internal/fakekube"
)

// played is a player that is run step by step, and a record of its writes.
func played(t *testing.T, objs ...runtime.Object) (pl *player, wrote func() string) {
	t.Helper()
	c := fakekube.New(objs...)
	pl = &player{client: c, pods: cache.NewIndexer(cache.MetaNamespaceKeyFunc, cache.Indexers{}),
		nodes: cache.NewStore(cache.MetaNamespaceKeyFunc),
		queue: workqueue.NewTypedDelayingQueue[string](), ends: map[types.UID]bool{}}
	t.Cleanup(pl.queue.ShutDown)
	for _, o := range objs {
		var err error
		switch o := o.(type) {
		case *v1.Pod:
			err = pl.pods.Add(o)
		case *v1.Node:
			err = pl.nodes.Add(o)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	return pl, func() string {
		var list []string
		for _, a := range c.Actions() {
			switch a := a.(type) {
			case k8stesting.PatchAction:
				list = append(list, "patch "+string(a.GetPatch()))
			case k8stesting.DeleteAction:
				list = append(list, "delete "+string(*a.GetDeleteOptions().Preconditions.UID))
			}
		}
		c.ClearActions()
		return strings.Join(list, "; ")
	}
}

// Each step of a pod's life is for the pod that was read, and comes when it is due.
func TestPlayer(t *testing.T) {
	pod := func(phase v1.PodPhase, node, run string, leaves bool) *v1.Pod {
		p := Pod("p", 1, nil)
		p.UID, p.ResourceVersion, p.Spec.NodeName, p.Status.Phase = "u", "7", node, phase
		if run != "" {
			p.Annotations[RunFor] = run
		}
		if leaves {
			p.DeletionTimestamp, p.Finalizers = &metav1.Time{Time: time.Now()}, []string{"test.muster.sh/stays"}
		}
		return p
	}
	for name, c := range map[string]struct {
		pod   *v1.Pod
		wrote string // begins with this
		parts string // ... and has this
		later bool   // its end is still to come
	}{
		"bound": {pod(v1.PodPending, "n", "", false), `patch {"metadata":{"resourceVersion":"7","uid":"u"}`,
			`"phase":"Running"`, false},
		"not bound":         {pod(v1.PodPending, "", "", false), "", "", false},
		"on a missing node": {pod(v1.PodPending, "gone", "", false), "", "", false},
		"runs on":           {pod(v1.PodRunning, "n", "", false), "", "", false},
		"is to end later":   {pod(v1.PodRunning, "n", "1h", false), "", "", true},
		"is stopped": {pod(v1.PodRunning, "n", "1h", true),
			`patch {"metadata":{"resourceVersion":"7","uid":"u"}`, `"phase":"Failed"`, false},
		"goes":        {pod(v1.PodFailed, "n", "", true), "delete u", "", false},
		"stays, lost": {pod(v1.PodFailed, "gone", "", true), "", "", false},
	} {
		t.Run(name, func(t *testing.T) {
			pl, wrote := played(t, c.pod, Node("n", 8, nil))
			again := pl.step(t.Context(), "default/p")
			got, later := wrote(), len(pl.ends) > 0
			if !strings.HasPrefix(got, c.wrote) || !strings.Contains(got, c.parts) || c.wrote == "" && got != "" ||
				again > 0 || later != c.later {
				t.Errorf("it wrote %q, ends later: %t, and tries again after %s", got, later, again)
			}
			if !c.later {
				return
			}
			pl.due(c.pod.UID, "default/p")
			key, _ := pl.queue.Get()
			pl.step(t.Context(), key)
			if got = wrote(); !strings.HasPrefix(got, `patch {"metadata":{"resourceVersion":"7","uid":"u"}`) ||
				!strings.Contains(got, `"phase":"Succeeded"`) {
				t.Errorf("at its end it wrote %q", got)
			}
		})
	}
}

// A failed step is retried, unless the pod is gone.
func TestPlayerTriesAgain(t *testing.T) {
	for want, err := range map[time.Duration]error{
		playAgain: apierrors.NewConflict(v1.Resource("pods"), "p", context.DeadlineExceeded),
		0:         apierrors.NewNotFound(v1.Resource("pods"), "p")} {
		p := Pod("p", 1, nil)
		p.UID, p.Spec.NodeName, p.Status.Phase = "u", "n", v1.PodPending
		pl, _ := played(t, p, Node("n", 8, nil))
		pl.client.(*fakekube.Clientset).PrependReactor("patch", "pods",
			func(k8stesting.Action) (bool, runtime.Object, error) { return true, nil, err })
		if got := pl.step(t.Context(), "default/p"); got != want {
			t.Errorf("after %q it looks again after %s, not %s", err, got, want)
		}
	}
}

// The dump lists what is wrong, and the last events.
func TestDump(t *testing.T) {
	ready := Node("n1", 8, nil)
	ready.Status.Conditions = []v1.NodeCondition{{Type: v1.NodeReady, Status: v1.ConditionTrue}}
	objs := []runtime.Object{ready, Node("n2", 8, nil)}
	for name, phase := range map[string]v1.PodPhase{"done": v1.PodSucceeded, "runs": v1.PodRunning,
		"waits": v1.PodPending, "ends": v1.PodRunning} {
		p := Pod(name, 1, nil)
		p.Status.Phase = phase
		switch name {
		case "waits":
			p.Status.Conditions = []v1.PodCondition{
				{Type: v1.PodScheduled, Status: v1.ConditionFalse, Message: "no room"}}
		case "ends":
			p.Annotations[RunFor] = "1s"
		}
		objs = append(objs, p)
	}
	begin := time.Now().Add(-time.Hour)
	for i := range dumpEvents + 2 {
		objs = append(objs, &v1.Event{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: string(rune('z' - i))},
			Reason:        "R" + string(rune('a'+i)),
			LastTimestamp: metav1.NewTime(begin.Add(time.Duration(i) * time.Second))})
	}
	text := Dump(t.Context(), fakekube.New(objs...))
	for _, want := range []string{"2 nodes\nnode n2 is not ready\n4 pods: 1 Pending, 2 Running, 1 Succeeded\n",
		`on "": no room`, "to end after 1s"} {
		if !strings.Contains(text, want) {
			t.Errorf("%q is not in\n%s", want, text)
		}
	}
	for _, no := range []string{"pod default/runs", "pod default/done", "node n1", " Ra ", " Rb "} {
		if strings.Contains(text, no) {
			t.Errorf("%q is in\n%s", no, text)
		}
	}
	if lines := strings.Split(strings.TrimSpace(text), "\n"); len(lines) != 3+2+dumpEvents ||
		!strings.Contains(lines[len(lines)-1], "Rv ") {
		t.Errorf("%d lines\n%s", len(lines), text)
	}
}
