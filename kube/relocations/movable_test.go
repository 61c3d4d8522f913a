package relocations

import (
	"strings"
	"testing"
	"time"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/engine"
	"github.com/muster-gpu/muster/kube/fit"
	"github.com/muster-gpu/muster/kube/gang"
	"github.com/muster-gpu/muster/kube/gangs"
	"github.com/muster-gpu/muster/kube/nodes"
	"github.com/muster-gpu/muster/kube/places"
	"github.com/muster-gpu/muster/kube/terms"
)

// says checks the text of an error; "": there is none.
func says(t *testing.T, name string, err error, want string) {
	t.Helper()
	got := ""
	if err != nil {
		got = err.Error()
	}
	if !strings.Contains(got, want) || (got == "") != (want == "") {
		t.Errorf("%s: %q, not %q", name, got, want)
	}
}

// A gang is moved as a whole, if it is as it started, and if it or what owns it permits that.
func TestMayMove(t *testing.T) {
	unknown := func(g *gang.Gang) { g.Pods["b"].Obj.OwnerReferences[0].APIVersion = "example.com/v1" }
	const other, broken = "it is not as it started, or part of another", "it is not whole"
	const apart = "its pods have places of their own"
	for _, c := range []struct {
		name    string
		change  func(*gang.Gang)
		movable string
		besides int
		want    string
	}{
		{"two pods", func(*gang.Gang) {}, "", 0, ""},
		{"it says no", func(*gang.Gang) {}, "false", 0, "muster.sh/movable says so"},
		{"an owner that may count it", unknown, "", 0, "what owns pod b may count that against it, or is not known: muster.sh/movable permits it"},
		{"... and it says yes", unknown, "true", 0, ""},
		{"pods beside it", func(*gang.Gang) {}, "true", 1, other},
		{"a pod of a gang", func(g *gang.Gang) { g.Of = "g" }, "true", 0, other},
		{"a patch", func(g *gang.Gang) { g.IsPatch = true }, "true", 0, other},
		{"it lacks pods", func(g *gang.Gang) { g.Missing = make(places.Missing, 1) }, "true", 0, other},
		{"a pod too many", func(g *gang.Gang) { g.Pods["c"] = pod("c", "r", 1, 1) }, "true", 0, other},
		{"a pod is another", func(g *gang.Gang) { g.Places[1].Pod = "c" }, "true", 0, broken},
		{"a pod leaves", func(g *gang.Gang) { g.Pods["b"].Leaving = true }, "true", 0, broken},
		{"a pod is nowhere", func(g *gang.Gang) { g.Pods["b"].Node = "" }, "true", 0, broken},
		{"other nodes", func(g *gang.Gang) { g.Pods["b"].Signature = "one" }, "true", 0, apart},
	} {
		g := running(7, pod("a", "r", 1, 1), pod("b", "r", 1, 1))
		c.change(g)
		says(t, c.name, MayMove(g, &terms.Terms{Movable: c.movable}, c.besides, gangs.NewObjects()), c.want)
	}
}

// A gang comes back if something makes its pods again, on nodes that take them.
func TestWouldReturn(t *testing.T) {
	const want = "its pods would not be made again, or are bound to where they are"
	g := running(7, pod("a", "r", 1, 1))
	says(t, "a pod of a ReplicaSet", WouldReturn(g), "")
	g.Leaves = "its owner is gone"
	says(t, "one that leaves", WouldReturn(g), want)
	g = running(7, pod("a", "r", 1, 1))
	g.Pods["a"].Obj.OwnerReferences = nil
	says(t, "a pod without an owner", WouldReturn(g), want)

	pods := running(7, pod("a", "r", 1, 1)).Sorted()
	on := func(names ...string) *nodes.Set { return &nodes.Set{Set: &fit.Set{Names: names}} }
	says(t, "its node", FitsAgain(pods, on("n0", "n1"), &fit.Limits{}), "")
	says(t, "another node", FitsAgain(pods, on("n1"), &fit.Limits{}), "its node would not take it again")
	says(t, "no node", FitsAgain(pods, on("n0"), &fit.Limits{Why: "a port"}), "a port")
}

// A job that is free to move has the limits of its pods, and loses what it did since it was saved.
func TestFree(t *testing.T) {
	rack := cluster.Topology{Level: 1, Required: true}
	limits := fit.Limits{Each: 2, Nodes: []cluster.NodeLimit{{Nodes: []string{"n1"}, Tasks: 1}}}
	for saves, want := range map[time.Duration]cluster.Checkpoint{0: {None: true},
		time.Hour: {Interval: time.Hour, Cost: cluster.MaxDuration}} {
		spec := cluster.Job{NoRequeue: true}
		Free(&spec, &terms.Terms{Topology: rack, Saves: saves}, &limits)
		if spec.NoRequeue || spec.Checkpoint != want || spec.PerNode != 2 || len(spec.NodeLimits) != 1 ||
			spec.Topology != rack {
			t.Errorf("%s: %+v", saves, spec)
		}
	}
}

// A second engine is asked about gangs that run; those that may be moved are free in its snapshot, and nowhere else.
func TestDraft(t *testing.T) {
	byID := map[cluster.JobID]*gang.Gang{}
	var snap engine.Snapshot
	snap.Sets = []cluster.NodeSet{{Name: "known"}}
	for id := range cluster.JobID(5) {
		byID[id] = running(id, pod(string('a'+rune(id)), "r", 1, 1))
		snap.Jobs = append(snap.Jobs, engine.JobRecord{Spec: byID[id].Spec})
		snap.Jobs[id].State = engine.Running
	}
	byID[1].Phase, snap.Jobs[2].State = gang.Stopping, engine.Stopping
	byID[0].Book.Number = 30
	d := NewDraft(&snap)
	list := d.Candidates(byID, map[cluster.JobID]string{3: "a budget"})
	if len(list) != 2 || list[0].Gang != byID[0] || list[1].Gang != byID[4] {
		t.Fatalf("%+v", list)
	}
	for i, name := range []string{"known", "new"} {
		list[i].Spec.NoRequeue = false
		d.Free(list[i], &nodes.Set{Set: &fit.Set{Name: name, Names: []string{"n0"}}})
	}
	for i := range snap.Jobs {
		if free := i == 0 || i == 4; snap.Jobs[i].Spec.NoRequeue == free || !byID[cluster.JobID(i)].Spec.NoRequeue {
			t.Errorf("job %d: %+v", i, snap.Jobs[i].Spec)
		}
	}
	if len(snap.Sets) != 2 || snap.Sets[1].Name != "new" || len(snap.Sets[1].Nodes) != 1 {
		t.Errorf("%+v", snap.Sets)
	}
	q := Describe(byID)
	if q.Job != cluster.NoJob || q.Numbers[0] != 30 || q.Names[1] != "default/b" ||
		len(q.Pods) != 4 || len(q.Pods[1]) > 0 || len(q.Pods[4]) != 1 || q.Pods[4][0].Name != "e" {
		t.Errorf("%+v", q)
	}
}
