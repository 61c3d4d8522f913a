package moves

import (
	"context"
	"fmt"
	"log/slog"

	v1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/internal/kubeapi"
)

// A disruption budget may refuse an eviction for ever. A gang that leaves for others waits then, half evicted perhaps;
// that is not for a gang that could just as well stay. So before any gang is moved the budgets are read, and one that
// has none left stays.

// budget is what is left of one.
type budget struct {
	name string
	pods labels.Selector
	left int32
}

// Budgets reads disruption budgets.
type Budgets struct {
	Client kubeapi.Interface
	Log    *slog.Logger
}

// refuse says which of these may not be evicted as a whole now, and why. Where budgets may not be read, none is named:
// each eviction asks them anyhow.
func (r Budgets) refuse(ctx context.Context, ids []cluster.JobID, q *Question) (map[cluster.JobID]string, error) {
	refused, lists := map[cluster.JobID]string{}, map[string][]*budget{}
	for _, id := range ids {
		if len(q.Pods[id]) == 0 {
			refused[id] = "its pods have gone"
			continue
		}
		space := q.Pods[id][0].Namespace
		list, ok := lists[space]
		if !ok {
			var err error
			if list, err = r.of(ctx, space); err != nil {
				return nil, err
			}
			lists[space] = list
		}
		if why := spend(list, q.Pods[id]); why != "" {
			refused[id] = why
		}
	}
	return refused, nil
}

func (r Budgets) of(ctx context.Context, namespace string) (out []*budget, err error) {
	list, err := r.Client.PolicyV1().PodDisruptionBudgets(namespace).List(ctx, metav1.ListOptions{})
	if apierrors.IsForbidden(err) {
		r.Log.Warn("disruption budgets cannot be read: what they allow is found out by evicting", "error", err)
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("the disruption budgets of %s: %w", namespace, err)
	}
	for i := range list.Items {
		if b := budgetFrom(&list.Items[i]); b != nil {
			out = append(out, b)
		}
	}
	return out, nil
}

// budgetFrom reads what is left of a budget; nil: it is for no pods.
func budgetFrom(o *policyv1.PodDisruptionBudget) *budget {
	s, err := metav1.LabelSelectorAsSelector(o.Spec.Selector)
	if err != nil {
		return nil // the API server accepts no such object
	}
	b := &budget{name: o.Name, pods: s, left: o.Status.DisruptionsAllowed}
	if o.Status.ObservedGeneration < o.Generation { // an eviction is refused until that is counted
		b.left = 0
	}
	return b
}

// spend takes a gang's pods from the budgets that they are under; if that is too much, it
// says of which and takes nothing.
func spend(list []*budget, pods []*v1.Pod) string {
	count := make([]int32, len(list))
	for _, p := range pods {
		of := -1
		for i, b := range list {
			if !b.pods.Matches(labels.Set(p.Labels)) {
				continue
			}
			if of >= 0 {
				return fmt.Sprintf("pod %s is under the disruption budgets %s and %s, and Kubernetes evicts no pod that is under two", p.Name, list[of].name, b.name)
			}
			of = i
			count[i]++
		}
	}
	for i, b := range list {
		if count[i] > b.left {
			return fmt.Sprintf("disruption budget %s lets %d of its pods go now, it has %d there", b.name, b.left,
				count[i])
		}
	}
	for i, b := range list {
		b.left -= count[i]
	}
	return ""
}
