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

// A machine and a Kubernetes cluster have weights by the same reading; what real GPUs are
// besides, they say themselves.
func TestWeightsOfRealGPUs(t *testing.T) {
	read := map[string]func(string) ([]Setting, error){
		"serve": func(text string) ([]Setting, error) {
			c, err := ReadServe("f", strings.NewReader(text))
			if err != nil {
				return nil, err
			}
			return c.Settings(), nil
		},
		"kube": func(text string) ([]Setting, error) {
			c, err := ReadKube("f", strings.NewReader(text))
			if err != nil {
				return nil, err
			}
			return c.Settings(), nil
		},
	}
	for _, where := range []string{"serve", "kube"} {
		list, err := read[where]("policy: las\nmodels: [{name: T4, weight: 0.25}, {name: NVIDIA-Own, weight: 2}]\n")
		if err != nil {
			t.Fatal(err)
		}
		got := ""
		for _, s := range list {
			if strings.HasPrefix(s.Key, "models.") {
				got += s.Key + " " + s.Value + "; "
			}
		}
		if got != "models.T4-16GB weight 0.25; models.NVIDIA-Own weight 2; " {
			t.Errorf("%s: %s", where, got)
		}
		for text, want := range map[string]string{
			"models: [{name: T4, weight: -1}]":                            `f:1: models: T4: model "T4": weight -1; between`,
			"policy: fifo\nmodels: [{name: T4, memory: 10GiB}]":           `f:2: models: T4: model "T4": only name and weight`,
			"models: [{weight: 1}]":                                       "one has no name",
			"models: [{name: T4, weight: 1}, {name: T4-16GB, weight: 2}]": "stands there twice",
			"models: [{name: T4, wieght: 1}]":                             "wieght",
		} {
			if _, err := read[where](text); err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%s: %q: %v, want %s", where, text, err, want)
			}
		}
	}
}
