package moves

import (
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// A gang is under budgets as a whole, and several share what is left of one.
func TestSpend(t *testing.T) {
	pod := func(app string) *v1.Pod {
		return &v1.Pod{ObjectMeta: metav1.ObjectMeta{Name: app, Labels: map[string]string{"app": app}}}
	}
	of := func(name, key, value string, left int32, seen int64) *budget {
		return budgetFrom(&policyv1.PodDisruptionBudget{ObjectMeta: metav1.ObjectMeta{Name: name, Generation: 2},
			Spec: policyv1.PodDisruptionBudgetSpec{
				Selector: &metav1.LabelSelector{MatchLabels: map[string]string{key: value}}},
			Status: policyv1.PodDisruptionBudgetStatus{DisruptionsAllowed: left, ObservedGeneration: seen}})
	}
	list := []*budget{of("a", "app", "a", 3, 2), of("b", "app", "b", 5, 1), of("c", "app", "c", 1, 2),
		of("c2", "app", "c", 1, 2)}
	for _, c := range []struct {
		pods []*v1.Pod
		want string
	}{
		{[]*v1.Pod{pod("a"), pod("a")}, ""},
		{[]*v1.Pod{pod("a"), pod("a")}, "disruption budget a lets 1 of its pods go now, it has 2 there"},
		{[]*v1.Pod{pod("a"), pod("x")}, ""},
		{[]*v1.Pod{pod("b")}, "disruption budget b lets 0"}, // what it allows is of another generation
		{[]*v1.Pod{pod("c")}, "under the disruption budgets c and c2"},
		{[]*v1.Pod{pod("x")}, ""},
	} {
		if got := spend(list, c.pods); got != c.want && (c.want == "" || !strings.Contains(got, c.want)) {
			t.Errorf("%q, not %q", got, c.want)
		}
	}
}
