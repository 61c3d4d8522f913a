package mig

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/muster-gpu/muster/kube/kubetest"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/kube/gpus"
)

const configLabel, stateLabel = kubetest.ConfigLabel, kubetest.StateLabel

// mute writes nothing.
type mute struct{}

func (mute) PatchNode(string, []byte, string, func(error))  {}
func (mute) Event(*v1.Node, string, string, string)         {}
func (mute) MapEvent(*v1.ConfigMap, string, string, string) {}

// newRoom is a room with a rule for the pool that these tests have.
func newRoom(t testing.TB) *Room {
	labels := gpus.Labels{Stated: gpus.Stated{Product: "nvidia.com/gpu.product", Memory: "nvidia.com/gpu.memory",
		Replicas: "nvidia.com/gpu.replicas", Count: "nvidia.com/gpu.count", Config: configLabel, State: stateLabel,
		Strategy: "nvidia.com/mig.strategy"}}
	r := New(Options{Scheduler: "muster", Labels: labels, Changed: func() {}, Partitioned: func(string) {},
		GPUs: &gpus.Names{GPUs: []string{"nvidia.com/gpu"}, Labels: labels}, Writer: mute{},
		Log: slog.New(slog.NewTextHandler(t.Output(), nil)),
		Rules: []Rule{{Selector: map[string]string{"pool": "shared"}, Space: "default", Map: "mig", After: time.Second,
			Keep: 10 * time.Minute, Timeout: 5 * time.Minute}}})
	r.MapChanged(mapOf(kubetest.MIGMap), false)
	return r
}

func mapOf(text string) *v1.ConfigMap {
	return &v1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "mig"},
		Data: map[string]string{"config.yaml": text}}
}

// nodeOf is a node of two GPUs, with what a scheduler wrote on it.
func nodeOf(labels map[string]string, note *Note) *v1.Node {
	n := &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1", Labels: map[string]string{"pool": "shared",
		"nvidia.com/gpu.product": "NVIDIA-H100-80GB-HBM3", configLabel: "all-disabled", stateLabel: "success"}}}
	n.Status.Capacity = v1.ResourceList{Whole: resource.MustParse("2")}
	n.Status.Allocatable = n.Status.Capacity
	for k, v := range labels {
		n.Labels[k] = v
	}
	if note != nil {
		text, err := json.Marshal(note)
		if err != nil {
			panic(err)
		}
		n.Annotations = map[string]string{Annotation: string(text)}
	}
	return n
}

// Which nodes may be changed, and into what: not what failed there, until another writer labels it or the map changes;
// not before the time; not what mig-manager is at work on.
func TestCandidates(t *testing.T) {
	began := time.Unix(1_800_000_000, 0).UTC()
	failed := func(label string) *Note {
		return &Note{By: "muster", Config: "half", Since: began.Add(-time.Hour), GPUs: 2,
			Failed: &Failures{Label: label, Map: hash(kubetest.MIGMap), Why: map[string]string{"all-1g.10gb": "x"}}}
	}
	for _, c := range []struct {
		name   string
		labels map[string]string
		note   *Note
		text   string
		change func(*v1.Node)
		want   string // the ways, or why not
		gpus   int    // 0: whatever it is
	}{
		{name: "one GPU fewer than noted", note: &Note{Config: "all-disabled", GPUs: 3},
			want: "all-1g.10gb,all-3g.40gb,half", gpus: 2},
		{name: "one GPU fewer than noted, in slices", labels: map[string]string{configLabel: "all-3g.40gb"},
			note:   &Note{Config: "all-3g.40gb", GPUs: 3},
			change: func(n *v1.Node) { slicesOnly(n, "all-3g.40gb") }, want: "all-1g.10gb,all-disabled,half", gpus: 2},
		{name: "as noted, by another configuration than its label's", labels: map[string]string{configLabel: "x"},
			note:   &Note{Config: "all-3g.40gb", GPUs: 2},
			change: func(n *v1.Node) { slicesOnly(n, "all-3g.40gb") }, want: "all-1g.10gb,all-disabled,half", gpus: 2},
		{name: "all ways that the model has", want: "all-1g.10gb,all-3g.40gb,half"},
		{name: "not what failed", note: failed("all-disabled"), want: "all-3g.40gb,half"},
		{name: "another writer labelled it since", note: failed("all-3g.40gb"), want: "all-1g.10gb,all-3g.40gb,half"},
		{name: "the map is another", note: failed("all-disabled"), text: kubetest.MIGMap + "# another\n",
			want: "all-1g.10gb,all-3g.40gb,half"},
		{name: "changed a minute ago", note: &Note{Config: "all-disabled", Since: began.Add(-time.Minute)},
			want: ""},
		{name: "mig-manager is at work", labels: map[string]string{stateLabel: "pending"}, want: ""},
		{name: "of no rule", labels: map[string]string{"pool": "other"}, want: ""},
		{name: "single strategy", labels: map[string]string{"nvidia.com/mig.strategy": "single"},
			want: "label nvidia.com/mig.strategy is single"},
		{name: "it cannot be partitioned", labels: map[string]string{"nvidia.com/gpu.product": "Tesla-T4"},
			want: "cannot be partitioned"},
		{name: "cordoned", change: func(n *v1.Node) { n.Spec.Unschedulable = true }, want: ""},
		{name: "the map cannot be read", text: "version: v0\n", want: ""},
		{name: "in slices, by what makes them", labels: map[string]string{configLabel: "all-3g.40gb"},
			change: func(n *v1.Node) { slicesOnly(n, "all-3g.40gb") }, want: "all-1g.10gb,all-disabled,half"},
		{name: "in slices of which the GPUs are not known", labels: map[string]string{configLabel: "x"},
			change: func(n *v1.Node) { slicesOnly(n, "all-3g.40gb") }, want: "how many GPUs it has is not known"},
		{name: "in slices, by a label", labels: map[string]string{configLabel: "x", "nvidia.com/gpu.count": "2"},
			change: func(n *v1.Node) { slicesOnly(n, "all-3g.40gb") }, want: "all-1g.10gb,all-disabled,half"},
	} {
		n := nodeOf(c.labels, c.note)
		if c.change != nil {
			c.change(n)
		}
		r := newRoom(t)
		if c.text != "" {
			r.MapChanged(mapOf(c.text), false)
		}
		n.UID = types.UID(n.Name)
		x, got := &Node{}, ""
		r.See(x, x.AsPartitioned(n), false)
		up := func(string) bool { return !n.Spec.Unschedulable }
		if x.rule > 0 {
			way, why := r.candidate(x, cluster.Time(began.UnixNano()), up, func(string) int { return 0 })
			if got = why; way != nil {
				got = strings.Join(way.Configs, ",")
			}
			if c.gpus > 0 && (way == nil || way.GPUs != c.gpus) {
				t.Errorf("%s: %+v, want %d GPUs", c.name, way, c.gpus)
			}
		}
		if got != c.want && (c.want == "" || strings.Contains(c.want, ",") || !strings.Contains(got, c.want)) {
			t.Errorf("%s: %q, want %q", c.name, got, c.want)
		}
	}
}

// slicesOnly has a node offer what a configuration makes of it.
func slicesOnly(n *v1.Node, config string) {
	delete(n.Status.Capacity, Whole)
	for r, q := range kubetest.MIGMade[config] {
		n.Status.Capacity[v1.ResourceName(r)] = resource.MustParse(q)
	}
}

// BenchmarkTold is what it costs to say of 11,000 gangs which of 1,000 nodes are being partitioned for them.
func BenchmarkTold(b *testing.B) {
	r := newRoom(b)
	for i := range 1000 {
		note := Note{}
		if i < 100 {
			note.For = []string{fmt.Sprintf("default/p%05d", i)}
		}
		obj := nodeOf(nil, &note)
		obj.Name = fmt.Sprintf("n%04d", i)
		r.See(&Node{}, obj, false)
	}
	var list []string
	for i := range 11_000 {
		list = append(list, fmt.Sprintf("default/p%05d", i))
	}
	for b.Loop() {
		for _, g := range list {
			r.Told(g, func(string) int { return 0 })
		}
	}
}
