package mig

import (
	"slices"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/config"
	"github.com/muster-gpu/muster/engine"
)

// small is a cluster of nodes of two GPUs, and a gang that waits for 14 slices.
type small struct {
	room  *Room
	nodes []string
	users map[string][]User
	gang  *Waiter
}

func (s *small) Up(string) bool            { return true }
func (s *small) Published(string) int      { return 0 }
func (s *small) UserCount(node string) int { return len(s.users[node]) }
func (s *small) Users(node string) []User  { return s.users[node] }
func (s *small) Waiters() (list []*Waiter) {
	if s.gang != nil {
		list = append(list, s.gang)
	}
	return list
}

func (s *small) AnyWaiting(is func(*Gang, cluster.Time) bool) bool {
	return s.gang != nil && is(s.gang.Gang, s.gang.Since)
}

func (s *small) NodeAs(name string, obj *v1.Node) cluster.Node {
	n := cluster.Node{Name: name, Model: "H100-80GB", GPUs: 2, CPU: 1000, RAM: 1000}
	if have := s.room.offer(obj.Status.Allocatable); len(have.Slices) > 0 {
		model, _ := cluster.FindModel(n.Model)
		geometry := make([][]cluster.Instance, have.Whole)
		n.MIG = cluster.GeometryText(append(geometry, s.room.Pack(&model, have.Slices, 2)...))
	}
	return n
}

func (s *small) Config(spec cluster.Spec) (engine.Config, error) {
	return (&config.Rules{Spec: spec, Policy: "fifo", Placer: "best-fit", Backfill: "skip"}).Config()
}

// look looks at the cluster at a time.
func (s *small) look(t *testing.T, at time.Time) []Preemption {
	v := &View{Cluster: s, Now: cluster.Time(at.UnixNano()), Order: s.nodes}
	for _, name := range s.nodes {
		v.Spec.Nodes = append(v.Spec.Nodes, s.NodeAs(name, s.room.nodes[name].obj))
	}
	cfg, err := s.Config(v.Spec)
	if err != nil {
		t.Fatal(err)
	}
	if v.Engine, err = engine.New(cfg); err != nil {
		t.Fatal(err)
	}
	return s.room.Look(v)
}

// Of two nodes the one that suits a gang is closed, to be partitioned into what the gang asks for. If it is empty, it
// is changed at the next look; else what is there is preempted, if it is of a lower tier. It is opened when the gang
// waits no more.
func TestLook(t *testing.T) {
	at := time.Unix(1_800_000_000, 0)
	lost := func() time.Duration { return time.Minute }
	user := func(lower bool) []User {
		return []User{{Gang: "there", GPUs: 2, Ends: cluster.Never, Lost: lost,
			Goes: func(cluster.Tier) bool { return lower }}}
	}
	for _, c := range []struct {
		name  string
		users []User
		stays bool // the gang waits still at the second look
		step  string
		leave []Preemption
	}{
		{"empty", nil, true, Changing, nil},
		{"a lower tier is there", user(true), true, Closed, []Preemption{{"there", "b", "default/g"}}},
		{"the same tier is there", user(false), true, Closed, nil},
		{"it waits no more", user(true), false, "", nil},
	} {
		r := newRoom(t)
		r.opt.Now = func() time.Time { return at }
		s := &small{room: r, nodes: []string{"a", "b"}, users: map[string][]User{"b": c.users}}
		for _, name := range s.nodes {
			obj := nodeOf(nil, nil)
			obj.Name = name
			r.See(&Node{}, obj, false)
			r.nodes[name].raw = obj.Status.Allocatable
		}
		suits := func(obj *v1.Node) bool { return obj.Name == "b" }
		s.gang = &Waiter{Gang: &Gang{}, Name: "default/g", Outside: true,
			Since: cluster.Time(at.Add(-time.Hour).UnixNano()), Suits: func() []string { return nil },
			MayBeOn: suits,
			SuitsAs: func(obj *v1.Node) bool { return suits(obj) && len(r.offer(obj.Status.Allocatable).Slices) > 0 },
			Job: &cluster.Job{ID: 1, Tier: cluster.Standard, Tasks: []cluster.TaskSet{{Count: 14,
				Request: cluster.Request{GPUs: 1, Profile: "1g.10gb", CPU: 1, RAM: 1}}}}}
		if got := s.look(t, at); got != nil {
			t.Errorf("%s: %v at once", c.name, got)
		}
		a, b := r.nodes["a"], r.nodes["b"]
		if b.step != Closed || b.note.Config != "all-1g.10gb" || b.note.From != "all-disabled" || b.note.GPUs != 2 ||
			!slices.Equal(b.note.For, []string{"default/g"}) || a.step != "" {
			t.Fatalf("%s: a is %q, b %q: %+v", c.name, a.step, b.step, b.note)
		}
		b.busy, b.asked = false, false // it is written, and seen
		if !c.stays {
			s.gang = nil
		}
		if got := s.look(t, at.Add(time.Second)); !slices.Equal(got, c.leave) || b.step != c.step || a.step != "" {
			t.Errorf("%s: %v, a is %q, b %q, want %v and %q", c.name, got, a.step, b.step, c.leave, c.step)
		}
	}
}
