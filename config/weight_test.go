package config

import (
	"strings"
	"testing"
)

// The weight of a GPU model is read, for a known model without other properties.
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
	if _, err := Read("f",
		strings.NewReader("models: [{name: T4-16GB, weight: -1}]\nnodes: [{name: a, model: T4-16GB, gpus: 1}]\n")); err == nil || !strings.Contains(err.Error(), "weight -1") {
		t.Error(err)
	}
}

// A short name stands for all models of its family, in a cluster file and in a daemon's configuration; one that
// matches no model of a node is an error that lists the models.
func TestShortNames(t *testing.T) {
	nodes := "nodes: [{name: a, model: A100-80GB, gpus: 1}, {name: b, model: T4-16GB, gpus: 1}, {name: c, model: T4, gpus: 1}, {name: d, model: A100-40GB, gpus: 1}]\n"
	s, err := Read("f", strings.NewReader("models: [{name: T4, weight: 0.25}, {name: a100, weight: 0.5}]\n"+nodes))
	if err != nil {
		t.Fatal(err)
	}
	for i, want := range []int64{500, 250, 250, 500} {
		if m, _ := s.Model(s.Nodes[i].Model); m.Weight != want || m.Memory == 0 {
			t.Errorf("node %s: %+v, want weight %d", s.Nodes[i].Name, m, want)
		}
	}
	c, err := ReadServe("f", strings.NewReader("policy: las\nmodels: [{name: A100, weight: 0.5}]\n"))
	if err != nil || len(c.Models) != 2 || c.Models[0].Weight != 500 || c.Models[1].Weight != 500 {
		t.Errorf("%+v, %v", c, err)
	}
	for models, want := range map[string]string{
		"{name: T5, weight: 0.25}":                                  `models: unknown GPU model "T5": did you mean "T4"? (valid: A100-40GB, A100-80GB, T4, T4-16GB); for an unknown model state memory or like`,
		"{name: A100, weight: 0.5}, {name: A100-80GB, weight: 2}":   `model "A100-80GB" is listed twice`,
		"{name: A100-80GB, weight: 0.5}, {name: A100, weight: 0.5}": `model "A100-80GB" is listed twice: A100 is all models of that family`,
	} {
		if _, err := Read("f", strings.NewReader("models: ["+models+"]\n"+nodes)); err == nil ||
			!strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %s", models, err, want)
		}
	}
	if s, err = Read("f", strings.NewReader("models: [{name: T4, memory: 1GiB, weight: 2}]\n"+nodes)); err != nil ||
		s.Nodes[2].Model != "T4" || s.Nodes[1].Model != "T4-16GB" {
		t.Errorf("an own model of a short name: %+v, %v", s, err)
	}
}

// The number of MPS clients on a GPU can be stated; the default depends on its generation.
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
	if _, err := Read("f",
		strings.NewReader("models: [{name: T4-16GB, mps_clients: -1}]\nnodes: [{name: a, model: T4-16GB, gpus: 1}]\n")); err == nil || !strings.Contains(err.Error(), "mps_clients -1; between 1 and 1000") {
		t.Error(err)
	}
}

// Weights are read in the same way for a machine and for a Kubernetes cluster, whose real GPUs describe
// everything else themselves.
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
			"models: [{name: T4, weight: 1}, {name: T4-16GB, weight: 2}]": "is listed twice",
			"models: [{name: T4, wieght: 1}]":                             "wieght",
		} {
			if _, err := read[where](text); err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%s: %q: %v, want %s", where, text, err, want)
			}
		}
	}
}
