package kube

import (
	"encoding/json"
	"fmt"
	"maps"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	k8stesting "k8s.io/client-go/testing"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/engine"
	"github.com/muster-gpu/muster/internal/controlplane"
	"github.com/muster-gpu/muster/internal/fakekube"
	"github.com/muster-gpu/muster/kube/gang"
	"github.com/muster-gpu/muster/kube/plans"
	"github.com/muster-gpu/muster/kube/terms"
	"github.com/muster-gpu/muster/kube/write"
)

// promising is a service that has what it lent within a time.
type promising struct {
	within  time.Duration
	took    []time.Duration
	lending []cluster.Lender // pods called by their service are its replicas
}

func (p *promising) Within(*v1.Pod) time.Duration { return p.within }

func (p *promising) Lending() []cluster.Lender { return p.lending }

func (p *promising) Service(pod *v1.Pod) string {
	for i := range p.lending {
		if p.lending[i].Service == pod.Labels["app"] {
			return p.lending[i].Service
		}
	}
	return ""
}

func (p *promising) Watch(func()) {}

func (p *promising) Returned(_ *v1.Pod, took time.Duration) { p.took = append(p.took, took) }

// TestReturnOverRestart: how long a replica waited for what was lent is counted from when that was asked back, once,
// also by a scheduler that begins in between; it believes only what a scheduler wrote.
func TestReturnOverRestart(t *testing.T) {
	now := time.Date(2026, 11, 26, 12, 0, 0, 0, time.UTC)
	scheduler := func(obj *v1.Pod) (*Driver, *gang.Gang, *promising, *string) {
		d, _ := still(t, 1, obj)
		var written string
		client := fakekube.New()
		client.PrependReactor("patch", "pods", func(a k8stesting.Action) (bool, runtime.Object, error) {
			patch, _ := a.(k8stesting.PatchAction)
			written = string(patch.GetPatch())
			return true, &v1.Pod{}, nil
		})
		service := &promising{within: 20 * time.Second}
		d.opt.Lenders, d.opt.Seal = service, []byte("key")
		d.opt.Now = func() time.Time { return now }
		d.writer = write.New(write.Options{Client: client, Log: d.opt.Log, Loop: d.inbox.Put}) // without the binding
		return d, d.pods[pidOf(d, "a")].Gang, service, &written
	}
	obj := controlplane.Pod("a", 1, nil)
	d, g, _, written := scheduler(obj)
	leave := &engine.Action{Type: engine.Preempt, Job: cluster.NoJob, For: g.Job, Grace: time.Minute}
	if grace := d.askBack(leave); grace != 18*time.Second {
		t.Errorf("the gang that leaves has %v", grace)
	}
	(<-d.writer.Waiting())(t.Context())
	var patch struct {
		Metadata struct {
			Annotations map[string]string `json:"annotations"`
		} `json:"metadata"`
	}
	if err := json.Unmarshal([]byte(*written), &patch); err != nil {
		t.Fatal(err)
	}
	now = now.Add(5 * time.Second)
	obj = obj.DeepCopy()
	obj.Annotations = patch.Metadata.Annotations
	d, g, service, written := scheduler(obj)
	leave.For = g.Job
	d.askBack(leave) // another one
	now = now.Add(2 * time.Second)
	d.returned(g, now)
	d.returned(g, now)
	if *written != "" || len(service.took) != 1 || service.took[0] != 7*time.Second {
		t.Errorf("%q was written; it took %v", *written, service.took)
	}
	forged := obj.DeepCopy()
	forged.Annotations[terms.AnnotationAsked] = "2026-01-01T00:00:00Z"
	d, g, service, _ = scheduler(forged)
	d.returned(g, now)
	if len(service.took) > 0 {
		t.Errorf("it took %v since what a tenant wrote", service.took)
	}
}

// TestReturnFoundBound: what a replica had back when its scheduler died between binding and its start is counted by the
// next one, from when the replica was bound, and no more by the one after that.
func TestReturnFoundBound(t *testing.T) {
	asked := time.Date(2026, 3, 1, 11, 59, 0, 0, time.UTC)
	key := plans.Key("key")
	obj := controlplane.Pod("a", 1, nil)
	obj.UID = "a-0"
	obj.Spec.NodeName = "n0000"
	plan := plans.Plan{Tasks: []cluster.TaskSet{{Count: 1, Request: cluster.Request{GPUs: 1}}},
		On: []plans.On{{Node: "n0000", Tasks: 1}}}
	obj.Annotations = map[string]string{}
	key.Write(obj.Annotations, obj.UID, terms.AnnotationPlan, plan.Text())
	key.Write(obj.Annotations, obj.UID, terms.AnnotationAsked, asked.Format(time.RFC3339Nano))
	obj.Status.Conditions = []v1.PodCondition{{Type: v1.PodScheduled, Status: v1.ConditionTrue,
		LastTransitionTime: metav1.NewTime(asked.Add(9 * time.Second))}}
	found := func(obj *v1.Pod) (*promising, map[string]string) {
		var written string
		client := fakekube.New()
		client.PrependReactor("patch", "pods", func(a k8stesting.Action) (bool, runtime.Object, error) {
			patch, _ := a.(k8stesting.PatchAction)
			written += string(patch.GetPatch())
			return true, &v1.Pod{}, nil
		})
		service := &promising{within: 20 * time.Second}
		d, _ := stillWith(t, 1, func(opt *Options) {
			opt.Client, opt.Lenders, opt.Seal = client, service, key
		}, obj)
		for len(d.writer.Waiting()) > 0 {
			(<-d.writer.Waiting())(t.Context())
		}
		var change struct {
			Metadata struct{ Annotations map[string]string }
		}
		if written != "" {
			if err := json.Unmarshal([]byte(written), &change); err != nil {
				t.Fatal(err)
			}
		}
		return service, change.Metadata.Annotations
	}
	service, notes := found(obj)
	if len(service.took) != 1 || service.took[0] != 9*time.Second || len(notes) != 2 {
		t.Fatalf("it took %v; %v is written", service.took, notes)
	}
	maps.Copy(obj.Annotations, notes)
	if service, notes = found(obj); len(service.took) != 0 || len(notes) != 0 {
		t.Errorf("what is counted took %v; %v is written", service.took, notes)
	}
}

// TestLenders: what a service lends, pods have that can be evicted at any time, and others wait for what is left
// besides. Replicas count also where it is known only later that they are some.
func TestLenders(t *testing.T) {
	pod := func(name, tier string, gpus int) *v1.Pod {
		return controlplane.Pod(name, gpus, map[string]string{"app": name, terms.LabelTier: tier})
	}
	service := &promising{within: 20 * time.Second}
	d, _ := stillWith(t, 1, func(opt *Options) { opt.Lenders = service }, pod("chat", "critical", 4))
	service.lending = []cluster.Lender{{Service: "chat", Replicas: 2,
		Replica: &cluster.Job{Tasks: []cluster.TaskSet{{Count: 1, Request: cluster.Request{GPUs: 1}}}}}}
	d.lenders = true
	steps(t, d)
	if l := d.eng.Common().Lenders; len(l) != 1 || l[0].Replica.GPUs() != 4 ||
		d.eng.Spec(d.pods[pidOf(d, "chat")].Gang.Job).Service != "chat" {
		t.Fatalf("the engine knows %+v", l)
	}
	more := []*v1.Pod{pod("standard", "standard", 1), pod("lowest", "best-effort", 2), pod("chat", "critical", 4)}
	for i, p := range more {
		p.UID = types.UID(fmt.Sprintf("%s-more-%d", p.Name, i))
		p.Name += "-more"
		d.podChanged(p)
		steps(t, d)
		g := d.pods[p.UID].Gang
		if waits := d.eng.Record(g.Job).State == engine.Pending; waits != (i == 0) {
			t.Errorf("%s: waits %v, %v", p.Name, waits, d.eng.Why(g.Job).Blockers)
		}
	}
}
