package config

import (
	"strings"
	"testing"
)

// A GPU model's weight is read, for a known model without saying anything else of it.
func TestModelWeight(t *testing.T) {
	s, err := Read("f", strings.NewReader("models: [{name: T4-16GB, weight: 0.25}, {name: Mine, memory: 10GiB}]\nnodes: [{name: a, model: T4-16GB, gpus: 1}]\n"))
	if err != nil {
		t.Fatal(err)
	}
	if m, _ := s.Model("T4-16GB"); m.Weight != 250 || m.Memory == 0 {
		t.Errorf("%+v", m)
	}
	if m, _ := s.Model("Mine"); m.Weight != 0 {
		t.Errorf("%+v", m)
	}
	if _, err := Read("f", strings.NewReader("models: [{name: T4-16GB, weight: -1}]\nnodes: [{name: a, model: T4-16GB, gpus: 1}]\n")); err == nil || !strings.Contains(err.Error(), "weight -1") {
		t.Error(err)
	}
}

// How many clients MPS takes on a GPU can be stated; else it is as its generation has it.
func TestModelClients(t *testing.T) {
	s, err := Read("f", strings.NewReader("sharing: mps\nmodels: [{name: B200-180GB, mps_clients: 60}, {name: Old, memory: 10GiB, generation: pascal}]\nnodes: [{name: a, model: B200-180GB, gpus: 1}]\n"))
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]int{"B200-180GB": 60, "Old": 16, "H100-80GB": 48} {
		if m, _ := s.Model(name); m.MPSClients() != want {
			t.Errorf("%s: %d clients, want %d", name, m.MPSClients(), want)
		}
	}
	if _, err := Read("f", strings.NewReader("models: [{name: T4-16GB, mps_clients: -1}]\nnodes: [{name: a, model: T4-16GB, gpus: 1}]\n")); err == nil || !strings.Contains(err.Error(), "mps_clients -1; between 1 and 1000") {
		t.Error(err)
	}
}
