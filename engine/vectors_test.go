package engine

import (
	"fmt"
	"math/bits"
	"strings"
	"testing"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/engine/inventory"
	"github.com/muster-gpu/muster/engine/job"
)

// NVIDIA's MIG user guide, vector 3: beside a 3g that begins at 0 there is no room for a 4g, but for a 2g
// at 4 and a 1g at 6.
func TestMIGBesideThree(t *testing.T) {
	e := store(t, "A100-80GB", cluster.Node{GPUs: 1})
	take := func(profile string) *inventory.Alloc {
		s := siteFor(e, cluster.Request{GPUs: 1, Profile: profile}, 1)
		if s.Room(0, 0, 1) == 0 {
			return nil
		}
		s.Take(0, 0, 1)
		return &s.Bound()[0]
	}
	late := take("3g")
	if first := take("3g"); first == nil || bits.TrailingZeros8(first.Slots) != 0 {
		t.Fatalf("the second 3g is at %+v, not at 0", first)
	}
	e.st.Release(late)
	if a := take("4g"); a != nil {
		t.Errorf("a 4g beside a 3g at 0: %+v", a)
	}
	for _, c := range []struct {
		profile string
		start   int
	}{{"2g", 4}, {"1g", 6}} {
		if a := take(c.profile); a == nil || bits.TrailingZeros8(a.Slots) != c.start {
			t.Errorf("a %s: %+v, want it at %d", c.profile, a, c.start)
		}
	}
}

// A-hami's vector: a GPU of 80,000 MiB; A has a fifth of it. B does not get the whole
// one, but what is left, all of it; then no other gets anything, however little. When
// they have gone it is as it was.
func TestFractionVector(t *testing.T) {
	e, err := New(Config{Policy: nobody{}, Placer: nowhere{}, Spec: cluster.Spec{
		Nodes:  []cluster.Node{{Name: "n", Model: "X", GPUs: 1}},
		Models: []cluster.GPUModel{{Name: "X", Memory: 80_000, Compute: 1}}}})
	if err != nil {
		t.Fatal(err)
	}
	empty := fmt.Sprint(e.st.Nodes()[0].Devices())
	ways := cluster.Ways{Sharing: cluster.MPS, Model: *e.st.Classes()[0].Model()}
	take := func(r cluster.Request) *inventory.Alloc {
		r, _ = ways.Choose(r, cluster.Open, false)
		s := siteFor(e, r, 1)
		if s.Room(0, 0, 1) == 0 {
			return nil
		}
		s.Take(0, 0, 1)
		return &s.Bound()[0]
	}
	a := take(cluster.Request{GPUs: 1, Share: 200})
	if a == nil || a.Mem != 16_000 {
		t.Fatalf("A has %+v, want 16,000 MiB", a)
	}
	if b := take(cluster.Request{GPUs: 1}); b != nil {
		t.Errorf("a whole GPU beside A: %+v", b)
	}
	if b := take(cluster.Request{GPUs: 1, Share: 800, Memory: 64_001}); b != nil {
		t.Errorf("more memory than is left: %+v", b)
	}
	b := take(cluster.Request{GPUs: 1, Share: 800, Memory: 64_000})
	if b == nil {
		t.Fatal("B does not get what is left")
	}
	if c := take(cluster.Request{GPUs: 1, Share: 1, Memory: 1}); c != nil {
		t.Errorf("C on a full GPU: %+v", c)
	}
	e.st.Release(a)
	e.st.Release(b)
	if got := fmt.Sprint(e.st.Nodes()[0].Devices()); got != empty {
		t.Errorf("in the end the GPU is %s, it was %s", got, empty)
	}
}

// NVIDIA's MPS documentation: eight GPUs with ten replicas each are room for 80 tasks, and no
// more; a task gets a GPU on which there is least room for others.
func TestReplicaUnits(t *testing.T) {
	e := store(t, "V100-16GB", cluster.Node{GPUs: 8})
	s := siteFor(e, share(100), 100)
	if n := s.Room(0, 0, 100); n != 80 {
		t.Errorf("room for %d replicas, want 80", n)
	}
	for n := range 80 {
		s.Take(0, 0, 1)
		if left := s.Room(0, 0, 100); left != 79-n {
			t.Fatalf("after %d replicas there is room for %d", n+1, left)
		}
	}
}

// NVIDIA's MPS documentation: MPS takes 48 clients on a GPU from Volta on, 16 before, or as many as
// the model states. Without MPS there is no such bound.
func TestMPSClients(t *testing.T) {
	for _, c := range []struct {
		model   string
		sharing cluster.Sharing
		clients int
		want    int
	}{{"V100-16GB", cluster.MPS, 0, 96}, {"H100-80GB", cluster.MPS, 0, 96}, {"P100-16GB", cluster.MPS, 0, 32},
		{"B200-180GB", cluster.MPS, 60, 120}, {"V100-16GB", cluster.TimeSlicing, 0, 200}} {
		model, _ := cluster.FindModel(c.model)
		model.Clients = c.clients
		e, err := New(Config{
			Spec: cluster.Spec{Sharing: c.sharing, Models: []cluster.GPUModel{model},
				Nodes: []cluster.Node{{Name: "n", Model: c.model, GPUs: 2}}}, Policy: nobody{}, Placer: nowhere{}})
		if err != nil {
			t.Fatal(err)
		}
		s := siteFor(e, share(10), 300)
		got := 0
		for ; s.Room(0, 0, 300) > 0; got++ {
			if room := s.Room(0, 0, 300); room != c.want-got {
				t.Fatalf("%s under %v: room for %d beside %d, want %d", c.model, c.sharing, room, got, c.want-got)
			}
			s.Take(0, 0, 1)
		}
		if got != c.want {
			t.Errorf("%s under %v: %d shares, want %d", c.model, c.sharing, got, c.want)
		}
		spec := &cluster.Job{Tasks: []cluster.TaskSet{{Count: 1, Request: share(10)}}}
		id := e.admission.ShapeOf(spec)
		j := &job.State{Tenure: &job.Tenure{}, Spec: spec, Shape: id}
		text := e.explain.Room(j, e.shapes.At(id))
		if strings.Contains(text, "MPS takes clients") != (c.sharing == cluster.MPS) {
			t.Errorf("%s under %v: %s", c.model, c.sharing, text)
		}
	}
}
