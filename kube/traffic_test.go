package kube

import (
	"fmt"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/config"
	"github.com/muster-gpu/muster/internal/controlplane"
)

// Gangs on nodes of different racks share the racks' links: their pods are told in which class their traffic is, in
// NCCL's words as well; a gang that was told otherwise before is told again, and one without facts is as any other.
func TestTrafficOfPods(t *testing.T) {
	d, now := still(t, 0)
	d.opt.Rules.Spec.Network = &cluster.Network{Rates: []int64{100e9, 100e9}, Classes: 5}
	d.opt.Rules.Traffic, d.opt.QoS = "crux", config.DefaultQoS()
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
		for uid, p := range d.pods {
			if p.gang.name == "default/"+name {
				return d.notesFor(p.gang, uid)
			}
		}
		t.Fatalf("no pods of %s", name)
		return nil
	}
	come("first", "{pattern: ring, bytes: 10GB, compute: 1s}")
	if n := notes("first"); n[AnnotationClass] != "0" || n[AnnotationTC] != "0" || n[AnnotationDSCP] != "cs0" ||
		n[AnnotationQPs] != "1" {
		t.Errorf("alone on its links: %v", n)
	}
	come("second", "{pattern: ring, bytes: 1GB, compute: 1s}")
	first, second := notes("first"), notes("second")
	if first[AnnotationClass] != "2" || second[AnnotationClass] != "1" {
		t.Errorf("the classes are %s and %s, want 2 and 1", first[AnnotationClass], second[AnnotationClass])
	}
	if second[AnnotationTC] != "160" || second[AnnotationDSCP] != "cs5" || first[AnnotationFIFO] != "160" ||
		first[AnnotationTC] != "128" {
		t.Errorf("first %v\nsecond %v", first, second)
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
	if g := d.pods["p"].gang; g.phase != gathering || !strings.Contains(g.refused, `did you mean "ring"?`) {
		t.Errorf("it is in phase %d, refused: %q", g.phase, g.refused)
	}
}
