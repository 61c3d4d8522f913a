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
