package places

import (
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"reflect"
	"slices"
	"testing"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/engine"
	"github.com/muster-gpu/muster/kube/holds"
	"github.com/muster-gpu/muster/kube/nodes"
	"github.com/muster-gpu/muster/kube/plans"
)

var order = []string{"n0", "n1", "n2"}

// A plan says the same of places that were listed from it and added to another one.
func TestPlan(t *testing.T) {
	allocs := []engine.Alloc{{Node: 1, Tasks: 2}, {Node: 0, Set: 1, Tasks: 1}}
	p := plans.Plan{On: On(allocs, order)}
	list := Of(&p)
	if want := (List{{Node: "n1"}, {Node: "n1"}, {Node: "n0", Set: 1}}); !slices.Equal(list, want) {
		t.Fatalf("%v", list)
	}
	var again plans.Plan
	if list.AddTo(&again); !slices.Equal(again.On, p.On) {
		t.Errorf("%v, not %v", again.On, p.On)
	}
}

func TestList(t *testing.T) {
	list := List{{Node: "n1", Pod: "a"}, {Node: "n0", Set: 1, Surplus: true}, {Node: "n1", Pod: "b"}, {Node: "n2"}}
	tasks := []cluster.TaskSet{{Count: 3, Request: cluster.Request{GPUs: 4}},
		{Count: 1, Request: cluster.Request{GPUs: 1, Share: 500}}}
	for _, c := range []struct{ name, got, want string }{
		{"has", fmt.Sprint(list.Has("a"), list.Has("c")), "true false"},
		{"empty", fmt.Sprint(list.Empty()), "2"},
		{"needed", fmt.Sprint(list.Needed().Nodes(), list.Needed().HasSurplus()), "[n1 n2] false"},
		{"surplus", fmt.Sprint(len(list), list.HasSurplus()), "4 true"},
		{"nodes", fmt.Sprint(list.Nodes()), "[n1 n0 n2]"},
		{"per node", fmt.Sprint(list.PerNode()), "map[n0:1 n1:2 n2:1]"},
		{"whole GPUs", fmt.Sprint(list.WholeGPUs(tasks)), "map[n1:8 n2:4]"},
	} {
		if c.got != c.want {
			t.Errorf("%s: %s, not %s", c.name, c.got, c.want)
		}
	}
}

// A pod that asks for exactly what a place is for comes before one that was resized, and none takes another's node.
func TestSeat(t *testing.T) {
	tasks := []cluster.TaskSet{{Count: 2, Request: cluster.Request{GPUs: 2, CPU: 1000}}}
	bound := func(uid types.UID, node string, gpus int, cpu int64) Bound {
		p := &nodes.Pod{Request: cluster.Request{GPUs: gpus, CPU: cpu}}
		p.Obj = &v1.Pod{ObjectMeta: metav1.ObjectMeta{UID: uid}}
		return Bound{p, node}
	}
	for _, c := range []struct {
		name    string
		pods    []Bound
		seats   []types.UID
		without int
	}{
		{"each has its own", []Bound{bound("a", "n1", 2, 1000), bound("b", "n0", 2, 1000)}, []types.UID{"b", "a"}, 0},
		{"resized", []Bound{bound("a", "n0", 2, 500)}, []types.UID{"a", ""}, 0},
		{"the exact one first", []Bound{bound("a", "n0", 2, 500), bound("b", "n0", 2, 1000)}, []types.UID{"b", ""}, 1},
		{"other GPUs", []Bound{bound("a", "n0", 1, 1000)}, []types.UID{"", ""}, 1},
		{"another node", []Bound{bound("a", "n2", 2, 1000)}, []types.UID{"", ""}, 1},
	} {
		list := List{{Node: "n0"}, {Node: "n1"}}
		without := list.Seat(tasks, c.pods)
		if got := []types.UID{list[0].Pod, list[1].Pod}; !slices.Equal(got, c.seats) || len(without) != c.without {
			t.Errorf("%s: %q have the places, and %d have none", c.name, got, len(without))
		}
	}
}

// random is a gang of up to three kinds of tasks on three nodes, as the engine places it.
func random(r *rand.Rand) Layout {
	var l Layout
	taken := map[string]holds.InUse{}
	var p plans.Plan
	for set := range 1 + r.IntN(3) {
		request := cluster.Request{GPUs: set + 1, CPU: cluster.Milli(100 * (set + 1)), RAM: 10}
		count := 0
		for _, node := range order {
			if n := r.IntN(4); n > 0 {
				p.On = append(p.On, plans.On{Node: node, Set: set, Tasks: n})
				count += n
			}
		}
		if count == 0 {
			p.On, count = append(p.On, plans.On{Node: "n0", Set: set, Tasks: 1}), 1
		}
		p.Tasks = append(p.Tasks, cluster.TaskSet{Count: count, Request: request})
	}
	l.Tasks, l.Places = p.Tasks, Of(&p)
	for i := range l.Places {
		l.Places[i].Pod = types.UID(fmt.Sprint("p", i))
	}
	l.Allocs, _ = Devices(&p, taken, func(node string) int { return slices.Index(order, node) })
	return l
}

// what says in full what a layout is made of, in an order of its own.
func (l Layout) what() (list []string) {
	for _, t := range l.Tasks {
		list = append(list, fmt.Sprintf("%d tasks of %+v", t.Count, t.Request))
	}
	for _, s := range l.Places {
		list = append(list, fmt.Sprintf("pod %s on %s: %+v", s.Pod, s.Node, l.Tasks[s.Set].Request))
	}
	held := map[string]engine.Alloc{}
	for _, a := range l.Allocs {
		key := fmt.Sprintf("devices on %s for %+v", order[a.Node], l.Tasks[a.Set].Request)
		h := held[key]
		h.Tasks, h.GPUs, h.CPU, h.RAM = h.Tasks+a.Tasks, h.GPUs|a.GPUs, h.CPU+a.CPU, h.RAM+a.RAM
		held[key] = h
	}
	for key, h := range held {
		list = append(list, fmt.Sprintf("%s: %+v", key, h))
	}
	slices.Sort(list)
	return list
}

// sound says where tasks, places and devices of a layout are not the same; "": they are.
func (l Layout) sound() string {
	for i, t := range l.Tasks {
		places, tasks := 0, int32(0)
		for _, s := range l.Places {
			if s.Set == i {
				places++
			}
		}
		for _, a := range l.Allocs {
			if int(a.Set) == i {
				tasks += a.Tasks
			}
		}
		if t.Count != places || int(tasks) != places {
			return fmt.Sprintf("set %d: %d tasks on %d places, with devices for %d", i, t.Count, places, tasks)
		}
	}
	return ""
}

// What is taken out of a gang and put in again makes the whole again, devices and all, and neither changes what it was
// made of.
func TestWithoutAndWith(t *testing.T) {
	for seed := range uint64(200) {
		r := rand.New(rand.NewPCG(seed, 1))
		whole := random(r)
		before := whole.what()
		lost := map[string]bool{}
		for _, name := range order {
			lost[name] = r.IntN(2) == 0
		}
		isLost := func(s *Place) bool { return lost[s.Node] }
		left, gone := whole.Without(isLost, order)
		rest, stays := whole.Without(func(s *Place) bool { return !isLost(s) }, order)
		if len(gone) != len(rest.Places) || len(stays) != len(left.Places) {
			t.Fatalf("seed %d: %d are gone, and %d are the others", seed, len(gone), len(rest.Places))
		}
		if why := left.sound(); why != "" {
			t.Fatalf("seed %d: %s", seed, why)
		}
		if got := left.With(rest).what(); !slices.Equal(got, before) {
			t.Fatalf("seed %d: together they are\n%q, not\n%q", seed, got, before)
		}
		if got := whole.what(); !slices.Equal(got, before) {
			t.Fatalf("seed %d: it was changed", seed)
		}
	}
}

// Some of the tasks that an allocation is for are lost, with devices of their own.
func TestWithoutSome(t *testing.T) {
	l := Layout{Tasks: []cluster.TaskSet{{Count: 3, Request: cluster.Request{GPUs: 2}}},
		Places: List{{Node: "n1", Pod: "a"}, {Node: "n1", Pod: "b", Lost: true}, {Node: "n0", Pod: "c"}},
		Allocs: []engine.Alloc{{Node: 1, Tasks: 2, GPUs: 0b1111}, {Node: 0, Tasks: 1, GPUs: 0b11}}}
	left, gone := l.Without(func(s *Place) bool { return s.Lost }, order)
	want := Layout{Tasks: []cluster.TaskSet{{Count: 2, Request: l.Tasks[0].Request}},
		Places: List{l.Places[0], l.Places[2]},
		Allocs: []engine.Alloc{{Node: 1, Tasks: 1, GPUs: 0b11}, {Node: 0, Tasks: 1, GPUs: 0b11}}}
	if !reflect.DeepEqual(left, want) || len(gone) != 1 || gone[0].Pod != "b" {
		t.Errorf("%+v without %+v", left, gone)
	}
}

// What a gang needs and what is beyond make the whole again.
func TestDivide(t *testing.T) {
	for seed := range uint64(200) {
		r := rand.New(rand.NewPCG(seed, 2))
		whole := random(r)
		for i := range whole.Places {
			whole.Places[i].Surplus = r.IntN(3) == 0
		}
		before := whole.what()
		needed, surplus := whole.Divide(order)
		if why := needed.sound(); why != "" || needed.Places.HasSurplus() {
			t.Fatalf("seed %d: %s", seed, why)
		}
		again := needed
		for _, s := range surplus {
			if !s.Held || s.Alloc.Tasks != 1 {
				t.Fatalf("seed %d: %+v", seed, s)
			}
			one := Layout{Tasks: []cluster.TaskSet{{Count: 1, Request: whole.Tasks[s.Set].Request}},
				Places: List{{Node: s.Node, Pod: s.Pod}}, Allocs: []engine.Alloc{s.Alloc}}
			again = again.With(one)
		}
		if got := again.what(); !slices.Equal(got, before) || !slices.Equal(whole.what(), before) {
			t.Fatalf("seed %d: together they are\n%q, not\n%q", seed, got, before)
		}
	}
}

// Pods that are resized keep their devices: tasks that asked for the same are of two sets then.
func TestResized(t *testing.T) {
	l := Layout{Tasks: []cluster.TaskSet{{Count: 2, Request: cluster.Request{GPUs: 2, CPU: 1000}}},
		Places: List{{Node: "n1", Pod: "a"}, {Node: "n1", Pod: "b"}},
		Allocs: []engine.Alloc{{Node: 1, Tasks: 2, GPUs: 0b1111, CPU: 2000}}}
	larger := func(s *Place, r cluster.Request) cluster.Request {
		if s.Pod == "b" {
			r.CPU = 3000
		}
		return r
	}
	now, ok := l.Resized(larger, order)
	want := []engine.Alloc{{Node: 1, Tasks: 1, GPUs: 0b11, CPU: 1000},
		{Node: 1, Set: 1, Tasks: 1, GPUs: 0b1100, CPU: 3000}}
	if !ok || now.sound() != "" || !reflect.DeepEqual(now.Allocs, want) || now.Places[1].Set != 1 {
		t.Errorf("%v: %+v", ok, now)
	}
	same := func(_ *Place, r cluster.Request) cluster.Request { return r }
	if now, ok := l.Resized(same, order); !ok || !reflect.DeepEqual(now, l) {
		t.Errorf("nothing was resized: %v: %+v", ok, now)
	}
	if _, changed := l.As(same); changed {
		t.Error("nothing was resized, and it is said to be something else")
	}
	l.Allocs[0].Tasks = 3
	if _, ok := l.Resized(larger, order); ok {
		t.Error("the engine has three tasks there")
	}
	huge := func(_ *Place, r cluster.Request) cluster.Request { r.CPU = -1; return r }
	if _, ok := l.Resized(huge, order); ok {
		t.Error("nothing can hold less than nothing")
	}
}

// A gang whose empty places others have is what its pods make of it.
func TestOccupied(t *testing.T) {
	l := Layout{Tasks: []cluster.TaskSet{{Count: 2, Request: cluster.Request{GPUs: 4}},
		{Count: 2, Request: cluster.Request{GPUs: 1}}},
		Places: List{{Node: "n0"}, {Node: "n1"}, {Node: "n1", Set: 1, Pod: "a"}, {Node: "n2", Set: 1, Pod: "b"}}}
	left, empty := l.Occupied()
	want := Layout{Tasks: []cluster.TaskSet{{Count: 2, Request: cluster.Request{GPUs: 1}}},
		Places: List{{Node: "n1", Pod: "a"}, {Node: "n2", Pod: "b"}}}
	if !reflect.DeepEqual(left, want) {
		t.Errorf("%+v", left)
	}
	lost := Missing{}.AddAll(empty, l.Tasks)
	if lost.Size() != 2 || lost[0].Request.GPUs != 4 {
		t.Errorf("%+v", lost)
	}
	some := lost.Filled([]cluster.TaskSet{{Count: 1, Request: cluster.Request{GPUs: 4}}, l.Tasks[1]})
	if some.Size() != 1 || lost.Size() != 2 {
		t.Errorf("one was found again: %+v of %+v", some, lost)
	}
	if all := lost.Filled(l.Tasks); len(all) != 0 {
		t.Errorf("all were found again: %+v", all)
	}
}

// A plan has the devices that are free, each once; one that has too few books none.
func TestDevices(t *testing.T) {
	p := plans.Plan{Tasks: []cluster.TaskSet{{Count: 2, Request: cluster.Request{GPUs: 2, CPU: 500}},
		{Count: 2, Request: cluster.Request{GPUs: 1, Share: 500}},
		{Count: 1, Request: cluster.Request{GPUs: 1, Profile: "1g.10gb"}}},
		On: []plans.On{{Node: "n1", Tasks: 2}, {Node: "n1", Set: 1, Tasks: 2}, {Node: "n2", Set: 2, Tasks: 1}}}
	number := func(node string) int { return slices.Index(order, node) }
	taken := map[string]holds.InUse{"n1": {Devices: 0b10}}
	got, err := Devices(&p, taken, number)
	want := []engine.Alloc{{Node: 1, Tasks: 2, GPUs: 0b11101, CPU: 1000},
		{Node: 1, Set: 1, Tasks: 1, GPUs: 0b100000, Share: 500},
		{Node: 1, Set: 1, Tasks: 1, GPUs: 0b100000, Share: 500},
		{Node: 2, Set: 2, Tasks: 1}}
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("%v: %+v", err, got)
	}
	if taken["n1"].Devices != 0b111111 {
		t.Errorf("%b are taken", taken["n1"].Devices)
	}
	taken = map[string]holds.InUse{"n1": {Devices: ^uint64(0b11)}}
	before := maps.Clone(taken)
	if _, err := Devices(&p, taken, number); !errors.Is(err, ErrNoRoom) || !maps.Equal(taken, before) {
		t.Errorf("%v: %v", err, taken)
	}
}
