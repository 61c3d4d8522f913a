package moves

import (
	"testing"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/engine"
	"github.com/muster-gpu/muster/kube/fit"
	"github.com/muster-gpu/muster/kube/nodes"
)

func asking(gpus int) *nodes.Pod {
	p := &nodes.Pod{Request: cluster.Request{GPUs: gpus}, Signature: "any node"}
	p.Obj = &v1.Pod{}
	return p
}

// A place is for pods that ask for the same, as many of each kind, and may be anywhere that the others may.
func TestLike(t *testing.T) {
	r := &Relocation{Spec: &cluster.Job{Tasks: []cluster.TaskSet{{Count: 2, Request: cluster.Request{GPUs: 1}},
		{Count: 1, Request: cluster.Request{GPUs: 4}}}}, Pods: []*nodes.Pod{asking(4), asking(1), asking(1)}}
	with := func(change func(p *nodes.Pod)) []*nodes.Pod {
		p := asking(4)
		change(p)
		return []*nodes.Pod{asking(1), p, asking(1)}
	}
	for name, c := range map[string]struct {
		pods []*nodes.Pod
		want bool
	}{
		"the same":      {with(func(*nodes.Pod) {}), true},
		"fewer":         {[]*nodes.Pod{asking(4), asking(1)}, false},
		"other numbers": {[]*nodes.Pod{asking(4), asking(4), asking(1)}, false},
		"other GPUs":    {with(func(p *nodes.Pod) { p.Request.GPUs = 3 }), false},
		"other nodes":   {with(func(p *nodes.Pod) { p.Signature = "one node" }), false},
		"neighbours":    {with(func(p *nodes.Pod) { p.Needs = []fit.Need{1} }), false},
		"a replica":     {with(func(p *nodes.Pod) { p.Replica.Name = "r" }), false},
	} {
		if r.Like(c.pods) != c.want {
			t.Errorf("%s: %v", name, !c.want)
		}
	}
	if r.Spec.Tasks[0].Count != 2 {
		t.Error("the job was changed")
	}
}

// Of pods that a Job made one that succeeded is not made again.
func TestEnded(t *testing.T) {
	r := &Relocation{Pods: []*nodes.Pod{asking(1), asking(1)}}
	r.Pods[1].Obj.Status.Phase = v1.PodSucceeded
	if r.Ended() {
		t.Error("no Job made it")
	}
	r.Pods[1].Obj.OwnerReferences = []metav1.OwnerReference{{APIVersion: "batch/v1", Kind: "Job",
		Controller: ptr.To(true)}}
	if !r.Ended() {
		t.Error("its Job has what it wanted")
	}
}

func TestNames(t *testing.T) {
	allocs := []engine.Alloc{{Node: 2}, {Node: 0}, {Node: 2}}
	if got := Names(allocs, []string{"a", "b", "c"}); got != "c, a" {
		t.Error(got)
	}
	r := &Relocation{To: "c, a", Until: cluster.Time(90e9)}
	if got := r.Text(); got != "moved to c, a: its place there is kept until 00:01:30 UTC for the pods that its owner makes" {
		t.Error(got)
	}
}
