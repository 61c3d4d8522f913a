package kube

import (
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/muster-gpu/muster/internal/controlplane"
	"github.com/muster-gpu/muster/kube/gang"
	"github.com/muster-gpu/muster/kube/kubetest"
	"github.com/muster-gpu/muster/perf"
)

// A pod goes to no node on which the device plugin could put it beside a pod that slows
// it down more than it accepts, nor where it would do that to others; it says so.
func TestCompany(t *testing.T) {
	table := kubetest.Pairs(map[string]int64{"a/b": 600_000, "b/a": 700_000, "a/a": 500_000})
	pod := func(name, model, least string) *v1.Pod {
		p := replicaPod(name, 1, map[string]string{"!" + AnnotationModel: model})
		if least != "" {
			p.Annotations[AnnotationSpeed] = least
		}
		return p
	}
	for _, c := range []struct {
		what         string
		least        int64 // of the configuration
		first, later *v1.Pod
		want         string // node, or why it waits
	}{
		{"it asks for more", 0, pod("x", "b", ""), pod("y", "a", "0.8"),
			"it could be at 0.60 of its speed beside others on a shared GPU, and asks for 0.8"},
		{"it accepts that", 0, pod("x", "b", ""), pod("y", "a", "0.6"), "one"},
		{"the other asks for more", 0, pod("x", "b", "0.8"), pod("y", "a", ""),
			"b there could be at 0.70 of its speed beside others on a shared GPU, and asks for 0.8"},
		{"none asks", 0, pod("x", "b", ""), pod("y", "a", ""), "one"},
		{"the configuration does", 750_000, pod("x", "b", "0.1"), pod("y", "a", ""), "asks for 0.75"},
		{"nothing is known of them", 0, pod("x", "c", "1"), pod("y", "d", "1"), "one"},
	} {
		t.Run(c.what, func(t *testing.T) {
			d, _ := stillWith(t, 0, func(o *Options) { o.Rules.Perf, o.Rules.Spec.MinSpeed = table, c.least })
			n := sharedNode("one", 2, 2)
			n.Status.Conditions = []v1.NodeCondition{{Type: v1.NodeReady, Status: v1.ConditionTrue}}
			d.nodeChanged(n)
			for _, p := range []*v1.Pod{c.first, c.later} {
				p.UID = types.UID(p.Name)
				d.podChanged(p)
				steps(t, d)
			}
			p := d.pods["y"]
			_, why := d.books.Why(p.Gang, d.scene(d.now))
			if p.Gang.Phase == gang.Gathering {
				why = p.Gang.Refused
			}
			if p.Assumed != c.want && !strings.Contains(why, c.want) {
				t.Fatalf("it is on %q: %s", p.Assumed, why)
			}
			if p.Assumed != "" || c.want == "one" {
				return
			}
			other := sharedNode("two", 2, 2)
			other.Status.Conditions = n.Status.Conditions
			d.nodeChanged(other)
			steps(t, d)
			if p := d.pods["y"]; p.Assumed != "two" {
				_, why := d.books.Why(p.Gang, d.scene(d.now))
				t.Errorf("there is a node without others: %s", why)
			}
		})
	}
	t.Run("a gang that slows itself down", func(t *testing.T) {
		d, _ := still(t, 0)
		d.opt.Rules.Perf, d.stale = table, "another table"
		steps(t, d)
		for _, name := range []string{"one", "two"} {
			n := sharedNode(name, 4, 2)
			n.Status.Conditions = []v1.NodeCondition{{Type: v1.NodeReady, Status: v1.ConditionTrue}}
			d.nodeChanged(n)
		}
		for _, g := range controlplane.Gang("g", 2, 0, nil) {
			p := pod(g.Name, "a", "0.8")
			p.UID, p.Labels[LabelGang], p.Annotations[AnnotationSize] = types.UID(g.Name), "g", "2"
			d.podChanged(p)
		}
		steps(t, d)
		if x, y := d.pods["g-0"].Assumed, d.pods["g-1"].Assumed; x == "" || y == "" || x == y {
			t.Errorf("its pods are on %q and %q", x, y)
		}
	})
	t.Run("turns", func(t *testing.T) { companyInTurns(t, pod) })
	bad := pod("bad", "a", "2")
	bad.UID, bad.CreationTimestamp = "bad", metav1.Now()
	d, _ := still(t, 1, bad)
	for _, g := range d.gangs {
		if !strings.Contains(g.Refused,
			"muster.sh/min-speed of pod bad: \"2\" is not a part of its speed alone, between 0 and 1") {
			t.Errorf("it says %q", g.Refused)
		}
	}
}

// Where a node shares by time-slicing, how busy pods keep a GPU counts before pairs, as
// on a machine; under MPS pairs do alone.
func companyInTurns(t *testing.T, pod func(name, model, least string) *v1.Pod) {
	for _, c := range []struct{ how, least, on string }{
		{"time-slicing", "0.6", "one"}, // 0.7 and 0.7 of the time: each keeps 0.99 / 1.4 = 0.70
		{"time-slicing", "0.75", ""},   // ... and not what pairs say, 0.9
		{"", "0.75", ""},               // a node that does not say how: by turns
		{"mps", "0.75", "one"},         // pairs
		{"time-slicing", "0.71", ""},   // the switch costs a hundredth
		{"mps", "0.95", ""},
	} {
		d, _ := still(t, 0)
		table := kubetest.Pairs(map[string]int64{"a/b": 900_000, "b/a": 900_000})
		table.Slicing = &perf.TimeSlicing{Switch: 10_000, Duty: map[string]int64{"a": 700_000, "b": 700_000}}
		d.opt.Rules.Perf, d.stale = table, "another table"
		steps(t, d)
		n := sharedNode("one", 2, 2)
		n.Status.Conditions = []v1.NodeCondition{{Type: v1.NodeReady, Status: v1.ConditionTrue}}
		if c.how != "" {
			n.Labels["nvidia.com/gpu.sharing-strategy"] = c.how
		}
		d.nodeChanged(n)
		for _, p := range []*v1.Pod{pod("x", "b", ""), pod("y", "a", c.least)} {
			p.UID = types.UID(p.Name)
			d.podChanged(p)
			steps(t, d)
		}
		if p := d.pods["y"]; p.Assumed != c.on {
			t.Errorf("%+v: it is on %q", c, p.Assumed)
		}
	}
}
