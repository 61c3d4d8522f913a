package nodes

import (
	"fmt"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/engine"
	"github.com/muster-gpu/muster/internal/controlplane"
)

// A pod has the place of a task that asks for the same; one whose CPU was resized since, that of a task for its GPUs;
// what a replica or a claim counts for, the task says.
func TestAsks(t *testing.T) {
	plain := &Pod{Request: cluster.Request{GPUs: 2, CPU: 1000}}
	plain.Obj = &v1.Pod{}
	replica := &Pod{Request: cluster.Request{CPU: 1000}}
	replica.Obj, replica.Replica.One = &v1.Pod{}, true
	claim := &Pod{Request: cluster.Request{CPU: 1000}}
	claim.Obj = &v1.Pod{Spec: v1.PodSpec{ResourceClaims: []v1.PodResourceClaim{{Name: "c"}}}}
	share := cluster.Request{GPUs: 1, Share: 500, CPU: 1000}
	for _, c := range []struct {
		name          string
		p             *Pod
		r             cluster.Request
		asks, devices bool
	}{
		{"the same", plain, cluster.Request{GPUs: 2, CPU: 1000}, true, true},
		{"resized", plain, cluster.Request{GPUs: 2, CPU: 500}, false, true},
		{"other GPUs", plain, cluster.Request{GPUs: 1, CPU: 1000}, false, false},
		{"a share", plain, cluster.Request{GPUs: 2, Share: 500, CPU: 1000}, false, false},
		{"a replica's share", replica, share, true, true},
		{"a replica, resized", replica, cluster.Request{GPUs: 1, Share: 500}, false, true},
		{"a replica is no slice", replica, cluster.Request{GPUs: 1, Profile: "1g", CPU: 1000}, false, false},
		{"a claim's", claim, cluster.Request{GPUs: 4, CPU: 1000}, false, true},
	} {
		if c.p.Asks(&c.r) != c.asks || c.p.SameDevices(&c.r) != c.devices {
			t.Errorf("%s: asks for it %v, for its devices %v", c.name, !c.asks, !c.devices)
		}
	}
	for _, p := range []*Pod{plain, replica} {
		p.Give(&share)
	}
	if plain.Request.Share != 0 || replica.Request != share {
		t.Errorf("given a share, they ask for %+v and %+v", plain.Request, replica.Request)
	}
}

// Of a plan that is not trusted, a pod has only what it asks for itself, and of a replica what its node says.
func TestHolds(t *testing.T) {
	place := cluster.Request{GPUs: 1, Share: 250, CPU: 9000}
	own := cluster.Request{GPUs: 1, Share: 100, CPU: 1000}
	p := &Pod{Request: own}
	p.Obj = &v1.Pod{}
	for _, c := range []struct {
		replica, trusted bool
		of               int
		share            cluster.Milli
	}{{false, true, 2, 100}, {true, true, 2, 250}, {true, false, 2, 500}, {true, false, 0, 100}} {
		p.Replica.One = c.replica
		if got := p.Holds(place, c.of, c.trusted); got.Share != c.share || got.CPU != 1000 {
			t.Errorf("%+v: %+v", c, got)
		}
	}
}

// What pods leave of a node is less by those that count, and an allocation that needs more is refused.
func TestRest(t *testing.T) {
	r := newRoom(t, 2)
	for i, gpus := range []int{3, 2} {
		p := &Pod{Request: cluster.Request{GPUs: gpus, CPU: 1000, RAM: 10}}
		p.Obj = controlplane.Pod(fmt.Sprint("p", i), gpus, nil)
		p.Record = p
		r.Move(p, "n0")
	}
	all := r.Rest(func(*Pod) bool { return true })
	some := r.Rest(func(p *Pod) bool { return p.Request.GPUs == 3 })
	if have, used := all.WholeGPUs("n0"); have != 8 || used != 5 {
		t.Errorf("of %d GPUs %d are in use", have, used)
	}
	if have, used := some.WholeGPUs("n0"); have != 8 || used != 3 {
		t.Errorf("of %d GPUs %d are in use by one", have, used)
	}
	cpu, ram := all.Left("n0")
	if more, _ := some.Left("n0"); more != cpu+1000 {
		t.Errorf("%d are left, and %d by one", cpu, more)
	}
	for _, c := range []struct {
		more map[string]int
		want string
	}{{map[string]int{"n0": 3}, ""}, {map[string]int{"n1": 8}, ""}, {map[string]int{"n9": 8, "n0": 0}, ""},
		{map[string]int{"n0": 4}, "node n0 has 8 GPUs, pods hold 5, and it was to have 4 more"}} {
		if got := all.Overdrawn(c.more); got != c.want {
			t.Errorf("%v: %q", c.more, got)
		}
	}
	fits := []engine.Alloc{{Node: 0, CPU: cpu - 1, RAM: ram}, {Node: 0, CPU: 1}}
	if got := all.Outgrown(fits); got != "" {
		t.Error(got)
	}
	if got := all.Outgrown(append(fits, engine.Alloc{Node: 0, RAM: 1})); !strings.Contains(got, "node n0 has") {
		t.Errorf("more than there is: %q", got)
	}
}

// Pods of a kind are looked at once, and suit the nodes of all kinds together.
func TestDistinct(t *testing.T) {
	r := newRoom(t, 2)
	red := node(1)
	red.Labels["color"] = "red"
	r.See(red)
	var pods []*Pod
	for i := range 3 {
		p := &Pod{}
		p.Obj = controlplane.Pod(fmt.Sprint("p", i), 1, nil)
		if i == 2 {
			p.Obj.Spec.NodeSelector = map[string]string{"color": "red"}
		}
		p.Read(r.opt.Suits)
		pods = append(pods, p)
	}
	if kinds := Distinct(pods); len(kinds) != 2 || kinds[1] != pods[2] {
		t.Errorf("%d kinds", len(kinds))
	}
	if s := r.Sets.Of(pods[:2]); len(s.Names) != 2 {
		t.Errorf("%v suit the first two", s.Names)
	}
	if s := r.Sets.Of(pods); len(s.Names) != 1 || s.Names[0] != "n1" {
		t.Errorf("%v suit all", s.Names)
	}
}
