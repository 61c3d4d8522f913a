package kube

import (
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/muster-gpu/muster/kube/gang"
	"github.com/muster-gpu/muster/kube/gangs"
	"github.com/muster-gpu/muster/kube/places"
)

func rolePods(names ...string) (list []*gang.Pod) {
	for _, n := range names {
		kind, _, _ := strings.Cut(n, "-")
		p := &gang.Pod{}
		p.Obj = &v1.Pod{ObjectMeta: metav1.ObjectMeta{Name: n, UID: types.UID(n),
			Labels: map[string]string{"kind": kind}}}
		list = append(list, p)
	}
	return list
}

func podNames(list []*gang.Pod) string {
	var s []string
	for _, p := range list {
		s = append(s, p.Obj.Name)
	}
	return strings.Join(s, " ")
}

// The place of a pod that is gone is for one of its role, if there is one.
func TestWanted(t *testing.T) {
	g := &gang.Gang{Pods: map[types.UID]*gang.Pod{}, Places: places.List{{}, {Pod: "worker-0"}, {}}}
	g.Need = func() (gangs.Membership, error) {
		return gangs.Membership{Size: 3, Roles: []gangs.Role{{Name: "head", Count: 1}, {Name: "worker", Count: 2}},
			Role: func(p *v1.Pod) string { return p.Labels["kind"] }}, nil
	}
	for _, p := range rolePods("worker-0", "worker-1", "worker-2", "a-0", "head-0") {
		g.Pods[p.Obj.UID] = p
	}
	g.Pods["worker-0"].Node = "n1"
	if got := podNames(g.Wanted()); got != "head-0 worker-1 a-0 worker-2" {
		t.Errorf("wanted: %s", got)
	}
}
