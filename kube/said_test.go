package kube

import (
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/internal/controlplane"
	"github.com/muster-gpu/muster/kube/terms"
)

// What a pod says with a slip of the pen, or in a place where it is not read, is refused, and the reason says
// what would be right.
func TestSlips(t *testing.T) {
	for name, c := range map[string]struct {
		gpus int
		more map[string]string
		want string
	}{
		"an unknown label": {1, map[string]string{"muster.sh/qeue": "a"},
			`pod p: unknown label "muster.sh/qeue": did you mean "muster.sh/queue"?`},
		"an unknown annotation": {1, map[string]string{"!muster.sh/gang-sice": "2"},
			`pod p: unknown annotation "muster.sh/gang-sice": did you mean "muster.sh/gang-size"?`},
		"a gang as annotation": {1, map[string]string{"!" + LabelGang: "g", "!" + AnnotationSize: "1"},
			"pod p: annotation muster.sh/gang: on a pod it is a label"},
		"a size as label": {1,
			map[string]string{LabelGang: "g", AnnotationSize: "1", "!" + AnnotationSize: "1"},
			"pod p: label muster.sh/gang-size: it is an annotation, not a label"},
		"another's part of a GPU": {0, map[string]string{"!gpu-fraction": "0.5"},
			"annotation gpu-fraction asks another scheduler for a part of a GPU"},
		"a minimum above the size": {1,
			map[string]string{LabelGang: "g", "!" + AnnotationSize: "1", "!" + AnnotationMin: "3"},
			`annotation muster.sh/min-available: "3" is not a number from 1 to the gang's size, 1`},
		"a queue where there are none": {1, map[string]string{LabelQueue: "a"},
			`queue "a" does not exist, and no queue is configured`},
		"another's queue, none are": {1, map[string]string{"kai.scheduler/queue": "a"},
			`queue "a" does not exist, and no queue is configured`},
		"nothing that is wrong": {1,
			map[string]string{LabelTier: "critical", "!" + AnnotationRunTime: "1h", "!example.com/x": "y"}, ""},
		"a queue that is always there": {1, map[string]string{LabelQueue: "default"}, ""},
		"what Muster itself wrote once": {1,
			map[string]string{"!" + AnnotationEvery: "60", "!" + AnnotationBefore + terms.SealSuffix: "x"}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, nil, someNodes(1, 8), controlplane.Pod("p", c.gpus, c.more))
			g := w.pods["p"].Gang
			if c.want == "" {
				if w.at("p") == "" {
					t.Errorf("it waits: %s", g.Refused)
				}
				return
			}
			if w.at("p") != "" || !strings.Contains(g.Refused, c.want) {
				t.Errorf("it is at %q, and says %q", w.at("p"), g.Refused)
			}
		})
	}
}

// A gang that waits for a queue that does not exist goes on waiting when the last queue is deleted.
func TestLastQueueGoes(t *testing.T) {
	w := newWorld(t, func(o *Options) {
		o.Rules.Spec.Queues = []cluster.Queue{{Name: "a", Limit: 2000, Lend: cluster.Unlimited}}
	}, someNodes(1, 8),
		controlplane.Pod("wrong", 1, map[string]string{LabelQueue: "b"}),
		controlplane.Pod("large", 4, map[string]string{LabelQueue: "a"}))
	w.opt.Rules.Spec.Queues = nil
	w.queues.Touch()
	w.settleDown(t)
	for _, name := range []string{"wrong", "large"} {
		if w.at(name) != "" || !strings.Contains(w.gangs["pod/"+name].Refused, "no queue is configured") {
			t.Errorf("%s is at %q, and says %q", name, w.at(name), w.gangs["pod/"+name].Refused)
		}
	}
}

// A pod that waits for room without GPUs is not said to need none, and nodes that take none of it are not said
// to be down.
func TestWhyWithoutGPUs(t *testing.T) {
	p := cpus(controlplane.Pod("p", 0, nil), "95")
	w := newWorld(t, nil, someNodes(2, 8), cpus(controlplane.Pod("a", 0, nil), "50"),
		cpus(controlplane.Pod("b", 0, nil), "50"), p)
	if _, text := w.books.Why(w.gangs["pod/p"], w.scene(w.clock())); !strings.Contains(text,
		"needs room for 1 task with 95 CPU cores") {
		t.Errorf("it says %q", text)
	}
	hami := controlplane.Pod("hami", 1, nil)
	hami.Spec.Containers[0].Resources.Requests["nvidia.com/gpumem"] = resource.MustParse("3000")
	w = newWorld(t, nil, someNodes(2, 8), hami)
	if _, text := w.books.Why(w.gangs["pod/hami"], w.scene(w.clock())); strings.Contains(text, "is up") ||
		!strings.Contains(text, "too little nvidia.com/gpumem") {
		t.Errorf("it says %q", text)
	}
}
