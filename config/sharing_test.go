package config

import (
	"strings"
	"testing"

	"github.com/muster-gpu/muster/cluster"
)

// The mode of partitioning of a cluster is read; unless it is dynamic, GPUs of nodes that state nothing stay
// whole.
func TestClusterMIG(t *testing.T) {
	nodes := "nodes: [{name: a, model: A100-80GB, gpus: 1}, {name: b, model: A100-80GB, gpus: 1, mig: '0:*'}]\n"
	for text, want := range map[string]struct {
		way cluster.MIGWay
		a   string
	}{"": {cluster.StaticMIG, ""}, "mig: dynamic\n": {cluster.DynamicMIG, ""},
		"mig: instances\n": {cluster.InstancesMIG, "none"}, "mig: static\n": {cluster.StaticMIG, "none"}} {
		s, err := Read("f", strings.NewReader(text+nodes))
		if err != nil || s.MIG != want.way || s.Nodes[0].MIG != want.a || s.Nodes[1].MIG != "0:*" {
			t.Errorf("%q: %+v %v", text, s, err)
		}
	}
	if _, err := Read("f", strings.NewReader("mig: dynamc\n"+nodes)); err == nil ||
		!strings.Contains(err.Error(), `f:1: mig: unknown way "dynamc": did you mean "dynamic"?`) {
		t.Error(err)
	}
}

// The settings for sharing GPUs are read with their defaults, and invalid ones are refused with the line.
func TestSharing(t *testing.T) {
	for text, want := range map[string]Sharing{
		"{}":                              {"auto", "static", "nvidia-cuda-mps-control", "warn", 0},
		"sharing: {shares: time-slicing}": {"time-slicing", "static", "nvidia-cuda-mps-control", "warn", 0},
		"sharing: {shares: mps, mps_program: /x/y}": {"mps", "static", "/x/y", "warn", 0},
		"sharing: {mig: dynamic}":                   {"auto", "dynamic", "nvidia-cuda-mps-control", "warn", 0},
		"sharing: {min_speed: 0.8}":                 {"auto", "static", "nvidia-cuda-mps-control", "warn", 800_000},
		"sharing: {over_memory: stop}":              {"auto", "static", "nvidia-cuda-mps-control", "stop", 0},
	} {
		if c, err := ReadServe("f", strings.NewReader(text)); err != nil || c.Sharing != want {
			t.Errorf("%s: %+v %v", text, c, err)
		}
	}
	for text, want := range map[string]string{
		"sharing: {shares: mpps}":     `shares: unknown way "mpps": did you mean "mps"?`,
		"sharing: {over_memory: die}": `over_memory: unknown way "die"`,
		"sharing: {mig: dynamc}":      `mig: unknown way "dynamc": did you mean "dynamic"?`,
		"sharing: {min_speed: 1.5}":   "min_speed: 1.5 is not a part",
		"sharing: {slices: 3}":        "slices",
	} {
		if _, err := ReadServe("f", strings.NewReader(text)); err == nil || !strings.Contains(err.Error(), want) ||
			!strings.Contains(err.Error(), "f:1") {
			t.Errorf("%s: %v", text, err)
		}
	}
}
