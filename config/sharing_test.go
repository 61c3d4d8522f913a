package config

import (
	"strings"
	"testing"
)

// How GPUs are shared is read; what is not said has its default, and what is no
// way is refused with the line.
func TestSharing(t *testing.T) {
	for text, want := range map[string]Sharing{
		"{}":                              {"auto", "static", "nvidia-cuda-mps-control", "warn"},
		"sharing: {shares: time-slicing}": {"time-slicing", "static", "nvidia-cuda-mps-control", "warn"},
		"sharing: {shares: mps, mps_program: /x/y}": {"mps", "static", "/x/y", "warn"},
		"sharing: {mig: dynamic}":                   {"auto", "dynamic", "nvidia-cuda-mps-control", "warn"},
		"sharing: {over_memory: stop}":              {"auto", "static", "nvidia-cuda-mps-control", "stop"},
	} {
		if c, err := ReadServe("f", strings.NewReader(text)); err != nil || c.Sharing != want {
			t.Errorf("%s: %+v %v", text, c, err)
		}
	}
	for text, want := range map[string]string{
		"sharing: {shares: mpps}":     `shares: unknown way "mpps": did you mean "mps"?`,
		"sharing: {over_memory: die}": `over_memory: unknown way "die"`,
		"sharing: {mig: dynamc}":      `mig: unknown way "dynamc": did you mean "dynamic"?`,
		"sharing: {slices: 3}":        "slices",
	} {
		if _, err := ReadServe("f", strings.NewReader(text)); err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), "f:1") {
			t.Errorf("%s: %v", text, err)
		}
	}
}
