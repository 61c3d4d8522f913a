package config

import (
	"strings"
	"testing"
)

// How GPUs are shared is read; what is not said has its default, and what is no
// way is refused with the line.
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
		if _, err := ReadServe("f", strings.NewReader(text)); err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), "f:1") {
			t.Errorf("%s: %v", text, err)
		}
	}
}
