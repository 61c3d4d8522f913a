package kube

import (
	"context"

	v1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"

	"github.com/muster-gpu/muster/internal/controlplane"
)

// The pods of a gang for which another has to leave say where they will go, for as
// long as that is so; they go there.
func testNominate(b *bench) {
	b.nodes(4, "n1")
	_, stop := b.schedule()
	defer stop()
	stay := &policyv1.PodDisruptionBudget{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "stay"},
		Spec: policyv1.PodDisruptionBudgetSpec{
			MaxUnavailable: ptr.To(intstr.FromInt32(0)),
			Selector:       &metav1.LabelSelector{MatchLabels: map[string]string{LabelTier: "best-effort"}}}}
	if _, err := b.c.PolicyV1().PodDisruptionBudgets("default").Create(b.ctx, stay,
		metav1.CreateOptions{}); err != nil {
		b.Fatal(err)
	}
	free := func() { // twice does no harm
		_ = b.c.PolicyV1().PodDisruptionBudgets("default").Delete(context.Background(), "stay", metav1.DeleteOptions{})
	}
	b.Cleanup(free)
	b.create(controlplane.Pod("low", 3, map[string]string{LabelTier: "best-effort"}))
	b.wait("low runs", func() bool { return live(b.pod("low")) })
	high := controlplane.Gang("high", 2, 2, nil)
	at := func(name string) string { return b.pod(name).Status.NominatedNodeName }
	b.create(high...)
	b.wait("both of high are nominated", func() bool { return at("high-0") == "n1" && at("high-1") == "n1" })
	b.gone(b.pod("high-1"))
	b.wait("half of it is not nominated any more", func() bool { return at("high-0") == "" })
	if p := b.pod("low"); !live(p) {
		b.Error("low went in spite of its disruption budget")
	}
	b.create(high[1])
	b.wait("both of it are nominated again", func() bool { return at("high-0") == "n1" && at("high-1") == "n1" })
	free()
	b.wait("high runs", func() bool { return b.bound([]*v1.Pod{high[0], high[1]}) == 2 })
}
