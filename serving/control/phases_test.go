package control

import (
	"math"
	"os"
	"strconv"
	"testing"
	"time"

	"github.com/muster-gpu/muster/gateway"
	"github.com/muster-gpu/muster/serving/tally"
)

// A service with phases is two of the gateway's: replicas for prompts are in the inner one. What is counted of both is
// one service's: a request arrives once, waits in either, and is answered once.
func TestPhases(t *testing.T) {
	w := newWorld(t, 4)
	c := w.controller()
	text, err := os.ReadFile("../../examples/serving/phases-cpu.yaml")
	if err != nil {
		t.Fatal(err)
	}
	w.apply(c, string(text))
	w.pass(c, 3*time.Second)
	if w.told == nil || len(w.told.Services) != 2 {
		t.Fatalf("the gateway has %+v", w.told)
	}
	then, first := w.told.Services[0], w.told.Services[1]
	if then.Name != "chat" || then.Prompts != first.Name || then.Inner || !first.Inner || len(then.Replicas) != 1 ||
		len(first.Replicas) != 1 || first.Replicas[0].ID == then.Replicas[0].ID {
		t.Fatalf("the gateway has %+v", w.told)
	}
	r := &gateway.Report{Services: []gateway.Served{
		{Name: "chat", Tally: tally.Tally{Arrived: 8, Answered: 7, Failed: 1}, Waiting: 1, Replicas: 3,
			Each: []gateway.Counted{{ID: "2"}}},
		{Name: "chat:prompts", Tally: tally.Tally{Arrived: 12, Answered: 9, Dropped: 1, Failed: 2}, Waiting: 2,
			Each: []gateway.Counted{{ID: "1"}}},
		{Name: "other"}}}
	fold(r)
	s := r.Services[0]
	if len(r.Services) != 2 || s.Arrived != 12 || s.Answered != 7 || s.Failed != 3 || s.Dropped != 1 ||
		s.Waiting != 3 ||
		s.Replicas != 0 || len(s.Each) != 2 {
		t.Errorf("%+v", r.Services)
	}
}

// The replicas of a canary get its part of the requests together, and the others the rest.
func TestCanary(t *testing.T) {
	w := newWorld(t, 8)
	c := w.controller()
	w.said = &gateway.Report{Services: []gateway.Served{{Name: "vision"}}}
	w.apply(c, `
name: vision
latency: 50ms
replicas: {min: 1, max: 8}
scaling: static:replicas=3
canary: 0.1
variants:
  - {name: a, command: [serve], profile: [{batch: 1, latency: 5ms}]}
  - {name: b, command: [serve], profile: [{batch: 1, latency: 5ms}]}
`)
	w.pass(c, 12*time.Second)
	if w.told == nil || len(w.told.Services) != 1 || len(w.told.Services[0].Replicas) != 4 {
		t.Fatalf("the gateway has %+v", w.told)
	}
	parts := map[string]float64{}
	for _, r := range w.told.Services[0].Replicas {
		id, err := strconv.Atoi(r.ID)
		if err != nil {
			t.Fatal(err)
		}
		parts[w.jobs[id].Variant] += r.Weight
	}
	if math.Abs(parts["a"]-0.9) > 1e-9 || math.Abs(parts["b"]-0.1) > 1e-9 {
		t.Errorf("parts %v", parts)
	}
}

// What is shown of a language model's variants says how a replica's GPUs share it; of others nothing.
func TestStagesAreShown(t *testing.T) {
	w := newWorld(t, 8)
	c := w.controller()
	const model = "{params: 8.03e9, weights: 16.06e9, layers: 32, heads: 32, kv_heads: 8, head_dim: 128}"
	w.apply(c, "name: chat\nttft: 1s\nreplicas: {max: 2}\nvariants:\n  - {name: a, command: [serve], gpus: 4, pipeline: 2, "+
		"model: "+model+"}\n  - {name: b, command: [serve], gpus: 2, model: "+model+"}\n")
	w.apply(c, "name: vision\nlatency: 50ms\nreplicas: {max: 2}\nvariants:\n  - {name: v, command: [serve], "+
		"profile: [{batch: 1, latency: 5ms}]}\n")
	want := map[string][2]int{"a": {2, 2}, "b": {2, 1}, "v": {}}
	for _, name := range []string{"chat", "vision"} {
		s, err := c.Service(name)
		if err != nil {
			t.Fatal(err)
		}
		for _, v := range s.Variants {
			if got := [2]int{v.Tensor, v.Pipeline}; got != want[v.Name] {
				t.Errorf("%s: %v, want %v", v.Name, got, want[v.Name])
			}
		}
	}
}
