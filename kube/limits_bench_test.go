package kube

import (
	"fmt"
	"testing"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/muster-gpu/muster/internal/controlplane"
	"github.com/muster-gpu/muster/kube/gang"
)

// BenchmarkLimits is what it costs to find what 2,000 nodes with 8,000 pods take of one pod, by what that asks for.
func BenchmarkLimits(b *testing.B) {
	app := map[string]string{"app": "a"}
	terms := []v1.PodAffinityTerm{
		{LabelSelector: &metav1.LabelSelector{MatchLabels: app}, TopologyKey: v1.LabelHostname}}
	for name, ask := range map[string]func(p *v1.Pod){
		"nothing": func(*v1.Pod) {},
		"ports":   func(p *v1.Pod) { p.Spec.Containers[0].Ports = []v1.ContainerPort{{HostPort: 80}} },
		"spread": func(p *v1.Pod) {
			p.Spec.TopologySpreadConstraints = []v1.TopologySpreadConstraint{{MaxSkew: 1, TopologyKey: v1.LabelHostname,
				WhenUnsatisfiable: v1.DoNotSchedule, LabelSelector: &metav1.LabelSelector{MatchLabels: app}}}
		},
		"apart": func(p *v1.Pod) {
			p.Spec.Affinity = &v1.Affinity{
				PodAntiAffinity: &v1.PodAntiAffinity{RequiredDuringSchedulingIgnoredDuringExecution: terms}}
		},
	} {
		b.Run(name, func(b *testing.B) {
			d, _ := still(b, 2000)
			for i := range 8000 {
				p := controlplane.Pod(fmt.Sprint("there-", i), 1, nil)
				p.UID, p.Spec.NodeName, p.Spec.SchedulerName = types.UID(p.Name), fmt.Sprintf("n%04d", i%2000), "other"
				p.Labels = app
				d.podChanged(p)
			}
			obj := controlplane.Pod("one", 1, nil)
			obj.UID, obj.Labels = "one", app
			ask(obj)
			d.podChanged(obj)
			pods := []*gang.Pod{d.pods["one"]}
			for b.Loop() {
				d.nodes.World.Changed()
				d.reader.Limits(pods, false, true)
			}
		})
	}
}
