package victims

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/kube/areas"
	"github.com/muster-gpu/muster/kube/fit"
)

// town is nodes n0 and n1 in zone a and n2 in zone b, with gangs of single pods.
type town struct {
	*fit.World
	gangs []*Gang
}

var order = []string{"n0", "n1", "n2"}

func newTown() *town {
	w := fit.NewWorld(fit.Neighbours(fit.Books{Free: func(string) int { return 8 },
		Besides: func(*v1.Pod, v1.ResourceList) map[v1.ResourceName]int64 { return nil }})...)
	for i, name := range order {
		n := &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: name,
			Labels: map[string]string{v1.LabelHostname: name, "zone": string("aab"[i])}}}
		n.Status.Allocatable = v1.ResourceList{v1.ResourcePods: *resource.NewQuantity(100, resource.DecimalSI)}
		w.SetNode(name, n)
	}
	return &town{World: w}
}

// pod is one of an application; with a port it wants that of its node.
func (w *town) pod(app string, port int32) *fit.Neighbour {
	obj := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Labels: map[string]string{"app": app}}}
	obj.Spec.Containers = []v1.Container{{}}
	if port > 0 {
		obj.Spec.Containers[0].Ports = []v1.ContainerPort{{ContainerPort: port, HostPort: port}}
	}
	return w.known(obj)
}

// away is a pod that keeps off those of an application, in the domains of a label.
func (w *town) away(app, key string) *fit.Neighbour {
	p := w.pod("", 0)
	p.Obj.Spec.Affinity = &v1.Affinity{PodAntiAffinity: &v1.PodAntiAffinity{
		RequiredDuringSchedulingIgnoredDuringExecution: []v1.PodAffinityTerm{{TopologyKey: key,
			LabelSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": app}}}}}}
	return w.known(p.Obj)
}

func (w *town) known(obj *v1.Pod) *fit.Neighbour {
	p := &fit.Neighbour{Obj: obj, Around: fit.Around(obj)}
	w.Read(p, nil)
	return p
}

// runs has a gang of a tier run on nodes, a pod on each.
func (w *town) runs(tier cluster.Tier, gpus int, app string, port int32, nodes ...string) *Gang {
	g := &Gang{Job: cluster.JobID(len(w.gangs) + 1), Tier: tier, GPUs: gpus, Started: cluster.Time(len(w.gangs))}
	for _, name := range nodes {
		p := w.pod(app, port)
		w.Put(p, name)
		g.Pods = append(g.Pods, p)
	}
	w.gangs = append(w.gangs, g)
	w.Changed()
	return g
}

// leave says which gangs leave for pods, by number, if these can be on the nodes that are open once others are gone and
// start accepts.
func (w *town) leave(start func(open []string, gone []cluster.JobID) []string, pods ...*fit.Neighbour) (gone []int) {
	q := &Question{World: w.World, Ask: fit.Ask{Pods: pods, Nodes: order}, Search: &areas.Search{}, Gangs: w.gangs}
	l := q.limits()
	q.Job = &cluster.Job{PerNode: l.Each, NodeLimits: l.Nodes}
	q.Starts = func(job *cluster.Job, gone []cluster.JobID) map[string]int {
		most := mostOn(job.NodeLimits)
		open := slices.DeleteFunc(slices.Clone(order), func(name string) bool {
			n, bounded := most[name]
			return bounded && n == 0
		})
		on := start(open, gone)
		if len(on) < len(pods) {
			return nil
		}
		return count(on[:len(pods)])
	}
	if a := q.Find(); a != nil {
		for _, g := range a.Gone {
			gone = append(gone, int(g.Job))
		}
	}
	return gone
}

// count counts names.
func count(names []string) map[string]int {
	on := map[string]int{}
	for _, name := range names {
		on[name]++
	}
	return on
}

func anywhere(open []string, _ []cluster.JobID) []string { return open }

// What keeps a pod off nodes leaves where that does the least harm, and nothing else does.
func TestFind(t *testing.T) {
	for name, c := range map[string]struct {
		make func(w *town) []*fit.Neighbour
		how  func([]string, []cluster.JobID) []string
		want []int
	}{
		"nothing is in the way": {func(w *town) []*fit.Neighbour {
			w.runs(cluster.BestEffort, 1, "x", 0, order...)
			return []*fit.Neighbour{w.pod("y", 80)}
		}, anywhere, nil},
		"the lowest tier": {func(w *town) []*fit.Neighbour {
			w.runs(cluster.Standard, 1, "x", 80, "n0")
			w.runs(cluster.BestEffort, 8, "x", 80, "n1")
			w.runs(cluster.Standard, 1, "x", 80, "n2")
			return []*fit.Neighbour{w.pod("y", 80)}
		}, anywhere, []int{2}},
		"of one tier the smallest": {func(w *town) []*fit.Neighbour {
			w.runs(cluster.BestEffort, 4, "x", 80, "n0")
			w.runs(cluster.BestEffort, 8, "x", 80, "n1")
			w.runs(cluster.BestEffort, 2, "x", 80, "n2")
			return []*fit.Neighbour{w.pod("y", 80)}
		}, anywhere, []int{3}},
		"another where it does not start then": {func(w *town) []*fit.Neighbour {
			for i, name := range order {
				w.runs(cluster.BestEffort, 1+i, "x", 80, name)
			}
			return []*fit.Neighbour{w.pod("y", 80)}
		}, func(open []string, gone []cluster.JobID) []string {
			if slices.Contains(gone, 1) {
				return nil
			}
			return open
		}, []int{2}},
		"nowhere": {func(w *town) []*fit.Neighbour {
			w.runs(cluster.BestEffort, 1, "x", 80, order...)
			return []*fit.Neighbour{w.pod("y", 80)}
		}, func([]string, []cluster.JobID) []string { return nil }, nil},
		"all of a zone": {func(w *town) []*fit.Neighbour {
			w.runs(cluster.BestEffort, 1, "x", 0, "n0")
			w.runs(cluster.BestEffort, 1, "x", 0, "n1")
			w.runs(cluster.Critical, 1, "x", 0, "n2")
			return []*fit.Neighbour{w.away("x", "zone")}
		}, anywhere, []int{2, 1}},
		"a gang has more nodes, and leaves the rest": {func(w *town) []*fit.Neighbour {
			for _, name := range order {
				w.runs(cluster.BestEffort, 1, "x", 80, name)
			}
			return []*fit.Neighbour{w.pod("y", 80), w.pod("y", 80)}
		}, anywhere, []int{2, 1}},
	} {
		w := newTown()
		if got := w.leave(c.how, c.make(w)...); !slices.Equal(got, c.want) {
			t.Errorf("%s: %v leave, not %v", name, got, c.want)
		}
	}
}

// The gang is told what nodes take of it without those that leave, and the world is as it was.
func TestAnswer(t *testing.T) {
	w := newTown()
	low := w.runs(cluster.BestEffort, 1, "x", 80, "n0")
	w.runs(cluster.BestEffort, 2, "x", 80, "n1", "n2")
	q := &Question{World: w.World, Ask: fit.Ask{Pods: []*fit.Neighbour{w.pod("y", 80)}, Nodes: order},
		Search: &areas.Search{}, Gangs: w.gangs,
		Starts: func(*cluster.Job, []cluster.JobID) map[string]int { return map[string]int{"n0": 1} }}
	q.Job = &cluster.Job{ID: 7, NodeLimits: q.limits().Nodes}
	before := fmt.Sprint(q.Job.NodeLimits)
	a := q.Find()
	if a == nil || !slices.Equal(a.Gone, []*Gang{low}) || a.Job.ID != 7 {
		t.Fatalf("%+v", a)
	}
	if got := fmt.Sprint(a.Job.NodeLimits); got != "[{[n1 n2] 0}]" || fmt.Sprint(q.Job.NodeLimits) != before {
		t.Errorf("it is told %s, of %s", got, before)
	}
	if got := fmt.Sprint(q.limits().Nodes); got != before || len(w.Hidden()) != 0 || low.Pods[0].Where != "n0" {
		t.Errorf("afterwards nodes take %s of it, not %s", got, before)
	}
}

// Those that are left are enough, and where few looks do, none of them can be done without.
func TestSpare(t *testing.T) {
	for seed := range uint64(200) {
		r := rand.New(rand.NewPCG(seed, 1))
		all := make([]*Gang, 1+r.IntN(40))
		needed := map[*Gang]bool{}
		for i := range all {
			all[i] = &Gang{Job: cluster.JobID(i)}
			needed[all[i]] = r.IntN(6) == 0
		}
		looks := 0
		enough := func(list []*Gang) bool {
			looks++
			left := 0
			for _, g := range list {
				if needed[g] {
					left++
				}
			}
			want := 0
			for _, g := range all {
				if needed[g] {
					want++
				}
			}
			return left == want
		}
		got := spare(slices.Clone(all), enough)
		if used := looks; !enough(got) || used > mostLooks {
			t.Fatalf("seed %d: %d of %d are left after %d looks", seed, len(got), len(all), used)
		}
		if len(all) <= 8 && slices.ContainsFunc(got, func(g *Gang) bool { return !needed[g] }) {
			t.Fatalf("seed %d: one of %d is left that need not leave", seed, len(got))
		}
	}
}

// Nodes open that take more than before, also some instead of none, and none that were never bounded.
func TestOpened(t *testing.T) {
	j := &cluster.Job{NodeLimits: []cluster.NodeLimit{{Nodes: []string{"n0", "n1"}}, {Nodes: []string{"n1"}, Tasks: 3},
		{Nodes: []string{"n2"}, Tasks: 2}}}
	then := &fit.Limits{Nodes: []cluster.NodeLimit{{Nodes: []string{"n1"}, Tasks: 1},
		{Nodes: []string{"n2"}, Tasks: 2}}}
	if got := opened(append(order, "n3"), j, then); !slices.Equal(got, []string{"n0", "n1"}) {
		t.Errorf("%v open", got)
	}
}
