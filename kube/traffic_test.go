package kube

import (
	"fmt"
	"net/http/httptest"
	"regexp"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/muster-gpu/muster/ask"
	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/config"
	"github.com/muster-gpu/muster/internal/controlplane"
	"github.com/muster-gpu/muster/kube/gang"
	"github.com/muster-gpu/muster/kube/gangs"
	"github.com/muster-gpu/muster/kube/look"
	"github.com/muster-gpu/muster/kube/terms"
)

// Gangs on nodes of different racks share the racks' links: their pods are told in which class their traffic is, in
// NCCL's words as well; a gang that was told otherwise before is told again, and one without facts is as any other.
func TestTrafficOfPods(t *testing.T) {
	d, now := still(t, 0)
	d.opt.Rules.Spec.Network = &cluster.Network{Rates: []int64{100e9, 100e9}, Classes: 5}
	d.opt.Rules.Traffic, d.opt.QoS = "crux", config.DefaultQoS()
	d.opt.QoS.Interface = "eth1"
	d.opt.Sign = func(obj *v1.Pod, annotation, text string, at time.Time) string {
		return fmt.Sprint(obj.UID, annotation, text, at.UnixNano())
	}
	for i := range 6 {
		n := controlplane.Node(fmt.Sprintf("n%d", i), 8, map[string]string{
			"network.topology.nvidia.com/leaf": fmt.Sprintf("leaf%d", i%2)})
		n.Status.Conditions = []v1.NodeCondition{{Type: v1.NodeReady, Status: v1.ConditionTrue}}
		d.nodeChanged(n)
	}
	d.stale = "there is a network"
	come := func(name, traffic string) {
		pods := controlplane.Gang(name, 2, 8, nil)
		for _, p := range pods {
			if p.Annotations == nil {
				p.Annotations = map[string]string{}
			}
			if traffic != "" {
				p.Annotations[AnnotationTraffic] = traffic
			}
		}
		d.come(t, now, pods...)
		d.answer(t, now)
	}
	notes := func(name string) map[string]string {
		g := gangNamed(t, d, name)
		return d.notesFor(g, g.Sorted()[0].Obj)
	}
	come("first", "{pattern: ring, bytes: 10GB, compute: 1s}")
	if n := notes("first"); n[AnnotationClass] != "0" || n[AnnotationTC] != "0" || n[AnnotationDSCP] != "cs0" ||
		n[AnnotationQPs] != "1" || n[AnnotationIface] != "=eth1" {
		t.Errorf("alone on its links: %v", n)
	}
	come("second", "{pattern: ring, bytes: 1GB, compute: 1s}")
	first, second := notes("first"), notes("second")
	if first[AnnotationClass] != "2" || second[AnnotationClass] != "1" {
		t.Errorf("the classes are %s and %s, want 2 and 1", first[AnnotationClass], second[AnnotationClass])
	}
	if v := d.networkOf(gangNamed(t, d, "first")); v == nil || v.Class != 2 || v.DSCP != "cs4" ||
		!strings.HasPrefix(v.Verbs, "no class, as") || len(v.Loses) != 1 || v.Takes <= v.Alone {
		t.Errorf("what is shown of the first: %+v", v)
	}
	if second[AnnotationTC] != "160" || second[AnnotationDSCP] != "cs5" || first[AnnotationFIFO] != "160" ||
		first[AnnotationTC] != "128" {
		t.Errorf("first %v\nsecond %v", first, second)
	}
	obj := gangNamed(t, d, "second").Sorted()[0].Obj
	if seal := second[AnnotationDSCP+terms.SealSuffix]; seal != d.opt.Sign(obj, AnnotationDSCP, "cs5", *now) {
		t.Errorf("the seal is %q", seal)
	}
	come("silent", "")
	if n := notes("silent"); n[AnnotationClass] != "0" {
		t.Errorf("a gang without facts: %v", n)
	}
	d.opt.Rules.Traffic = ""
	if n := notes("first"); n[AnnotationClass] != "" {
		t.Errorf("without a policy: %v", n)
	}
}

// What a pod says of its traffic is checked, and where it is wrong that is said.
func TestStatedTraffic(t *testing.T) {
	d, now := still(t, 1)
	p := controlplane.Pod("p", 1, nil)
	p.Annotations = map[string]string{AnnotationTraffic: "{pattern: rign}"}
	d.come(t, now, p)
	if g := d.pods["p"].Gang; g.Phase != gang.Gathering || !strings.Contains(g.Refused, `did you mean "ring"?`) {
		t.Errorf("it is in phase %d, refused: %q", g.Phase, g.Refused)
	}
}

func gangNamed(t *testing.T, d *Driver, name string) *gang.Gang {
	t.Helper()
	for _, g := range d.gangs {
		if g.Name == "default/"+name {
			return g
		}
	}
	t.Fatalf("no gang %s", name)
	return nil
}

// On a cluster whose racks are those of a Topology of Kueue, gangs that share the racks' links are told so on their
// pods when they are bound and while they run, and people see what each loses.
func testTraffic(b *bench) {
	b.define(gangs.TopologyKind)
	b.object(gangs.TopologyKind, "racks", nil, object{"spec": object{"levels": []any{
		object{"nodeLabel": "example.com/rack"}, object{"nodeLabel": v1.LabelHostname}}}})
	for i := range 4 {
		n := controlplane.Node(fmt.Sprintf("n%d", i), 8, map[string]string{"example.com/rack": fmt.Sprint("r", i%2)})
		if _, err := b.c.CoreV1().Nodes().Create(b.ctx, n, metav1.CreateOptions{}); err != nil {
			b.Fatal(err)
		}
	}
	seen := look.NewMetrics()
	d, stop := b.schedule(func(o *Options) {
		o.Observe = seen
		o.Rules.Spec.Network = &cluster.Network{Rates: []int64{100e9, 100e9}, Classes: 5}
		o.Rules.Traffic, o.QoS, o.Dynamic = "crux", config.DefaultQoS(), b.dynamic()
		o.Sign = func(obj *v1.Pod, _, text string, _ time.Time) string { return string(obj.UID) + text }
	})
	defer stop()
	notes := func(name string) map[string]string { return b.pod(name).Annotations }
	b.create(controlplane.Gang("first", 2, 8, map[string]string{
		"!" + AnnotationTraffic: "{pattern: ring, bytes: 10GB, compute: 1s}"})...)
	b.wait("the first is bound, in no class", func() bool {
		n := notes("first-1")
		return n[AnnotationClass] == "0" && n[AnnotationTC] == "0" && n[AnnotationSlots] != ""
	})
	b.create(controlplane.Gang("second", 2, 8, map[string]string{
		"!" + AnnotationTraffic: "{pattern: ring, bytes: 1GB, compute: 1s}"})...)
	b.wait("the second is bound in the class that goes first, the first is told of its class", func() bool {
		one, two := notes("first-0"), notes("second-0")
		return two[AnnotationClass] == "1" && two[AnnotationTC] == "160" && two[AnnotationDSCP] == "cs5" &&
			one[AnnotationClass] == "2" && one[AnnotationDSCP] == "cs4" && one[AnnotationTC] == "0" &&
			one[AnnotationDSCP+terms.SealSuffix] == string(b.pod("first-0").UID)+"cs4"
	})
	jobs, err := d.View().Jobs(b.ctx, ask.Filter{Name: "first"})
	if err != nil || len(jobs) != 1 {
		b.Fatalf("%d jobs: %v", len(jobs), err)
	}
	why, err := d.View().Why(b.ctx, jobs[0].ID)
	if err != nil {
		b.Fatal(err)
	}
	if n := why.Job.Network; n == nil || n.Class != 2 || n.DSCP != "cs4" || len(n.Loses) != 1 ||
		!strings.Contains(n.Verbs, "it is to be another") {
		b.Errorf("what is shown of the first: %+v", n)
	}
	for _, part := range []string{"on the network an iteration takes", "default/second", "rack r"} {
		if !strings.Contains(why.Text, part) {
			b.Errorf("why says nothing of %q: %s", part, why.Text)
		}
	}
	if o, err := d.View().Overview(b.ctx); err != nil || len(o.Links) == 0 || o.Links[0].Load == 0 {
		b.Errorf("links: %+v, %v", o.Links, err)
	}
	load := regexp.MustCompile(`(?m)^muster_link_load_ratio\{class="1",link="[^"]+"\} 0\.\d+$`)
	b.wait("the links' load by class is among the metrics", func() bool {
		w := httptest.NewRecorder()
		seen.Handler().ServeHTTP(w, httptest.NewRequest("GET", "/metrics", nil))
		return load.MatchString(w.Body.String())
	})
}

// The placer compatible has gangs share as few links as it can: the second gang leaves alone the node that the first
// one has half of, over whose link both would transmit.
func TestCompatiblePods(t *testing.T) {
	for placer, want := range map[string]int{"topology": 3, "compatible": 4} {
		d, now := still(t, 0)
		d.opt.Rules.Spec.Network = &cluster.Network{Rates: []int64{8e9}}
		d.opt.Rules.Placer = placer
		for i := range 4 {
			n := controlplane.Node(fmt.Sprintf("n%d", i), 8, map[string]string{
				"network.topology.nvidia.com/leaf": "leaf"})
			n.Status.Conditions = []v1.NodeCondition{{Type: v1.NodeReady, Status: v1.ConditionTrue}}
			d.nodeChanged(n)
		}
		d.stale = "there is a network"
		for _, name := range []string{"first", "second"} {
			d.come(t, now, controlplane.Gang(name, 3, 4, map[string]string{
				"!" + AnnotationTraffic: "{pattern: hierarchical, bytes: 2GB, compute: 2s}"})...)
			d.answer(t, now)
		}
		used := map[string]bool{}
		for _, p := range d.pods {
			used[p.Node] = true
		}
		if len(used) != want {
			t.Errorf("%s: the gangs are on %d nodes, want %d", placer, len(used), want)
		}
	}
}
