package services

import (
	"bytes"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/yaml"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/service"
	"github.com/muster-gpu/muster/serving/llm"
	"github.com/muster-gpu/muster/serving/scale"
)

// TestExample: the example's annotations make one service with two variants.
func TestExample(t *testing.T) {
	data, err := os.ReadFile("../../examples/serving/kubernetes/chat.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var s *service.Service
	variants := map[string]bool{}
	d := yaml.NewYAMLOrJSONDecoder(bytes.NewReader(data), 4096)
	for {
		u := &unstructured.Unstructured{}
		if d.Decode(u) != nil {
			break
		}
		text, annotated := u.GetAnnotations()[Annotation]
		switch {
		case u.GetKind() == "Deployment" && annotated:
			read, err := read(text)
			if err != nil {
				t.Fatal(err)
			}
			s, variants[u.GetName()] = &read, true
		case u.GetKind() == "Deployment":
			variants[u.GetName()] = u.GetAnnotations()[AnnotationVariant] == "chat"
		case u.GetKind() == "HTTPRoute" && text != "chat":
			t.Errorf("the route is of %q", text)
		}
	}
	if s == nil || s.Name != "chat" || len(s.Variants) != 2 || !variants[s.Variants[0].Name] ||
		!variants[s.Variants[1].Name] {
		t.Errorf("%+v, Deployments %v", s, variants)
	}
}

// TestPhasesExample: so do those of the one with phases.
func TestPhasesExample(t *testing.T) {
	data, err := os.ReadFile("../../examples/serving/kubernetes/phases.yaml")
	if err != nil {
		t.Fatal(err)
	}
	d := yaml.NewYAMLOrJSONDecoder(bytes.NewReader(data), 4096)
	first, then := &unstructured.Unstructured{}, &unstructured.Unstructured{}
	for _, u := range []*unstructured.Unstructured{first, then} {
		if err := d.Decode(u); err != nil {
			t.Fatal(err)
		}
	}
	s := begin(nil, &object{}, first.GetAnnotations()[Annotation])
	if s.err != nil || s.variant(first.GetName()) != 0 || s.variant(then.GetName()) != 1 ||
		then.GetAnnotations()[AnnotationVariant] != s.spec.Name {
		t.Errorf("%+v: %v", s.spec, s.err)
	}
}

// TestInOrder: a variant is scaled down once what replaces it is ready; if that takes too long, one by one.
func TestInOrder(t *testing.T) {
	s := &running{spec: service.Service{Variants: []service.Variant{{Name: "a"}, {Name: "b", Startup: time.Minute}}}}
	at := time.Unix(1000, 0)
	for i, c := range []struct {
		after             time.Duration
		have, ready, want [2]int
		waits             time.Duration
		next              [2]int
	}{
		{0, [2]int{5, 0}, [2]int{5, 0}, [2]int{3, 0}, 0, [2]int{3, 0}}, // nothing is replaced
		{0, [2]int{3, 0}, [2]int{3, 0}, [2]int{0, 2}, 0, [2]int{3, 2}},
		{0, [2]int{3, 2}, [2]int{3, 1}, [2]int{0, 2}, 0, [2]int{3, 2}},
		{20 * time.Second, [2]int{3, 2}, [2]int{3, 1}, [2]int{0, 2}, 9 * time.Second, [2]int{3, 2}},
		{20 * time.Second, [2]int{3, 2}, [2]int{3, 1}, [2]int{0, 2}, 29 * time.Second, [2]int{3, 2}},
		{2 * time.Second, [2]int{3, 2}, [2]int{3, 1}, [2]int{0, 2}, 31 * time.Second, [2]int{2, 2}},
		{20 * time.Second, [2]int{2, 2}, [2]int{2, 1}, [2]int{0, 2}, 51 * time.Second, [2]int{2, 2}},
		{4 * time.Minute, [2]int{1, 2}, [2]int{1, 0}, [2]int{0, 2}, time.Hour, [2]int{1, 2}}, // the last that answers
		{0, [2]int{1, 2}, [2]int{1, 2}, [2]int{0, 2}, 0, [2]int{0, 2}},
		{0, [2]int{3, 2}, [2]int{3, 1}, [2]int{0, 2}, 0, [2]int{3, 2}},
		{4 * time.Minute, [2]int{3, 2}, [2]int{3, 1}, [2]int{0, 2}, 0, [2]int{2, 2}}, // it never answers
		{0, [2]int{3, 3}, [2]int{3, 0}, [2]int{0, 2}, 0, [2]int{3, 2}},               // a moment ago it was three
		{0, [2]int{0, 5}, [2]int{0, 1}, [2]int{0, 3}, 0, [2]int{0, 3}},               // what waits is not needed
	} {
		at = at.Add(c.after)
		f := &fleet{have: c.have[:], ready: c.ready[:], waits: []time.Duration{0, c.waits}}
		if got := s.inOrder(f, c.want[:], at); [2]int(got) != c.next {
			t.Errorf("%d: %v, not %v", i, got, c.next)
		}
	}
}

// TestWriter: the last writer of replicas is the one that the API server has; Muster, if it has several.
func TestWriter(t *testing.T) {
	entry := func(by, fields string) metav1.ManagedFieldsEntry {
		return metav1.ManagedFieldsEntry{Manager: by, FieldsV1: &metav1.FieldsV1{Raw: []byte(fields)}}
	}
	const replicas = `{"f:spec":{"f:replicas":{}}}`
	for want, list := range map[string][]metav1.ManagedFieldsEntry{
		"":      {entry("kubectl", `{"f:spec":{"f:paused":{}}}`), entry("x", `nothing`)},
		"argo":  {entry("kubectl", `{"f:spec":{"f:paused":{}}}`), entry("argo", replicas)},
		manager: {entry(manager, replicas), entry("argo", replicas)},
	} {
		if got := writer(list, specReplicas); got != want {
			t.Errorf("%q, not %q", got, want)
		}
	}
}

// TestPhases: variants with phases are for the policy that plans both, and that is for such variants. Where one waits
// for its start, only those of its phase stay for it.
func TestPhases(t *testing.T) {
	text, err := os.ReadFile("../../examples/serving/phases.yaml")
	if err != nil {
		t.Fatal(err)
	}
	s := begin(nil, &object{}, string(text))
	if s.err != nil {
		t.Fatal(s.err)
	}
	other := strings.Replace(string(text), "distserve", "muster", 1)
	if s := begin(nil, &object{}, other); s.err == nil || !strings.Contains(s.err.Error(), "need scaling: distserve") {
		t.Error(s.err)
	}
	plain := strings.ReplaceAll(strings.ReplaceAll(string(text), "phase: prefill", ""), "phase: decode,", "")
	plain = strings.ReplaceAll(plain, "prefill-2, ,", "prefill-2,")
	if s := begin(nil, &object{}, plain); s.err == nil || !strings.Contains(s.err.Error(), "phase: prefill") {
		t.Error(s.err)
	}
	// two variants of each phase; the second one for prompts has no object yet
	s.parts = []*object{{}, nil, {}, {}}
	for _, c := range []struct {
		have []int
		n    int
		want []int
	}{{[]int{0, 0, 0, 0}, 2, []int{1, 0, 1, 0}}, {[]int{0, 0, 3, 0}, 3, []int{1, 0, 2, 0}},
		{[]int{2, 0, 0, 1}, 3, []int{2, 0, 0, 1}}, {[]int{0, 0, 0, 0}, 0, []int{0, 0, 0, 0}}} {
		if got := s.keep(c.have, c.n); !slices.Equal(got, c.want) {
			t.Errorf("%d replicas of %v are %v, not %v", c.n, c.have, got, c.want)
		}
	}
	if lacks := s.withoutPhase(); lacks != "" {
		t.Error(lacks)
	}
	s.parts = []*object{{}, nil, nil, nil}
	if lacks := s.withoutPhase(); lacks != "no object has replicas for decode" {
		t.Error(lacks)
	}
	f := &fleet{have: []int{1, 0, 4, 0}, ready: []int{1, 0, 4, 0}, waits: make([]time.Duration, 4)}
	if got := s.inOrder(f, []int{3, 0, 2, 0}, time.Unix(1000, 0)); !slices.Equal(got, []int{3, 0, 2, 0}) {
		t.Errorf("more for prompts and less for tokens: %v", got)
	}
	if got := s.inOrder(f, []int{1, 0, 0, 2}, time.Unix(1000, 0)); !slices.Equal(got, []int{1, 0, 4, 2}) {
		t.Errorf("another variant for tokens: %v", got)
	}
}

// TestPlanner: a policy that chooses parts of GPUs is refused.
func TestPlanner(t *testing.T) {
	s := begin(nil, &object{}, `
name: parts
latency: 500ms
replicas: {min: 1, max: 6}
scaling: gpulet
variants:
- {name: parts, profile: [{share: 0.5, batch: 1, latency: 150ms}, {batch: 1, latency: 100ms}]}
`)
	if s.err == nil || !strings.Contains(s.err.Error(), "chooses parts of GPUs") {
		t.Error(s.err)
	}
}

// TestServers: a service whose policy lends whole servers has them back where it is known how large they are; of those
// of a model the smallest counts.
func TestServers(t *testing.T) {
	var list []scale.GPUs
	for _, n := range []int{0, 8, 4, 8, 0} {
		list = addServer(list, "H100-80GB", n)
	}
	if list = addServer(list, "T4-16GB", 0); len(list) != 2 || list[0].Server != 4 {
		t.Errorf("%+v", list)
	}
	for text, want := range map[string]bool{"lyra": true, "lyra:unit=1": false, "muster": false} {
		p, err := scale.Elsewhere(text)
		if err != nil {
			t.Fatal(err)
		}
		if scale.LendsServers(p, list[:1]) != want || scale.LendsServers(p, list[1:]) {
			t.Errorf("%s lends whole servers: %v", text, !want)
		}
	}
}

// TestEarlyReturn: what a replica had back before it was known which services lend counts once that is known. The
// scheduler is told when it is, and not again while they stay the same.
func TestEarlyReturn(t *testing.T) {
	r := New(Options{})
	pod := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "p", Labels: map[string]string{"app": "chat"}}}
	o := &object{kind: deployments, version: "v1", selector: "app=chat",
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "chat", UID: "u"}}
	spec := service.Service{Name: "chat", Lend: service.Lend{Within: 5 * time.Second},
		Replicas: service.Replicas{Max: 4}, Variants: []service.Variant{{Request: cluster.Request{GPUs: 2}}}}
	s := &running{object: o, parts: []*object{o}, spec: spec}
	told := 0
	r.Watch(func() { told++ })
	r.Returned(pod, 7*time.Second)
	if name := r.Service(pod); name != "" {
		t.Errorf("it is a replica of %q before that is known", name)
	}
	for range 2 {
		r.lend([]*running{s})
	}
	if l := r.Lending(); told != 1 || len(l) != 1 || l[0].Replicas != 4 || l[0].Replica.GPUs() != 2 || l[0].Servers ||
		l[0].Service != "ns/chat" || r.Service(pod) != "ns/chat" {
		t.Errorf("told %d times: %+v", told, l)
	}
	r.Returned(pod, 3*time.Second)
	if got := r.returns["u"]; got.Number != 2 || got.Late != 1 || got.Longest != 7 || got.took != 10 {
		t.Errorf("%+v", got)
	}
}

// The annotation says in how many stages the pods of a variant compute, as a file does, and is refused likewise.
func TestStages(t *testing.T) {
	const text = `{name: chat, ttft: 2s, tpot: 50ms, replicas: {max: 4}, variants: [{name: v, gpus: 4, pipeline: %d,
  model: {params: 8.03e9, weights: 16.06e9, layers: 32, heads: 32, head_dim: 128}}]}`
	s := begin(nil, &object{}, fmt.Sprintf(text, 2))
	if s.err != nil || s.spec.Variants[0].Parallel() != (llm.Layout{TP: 2, PP: 2}) {
		t.Errorf("%+v: %v", s.spec.Variants, s.err)
	}
	s = begin(nil, &object{}, fmt.Sprintf(text, 3))
	if s.err == nil || !strings.Contains(s.err.Error(), "pipeline: 3 stages do not divide 4 GPUs") {
		t.Errorf("three stages of four GPUs: %v", s.err)
	}
}
