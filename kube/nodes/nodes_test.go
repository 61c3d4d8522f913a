package nodes

import (
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/engine"
	"github.com/muster-gpu/muster/internal/controlplane"
	"github.com/muster-gpu/muster/kube/fit"
	"github.com/muster-gpu/muster/kube/gpus"
	"github.com/muster-gpu/muster/kube/holds"
	"github.com/muster-gpu/muster/kube/loans"
	"github.com/muster-gpu/muster/kube/mig"
	"github.com/muster-gpu/muster/kube/power"
)

// newRoom is a room in which so many nodes of eight GPUs joined, n0 and so on, and the engine knows them.
func newRoom(t *testing.T, count int) *Room {
	t.Helper()
	names := &gpus.Names{GPUs: []string{"nvidia.com/gpu"},
		Labels:    gpus.Labels{Stated: gpus.Stated{Product: "nvidia.com/gpu.product"}},
		Published: func(string) (int, string) { return 0, "" }}
	now := func() cluster.Time { return 0 }
	r := New(Options{GPUs: names, Labels: &names.Labels, Suits: fit.NewNodes(names), World: fit.NewWorld(),
		Power: power.New(power.Options{Now: time.Now, LoopTime: now}),
		MIG:   mig.New(mig.Options{GPUs: names, Now: time.Now, LoopTime: now}), Loans: loans.New(nil),
		Published: func(string) int { return 0 }, Claimed: func(string) int { return 0 }})
	for i := range count {
		r.See(node(i))
	}
	r.Begin(&engine.Snapshot{}, false)
	r.LimitKinds(r.specs(), nil)
	return r
}

func node(i int) *v1.Node {
	n := controlplane.Node("n"+string(rune('0'+i)), 8, nil)
	n.UID = types.UID(n.Name)
	return n
}

// specs are the nodes as an engine has them that was told all.
func (r *Room) specs() (list []cluster.Node) {
	for _, name := range r.order {
		list = append(list, r.Spec(name, holds.Of{}))
	}
	return list
}

// What foreign pods hold, and what is not healthy, is not for us; what we hold always fits.
func TestSpec(t *testing.T) {
	r := newRoom(t, 1)
	foreign := &Pod{Request: cluster.Request{GPUs: 3, CPU: 90_000}}
	r.AddForeign("n0", foreign)
	h := holds.Of{GPUs: 0b11, CPU: 10_000}
	s := r.Spec("n0", h)
	if s.GPUs != 8 || s.CPU != 10_000 || s.Model != "H100-80GB" {
		t.Errorf("%+v", s)
	}
	if bad := r.Bad(&s, h); bad != 0b11100000 {
		t.Errorf("bad: %b", bad)
	}
	r.AddForeign("n0", &Pod{Request: cluster.Request{GPUs: 5}}) // more than there is: ours stay
	if bad := r.Bad(&s, h); bad != 0b11111100 {
		t.Errorf("bad: %b", bad)
	}
	if as := r.SpecAs("n0", node(0)); as.CPU >= s.CPU+90_000 || as.GPUs != 8 {
		t.Errorf("empty it is %+v", as)
	}
}

// A node that joins is told by an event, one of a model that the engine does not have makes it begin again, and so does
// one in use that came back as another.
func TestTell(t *testing.T) {
	r := newRoom(t, 1)
	known, refuses := true, ""
	tell := func() News {
		return r.Tell(&Engine{Nodes: r.specs()[:1], Held: func() *engine.Snapshot { return &engine.Snapshot{} },
			Refuses: func(*cluster.Node) string { return refuses }, Model: func(string) bool { return known }})
	}
	if news := tell(); len(news.Events) > 0 || news.Renew != "" || news.Joined {
		t.Errorf("nothing changed: %+v", news)
	}
	r.See(node(1))
	news := tell()
	if len(news.Events) != 1 || news.Events[0].Type != engine.NodeUp || len(news.Nodes) != 2 || !news.Joined ||
		!r.Joins("n1") || !r.Sets.Dirty() {
		t.Errorf("n1 joined: %+v", news)
	}
	r.See(node(2))
	if known = false; tell().Renew == "" || r.Kept().Joined != 1 {
		t.Errorf("n2 is of an unknown model: %+v, kept %+v", tell(), r.Kept())
	}
	r = newRoom(t, 1)
	other := node(0)
	other.Status.Allocatable, other.Status.Capacity = nil, nil
	before := r.specs()
	if r.See(other); !r.SizesDirty || !r.Dirty {
		t.Error("another number of GPUs is not noticed")
	}
	if grown, smaller := r.TellSizes(before, nil); len(grown)+len(smaller) > 0 || r.Kept().Changed != 1 {
		t.Errorf("%v, %v, kept %+v", grown, smaller, r.Kept())
	}
	if refuses = "in use"; r.Tell(&Engine{Nodes: before, Held: func() *engine.Snapshot { return &engine.Snapshot{} },
		Refuses: func(*cluster.Node) string { return refuses }}).Renew == "" {
		t.Error("a node in use that is another does not have the engine renewed")
	}
}

// A node that left and that no job refers to is forgotten with the others of its kind: numbers close up, those of jobs,
// too. While numbers have to stay, it is not.
func TestForget(t *testing.T) {
	r := newRoom(t, 4)
	r.Gone("n1", 0)
	r.Gone("n2", 0)
	if r.MayForget(cluster.Time(time.Hour)) {
		t.Error("two nodes are forgotten after an hour")
	}
	if !r.MayForget(cluster.Time(25 * time.Hour)) {
		t.Error("they are not forgotten after a day")
	}
	snap := &engine.Snapshot{Nodes: r.specs()}
	snap.Jobs = []engine.JobRecord{{Holdings: engine.JobHoldings{Allocs: []engine.Alloc{{Node: 2}, {Node: 3}}}}}
	if r.Begin(snap, true); len(r.Order()) != 4 {
		t.Errorf("kept: %v", r.Order())
	}
	r.Begin(snap, false)
	if a := snap.Jobs[0].Allocs; len(r.Order()) != 3 || a[0].Node != 1 || a[1].Node != 2 || len(snap.Nodes) != 3 {
		t.Errorf("%v, %+v, %+v", r.Order(), a, snap.Nodes)
	}
	if kept := r.Kept(); kept != (Kept{Known: 3, Numbered: 3, Gone: 1}) {
		t.Errorf("%+v", kept)
	}
}

// A set of nodes follows each change, also one that it did not hear of alone, and what no gang uses is forgotten.
func TestSets(t *testing.T) {
	r := newRoom(t, 2)
	p := controlplane.Pod("p", 1, nil)
	p.Spec.NodeSelector = map[string]string{"color": "red"}
	set := r.Sets.For("red", func() []fit.Pod { return []fit.Pod{{Obj: p}} })
	if set.Why == "" || len(set.Names) != 0 {
		t.Errorf("no node is red: %+v", set.Set)
	}
	red := node(1)
	red.Labels["color"] = "red"
	version := r.World.Version()
	if seen := r.See(red); r.World.Version() == version || !seen.Other || seen.Renew != "" || !r.Sets.Dirty() {
		t.Errorf("%+v", seen)
	}
	if r.Sets.BringUp(set); len(set.Names) != 1 || set.Names[0] != "n1" {
		t.Errorf("%v", set.Names)
	}
	if len(r.Sets.Name(set)) != 1 || len(r.Sets.Naming(set)) != 0 || len(r.Sets.Named()) != 1 {
		t.Errorf("the engine is told %v", r.Sets.Named())
	}
	if r.Sets.Keep(nil); r.Kept().Sets+r.Kept().Log != 0 {
		t.Errorf("%+v", r.Kept())
	}
}
