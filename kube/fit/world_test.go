package fit

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"reflect"
	"slices"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// lab is a world of random pods, made again from nothing whenever it is compared.
type lab struct {
	w     *World
	order []string
	nodes map[string]*v1.Node
	pods  []*Neighbour
}

func newLab() *lab {
	l := &lab{nodes: map[string]*v1.Node{}}
	l.w = l.empty()
	return l
}

func (l *lab) empty() *World {
	return NewWorld(Neighbours(Books{Free: func(node string) int { return len(node) },
		Besides: func(_ *v1.Pod, requests v1.ResourceList) map[v1.ResourceName]int64 {
			if q, ok := requests["hca"]; ok {
				return map[v1.ResourceName]int64{"hca": q.Value()}
			}
			return nil
		}})...)
}

func (l *lab) node(r *rand.Rand, i int) {
	name := fmt.Sprintf("n%d", i)
	n := &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}
	n.Labels = map[string]string{v1.LabelHostname: name, "zone": fmt.Sprint("z", r.IntN(3))}
	n.Status.Allocatable = v1.ResourceList{"hca": many(r.IntN(4)), v1.ResourcePods: many(1 + r.IntN(12))}
	if !slices.Contains(l.order, name) {
		l.order = append(l.order, name)
	}
	l.nodes[name] = n
	l.w.SetNode(name, n)
}

func many(n int) resource.Quantity { return *resource.NewQuantity(int64(n), resource.DecimalSI) }

// randomPod asks for some of all that there is.
func randomPod(r *rand.Rand, i int) (*v1.Pod, v1.ResourceList) {
	app := func() map[string]string { return map[string]string{"app": fmt.Sprint("a", r.IntN(3))} }
	p := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprint("p", i), Namespace: fmt.Sprint("s", r.IntN(2)),
		Labels: app()}}
	key := []string{v1.LabelHostname, "zone"}[r.IntN(2)]
	terms := []v1.PodAffinityTerm{{LabelSelector: &metav1.LabelSelector{MatchLabels: app()}, TopologyKey: key}}
	requests := v1.ResourceList{}
	switch r.IntN(6) {
	case 0:
		anti := &v1.PodAntiAffinity{RequiredDuringSchedulingIgnoredDuringExecution: terms}
		p.Spec.Affinity = &v1.Affinity{PodAntiAffinity: anti}
	case 1:
		near := &v1.PodAffinity{RequiredDuringSchedulingIgnoredDuringExecution: terms}
		p.Spec.Affinity = &v1.Affinity{PodAffinity: near}
	case 2:
		p.Spec.TopologySpreadConstraints = []v1.TopologySpreadConstraint{
			{MaxSkew: int32(1 + r.IntN(2)), TopologyKey: key,
				WhenUnsatisfiable: v1.DoNotSchedule, LabelSelector: &metav1.LabelSelector{MatchLabels: p.Labels}}}
	case 3:
		p.Spec.Containers = []v1.Container{{Ports: []v1.ContainerPort{{HostPort: int32(80 + r.IntN(2))}}}}
	case 4:
		requests["hca"] = many(1 + r.IntN(2))
	}
	return p, requests
}

// again is the same world, made in one go.
func (l *lab) again() *World {
	w := l.empty()
	for name, n := range l.nodes {
		w.SetNode(name, n)
	}
	for _, p := range l.pods {
		if p.Where != "" && !l.w.Hidden()[p] {
			w.Put(p, p.Where)
		}
	}
	return w
}

// check compares what is told of random pods with what a world says that is made from nothing.
func (l *lab) check(t *testing.T, r *rand.Rand, step int) {
	t.Helper()
	w, probe := l.again(), []*Neighbour{}
	for i := range 1 + r.IntN(2)*2 {
		p := &Neighbour{}
		var requests v1.ResourceList
		p.Obj, requests = randomPod(r, 1000+i)
		l.w.Read(p, requests)
		probe = append(probe, p)
	}
	ask := Ask{Pods: probe, Nodes: l.order}
	got, want := l.w.Limits(ask), w.Limits(ask)
	if !reflect.DeepEqual(got, want) || l.w.Active() != w.Active() {
		t.Fatalf("step %d: %+v\n%+v (active: %v, %v)", step, got, want, l.w.Active(), w.Active())
	}
}

// Whatever comes, goes, changes or is supposed to be gone: the counts are those of a world that is made of what is
// there.
func TestWorld(t *testing.T) {
	for seed := range uint64(20) {
		r := rand.New(rand.NewPCG(seed, 7))
		l := newLab()
		for i := range 6 {
			l.node(r, i)
		}
		for step := range 200 {
			switch r.IntN(6) {
			case 0:
				l.node(r, r.IntN(8))
			case 1:
				if name := l.order[r.IntN(len(l.order))]; r.IntN(4) == 0 {
					delete(l.nodes, name)
					l.w.SetNode(name, nil)
				}
			case 2, 3:
				p := &Neighbour{}
				var requests v1.ResourceList
				p.Obj, requests = randomPod(r, step)
				l.w.Read(p, requests)
				l.w.Put(p, l.order[r.IntN(len(l.order))])
				l.pods = append(l.pods, p)
			case 4:
				if len(l.pods) > 0 {
					i := r.IntN(len(l.pods))
					l.w.Remove(l.pods[i])
					l.pods = slices.Delete(l.pods, i, i+1)
				}
			case 5: // what one asks for is another now
				if len(l.pods) > 0 {
					p := l.pods[r.IntN(len(l.pods))]
					obj, requests := randomPod(r, step)
					p.Obj = obj
					l.w.Read(p, requests)
				}
			}
			l.check(t, r, step)
			some := slices.DeleteFunc(slices.Clone(l.pods), func(*Neighbour) bool { return r.IntN(2) == 0 })
			l.w.Without(some, func() {
				l.check(t, r, step)
				l.w.Without(append(some, &Neighbour{}), func() { l.check(t, r, step) }) // hidden already, or nowhere
				l.check(t, r, step)
			})
			if len(l.w.Hidden()) > 0 {
				t.Fatal("some pods are still hidden")
			}
		}
	}
}

// A node that is gone is forgotten when no pod is on it any more.
func TestForget(t *testing.T) {
	l := newLab()
	r := rand.New(rand.NewPCG(1, 1))
	l.node(r, 0)
	p := &Neighbour{Obj: &v1.Pod{}}
	l.w.Read(p, nil)
	l.w.Put(p, "n0")
	l.w.SetNode("n0", nil)
	l.w.Forget("n0")
	if len(l.w.On("n0")) != 1 {
		t.Fatal("a node was forgotten with a pod on it")
	}
	l.w.Remove(p)
	l.w.Forget("n0")
	if names := slices.Collect(maps.Keys(l.w.nodes)); len(names) > 0 {
		t.Errorf("left: %v", names)
	}
}
