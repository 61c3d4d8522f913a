package config

import (
	"fmt"
	"slices"

	"github.com/muster-gpu/muster/cluster"
)

// Sharing says how the GPUs of this machine are shared.
type Sharing struct {
	Shares     string // auto, mps, time-slicing
	MIG        string // static, instances, dynamic: who partitions GPUs
	Program    string // that controls MPS
	OverMemory string // warn, throttle, stop: jobs that use more memory than their share's where nothing keeps them from it
}

type sharingFile struct {
	Shares     string `yaml:"shares"`
	MIG        string `yaml:"mig"`
	Program    string `yaml:"mps_program"`
	OverMemory string `yaml:"over_memory"`
}

// MIGWays and OverMemories are what Sharing's MIG and OverMemory can be, in the order of
// package local's.
var (
	MIGWays      = []string{"static", "instances", "dynamic"}
	OverMemories = []string{"warn", "throttle", "stop"}
)

// mpsProgram is NVIDIA's.
const mpsProgram = "nvidia-cuda-mps-control"

// sharing checks the part of the file and fills in what it does not say.
func (f *sharingFile) sharing() (Sharing, error) {
	s := Sharing{"auto", "static", mpsProgram, "warn"}
	if f == nil {
		return s, nil
	}
	for _, v := range []struct {
		name, text string
		to         *string
		of         []string
	}{{"mig", f.MIG, &s.MIG, MIGWays}, {"shares", f.Shares, &s.Shares, []string{"auto", "mps", "time-slicing"}}, {"over_memory", f.OverMemory, &s.OverMemory, OverMemories},
		{"mps_program", f.Program, &s.Program, nil}} {
		if v.text == "" {
			continue
		}
		if v.of != nil && !slices.Contains(v.of, v.text) {
			return s, fmt.Errorf("%s: %w", v.name, cluster.Unknown("way", v.text, v.of))
		}
		*v.to = v.text
	}
	return s, nil
}
