package services

import (
	"context"
	"fmt"
	"maps"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/muster-gpu/muster/kube/patch"
)

// rule is what is read of a rule of an HTTPRoute.
type rule struct {
	BackendRefs []backend `json:"backendRefs"`
}

type backend struct {
	Group  *string `json:"group"`
	Kind   *string `json:"kind"`
	Name   string  `json:"name"`
	Space  *string `json:"namespace"`
	Weight *int    `json:"weight"`
}

func readRules(o *object, u map[string]any) {
	var spec struct {
		Rules []rule `json:"rules"`
	}
	into(u, &spec, "spec")
	o.rules = spec.Rules
}

// weigh gives the backends of a service's routes weights by the replicas of their variants. The list of rules has one
// owner as a whole, so server-side apply would take all of it from whoever wrote the route: the weights alone are
// replaced, in the route as it was seen. Variants of different phases do not answer the same requests, so weights of
// these are for their router to say.
func (r *Room) weigh(ctx context.Context, s *running, replicas []int) {
	if s.spec.Phased() {
		return
	}
	total := 0
	for _, n := range replicas {
		total += n
	}
	if total == 0 {
		return // none answers: as it was
	}
	for _, o := range r.all(routes) {
		if o.Namespace != s.object.Namespace || o.Annotations[Annotation] != s.spec.Name {
			continue
		}
		changes := []any{map[string]any{"op": "test", "path": "/metadata/resourceVersion", "value": o.ResourceVersion}}
		for i := range o.rules {
			for k := range o.rules[i].BackendRefs {
				b := &o.rules[i].BackendRefs[k]
				v := r.behind(ctx, s, o, b)
				if v < 0 || b.Weight != nil && *b.Weight == replicas[v] || b.Weight == nil && replicas[v] == 1 {
					continue
				}
				changes = append(changes, map[string]any{"op": "add", "value": replicas[v],
					"path": fmt.Sprintf("/spec/rules/%d/backendRefs/%d/weight", i, k)})
			}
		}
		if len(changes) == 1 {
			continue
		}
		if _, err := r.opt.Dynamic.Resource(o.resource()).Namespace(o.Namespace).Patch(ctx, o.Name, types.JSONPatchType,
			patch.JSON(changes), metav1.PatchOptions{FieldManager: manager}); err != nil {
			r.opt.Log.Warn("services: the weights cannot be set", "route", o.String(), "error", err)
			r.notices.Event(o.reference(), v1.EventTypeWarning, "ServiceNotWeighed", err.Error())
		}
	}
}

// behind is the variant whose pods are behind a backend; -1: none is.
func (r *Room) behind(ctx context.Context, s *running, route *object, b *backend) int {
	if b.Group != nil && *b.Group != "" || b.Kind != nil && *b.Kind != "Service" ||
		b.Space != nil && *b.Space != route.Namespace {
		return -1
	}
	svc, err := r.opt.Client.CoreV1().Services(route.Namespace).Get(ctx, b.Name, metav1.GetOptions{})
	if err != nil || len(svc.Spec.Selector) == 0 {
		return -1
	}
	found := -1
	for i, o := range s.parts {
		if o == nil || !selects(svc.Spec.Selector, o.labels) {
			continue
		}
		if found >= 0 {
			return -1 // it has the pods of several
		}
		found = i
	}
	return found
}

func selects(selector, labels map[string]string) bool {
	all := maps.Clone(labels)
	for k, v := range selector {
		if have, ok := all[k]; !ok || have != v {
			return false
		}
	}
	return true
}
