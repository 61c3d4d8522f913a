package gang

import (
	"slices"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/engine"
	"github.com/muster-gpu/muster/internal/controlplane"
	"github.com/muster-gpu/muster/kube/gangs"
	"github.com/muster-gpu/muster/kube/places"
	"github.com/muster-gpu/muster/kube/plans"
	"github.com/muster-gpu/muster/kube/terms"
)

// newGang is a gang of these pods, each with what it asks for, that needs so many.
func newGang(size int, objs ...*v1.Pod) *Gang {
	g := New(&gangs.Claim{Key: "gang/default/g", Name: "default/g",
		Need: func(gangs.Gang) (gangs.Membership, error) { return gangs.Membership{Size: size}, nil }})
	for _, obj := range objs {
		obj.UID = types.UID(obj.Name)
		p := &Pod{Gang: g}
		p.Obj, p.Record = obj, p
		p.Request = cluster.Request{GPUs: 2}
		g.Pods[obj.UID] = p
	}
	return g
}

func names(pods []*Pod) string {
	list := make([]string, len(pods))
	for i, p := range pods {
		list[i] = p.Obj.Name
	}
	return strings.Join(list, " ")
}

// A pod counts as ready if it may be bound; a gang says how many it lacks, and why the others are not ready.
func TestReady(t *testing.T) {
	objs := controlplane.Gang("g", 4, 2, nil)
	objs[1].Spec.SchedulingGates = []v1.PodSchedulingGate{{Name: "later"}}
	objs[3].Status.Phase = v1.PodFailed
	g := newGang(4, objs...)
	g.Pods["g-2"].Claimed.Lacks = "claim c is not there"
	if got := names(g.Ready()); got != "g-0" || !g.Asks() {
		t.Errorf("ready: %q, asks: %v", got, g.Asks())
	}
	want := "1 of the gang's 4 pods are there (no worker); pod g-2: claim c is not there; 1 have scheduling gates"
	if got := g.LacksPods(1, 4, "no worker"); got != want {
		t.Errorf("it lacks %q", got)
	}
	for _, p := range g.Pods {
		p.Node = "n"
	}
	if got := names(g.Seated()); got != "g-0 g-1 g-2" || g.Asks() || !g.BoundByPlan() {
		t.Errorf("seated: %q, asks: %v", got, g.Asks())
	}
}

// A gang of which pods came to their end while no scheduler ran does not wait for others in their place, unless all of
// them are of a later run.
func TestAhead(t *testing.T) {
	began := metav1.NewTime(time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC))
	for _, c := range []struct {
		what    string
		created time.Duration // when the other pod was made, since the first began
		phase   v1.PodPhase
		owned   bool
		want    int
	}{
		{"of the same start", -time.Minute, v1.PodSucceeded, false, 1},
		{"of a later run", time.Minute, v1.PodSucceeded, false, 0},
		{"the first failed", -time.Minute, v1.PodFailed, false, 0},
		{"another is made for the first", -time.Minute, v1.PodSucceeded, true, 0},
	} {
		objs := controlplane.Gang("g", 2, 2, nil)
		over, other := objs[0], objs[1]
		plan := plans.Plan{Tasks: []cluster.TaskSet{{Count: 2, Request: cluster.Request{GPUs: 2}}},
			On: []plans.On{{Node: "n", Tasks: 2}}}
		over.Annotations[terms.AnnotationPlan] = plan.Text()
		over.Status.Phase, over.Status.StartTime = c.phase, &began
		if c.owned {
			yes := true
			over.OwnerReferences = []metav1.OwnerReference{{Kind: "Job", Name: "j", Controller: &yes}}
		}
		other.CreationTimestamp = metav1.NewTime(began.Add(c.created))
		if got := newGang(2, over, other).Ahead(2); got != c.want {
			t.Errorf("%s: %d pods are ahead, not %d", c.what, got, c.want)
		}
	}
}

// A gang starts with the pods that it needs, and with as many of the others as the engine found places for.
func TestStarters(t *testing.T) {
	g := newGang(2, controlplane.Gang("g", 4, 2, nil)...)
	g.InJob, g.Optional = UIDs(g.Sorted()), []types.UID{"g-2", "g-3"}
	g.Spec = &cluster.Job{Tasks: TaskSets(g.Sorted())}
	if len(g.Spec.Tasks) != 1 || g.Spec.Tasks[0].Count != 4 {
		t.Fatalf("task sets %+v", g.Spec.Tasks)
	}
	g.MakeElastic(g.Spec, 2)
	if g.Spec.Elastic != (cluster.Elastic{Min: 2, Max: 4}) {
		t.Errorf("elastic: %+v", g.Spec.Elastic)
	}
	for tasks, want := range map[int32]string{2: "", 3: "g-2", 4: "g-2 g-3"} {
		need, beyond, spec := g.Starters(&engine.Action{Allocs: []engine.Alloc{{Tasks: tasks}}})
		if names(need) != "g-0 g-1" || names(beyond) != want || spec.Tasks[0].Count != int(tasks) ||
			spec.Elastic != (cluster.Elastic{}) {
			t.Errorf("%d places: %q and %q, %+v", tasks, names(need), names(beyond), spec)
		}
	}
}

// Of pods that want a place those come first whose role lacks most to what runs.
func TestWanted(t *testing.T) {
	g := newGang(3, controlplane.Gang("g", 3, 2, nil)...)
	role := func(obj *v1.Pod) string {
		if obj.Name == "g-2" || obj.Name == "g-0" {
			return "worker"
		}
		return "head"
	}
	g.Need = func() (gangs.Membership, error) {
		return gangs.Membership{Size: 3, Role: role, Roles: []gangs.Role{{Name: "head", Count: 1},
			{Name: "worker", Count: 1}}}, nil
	}
	g.Pods["g-2"].Node, g.Places = "n", places.List{{Pod: "g-2", Node: "n"}, {Node: "n"}}
	if got := names(g.Wanted()); got != "g-1 g-0" {
		t.Errorf("wanted: %q: a worker runs, so the head comes first", got)
	}
}

// A running gang that is to be repaired needs it where a place was lost and something of it is left.
func TestPartly(t *testing.T) {
	g := newGang(2, controlplane.Gang("g", 2, 2, nil)...)
	g.Places = places.List{{Pod: "g-0", Node: "n"}, {Pod: "g-1", Node: "m"}}
	if g.Partly() {
		t.Error("a gang that is whole")
	}
	now := metav1.Now()
	g.Pods["g-1"].Obj.DeletionTimestamp = &now
	if !g.Partly() {
		t.Error("a pod of it ends")
	}
	if g.Pods["g-1"].Leaves() != true || g.Pods["g-0"].Leaves() {
		t.Error("which of them leaves")
	}
	g.Phase = Stopping
	if !g.Pods["g-0"].Leaves() {
		t.Error("all pods of a gang leave that stops")
	}
}

// What a pod is told that leaves names the gang that it leaves for, and where its place is kept if it is moved.
func TestDismissal(t *testing.T) {
	g := newGang(1)
	for _, c := range []struct {
		reason engine.StopReason
		leaves string
		other  string
		to     string
		want   string
	}{
		{engine.Preempted, "", "", "", "Preempted: preempted: Muster needs its place"},
		{engine.Preempted, "", "default/x", "", "Preempted: preempted for default/x"},
		{engine.Preempted, "", "default/x", "n2",
			"Moved: moved to n2, so that default/x fits: its place there is kept for the pod that its owner makes"},
		{engine.Preempted, "", "", "n2",
			"Moved: moved to n2: its place there is kept for the pod that its owner makes"},
		{engine.NodeLost, "", "", "", "Preempted: its gang lost a node"},
		{engine.WasCancelled, "its Job was suspended", "", "", "Preempted: its Job was suspended"},
	} {
		g.Leaves = c.leaves
		n := g.Dismissal(nil, c.reason, c.other, c.to)
		if got := n.Reason + ": " + n.Text; got != c.want {
			t.Errorf("%q", got)
		}
	}
}

// UIDs are in their own order, whatever that of the pods is.
func TestUIDs(t *testing.T) {
	g := newGang(2, controlplane.Gang("g", 2, 1, nil)...)
	pods := g.Sorted()
	pods[0].Obj.UID, pods[1].Obj.UID = "z", "a"
	if got := UIDs(pods); !slices.Equal(got, []types.UID{"a", "z"}) {
		t.Errorf("%v", got)
	}
}
